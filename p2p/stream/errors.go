package stream

import (
	"errors"
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"
)

var (
	// ErrUnreachable: no stream could be opened to the peer, or it broke before the answer came.
	ErrUnreachable = errors.New("peer is unreachable")
	// ErrUnsupported: the peer was reached and does not speak this protocol on this network.
	ErrUnsupported = errors.New("peer does not speak this protocol")
	// ErrTooLarge: a message is above its protocol's size; a request of ours is then never sent.
	ErrTooLarge = errors.New("message is too large")
	// ErrBadReply: the peer's answer breaks the protocol.
	ErrBadReply = errors.New("peer sent a malformed answer")
	// ErrInternal: the peer failed while answering; the cause is in its own log.
	ErrInternal = errors.New("peer failed while answering")
)

// Codes of refusals that this package sends by itself.
const (
	// CodeBusy: the peer answers as many streams as it is willing to.
	CodeBusy = "busy"
	// CodeClosing: the peer is shutting down.
	CodeClosing = "closing"
)

// Refused is an understood request that was declined. A handler returns one with [Refuse].
type Refused struct {
	Code   string // a short stable word, at most 64 bytes
	Reason string // a sentence for a person, at most 512 bytes
}

func (r *Refused) Error() string { return fmt.Sprintf("refused (%s): %s", r.Code, r.Reason) }

// Refuse makes the error with which a handler declines a request.
func Refuse(code, reason string) error { return &Refused{Code: code, Reason: reason} }

// Malformed is a request that can never work as it is. A handler returns one when the message decoded as
// protobuf and its content is still wrong.
type Malformed struct{ Reason string }

func (m *Malformed) Error() string { return "malformed request: " + m.Reason }

// clean makes a remote peer's text safe to print and cuts it to max bytes.
func clean(s string, max int) string {
	s = strings.Map(func(r rune) rune {
		if r == utf8.RuneError || !unicode.IsPrint(r) {
			return ' '
		}
		return r
	}, s)
	for len(s) > max {
		_, size := utf8.DecodeLastRuneInString(s)
		s = s[:len(s)-size]
	}
	return s
}
