package cli

import (
	"bytes"
	"os"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// A terminal gets text, line ends and colours; what drives it is shown, however it is cut into writes.
func TestPlain(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"plain\ttext\r\nü → 日本\n":               "plain\ttext\r\nü → 日本\n",
		"\x1b[1;31mred\x1b[0m \x1b[38:5:1mx":    "\x1b[1;31mred\x1b[0m \x1b[38:5:1mx",
		"\x1b[2J\x1b[Hgone":                     "^[[2J^[[Hgone",
		"\x1b]0;title\a":                        "^[]0;title^G",
		"\x1bc\x1b\x1b[0m":                      "^[c^[\x1b[0m",
		"\x00\b\x7f":                            "^@^H^?",
		"\u009b2J\u202egnp.exe\u2066":           "\uFFFD2J\uFFFDgnp.exe\uFFFD",
		"\xff\xfea":                             "\uFFFD\uFFFDa",
		"\x1b[" + strings.Repeat("1", 40) + "m": "^[[" + strings.Repeat("1", 40) + "m",
		"cut \x1b[3":                            "cut ",
		"cut \xe6\x97":                          "cut ",
	} {
		for size := 1; size <= len(text); size++ {
			var out bytes.Buffer
			p := &plain{w: &out}
			for rest := []byte(text); len(rest) > 0; rest = rest[min(size, len(rest)):] {
				part := rest[:min(size, len(rest))]
				if n, err := p.Write(part); n != len(part) || err != nil {
					t.Fatal(n, err)
				}
			}
			if out.String() != want {
				t.Errorf("%q in writes of %d: %q, want %q", text, size, out.String(), want)
			}
		}
	}
}

// Whatever is written, nothing but colours begins with an escape character, and no more is held back than one sequence.
func TestPlainProperty(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		var out bytes.Buffer
		p := &plain{w: &out}
		parts := rapid.SliceOf(rapid.OneOf(rapid.SliceOf(rapid.Byte()), rapid.SliceOf(rapid.SampledFrom([]byte("\x1b[0;m9A\u0085é"))))).Draw(t, "parts")
		for _, part := range parts {
			if _, err := p.Write(part); err != nil || len(p.rest) >= maxColour {
				t.Fatalf("%v, %d bytes held back", err, len(p.rest))
			}
		}
		text := out.String()
		for i := strings.IndexByte(text, 0x1b); i >= 0; i = strings.IndexByte(text, 0x1b) {
			text = text[i+1:]
			if end := strings.TrimLeft(text, "[0123456789;:"); !strings.HasPrefix(text, "[") || !strings.HasPrefix(end, "m") {
				t.Fatalf("%q drives a terminal", out.String())
			}
		}
	})
}

// A file gets the bytes as they are.
func TestPlainFile(t *testing.T) {
	t.Parallel()
	f, err := os.CreateTemp(t.TempDir(), "log")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var b bytes.Buffer
	if Plain(f) != f || Plain(&b) != &b {
		t.Error("what is no terminal is filtered")
	}
}
