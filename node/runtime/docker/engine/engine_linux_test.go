package engine

import (
	"context"
	"errors"
	"io/fs"
	"strings"
	"testing"

	"github.com/starling-network/starling/node/runtime"
)

// An engine that may not be called, or does not answer, is explained.
func TestExplain(t *testing.T) {
	t.Parallel()
	e := &Engine{Socket: "/run/x.sock"}
	if err := e.Explain(&fs.PathError{Op: "dial", Err: fs.ErrPermission}); !errors.Is(err, runtime.ErrEngine) || !strings.Contains(err.Error(), "group docker") {
		t.Error(err)
	}
	if err := e.Explain(context.DeadlineExceeded); !errors.Is(err, runtime.ErrEngine) {
		t.Error(err)
	}
}
