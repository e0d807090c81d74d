//go:build linux

package scenario

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/starling-network/starling/testnet/engine"
)

// Who asks for a program at the same time, and who asks again, gets the same; what is no package is said.
func TestBuild(t *testing.T) {
	t.Parallel()
	const module = "github.com/starling-network/starling/"
	dir := t.TempDir()
	paths := []string{filepath.Join(dir, "a"), filepath.Join(dir, "b")}
	for range 2 {
		var wg sync.WaitGroup
		for _, to := range paths {
			wg.Go(func() {
				if err := engine.Build(to, module+"testnet/engine/box"); err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		a, err := os.ReadFile(paths[0])
		b, errB := os.ReadFile(paths[1])
		if err != nil || errB != nil || !bytes.Equal(a, b) || !bytes.HasPrefix(a, []byte("\x7fELF")) {
			t.Errorf("programs of %d and %d bytes: %v, %v", len(a), len(b), err, errB)
		}
	}
	if err := engine.Build(paths[0], module+"testnet/none"); err == nil || !strings.Contains(err.Error(), module+"testnet/none") {
		t.Errorf("a package that is not there: %v", err)
	}
}
