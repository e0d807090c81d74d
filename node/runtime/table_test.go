package runtime

import (
	"errors"
	"strings"
	"testing"
)

func TestTable(t *testing.T) {
	t.Parallel()
	var all Table[int]
	handle := func(runtime, dir, id string) Handle { return Handle{Runtime: runtime, Dir: dir, ID: id} }
	id, other := strings.Repeat("a", 32), strings.Repeat("b", 32)
	one := handle("wasm", "/var/one", id)
	if err := one.Check(); err != nil {
		t.Fatal(err)
	}
	begun := 0
	begin := func() { begun++ }
	if err := all.Add(one.Dir, one.ID, 1, begin); err != nil || begun != 1 {
		t.Fatal(err, begun)
	}
	if err := all.Add(one.Dir, other, 2, begin); !errors.Is(err, ErrExists) || begun != 1 {
		t.Errorf("a second execution in one directory: %v, begun %d", err, begun)
	}
	for name, test := range map[string]struct {
		h    Handle
		want error
	}{
		"its own":          {one, nil},
		"another runtime":  {handle("docker", one.Dir, one.ID), ErrBadHandle},
		"nothing":          {Handle{}, ErrBadHandle},
		"another start":    {handle("wasm", one.Dir, other), ErrNotFound},
		"another place":    {handle("wasm", "/var/two", id), ErrNotFound},
		"a place below it": {handle("wasm", "/var/one/x", id), ErrNotFound},
	} {
		if e, err := all.Find("wasm", test.h); !errors.Is(err, test.want) || (err == nil) != (e == 1) {
			t.Errorf("%s: %d, %v", name, e, err)
		}
	}
	all.Remove(one.Dir)
	if all.Has(one.Dir) {
		t.Error("it has what was removed")
	}
	if err := all.Add(one.Dir, other, 2, begin); err != nil || !all.Has(one.Dir) || all.Open() != nil {
		t.Error(err)
	}
	var dropped []int
	all.Close(func(e int) { dropped = append(dropped, e) })
	if len(dropped) != 1 || dropped[0] != 2 || all.Has(one.Dir) {
		t.Errorf("dropped %v", dropped)
	}
	if err := errors.Join(all.Open(), all.Add("/var/two", id, 3, begin), all.While(begin)); begun != 2 || strings.Count(err.Error(), ErrClosed.Error()) != 3 {
		t.Errorf("after the end: %v, begun %d", err, begun)
	}
	if _, err := all.Find("wasm", one); !errors.Is(err, ErrClosed) {
		t.Error(err)
	}
}
