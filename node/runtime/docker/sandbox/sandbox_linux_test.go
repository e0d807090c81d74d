package sandbox

import (
	"errors"
	"slices"
	"testing"

	"github.com/starling-network/starling/node/runtime"
	"github.com/starling-network/starling/node/runtime/docker/engine"
	"github.com/starling-network/starling/node/runtime/docker/images"
)

func TestCommand(t *testing.T) {
	t.Parallel()
	img := images.Config{Entrypoint: []string{"/e"}, Cmd: []string{"c"}, Env: []string{"A=1", "B=2", "NVIDIA_VISIBLE_DEVICES=all"}, WorkDir: "/w"}
	for name, test := range map[string]struct {
		spec runtime.Spec
		argv []string
		env  []string
		dir  string
	}{
		"as the image says": {runtime.Spec{}, []string{"/e", "c"}, []string{"A=1", "B=2", "NVIDIA_VISIBLE_DEVICES=void"}, "/w"},
		"arguments":         {runtime.Spec{Args: []string{"x", "y"}}, []string{"/e", "x", "y"}, []string{"A=1", "B=2", "NVIDIA_VISIBLE_DEVICES=void"}, "/w"},
		"keeper":            {runtime.Spec{Entrypoint: runtime.Keeper(), WorkDir: "/v"}, append(runtime.Keeper(), "/e", "c"), []string{"A=1", "B=2", "NVIDIA_VISIBLE_DEVICES=void"}, "/v"},
		"keeper, command":   {runtime.Spec{Entrypoint: runtime.Keeper(), Args: []string{"x"}, WorkDir: "/v"}, append(runtime.Keeper(), "/e", "x"), []string{"A=1", "B=2", "NVIDIA_VISIBLE_DEVICES=void"}, "/v"},
		"keeper, program":   {runtime.Spec{Entrypoint: append(runtime.Keeper(), "/n"), WorkDir: "/v"}, append(runtime.Keeper(), "/n"), []string{"A=1", "B=2", "NVIDIA_VISIBLE_DEVICES=void"}, "/v"},
		"entrypoint":        {runtime.Spec{Entrypoint: []string{"/n"}, WorkDir: "/v"}, []string{"/n"}, []string{"A=1", "B=2", "NVIDIA_VISIBLE_DEVICES=void"}, "/v"},
		"environment": {runtime.Spec{Env: map[string]string{"B": "3"}, SecretEnv: map[string]string{"C": "4"}, GPUs: []string{"g", "h"}}, []string{"/e", "c"},
			[]string{"A=1", "B=3", "C=4", "NVIDIA_VISIBLE_DEVICES=g,h"}, "/w"},
	} {
		c, err := (&Maker{}).Command(test.spec, img)
		if err != nil || !slices.Equal(c.Argv, test.argv) || !slices.Equal(c.Env, test.env) || c.Dir != test.dir {
			t.Errorf("%s: %+v, %v", name, c, err)
		}
	}
	if _, err := (&Maker{}).Command(runtime.Spec{}, images.Config{}); !errors.Is(err, runtime.ErrBadImage) {
		t.Errorf("no program: %v", err)
	}
}

// /dev/shm is half of the memory, or as large as asked.
func TestShm(t *testing.T) {
	t.Parallel()
	m := &Maker{engine: &engine.Engine{User: "0:0"}}
	for limits, want := range map[runtime.Limits]int64{
		{MemoryMiB: 64}: 32 << 20, {MemoryMiB: 64, ShmMiB: 48}: 48 << 20, {MemoryMiB: 1}: 1 << 20,
	} {
		if got := m.Host(runtime.Spec{Limits: limits}, images.Config{}, nil).ShmSize; got != want {
			t.Errorf("%+v: got %d, want %d", limits, got, want)
		}
	}
}

// A container with a layer has the engine's capabilities in a namespace, and no other container has them.
func TestLayered(t *testing.T) {
	t.Parallel()
	img := images.Config{User: "ml", WorkDir: "/w", Volumes: []string{"/data"}}
	layer := runtime.Spec{User: 3, Layer: "/disk/layer"}
	for name, test := range map[string]struct {
		maker Maker
		spec  runtime.Spec
		want  bool
	}{
		"a layer":               {Maker{Layers: true}, layer, true},
		"none":                  {Maker{Layers: true}, runtime.Spec{User: 3}, false},
		"an engine without":     {Maker{}, layer, false},
		"NVIDIA's hook with it": {Maker{Layers: true}, runtime.Spec{User: 3, Layer: "/disk/layer", GPUs: []string{"GPU-a"}}, false},
	} {
		m := test.maker
		m.engine = &engine.Engine{User: "0:0"}
		host, cfg, identity := m.Host(test.spec, img, nil), m.Container(test.spec, img), m.Identity(test.spec, img)
		if got := host.Runtime == "starling" && len(host.CapDrop) == 0 && len(host.SecurityOpt) == 0; got != test.want {
			t.Errorf("%s: runtime %q, without %q, %q", name, host.Runtime, host.CapDrop, host.SecurityOpt)
		}
		if got := !slices.Contains(host.CapDrop, "ALL") || !slices.Contains(host.SecurityOpt, "no-new-privileges"); got != test.want {
			t.Errorf("%s: without %q, %q", name, host.CapDrop, host.SecurityOpt)
		}
		if !host.ReadonlyRootfs || host.Tmpfs["/data"] == "" { // the engine's, below the overlay of a layer
			t.Errorf("%s: the engine's root is written: %+v", name, host)
		}
		if (cfg.User == "0:0") != test.want || (identity != nil) != test.want {
			t.Errorf("%s: user %q, %+v", name, cfg.User, identity)
		}
		if identity != nil && (identity.User != "ml" || !slices.Equal(identity.Directories, []string{"/w", "/data"})) {
			t.Errorf("%s: %+v", name, identity)
		}
	}
}
