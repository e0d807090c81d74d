package audit

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/starling-network/starling/chain"
	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/node/device"
	"github.com/starling-network/starling/node/journal"
	"github.com/starling-network/starling/node/proof"
	"github.com/starling-network/starling/verify/audit"
)

// Tables of the journal.
var (
	recordsTable   = journal.Define[market.UnitID, []byte]("audit")     // audit.Record's layout
	pastTable      = journal.Define[string, Past]("auditpast")          // by unit/window
	standingsTable = journal.Define[market.UnitID, []byte]("auditlist") // audit.Standing's layout
	batchTable     = journal.Define[string, batch]("auditbatch")        // batchKey: while its transaction may land
	// chain.Inclusion's layout by record; empty if its anchor may have landed, so that it is not anchored again.
	anchoredTable = journal.Define[sign.Hash, []byte]("auditanchor")
)

const batchKey = "now"

// maxPast is how many audits of a unit are remembered.
const maxPast = 24

// Past is one audit of one of this peer's units.
type Past = proof.PastAudit

// Shelf keeps the newest record of each of a peer's own units, and how they did before. It may be used by many
// goroutines.
type Shelf struct {
	store journal.Store
	turn  chan struct{} // holds one token while no write is in progress: each write builds on the previous one

	mu      sync.Mutex
	records map[sign.Hash][]byte
	units   map[market.UnitID]sign.Hash
	former  map[market.UnitID]sign.Hash // the record before, for peers with a recent offer; not kept
	past    map[market.UnitID][]Past    // oldest first
	stands  map[market.UnitID]stands
	// anchored has an inclusion without a transaction for a record whose transaction no endpoint remembers.
	anchored map[sign.Hash]chain.Inclusion
	batch    batch // under way; the zero value when none is
	counts   map[Outcome]uint64
}

// Outcome is the result of a window for a unit of a class.
type Outcome struct {
	Class  market.Class
	Result audit.Result
}

// Counts returns how many audits of this peer's units since its start had each outcome.
func (s *Shelf) Counts() map[Outcome]uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return maps.Clone(s.counts)
}

// stands is a unit's standing after a window.
type stands struct {
	audit.Standing
	window audit.Window
}

// OpenShelf reads the records of an earlier process.
func OpenShelf(ctx context.Context, st journal.Store) (*Shelf, error) {
	s := &Shelf{
		store: st, turn: make(chan struct{}, 1),
		records: map[sign.Hash][]byte{}, units: map[market.UnitID]sign.Hash{},
		former: map[market.UnitID]sign.Hash{}, past: map[market.UnitID][]Past{},
		stands: map[market.UnitID]stands{}, counts: map[Outcome]uint64{},
	}
	s.turn <- struct{}{}
	for _, open := range []func(context.Context) error{s.openRecords, s.openPast, s.openAnchors} {
		if err := open(ctx); err != nil {
			return nil, err
		}
	}
	return s, nil
}

// take waits for the turn to write. The caller gives it back by the returned function.
func (s *Shelf) take(ctx context.Context) (back func(), err error) {
	select {
	case <-s.turn:
		return func() { s.turn <- struct{}{} }, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// openRecords reads the newest record and the standing of each unit.
func (s *Shelf) openRecords(ctx context.Context) error {
	err := recordsTable.List(ctx, s.store, "", func(u market.UnitID, form []byte) error {
		r, err := audit.UnmarshalRecord(form)
		if err != nil || r.Answer.Unit != u {
			return fmt.Errorf("reading the audit record of unit %s: %w", u, cmp.Or(err, market.ErrMalformed))
		}
		s.records[r.Hash()], s.units[u] = form, r.Hash()
		return nil
	})
	if err != nil {
		return err
	}
	return standingsTable.List(ctx, s.store, "", func(u market.UnitID, form []byte) error {
		x, w, err := audit.UnmarshalStanding(form)
		if err != nil {
			return fmt.Errorf("reading the standing of unit %s: %w", u, err)
		}
		s.stands[u] = stands{x, w}
		return nil
	})
}

// openPast reads the audits of each unit, the oldest first.
func (s *Shelf) openPast(ctx context.Context) error {
	return pastTable.List(ctx, s.store, "", func(key string, p Past) error {
		if key != pastKey(p) {
			return fmt.Errorf("reading audit %s: %w: record of unit %s, window %d",
				key, market.ErrMalformed, p.Unit, p.Window)
		}
		s.past[p.Unit] = append(s.past[p.Unit], p)
		return nil
	})
}

func pastKey(p Past) string { return fmt.Sprintf("%s/%016x", p.Unit, uint64(p.Window)) }

// Put keeps the result of a unit's audit, and its record when it passed. If the unit's device was closed during the
// audit, a program had the unit: a leased unit need not answer, so nothing is kept.
func (s *Shelf) Put(ctx context.Context, r Result, window audit.Window, at time.Time) error {
	if errors.Is(r.Err, device.ErrClosed) {
		return nil
	}
	p := Past{Unit: r.Unit.ID, Class: r.Unit.Class, Window: window, At: at}
	var record []byte
	if r.Err != nil {
		p.Failed = r.Err.Error()
	} else {
		record, p.Record, p.Rates = r.Record.Marshal(), r.Record.Hash(), r.Record.Rates()
	}
	back, err := s.take(ctx)
	if err != nil {
		return err
	}
	defer back()
	s.mu.Lock()
	now, report := stands{window: window}, r.report()
	old, known := s.stands[p.Unit]
	first := !known || old.window < window // a window counts once
	if now.Standing = old.Standing; first {
		now.Standing = old.Step(report)
	}
	p.Standing = now.State.String()
	past := append(slices.DeleteFunc(slices.Clone(s.past[p.Unit]), func(o Past) bool { return o.Window == window }), p)
	s.mu.Unlock()
	var b journal.Batch
	pastTable.Put(&b, pastKey(p), p)
	standingsTable.Put(&b, p.Unit, now.MarshalIn(window))
	for len(past) > maxPast {
		pastTable.Delete(&b, pastKey(past[0]))
		past = past[1:]
	}
	if record != nil {
		recordsTable.Put(&b, p.Unit, record)
	}
	if err := b.Commit(ctx, s.store); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.past[p.Unit], s.stands[p.Unit] = past, now
	if first {
		s.counts[Outcome{p.Class, report.Result}]++
	}
	if record != nil {
		delete(s.records, s.former[p.Unit])
		s.former[p.Unit] = s.units[p.Unit]
		s.records[p.Record], s.units[p.Unit] = record, p.Record
	}
	return nil
}

// report is the report of a window's result.
func (r Result) report() audit.Report {
	out := audit.Report{Result: audit.Absent, Broken: r.Broken}
	switch {
	case r.Err == nil:
		out.Result = audit.Passed
	case len(r.Record.Verdicts) > 0:
		out.Result = r.Record.Result(r.Unit.Class, r.Unit.Resources)
		if out.Result == audit.Passed { // but for something else
			out.Result = audit.Undecided
		}
	}
	return out
}

// Standing is a unit's standing in the market: Unproven when it was never audited.
func (s *Shelf) Standing(u market.UnitID) audit.Standing {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.stands[u].Standing
}

// delisted returns the units that must not be sold now, with the reasons.
func (s *Shelf) delisted() map[market.UnitID]string {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := map[market.UnitID]string{}
	for u, x := range s.stands {
		if x.State == audit.Delisted {
			out[u] = fmt.Sprintf("audits up to window %d refuted the unit's claim: delisted; "+
				"only a new unit can be audited (starling proof audit)", x.window)
		}
	}
	return out
}

// Record returns a record by its hash. It returns proof.ErrUnknown.
func (s *Shelf) Record(hash sign.Hash) ([]byte, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	b, here := s.records[hash]
	if !here {
		return nil, fmt.Errorf("%w: record %s", proof.ErrUnknown, hash.Short())
	}
	return b, nil
}

// Proof implements keep.Source: a record with its place under the anchor, if it is anchored.
func (s *Shelf) Proof(_ context.Context, hash sign.Hash) (proof.Proof, error) {
	b, err := s.Record(hash)
	if err != nil {
		return proof.Proof{}, err
	}
	var a proof.Audit
	if a.Record, err = audit.UnmarshalRecord(b); err != nil {
		return proof.Proof{}, err
	}
	if in, ok := s.Anchored(hash); ok {
		a.Anchor = in.Marshal()
	}
	return proof.New(a)
}

// Entries implements keep.Source.
func (s *Shelf) Entries() (out []proof.Entry) {
	for _, p := range s.All() {
		b, err := s.Record(p.Record)
		if err != nil {
			continue // only the newest of each unit is there
		}
		if r, err := audit.UnmarshalRecord(b); err == nil {
			e := proof.EntryOf(proof.Audit{Record: r})
			e.Found, e.Own = p.At, true
			out = append(out, e)
		}
	}
	return out
}

// All is how all units did, by unit and then the newest first.
func (s *Shelf) All() []Past {
	s.mu.Lock()
	defer s.mu.Unlock()
	var out []Past
	for _, ps := range s.past {
		for _, p := range ps {
			in, _ := s.anchoredLocked(p.Record)
			p.Anchored = in.Tx
			out = append(out, p)
		}
	}
	slices.SortFunc(out, func(a, b Past) int {
		return cmp.Or(a.Unit.Compare(b.Unit), cmp.Compare(b.Window, a.Window))
	})
	return out
}
