package shelf

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/starling-network/starling/chain"
	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/node/machine"
	"github.com/starling-network/starling/node/proof"
	"github.com/starling-network/starling/verify/audit"
)

const (
	// maxPast is how many audits of a unit are remembered.
	maxPast = 24
	// maxBatch bounds an anchor; further records come in the next.
	maxBatch = 1024
)

// ErrBatch is returned for a batch that may not be anchored now, and for a transaction that is not under way.
var ErrBatch = errors.New("records to anchor")

// Past is one audit of one of this peer's units.
type Past = proof.PastAudit

// Outcome is the result of a window for a unit of a class.
type Outcome struct {
	Class  market.Class
	Result audit.Result
}

// Audited is the result of a window for one unit.
type Audited struct {
	Unit   market.UnitID
	Class  market.Class
	Window audit.Window
	At     time.Time
	Record *audit.Record // if the unit passed
	Failed string        // else the reason
	Report audit.Report
}

// Batch is the content of one anchor, as signed.
type Batch struct {
	Records []sign.Hash    `json:"records"` // in the order of the root
	Tx      chain.Prepared `json:"tx"`
}

// Anchor returns the anchor of the batch.
func (b Batch) Anchor() chain.Anchor {
	root := chain.RootOf(b.Records)
	return chain.Anchor{Of: chain.OfRecords, Root: root, Count: uint64(len(b.Records)), Ref: chain.RefOf(root, 1)}
}

// event is an input of a State.
type event interface{ event() }

type (
	// audited has the results of a window.
	audited []Audited
	// signed has a batch that is about to be sent.
	signed Batch
	// landed ends the batch under way. An empty id stands for a transaction that no endpoint remembers.
	landed struct {
		tx   chain.TxID
		slot market.Slot
	}
	// resumed does nothing: a State has no effects to repeat.
	resumed struct{}
)

func (audited) event() {}
func (signed) event()  {}
func (landed) event()  {}
func (resumed) event() {}

// effect is a change of the journal.
type effect interface{ effect() }

type (
	// keepAudit adds an audit of a unit and removes old ones. The record is nil if the unit did not pass.
	keepAudit struct {
		past     Past
		old      []Past
		standing []byte
		record   []byte
	}
	// keepBatch keeps the batch under way.
	keepBatch Batch
	// keepAnchors ends the batch under way, and forgets the anchors of records that can no longer be requested.
	keepAnchors struct {
		in  map[sign.Hash]chain.Inclusion
		old []sign.Hash
	}
)

func (keepAudit) effect()   {}
func (keepBatch) effect()   {}
func (keepAnchors) effect() {}

// form is an encoded record and its hash, or zero.
type form struct {
	hash  sign.Hash
	bytes []byte
}

// unit is one unit of this peer.
type unit struct {
	record   form
	former   form   // the record before, for peers with a recent offer; it is not journalled
	past     []Past // by window, at most maxPast
	standing audit.Standing
	window   audit.Window // the newest that counted
	known    bool         // it has a standing
}

// State is the records of a peer's units: an immutable value.
type State struct {
	units    map[market.UnitID]unit
	anchored map[sign.Hash]chain.Inclusion // without transaction: it may have been anchored, no endpoint remembers
	batch    Batch                         // under way; the zero value when none is
	counts   map[Outcome]uint64            // since the start of the process
}

// Next implements machine.Machine: nothing is due by time.
func (State) Next(machine.Now) time.Time { return time.Time{} }

// Done implements machine.Machine: all effects are records of the journal.
func (State) Done() bool { return true }

// Step implements machine.Machine.
func (s State) Step(_ machine.Now, ev event) (State, []effect, error) {
	switch ev := ev.(type) {
	case audited:
		s.units, s.counts = maps.Clone(s.units), maps.Clone(s.counts)
		var effects []effect
		for _, a := range ev {
			if u := s.units[a.Unit]; !u.known || u.window < a.Window { // a window counts once
				effects = append(effects, s.audit(a))
			}
		}
		return s, effects, nil
	case signed:
		if err := s.anchorable(Batch(ev)); err != nil {
			return s, nil, err
		}
		s.batch = Batch(ev)
		return s, []effect{keepBatch(ev)}, nil
	case landed:
		return s.land(ev)
	}
	return s, nil, nil
}

// audit notes the result of a unit in s, the maps of which are its own.
func (s State) audit(a Audited) effect {
	u := s.units[a.Unit]
	u.standing, u.window, u.known = u.standing.Step(a.Report), a.Window, true
	s.counts[Outcome{a.Class, a.Report.Result}]++
	p := Past{
		Unit: a.Unit, Class: a.Class, Window: a.Window, At: a.At, Failed: a.Failed, Standing: u.standing.State.String(),
	}
	e := keepAudit{standing: u.standing.MarshalIn(u.window)}
	if a.Record != nil {
		f := form{a.Record.Hash(), a.Record.Marshal()}
		p.Record, p.Rates, e.record = f.hash, a.Record.Rates(), f.bytes
		u.former, u.record = u.record, f
	}
	u.past = append(slices.Clone(u.past), p)
	if old := len(u.past) - maxPast; old > 0 {
		e.old, u.past = u.past[:old], u.past[old:]
	}
	s.units[a.Unit], e.past = u, p
	return e
}

// anchorable returns ErrBatch for a batch that is not signed, or has no record or an anchored one.
func (s State) anchorable(b Batch) error {
	if b.Tx.ID == "" || len(b.Records) == 0 {
		return fmt.Errorf("%w: %d records, transaction %q", ErrBatch, len(b.Records), b.Tx.ID)
	}
	for _, r := range b.Records {
		if _, done := s.anchored[r]; done {
			return fmt.Errorf("%w: record %s was anchored", ErrBatch, r.Short())
		}
	}
	return nil
}

// land records the place of each record of the batch under way, and forgets those of records that are gone.
func (s State) land(ev landed) (State, []effect, error) {
	if s.batch.Tx.ID == "" || ev.tx != "" && ev.tx != s.batch.Tx.ID {
		return s, nil, fmt.Errorf("%w: transaction %q, under way is %q", ErrBatch, ev.tx, s.batch.Tx.ID)
	}
	live := map[sign.Hash]bool{}
	for _, u := range s.units {
		live[u.record.hash] = true
		for _, p := range u.past {
			live[p.Record] = true
		}
	}
	e := keepAnchors{in: map[sign.Hash]chain.Inclusion{}}
	now := map[sign.Hash]chain.Inclusion{}
	for r, in := range s.anchored {
		if live[r] {
			now[r] = in
		} else {
			e.old = append(e.old, r)
		}
	}
	anchor := s.batch.Anchor()
	for i, r := range s.batch.Records {
		if e.in[r] = (chain.Inclusion{}); ev.tx != "" {
			e.in[r] = chain.Include(anchor, s.batch.Records, i, ev.tx, ev.slot)
		}
		now[r] = e.in[r]
	}
	s.anchored, s.batch = now, Batch{}
	return s, []effect{e}, nil
}

// Draw returns the content of the next anchor, the oldest records first.
func (s State) Draw() (records []sign.Hash) {
	var out []Past
	for _, u := range s.units {
		for _, p := range u.past {
			if _, done := s.anchored[p.Record]; !p.Record.IsZero() && !done {
				out = append(out, p)
			}
		}
	}
	slices.SortFunc(out, func(a, b Past) int { return cmp.Or(cmp.Compare(a.Window, b.Window), a.Unit.Compare(b.Unit)) })
	for _, p := range out[:min(len(out), maxBatch)] {
		records = append(records, p.Record)
	}
	return records
}

// UnderWay returns the batch whose transaction may land, or the zero value.
func (s State) UnderWay() Batch { return s.batch }

// Counts returns the number of audits of this peer's units since its start by outcome.
func (s State) Counts() map[Outcome]uint64 { return maps.Clone(s.counts) }

// Standing returns a unit's standing in the market: Unproven when it was never audited.
func (s State) Standing(u market.UnitID) audit.Standing { return s.units[u].standing }

// Delisted returns the units that must not be sold now, with the reasons.
func (s State) Delisted() map[market.UnitID]string {
	out := map[market.UnitID]string{}
	for id, u := range s.units {
		if u.standing.State == audit.Delisted {
			out[id] = fmt.Sprintf("audits up to window %d refuted the unit's claim: delisted; "+
				"only a new unit can be audited (starling proof audit)", u.window)
		}
	}
	return out
}

// Newest returns the newest record of a unit that passed.
func (s State) Newest(u market.UnitID) (audit.Record, sign.Hash, bool) {
	f := s.units[u].record
	if f.bytes == nil {
		return audit.Record{}, f.hash, false
	}
	r, err := audit.UnmarshalRecord(f.bytes)
	return r, f.hash, err == nil
}

// Record returns a record by its hash. It returns proof.ErrUnknown.
func (s State) Record(hash sign.Hash) ([]byte, error) {
	for _, u := range s.units {
		for _, f := range []form{u.record, u.former} {
			if f.hash == hash && f.bytes != nil {
				return f.bytes, nil
			}
		}
	}
	return nil, fmt.Errorf("%w: record %s", proof.ErrUnknown, hash.Short())
}

// Anchored returns the place of a record of this peer's under its anchor; false while it is not anchored.
func (s State) Anchored(record sign.Hash) (chain.Inclusion, bool) {
	in := s.anchored[record]
	return in, in.Tx != ""
}

// All returns the audits of all units, by unit and then the newest first.
func (s State) All() (out []Past) {
	for _, u := range s.units {
		for _, p := range u.past {
			p.Anchored = s.anchored[p.Record].Tx
			out = append(out, p)
		}
	}
	slices.SortFunc(out, func(a, b Past) int {
		return cmp.Or(a.Unit.Compare(b.Unit), cmp.Compare(b.Window, a.Window))
	})
	return out
}
