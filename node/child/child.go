package child

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"sync"
	"time"
)

const (
	// backoffFirst and backoffMost are the delays before a failed program is restarted: the first, doubled after each
	// failure, and the longest.
	backoffFirst = time.Second
	backoffMost  = time.Minute
	// exitGrace is the time between a request to end and the kill of a program, and after that until it is gone.
	exitGrace = 2 * time.Second
	// maxStderr bounds the kept part of a program's standard error.
	maxStderr = 4 << 10
	// maxNonsense bounds the quoted part of a reason.
	maxNonsense = 1024
)

// Config is the configuration of a program.
type Config struct {
	Path string
	Args []string
	Env  []string // beside the peer's own
	// Failed is wrapped by the errors of a process that failed; their texts begin with its.
	Failed error
	// Read reads one answer from the program's output; it returns io.EOF if there is none. It must bound its reading.
	Read func(*bufio.Reader) ([]byte, error)
	// Backoff returns the delay before a restart after consecutive failures. It is optional; if nil, the delay is one
	// second, doubled each time, at most a minute.
	Backoff func(failures int) time.Duration
	// Now is the clock of that; nil means time.Now.
	Now func() time.Time
}

// Question is one exchange with a program.
type Question struct {
	// Text returns the request, under a number that no other question of this Program has.
	Text func(id uint64) ([]byte, error)
	// Answer processes an answer. Its error ends the process, which is restarted after the backoff; Answer itself
	// stores errors that a program may report without being ended. After ErrMore it is called again with the next part.
	Answer func(id uint64, b []byte) error
	// Timeout is how long the answer may take; without one the process is ended as hanging.
	Timeout time.Duration
	// Cancel is written when the context ends, and the answer may then take Grace longer, after which the process is
	// ended. Without Cancel it is ended at once.
	Cancel func(id uint64) []byte
	Grace  time.Duration
}

// ErrMore means that an answer has further parts.
var ErrMore = errors.New("the answer has more parts")

// Program is a program that is started at its first request and restarted after failures. It handles one request at a
// time.
type Program struct {
	cfg Config

	turn     chan struct{} // held by the call that works
	proc     *process      // nil when none runs
	dying    *process      // killed, and not known to be gone
	failures int           // in a row
	until    time.Time
	last     error // why it failed
	next     uint64
	closed   bool
}

// New is a program that is not started yet.
func New(cfg Config) *Program {
	if cfg.Backoff == nil {
		cfg.Backoff = backoff
	}
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	return &Program{cfg: cfg, turn: make(chan struct{}, 1)}
}

func backoff(failures int) time.Duration {
	return min(backoffFirst<<min(failures-1, 10), backoffMost)
}

// process is one running program.
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

// Call sends a request to the program. It returns Failed if the process failed, which is then restarted only after the
// backoff; Answer's error; or the context's.
func (h *Program) Call(ctx context.Context, q Question) error {
	select {
	case h.turn <- struct{}{}:
		defer func() { <-h.turn }()
	case <-ctx.Done():
		return ctx.Err()
	}
	switch {
	case h.closed:
		return fmt.Errorf("%w: closed", h.cfg.Failed)
	case ctx.Err() != nil:
		return ctx.Err()
	}
	if err := h.start(); err != nil {
		return err
	}
	h.next++
	err := h.ask(ctx, q, h.next)
	switch {
	case err == nil:
		h.failures = 0
		return nil
	case ctx.Err() != nil:
		if !errors.Is(err, errCancelled) {
			h.end() // its answer would come at the wrong time
		}
		return ctx.Err()
	}
	h.end()
	h.failures++
	h.last, h.until = err, h.cfg.Now().Add(h.cfg.Backoff(h.failures))
	return err
}

// errCancelled reports that the program ended a question on request.
var errCancelled = errors.New("cancelled")

// start starts the process if none runs and it may be.
func (h *Program) start() error {
	if h.dying != nil {
		select {
		case <-h.dying.gone:
			h.dying = nil
		default:
			return fmt.Errorf("%w: process %d was killed and hangs in the driver: no other is started; "+
				"check the kernel's log, the machine may need a restart", h.cfg.Failed, h.dying.cmd.Process.Pid)
		}
	}
	if h.proc != nil {
		return nil
	}
	if wait := h.until.Sub(h.cfg.Now()); h.failures > 0 && wait > 0 {
		return fmt.Errorf("%w (tried again in %s)", h.last, max(wait.Round(time.Second), time.Second))
	}
	p, err := startProcess(h.cfg)
	if err != nil {
		h.failures++
		h.last = fmt.Errorf("%w cannot be started: %w", h.cfg.Failed, err)
		h.until = h.cfg.Now().Add(h.cfg.Backoff(h.failures))
		return h.last
	}
	h.proc = p
	return nil
}

func (h *Program) ask(ctx context.Context, q Question, id uint64) error {
	b, err := q.Text(id)
	if err != nil {
		return fmt.Errorf("%w: writing request: %w", h.cfg.Failed, err)
	}
	timer := time.NewTimer(q.Timeout)
	defer timer.Stop()
	wrote := h.write(b)
	for {
		select {
		case l := <-h.proc.lines:
			if err := h.read(l, q, id); !errors.Is(err, ErrMore) {
				return err
			}
		case err := <-wrote:
			if err != nil {
				return h.died()
			}
			wrote = nil
		case <-timer.C:
			return fmt.Errorf("%w hangs: no answer within %s; the driver may hang, check the kernel's log",
				h.cfg.Failed, q.Timeout)
		case <-ctx.Done():
			if q.Cancel == nil {
				return ctx.Err()
			}
			return h.cancel(q, id, wrote)
		}
	}
}

// write writes on a goroutine that ends at the latest when the process is ended: that closes the pipe.
func (h *Program) write(b []byte) chan error {
	wrote, in := make(chan error, 1), h.proc.in
	go func() {
		_, err := in.Write(b)
		wrote <- err
	}()
	return wrote
}

// cancel notifies the program of the cancellation, after it has read the question (asked is nil if it has). It returns
// errCancelled if the program answered in time and can be used again.
func (h *Program) cancel(q Question, id uint64, asked <-chan error) error {
	timer := time.NewTimer(q.Grace)
	defer timer.Stop()
	if asked != nil {
		select {
		case err := <-asked:
			if err != nil {
				return err
			}
		case <-timer.C:
			return fmt.Errorf("%w does not read", h.cfg.Failed)
		}
	}
	wrote := h.write(q.Cancel(id))
	for more := true; more; {
		select {
		case l := <-h.proc.lines:
			err := h.read(l, q, id)
			if more = errors.Is(err, ErrMore); err != nil && !more {
				return err
			}
		case <-timer.C:
			return fmt.Errorf("%w: it does not cancel a request", h.cfg.Failed)
		}
	}
	select {
	case err := <-wrote:
		if err != nil {
			return err
		}
	case <-timer.C:
		return fmt.Errorf("%w does not read", h.cfg.Failed)
	}
	return errCancelled
}

// read processes the program's output as the answer to a request.
func (h *Program) read(l line, q Question, id uint64) error {
	if l.err != nil {
		if errors.Is(l.err, io.EOF) || errors.Is(l.err, io.ErrUnexpectedEOF) {
			return h.died()
		}
		return h.Nonsense(l.err)
	}
	return q.Answer(id, l.text)
}

// Nonsense is the error of an answer that cannot be understood.
func (h *Program) Nonsense(err error) error {
	return fmt.Errorf("%w answers nonsense: %s", h.cfg.Failed, Tidy(err.Error(), maxNonsense))
}

// died returns the process's end as an error.
func (h *Program) died() error {
	p := h.proc
	select {
	case <-p.gone:
	case <-time.After(exitGrace):
		return fmt.Errorf("%w closed its output and does not end", h.cfg.Failed)
	}
	how := "exit status 0"
	if p.state != nil {
		how = p.state.Error()
	}
	err := fmt.Errorf("%w crashed: %s", h.cfg.Failed, how)
	if said := Tidy(p.stderr.String(), 400); said != "" {
		err = fmt.Errorf("%w: %s", err, said)
	}
	return err
}

// end ends the running process. It does not wait for a process that hangs in the driver and cannot be killed.
func (h *Program) end() {
	p := h.proc
	h.proc = nil
	if p == nil {
		return
	}
	_ = p.in.Close() // the process then ends itself
	_ = p.cmd.Process.Kill()
	select {
	case <-p.gone:
	case <-time.After(exitGrace):
		h.dying = p
	}
}

// Close ends the program.
func (h *Program) Close() error {
	h.turn <- struct{}{}
	defer func() { <-h.turn }()
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

func startProcess(cfg Config) (*process, error) {
	p := &process{cmd: exec.Command(cfg.Path, cfg.Args...), lines: make(chan line), gone: make(chan struct{})}
	p.cmd.Env = append(os.Environ(), cfg.Env...)
	p.cmd.Stderr = &p.stderr
	p.cmd.WaitDelay = exitGrace // another process may hold its standard error
	in, err := p.cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, outW, err := os.Pipe() // not StdoutPipe: Wait would close that under its reader
	if err != nil {
		return nil, err
	}
	widen(outW)
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
	go p.readLines(out, cfg.Read)
	return p, nil
}

// readLines passes answers on, one at a time, until the output ends, exceeds its bounds, or the process is gone without
// a waiting caller.
func (p *process) readLines(out *os.File, read func(*bufio.Reader) ([]byte, error)) {
	defer out.Close()
	r := bufio.NewReader(out)
	for {
		text, err := read(r)
		l := line{text, err}
		select {
		case p.lines <- l:
		case <-p.gone:
			select { // the last output of an ended process, if a caller waits for it
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

// head keeps the first bytes written to it: a crash is named there, before pages of stacks.
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
