package wasm

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/starling-network/starling/node/runtime"
)

func FuzzStatus(f *testing.F) {
	f.Add([]byte(`{"phase":"ended","pid":7,"cpu_millis":5,"memory_mib":3,"exit":{"code":1,"reason":"oom","started":"2022-01-01T00:00:00Z","ended":"2022-01-01T00:00:01Z"}}`))
	f.Add([]byte(`{"phase":"running","pid":1}`))
	f.Add([]byte(`{"phase":"gone","pid":1}{}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		s, err := decodeStatus(b)
		if err != nil {
			return
		}
		dir := t.TempDir()
		if err := writeState(dir, statusFile, s); err != nil {
			t.Skip() // a time zone that JSON cannot say
		}
		again, err := readStatus(dir)
		if err != nil || again.Phase != s.Phase || again.Pid != s.Pid || again.Exit.Code != s.Exit.Code || !again.Exit.Ended.Equal(s.Exit.Ended) {
			t.Fatalf("%+v became %+v, %v", s, again, err)
		}
	})
}

func FuzzSpec(f *testing.F) {
	f.Add([]byte(`{"spec":{"id":"a","module":"/m","limits":{"memory_mib":1},"dir":"/x/run","mounts":[{"host":"/x/in","guest":"/in"}]},"cache_dir":"/c","grace":1000}`))
	f.Add([]byte(`{"spec":{"id":"../a"}}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		s, err := decodeSpec(b)
		if err != nil {
			return
		}
		dir := t.TempDir()
		if err := writeState(dir, specFile, s); err != nil {
			t.Fatal(err)
		}
		again, err := readSpec(dir)
		if err != nil || again.Spec.ID != s.Spec.ID || len(again.Spec.Mounts) != len(s.Spec.Mounts) || again.Grace != s.Grace {
			t.Fatalf("%+v became %+v, %v", s, again, err)
		}
	})
}

// A crash while a state file is written leaves the old one.
func TestStateIsReplacedAsAWhole(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	first := status{Phase: phaseRunning, Pid: 1, Exit: runtime.Exit{Started: time.Unix(1, 0).UTC()}}
	if err := writeState(dir, statusFile, first); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "."+statusFile+".99"), []byte(`{"phase":`), 0o600); err != nil {
		t.Fatal(err)
	}
	if got, err := readStatus(dir); err != nil || got.Pid != 1 {
		t.Errorf("%+v, %v", got, err)
	}
	if err := os.WriteFile(filepath.Join(dir, statusFile), make([]byte, maxStateFile+1), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := readStatus(dir); err == nil || errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a huge status was read: %v", err)
	}
}
