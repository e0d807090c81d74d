package deposit

import (
	"fmt"
	"slices"

	"github.com/starling-network/starling/chain/escrow"
	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/verify"
	"github.com/starling-network/starling/verify/tranche"
)

const (
	recordVersion = 2
	maxBatches    = MaxLeases + maxHired
)

// record is the journal form of a Deposit, and of the one in a Hire.
type record struct {
	Version  uint8              `json:"version"`
	Seen     bool               `json:"seen,omitzero"`
	Ending   bool               `json:"ending,omitzero"`
	Closed   bool               `json:"closed,omitzero"`
	Opened   uint64             `json:"opened,omitzero"`
	Deadline market.Slot        `json:"deadline,omitzero"`
	Final    market.Slot        `json:"final,omitzero"` // newest final slot
	Landed   market.Slot        `json:"landed,omitzero"`
	Refunded market.Amount      `json:"refunded,omitzero"`
	Deal     Deal               `json:"deal"`
	Hirer    sign.Key           `json:"hirer,omitzero"` // of a Hire
	Batches  []batchRecord      `json:"batches,omitempty"`
	Queue    escrow.QueueRecord `json:"queue"`
}

type batchRecord struct {
	Stage   stage         `json:"stage"`
	Hired   bool          `json:"hired,omitzero"`
	First   uint16        `json:"first"`
	Deposit market.Amount `json:"deposit,omitzero"`
	Opened  market.Slot   `json:"opened,omitzero"`
	Leases  []entryRecord `json:"leases"`
}

type entryRecord struct {
	Leaf   tranche.Leaf `json:"leaf"`
	Before market.Slot  `json:"before,omitzero"`
	Retire bool         `json:"retire,omitzero"`
	Void   bool         `json:"void,omitzero"`
	Final  *finalRecord `json:"final,omitempty"`
}

type finalRecord struct {
	Core verify.ReceiptCore `json:"core"`
	Sig  sign.Signature     `json:"sig"`
}

// Marshal returns the journal form. A deposit has one.
func (d Deposit) Marshal() []byte {
	r := record{
		Version: recordVersion, Seen: d.seen, Ending: d.ending, Closed: d.closed, Opened: d.opened,
		Deadline: d.deadline, Final: d.final, Landed: d.landed, Refunded: d.refunded, Deal: d.deal, Hirer: d.hirer,
		Queue: d.queue.Record(),
	}
	for _, b := range d.batches {
		of := batchRecord{Stage: b.stage, Hired: b.hired, First: b.first, Deposit: b.deposit, Opened: b.opened}
		for _, e := range b.leases {
			x := entryRecord{Leaf: e.leaf, Before: e.before, Retire: e.retire, Void: e.void}
			if e.final != nil {
				x.Final = &finalRecord{e.final.core, e.final.by}
			}
			of.Leases = append(of.Leases, x)
		}
		r.Batches = append(r.Batches, of)
	}
	return escrow.MarshalRecord(r)
}

// Restore parses the journal form. It refuses, with market.ErrMalformed, states that Step cannot reach. Send Ticked
// next.
func Restore(b []byte, net escrow.Net, p escrow.Params) (Deposit, error) {
	return restore(b, net, p, false)
}

func restore(b []byte, net escrow.Net, p escrow.Params, hires bool) (Deposit, error) {
	var r record
	if err := escrow.UnmarshalRecord(b, &r); err != nil {
		return Deposit{}, fmt.Errorf("deposit: %w", err)
	}
	d := Deposit{params: p, asked: 1, repeat: true, books: books{
		calls: calls{terms: terms{net: net, deal: r.Deal, hirer: r.Hirer}}, seen: r.Seen, ending: r.Ending,
		closed: r.Closed, deadline: r.Deadline, final: r.Final, landed: r.Landed, refunded: r.Refunded,
	}}
	d.opened = r.Opened
	ok := r.Version == recordVersion && hires != r.Hirer.IsZero() &&
		len(r.Batches) <= maxBatches && d.check() == nil
	for i := 0; ok && i < len(r.Batches); i++ {
		var batch batch
		batch, ok = r.Batches[i].restore(&d.terms)
		d.batches = append(d.batches, batch)
	}
	if ok {
		d.queue, ok = r.Queue.Restore(func(t escrow.Task) bool {
			return t.Kind >= escrow.TaskOpen && t.Kind <= escrow.TaskCloseEscrow &&
				(t.Kind > escrow.TaskOpen || !hires) && (t.Kind > escrow.TaskAdd || int(t.Tranche) < len(d.batches))
		})
	}
	if !ok || d.opened == 0 && (d.seen || d.queue.Len() > 0) || d.closed && d.queue.Len() > 0 || !d.batches.fits() {
		return Deposit{}, fmt.Errorf("%w: deposit of %d bytes, version %d: impossible state",
			market.ErrMalformed, len(b), r.Version)
	}
	d.calls = d.named(d.opened)
	for _, x := range d.batches {
		d.asked = max(d.asked, x.first+uint16(len(x.trees)))
	}
	return d, nil
}

// restore reports false for a batch that Step cannot make.
func (r batchRecord) restore(d *terms) (batch, bool) {
	b := batch{stage: r.Stage, hired: r.Hired, first: r.First, deposit: r.Deposit, opened: r.Opened}
	n := len(r.Leases)
	fit, most := max(1, d.fit(n, b.hired)), d.most()
	if b.hired {
		most = fit
	}
	if n == 0 || n > most || b.hired && b.stage == stageSigned || b.stage < stageWanted || b.stage > stageVoid ||
		b.opened != 0 && b.stage != stageFunded {
		return b, false
	}
	for i, x := range r.Leases {
		e := entry{leaf: x.Leaf, before: x.Before, retire: x.Retire, void: x.Void}
		leaf := x.Leaf.Marshal()
		if _, err := tranche.UnmarshalLeaf(leaf[:]); err != nil || int(e.leaf.Index) != i%fit {
			return b, false
		}
		if x.Final != nil {
			if !x.Final.of(e) {
				return b, false
			}
			e.final = &finalReceipt{x.Final.Core, x.Final.Sig}
		}
		b.leases = append(b.leases, e)
	}
	return b, b.build(fit) == nil
}

// of reports whether the receipt is the final one of a lease.
func (f *finalRecord) of(e entry) bool {
	core := f.Core.Marshal()
	_, err := verify.UnmarshalReceiptCore(core[:])
	return err == nil && e.retire && f.Core.Final() && f.Core.Lease == e.leaf.Lease &&
		f.Core.Provider == e.leaf.Provider
}

var stageNames = [...]string{
	stageWanted: "wanted", stageSigned: "signed", stageFunded: "funded", stageVoid: "void",
}

// MarshalText implements encoding.TextMarshaler.
func (s stage) MarshalText() ([]byte, error) { return []byte(stageNames[s]), nil }

// UnmarshalText implements encoding.TextUnmarshaler.
func (s *stage) UnmarshalText(text []byte) error {
	i := slices.Index(stageNames[1:], string(text))
	if i < 0 {
		return fmt.Errorf("%w: stage %.32q", market.ErrMalformed, text)
	}
	*s = stage(i + 1)
	return nil
}
