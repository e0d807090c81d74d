package rewards

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"

	"github.com/starling-network/starling/chain"
	"github.com/starling-network/starling/chain/program/account"
	"github.com/starling-network/starling/chain/rewards"
	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/node/journal"
	"github.com/starling-network/starling/node/store"
	"github.com/starling-network/starling/verify/audit"
)

// Records of the journal. Epochs and windows in text keys are hexadecimal, so that they sort.
var (
	seenTable        = journal.Define[audit.Window, audit.Seen]("rewardseen")
	certificateTable = journal.Define[string, []byte]("rewardcert")       // audit.Certificate by provider/unit/window
	tableTable       = journal.Define[string, []byte]("rewardtable")      // rewards.Table by epoch/hash
	blockTable       = journal.Define[uint64, chain.Block]("rewardblock") // the first after an epoch
	awardTable       = journal.Define[string, awarded]("rewardaward")     // by epoch/root
	openedTable      = journal.Define[string, opened]("rewardopen")       // by epoch/source: a ballot of this peer
	voteTable        = journal.Define[sign.Key, voted]("rewardvote")      // by address
	mineTable        = journal.Define[string, Mine]("rewardmine")         // by epoch/source
	// guardedTable is by transaction.
	guardedTable = journal.Define[sign.Signature, rewards.Guarded]("rewardclaim")
	wardTable    = journal.Define[sign.Key, warded]("rewardward") // by escrow: escrows that this peer guards, or did
)

// keep is the journal, with the last counts of each epoch's certificates.
type keep struct {
	store journal.Store

	mu      sync.Mutex
	counted map[uint64]*counted // by epoch; epochs that were counted in this process
}

// counted is the counts of an epoch's units, and the units with newer certificates.
type counted struct {
	epoch   rewards.Epoch
	tallies map[rewards.UnitKey]rewards.Tally
	stale   map[rewards.UnitKey]bool
}

func newKeep(st journal.Store) *keep { return &keep{store: st, counted: map[uint64]*counted{}} }

// awarded is the payees under a root.
type awarded struct {
	Source uint8  `json:"source"`
	Payees []byte `json:"payees"` // rewards.Award
}

// opened is a ballot that this peer opens in a turn: written before it is sent.
type opened struct {
	Turn   uint64   `json:"turn"`
	Slot   uint64   `json:"slot"`
	Ballot sign.Key `json:"ballot"`
}

// voted is a vote of this peer.
type voted struct {
	Ends uint64 `json:"ends"`
}

func hex16(n uint64) string { return fmt.Sprintf("%016x", n) }

func (of subject) key() string { return hex16(of.epoch) + "/" + fmt.Sprint(of.source) }

func (k *keep) seen(ctx context.Context, w audit.Window) (audit.Seen, error) {
	return seenTable.Get(ctx, k.store, w)
}

func (k *keep) see(ctx context.Context, w audit.Window, seen audit.Seen) error {
	return seenTable.Write(ctx, k.store, w, seen)
}

func unitPrefix(u rewards.UnitKey) string { return u.Provider.String() + "/" + u.Unit.String() + "/" }

func certificateKey(t audit.Target) string {
	return unitPrefix(rewards.UnitKey{Provider: t.Provider, Unit: t.Unit}) + hex16(uint64(t.Window))
}

// add keeps certificates. Of two of one unit and window the one with the lower hash stays, so that peers that know both
// have the same.
func (k *keep) add(ctx context.Context, cs []audit.Certificate) error {
	var b journal.Batch
	var came []audit.Target
	for _, c := range cs {
		key := certificateKey(c.Target())
		old, err := certificateTable.Get(ctx, k.store, key)
		switch {
		case errors.Is(err, store.ErrNotFound):
		case err != nil:
			return err
		default:
			had, _, err := audit.CutCertificate(old)
			if err != nil {
				return fmt.Errorf("reading certificate %s: %w", key, err)
			}
			x, y := had.Hash(), c.Hash()
			if bytes.Compare(x[:], y[:]) <= 0 {
				continue
			}
		}
		certificateTable.Put(&b, key, c.Marshal())
		came = append(came, c.Target())
	}
	if len(came) == 0 {
		return nil
	}
	err := b.Commit(ctx, k.store)
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, at := range came { // also where it is not known whether they were written
		for _, x := range k.counted {
			if x.epoch.Has(at.Window) {
				x.stale[rewards.UnitKey{Provider: at.Provider, Unit: at.Unit}] = true
			}
		}
	}
	return err
}

// each calls fn for the kept certificates of an epoch under a prefix, by unit and window.
func (k *keep) each(
	ctx context.Context, e rewards.Epoch, prefix string, fn func(rewards.UnitKey, audit.Certificate),
) error {
	return certificateTable.List(ctx, k.store, prefix, func(key string, b []byte) error {
		c, _, err := audit.CutCertificate(b)
		if err != nil {
			return fmt.Errorf("reading certificate %s: %w", key, err)
		}
		if of := c.Target(); e.Has(of.Window) {
			fn(rewards.UnitKey{Provider: of.Provider, Unit: of.Unit}, c)
		}
		return nil
	})
}

// tallies counts the certificates of an epoch, by unit: all of them once, and then new ones.
func (k *keep) tallies(ctx context.Context, e rewards.Epoch) ([]rewards.Tally, error) {
	k.mu.Lock()
	x := k.counted[e.Number]
	if x == nil || x.epoch != e {
		x = &counted{epoch: e, stale: map[rewards.UnitKey]bool{}} // of arrivals while it is counted
		k.counted[e.Number] = x
	}
	whole, stale := x.tallies == nil, slices.Collect(maps.Keys(x.stale))
	clear(x.stale)
	k.mu.Unlock()
	fresh := map[rewards.UnitKey]rewards.Tally{}
	var err error
	if whole {
		fresh, err = k.countAll(ctx, e)
	}
	for _, u := range stale {
		if err != nil || whole {
			break
		}
		var cs []audit.Certificate
		if cs, err = k.certificates(ctx, e, u); err == nil && len(cs) > 0 {
			fresh[u], err = rewards.Count(e, u, cs)
		}
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if err != nil { // all of it is counted again
		delete(k.counted, e.Number)
		return nil, err
	}
	if whole {
		x.tallies = fresh
	}
	maps.Copy(x.tallies, fresh)
	byUnit := func(a, b rewards.Tally) int { return a.UnitKey.Compare(b.UnitKey) }
	return slices.SortedFunc(maps.Values(x.tallies), byUnit), nil
}

// countAll counts every unit of an epoch.
func (k *keep) countAll(ctx context.Context, e rewards.Epoch) (map[rewards.UnitKey]rewards.Tally, error) {
	out := map[rewards.UnitKey]rewards.Tally{}
	var of rewards.UnitKey
	var cs []audit.Certificate
	var errs []error
	flush := func() {
		if len(cs) > 0 {
			t, err := rewards.Count(e, of, cs)
			errs = append(errs, err)
			out[of] = t
		}
		cs = nil
	}
	err := k.each(ctx, e, "", func(u rewards.UnitKey, c audit.Certificate) {
		if u != of {
			flush()
			of = u
		}
		cs = append(cs, c)
	})
	flush()
	return out, errors.Join(append(errs, err)...)
}

// units returns a provider's units with certificates.
func (k *keep) units(ctx context.Context, e rewards.Epoch, provider sign.Key) ([]market.UnitID, error) {
	var out []market.UnitID
	err := k.each(ctx, e, provider.String()+"/", func(u rewards.UnitKey, _ audit.Certificate) {
		if len(out) == 0 || out[len(out)-1] != u.Unit {
			out = append(out, u.Unit)
		}
	})
	return out, err
}

// certificates are those of a unit in an epoch, in order.
func (k *keep) certificates(ctx context.Context, e rewards.Epoch, u rewards.UnitKey) ([]audit.Certificate, error) {
	var out []audit.Certificate
	return out, k.each(ctx, e, unitPrefix(u), func(_ rewards.UnitKey, c audit.Certificate) { out = append(out, c) })
}

// awardKey returns the key of the table with a hash, or of the payees under a root.
func awardKey(epoch uint64, root sign.Hash) string { return hex16(epoch) + "/" + root.String() }

// table keeps a table that this peer proposed or found correct, with its payees. All peers may request it.
func (k *keep) table(ctx context.Context, t rewards.Table, a rewards.Award) error {
	if err := k.award(ctx, a); err != nil {
		return err
	}
	return tableTable.Write(ctx, k.store, awardKey(t.Epoch, t.Hash()), t.Marshal())
}

func (k *keep) award(ctx context.Context, a rewards.Award) error {
	return awardTable.Write(ctx, k.store, awardKey(a.Epoch, a.Rewards().Root), awarded{a.Source, a.Marshal()})
}

// awarded are the payees under a root, by their bytes.
func (k *keep) awarded(ctx context.Context, epoch uint64, root sign.Hash) ([]byte, error) {
	a, err := awardTable.Get(ctx, k.store, awardKey(epoch, root))
	return a.Payees, err
}

// forget deletes the data of earlier epochs, for which no table can be accepted. This peer's payments stay.
func (k *keep) forget(ctx context.Context, epoch uint64, v account.Votes, slots uint64) error {
	e, err := rewards.EpochOf(v, slots, epoch)
	if err != nil {
		return err
	}
	k.mu.Lock()
	maps.DeleteFunc(k.counted, func(n uint64, _ *counted) bool { return n < epoch })
	k.mu.Unlock()
	var b journal.Batch
	begins := v.EpochEnd(epoch) - v.EpochSlots
	month := epoch - min(epoch, 3*uint64(v.EpochsOfMonth))
	err = errors.Join(
		drop(ctx, k, &b, seenTable, func(w audit.Window, _ audit.Seen) bool { return w < e.From }),
		drop(ctx, k, &b, certificateTable, func(_ string, raw []byte) bool {
			c, _, err := audit.CutCertificate(raw)
			return err != nil || c.Target().Window < e.From
		}),
		drop(ctx, k, &b, guardedTable, func(_ sign.Signature, g rewards.Guarded) bool {
			return uint64(g.Slot) < begins
		}),
		drop(ctx, k, &b, wardTable, func(_ sign.Key, w warded) bool { return w.Epoch < epoch }),
		drop(ctx, k, &b, tableTable, func(key string, _ []byte) bool { return key < hex16(epoch) }),
		drop(ctx, k, &b, openedTable, func(key string, _ opened) bool { return key < hex16(epoch) }),
		drop(ctx, k, &b, blockTable, func(of uint64, _ chain.Block) bool { return of < epoch }),
		drop(ctx, k, &b, awardTable, func(key string, _ awarded) bool { return key < hex16(month) }),
	)
	if err != nil {
		return err
	}
	return b.Commit(ctx, k.store)
}

// maxDrop is the number of records that are removed at a time.
const maxDrop = 10_000

// drop adds the removal of old records of a table to a batch.
func drop[K comparable, V any](
	ctx context.Context, k *keep, b *journal.Batch, t journal.Table[K, V], old func(K, V) bool,
) error {
	return t.List(ctx, k.store, "", func(key K, v V) error {
		if b.Len() < maxDrop && old(key, v) {
			t.Delete(b, key)
		}
		return nil
	})
}
