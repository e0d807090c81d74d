//go:build unix

package imagecmd

import (
	"fmt"
	"strings"
	"testing"

	"github.com/starling-network/starling/cmd/internal/cli"
	"github.com/starling-network/starling/node/api"
	"github.com/starling-network/starling/node/job"
)

// The name of an image that no registry has leads to the command that stores it on the peer, and that of an image that a
// registry refuses to credentials too.
func TestImageWithoutRegistry(t *testing.T) {
	t.Parallel()
	for said, login := range map[string]bool{api.CodeNoImage: false, api.CodeImageAuth: true} {
		hint := cli.Explain(NoImage(job.Job{Image: "app:1"}, fmt.Errorf("submitting: %w", &api.Error{Code: said}))).Hint
		if !strings.Contains(hint, "starling image push") || strings.Contains(hint, "--registry-auth docker") != login {
			t.Errorf("%s: hint %q", said, hint)
		}
	}
	other := &api.Error{Code: "refused", Message: "job refused: spec.image: too many"}
	if hint := cli.Explain(NoImage(job.Job{Image: "app:1"}, other)).Hint; hint != "" {
		t.Errorf("hint %q of another error", hint)
	}
}
