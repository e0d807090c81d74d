package market

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

// Clean returns a text from another peer as one printable line of at most most bytes. Invalid UTF-8 and characters that
// are not printable become spaces. It is called where the text enters, so that journals, API answers and terminals
// receive the clean text.
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
