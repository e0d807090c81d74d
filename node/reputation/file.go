package reputation

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/starling-network/starling/chain"
	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/node/jsonfile"
	"github.com/starling-network/starling/node/store"
)

// Limits of a file of facts.
const (
	MaxFile     = 8 << 20 // bytes
	maxReceipts = 2048
	fileFormat  = "starling-facts/1"
)

// ErrFile says that a file is no file of facts.
var ErrFile = errors.New("not a file of anchored receipts")

// File is what a peer read of leases that others kept with another one: anybody can check it.
type File struct {
	Format   string         `json:"format"`
	Genesis  market.Genesis `json:"genesis"`
	Peer     sign.Key       `json:"peer"`     // that they are all about, as provider or as buyer
	Receipts [][]byte       `json:"receipts"` // chain.Testimony
}

// ParseFile reads such a file: one JSON object without unknown fields. It verifies nothing; Check does.
func ParseFile(b []byte) (File, error) {
	f, err := jsonfile.Parse(b, MaxFile, fileFormat, func(f File) string { return f.Format })
	if err != nil {
		return f, fmt.Errorf("%w: %w", ErrFile, err)
	}
	return f, nil
}

// Check verifies everything in the file that needs no chain, and gives what it has. chain.ErrTestimony; market.ErrMalformed.
func (f File) Check() ([]chain.Testimony, error) {
	if err := f.Genesis.Validate(); err != nil {
		return nil, err
	}
	if len(f.Receipts) > maxReceipts {
		return nil, fmt.Errorf("%w: %d receipts, at most %d", market.ErrMalformed, len(f.Receipts), maxReceipts)
	}
	out := make([]chain.Testimony, 0, len(f.Receipts))
	for i, b := range f.Receipts {
		a, err := chain.UnmarshalTestimony(b)
		if err == nil {
			err = a.Check(f.Genesis.Domain(), ahead*f.Genesis.IntervalSlots)
		}
		if err == nil && a.Receipt.Provider != f.Peer && a.Receipt.Buyer != f.Peer {
			err = fmt.Errorf("%w: it is not about %s", chain.ErrTestimony, f.Peer.Short())
		}
		if err != nil {
			return nil, fmt.Errorf("receipt %d of the file: %w", i+1, err)
		}
		out = append(out, a)
	}
	return out, nil
}

// Export is what was read of leases of others with a peer: the newest.
func (b *Book) Export(ctx context.Context, about sign.Key) (File, error) {
	f := File{Format: fileFormat, Genesis: b.cfg.Genesis, Peer: about, Receipts: [][]byte{}}
	type at struct {
		name
		slot market.Slot
	}
	var names []at
	b.mu.Lock()
	for n, fs := range b.facts {
		if n.source == others && (fs[0].Subject == about || fs[0].Rater == about) {
			names = append(names, at{n, fs[0].At})
		}
	}
	fresh := map[name][]byte{}
	for _, n := range names {
		fresh[n.name] = b.fresh[n.name]
	}
	b.mu.Unlock()
	slices.SortFunc(names, func(x, y at) int {
		if x.slot != y.slot {
			if x.slot > y.slot {
				return -1
			}
			return 1
		}
		return slices.Compare(x.id[:], y.id[:])
	})
	for _, n := range names[:min(len(names), maxReceipts)] {
		raw := fresh[n.name]
		if raw == nil {
			var err error
			raw, err = b.cfg.Store.Get(ctx, kindAnchored, n.String())
			if errors.Is(err, store.ErrNotFound) {
				continue // forgotten since
			}
			if err != nil {
				return f, fmt.Errorf("reading what was shown of a lease: %w", err)
			}
		}
		f.Receipts = append(f.Receipts, raw)
	}
	return f, nil
}
