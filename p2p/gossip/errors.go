package gossip

import "errors"

var (
	// ErrIgnore: a decoder wraps it to drop a message without blame.
	ErrIgnore = errors.New("message ignored")
	// ErrReject: a decoder wraps it to drop a message and blame the peer that passed it on.
	ErrReject = errors.New("message rejected")
	// ErrTooLarge: the message is above MaxMessage; it was not published.
	ErrTooLarge = errors.New("message is too large")
	// ErrName: the topic's name is not [a-z0-9/-]{1,96}.
	ErrName = errors.New("bad topic name")
	// ErrClosed: the topic was closed.
	ErrClosed = errors.New("topic is closed")
)
