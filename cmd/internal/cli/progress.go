package cli

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	"golang.org/x/term"
)

// progress reports the current activity on standard error. On a terminal the last line stands and changes; elsewhere
// only permanent facts are written, a line each.
type progress struct {
	mu   sync.Mutex
	w    io.Writer
	live *os.File // the terminal; nil elsewhere
	line string   // the changing line
	on   bool     // it is on the screen
}

func (a *App) progress() *progress {
	p := &progress{w: a.Err}
	if f, ok := a.Err.(*os.File); ok && term.IsTerminal(int(f.Fd())) {
		p.live = f
	}
	return p
}

// status replaces the changing line.
func (p *progress) status(format string, args ...any) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.line = cell(fmt.Sprintf(format, args...))
	p.hide()
	p.show()
}

// say writes a line that stays.
func (p *progress) say(format string, args ...any) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.hide()
	fmt.Fprintln(p.w, cell(fmt.Sprintf(format, args...)))
	p.show()
}

// clear ends the changing line.
func (p *progress) clear() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.line = ""
	p.hide()
}

func (p *progress) hide() {
	if p.on {
		fmt.Fprint(p.w, "\r\x1b[K")
		p.on = false
	}
}

func (p *progress) show() {
	if p.live == nil || p.line == "" {
		return
	}
	width, _, err := term.GetSize(int(p.live.Fd()))
	if err != nil || width <= 1 {
		width = 80
	}
	fmt.Fprint(p.w, clip(p.line, width-1)) // a line that wraps could not be taken back
	p.on = true
}

// above returns a writer with output above the changing line. The line comes back once a line is complete, so that a
// program's own progress bar is not torn.
func (p *progress) above(w io.Writer) io.Writer { return &aboveWriter{p, w} }

type aboveWriter struct {
	p *progress
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

// maxPrefixed is how long a line may be before it is broken.
const maxPrefixed = 64 << 10

// prefixed writes whole lines with a prefix, so that several logs share one screen. Flush writes an incomplete line.
type prefixed struct {
	w      io.Writer
	prefix string
	buf    []byte
}

func (p *prefixed) Write(b []byte) (int, error) {
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

func (p *prefixed) flush() error {
	line := make([]byte, 0, len(p.prefix)+len(p.buf)+1)
	line = append(append(append(line, p.prefix...), p.buf...), '\n')
	p.buf = p.buf[:0]
	_, err := p.w.Write(line)
	return err
}

// Flush ends a line that has begun.
func (p *prefixed) Flush() error {
	if len(p.buf) == 0 {
		return nil
	}
	return p.flush()
}

// ago is how long something is past, as a person says it: "12s", "5m", "3h", "4d".
func ago(now, then time.Time) string {
	if then.IsZero() {
		return "-"
	}
	return span(now.Sub(then))
}

// span is a duration in its largest unit.
func span(d time.Duration) string {
	switch {
	case d < 2*time.Minute:
		return fmt.Sprintf("%ds", max(0, int(d.Seconds())))
	case d < 2*time.Hour:
		return fmt.Sprintf("%dm", int(d.Minutes()))
	case d < 48*time.Hour:
		return fmt.Sprintf("%dh", int(d.Hours()))
	}
	return fmt.Sprintf("%dd", int(d.Hours()/24))
}

// millis is a round-trip time in a table.
func millis(ms float64) string {
	switch {
	case ms <= 0:
		return "-"
	case ms < 10:
		return fmt.Sprintf("%.1fms", ms)
	}
	return fmt.Sprintf("%.0fms", ms)
}
