package record

import (
	"slices"
	"time"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/node/journal"
)

// Kept is the state of the copies of a job's outputs at other peers.
type Kept struct {
	// Box is the age identity that decrypts the pack, sealed to this peer. It is empty until the outputs are packed.
	Box []byte `json:"box,omitempty"`
	// Pack is the encrypted archive of the outputs, or nil until they are packed.
	Pack *Blob `json:"pack,omitempty"`
	// Chunks is the CID of the chunk list of the pack, a blob of this peer, or "" until it is computed. Parts of the
	// pack that keepers send are checked against it.
	Chunks string `json:"chunks,omitempty"`
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
	// Spot is the state of the checks of its provider.
	Spot Spot `json:"spot,omitzero"`
	// Stop means that the volume of a lost copy is still to be stopped.
	Stop bool `json:"stop,omitempty"`
}

// Spot is the state of the checks of one copy. A check is the request for one chunk of the pack, at a random time.
type Spot struct {
	Next   time.Time `json:"next,omitzero"`   // the next check; journalled before a request
	Passed time.Time `json:"passed,omitzero"` // the last check with the right chunk
	Failed uint32    `json:"failed,omitempty"`
	Since  time.Time `json:"since,omitzero"` // the first of the Failed checks in a row
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
	Until    time.Time `json:"until,omitzero"`   // end of its paid time
	Checked  time.Time `json:"checked,omitzero"` // last time that its provider sent a chunk for a check
	Failed   uint32    `json:"failed,omitempty"` // checks since then that failed
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
	// Outputs are the outputs of each rank. The pack has each once, named by its CID.
	Outputs [][]Output `json:"outputs,omitempty"`
	// Key is the age identity that decrypts the pack, a tar archive of the outputs. It is secret.
	Key string `json:"key,omitempty"`
}

// ExtendedCopy is the result of an extension for one copy.
type ExtendedCopy struct {
	Job      string        `json:"job,omitempty"` // the volume
	Provider sign.Key      `json:"provider,omitzero"`
	State    ExtendState   `json:"state"`
	Until    time.Time     `json:"until,omitzero"` // end of its paid time now
	Extra    market.Amount `json:"extra"`          // the most that it adds to the cost
	Reason   string        `json:"reason,omitempty"`
}

// ExtendedCopies is the result of an extension of the copies of a job's outputs.
type ExtendedCopies struct {
	Job    string         `json:"job"`
	Until  time.Time      `json:"until"` // end of the time for which copies are placed, and lost ones replaced
	Copies []ExtendedCopy `json:"copies"`
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
