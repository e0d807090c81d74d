package cli

import (
	"bytes"
	"io"
	"os"
	"unicode/utf8"

	"golang.org/x/term"
)

// Plain returns w or, if w is a terminal, a writer to it for untrusted text. It passes text, tabs, line ends and
// colours, and writes every other control character as ^[ or �, so that a provider's program cannot move the cursor,
// change the title or hide text.
func Plain(w io.Writer) io.Writer {
	if f, ok := w.(*os.File); ok && term.IsTerminal(int(f.Fd())) {
		return &plain{w: f}
	}
	return w
}

type plain struct {
	w    io.Writer
	rest []byte // an incomplete sequence or character at the end of the last write
}

// Write implements io.Writer.
func (p *plain) Write(b []byte) (int, error) {
	text := append(p.rest, b...)
	var out []byte
	for len(text) > 0 {
		shown, n := plainPart(text)
		if n == 0 {
			break
		}
		out, text = append(out, shown...), text[n:]
	}
	p.rest = bytes.Clone(text)
	if _, err := p.w.Write(out); err != nil {
		return 0, err
	}
	return len(b), nil
}

// maxColour bounds the sequence of a colour, bytes.
const maxColour = 32

// plainPart returns the first part of a text in its shown form, and its length in the text; 0 if it is incomplete.
func plainPart(text []byte) (shown []byte, n int) {
	switch c := text[0]; {
	case c == '\n' || c == '\t' || c == '\r':
		return text[:1], 1
	case c == 0x1b:
		return colour(text)
	case c < ' ' || c == 0x7f:
		return []byte{'^', c ^ 0x40}, 1
	case !utf8.FullRune(text):
		return nil, 0
	}
	r, n := utf8.DecodeRune(text)
	// Control characters of Latin-1, and characters that reverse the direction of text.
	if r == utf8.RuneError && n == 1 || r >= 0x80 && r < 0xa0 || r >= 0x202a && r <= 0x202e || r >= 0x2066 &&
		r <= 0x2069 {
		return []byte("\uFFFD"), n
	}
	return text[:n], n
}

// colour is plainPart of a text that begins with an escape character.
func colour(text []byte) (shown []byte, n int) {
	for i, c := range text[1:min(len(text), maxColour)] {
		switch {
		case i == 0 && c == '[', i > 0 && (c >= '0' && c <= '9' || c == ';' || c == ':'):
		case i > 0 && c == 'm':
			return text[:i+2], i + 2
		default:
			return []byte("^["), 1
		}
	}
	if len(text) >= maxColour {
		return []byte("^["), 1
	}
	return nil, 0
}
