package testnet

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// A testnet in the directory of an earlier one takes its place, says so, and leaves other files alone.
func TestClear(t *testing.T) {
	t.Parallel()
	var said strings.Builder
	n := &Network{Dir: t.TempDir(), opts: Options{Say: func(f string, args ...any) { fmt.Fprintf(&said, f+"\n", args...) }}}
	if err := n.clear(); err != nil || said.Len() > 0 {
		t.Fatalf("an empty directory: %v, said %q", err, said.String())
	}
	for _, name := range []string{"peer-1", "buyer-12", "peer-review", "results"} {
		if err := os.MkdirAll(filepath.Join(n.Dir, name, "jobs"), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(n.Dir, "peer-2"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := n.clear(); err != nil {
		t.Fatal(err)
	}
	left, err := filepath.Glob(filepath.Join(n.Dir, "*"))
	if err != nil || fmt.Sprint(left) != fmt.Sprintf("[%[1]s/peer-2 %[1]s/peer-review %[1]s/results]", n.Dir) {
		t.Errorf("left: %v, %v", left, err)
	}
	if want := "receipts of its 2 peers are deleted"; !strings.Contains(said.String(), want) {
		t.Errorf("said %q, want %q", said.String(), want)
	}
}
