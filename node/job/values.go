package job

import (
	"strings"
	"unicode/utf8"
)

func isName(s string) bool {
	if len(s) < 1 || len(s) > maxName || s[0] == '-' || s[len(s)-1] == '-' {
		return false
	}
	return only(s, func(c byte) bool { return c >= 'a' && c <= 'z' || c >= '0' && c <= '9' || c == '-' })
}

func isLabel(s string) bool {
	return len(s) >= 1 && len(s) <= 63 && only(s, func(c byte) bool {
		return isLetter(c) || c >= '0' && c <= '9' || c == '.' || c == '_' || c == '/' || c == '-'
	})
}

func isVariable(s string) bool {
	return len(s) >= 1 && len(s) <= 256 && !(s[0] >= '0' && s[0] <= '9') && only(s, func(c byte) bool {
		return isLetter(c) || c >= '0' && c <= '9' || c == '_'
	})
}

func isLetter(c byte) bool { return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' }
func isText(s string) bool { return utf8.ValidString(s) && !strings.ContainsRune(s, 0) }

func only(s string, ok func(byte) bool) bool {
	for i := range len(s) {
		if !ok(s[i]) {
			return false
		}
	}
	return true
}
