package record

import (
	"slices"
	"time"

	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/node/journal"
)

// Kept is the state of the copies of a job's outputs at other peers.
type Kept struct {
	// Box is the age identity that decrypts the pack, sealed to this peer. It is empty until the outputs are packed.
	Box []byte `json:"box,omitempty"`
	// Pack is the encrypted archive of the outputs, or nil until they are packed.
	Pack *Blob `json:"pack,omitempty"`
	// Until is the end of the time for which copies are placed, and lost ones replaced.
	Until  time.Time `json:"until,omitzero"`
	Copies []Copy    `json:"copies,omitempty"`
	// Over is the reason why nothing is placed or kept any more; empty: the copies are looked after.
	Over string `json:"over,omitempty"`
}

// Copy is one copy, or an attempt to place one.
type Copy struct {
	// Job is the volume that has it. It is empty until its submission is known to have succeeded.
	Job string    `json:"job,omitempty"`
	At  time.Time `json:"at"` // of the attempt
	// Provider is the provider that confirmed to have it.
	Provider sign.Key `json:"provider,omitzero"`
	// Lost is why there is no such copy any more, or was none; empty: it is there, or being placed.
	Lost string `json:"lost,omitempty"`
}

// Keepings are the copies in the journal, by KeptOpen or KeptOver and the job's id. The entry of a new job is written
// with the job.
var Keepings = journal.Define[string, Kept]("copies")

// The prefixes of the keys of Keepings: copies that are looked after, and others.
const (
	KeptOpen = "open/"
	KeptOver = "over/"
)

// Clone returns a deep copy.
func (k Kept) Clone() Kept {
	k.Copies = slices.Clone(k.Copies)
	return k
}

// CopyState is the state of one copy.
type CopyState string

// The states of a copy.
const (
	CopyPlacing CopyState = "placing" // its provider is being found, or fetches it
	CopyKept    CopyState = "kept"    // its provider has it and is paid
	CopyLost    CopyState = "lost"
)

// ShownCopy is a copy as its user sees it.
type ShownCopy struct {
	Job      string    `json:"job,omitempty"` // the volume
	Provider sign.Key  `json:"provider,omitzero"`
	State    CopyState `json:"state"`
	Until    time.Time `json:"until,omitzero"` // end of its paid time
	Reason   string    `json:"reason,omitempty"`
}

// ShownCopies are the copies of a job's outputs as their user sees them.
type ShownCopies struct {
	Job    string      `json:"job"`
	Wanted uint32      `json:"wanted"`
	Pack   *Blob       `json:"pack,omitempty"`
	Until  time.Time   `json:"until,omitzero"`
	Reason string      `json:"reason,omitempty"` // why there are none, or none any more
	Copies []ShownCopy `json:"copies"`
	// Key is the age identity that decrypts the pack, a tar archive of the outputs. It is secret.
	Key string `json:"key,omitempty"`
}

// Kept returns the number of copies that providers have.
func (s ShownCopies) Kept() (n int) {
	for _, c := range s.Copies {
		if c.State == CopyKept {
			n++
		}
	}
	return n
}
