package sandbox

import (
	"errors"
	"slices"
	"testing"

	"github.com/starling-network/starling/node/runtime"
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
