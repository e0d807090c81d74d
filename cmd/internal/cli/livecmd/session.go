package livecmd

import (
	"bytes"
	"context"
	"errors"
	"io"

	"github.com/starling-network/starling/cmd/internal/cli"
	"github.com/starling-network/starling/node/api"
	"github.com/starling-network/starling/node/buyer/record"
	"github.com/starling-network/starling/node/live"
	"github.com/starling-network/starling/node/runtime"
)

// Session opens a terminal on the command of a keeper's container, rank 0 of the job, until the command ends or the
// user leaves it. left reports that its end is not known.
func Session(a *cli.App, ctx context.Context, client *api.Client, j record.Job) (left bool, err error) {
	ctx, leave := context.WithCancelCause(ctx)
	defer leave(nil)
	keys := &detachable{in: a.In, leave: func() { leave(errDetached) }}
	p := live.Program{Args: []string{runtime.GuardPath, runtime.EnterCommand}, TTY: true}
	err = execute(a, ctx, client, target{job: j}, p, keys)
	if errors.Is(context.Cause(ctx), errDetached) {
		return true, nil
	}
	return ctx.Err() != nil || cli.Explain(err).Code == cli.ExitUnreachable, err
}

var errDetached = errors.New("the user detached")

// detachKeys end a session and leave the job, as in docker.
const detachKeys = "\x10\x11"

// detachable reads keys until those of detachKeys.
type detachable struct {
	in    io.Reader
	leave func()
	held  bool // the first of detachKeys was read and not passed on
	rest  []byte
	err   error // that follows rest
}

func (d *detachable) Read(p []byte) (int, error) {
	for len(d.rest) == 0 && d.err == nil {
		buf := make([]byte, 4<<10)
		n, err := d.in.Read(buf)
		d.take(buf[:n], err)
	}
	n := copy(p, d.rest)
	d.rest = d.rest[n:]
	if n == 0 {
		return 0, d.err
	}
	return n, nil
}

// take appends keys to the rest, and holds back the first of detachKeys.
func (d *detachable) take(keys []byte, err error) {
	if d.held {
		keys = append([]byte{detachKeys[0]}, keys...)
		d.held = false
	}
	d.err = err
	if i := bytes.Index(keys, []byte(detachKeys)); i >= 0 {
		keys, d.err = keys[:i], errDetached
		d.leave()
	}
	if last := len(keys) - 1; d.err == nil && last >= 0 && keys[last] == detachKeys[0] {
		keys, d.held = keys[:last], true
	}
	d.rest = keys
}
