package engine

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"strings"

	"github.com/containerd/errdefs"
	"github.com/docker/docker/client"

	"github.com/starling-network/starling/node/runtime"
)

// Explain adds a remedy to an error of the connection to the engine.
func (e *Engine) Explain(err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, context.Canceled):
		return err
	case errors.Is(err, fs.ErrPermission) || strings.Contains(err.Error(), "permission denied while trying to connect"):
		return fmt.Errorf("%w: no permission for %s: "+
			"add the user to group docker (usermod -aG docker NAME) and log in anew: %w",
			runtime.ErrEngine, e.Socket, err)
	case Disconnected(err):
		return fmt.Errorf("%w at %s: is Docker installed and running? %w", runtime.ErrEngine, e.Socket, err)
	case errors.Is(err, context.DeadlineExceeded):
		return fmt.Errorf("%w at %s in time: %w", runtime.ErrEngine, e.Socket, err)
	}
	return err
}

// Disconnected reports whether the error is the connection's and not the engine's answer.
func Disconnected(err error) bool {
	var op *net.OpError
	return client.IsErrConnectionFailed(err) || errors.As(err, &op) ||
		errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF)
}

// Absent reports whether the engine does not have the named object.
func Absent(err error) bool { return errdefs.IsNotFound(err) }

// Stopped reports whether the engine failed because the container, or its first process, no longer runs.
func Stopped(err error) bool {
	return err != nil && (strings.Contains(err.Error(), "is not running") || strings.Contains(err.Error(), "is zombie"))
}

// ErrNotRunning means that a container ended without a report of its guard.
var ErrNotRunning = errors.New("the container has ended")
