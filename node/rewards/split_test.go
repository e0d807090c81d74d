package rewards

import (
	"context"
	"encoding/binary"
	"errors"
	"log/slog"
	"sync"
	"testing"

	"github.com/starling-network/starling/chain"
	"github.com/starling-network/starling/chain/program"
	"github.com/starling-network/starling/chain/program/account"
	"github.com/starling-network/starling/chain/rewards"
	"github.com/starling-network/starling/chain/svm"
	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/node/store"
)

// assembly is a network of verifiers with 100 bonded each, of whom the first is an attacker, and a chain that opens ballots and counts votes
// as the program does.
type assembly struct {
	*testing.T
	past
	g       market.Genesis
	network account.Network
	peers   []account.Provider
	member  map[sign.Key]*Service // by peer key; not the attacker

	mu      sync.Mutex
	now     uint64
	ballots map[sign.Key]account.Ballot
	votes   map[sign.Key]account.Vote // by provider; one epoch and source
	shows   func(to sign.Key, d Document) ([]byte, error)
}

// assembled is one of n, in a slot after epoch 0.
func assembled(t *testing.T, n int) *assembly {
	a := &assembly{T: t, past: guardedPast(), g: market.Genesis{AuditSlots: 10, Program: sign.Key{200}, Escrow: sign.Key{201}}, network: guardedNetwork(),
		member: map[sign.Key]*Service{}, ballots: map[sign.Key]account.Ballot{}, votes: map[sign.Key]account.Vote{},
		shows: func(sign.Key, Document) ([]byte, error) { return nil, ErrNoDocument }}
	v := &a.network.Params.Votes
	v.VotingSlots, v.LeastBond, v.LeastBonded = 160, 100, 200
	for i := range n {
		k := sign.Key{byte(11 + i)}
		a.peers = append(a.peers, account.Provider{Peer: k, Payout: sign.Key{k[0], 1}, Bonded: 100, Raised: 1})
		a.network.Bonded += 100
		if i > 0 {
			m := New(Config{Genesis: a.g, Key: k, Chain: a, Peers: asking{a, k}, Store: store.NewMemory(), Log: slog.New(slog.DiscardHandler)})
			if _, err := m.claimed(t.Context(), sign.Signature{1}); err != nil { // of the other claim only the attacker knows
				t.Fatal(err)
			}
			a.member[k] = m
		}
	}
	return a
}

// asking are the peers as one of them sees them.
type asking struct {
	*assembly
	to sign.Key
}

func (p asking) Read(ctx context.Context, from sign.Key, d Document, _ int) ([]byte, error) {
	if m := p.member[from]; m != nil {
		return m.Document(ctx, d)
	}
	return p.shows(p.to, d)
}

func (a *assembly) Block(context.Context, market.Slot) (chain.Block, error) {
	return chain.Block{Slot: 100, Hash: sign.Hash{8}}, nil
}

func (a *assembly) Voted(_ context.Context, _ sign.Hash, provider sign.Key) (account.Vote, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if v, there := a.votes[provider]; there {
		return v, nil
	}
	return account.Vote{}, chain.ErrNotFound
}

// Run opens ballots, and casts and moves votes.
func (a *assembly) Run(_ context.Context, calls []svm.Instruction, _ ...sign.Signer) (chain.TxID, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, in := range calls {
		k := func(i int) sign.Key { return in.Accounts[i].Key }
		switch name := program.CallName(a.g.Program, in); name {
		case "Propose":
			d := in.Data[10:]
			a.ballots[k(4)] = account.Ballot{Subject: account.SubjectRewards, Network: a.g.Escrow, Proposer: k(3), Opened: binary.LittleEndian.Uint64(in.Data[1:]),
				Ends: a.now + a.network.Params.Votes.VotingSlots, Total: a.network.Bonded, Rewards: account.Rewards{Source: d[0], Count: binary.LittleEndian.Uint32(d[4:]),
					Epoch: binary.LittleEndian.Uint64(d[8:]), Sum: binary.LittleEndian.Uint64(d[16:]), Root: sign.Hash(d[24:56]), Table: sign.Hash(d[56:88])}}
		case "Vote":
			was, voted := a.votes[k(2)]
			if voted != (k(6) != a.g.Program) || voted && was.Ballot != k(6) {
				return "", program.ErrExists
			}
			if b, there := a.ballots[was.Ballot]; there {
				b.For -= was.Weight
				a.ballots[was.Ballot] = b
			}
			b := a.ballots[k(3)]
			b.For += 100
			a.ballots[k(3)], a.votes[k(2)] = b, account.Vote{Ballot: k(3), Provider: k(2), Ends: b.Ends, Weight: 100}
		case "Accept":
			return "", errAccepted
		default:
			a.Errorf("a call of %s", name)
		}
	}
	return "tx", nil
}

var errAccepted = errors.New("accepted")

// look has some members decide on the pool's rewards of epoch 0, once each, and reports whether a ballot was carried then.
func (a *assembly) look(members ...sign.Key) (carried bool) {
	a.Helper()
	e, err := rewards.EpochOf(a.network.Params.Votes, a.g.AuditSlots, 0)
	if err != nil {
		a.Fatal(err)
	}
	for _, k := range members {
		l := &look{now: market.Slot(a.now), any: true, network: a.network, peers: a.peers, ballots: map[sign.Key]account.Ballot{}, holdings: map[uint8]uint64{1: 1_000_000}}
		for i, p := range a.peers {
			if p.Peer == k {
				l.mine = &a.peers[i]
			}
		}
		a.mu.Lock()
		for at, b := range a.ballots {
			l.ballots[at] = b
		}
		a.mu.Unlock()
		if err := a.member[k].decide(a.Context(), l, subject{0, 1}, e); errors.Is(err, errAccepted) {
			return true
		} else if err != nil {
			a.Logf("slot %d: %d: %v", a.now, k[0], err)
		}
	}
	for _, b := range a.ballots {
		carried = carried || b.Carried()
	}
	return carried
}

func (a *assembly) honest() (out []sign.Key) {
	for _, p := range a.peers[1:] {
		out = append(out, p.Peer)
	}
	return out
}

// turnOf is the first slot of the next turn that is the attacker's, or another's.
func (a *assembly) turnOf(attacker bool) uint64 {
	at := func(p account.Provider) sign.Key { return account.ProviderAddress(a.g.Program, a.g.Escrow, p.Peer) }
	turns := rewards.NewTurns(a.network.Params.Votes, 0, 1, 110, sign.Hash{8}, a.peers, at)
	for slot := max(a.now+1, 110); ; slot++ {
		turn, _ := turns.At(slot)
		if before, ok := turns.At(slot - 1); ok && before == turn {
			continue
		}
		if whose, _ := turns.Of(turn); (whose == at(a.peers[0])) == attacker {
			return slot
		}
	}
}

// table is one that pays for claims, which the attacker can put to the vote.
func (a *assembly) table(claims ...byte) (rewards.Table, account.Rewards) {
	a.Helper()
	l := &look{network: a.network, peers: a.peers}
	var gs []rewards.Guarded
	for _, id := range claims {
		gs = append(gs, a.claims[sign.Signature{id}])
	}
	t := rewards.NewTable(0, [rewards.Sources]uint64{1: rewards.Divisible(1_000_000)}, nil).WithGuarded(gs)
	award, err := t.Divide(1, nil, l.guards(gs, subject{0, 1}), l.payout)
	if err != nil {
		a.Fatal(err)
	}
	return t, said(t, award)
}

// propose opens a ballot of the attacker's.
func (a *assembly) propose(r account.Rewards, opened uint64) {
	a.Helper()
	p := account.ProviderAddress(a.g.Program, a.g.Escrow, a.peers[0].Peer)
	if _, err := a.Run(a.Context(), []svm.Instruction{program.ProposeRewards{Network: a.g.Escrow, Provider: p,
		Ballot: account.BallotAddress(a.g.Program, a.g.Escrow, p, opened), Opened: opened, Rewards: r}.Instruction(a.g.Program)}); err != nil {
		a.Fatal(err)
	}
}

// One verifier that wants an epoch's rewards lost cannot split the others' votes: ballots out of turn, or beyond the first of a turn, do
// not count; a table that one verifier was shown all have from it; and a vote that was cast leaves a ballot that is not carried for
// that of a later turn.
func TestAttackSplitVote(t *testing.T) {
	t.Parallel()
	both := func(a *assembly) (one, other account.Rewards) {
		first, one := a.table(1, 5)
		second, other := a.table(1)
		half := map[sign.Key]bool{a.peers[1].Peer: true, a.peers[3].Peer: true}
		a.shows = func(to sign.Key, d Document) ([]byte, error) {
			switch {
			case d.Kind == Table && d.Root == first.Hash() && half[to]:
				return first.Marshal(), nil
			case d.Kind == Table && d.Root == second.Hash() && !half[to]:
				return second.Marshal(), nil
			}
			return nil, ErrNoDocument
		}
		return one, other
	}
	t.Run("out of turn", func(t *testing.T) {
		t.Parallel()
		a := assembled(t, 5)
		a.now = a.turnOf(false)
		one, other := both(a)
		a.propose(one, a.now-1)
		a.propose(other, a.now)
		for range 2 {
			a.look(a.honest()...)
		}
		if !a.look(a.honest()...) {
			t.Errorf("nothing is carried: %+v", a.ballots)
		}
	})
	t.Run("two tables in its turn", func(t *testing.T) {
		t.Parallel()
		a := assembled(t, 5)
		a.now = a.turnOf(true)
		one, other := both(a)
		a.propose(one, a.now-1)
		a.now++
		a.propose(other, a.now)
		a.look(a.honest()...)
		if !a.look(a.honest()...) {
			t.Errorf("nothing is carried: %+v", a.ballots)
		}
	})
	t.Run("a table that nobody is shown", func(t *testing.T) {
		t.Parallel()
		a := assembled(t, 5)
		a.now = a.turnOf(true)
		_, r := a.table(1)
		a.propose(r, a.now)
		if a.look(a.honest()...) {
			t.Error("what nobody saw is carried")
		}
		a.now = a.turnOf(false)
		a.look(a.honest()...)
		if !a.look(a.honest()...) {
			t.Errorf("nothing is carried: %+v", a.ballots)
		}
	})
	t.Run("the second of its turn", func(t *testing.T) {
		t.Parallel()
		a := assembled(t, 5)
		a.now = a.turnOf(true)
		right, r := a.table(1)
		_, hidden := a.table(1, 5)
		a.shows = func(_ sign.Key, d Document) ([]byte, error) {
			if d.Kind == Table && d.Root == right.Hash() {
				return right.Marshal(), nil
			}
			return nil, ErrNoDocument
		}
		a.propose(hidden, a.now-1)
		a.now++
		a.propose(r, a.now)
		a.look(a.honest()...)
		if a.look(a.honest()...) || len(a.votes) > 0 {
			t.Errorf("it is voted for: %+v", a.votes)
		}
	})
	t.Run("half were away", func(t *testing.T) {
		t.Parallel()
		a := assembled(t, 5)
		a.now = a.turnOf(true)
		one, _ := both(a)
		a.propose(one, a.now)
		a.look(a.honest()[:2]...)
		if len(a.votes) != 2 {
			t.Fatalf("%d votes", len(a.votes))
		}
		a.now = a.turnOf(false)
		a.look(a.honest()...)
		if !a.look(a.honest()...) {
			t.Errorf("nothing is carried: %+v", a.ballots)
		}
	})
	t.Run("less than the least bond", func(t *testing.T) {
		t.Parallel()
		a := assembled(t, 5)
		a.peers[0].Bonded = 1
		a.now = a.turnOf(false)
		one, _ := both(a)
		a.propose(one, a.now)
		for range 2 {
			a.look(a.honest()...)
		}
		if !a.look(a.honest()...) || a.ballots[account.BallotAddress(a.g.Program, a.g.Escrow, account.ProviderAddress(a.g.Program, a.g.Escrow, a.peers[0].Peer), a.now)].For != 0 {
			t.Errorf("carried: %+v", a.ballots)
		}
	})
}
