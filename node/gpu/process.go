package gpu

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"sync"
	"time"
)

const (
	// callTimeout is how long a helper may take for one answer: drivers of large machines take seconds to wake up.
	callTimeout = 20 * time.Second
	// backoffFirst and backoffMost are how long a helper that failed is left alone, doubled each time.
	backoffFirst = time.Second
	backoffMost  = time.Minute
	// exitGrace is how long a helper that was told to end may take before it is killed, and after that until it is gone.
	exitGrace = 2 * time.Second
	// maxStderr is how much of what a helper says on its standard error is kept.
	maxStderr = 4 << 10
)

// helper is a helper program, started when it is asked something and started again after it failed. One question is
// asked at a time.
type helper struct {
	path    string
	args    []string
	env     []string // beside the peer's own
	timeout time.Duration
	backoff func(failures int) time.Duration
	now     func() time.Time

	mu       sync.Mutex
	proc     *process // nil when none runs
	dying    *process // killed, and not known to be gone
	failures int      // in a row
	until    time.Time
	last     error // why it failed
	next     uint64
	closed   bool
}

func newHelper(path string, args ...string) *helper {
	return &helper{path: path, args: args, timeout: callTimeout, backoff: backoff, now: time.Now}
}

func backoff(failures int) time.Duration {
	return min(backoffFirst<<min(failures-1, 10), backoffMost)
}

// process is one running helper.
type process struct {
	cmd    *exec.Cmd
	in     io.WriteCloser
	lines  chan line // closed after an error
	stderr head
	gone   chan struct{} // closed when the process has been waited for
	state  error         // of Wait, after gone
}

type line struct {
	text []byte
	err  error
}

// call asks the helper. An error is ErrHelper where the process failed, and then it is left alone for a while; ErrNVML
// where it answered that NVML does not work; or that of the context.
func (h *helper) call(ctx context.Context, op string, uuids []string) (reply, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.closed {
		return reply{}, fmt.Errorf("%w: closed", ErrHelper)
	}
	if err := h.start(); err != nil {
		return reply{}, err
	}
	h.next++
	p, err := h.ask(ctx, request{Version: HelperVersion, ID: h.next, Op: op, UUIDs: uuids})
	switch {
	case err == nil && p.Error == nil:
		h.failures = 0
		return p, nil
	case err == nil:
		err = &nvmlError{kind: p.Error.Kind, text: p.Error.Text}
	case ctx.Err() != nil:
		h.end() // its answer would come at the wrong time
		return reply{}, ctx.Err()
	}
	h.end()
	h.failures++
	h.last, h.until = err, h.now().Add(h.backoff(h.failures))
	return reply{}, err
}

// nvmlError is what a helper told.
type nvmlError struct{ kind, text string }

func (e *nvmlError) Error() string        { return ErrNVML.Error() + ": " + e.text }
func (e *nvmlError) Is(target error) bool { return target == ErrNVML }

// start starts the process if none runs and it may be.
func (h *helper) start() error {
	if h.dying != nil {
		select {
		case <-h.dying.gone:
			h.dying = nil
		default:
			return fmt.Errorf("%w: process %d was killed and hangs in the driver: no other is started beside it; "+
				"look into the kernel's log, the machine may need a restart", ErrHelper, h.dying.cmd.Process.Pid)
		}
	}
	if h.proc != nil {
		return nil
	}
	if wait := h.until.Sub(h.now()); h.failures > 0 && wait > 0 {
		return fmt.Errorf("%w (tried again in %s)", h.last, max(wait.Round(time.Second), time.Second))
	}
	p, err := startProcess(h.path, h.args, h.env)
	if err != nil {
		h.failures++
		h.last, h.until = fmt.Errorf("%w cannot be started: %w", ErrHelper, err), h.now().Add(h.backoff(h.failures))
		return h.last
	}
	h.proc = p
	return nil
}

func (h *helper) ask(ctx context.Context, q request) (reply, error) {
	b, err := json.Marshal(q)
	if err != nil {
		return reply{}, fmt.Errorf("writing request: %w", err)
	}
	if len(b) >= maxRequest {
		return reply{}, fmt.Errorf("%w: a request of %d bytes", ErrHelper, len(b))
	}
	timer := time.NewTimer(h.timeout)
	defer timer.Stop()
	wrote, in := make(chan error, 1), h.proc.in
	go func() { // ends at the latest when the process is ended: that closes the pipe
		_, err := in.Write(append(b, '\n'))
		wrote <- err
	}()
	for {
		select {
		case l := <-h.proc.lines:
			return h.read(l, q.ID)
		case err := <-wrote:
			if err != nil {
				return reply{}, h.died()
			}
			wrote = nil
		case <-timer.C:
			return reply{}, fmt.Errorf("%w hangs: no answer within %s; the driver may hang, look into the kernel's log", ErrHelper, h.timeout)
		case <-ctx.Done():
			return reply{}, ctx.Err()
		}
	}
}

// read takes what came from the helper as the answer to a request.
func (h *helper) read(l line, id uint64) (reply, error) {
	if l.err != nil {
		if errors.Is(l.err, io.EOF) || errors.Is(l.err, io.ErrUnexpectedEOF) {
			return reply{}, h.died()
		}
		return reply{}, fmt.Errorf("%w answers nonsense: %w", ErrHelper, l.err)
	}
	p, err := decodeReply(l.text)
	if err == nil && p.ID != id {
		err = fmt.Errorf("answer %d to request %d", p.ID, id)
	}
	if err != nil {
		return reply{}, fmt.Errorf("%w answers nonsense: %s", ErrHelper, tidy(err.Error(), maxProblem))
	}
	return p, nil
}

// died says how the process ended.
func (h *helper) died() error {
	p := h.proc
	select {
	case <-p.gone:
	case <-time.After(exitGrace):
		return fmt.Errorf("%w closed its output and does not end", ErrHelper)
	}
	how := "exit status 0"
	if p.state != nil {
		how = p.state.Error()
	}
	err := fmt.Errorf("%w crashed: %s", ErrHelper, how)
	if said := tidy(p.stderr.String(), 400); said != "" {
		err = fmt.Errorf("%w: %s", err, said)
	}
	return err
}

// end ends the running process without waiting for one that hangs in the driver, where not even a kill reaches it.
func (h *helper) end() {
	p := h.proc
	h.proc = nil
	if p == nil {
		return
	}
	_ = p.in.Close() // it ends by itself
	_ = p.cmd.Process.Kill()
	select {
	case <-p.gone:
	case <-time.After(exitGrace):
		h.dying = p
	}
}

// Close ends the helper.
func (h *helper) Close() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.closed = true
	if h.proc != nil {
		_ = h.proc.in.Close()
		select {
		case <-h.proc.gone:
		case <-time.After(exitGrace):
		}
	}
	h.end()
	return nil
}

func startProcess(path string, args, env []string) (*process, error) {
	p := &process{cmd: exec.Command(path, args...), lines: make(chan line), gone: make(chan struct{})}
	p.cmd.Env = append(os.Environ(), env...)
	p.cmd.Stderr = &p.stderr
	p.cmd.WaitDelay = exitGrace // somebody else may hold its standard error
	in, err := p.cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, outW, err := os.Pipe() // not StdoutPipe: Wait would close that under its reader
	if err != nil {
		return nil, err
	}
	p.in, p.cmd.Stdout = in, outW
	err = p.cmd.Start()
	outW.Close()
	if err != nil {
		out.Close()
		return nil, err
	}
	go func() {
		p.state = p.cmd.Wait()
		close(p.gone)
	}()
	go p.readLines(out)
	return p, nil
}

// readLines passes lines on, one at a time, until the output ends, breaks its bounds, or the process is gone and nobody
// asks any more.
func (p *process) readLines(out *os.File) {
	defer out.Close()
	r := bufio.NewReader(out)
	for {
		text, err := readLine(r, maxReply)
		l := line{text, err}
		select {
		case p.lines <- l:
		case <-p.gone:
			select { // the last words of a process that ended, if somebody waits for them
			case p.lines <- l:
			case <-time.After(exitGrace):
				return
			}
		}
		if err != nil {
			return
		}
	}
}

// head keeps the first bytes written to it: a crash says there what it is, before pages of stacks.
type head struct {
	mu sync.Mutex
	b  []byte
}

func (t *head) Write(b []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.b = append(t.b, b[:min(len(b), maxStderr-len(t.b))]...)
	return len(b), nil
}

func (t *head) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return string(t.b)
}
