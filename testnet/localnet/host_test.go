package localnet

import (
	"crypto/ed25519"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// complains is a program in place of Node. Its first starts complain and hang, as Surfpool does if another program has
// bound the port that it found free. The later ones answer.
const complains = `#!/bin/sh
echo x >> starts
if [ $(wc -l < starts) -le HANGS ]; then
	echo 'Error: RPC port 40001 is already in use.' >&2
	exec sleep 1000
fi
echo '{"rpc":"http://127.0.0.1:1","secret":[SECRET]}'
exec cat
`

func TestStartAgain(t *testing.T) {
	t.Parallel()
	private := ed25519.NewKeyFromSeed(make([]byte, ed25519.SeedSize))
	secret := strings.Trim(strings.Join(strings.Fields(fmt.Sprint([]byte(private))), ","), "[]")
	for hangs, starts := range map[string]int{"1": 2, "9": starts} {
		t.Run(hangs, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			node := filepath.Join(dir, "node")
			text := strings.NewReplacer("HANGS", hangs, "SECRET", secret).Replace(complains)
			if err := os.WriteFile(node, []byte(text), 0o700); err != nil {
				t.Fatal(err)
			}
			h, err := startWith(t.Context(), node, dir, 100)
			if hangs == "1" {
				if err != nil || h.rpc != "http://127.0.0.1:1" {
					t.Fatalf("start: %v", err)
				}
				if err := h.stop(); err != nil {
					t.Error(err)
				}
			} else if !errors.Is(err, errComplained) || !strings.Contains(err.Error(), "already in use") {
				t.Errorf("got %v, want the complaint", err)
			}
			got, err := os.ReadFile(filepath.Join(dir, "starts"))
			if n := strings.Count(string(got), "x"); err != nil || n != starts {
				t.Errorf("%d starts, want %d: %v", n, starts, err)
			}
		})
	}
}
