package evidence

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/starling-network/starling/chain"
	"github.com/starling-network/starling/chain/program"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/node/store"
	"github.com/starling-network/starling/verify/audit"
)

// How soon a lie is submitted. What this peer found goes at once; what others found it leaves to them for a while, and to those
// whose lot comes before its own: the first takes all, and what the others pay for showing is lost.
const (
	accuseLots   = 16
	accuseApart  = 30 * time.Second
	accuseRetry  = 10 * time.Second // and twice as long after each failure
	accuseLimit  = 10 * time.Minute
	accuseUnable = 5 * time.Minute // until what cannot be submitted now is looked at again: the liar may register or stake
)

// Accuse has the stake of those taken of whose lies this peer keeps proofs, and remembers what came of it, until ctx ends. It is
// paid for by the chain's key, which is the reporter. A crash at any point, and a chain that is away, are waited out: nothing that
// was done is done twice, for what is on chain is looked at first.
func (k *Keeper) Accuse(ctx context.Context, c Chain, reporter sign.Key) error {
	for {
		wait := k.accusePass(ctx, c, reporter)
		t := time.NewTimer(wait)
		select {
		case <-ctx.Done():
			t.Stop()
			return nil
		case <-k.accuse:
		case <-t.C:
		}
		t.Stop()
	}
}

// accusePass looks at every lie that is due and says how long nothing else is.
func (k *Keeper) accusePass(ctx context.Context, c Chain, reporter sign.Key) time.Duration {
	k.lying.Lock()
	var ids []string
	for id, l := range k.lies {
		if !l.State.Over() || l.Open {
			ids = append(ids, id)
		}
	}
	k.lying.Unlock()
	slices.Sort(ids)
	if list, ok := c.(Registrations); ok {
		c = &looking{Chain: c, Registrations: list}
	}
	wait := accuseLimit
	for _, id := range ids {
		if ctx.Err() != nil {
			break
		}
		wait = min(wait, k.accuseOne(ctx, c, reporter, id))
	}
	return max(wait, time.Second)
}

// looking is a chain that is asked once in a pass for the network: lies by keys that never registered, as those of canaries, cost
// nothing.
type looking struct {
	Chain
	Registrations
	network *program.Network
}

// Network implements Chain.
func (l *looking) Network(ctx context.Context) (program.Network, error) {
	if l.network == nil {
		n, err := l.Chain.Network(ctx)
		if err != nil {
			return n, err
		}
		l.network = &n
	}
	return *l.network, nil
}

// lot is when this peer submits what others found, among all that could.
func lot(id string, reporter sign.Key) time.Duration {
	h := sign.Sum([]byte("starling/lie/lot/v1"), []byte(id), reporter[:])
	return accuseApart * time.Duration(1+int(h[0])%accuseLots)
}

// accuseOne submits a lie that is due, and says when it is next. Accuse alone calls it, so nobody else changes what became of a lie.
func (k *Keeper) accuseOne(ctx context.Context, c Chain, reporter sign.Key, id string) time.Duration {
	k.lying.Lock()
	l := k.lies[id]
	if l == nil {
		k.lying.Unlock()
		return accuseLimit
	}
	if l.due.IsZero() && !l.Own && l.State == LieKept {
		l.due = l.Found.Add(lot(id, reporter))
	}
	rec, f, rest := l.lieRecord, foundLie(k.cfg.Genesis, l.lie), time.Until(l.due)
	k.lying.Unlock()
	if rest > 0 {
		return rest
	}
	var out Outcome
	var err error
	if was := rec; !rec.State.Over() {
		begun := func() error {
			rec.State, rec.Open = LieSubmitting, true
			return k.putLie(ctx, id, rec)
		}
		if out, err = SubmitLie(ctx, c, f, reporter, begun); err == nil || errors.Is(err, ErrRent) {
			rec.State, rec.Outcome, rec.Open = LieTaken, &out, err != nil
			if out.Already { // perhaps by this peer, before a crash: its accounts are still open then
				rec.State, rec.Open = LieSlashed, rec.Open || was.Open
			}
		} else if errors.Is(err, ErrTooOld) || errors.Is(err, ErrNotStaked) && k.outdated(ctx, c, f.Window) {
			rec.State, err = LieExpired, nil
		}
		if rec.State.Over() {
			if err := k.putLie(ctx, id, rec); err != nil {
				return k.later(id, err)
			}
			k.cfg.Log.Info("a lie of an audit is settled", "liar", f.Liar, "id", id, "state", rec.State, "taken", out.Taken)
		}
	}
	if rec.State.Over() && rec.Open {
		s := submission{c: c, id: f.Genesis.Program, network: f.Genesis.Escrow, reporter: reporter}
		if err = s.closeStated(ctx, s.statements(f), &out); err == nil {
			rec.Open = false
			err = k.putLie(ctx, id, rec)
		}
	}
	if err != nil {
		return k.later(id, err)
	}
	return accuseLimit
}

// outdated reports whether a lie is too old to count, whoever registers now.
func (k *Keeper) outdated(ctx context.Context, c Chain, w audit.Window) bool {
	now, err := k.cfg.Slot()
	n, err2 := c.Network(ctx)
	ends := lieEnds(w, n.Params.AuditSlots)
	return err == nil && err2 == nil && ends < now && uint64(now-ends) > n.Params.EvidenceSlots
}

// putLie journals what became of a lie.
func (k *Keeper) putLie(ctx context.Context, id string, rec lieRecord) error {
	b, err := json.Marshal(rec)
	if err == nil {
		err = k.cfg.Store.Write(ctx, store.Put{Kind: kindLie, Key: id, Value: b})
	}
	if err != nil {
		return fmt.Errorf("journalling what became of a lie: %w", err)
	}
	k.lying.Lock()
	defer k.lying.Unlock()
	k.lies[id].lieRecord = rec
	k.lies[id].why = ""
	return nil
}

// later notes why a lie was not submitted, and when it is tried again.
func (k *Keeper) later(id string, why error) time.Duration {
	k.lying.Lock()
	defer k.lying.Unlock()
	l := k.lies[id]
	wait := min(max(2*l.wait, accuseRetry), accuseLimit)
	for _, unable := range []error{ErrNotStaked, ErrNoAudits, ErrNoProgram, chain.ErrFees} {
		if errors.Is(why, unable) {
			wait = accuseUnable
		}
	}
	if text := why.Error(); text != l.why {
		l.why = text
		k.cfg.Log.Info("a lie of an audit is not submitted yet", "liar", l.lie.Liar(), "id", id, "err", why)
	}
	l.wait, l.due = wait, time.Now().Add(wait)
	return wait
}
