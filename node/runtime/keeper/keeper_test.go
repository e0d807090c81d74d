package keeper

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/starling-network/starling/node/runtime"
)

func TestCommand(t *testing.T) {
	t.Parallel()
	keep := strings.Join(runtime.Keeper(), "\x00") + "\x00"
	for name, c := range map[string]struct {
		keeper string
		want   []string
	}{
		"image's command": {keep + "/entry.sh\x00python3\x00-i\x00", []string{"/entry.sh", "python3", "-i"}},
		"empty argument":  {keep + "sh\x00-c\x00\x00", []string{"sh", "-c", ""}},
		"no command":      {keep, []string{"/bin/sh"}},
		"no keeper":       {"sleep\x00infinity\x00", nil},
	} {
		proc := t.TempDir()
		for pid, text := range map[string]string{"1": runtime.GuardPath + "\x00docker-guard\x00", "7": c.keeper, "9": "sh\x00", "self": keep + "x\x00"} {
			if err := os.Mkdir(filepath.Join(proc, pid), 0o700); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(filepath.Join(proc, pid, "cmdline"), []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		got, err := command(proc)
		if !slices.Equal(got, c.want) || (err == nil) != (c.want != nil) {
			t.Errorf("%s: %q, %v", name, got, err)
		}
	}
}

func TestEnterMissing(t *testing.T) {
	t.Parallel()
	proc := t.TempDir()
	text := strings.Join(append(runtime.Keeper(), "no-such-program"), "\x00") + "\x00"
	if err := os.Mkdir(filepath.Join(proc, "7"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(proc, "7", "cmdline"), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := enter(proc); err == nil || err.Error() != "no-such-program: not in the image" {
		t.Error(err)
	}
}
