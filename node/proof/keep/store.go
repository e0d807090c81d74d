// Package keep keeps a peer's proofs of offences: double sales, frauds in audits and disputes of results. It serves
// proofs to other peers by their hash, and publishes the proofs that every auditing peer needs.
//
//	proof/notices (DHT) ──┐                          ┌─▶ List, Get: API, command line, files
//	node/audit, buyer ────┼─▶ Store.Keep ─▶ journal ─┼─▶ Serve: one stream, by hash
//	Gossip, POST proofs ──┘                          └─▶ Gossip: one topic, again and again
//
// Records of audits, refusals, receipts and probes belong to the rooms that make them; these are a [Source] each.
//
// Any peer can produce proofs about its own unstaked keys. So each kind has limits: in total, for proofs found by
// others, and for one peer. The subject's standing (p2p/admit) decides how much of the room of others a proof may use,
// and a proof displaces only proofs about peers of no greater standing. Proofs found by this peer stay, except proofs
// that unstaked keys can provoke, such as a prover's lie in an audit. These count as proofs by others.
package keep

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/node/journal"
	"github.com/starling-network/starling/node/proof"
	"github.com/starling-network/starling/p2p/admit"
)

// record is a proof in the journal, under its kind and hash.
type record struct {
	Found    time.Time      `json:"found"`
	Own      bool           `json:"own,omitempty"`
	Standing admit.Standing `json:"standing,omitempty"` // of the subject, when the proof was kept
	Proof    proof.Proof    `json:"proof"`
	State    proof.State    `json:"state,omitempty"`
	Open     bool           `json:"open,omitempty"` // accounts on chain may wait for being closed
	Outcome  *proof.Outcome `json:"outcome,omitempty"`
}

var table = journal.Define[string, record]("proof")

func keyOf(k proof.Kind, h sign.Hash) string { return string(k) + "/" + h.String() }

// Config is the configuration of a Store. All of it is required.
type Config struct {
	Genesis market.Genesis
	Journal journal.Store
	// Standing returns the standing of a peer that a proof is about.
	Standing func(sign.Key) admit.Standing
	// Kept is called once with each proof that is new. It must not block.
	Kept func(c proof.Content)
	Log  *slog.Logger
}

// Store keeps proofs. It is safe for concurrent use.
type Store struct {
	cfg     Config
	writing chan struct{} // holds one while a change is written

	mu    sync.Mutex
	items map[sign.Hash]*item
}

// Open reads the proofs of an earlier process.
func Open(ctx context.Context, cfg Config) (*Store, error) {
	s := &Store{cfg: cfg, writing: make(chan struct{}, 1), items: map[sign.Hash]*item{}}
	return s, table.List(ctx, cfg.Journal, "", func(key string, r record) error {
		c, err := r.Proof.Open()
		if err == nil && keyOf(c.Kind(), c.Hash()) != key {
			err = market.ErrMalformed
		}
		if err != nil {
			return fmt.Errorf("reading proof %s: %w", key, err)
		}
		s.items[c.Hash()] = itemOf(c, r)
		return nil
	})
}

func itemOf(c proof.Content, r record) *item {
	i := &item{entry: proof.EntryOf(c), standing: r.Standing, open: r.Open, cheap: cheap(c)}
	i.entry.Found, i.entry.Own, i.entry.State, i.entry.Outcome = r.Found, r.Own, r.State, r.Outcome
	return i
}

// lock begins a change.
func (s *Store) lock(ctx context.Context) error {
	select {
	case s.writing <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (s *Store) unlock() { <-s.writing }

// Has reports whether a proof with this hash is kept.
func (s *Store) Has(h sign.Hash) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.items[h] != nil
}

// Room reports whether there is room for a proof. It is cheap: call it before the proof's signatures are checked.
func (s *Store) Room(c proof.Content, own bool) bool {
	standing := s.standing(c)
	s.mu.Lock()
	defer s.mu.Unlock()
	room, _ := s.room(c, own, standing)
	return room
}

// standing is the lowest standing of the peers that a proof is about.
func (s *Store) standing(c proof.Content) admit.Standing {
	least := admit.Counterparty
	for _, k := range c.Subjects() {
		least = min(least, s.cfg.Standing(k))
	}
	return least
}

// room reports whether there is room for a proof, and which other makes it; nil if none must. s.mu is held.
func (s *Store) room(c proof.Content, own bool, standing admit.Standing) (bool, *item) {
	l, kept := limits[c.Kind()]
	if !kept {
		return false, nil
	}
	stays := own && !cheap(c)
	all, others, of := 0, 0, 0
	for _, i := range s.items {
		if i.entry.Kind != c.Kind() {
			continue
		}
		all++
		if !i.ofOthers() {
			continue
		}
		others++
		if i.entry.Own != own || own && i.entry.State.Over() { // self-made proofs must not displace this peer's
			continue
		}
		if slices.ContainsFunc(i.entry.Subjects, func(k sign.Key) bool { return slices.Contains(c.Subjects(), k) }) {
			of++
		}
	}
	most := pinned - 1
	if !stays {
		most = rankOf(standing)
	}
	switch {
	case !stays && of >= l.subject:
		return false, nil
	case all < l.all && (stays || others < standing.Share(l.others)):
		return true, nil
	}
	var out *item
	for _, i := range s.items {
		switch r := i.rank(); {
		case i.entry.Kind != c.Kind(), !stays && !i.ofOthers(), r > most:
			continue
		case !stays && standing == admit.Stranger && r == rankOf(admit.Stranger) && time.Since(i.entry.Found) < fresh:
			continue // free keys would displace each other's, and be published, without end
		}
		if out == nil || cmp.Or(cmp.Compare(i.rank(), out.rank()), i.entry.Found.Compare(out.entry.Found)) < 0 {
			out = i
		}
	}
	return out != nil, out
}

// Keep checks a proof and journals it, once. It reports whether the proof is new here. own means that this peer found
// it, or is a victim. It returns the errors of proof.Check and proof.ErrFull; proof.ErrKind for a kind that is kept
// elsewhere.
func (s *Store) Keep(ctx context.Context, c proof.Content, own bool) (fresh bool, err error) {
	if _, kept := limits[c.Kind()]; !kept {
		return false, fmt.Errorf("%w: %s proofs are not kept here", proof.ErrKind, c.Kind())
	}
	if s.Has(c.Hash()) {
		return false, nil
	}
	if _, err := proof.Check(c, s.cfg.Genesis); err != nil {
		return false, err
	}
	if err := s.lock(ctx); err != nil {
		return false, err
	}
	defer s.unlock()
	r := record{Found: time.Now().UTC(), Own: own, Standing: s.standing(c), State: proof.StateKept}
	if c.Kind() == proof.KindDispute { // no stake is taken for it
		r.State = ""
	}
	s.mu.Lock()
	known := s.items[c.Hash()] != nil
	room, out := s.room(c, own, r.Standing)
	s.mu.Unlock()
	switch {
	case known:
		return false, nil
	case !room:
		return false, fmt.Errorf("%w: %s", proof.ErrFull, c.Summary())
	}
	if r.Proof, err = proof.New(c); err != nil {
		return false, err
	}
	var b journal.Batch
	table.Put(&b, keyOf(c.Kind(), c.Hash()), r)
	if out != nil {
		table.Delete(&b, keyOf(out.entry.Kind, out.entry.Hash))
	}
	if err := b.Commit(ctx, s.cfg.Journal); err != nil {
		return false, fmt.Errorf("keeping a proof: %w", err)
	}
	s.mu.Lock()
	if out != nil {
		delete(s.items, out.entry.Hash)
	}
	s.items[c.Hash()] = itemOf(c, r)
	s.mu.Unlock()
	s.cfg.Kept(c)
	s.cfg.Log.Warn("a proof is kept; see starling proof ls", "kind", c.Kind(), "proves", c.Summary(), "hash", c.Hash())
	return true, nil
}

// Get returns a kept proof. It returns proof.ErrUnknown.
func (s *Store) Get(ctx context.Context, h sign.Hash) (proof.Proof, proof.Entry, error) {
	e, ok := s.Entry(h)
	if !ok {
		return proof.Proof{}, e, fmt.Errorf("%w: %s", proof.ErrUnknown, h.Short())
	}
	r, err := s.read(ctx, e)
	return r.Proof, e, err
}

// Entry returns the entry of a kept proof, and false if it is not kept.
func (s *Store) Entry(h sign.Hash) (proof.Entry, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if i := s.items[h]; i != nil {
		return i.entry, true
	}
	return proof.Entry{}, false
}

// read reads the record of an entry.
func (s *Store) read(ctx context.Context, e proof.Entry) (record, error) {
	key := keyOf(e.Kind, e.Hash)
	var out record
	found := false
	err := table.List(ctx, s.cfg.Journal, key, func(k string, r record) error {
		out, found = r, found || k == key
		return nil
	})
	if err == nil && !found { // it made room since
		err = fmt.Errorf("%w: %s", proof.ErrUnknown, e.Hash.Short())
	}
	return out, err
}

// List lists the kept proofs of a kind, or all for the empty one, the newest first.
func (s *Store) List(k proof.Kind) []proof.Entry {
	s.mu.Lock()
	out := []proof.Entry{}
	for _, i := range s.items {
		if k == "" || i.entry.Kind == k {
			out = append(out, i.entry)
		}
	}
	s.mu.Unlock()
	slices.SortFunc(out, func(x, y proof.Entry) int {
		return cmp.Or(y.Found.Compare(x.Found), slices.Compare(x.Hash[:], y.Hash[:]))
	})
	return out
}

// Pending lists the hashes of the proofs of a kind that are not over, or have open accounts on chain, in order.
func (s *Store) Pending(k proof.Kind) []sign.Hash {
	s.mu.Lock()
	defer s.mu.Unlock()
	var out []sign.Hash
	for h, i := range s.items {
		if i.entry.Kind == k && (!i.entry.State.Over() || i.open) {
			out = append(out, h)
		}
	}
	slices.SortFunc(out, func(x, y sign.Hash) int { return slices.Compare(x[:], y[:]) })
	return out
}

// Case is a proof with the progress of its submission.
type Case struct {
	Content proof.Content
	Entry   proof.Entry
	Open    bool // accounts on chain may wait for being closed
}

// Case returns a kept proof with its progress. It returns proof.ErrUnknown.
func (s *Store) Case(ctx context.Context, h sign.Hash) (Case, error) {
	p, e, err := s.Get(ctx, h)
	if err != nil {
		return Case{}, err
	}
	c, err := p.Open()
	s.mu.Lock()
	defer s.mu.Unlock()
	i := s.items[h]
	return Case{c, e, i != nil && i.open}, err
}

// Progress journals the progress of a submission. It returns proof.ErrUnknown if the proof made room for another.
func (s *Store) Progress(ctx context.Context, h sign.Hash, state proof.State, open bool, o *proof.Outcome) error {
	if err := s.lock(ctx); err != nil {
		return err
	}
	defer s.unlock()
	_, e, err := s.Get(ctx, h)
	if err != nil {
		return err
	}
	r, err := s.read(ctx, e)
	if err != nil {
		return err
	}
	r.State, r.Open, r.Outcome = state, open, o
	if err := table.Write(ctx, s.cfg.Journal, keyOf(e.Kind, h), r); err != nil {
		return fmt.Errorf("journalling the progress of proof %s: %w", h.Short(), err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if i := s.items[h]; i != nil {
		i.entry.State, i.entry.Outcome, i.entry.Why, i.open = state, o, "", open
	}
	return nil
}

// Explain notes why a proof was not submitted yet, and reports whether that is news.
func (s *Store) Explain(h sign.Hash, why string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	i := s.items[h]
	if i == nil || i.entry.Why == why {
		return false
	}
	i.entry.Why = why
	return true
}
