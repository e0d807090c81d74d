package evidence

import (
	"cmp"
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/node/store"
	"github.com/starling-network/starling/verify"
)

// A provider can prove to have cheated whenever it likes, against buyers that it is itself: what is kept is bounded.
const (
	maxKept       = 4096 // proofs in all
	maxKeptOthers = 1024 // of them, proofs in which this peer is no victim
	maxKeptOf     = 8    // of these, proofs against one provider
	maxWatched    = 1024
)

// Kept is a proof that a provider sold one unit twice.
type Kept struct {
	ID       string        `json:"id"` // 16 hexadecimal digits, of the two leases and the unit
	Found    time.Time     `json:"found"`
	Provider sign.Key      `json:"provider"`
	Unit     market.UnitID `json:"unit"`
	Buyers   [2]sign.Key   `json:"buyers"`
	From     market.Slot   `json:"from"` // the slots sold twice
	To       market.Slot   `json:"to"`
	Mine     bool          `json:"mine"`     // one of the buyers is this peer
	Conflict []byte        `json:"conflict"` // verify.Conflict
}

// idOf names a proof: one for each two leases and unit, whichever of their receipts it has.
func idOf(c verify.Conflict) string {
	h := sign.Sum([]byte("starling/evidence/v1"), c.A.Lease[:], c.B.Lease[:], c.Unit[:])
	return hex.EncodeToString(h[:8])
}

func keyOf(c verify.Conflict) string { return c.A.Provider.String() + "/" + idOf(c) }

// keptRecord is what the journal has of a proof.
type keptRecord struct {
	Found    time.Time `json:"found"`
	Conflict []byte    `json:"conflict"`
}

// keep journals a proof, once, if it holds and there is room.
func (k *Keeper) keep(ctx context.Context, c verify.Conflict) {
	id := idOf(c)
	mine := k.mine(c)
	k.mu.Lock()
	known := k.kept[id]
	full := len(k.kept) >= maxKept || !mine && (len(k.kept) >= maxKeptOthers || k.by[c.A.Provider] >= maxKeptOf)
	k.mu.Unlock()
	if known || full {
		return
	}
	if err := verify.CheckConflict(k.domain, c); err != nil {
		k.cfg.Log.Error("a proof found in good notices does not hold", "err", err)
		return
	}
	b, err := json.Marshal(keptRecord{time.Now().UTC(), c.Marshal()})
	if err == nil {
		err = k.cfg.Store.Write(ctx, store.Put{Kind: kindKept, Key: keyOf(c), Value: b})
	}
	if err != nil {
		k.cfg.Log.Error("a proof of double sale is not kept", "provider", c.A.Provider, "unit", c.Unit, "err", err)
		return
	}
	k.mu.Lock()
	if !k.kept[id] {
		k.kept[id] = true
		k.by[c.A.Provider]++
	}
	k.mu.Unlock()
	k.cfg.Proved(c)
	k.cfg.Log.Warn("a provider sold one unit twice; see starling evidence ls", "provider", c.A.Provider, "unit", c.Unit.Short(), "id", id)
}

func (k *Keeper) loadKept(ctx context.Context) error {
	return k.cfg.Store.List(ctx, kindKept, "", func(key string, value []byte) error {
		_, c, err := readKept(key, value)
		if err != nil {
			return err
		}
		k.kept[idOf(c)] = true
		k.by[c.A.Provider]++
		return nil
	})
}

func readKept(key string, value []byte) (keptRecord, verify.Conflict, error) {
	var rec keptRecord
	if err := json.Unmarshal(value, &rec); err != nil {
		return rec, verify.Conflict{}, fmt.Errorf("reading evidence %s: %w", key, err)
	}
	c, err := verify.UnmarshalConflict(rec.Conflict)
	if err != nil {
		return rec, c, fmt.Errorf("reading evidence %s: %w", key, err)
	}
	return rec, c, nil
}

// Kept lists the proofs, by provider.
func (k *Keeper) Kept(ctx context.Context) ([]Kept, error) {
	out := []Kept{}
	err := k.cfg.Store.List(ctx, kindKept, "", func(key string, value []byte) error {
		rec, c, err := readKept(key, value)
		if err != nil {
			return err
		}
		out = append(out, Kept{
			ID: idOf(c), Found: rec.Found, Provider: c.A.Provider, Unit: c.Unit, Buyers: [2]sign.Key{c.A.Buyer, c.B.Buyer},
			From: max(c.A.From, c.B.From), To: min(c.A.To, c.B.To), Mine: k.mine(c), Conflict: rec.Conflict,
		})
		return nil
	})
	return out, err
}

// mine reports whether a proof is about a lease of this peer's own.
func (k *Keeper) mine(c verify.Conflict) bool {
	return c.A.Buyer == k.cfg.Self || c.B.Buyer == k.cfg.Self
}

// Watching lists the units that somebody asked to look after.
func (k *Keeper) Watching() []Watched {
	k.mu.Lock()
	defer k.mu.Unlock()
	out := slices.AppendSeq([]Watched{}, maps.Keys(k.watched))
	slices.SortFunc(out, func(x, y Watched) int {
		return cmp.Or(cmp.Compare(x.Provider.String(), y.Provider.String()), x.Unit.Compare(y.Unit))
	})
	return out
}

// Watch looks at a unit from now on, and Unwatch does so no longer.
func (k *Keeper) Watch(ctx context.Context, w Watched) error {
	k.mu.Lock()
	full := len(k.watched) >= maxWatched && !k.watched[w]
	k.mu.Unlock()
	if full {
		return ErrMany
	}
	if err := k.cfg.Store.Write(ctx, store.Put{Kind: kindWatch, Key: w.Provider.String() + "/" + w.Unit.String(), Value: []byte{}}); err != nil {
		return fmt.Errorf("journalling a unit to watch: %w", err)
	}
	k.mu.Lock()
	k.watched[w] = true
	k.mu.Unlock()
	k.wake()
	return nil
}

// Unwatch ends Watch.
func (k *Keeper) Unwatch(ctx context.Context, w Watched) error {
	if err := k.cfg.Store.Write(ctx, store.Put{Kind: kindWatch, Key: w.Provider.String() + "/" + w.Unit.String()}); err != nil {
		return fmt.Errorf("journalling a unit to watch: %w", err)
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	delete(k.watched, w)
	return nil
}

func (k *Keeper) loadWatched(ctx context.Context) error {
	return k.cfg.Store.List(ctx, kindWatch, "", func(key string, _ []byte) error {
		provider, unit, _ := strings.Cut(key, "/")
		p, err := sign.ParseKey(provider)
		h, err2 := sign.ParseHash(unit)
		if err := errors.Join(err, err2); err != nil {
			return fmt.Errorf("reading what is watched: %w", err)
		}
		k.watched[Watched{p, market.UnitID(h)}] = true
		return nil
	})
}
