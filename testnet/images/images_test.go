//go:build linux

package images

import (
	"errors"
	"os"
	"testing"
)

// Whoever asks a second time has the same image without its being made again. What is in it is run by testnet/cluster.
func TestMake(t *testing.T) {
	t.Parallel()
	if os.Getenv("STARLING_CLUSTER") == "" {
		t.Skip("images are made for clusters, with STARLING_CLUSTER=ray or the like")
	}
	set, err := Make(t.Context(), t.Logf, Ray)
	if errors.Is(err, ErrUnavailable) {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	if info, err := os.Stat(set.path(Ray)); err != nil || info.Size() == 0 {
		t.Errorf("%s: %v", Ray, err)
	}
	if again, err := Make(t.Context(), func(string, ...any) { t.Error("made again") }, Ray); err != nil || *again != *set {
		t.Errorf("the second time: %+v, %v", again, err)
	}
}
