package file_test

import (
	"strings"
	"testing"

	"github.com/starling-network/starling/node/buyer/jobs/file"
)

func TestValid(t *testing.T) {
	t.Parallel()
	good := file.File{Path: "/out", CID: "k", Bytes: 1, Tree: true}
	if !good.Valid() || !(file.File{}).Valid() {
		t.Error("a file is refused")
	}
	for name, f := range map[string]file.File{
		"bytes": {Bytes: -1}, "long": {CID: strings.Repeat("a", 129)}, "sign": {CID: "a/b"}, "path": {Path: "/a\n"},
	} {
		if c := (file.Checkpoint{File: f}); f.Valid() || file.ValidCheckpoints([]file.Checkpoint{c}) {
			t.Errorf("%s: is valid", name)
		}
	}
}

// A rank has the newest two, and forgets the newest after two executions that did not begin from it.
func TestCheckpoints(t *testing.T) {
	t.Parallel()
	var all []file.Checkpoint
	for i := range uint64(3) {
		before := append([]file.Checkpoint(nil), all...)
		all = file.Keep(all, file.Checkpoint{File: file.File{CID: "k"}, Number: i + 1})
		if len(before) > 0 && before[0].Number != i {
			t.Errorf("Keep changed %v", before)
		}
	}
	if len(all) != 2 || all[0].Number != 3 || all[1].Number != 2 || !file.ValidCheckpoints(all) {
		t.Errorf("kept %+v", all)
	}
	once := file.Refuse(all)
	if all[0].Refused != 0 || once[0].Refused != 1 || !file.ValidCheckpoints(once) {
		t.Errorf("refused once: %+v, before %+v", once, all)
	}
	if twice := file.Refuse(once); len(twice) != 1 || twice[0].Number != 2 {
		t.Errorf("refused twice: %+v", twice)
	}
	if file.ValidCheckpoints(make([]file.Checkpoint, 3)) || file.ValidCheckpoints(make([]file.Checkpoint, 1)) {
		t.Error("three, or one without a file, are valid")
	}
}
