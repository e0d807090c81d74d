package localnet

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"strconv"
	"sync"
	"syscall"
	"time"

	"github.com/starling-network/starling/market/sign"
)

const (
	startTimeout = 3 * time.Minute // the start takes seconds on an idle machine
	stopTimeout  = 5 * time.Second
	maxHello     = 4096
	maxStderr    = 8192

	// The runtime looks for free ports and binds them later. If another program has one by then, it complains on its
	// standard error and hangs. A start with a complaint is given this time and then repeated, starts times in all.
	complaintTime = 3 * time.Second
	starts        = 5
)

// errComplained means that the runtime wrote an error and did not start.
var errComplained = errors.New("it complained and did not start")

// host is the Node process of the runtime. It ends with its standard input, so that it never outlives its owner, even a
// killed one.
type host struct {
	rpc   string       // URL, with every method open
	payer sign.Private // holds the lamports

	cmd    *exec.Cmd
	stdin  io.Closer
	stderr *tail
	done   chan struct{} // closed when the process has ended
	err    error         // result of the process; set before done
}

// tail keeps the last bytes written to it.
type tail struct {
	wrote chan struct{} // holds one token after a write
	mu    sync.Mutex
	b     []byte
}

func (t *tail) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.b = append(t.b, p...)
	t.b = t.b[max(0, len(t.b)-maxStderr):]
	select {
	case t.wrote <- struct{}{}:
	default:
	}
	return len(p), nil
}

func (t *tail) text() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return lastLines(t.b)
}

func startHost(ctx context.Context, dir string, slotMillis uint64) (*host, error) {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	node, err := NodePath(ctx)
	if err != nil {
		return nil, err
	}
	return startWith(ctx, node, dir, slotMillis)
}

// startWith starts the runtime with a Node program, again after a complaint.
func startWith(ctx context.Context, node, dir string, slotMillis uint64) (h *host, err error) {
	for range starts {
		if h, err = startOnce(ctx, node, dir, slotMillis); !errors.Is(err, errComplained) {
			break
		}
	}
	return h, err
}

func startOnce(ctx context.Context, node, dir string, slotMillis uint64) (_ *host, err error) {
	h := &host{stderr: &tail{wrote: make(chan struct{}, 1)}, done: make(chan struct{})}
	h.cmd = exec.Command(node, "-e", string(hostScript), strconv.FormatUint(slotMillis, 10))
	h.cmd.Dir = dir // base of require
	h.cmd.Stderr = h.stderr
	h.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	h.cmd.WaitDelay = stopTimeout
	if h.stdin, err = h.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	stdout, err := h.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := h.cmd.Start(); err != nil {
		return nil, fmt.Errorf("starting %s: %w", node, err)
	}
	hello := make(chan error, 1)
	go func() {
		lines := bufio.NewReader(io.LimitReader(stdout, maxHello))
		line, err := lines.ReadBytes('\n')
		if err == nil {
			err = h.read(line)
		}
		hello <- err
		_, _ = io.Copy(io.Discard, stdout)
		h.err = h.cmd.Wait()
		close(h.done)
	}()
	err = h.started(ctx, hello)
	if errors.Is(err, errComplained) {
		_ = h.kill() // the end of its input ends no program that hangs
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("starting the local Solana runtime: %w: %s", err, h.stderr.text()), h.stop())
	}
	return h, nil
}

// started waits for the script's line.
func (h *host) started(ctx context.Context, hello <-chan error) error {
	var complaint <-chan time.Time
	for {
		select {
		case err := <-hello:
			return err
		case <-ctx.Done():
			return ctx.Err()
		case <-h.stderr.wrote:
			complaint = time.After(complaintTime)
		case <-complaint:
			return errComplained
		}
	}
}

// read parses the host script's line: {"rpc": URL, "secret": [64 numbers]}.
func (h *host) read(line []byte) error {
	var hello struct {
		RPC    string          `json:"rpc"`
		Secret json.RawMessage `json:"secret"`
	}
	if err := json.Unmarshal(bytes.TrimSpace(line), &hello); err != nil {
		return fmt.Errorf("reading its address: %w", err)
	}
	payer, err := sign.ParseKeypair(hello.Secret)
	if err != nil {
		return fmt.Errorf("reading its key: %w", err)
	}
	h.rpc, h.payer = hello.RPC, payer
	return nil
}

// stop ends the process by closing its input, and kills its process group after a timeout.
func (h *host) stop() error {
	h.stdin.Close()
	timer := time.NewTimer(stopTimeout)
	defer timer.Stop()
	select {
	case <-h.done:
		return nil
	case <-timer.C:
	}
	err := h.kill()
	<-h.done
	return err
}

// kill kills the process group.
func (h *host) kill() error {
	if err := syscall.Kill(-h.cmd.Process.Pid, syscall.SIGKILL); err != nil && !errors.Is(err, syscall.ESRCH) {
		return fmt.Errorf("killing the local Solana runtime: %w", err)
	}
	return nil
}
