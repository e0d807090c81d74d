package provider

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/libp2p/go-libp2p/core/peer"

	"github.com/starling-network/starling/node/live"
	"github.com/starling-network/starling/node/nodepb"
	"github.com/starling-network/starling/node/runtime"
	"github.com/starling-network/starling/p2p/stream"
)

const (
	// maxStreams is how many streams may lead into the executions of one lease at a time.
	maxStreams = 64
	// dialTime is how long the program may take to accept a connection.
	dialTime = 5 * time.Second

	// A program that is attached: its arguments and environment, bytes together.
	maxAttachArgs  = 1024
	maxAttachBytes = 128 << 10
	maxAttachPath  = 4096
)

// accept accepts a stream; refusals must come before.
type accept = func(*nodepb.LiveReply) (*stream.Conn, error)

// handleLive opens a stream into a running execution: a second program, a port, or its files.
func (p *Provider) handleLive(ctx context.Context, from peer.ID, req *nodepb.LiveRequest, take accept) error {
	e, err := p.mine(from, req.Lease, req.Seq)
	if err != nil {
		return err
	}
	if err := p.commands(from, req.Lease); err != nil {
		return err
	}
	h, leave, err := e.enter()
	if err != nil {
		return err
	}
	defer leave()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(e.alive, cancel)()
	switch op := req.Op.(type) {
	case *nodepb.LiveRequest_Attach_:
		return p.exec.attach(ctx, e, h, op.Attach, take)
	case *nodepb.LiveRequest_Forward_:
		return p.exec.forward(ctx, e, h, op.Forward.GetPort(), take)
	case *nodepb.LiveRequest_CopyOut_:
		return p.exec.copyOut(ctx, e, op.CopyOut.GetPath(), take)
	case *nodepb.LiveRequest_CopyIn_:
		return p.exec.copyIn(ctx, e, op.CopyIn, take)
	case *nodepb.LiveRequest_Probe_:
		return p.probe(ctx, from, req.Lease, e, h, take)
	}
	return &stream.Malformed{Reason: "nothing is asked"}
}

// enter counts a stream into a running execution; leave it before its outputs are read.
func (e *execution) enter() (runtime.Handle, func(), error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	switch {
	case e.over || e.state.State.Ended():
		return runtime.Handle{}, nil, stream.Refuse("execution", "the program has ended; its outputs and logs are with the job")
	case e.handle == nil:
		return runtime.Handle{}, nil, stream.Refuse(stream.CodeBusy, "the program is not running yet: "+e.state.Message)
	case e.streams >= maxStreams:
		return runtime.Handle{}, nil, stream.Refuse(stream.CodeBusy, fmt.Sprintf("%d streams lead into this execution already; close one", maxStreams))
	}
	e.streams++
	e.lives.Add(1)
	return *e.handle, func() {
		e.mu.Lock()
		e.streams--
		e.mu.Unlock()
		e.lives.Done()
	}, nil
}

// end lets nobody in any more and waits until everybody is out.
func (e *execution) end() {
	e.mu.Lock()
	e.over = true
	e.mu.Unlock()
	e.die()
	e.lives.Wait()
}

func (e *execution) ended() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.state.State.Ended()
}

func (e *execution) paused() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.state.Paused
}

func checkAttach(a *nodepb.LiveRequest_Attach) error {
	total, text := len(a.GetWorkDir()), utf8.ValidString(a.GetWorkDir())
	clean := func(s string) {
		total += len(s)
		text = text && utf8.ValidString(s) && !strings.ContainsRune(s, 0)
	}
	for _, s := range a.GetArgs() {
		clean(s)
	}
	for k, v := range a.GetEnv() {
		clean(k)
		clean(v)
		text = text && k != "" && !strings.ContainsRune(k, '=')
	}
	switch {
	case len(a.GetArgs()) == 0 || a.Args[0] == "":
		return &stream.Malformed{Reason: "no program is named"}
	case !text:
		return &stream.Malformed{Reason: "arguments, variables and directory are not text without NUL"}
	case len(a.Args)+len(a.Env) > maxAttachArgs || total > maxAttachBytes || len(a.WorkDir) > maxAttachPath:
		return &stream.Malformed{Reason: fmt.Sprintf("at most %d arguments and variables of %d bytes", maxAttachArgs, maxAttachBytes)}
	case a.Rows > math.MaxUint16 || a.Cols > math.MaxUint16:
		return &stream.Malformed{Reason: fmt.Sprintf("a terminal of %d × %d", a.Rows, a.Cols)}
	}
	return nil
}

// errOver is the error for attached clients when their program has ended.
var errOver = errors.New("the job's program has ended, and with it what was attached")

// attach runs a second program in the execution's sandbox.
func (x *executor) attach(ctx context.Context, e *execution, h runtime.Handle, a *nodepb.LiveRequest_Attach, take accept) error {
	if err := checkAttach(a); err != nil {
		return err
	}
	run, err := x.attachment(e, h, a)
	if err != nil {
		return err
	}
	conn, err := take(&nodepb.LiveReply{})
	if err != nil {
		return err
	}
	x.log.Info("a second program is attached", "lease", e.rec.Lease, "program", live.Clean(a.Args[0]))
	return live.Serve(ctx, conn, a.Rows, a.Cols, run)
}

// attachment runs a second program, for live.Serve; the error is the reason why it cannot.
func (x *executor) attachment(e *execution, h runtime.Handle, a *nodepb.LiveRequest_Attach) (func(context.Context, live.Session) (int, error), error) {
	rt, ok := x.runtimes[e.work.Runtime].(runtime.Attacher)
	if !ok {
		return nil, stream.Refuse("runtime", fmt.Sprintf("the %s runtime cannot attach a second program; use cp or logs", e.work.Runtime))
	}
	if e.paused() {
		return nil, stream.Refuse("paused", "the job is paused; resume it first")
	}
	return func(ctx context.Context, s live.Session) (int, error) {
		p := runtime.Process{Args: a.Args, Env: a.Env, WorkDir: a.WorkDir, TTY: a.Tty, Stdin: s.Stdin, Stdout: s.Stdout, Stderr: s.Stderr}
		if a.Tty {
			p.Size = s.Sizes
		}
		code, err := rt.Attach(ctx, h, p)
		if err != nil && e.alive.Err() != nil {
			err = errOver
		}
		return code, err
	}, nil
}

// forward connects to a port of the program.
func (x *executor) forward(ctx context.Context, e *execution, h runtime.Handle, port uint32, take accept) error {
	if port == 0 || port > math.MaxUint16 {
		return &stream.Malformed{Reason: fmt.Sprintf("%d is not a port", port)}
	}
	rt, ok := x.runtimes[e.work.Runtime].(runtime.Dialer)
	if !ok {
		return stream.Refuse("runtime", fmt.Sprintf("the %s runtime has no ports to connect to", e.work.Runtime))
	}
	if e.paused() {
		return stream.Refuse("paused", "the job is paused; resume it first")
	}
	dctx, cancel := context.WithTimeout(ctx, dialTime)
	defer cancel()
	to, err := rt.Dial(dctx, h, uint16(port))
	if err != nil {
		return stream.Refuse("port", fmt.Sprintf("nobody in the program answers at port %d: %v", port, err))
	}
	conn, err := take(&nodepb.LiveReply{})
	if err != nil {
		_ = to.Close()
		return err
	}
	return live.Splice(ctx, to, conn)
}

// refusePath explains the problem of a path without its place on this machine.
func refusePath(guest string, err error) error {
	var no *stream.Refused
	var at *fs.PathError
	switch {
	case errors.As(err, &no):
		return err
	case errors.Is(err, fs.ErrNotExist):
		return stream.Refuse("path", guest+" is not there")
	case errors.As(err, &at):
		return stream.Refuse("path", fmt.Sprintf("%s: %v", guest, at.Err))
	}
	return stream.Refuse("path", err.Error())
}

// copyText explains the problem of a copy without the files' places on this machine.
func copyText(err error) string {
	var at *fs.PathError
	if errors.As(err, &at) {
		return fmt.Sprintf("copying %s: %v", at.Path, at.Err)
	}
	return "copying: " + err.Error()
}
