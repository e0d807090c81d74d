package discovery

import "errors"

var (
	// ErrMalformed: the bytes are not a record, or break one of its limits.
	ErrMalformed = errors.New("malformed record")
	// ErrBadSignature: the record is not signed by the peer it is about, on this network.
	ErrBadSignature = errors.New("record is badly signed")
	// ErrExpired: the record has expired.
	ErrExpired = errors.New("record is expired")
	// ErrBadTime: the record's sequence is in the future, or it claims to be valid for too long.
	ErrBadTime = errors.New("record is not bounded in time")
	// ErrReplayed: a record with a higher sequence was seen before.
	ErrReplayed = errors.New("record is older than one already seen")
	// ErrNoPeers: no other peer of the DHT is known yet.
	ErrNoPeers = errors.New("no other peer of the DHT is known")
	// ErrNotFound: no believable record was found.
	ErrNotFound = errors.New("no record found")
)
