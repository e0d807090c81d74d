package sshserver

import (
	"context"
	"fmt"
	"io"
	"math"
	"strings"
	"sync"
	"unicode/utf8"

	"golang.org/x/crypto/ssh"

	"github.com/starling-network/starling/node/live"
	"github.com/starling-network/starling/node/runtime/sftpd"
)

const (
	// maxEnv bounds the variables of a session, maxEnvBytes their length together.
	maxEnv, maxEnvBytes = 128, 32 << 10
	// maxKeys bounds the control characters that wait for a program that does not read.
	maxKeys = 16
	// codeFailed is the exit status of a program that could not be run, as of ssh itself.
	codeFailed = 255
)

// shell runs the first shell that the image has. It does not read the profile, which would replace the image's PATH.
const shell = `for s in "$SHELL" /bin/bash /usr/bin/bash; do [ -x "$s" ] && exec "$s"; done; exec /bin/sh`

// session is one channel of the type session (RFC 4254, section 6).
type session struct {
	*server
	ch       ssh.Channel
	program  live.Program
	envBytes int
	begun    bool
	sizes    chan [2]uint16 // rows and columns; the latest waits
	keys     chan byte      // control characters
	kill     context.CancelFunc

	mu     sync.Mutex
	signal string // that ended the program
}

func (s *server) session(ctx context.Context, n ssh.NewChannel) {
	ch, requests, err := n.Accept()
	if err != nil {
		return
	}
	ctx, kill := context.WithCancel(ctx)
	defer kill()
	c := &session{
		server: s, ch: ch, kill: kill, sizes: make(chan [2]uint16, 1), keys: make(chan byte, maxKeys),
	}
	defer ch.Close()
	over := make(chan struct{}) // the requests' end is the channel's
	var wg sync.WaitGroup
	wg.Go(func() {
		defer close(over)
		defer kill()
		for r := range requests {
			ok := c.request(ctx, &wg, r)
			if r.WantReply {
				_ = r.Reply(ok, nil)
			}
		}
	})
	<-over
	wg.Wait()
}

// request handles one request of the channel, without waiting for the program.
func (c *session) request(ctx context.Context, wg *sync.WaitGroup, r *ssh.Request) (ok bool) {
	switch r.Type {
	case "env":
		return c.env(r.Payload)
	case "pty-req":
		return c.terminal(r.Payload)
	case "window-change":
		return c.resize(r.Payload)
	case "signal":
		return c.signalled(r.Payload)
	case "shell", "exec", "subsystem":
		args := c.args(r)
		if args == nil || c.begun {
			return false
		}
		c.begun = true
		c.program.Args = args
		wg.Go(func() { c.run(ctx) })
		return true
	}
	return false
}

// args returns the program of a request that starts one, or nil.
func (c *session) args(r *ssh.Request) []string {
	var text struct{ Text string }
	switch r.Type {
	case "shell":
		return []string{"/bin/sh", "-c", shell}
	case "exec":
		if ssh.Unmarshal(r.Payload, &text) == nil {
			return []string{"/bin/sh", "-c", text.Text}
		}
	case "subsystem":
		if ssh.Unmarshal(r.Payload, &text) == nil && text.Text == "sftp" {
			return sftpd.Args()
		}
	}
	return nil
}

// env takes a variable, within the bounds.
func (c *session) env(payload []byte) bool {
	var v struct{ Name, Value string }
	if c.begun || ssh.Unmarshal(payload, &v) != nil || v.Name == "" || strings.ContainsAny(v.Name, "=\x00") ||
		strings.ContainsRune(v.Value, 0) || !utf8.ValidString(v.Name) || !utf8.ValidString(v.Value) {
		return false
	}
	c.envBytes += len(v.Name) + len(v.Value)
	if len(c.program.Env) >= maxEnv || c.envBytes > maxEnvBytes {
		return false
	}
	if c.program.Env == nil {
		c.program.Env = map[string]string{}
	}
	c.program.Env[v.Name] = v.Value
	return true
}

// terminal takes the request of a terminal.
func (c *session) terminal(payload []byte) bool {
	var p struct {
		Term                        string
		Cols, Rows, PixelsX, PixelY uint32
		Modes                       string
	}
	if c.begun || ssh.Unmarshal(payload, &p) != nil {
		return false
	}
	c.program.TTY, c.program.Rows, c.program.Cols = true, clamp(p.Rows), clamp(p.Cols)
	if p.Term != "" {
		c.env(ssh.Marshal(struct{ Name, Value string }{"TERM", p.Term}))
	}
	return true
}

// clamp is a size that a terminal can have; a width that the client does not know is 0.
func clamp(n uint32) uint16 { return uint16(min(max(n, 1), math.MaxUint16)) }

func (c *session) resize(payload []byte) bool {
	var p struct{ Cols, Rows, PixelsX, PixelsY uint32 }
	if !c.program.TTY || ssh.Unmarshal(payload, &p) != nil {
		return false
	}
	select { // a pending size is outdated
	case <-c.sizes:
	default:
	}
	c.sizes <- [2]uint16{clamp(p.Rows), clamp(p.Cols)}
	return true
}

// characters are the signals that a terminal sends for a character.
var characters = map[string]byte{"INT": 0x03, "QUIT": 0x1c, "TSTP": 0x1a}

// signalled delivers a signal: to a terminal as its character, or by ending the program if the signal would end it. It
// reports false for other signals.
func (c *session) signalled(payload []byte) bool {
	var p struct{ Name string }
	if ssh.Unmarshal(payload, &p) != nil || !c.begun {
		return false
	}
	if key, ok := characters[p.Name]; ok && c.program.TTY {
		select {
		case c.keys <- key:
			return true
		default:
			return false
		}
	}
	switch p.Name {
	case "TERM", "KILL", "HUP", "INT", "QUIT", "ABRT":
		c.mu.Lock()
		if c.signal == "" {
			c.signal = p.Name
		}
		c.mu.Unlock()
		c.kill()
		return true
	}
	return false
}

// run runs the program, and sends its output and exit status.
func (c *session) run(ctx context.Context) {
	defer c.ch.Close()
	conn, err := c.Programs.Attach(ctx, c.program)
	code := codeFailed
	if err == nil {
		code, err = c.join(ctx, conn)
	}
	c.mu.Lock()
	signal := c.signal
	c.mu.Unlock()
	if err != nil && signal == "" {
		eol := "\n"
		if c.program.TTY {
			eol = "\r\n"
		}
		_, _ = fmt.Fprintf(c.ch.Stderr(), "starling: %s%s", c.Explain(err), eol)
		code = codeFailed
	}
	_ = c.ch.CloseWrite()
	if err != nil && signal != "" {
		_, _ = c.ch.SendRequest("exit-signal", false, ssh.Marshal(struct {
			Name    string
			Core    bool
			Message string
			Lang    string
		}{Name: signal}))
		return
	}
	_, _ = c.ch.SendRequest("exit-status", false, ssh.Marshal(struct{ Code uint32 }{uint32(code)}))
}

// join copies between the channel and the program until that ends, and returns its exit code.
func (c *session) join(ctx context.Context, conn live.Conn) (int, error) {
	stop := context.AfterFunc(ctx, func() { _ = conn.Close() })
	w := live.NewWriter(conn)
	done := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			var err error
			select {
			case <-done:
				return
			case size := <-c.sizes:
				err = w.Resize(size[0], size[1])
			case key := <-c.keys:
				err = w.Write(live.Stdin, []byte{key})
			}
			if err != nil {
				return // the reader of the output reports it
			}
		}
	})
	c.wg.Go(func() { // ends with the channel, which a client may hold open
		if _, err := io.Copy(w.Stream(live.Stdin), c.ch); err == nil {
			_ = w.Write(live.EOF, nil)
		}
	})
	code, err := live.Demultiplex(conn, c.ch, c.ch.Stderr())
	stop()
	_ = conn.Close() // ends a pending write
	close(done)
	wg.Wait()
	return code, err
}
