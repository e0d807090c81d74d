package rewards

import (
	"context"
	"errors"
	"log/slog"
	"testing"

	"github.com/starling-network/starling/chain"
	"github.com/starling-network/starling/chain/program/account"
	"github.com/starling-network/starling/chain/rewards"
	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/node/store"
)

// past is a chain that remembers claims.
type past struct {
	Chain
	claims map[sign.Signature]rewards.Guarded
	named  map[sign.Key][]sign.Signature
}

func (p past) Guarded(_ context.Context, id sign.Signature) (rewards.Guarded, error) {
	g, ok := p.claims[id]
	switch {
	case !ok:
		return g, chain.ErrNotFound
	case !g.Counts():
		return g, chain.ErrMalformed
	}
	return g, nil
}

func (p past) Naming(_ context.Context, of sign.Key, _ market.Slot, most int) ([]sign.Signature, error) {
	return p.named[of][:min(most, len(p.named[of]))], nil
}

func (past) Network(context.Context) (account.Network, error) { return guardedNetwork(), nil }

func guardedNetwork() account.Network {
	return account.NewNetwork(account.Params{Votes: account.Votes{VotingSlots: 1, EpochSlots: 100, EpochsOfMonth: 4},
		Mints: []account.MintTerms{{Mint: sign.Key{1}, FeeBps: 200, PoolBps: 2500}, {Mint: sign.Key{2}, FeeBps: 200, PoolBps: 2500}}})
}

// claims of two guardians: in epoch 0, in epoch 1, in another mint, and something that is no claim of theirs.
func guardedPast() past {
	of := func(id byte, slot market.Slot, mint byte, keys ...byte) rewards.Guarded {
		g := rewards.Guarded{ID: sign.Signature{id}, Slot: slot, Mint: sign.Key{mint}, Net: 1000 * uint64(id)}
		for _, k := range keys {
			g.Keys = append(g.Keys, sign.Key{k})
		}
		return g
	}
	p := past{claims: map[sign.Signature]rewards.Guarded{}, named: map[sign.Key][]sign.Signature{}}
	for _, g := range []rewards.Guarded{of(1, 99, 1, 11, 12), of(2, 100, 1, 11, 12), of(3, 50, 2, 11, 12), of(4, 50, 1, 11), of(5, 50, 1, 12, 13)} {
		p.claims[g.ID] = g
		p.named[sign.Key{9}] = append(p.named[sign.Key{9}], g.ID)
	}
	return p
}

func guardedLook() *look {
	l := &look{now: 160, any: true, network: guardedNetwork()}
	for _, k := range []byte{11, 12} {
		l.peers = append(l.peers, account.Provider{Peer: sign.Key{k}, Payout: sign.Key{k, 1}})
	}
	return l
}

// given is what a peer answers.
type given []byte

func (g given) Read(context.Context, sign.Key, Document, int) ([]byte, error) {
	if g == nil {
		return nil, ErrNoDocument
	}
	return g, nil
}

func guardedService(peers Peers, wards func() []sign.Key) *Service {
	return New(Config{Genesis: market.Genesis{AuditSlots: 10}, Key: sign.Key{11}, Chain: guardedPast(), Peers: peers, Store: store.NewMemory(), Wards: wards,
		Log: slog.New(slog.DiscardHandler)})
}

// A table's claims are believed when the chain says of each what the table says, and of no other.
func TestCheckGuarded(t *testing.T) {
	t.Parallel()
	all := guardedPast().claims
	with := func(gs ...rewards.Guarded) rewards.Table {
		return rewards.NewTable(0, [rewards.Sources]uint64{}, nil).WithGuarded(gs)
	}
	id := func(b byte) rewards.Guarded { return all[sign.Signature{b}] }
	more, none := id(1), id(1)
	more.Net++
	none.ID = sign.Signature{77}
	for _, c := range []struct {
		what   string
		table  rewards.Table
		source uint8
		claims int
		err    error
	}{
		{"what the chain says", with(id(1), id(5)), 1, 2, nil},
		{"none", with(), 1, 0, nil},
		{"none of the emission", with(), 0, 0, nil},
		{"of the emission", with(id(1)), 0, 0, rewards.ErrTable},
		{"more than was paid", with(more), 1, 0, rewards.ErrProof},
		{"of another epoch", with(id(2)), 1, 0, rewards.ErrProof},
		{"of another pool", with(id(3)), 1, 0, rewards.ErrProof},
		{"under one key", with(id(4)), 1, 0, rewards.ErrProof},
		{"that nobody remembers", with(none), 1, 0, chain.ErrNotFound},
	} {
		s := guardedService(given(nil), nil)
		g, err := s.checkGuarded(t.Context(), guardedLook(), c.table, c.source)
		if !errors.Is(err, c.err) || c.err == nil && err != nil || len(g.Claims) != c.claims {
			t.Errorf("%s: %+v, %v", c.what, g, err)
		}
		if wrong(err) != (c.err != nil && !errors.Is(c.err, chain.ErrNotFound)) { // what an endpoint has forgotten another may remember
			t.Errorf("%s: looked at again or not: %v", c.what, err)
		}
	}
}

// What a guardian names is kept when the chain says that it signed it, in that epoch; after the first that is not so nothing more is
// looked at.
func TestGatherGuarded(t *testing.T) {
	t.Parallel()
	names := func(ids ...byte) (out given) {
		for _, b := range ids {
			id := sign.Signature{b}
			out = append(out, id[:]...)
		}
		return out
	}
	for _, c := range []struct {
		what  string
		named given
		from  byte
		kept  int
		err   error
	}{
		{"two claims", names(1, 3), 11, 2, nil},
		{"nothing", nil, 11, 0, nil},
		{"of another epoch", names(2, 1), 11, 1, market.ErrMalformed},
		{"under another's word", names(5, 1), 11, 1, market.ErrMalformed},
		{"no claim", names(4, 1), 11, 0, chain.ErrMalformed},
		{"no transaction", names(77, 1), 11, 0, chain.ErrNotFound},
	} {
		s := guardedService(c.named, nil)
		s.cfg.Key = sign.Key{99}
		err := s.gatherGuarded(t.Context(), guardedLook(), sign.Key{c.from}, 0)
		kept, err2 := s.guarded(t.Context())
		if !errors.Is(err, c.err) || c.err == nil && err != nil || err2 != nil || len(kept) != c.kept {
			t.Errorf("%s: %d kept, %v, %v", c.what, len(kept), err, err2)
		}
	}
}

// A guardian has its claims together once the epoch is over and what is in it final, and names them then, also of an escrow that it does
// not guard any more; before that it says that it has not.
func TestNames(t *testing.T) {
	t.Parallel()
	wards := []sign.Key{{9}}
	s := guardedService(nil, func() []sign.Key { return wards })
	d := Document{Kind: Guarded, Provider: sign.Key{11}}
	early := guardedLook()
	early.any, early.now = false, 50
	if err := s.noteWards(t.Context(), early); err != nil {
		t.Fatal(err)
	}
	wards = nil
	l := guardedLook()
	for _, now := range []market.Slot{100, 102} {
		if l.now = now; s.noteWards(t.Context(), l) != nil {
			t.Fatal("no ward is noted")
		}
		if _, err := s.Document(t.Context(), d); !errors.Is(err, errNotListed) {
			t.Errorf("in slot %d: %v", now, err)
		}
	}
	l.now = 103
	if err := s.noteWards(t.Context(), l); err != nil {
		t.Fatal(err)
	}
	first, third := sign.Signature{1}, sign.Signature{3}
	if b, err := s.Document(t.Context(), d); err != nil || string(b) != string(first[:])+string(third[:]) {
		t.Errorf("%x, %v", b, err)
	}
	d.Epoch = 1
	if _, err := s.Document(t.Context(), d); !errors.Is(err, errNotListed) {
		t.Errorf("of an epoch that is not over: %v", err)
	}
	if err := s.keep.forget(t.Context(), 2, l.network.Params.Votes, 10); err != nil {
		t.Fatal(err)
	}
	if kept, err := s.guarded(t.Context()); err != nil || len(kept) != 0 {
		t.Errorf("kept of epochs that nobody counts any more: %+v, %v", kept, err)
	}
	if _, err := wardTable.Get(t.Context(), s.cfg.Store, sign.Key{9}); !errors.Is(err, store.ErrNotFound) {
		t.Errorf("a ward of long ago: %v", err)
	}
}
