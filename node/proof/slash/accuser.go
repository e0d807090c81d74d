// Package slash has the stake of offenders taken: it shows proofs that node/proof/keep has to the network's program.
//
//	keep.Store ─▶ Accuser ─▶ submit ─▶ stake taken ─▶ accounts of the statements closed
//	 a fraud       lots       │                        (keep.Store has the progress)
//	                          └─▶ refused: reason kept, tried again later
package slash

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/starling-network/starling/chain"
	"github.com/starling-network/starling/chain/program/account"
	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/node/proof"
	"github.com/starling-network/starling/node/proof/keep"
	"github.com/starling-network/starling/verify/audit"
)

// How soon a fraud is submitted. This peer's own findings go at once. Those of others it leaves to them for a while,
// and to peers with an earlier lot: the first takes the whole stake, and the fees of the others are lost.
const (
	accuseLots   = 16
	accuseApart  = 30 * time.Second
	accuseRetry  = 10 * time.Second // and twice as long after each failure
	accuseLimit  = 10 * time.Minute
	accuseUnable = 5 * time.Minute // until a proof is tried again with an offender that has no stake yet
)

// retry is the next attempt at a fraud.
type retry struct {
	due  time.Time
	wait time.Duration // since the last one
}

// Config is the configuration of an Accuser. All of it is required.
type Config struct {
	Genesis market.Genesis
	// Slot returns the chain's current slot, and an error while it is not known.
	Slot   func() (market.Slot, error)
	Proofs *keep.Store
	Log    *slog.Logger
}

// Accuser submits the frauds that a peer keeps. New starts nothing; Run does.
type Accuser struct {
	cfg   Config
	found chan struct{}        // holds one token when a fraud is new
	due   map[sign.Hash]*retry // of frauds; Run alone uses it
}

// New makes the accuser of the frauds in a store.
func New(cfg Config) *Accuser {
	return &Accuser{cfg: cfg, found: make(chan struct{}, 1), due: map[sign.Hash]*retry{}}
}

// Found makes Run check the frauds soon.
func (a *Accuser) Found() {
	select {
	case a.found <- struct{}{}:
	default:
	}
}

// Run has the stake taken of the offenders in the frauds that this peer keeps, until ctx ends. The chain's key, which
// is the reporter, pays for it. Nothing is done twice after a crash or while the chain is away, because the chain's
// state is read first.
func (a *Accuser) Run(ctx context.Context, c Chain, reporter sign.Key) error {
	for {
		wait := a.accusePass(ctx, c, reporter)
		t := time.NewTimer(wait)
		select {
		case <-ctx.Done():
			t.Stop()
			return nil
		case <-a.found:
		case <-t.C:
		}
		t.Stop()
	}
}

// accusePass submits every fraud that is due and returns the time until the next one is.
func (a *Accuser) accusePass(ctx context.Context, c Chain, reporter sign.Key) time.Duration {
	pending := a.cfg.Proofs.Pending(proof.KindFraud)
	for h := range a.due {
		if !slices.Contains(pending, h) {
			delete(a.due, h)
		}
	}
	if list, ok := c.(Registrations); ok {
		c = &looking{Chain: c, Registrations: list}
	}
	wait := accuseLimit
	for _, h := range pending {
		if ctx.Err() != nil {
			break
		}
		wait = min(wait, a.accuseOne(ctx, c, reporter, h))
	}
	return max(wait, time.Second)
}

// looking is a chain that reads the registrations once in a pass: frauds by unregistered keys, such as canaries', cost
// no call.
type looking struct {
	Chain
	Registrations
	network *account.Network
}

// Network implements Chain.
func (l *looking) Network(ctx context.Context) (account.Network, error) {
	if l.network == nil {
		n, err := l.Chain.Network(ctx)
		if err != nil {
			return n, err
		}
		l.network = &n
	}
	return *l.network, nil
}

// lot is the time after which this peer submits a fraud that others found.
func lot(fraud sign.Hash, reporter sign.Key) time.Duration {
	h := sign.Sum([]byte("starling/lie/lot/v1"), fraud[:], reporter[:])
	return accuseApart * time.Duration(1+int(h[0])%accuseLots)
}

// accuseOne submits a fraud that is due, and returns the time until its next attempt. Only Run calls it, so the
// progress of a fraud has a single writer.
func (a *Accuser) accuseOne(ctx context.Context, c Chain, reporter sign.Key, h sign.Hash) time.Duration {
	next := a.due[h]
	if next != nil && time.Until(next.due) > 0 {
		return time.Until(next.due)
	}
	x, err := a.cfg.Proofs.Case(ctx, h)
	if err != nil {
		return a.later(h, err)
	}
	if next == nil {
		next = &retry{}
		if a.due[h] = next; !x.Entry.Own && x.Entry.State == proof.StateKept {
			next.due = x.Entry.Found.Add(lot(h, reporter))
			if rest := time.Until(next.due); rest > 0 {
				return rest
			}
		}
	}
	if err := a.submit(ctx, c, reporter, x); err != nil {
		return a.later(h, err)
	}
	return accuseLimit
}

// submit advances a fraud: it takes the stake, and then closes the accounts of its statements.
func (a *Accuser) submit(ctx context.Context, c Chain, reporter sign.Key, x keep.Case) error {
	fraud, ok := x.Content.(proof.Fraud)
	if !ok {
		return fmt.Errorf("%w: %s", ErrNoStake, x.Content.Kind())
	}
	f, err := proof.Check(x.Content, a.cfg.Genesis)
	if err != nil {
		return err
	}
	h, state, open, out := f.Hash, x.Entry.State, x.Open, x.Entry.Outcome
	if !state.Over() {
		begun := func() error {
			state, open = proof.StateSubmitting, true
			return a.cfg.Proofs.Progress(ctx, h, state, open, out)
		}
		o, err := submitFraud(ctx, c, f, fraud, reporter, begun)
		switch {
		case err == nil || errors.Is(err, ErrRent):
			state, open, out = proof.StateTaken, err != nil, &o
			if o.Already { // perhaps by this peer, before a crash: its accounts are still open then
				state, open = proof.StateSlashed, open || x.Open
			}
		case errors.Is(err, ErrTooOld), errors.Is(err, ErrNotStaked) && a.outdated(ctx, c, fraud.Answer.Window):
			state = proof.StateExpired
		default:
			return err
		}
		if err := a.cfg.Proofs.Progress(ctx, h, state, open, out); err != nil {
			return err
		}
		a.cfg.Log.Info("a fraud is settled", "offender", fraud.Offender(), "hash", h, "state", state, "taken", o.Taken)
	}
	if !open {
		return nil
	}
	var closed proof.Outcome
	s := newSubmission(c, a.cfg.Genesis, reporter)
	if err := s.closeStated(ctx, s.statements(fraud), &closed); err != nil {
		return err
	}
	if out != nil {
		all := *out
		all.Transactions = append(slices.Clone(all.Transactions), closed.Transactions...)
		out = &all
	}
	return a.cfg.Proofs.Progress(ctx, h, state, false, out)
}

// outdated reports whether a fraud is too old to count, for any registration from now on.
func (a *Accuser) outdated(ctx context.Context, c Chain, w audit.Window) bool {
	now, err := a.cfg.Slot()
	n, err2 := c.Network(ctx)
	ends := fraudEnds(w, n.Params.AuditSlots)
	return err == nil && err2 == nil && ends < now && uint64(now-ends) > n.Params.EvidenceSlots
}

// later notes why a fraud was not submitted, and returns the time until it is tried again.
func (a *Accuser) later(h sign.Hash, why error) time.Duration {
	next := a.due[h]
	if next == nil {
		next = &retry{}
		a.due[h] = next
	}
	wait := min(max(2*next.wait, accuseRetry), accuseLimit)
	for _, unable := range []error{ErrNotStaked, ErrNoAudits, ErrNoProgram, chain.ErrFees} {
		if errors.Is(why, unable) {
			wait = accuseUnable
		}
	}
	if a.cfg.Proofs.Explain(h, why.Error()) {
		a.cfg.Log.Info("a fraud is not submitted yet", "hash", h, "err", why)
	}
	next.wait, next.due = wait, time.Now().Add(wait)
	return wait
}
