package market

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

// Clean returns a text that came from somebody else as one line of at most most bytes that a terminal only prints: what
// is not UTF-8 or not printable becomes a space. It is called where the text enters, so that journals, answers of the
// API and terminals get the clean one.
func Clean(text string, most int) string {
	text = strings.Map(func(r rune) rune {
		if r == utf8.RuneError || !unicode.IsPrint(r) {
			return ' '
		}
		return r
	}, text[:min(len(text), most+utf8.UTFMax)])
	for len(text) > most {
		_, n := utf8.DecodeLastRuneInString(text)
		text = text[:len(text)-n]
	}
	return text
}
