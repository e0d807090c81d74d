//go:build unix

package imagecmd

import (
	"errors"
	"strings"
	"testing"

	"github.com/starling-network/starling/cmd/internal/cli"
	"github.com/starling-network/starling/node/job"
	"github.com/starling-network/starling/node/runtime"
)

// The name of an image that no registry has leads to the command that stores it on the peer, and that of an image that a
// registry refuses to credentials too.
func TestImageWithoutRegistry(t *testing.T) {
	t.Parallel()
	absent := "job refused: spec.image: app:1: not found in the registry"
	refused := "job refused: spec.image: app:1: " + runtime.ErrCredentials.Error() + ": give the job registryAuth"
	for said, login := range map[string]bool{absent: false, refused: true} {
		hint := cli.Explain(NoImage(job.Job{Image: "app:1"}, errors.New(said))).Hint
		if !strings.Contains(hint, "starling image push") || strings.Contains(hint, "--registry-auth docker") != login {
			t.Errorf("%s: hint %q", said, hint)
		}
	}
	other := errors.New("job refused: spec.count: too many")
	if hint := cli.Explain(NoImage(job.Job{Image: "app:1"}, other)).Hint; hint != "" {
		t.Errorf("hint %q of another error", hint)
	}
}
