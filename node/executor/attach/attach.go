// Package attach connects buyers to running programs: to a second program in the same sandbox, to a port, and to files.
//
// Each function serves one stream. It refuses before it accepts the stream, and returns when the stream has ended. The
// caller has entered the execution and cancels ctx when the program ends, unless the function's comment differs.
package attach

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/starling-network/starling/node/live"
	"github.com/starling-network/starling/node/nodepb"
	"github.com/starling-network/starling/node/runtime"
	"github.com/starling-network/starling/node/workload"
	"github.com/starling-network/starling/p2p/stream"
)

const (
	// dialTime is how long the program may take to accept a connection.
	dialTime = 5 * time.Second

	// answerTime is how long the caller has to take the last answers of a program that has ended.
	answerTime = 2 * time.Second

	// MaxArgs bounds the arguments and variables of a program that is attached.
	MaxArgs = 1024

	maxBytes = 128 << 10 // of arguments and variables together
	maxPath  = 4096
)

// Execution is a running program with its sandbox and files; an *executor.Execution.
type Execution interface {
	// Runtime returns the program's runtime, or nil if it is no longer offered here.
	Runtime() runtime.Runtime
	// Program returns the workload and the bounds of its resources.
	Program() (*nodepb.Workload, runtime.Limits)
	// Stage returns the files of the current attempt.
	Stage() workload.Stage
	// Paused reports whether the program is paused.
	Paused() bool
	// Alive ends with the program.
	Alive() context.Context
}

// Accept accepts a stream; refusals must come before.
type Accept = func(*nodepb.LiveReply) (*stream.Conn, error)

// Check returns stream.Malformed for a program that cannot be attached.
func Check(a *nodepb.LiveRequest_Attach) error {
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
	case len(a.Args)+len(a.Env) > MaxArgs || total > maxBytes || len(a.WorkDir) > maxPath:
		reason := fmt.Sprintf("at most %d arguments and variables of %d bytes", MaxArgs, maxBytes)
		return &stream.Malformed{Reason: reason}
	case a.Rows > math.MaxUint16 || a.Cols > math.MaxUint16:
		return &stream.Malformed{Reason: fmt.Sprintf("a terminal of %d × %d", a.Rows, a.Cols)}
	}
	return nil
}

// errOver is the error for attached clients when their program has ended.
var errOver = errors.New("attached stream closed: the job's program has ended")

// Serve runs a second program in the execution's sandbox.
func Serve(
	ctx context.Context, e Execution, h runtime.Handle, a *nodepb.LiveRequest_Attach, take Accept,
) error {
	if err := Check(a); err != nil {
		return err
	}
	run, err := Program(e, h, a)
	if err != nil {
		return err
	}
	conn, err := take(&nodepb.LiveReply{})
	if err != nil {
		return err
	}
	// The caller may not read the rest. Once the stream is closed, Abort has no effect.
	defer context.AfterFunc(ctx, func() { time.AfterFunc(answerTime, conn.Abort) })()
	return live.Serve(ctx, conn, a.Rows, a.Cols, run)
}

// Program returns the function with which live.Serve runs a second program, or a refusal.
func Program(
	e Execution, h runtime.Handle, a *nodepb.LiveRequest_Attach,
) (func(context.Context, live.Session) (int, error), error) {
	rt, ok := e.Runtime().(runtime.Attacher)
	if !ok {
		w, _ := e.Program()
		return nil, stream.Refuse("runtime",
			fmt.Sprintf("the %s runtime cannot attach a second program; use cp or logs", w.Runtime))
	}
	if e.Paused() {
		return nil, stream.Refuse("paused", "the job is paused; resume it first")
	}
	return func(ctx context.Context, s live.Session) (int, error) {
		p := runtime.Process{
			Args: a.Args, Env: a.Env, WorkDir: a.WorkDir, TTY: a.Tty,
			Stdin: s.Stdin, Stdout: s.Stdout, Stderr: s.Stderr,
		}
		if a.Tty {
			p.Size = s.Sizes
		}
		code, err := rt.Attach(ctx, h, p)
		if err != nil && e.Alive().Err() != nil {
			err = errOver
		}
		return code, err
	}, nil
}

// Forward connects to a port of the program. When the program ends, its remaining output is passed on, and then the
// stream ends. ctx is the stream's own.
func Forward(ctx context.Context, e Execution, h runtime.Handle, port uint32, take Accept) error {
	if port == 0 || port > math.MaxUint16 {
		return &stream.Malformed{Reason: fmt.Sprintf("%d is not a port", port)}
	}
	rt, ok := e.Runtime().(runtime.Dialer)
	if !ok {
		w, _ := e.Program()
		return stream.Refuse("runtime", fmt.Sprintf("the %s runtime has no ports to connect to", w.Runtime))
	}
	if e.Paused() {
		return stream.Refuse("paused", "the job is paused; resume it first")
	}
	dctx, cancel := context.WithTimeout(ctx, dialTime)
	defer cancel()
	conn, err := rt.Dial(dctx, h, uint16(port))
	if err != nil {
		return stream.Refuse("port", fmt.Sprintf("port %d: no answer from the program: %v", port, err))
	}
	caller, err := take(&nodepb.LiveReply{})
	if err != nil {
		_ = conn.Close()
		return err
	}
	return splice(ctx, e.Alive(), conn, caller)
}

// splice joins the program's connection with the caller's until both directions have ended, or the program has and its
// answers are passed on.
func splice(ctx, alive context.Context, conn net.Conn, caller io.ReadWriteCloser) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	program := &answers{Conn: conn, over: make(chan struct{})}
	defer context.AfterFunc(alive, func() {
		defer cancel()
		select {
		case <-program.over:
		case <-time.After(answerTime):
		case <-ctx.Done():
		}
	})()
	return live.Splice(ctx, program, caller)
}

// answers is a connection to a program; over is closed when everything has been read.
type answers struct {
	net.Conn
	over chan struct{}
	once sync.Once
}

// Read closes over at the end of the program's half, or when the connection breaks.
func (a *answers) Read(p []byte) (int, error) {
	n, err := a.Conn.Read(p)
	if err != nil {
		a.once.Do(func() { close(a.over) })
	}
	return n, err
}

// CloseWrite passes the end of the caller's half on, where the connection has halves.
func (a *answers) CloseWrite() error {
	if half, ok := a.Conn.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return nil
}
