// Package file has the files of a job as its machine knows them: outputs, and the checkpoints of its ranks.
package file

import (
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/starling-network/starling/market"
)

const (
	maxCID  = 128
	maxPath = 4096
	// maxCheckpoints of a rank are kept. The guardians of its job may not have the newest yet.
	maxCheckpoints = 2
	// maxRefused is the number of executions that may fail to begin from a checkpoint.
	maxRefused = 2
)

// File names a file or a tree of files by its content.
type File struct {
	Path  string `json:"path,omitempty"`
	CID   string `json:"cid,omitempty"`
	Bytes int64  `json:"bytes,omitempty"`
	Tree  bool   `json:"tree,omitempty"`
}

// Valid reports whether f can name a file: a printable path, an alphanumeric content id, a size. The zero File is
// valid.
func (f File) Valid() bool {
	other := func(c rune) bool { return (c < '0' || c > '9') && (c < 'A' || c > 'Z') && (c < 'a' || c > 'z') }
	return f.Bytes >= 0 && len(f.CID) <= maxCID && strings.IndexFunc(f.CID, other) < 0 &&
		len(f.Path) <= maxPath && utf8.ValidString(f.Path) && market.Clean(f.Path, len(f.Path)) == f.Path
}

// Checkpoint is a pack from which the next execution of a rank can continue.
type Checkpoint struct {
	File    File      `json:"file,omitzero"`
	Number  uint64    `json:"number,omitempty"`  // by the provider, within its execution
	At      time.Time `json:"at,omitzero"`       // the peer had it
	Refused uint32    `json:"refused,omitempty"` // executions that were to continue from it and never began
}

// ValidCheckpoints reports whether a rank can have these, the newest first.
func ValidCheckpoints(all []Checkpoint) bool {
	return len(all) <= maxCheckpoints && !slices.ContainsFunc(all, func(c Checkpoint) bool {
		return !c.File.Valid() || c.File.CID == "" || c.Refused >= maxRefused
	})
}

// Keep returns the checkpoints of a rank with a new one.
func Keep(all []Checkpoint, c Checkpoint) []Checkpoint {
	return append([]Checkpoint{c}, all[:min(len(all), maxCheckpoints-1)]...)
}

// Refuse returns the checkpoints of a rank after an execution that was to continue from the newest and never began.
// After the last that may, the newest is forgotten.
func Refuse(all []Checkpoint) []Checkpoint {
	all = slices.Clone(all)
	if all[0].Refused++; all[0].Refused >= maxRefused {
		return all[1:]
	}
	return all
}
