package market

import (
	"strings"
	"testing"
	"unicode/utf8"
)

// TestAttackTerminal: nothing that drives a terminal, forges a line or turns the writing around is left of a text of others.
func TestAttackTerminal(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"\x1b]0;owned\x07\x1b[2Jhello":  " ]0;owned  [2Jhello",
		"no such image\nhint: run this": "no such image hint: run this",
		"\u009b31mred\u202edeer\x7f":    " 31mred deer ",
		"broken \xff\xfe, grün":         "broken   , grün",
	} {
		if got := Clean(text, 100); got != want {
			t.Errorf("Clean(%q) = %q, want %q", text, got, want)
		}
	}
	if got := Clean(strings.Repeat("é", 100), 101); len(got) != 100 || !utf8.ValidString(got) {
		t.Errorf("cut to %d bytes: %q", len(got), got)
	}
}
