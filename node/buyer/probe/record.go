package probe

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"slices"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/node/journal"
	rules "github.com/starling-network/starling/verify/exclusive"
)

// Exclusive is a buyer's record of a rank's units for as long as it has them.
type Exclusive struct {
	Lease      market.LeaseID `json:"lease"` // the first of its renewal chain
	Watch      rules.Watch    `json:"watch"`
	Budget     rules.Budget   `json:"budget"`
	Asked      uint64         `json:"asked"`                // questions
	Unanswered int            `json:"unanswered,omitempty"` // of them
	Full       int            `json:"full,omitempty"`       // of them: the program had left the devices no memory
	Wrong      int            `json:"wrong,omitempty"`      // answers
	Note       string         `json:"note,omitempty"`       // why there are none
	Health     *Health        `json:"health,omitempty"`     // nil: the provider reported no devices
}

// Health has a provider's reports of an execution's hardware, at both ends of it, and the changes in between.
type Health struct {
	Execution uint64         `json:"execution"`
	Before    *Snapshot      `json:"before,omitempty"`
	After     *Snapshot      `json:"after,omitempty"`
	Changes   []rules.Change `json:"changes,omitempty"`
}

// Snapshot is one of the reports, with both signatures.
type Snapshot struct {
	rules.Snapshot
	ProviderSig sign.Signature `json:"providerSig"`
	BuyerSig    sign.Signature `json:"buyerSig"`
}

// Text sums the record up in a line, for a person. It is "" without any result.
func (x *Exclusive) Text() string {
	if x == nil {
		return ""
	}
	text := x.Watch.Text()
	add := func(more string) {
		if text != "" {
			text += "; "
		}
		text += more
	}
	if x.Wrong > 0 {
		add(fmt.Sprintf("%d wrong answers", x.Wrong))
	}
	if x.Unanswered > 0 {
		add(fmt.Sprintf("%d not answered", x.Unanswered))
	}
	if x.Full > 0 {
		add(fmt.Sprintf("%d not possible beside the program, which had filled the devices' memory", x.Full))
	}
	if x.Note != "" {
		add(x.Note)
	}
	return text
}

// has reports whether the snapshot of an execution was taken.
func (x *Exclusive) has(seq uint64, when rules.When) bool {
	if x.Health == nil || x.Health.Execution != seq {
		return false
	}
	return when == rules.Before && x.Health.Before != nil || when == rules.After && x.Health.After != nil
}

// add adds a snapshot and returns the changes that follow from it, beside those that the caller found in it.
func (x *Exclusive) add(seq uint64, snap *Snapshot, changes []rules.Change) []rules.Change {
	h := Health{Execution: seq}
	if x.Health != nil && x.Health.Execution == seq {
		h = *x.Health
	}
	if snap.When == rules.Before {
		h.Before = snap
	} else {
		h.After = snap
	}
	if h.Before != nil && h.After != nil {
		changes = append(changes, rules.Changes(h.Before.Snapshot, h.After.Snapshot)...)
	}
	h.Changes = append(slices.Clone(h.Changes), changes...)
	x.Health = &h
	return changes
}

// keptProbes is how many records of a lease are kept that are of no interest, the latest, and how many others.
const keptProbes = 64

// Records are the signed records of probes in the journal, by lease and place.
var Records = journal.Define[string, []byte]("probe")

// placeOf returns the place of a record: one of interest is not replaced by another.
func placeOf(l market.LeaseID, number uint64, special bool) string {
	kind := 'a'
	if special {
		kind = 's'
	}
	return fmt.Sprintf("%s/%c%02d", l, kind, number%keptProbes)
}

// Record is the signed record of one probe.
type Record = rules.Record

// List returns the records of leases' probes, by lease and number.
func List(ctx context.Context, s journal.Store, leases ...market.LeaseID) ([]Record, error) {
	var out []Record
	for _, l := range leases {
		err := Records.List(ctx, s, l.String()+"/", func(key string, value []byte) error {
			r, err := rules.UnmarshalRecord(value)
			if err != nil {
				return fmt.Errorf("reading probe %s: %w", key, err)
			}
			out = append(out, r)
			return nil
		})
		if err != nil {
			return nil, err
		}
	}
	slices.SortFunc(out, func(x, y rules.Record) int {
		a, b := x.Question, y.Question
		return cmp.Or(bytes.Compare(a.Lease[:], b.Lease[:]), cmp.Compare(a.Execution, b.Execution),
			cmp.Compare(a.Number, b.Number))
	})
	return out, nil
}
