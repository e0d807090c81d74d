package store

import "errors"

var (
	// ErrNotFound: no record under this kind and key.
	ErrNotFound = errors.New("store: no such record")
	// ErrFull: the disk has no room. Nothing of the write is stored; reads work, and writes do once there is room
	// again.
	ErrFull = errors.New("store: disk full: free some space, nothing written so far is lost")
	// ErrCorrupt: the file is not a journal, or its content changed under us. Put back a backup; the peer must not
	// guess.
	ErrCorrupt = errors.New("store: journal is damaged")
	// ErrBroken: the disk failed while making a write durable. The content of the disk is decided when the journal is
	// opened again.
	ErrBroken = errors.New("store: disk failed during a write: restart the peer")
	// ErrLocked: another process has this journal open. Two peers on one journal would make promises for each other.
	ErrLocked = errors.New("store: journal is in use by another peer")
	// ErrVersion: a newer version of the program wrote this journal.
	ErrVersion = errors.New("store: journal was written by a newer version")
	// ErrRecord: the kind, key or value cannot be a record.
	ErrRecord = errors.New("store: not a valid record")
	// ErrClosed: the store was closed.
	ErrClosed = errors.New("store: closed")
	// ErrCrashed: the simulated power cut of a Crashing store has happened.
	ErrCrashed = errors.New("store: crashed")
)
