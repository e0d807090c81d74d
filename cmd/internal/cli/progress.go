package cli

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"sync"

	"golang.org/x/term"
)

// Progress reports the current activity on standard error. On a terminal it replaces the last line; elsewhere it writes
// only permanent messages, one per line.
type Progress struct {
	mu   sync.Mutex
	w    io.Writer
	Live *os.File // the terminal; nil if there is none
	line string   // the status line
	on   bool     // the status line is on the screen
}

// Status replaces the status line.
func (p *Progress) Status(format string, args ...any) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.line = cell(fmt.Sprintf(format, args...))
	p.hide()
	p.show()
}

// Say writes a permanent line.
func (p *Progress) Say(format string, args ...any) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.hide()
	fmt.Fprintln(p.w, cell(fmt.Sprintf(format, args...)))
	p.show()
}

// Clear removes the status line.
func (p *Progress) Clear() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.line = ""
	p.hide()
}

func (p *Progress) hide() {
	if p.on {
		fmt.Fprint(p.w, "\r\x1b[K")
		p.on = false
	}
}

func (p *Progress) show() {
	if p.Live == nil || p.line == "" {
		return
	}
	width, _, err := term.GetSize(int(p.Live.Fd()))
	if err != nil || width <= 1 {
		width = 80
	}
	fmt.Fprint(p.w, Clip(p.line, width-1)) // a wrapped line could not be erased
	p.on = true
}

// Above returns a writer for output above the status line. The status line returns after each complete line,
// so that it does not break a program's own progress bar.
func (p *Progress) Above(w io.Writer) io.Writer { return &aboveWriter{p, w} }

type aboveWriter struct {
	p *Progress
	w io.Writer
}

func (a *aboveWriter) Write(b []byte) (int, error) {
	a.p.mu.Lock()
	defer a.p.mu.Unlock()
	a.p.hide()
	n, err := a.w.Write(b)
	if bytes.HasSuffix(b, []byte("\n")) {
		a.p.show()
	}
	return n, err
}

// maxPrefixed is the length at which a line is broken.
const maxPrefixed = 64 << 10

// Prefixed writes whole lines with a prefix, so that several logs share one screen. Flush writes an incomplete line.
type Prefixed struct {
	W      io.Writer
	Prefix string
	buf    []byte
}

func (p *Prefixed) Write(b []byte) (int, error) {
	for rest := b; len(rest) > 0; {
		i := bytes.IndexByte(rest, '\n')
		take := rest[:max(i, 0)]
		if i < 0 {
			take, rest = rest, nil
		} else {
			rest = rest[i+1:]
		}
		p.buf = append(p.buf, take...)
		if i >= 0 || len(p.buf) >= maxPrefixed {
			if err := p.flush(); err != nil {
				return 0, err
			}
		}
	}
	return len(b), nil
}

func (p *Prefixed) flush() error {
	line := make([]byte, 0, len(p.Prefix)+len(p.buf)+1)
	line = append(append(append(line, p.Prefix...), p.buf...), '\n')
	p.buf = p.buf[:0]
	_, err := p.W.Write(line)
	return err
}

// Flush ends an incomplete line.
func (p *Prefixed) Flush() error {
	if len(p.buf) == 0 {
		return nil
	}
	return p.flush()
}
