package shelf

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/starling-network/starling/chain"
	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/node/journal"
	"github.com/starling-network/starling/node/machine"
	"github.com/starling-network/starling/node/proof"
	"github.com/starling-network/starling/node/store"
	"github.com/starling-network/starling/verify/audit"
)

// Tables of the journal.
var (
	recordsTable   = journal.Define[market.UnitID, []byte]("audit")     // audit.Record's layout
	pastTable      = journal.Define[string, Past]("auditpast")          // by unit/window
	standingsTable = journal.Define[market.UnitID, []byte]("auditlist") // audit.Standing's layout
	batchTable     = journal.Define[string, Batch]("auditbatch")        // batchKey: while its transaction may land
	// chain.Inclusion's layout by record; empty if its anchor may have landed, so that it is not anchored again.
	anchoredTable = journal.Define[sign.Hash, []byte]("auditanchor")
)

const batchKey = "now"

// name is the key of the only machine.
const name = "shelf"

// Shelf has the audits of a peer's units. Open starts nothing; Run does. All methods may be called from many goroutines
// at once.
type Shelf struct {
	runner *machine.Runner[string, State, event, effect]
}

// Open reads the records of an earlier process.
func Open(ctx context.Context, st journal.Store, log *slog.Logger) (*Shelf, error) {
	r, err := machine.New(ctx, shell{st}, machine.Config[event]{
		Name: "audits", Store: st, Resume: resumed{}, Tick: resumed{}, Log: log,
		Clock: func() (machine.Now, error) { return machine.Now{Time: time.Now()}, nil },
	})
	return &Shelf{r}, err
}

// Run serves Keep, Sign and Land until ctx ends. It returns an error if the journal is broken.
func (s *Shelf) Run(ctx context.Context) error { return s.runner.Run(ctx) }

// State returns the records as journalled. The runner has them from Open on.
func (s *Shelf) State() State {
	m, _, _ := s.runner.Get(name)
	return m
}

// Keep keeps the results of a window, and the records of the units that passed, in one write. Its errors are those of
// package machine.
func (s *Shelf) Keep(ctx context.Context, results ...Audited) error {
	return s.ask(ctx, audited(results))
}

// Sign keeps a batch. It is called before the transaction is sent, which replaces one that can never land. It returns
// ErrBatch if a record of the batch was anchored before.
func (s *Shelf) Sign(ctx context.Context, b Batch) error { return s.ask(ctx, signed(b)) }

// Land ends the batch under way by its transaction, in the block of a slot. An empty id stands for a transaction that
// no endpoint remembers: its records are not anchored again. It returns ErrBatch for another transaction.
func (s *Shelf) Land(ctx context.Context, tx chain.TxID, slot market.Slot) error {
	return s.ask(ctx, landed{tx, slot})
}

func (s *Shelf) ask(ctx context.Context, ev event) error {
	_, err := s.runner.Ask(ctx, name, ev)
	return err
}

// Proof implements keep.Source: a record with its place under the anchor, if it is anchored.
func (s *Shelf) Proof(_ context.Context, hash sign.Hash) (proof.Proof, error) {
	now := s.State()
	b, err := now.Record(hash)
	if err != nil {
		return proof.Proof{}, err
	}
	var a proof.Audit
	if a.Record, err = audit.UnmarshalRecord(b); err != nil {
		return proof.Proof{}, err
	}
	if in, ok := now.Anchored(hash); ok {
		a.Anchor = in.Marshal()
	}
	return proof.New(a)
}

// Entries implements keep.Source.
func (s *Shelf) Entries() (out []proof.Entry) {
	now := s.State()
	for _, p := range now.All() {
		b, err := now.Record(p.Record)
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

// shell connects the machine with the journal.
type shell struct{ store journal.Store }

// Load implements machine.Shell.
func (h shell) Load(ctx context.Context, add func(string, State)) error {
	s := State{
		units: map[market.UnitID]unit{}, anchored: map[sign.Hash]chain.Inclusion{}, counts: map[Outcome]uint64{},
	}
	for _, load := range []func(context.Context, State) error{
		h.loadRecords, h.loadStandings, h.loadPast, h.loadAnchors,
	} {
		if err := load(ctx, s); err != nil {
			return err
		}
	}
	var err error
	if s.batch, err = batchTable.Get(ctx, h.store, batchKey); err != nil && !errors.Is(err, store.ErrNotFound) {
		return err
	}
	add(name, s)
	return nil
}

// loadRecords reads the newest record of each unit.
func (h shell) loadRecords(ctx context.Context, s State) error {
	return recordsTable.List(ctx, h.store, "", func(id market.UnitID, b []byte) error {
		r, err := audit.UnmarshalRecord(b)
		if err != nil || r.Answer.Unit != id {
			return fmt.Errorf("reading the audit record of unit %s: %w", id, cmp.Or(err, market.ErrMalformed))
		}
		s.units[id] = unit{record: form{r.Hash(), b}}
		return nil
	})
}

// loadStandings reads the standing of each unit.
func (h shell) loadStandings(ctx context.Context, s State) error {
	return standingsTable.List(ctx, h.store, "", func(id market.UnitID, b []byte) (err error) {
		u := s.units[id]
		u.known = true
		if u.standing, u.window, err = audit.UnmarshalStanding(b); err != nil {
			return fmt.Errorf("reading the standing of unit %s: %w", id, err)
		}
		s.units[id] = u
		return nil
	})
}

// loadPast reads the audits of each unit, by window.
func (h shell) loadPast(ctx context.Context, s State) error {
	return pastTable.List(ctx, h.store, "", func(key string, p Past) error {
		if key != pastKey(p) {
			return fmt.Errorf("reading audit %s: %w: record of unit %s, window %d",
				key, market.ErrMalformed, p.Unit, p.Window)
		}
		u := s.units[p.Unit]
		u.past = append(u.past, p)
		s.units[p.Unit] = u
		return nil
	})
}

// loadAnchors reads the anchors of records.
func (h shell) loadAnchors(ctx context.Context, s State) error {
	return anchoredTable.List(ctx, h.store, "", func(record sign.Hash, b []byte) (err error) {
		s.anchored[record] = chain.Inclusion{}
		if len(b) > 0 {
			s.anchored[record], err = chain.UnmarshalInclusion(b)
		}
		if err != nil {
			return fmt.Errorf("reading the anchor of record %s: %w", record, err)
		}
		return nil
	})
}

func pastKey(p Past) string { return fmt.Sprintf("%s/%016x", p.Unit, uint64(p.Window)) }

// Record implements machine.Shell.
func (shell) Record(b *journal.Batch, _ string, _, _ State, effects []effect) {
	for _, f := range effects {
		switch f := f.(type) {
		case keepAudit:
			pastTable.Put(b, pastKey(f.past), f.past)
			standingsTable.Put(b, f.past.Unit, f.standing)
			for _, p := range f.old {
				pastTable.Delete(b, pastKey(p))
			}
			if f.record != nil {
				recordsTable.Put(b, f.past.Unit, f.record)
			}
		case keepBatch:
			batchTable.Put(b, batchKey, Batch(f))
		case keepAnchors:
			batchTable.Delete(b, batchKey)
			for r, in := range f.in {
				var form []byte
				if in.Tx != "" {
					form = in.Marshal()
				}
				anchoredTable.Put(b, r, form)
			}
			for _, r := range f.old {
				anchoredTable.Delete(b, r)
			}
		}
	}
}

// Carry implements machine.Shell: all effects are records.
func (shell) Carry(string, effect) func(context.Context) []event { return nil }
