package rundir

import (
	"encoding/json"
	"os"
	"path/filepath"
	"reflect"
	"testing"
)

func FuzzDecodeState(f *testing.F) {
	f.Add([]byte(`{"id":"a","container":"c","guard":12,"token":"t","started":"2020-01-02T03:04:05Z","wall_time":0}`))
	f.Add([]byte(`{"id":"a","guard":0}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		s, err := DecodeState(b)
		if err != nil {
			return
		}
		again, err := json.Marshal(s)
		if err != nil {
			t.Skip("a time that JSON cannot write")
		}
		w, err := DecodeState(again)
		if err != nil || !w.Started.Equal(s.Started) || w.ID != s.ID || w.Guard != s.Guard {
			t.Errorf("%+v, then %+v, %v", s, w, err)
		}
	})
}

// A peer recovers the executions that an older build left: the layout of the state does not change.
func TestStateLayout(t *testing.T) {
	t.Parallel()
	const layout = `{"id":"i","container":"c","guard":12,"token":"t","started":"2020-01-02T03:04:05Z","wall_time":6,"gpus":1,` +
		`"uuids":["GPU-a"],"measured":["/m"],"disk_bytes":7,"volume":"/v","sidecar":"s"}`
	s, err := DecodeState([]byte(layout))
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	if err := WriteState(dir, s); err != nil {
		t.Fatal(err)
	}
	if b, err := os.ReadFile(filepath.Join(dir, "state.json")); err != nil || string(b) != layout {
		t.Errorf("%s, %v; want %s", b, err, layout)
	}
	if again, err := ReadState(dir); err != nil || !reflect.DeepEqual(again, s) {
		t.Errorf("%+v, %v; want %+v", again, err, s)
	}
	if _, err := DecodeState([]byte(`{"more":1,` + layout[1:])); err == nil {
		t.Error("a field that this build does not know is accepted")
	}
}
