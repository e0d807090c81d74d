package docker

import (
	"bytes"
	"context"
	"errors"
	"io"
	"strings"
	"testing"

	v1 "github.com/google/go-containerregistry/pkg/v1"

	"github.com/starling-network/starling/node/runtime"
	testengine "github.com/starling-network/starling/testnet/engine"
)

// relay reads layers from their registry as another provider does, and may change them.
type relay struct {
	change func([]byte) []byte
	given  int
}

func (r *relay) Begin(context.Context, []runtime.Layer) {}

func (r *relay) Open(ctx context.Context, l runtime.Layer) io.ReadCloser {
	body, err := l.From.Read(ctx, 0, l.Size)
	if err != nil {
		return nil
	}
	defer body.Close()
	content, err := io.ReadAll(body)
	if err != nil {
		return nil
	}
	r.given++
	return io.NopCloser(bytes.NewReader(r.change(content)))
}

// The engine gets the layers that came through another source, and only the right ones: of an image with a false one it
// keeps nothing.
func TestAttackLayersOfFellows(t *testing.T) {
	t.Parallel()
	r := newRuntime(t, shared, nil)
	env := func(c *v1.ConfigFile) { c.Config.Env = []string{"PULLED=1"} }
	ref := push(t, lab, once("via/good"), env, testengine.File{Path: "/big", Text: once(strings.Repeat("via", 1<<20))})
	for name, change := range map[string]func([]byte) []byte{
		"other":     func(b []byte) []byte { b[len(b)/2] ^= 1; return b },
		"truncated": func(b []byte) []byte { return b[:len(b)-1] },
		"empty":     func([]byte) []byte { return nil },
	} {
		if err := r.PullVia(t.Context(), ref, &relay{change: change}, nil); !errors.Is(err, runtime.ErrBadImage) {
			t.Errorf("%s layer: %v", name, err)
		}
		if r.HasImage(t.Context(), ref) {
			t.Errorf("%s layer: the image is here", name)
		}
	}
	right := &relay{change: func(b []byte) []byte { return b }}
	for range 2 {
		if err := r.PullVia(t.Context(), ref, right, nil); err != nil {
			t.Fatal(err)
		}
	}
	if out := run(t, r, spec(t, ref, "environ")); out != "PULLED=1\n" || right.given == 0 {
		t.Errorf("environment %q, %d layers", out, right.given)
	}
	private := push(t, lab, once("private/via"), nil)
	if err := r.PullVia(t.Context(), private, right, nil); !errors.Is(err, runtime.ErrCredentials) {
		t.Errorf("an image that needs credentials: %v", err)
	}
}
