package docker

import (
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"runtime/debug"
	"strings"
	"testing"

	"github.com/starling-network/starling/node/runtime/docker/ociruntime"
)

// A guard beside the peer is used if both were built from one source, and only then.
func TestSameBuild(t *testing.T) {
	t.Parallel()
	self, err := ownBinary()
	if err != nil {
		t.Fatal(err)
	}
	program, err := os.ReadFile(self)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	same, text := filepath.Join(dir, "same"), filepath.Join(dir, "text")
	if err := errors.Join(os.WriteFile(same, program, 0o700), os.WriteFile(text, []byte("#!/bin/sh\n"), 0o700)); err != nil {
		t.Fatal(err)
	}
	if err := sameBuild(self, same); err != nil {
		t.Errorf("a copy: %v", err)
	}
	if err := sameBuild(self, filepath.Join(dir, "none")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("no program: %v", err)
	}
	if err := sameBuild(self, text); err == nil || errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a program of another kind: %v", err)
	}
	setting := func(name, value string) debug.BuildSetting { return debug.BuildSetting{Key: name, Value: value} }
	release := &debug.BuildInfo{Main: debug.Module{Version: "v1.2.0"}, Settings: []debug.BuildSetting{
		setting("-trimpath", "true"), setting("vcs.revision", "abc"), setting("vcs.modified", "false")}}
	for name, other := range map[string]*debug.BuildInfo{
		"another version":  {Main: debug.Module{Version: "v1.2.1"}, Settings: release.Settings},
		"another revision": {Main: release.Main, Settings: []debug.BuildSetting{setting("vcs.revision", "abd"), setting("vcs.modified", "false")}},
		"with changes":     {Main: release.Main, Settings: []debug.BuildSetting{setting("vcs.revision", "abc"), setting("vcs.modified", "true")}},
		"without a record": {Main: release.Main},
	} {
		if buildOf(other) == buildOf(release) {
			t.Errorf("%s is taken for the same build", name)
		}
	}
	if other := (&debug.BuildInfo{Main: release.Main, Settings: release.Settings[1:]}); buildOf(other) != buildOf(release) {
		t.Errorf("another flag of the compiler: %q, %q", buildOf(other), buildOf(release))
	}
}

// The entry for daemon.json is one that an engine reads, and names the small binary wherever the peer's lies.
func TestDaemonEntry(t *testing.T) {
	t.Parallel()
	self, err := ownBinary()
	if err != nil {
		t.Fatal(err)
	}
	for binary, want := range map[string]string{
		self:                            filepath.Join(filepath.Dir(self), "starling-guard"),
		"/opt/my tools/star\"ling":      "/opt/my tools/star\"ling",
		"/usr/local/bin/starling-guard": "/usr/local/bin/starling-guard",
	} {
		var got struct {
			Runtimes map[string]struct {
				Path string   `json:"path"`
				Args []string `json:"runtimeArgs"`
			} `json:"runtimes"`
		}
		err := json.Unmarshal([]byte(daemonEntry(binary)), &got)
		r := got.Runtimes[ociruntime.Name]
		if err != nil || r.Path != want || strings.Join(r.Args, " ") != ociruntime.Subcommand {
			t.Errorf("%s: %+v, %v", binary, got, err)
		}
	}
}
