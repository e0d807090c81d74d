package copiescmd

import (
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/starling-network/starling/node/buyer/record"
)

// The exported file has the key, is readable by its owner alone, and replaces no other.
func TestSave(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "copies.json")
	s := record.ShownCopies{Job: "jabcdefgh", Key: "AGE-SECRET-KEY-1X", Copies: []record.ShownCopy{}}
	if err := save(s, path); err != nil {
		t.Fatal(err)
	}
	st, err := os.Stat(path)
	if err != nil || st.Mode().Perm() != 0o600 {
		t.Errorf("mode: %v, %v", st.Mode(), err)
	}
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var again record.ShownCopies
	if err := json.Unmarshal(text, &again); err != nil || again.Key != s.Key || again.Job != s.Job {
		t.Errorf("read as %+v, %v", again, err)
	}
	if err := save(s, path); !errors.Is(err, fs.ErrExist) {
		t.Errorf("a second time: %v, want ErrExist", err)
	}
}
