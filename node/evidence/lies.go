package evidence

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/node/store"
	"github.com/starling-network/starling/verify/audit"
)

// A liar can prove to have lied whenever it likes, and keys are free: what is kept is bounded.
const (
	kindLie = "lie" // lieRecord by id

	maxLies       = 1024 // in all
	maxLiesOthers = 512  // of them, found by others
	maxLiesOf     = 4    // of these, about one liar: one takes all that it has
)

// LieState is what became of the proof of a lie.
type LieState string

// The states: kept ⟶ submitting ⟶ taken, or to one of the other ends from each of the two.
const (
	LieKept       LieState = "kept"       // it was not submitted
	LieSubmitting LieState = "submitting" // that was begun; what is on chain says how far it came
	LieTaken      LieState = "taken"      // this peer had the stake taken
	LieSlashed    LieState = "slashed"    // somebody had, for this or for what came later
	LieExpired    LieState = "expired"    // it is older than the network lets evidence be
)

// Over reports whether nothing more comes of it.
func (s LieState) Over() bool { return s != LieKept && s != LieSubmitting }

// KeptLie is the proof that somebody lied in an audit.
type KeptLie struct {
	ID       string        `json:"id"` // 16 hexadecimal digits, of the liar and what it lied about
	Found    time.Time     `json:"found"`
	Own      bool          `json:"own"` // this peer found it
	Kind     string        `json:"lie"`
	Liar     sign.Key      `json:"liar"`
	Provider sign.Key      `json:"provider"` // whose unit was audited
	Unit     market.UnitID `json:"unit"`
	Window   audit.Window  `json:"window"`
	State    LieState      `json:"state"`
	Why      string        `json:"why,omitempty"` // it is not submitted yet
	Outcome  *Outcome      `json:"outcome,omitempty"`
	Proof    []byte        `json:"proof"` // audit.Lie
}

// lieRecord is what the journal has of a lie.
type lieRecord struct {
	Found   time.Time `json:"found"`
	Own     bool      `json:"own,omitempty"`
	Lie     []byte    `json:"lie"`
	State   LieState  `json:"state"`
	Open    bool      `json:"open,omitempty"` // accounts of statements may wait for being closed
	Outcome *Outcome  `json:"outcome,omitempty"`
}

// keptLie is a lie as it is remembered.
type keptLie struct {
	lieRecord
	lie  audit.Lie
	why  string        // it was not submitted yet
	due  time.Time     // when it is looked at next
	wait time.Duration // since it was looked at last
}

func (k *Keeper) loadLies(ctx context.Context) error {
	return k.cfg.Store.List(ctx, kindLie, "", func(key string, value []byte) error {
		var rec lieRecord
		err := json.Unmarshal(value, &rec)
		var l audit.Lie
		if err == nil {
			l, err = audit.UnmarshalLie(rec.Lie)
		}
		if err != nil {
			return fmt.Errorf("reading evidence %s: %w", key, err)
		}
		k.lies[key] = &keptLie{lieRecord: rec, lie: l}
		return nil
	})
}

// KeepLie keeps the proof of a lie, found by this peer or by others, if there is room, and reports whether it is new
// here. Those who asked to be told of lies are told.
func (k *Keeper) KeepLie(ctx context.Context, l audit.Lie, own bool) (fresh bool, err error) {
	if err := l.Check(k.domain); err != nil {
		return false, err
	}
	id := lieID(l)
	k.lying.Lock()
	defer k.lying.Unlock()
	if k.lies[id] != nil {
		return false, nil
	}
	room, out := k.roomForLie(l, own)
	if !room {
		k.cfg.Log.Warn("the proof of a lie is not kept: there are enough", "liar", l.Liar())
		return false, nil
	}
	c := &keptLie{lieRecord: lieRecord{Found: time.Now().UTC(), Own: own, Lie: l.Marshal(), State: LieKept}, lie: l}
	puts := []store.Put{{Kind: kindLie, Key: id}}
	if puts[0].Value, err = json.Marshal(c.lieRecord); err != nil {
		return false, err
	}
	if out != "" {
		puts = append(puts, store.Put{Kind: kindLie, Key: out})
	}
	if err := k.cfg.Store.Write(ctx, puts...); err != nil {
		return false, fmt.Errorf("keeping the proof of a lie: %w", err)
	}
	delete(k.lies, out)
	k.lies[id] = c
	k.cfg.Lied(l)
	k.cfg.Log.Warn("a peer lied in an audit; see starling evidence ls", "liar", l.Liar(), "lie", l.Kind.String(), "id", id)
	select {
	case k.accuse <- struct{}{}:
	default:
	}
	return true, nil
}

// roomForLie reports whether there is room for another lie, and which one makes it, if one must. k.lying is held.
func (k *Keeper) roomForLie(l audit.Lie, own bool) (room bool, out string) {
	all, others, of := len(k.lies), 0, 0
	for _, c := range k.lies {
		if !c.Own {
			others++
			if c.lie.Liar() == l.Liar() {
				of++
			}
		}
	}
	switch {
	case !own && of >= maxLiesOf:
		return false, ""
	case all < maxLies && (own || others < maxLiesOthers):
		return true, ""
	}
	var best *keptLie
	for id, c := range k.lies {
		if r := c.rank(); r >= 0 && (own || !c.Own) && (best == nil || r < best.rank() || r == best.rank() && c.Found.Before(best.Found)) {
			best, out = c, id
		}
	}
	return best != nil, out
}

// rank says what goes first where there is no room: what is over, what others found, and what this peer found of false openings,
// which are anybody's to make under a key that costs nothing. Less than nothing: it stays.
func (c *keptLie) rank() int {
	switch {
	case c.State == LieSubmitting || c.Open:
		return -1
	case c.State.Over():
		return 0
	case !c.Own:
		return 1
	case c.lie.Kind == audit.FalseOpening:
		return 2
	}
	return -1
}

// Timely refuses proofs of lies of windows that have not begun: who lies in one to come has a long time to lie. ErrNotYet.
func (k *Keeper) Timely(l audit.Lie) error {
	now, err := k.cfg.Slot()
	if err != nil {
		return err
	}
	if w := audit.WindowOf(now, k.cfg.Genesis.AuditSlots); l.Answer.Window > w {
		return fmt.Errorf("%w: window %d, it is %d now", ErrNotYet, uint64(l.Answer.Window), uint64(w))
	}
	return nil
}

// KnowsLie reports whether a lie is kept; the same about the same liar may be.
func (k *Keeper) KnowsLie(l audit.Lie) bool {
	k.lying.Lock()
	defer k.lying.Unlock()
	return k.lies[lieID(l)] != nil
}

// Lies lists the proofs of lies, the newest first.
func (k *Keeper) Lies(context.Context) ([]KeptLie, error) {
	k.lying.Lock()
	defer k.lying.Unlock()
	out := []KeptLie{}
	for id, c := range k.lies {
		a := c.lie.Answer
		out = append(out, KeptLie{
			ID: id, Found: c.Found, Own: c.Own, Kind: c.lie.Kind.String(), Liar: c.lie.Liar(), Provider: a.Provider, Unit: a.Unit, Window: a.Window,
			State: c.State, Why: c.why, Outcome: c.Outcome, Proof: c.Lie,
		})
	}
	slices.SortFunc(out, func(x, y KeptLie) int { return cmp.Or(y.Found.Compare(x.Found), cmp.Compare(x.ID, y.ID)) })
	return out, nil
}
