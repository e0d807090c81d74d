package buyer

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/starling-network/starling/chain"
	"github.com/starling-network/starling/chain/chaintest"
	"github.com/starling-network/starling/chain/escrow"
	"github.com/starling-network/starling/chain/program"
	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/node/job"
	"github.com/starling-network/starling/node/settle"
	"github.com/starling-network/starling/node/store"
)

// forgetful is a chain of which nobody remembers the first transaction it is asked about.
type forgetful struct {
	settle.Chain
	fate  fate
	first chain.TxID
}

// fate is what became of that transaction, which an earlier process sent.
type fate int

const (
	landed fate = iota
	lost
	late // it lands when another one was signed already
)

func (l *forgetful) Send(ctx context.Context, tx chain.Prepared) error {
	if l.fate == lost && (l.first == "" || l.first == tx.ID) {
		return nil
	}
	return l.Chain.Send(ctx, tx)
}

func (l *forgetful) Status(ctx context.Context, tx chain.Prepared) (chain.TxStatus, error) {
	if l.first == "" {
		_ = l.Send(ctx, tx)
		l.first = tx.ID
		if l.fate == landed {
			time.Sleep(10 * time.Second)
		}
	}
	if l.first == tx.ID {
		return chain.TxStatus{}, chain.ErrHistory
	}
	return l.Chain.Status(ctx, tx)
}

// A peer that was away for so long that nobody remembers its anchor's transaction sends another one: its job would never end. No account and
// no rent is left on chain, whatever became of the first.
func TestAnchorForgotten(t *testing.T) {
	t.Parallel()
	for name, became := range map[string]fate{"landed": landed, "lost": lost, "late": late} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) { forgotten(t, became) })
		})
	}
}

func forgotten(t *testing.T, became fate) {
	c := chaintest.NewChain(chaintest.Config{})
	at, self := sign.Key{3}, sign.Key{1}
	p := program.Params{Network: "test", Mints: []program.MintTerms{program.DefaultTerms(sign.Key{4}, 6)}}
	net, err := escrow.NewNet(at, program.NewNetwork(p), sign.Key{4})
	if err != nil {
		t.Fatal(err)
	}
	programs := chaintest.NewPrograms(c, net)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	done := make(chan struct{})
	go func() {
		defer close(done)
		for ctx.Err() == nil {
			c.Advance(1)
			programs.Advance()
			time.Sleep(100 * time.Millisecond)
		}
	}()
	l := &forgetful{Chain: programs.Ledger(self), fate: became}
	x := &escrowed{b: &Buyer{self: self, cfg: Config{Genesis: market.Genesis{Program: at}, Store: store.NewMemory()}},
		Escrows: Escrows{Chain: l, Params: escrow.DefaultParams()}}
	owed := anchoring{Root: [32]byte{9}, Receipts: 1}
	tx, err := x.anchor(ctx, "job", owed)
	if err != nil || tx == "" || chain.TxID(tx) == l.first {
		t.Errorf("the anchor is %q, the first was %q: %v", tx, l.first, err)
	}
	again, err := x.anchor(ctx, "job", owed)
	if err != nil || again != tx {
		t.Errorf("asked again it is %q, not %q: %v", again, tx, err)
	}
	cancel()
	<-done
	s := programs.State()
	if len(s.Anchors) != 0 || s.Rent[self] != 0 || !slices.Contains(programs.Calls(), "CloseAnchor") {
		t.Errorf("%d anchors, %d lamports of rent", len(s.Anchors), s.Rent[self])
	}
}

// A peer that its owner allows too little says so, and what renews the allowance: the wallet holds enough.
func TestAffordNamesTheAllowance(t *testing.T) {
	t.Parallel()
	owner, self := sign.Key{7}, sign.Key{8}
	for name, c := range map[string]struct {
		has  chain.Funds
		want string
	}{
		"allowance": {chain.Funds{Balance: 999, Own: 20, Spendable: 110}, "holds 0.000999 STAR, and its owner lets the peer " + self.String() + " spend 0.00011 STAR; allow it more (starling wallet allow)"},
		"wallet":    {chain.Funds{Balance: 90, Own: 20, Spendable: 110}, "holds 0.00009 STAR; lower payment.budget or timeouts.run, or fund the wallet"},
	} {
		c.has.Lamports = 1 << 40
		b := &Buyer{self: self, cfg: Config{Genesis: testGenesis, Owner: owner}, jobs: map[string]*supervisor{}}
		x := &escrowed{b: b, Escrows: Escrows{Chain: purse{has: c.has}}}
		err := x.afford(t.Context(), "", 320, 1)
		if !errors.Is(err, ErrFunds) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
	}
}

// full is a journal on a disk that is full for so many writes.
type full struct {
	store.Store
	left int
}

func (f *full) Write(ctx context.Context, puts ...store.Put) error {
	if f.left--; f.left >= 0 {
		return store.ErrFull
	}
	return f.Store.Write(ctx, puts...)
}

// A lease is void only once the journal has that, and once.
func TestVoidIsJournalledFirst(t *testing.T) {
	t.Parallel()
	journal := &full{Store: store.NewMemory(), left: 2}
	l := &bought{b: &Buyer{cfg: Config{Store: journal}}, id: market.LeaseID{1}}
	for i := range 4 {
		again, err := l.voidOnce(t.Context())
		if (err != nil) != (i < 2) || again != (i == 3) || l.rec.Void != (i >= 2) {
			t.Errorf("attempt %d: again %v, void %v, %v", i, again, l.rec.Void, err)
		}
		b, err := journal.Get(t.Context(), kindLease, l.id.String())
		if has := err == nil && strings.Contains(string(b), `"void":true`); has != l.rec.Void {
			t.Errorf("attempt %d: void %v, in the journal: %v", i, l.rec.Void, has)
		}
	}
}

// purse is a chain that says what the key can spend.
type purse struct {
	settle.Chain
	has chain.Funds
}

func (p purse) Provide(context.Context, market.Amount) error { return nil }

func (p purse) Funds(context.Context) (chain.Funds, error) { return p.has, nil }

// A job is taken only if what is left pays for it beside the jobs that were taken before and have set nothing aside yet. One that is
// made longer needs no second escrow.
func TestAfford(t *testing.T) {
	t.Parallel()
	spec := job.Job{Count: 2, Resources: job.Resources{Units: 1}, Timeouts: job.Timeouts{Run: time.Hour},
		Payment: job.Payment{MaxPrice: 1000, Budget: 600}}
	x := &escrowed{b: &Buyer{cfg: Config{Genesis: testGenesis}}}
	fees := func(need market.Amount) uint64 { return x.lamports(2, need).Most }
	first := program.EscrowRent(1, 0) + anchorRent + program.TrancheRent(2) + fees(600)
	opened := map[string]map[string]Escrow{"b": {"o": {Deposited: 500, Refunded: 100}}}
	for name, c := range map[string]struct {
		before   State // of job a
		set      bool  // job b has set money aside
		have     market.Amount
		lamports uint64
		job      string
		need     market.Amount
		refused  string
	}{
		"enough":              {Succeeded, false, 600, first, "", 600, ""},
		"too little":          {Succeeded, false, 599, first, "", 600, "holds 0.000599 STAR;"},
		"no rent":             {Succeeded, false, 600, first - 1, "", 600, "lamports"},
		"beside another":      {Queued, false, 1200, 2 * first, "", 600, ""},
		"beside a larger one": {Matching, false, 1199, 2 * first, "", 600, "of which 0.0006 STAR are for jobs"},
		"no rent beside it":   {Matching, false, 1200, 2*first - 1, "", 600, fmt.Sprintf("of which %d are for jobs", first)},
		"it began":            {Running, false, 600, first, "", 600, ""},
		"longer":              {Succeeded, true, 200, first - program.EscrowRent(1, 0), "b", 600, ""},
		"too long":            {Succeeded, true, 199, first - program.EscrowRent(1, 0), "b", 600, "can cost up to 0.0002 STAR"},
		"no rent for longer":  {Succeeded, true, 200, first - program.EscrowRent(1, 0) - 1, "b", 600, "lamports"},
	} {
		b := &Buyer{cfg: Config{Genesis: testGenesis}, jobs: map[string]*supervisor{"a": {job: Job{ID: "a", State: c.before, Spec: spec}}}}
		x := &escrowed{b: b, Escrows: Escrows{Chain: purse{has: chain.Funds{Balance: c.have, Spendable: c.have, Lamports: c.lamports}}}}
		if c.set {
			x.shown = opened
		}
		err := x.afford(t.Context(), c.job, c.need, 2)
		if (err == nil) != (c.refused == "") || err != nil && (!errors.Is(err, ErrFunds) || !strings.Contains(err.Error(), c.refused)) {
			t.Errorf("%s: %v, want %q", name, err, c.refused)
		}
	}
}
