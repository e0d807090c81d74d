package web

import (
	"errors"
	"fmt"
	"net/url"
	"strconv"
	"strings"
)

// Scheme begins the URLs that are read.
const Scheme = "https://"

// MaxURL bounds a URL, bytes. Signed ones have a token of up to 2 KiB.
const MaxURL = 4 << 10

// MaxURLs bounds the URLs of one file.
const MaxURLs = 4

// Check returns an error if no peer would read a URL, by its form alone.
func Check(text string) error {
	if len(text) > MaxURL {
		return fmt.Errorf("URL: got %d bytes, want at most %d", len(text), MaxURL)
	}
	foreign := func(r rune) bool { return r <= ' ' || r >= 0x7f }
	if strings.ContainsFunc(text, foreign) {
		return errors.New("URL: spaces and characters that are not ASCII must be percent-encoded")
	}
	u, err := url.Parse(text)
	if err != nil {
		return errors.New("URL: malformed")
	}
	return check(u)
}

func check(u *url.URL) error {
	switch port := u.Port(); {
	case u.Scheme != "https":
		return fmt.Errorf("URL: scheme %.20q, want https", u.Scheme)
	case u.Hostname() == "" || u.Opaque != "":
		return errors.New("URL: no host")
	case u.User != nil:
		return errors.New("URL: user and password are not sent; give a signed URL")
	case u.Fragment != "":
		return errors.New("URL: a fragment names no file")
	case port != "":
		if n, err := strconv.Atoi(port); err != nil || n < 1 || n > 65535 {
			return fmt.Errorf("URL: port %.20q", port)
		}
	}
	return nil
}

// Public is a URL without its query, which may be a signature, in at most 200 bytes.
func Public(text string) string {
	text, _, _ = strings.Cut(text, "?")
	if len(text) > 200 {
		text = text[:197] + "…"
	}
	return text
}

// Signed reports whether a URL may contain a secret of its users: whether it has a query.
func Signed(text string) bool { return strings.Contains(text, "?") }
