package sight

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/node/journal"
	"github.com/starling-network/starling/node/proof"
	"github.com/starling-network/starling/verify/audit"
	"github.com/starling-network/starling/verify/audit/history"
)

// refusals has the journal's refusals by window/provider/unit/attempt/member.
var refusals = journal.Define[string, refusalRecord]("auditrefused")

type refusalRecord struct {
	Own     bool   `json:"own,omitempty"`
	Refusal []byte `json:"refusal"` // audit.Refusal
}

// Failed keeps the refusals that members of committees signed, this peer's own and those of others, for as many windows
// as count. It may be used by many goroutines.
type Failed struct {
	domain sign.Domain
	slots  uint64
	sight  Sight
	store  journal.Store
	turn   chan struct{} // holds one token while no write is in progress: each write builds on the previous one

	mu  sync.Mutex
	all history.Failures
	own map[string]audit.Refusal    // by key
	of  map[sign.Hash]audit.Refusal // all, by the hash of the proof
}

// OpenFailed reads the refusals of an earlier process.
func OpenFailed(ctx context.Context, st journal.Store, g market.Genesis, s Sight) (*Failed, error) {
	f := &Failed{
		domain: g.Domain(), slots: g.AuditSlots, sight: s, store: st, own: map[string]audit.Refusal{},
		of: map[sign.Hash]audit.Refusal{}, turn: make(chan struct{}, 1),
	}
	f.turn <- struct{}{}
	return f, refusals.List(ctx, st, "", func(key string, r refusalRecord) error {
		x, err := audit.UnmarshalRefusal(r.Refusal)
		if err != nil || key != refusalKey(x) {
			return fmt.Errorf("reading refusal %s: %w", key, cmp.Or(err, market.ErrMalformed))
		}
		f.add(x, r.Own)
		return nil
	})
}

// add counts a refusal. The caller holds f.mu, or is the only user of f.
func (f *Failed) add(x audit.Refusal, own bool) {
	f.all.Add(x)
	f.of[proof.Refusal{Refusal: x}.Hash()] = x
	if own {
		f.own[refusalKey(x)] = x
	}
}

var (
	// errFull reports that no further refusal of a provider, or of all, is counted.
	errFull = errors.New("as many refusals are kept as there is room for")
	// errUnwanted reports a refusal that is known, of a window that does not count, or one too many.
	errUnwanted = errors.New("known, full, or of a window that does not count")
)

func refusalKey(x audit.Refusal) string {
	t := x.Target()
	return fmt.Sprintf("%016x/%s/%s/%d/%s", uint64(t.Window), t.Provider, t.Unit, t.Attempt, x.Member())
}

// Knows reports whether a refusal is kept, or is of a window that no longer counts or does not count yet.
func (f *Failed) Knows(x audit.Refusal) (bool, error) {
	now, _, err := f.sight.Window()
	if err != nil {
		return false, err
	}
	w := x.Target().Window
	f.mu.Lock()
	defer f.mu.Unlock()
	return w > now || w < f.oldest(now) || f.all.Has(x), nil
}

// oldest is the oldest window that counts.
func (f *Failed) oldest(now audit.Window) audit.Window {
	span := f.sight.Instants().Audits(audit.MaxRates)
	return now - min(now, span-1)
}

// Check verifies a refusal: its signatures, that the window has an audit, and that the member was to be drawn by its
// beacon.
func (f *Failed) Check(ctx context.Context, x audit.Refusal) error {
	if err := x.Check(f.domain, f.slots); err != nil {
		return err
	}
	t := x.Target()
	if _, err := f.sight.Check(ctx, t.Window, x.Beacon()); err != nil {
		return fmt.Errorf("the beacon of window %d: %w", t.Window, err)
	}
	if !f.sight.Instants().Fires(x.Beacon()) {
		return &audit.RuleError{Rule: audit.RuleInstant, Detail: fmt.Sprintf("window %d has no audit", t.Window)}
	}
	roster, err := f.sight.Roster(ctx, t.Window)
	if err != nil {
		return fmt.Errorf("reading the bonded set: %w", err)
	}
	return x.CheckMembers(roster)
}

// Keep journals a checked refusal, and counts it. Refusals of windows that no longer count are deleted.
func (f *Failed) Keep(ctx context.Context, x audit.Refusal, own bool) error {
	now, _, err := f.sight.Window()
	if err != nil {
		return err
	}
	select {
	case <-f.turn:
		defer func() { f.turn <- struct{}{} }()
	case <-ctx.Done():
		return ctx.Err()
	}
	b, news, full := f.weigh(x, own, now)
	if err := b.Commit(ctx, f.store); err != nil {
		return err
	}
	if news != nil {
		f.mu.Lock()
		defer f.mu.Unlock()
		f.add(x, news.Own)
	}
	return full
}

// weigh returns the change of the journal by a refusal: the deletion of old refusals, and its record if it is news. It
// returns errFull if there is no room for it.
func (f *Failed) weigh(
	x audit.Refusal, own bool, now audit.Window,
) (b journal.Batch, news *refusalRecord, full error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, old := range f.all.Forget(f.oldest(now)) {
		refusals.Delete(&b, refusalKey(old))
		delete(f.own, refusalKey(old))
		delete(f.of, proof.Refusal{Refusal: old}.Hash())
	}
	t, key := x.Target(), refusalKey(x)
	switch {
	case f.all.Has(x) || t.Window > now || t.Window < f.oldest(now):
	case !f.all.Room(t.Provider):
		full = fmt.Errorf("%w: %s", errFull, x)
	default:
		_, mine := f.own[key]
		news = &refusalRecord{own || mine, x.Marshal()}
		refusals.Put(&b, key, *news)
	}
	return b, news, full
}

// Proof implements keep.Source.
func (f *Failed) Proof(_ context.Context, h sign.Hash) (proof.Proof, error) {
	f.mu.Lock()
	x, here := f.of[h]
	f.mu.Unlock()
	if !here {
		return proof.Proof{}, fmt.Errorf("%w: refusal %s", proof.ErrUnknown, h.Short())
	}
	return proof.New(proof.Refusal{Refusal: x})
}

// Entries implements keep.Source: the refusals that this peer signed.
func (f *Failed) Entries() (out []proof.Entry) {
	for _, x := range f.Own() {
		e := proof.EntryOf(proof.Refusal{Refusal: x})
		e.Own = true
		out = append(out, e)
	}
	return out
}

// Handler returns the handler of the refusals that peers publish.
func (f *Failed) Handler() Refusals { return Refusals{f} }

// Refusals is a keep.Handler.
type Refusals struct{ *Failed }

// Wanted implements keep.Handler.
func (r Refusals) Wanted(c proof.Content) error {
	x := c.(proof.Refusal).Refusal
	known, err := r.Knows(x)
	if err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if known || !r.all.Room(x.Target().Provider) {
		return errUnwanted
	}
	return nil
}

// Check implements keep.Handler. Facts that peers may see differently are ignored.
func (r Refusals) Check(ctx context.Context, c proof.Content) error {
	x := c.(proof.Refusal).Refusal
	if err := x.Check(r.domain, r.slots); err != nil {
		return err
	}
	if err := r.Failed.Check(ctx, x); err != nil {
		return fmt.Errorf("%w: %w", proof.ErrUnsure, err)
	}
	return nil
}

// Take implements keep.Handler.
func (r Refusals) Take(ctx context.Context, c proof.Content) error {
	return r.Keep(ctx, c.(proof.Refusal).Refusal, false)
}

// Publish implements keep.Handler.
func (r Refusals) Publish(context.Context) (out []proof.Content) {
	for _, x := range r.Own() {
		out = append(out, proof.Refusal{Refusal: x})
	}
	return out
}

// Own returns the refusals that this peer signed, of windows that count.
func (f *Failed) Own() (out []audit.Refusal) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, x := range f.own {
		out = append(out, x)
	}
	return out
}

// Failed returns the windows in which a unit failed, as known to this peer.
func (f *Failed) Failed(provider sign.Key, unit market.UnitID) []audit.Window {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.all.Failed(audit.Target{Provider: provider, Unit: unit})
}

// Against returns an error if a passed record does not count. roster is the roster of its window; if nil, it does not
// check whether the record had to be an appeal.
func (f *Failed) Against(ctx context.Context, r audit.Record, roster audit.Roster) error {
	f.mu.Lock()
	err, failed := f.all.Against(r, f.sight.Instants()), len(f.all.Failed(r.Answer.Target)) > 0
	f.mu.Unlock()
	if err != nil || roster == nil || !failed {
		return err
	}
	before, err := f.before(ctx, r.Answer.Window)
	if err != nil {
		return fmt.Errorf("which window before %d had an audit: %w", r.Answer.Window, err)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.all.Appealed(r, before, roster)
}

// before returns the last window with an audit before w, or a window that is too old to count.
func (f *Failed) before(ctx context.Context, w audit.Window) (audit.Window, error) {
	in := f.sight.Instants()
	if in.OneIn <= 1 {
		return max(w, 1) - 1, nil
	}
	least := in.Ago(w, audit.Horizon)
	for at := w; at > least; at-- {
		b, err := f.sight.Beacon(ctx, at-1)
		switch {
		case errors.Is(err, ErrNoBlock):
		case err != nil:
			return 0, err
		case in.Fires(b.Beacon):
			return at - 1, nil
		}
	}
	return least, nil
}
