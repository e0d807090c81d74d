package evidence

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/starling-network/starling/chain/program"
	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/node/store"
	"github.com/starling-network/starling/p2p/p2ptest"
	"github.com/starling-network/starling/verify"
	"github.com/starling-network/starling/verify/replica"
)

// Jurors have so much bonded; more than two thirds of them are three of four.
const (
	jurors     = 4
	jurorStake = 1000
	judgeTurn  = 20
)

// newJury is a court that votes.
func newJury(t *testing.T, staked ...sign.Private) *court {
	c := newCourtWith(t, func(p *program.Params) {
		p.Votes = program.Votes{VotingSlots: 300, LockSlots: 1, LeastBonded: 3 * jurorStake, EpochSlots: 1000, EpochsOfMonth: 1}
	}, staked...)
	for i := range jurors {
		k := juror(i).Key()
		c.programs.Register(program.Provider{First: k, Peer: k, Owner: private("owner").Key(), Payout: k, Stake: jurorStake, Bonded: jurorStake, Raised: 1})
	}
	return c
}

func juror(i int) sign.Private { return private(fmt.Sprint("juror ", i)) }

var testWork = replica.Work{Seed: 7, MemoryMiB: 16, DiskMiB: 1, Program: sign.Sum([]byte("program")), Outputs: []string{"/out"}}

func resultOf(name string) replica.Result {
	return replica.Result{Trees: []sign.Hash{sign.Sum([]byte(name))}}
}

// dissent is signed by providers who gave these results: "name=result".
func (c *court) dissent(by ...string) replica.Dissent {
	c.t.Helper()
	now, err := c.chain.Ledger(sign.Key{}).Slot(c.t.Context())
	if err != nil {
		c.t.Fatal(err)
	}
	d := replica.Dissent{Work: testWork}
	for _, text := range by {
		name, result, _ := strings.Cut(text, "=")
		p, b, r := private(name), private("buyer"), resultOf(result)
		core := verify.ReceiptCore{Version: verify.ReceiptVersion, Flags: verify.ReceiptFinal, Units: 1, RankEpoch: 1, Lease: market.LeaseID(sign.Sum([]byte("lease"), []byte(name))), Seq: 1,
			Provider: p.Key(), Buyer: b.Key(), From: now - 10, To: now, Amount: 100, Cumulative: 100, Output: replica.Output(testWork.Hash(), r)}
		s := replica.Signed{Receipt: verify.Receipt{ReceiptCore: core}, Result: r}
		s.Receipt.ProviderSig, _ = core.Sign(c.genesis.Domain(), p)
		s.Receipt.BuyerSig, _ = core.Sign(c.genesis.Domain(), b)
		d.Results = append(d.Results, s)
	}
	slices.SortFunc(d.Results, func(x, y replica.Signed) int { return slices.Compare(x.Receipt.Lease[:], y.Receipt.Lease[:]) })
	return d
}

// judge has a keeper judge, computing a result.
func (c *court) judge(k *Keeper, by sign.Private, again func() (replica.Result, error)) {
	p2ptest.Go(c.t, func(ctx context.Context) error { return k.Judge(ctx, c.judgeOf(by, again)) })
}

func (c *court) judgeOf(by sign.Private, again func() (replica.Result, error)) Judge {
	return Judge{Chain: c.programs.Ledger(by.Key()), Key: by.Key(), Every: 2 * time.Second, Turn: judgeTurn,
		Again: func(context.Context, replica.Dissent, sign.Key) (replica.Result, error) { return again() }}
}

func honest() (replica.Result, error) { return resultOf("true"), nil }

// charged waits until what was charged of a provider ended so.
func (c *court) charged(k *Keeper, by string, want ...ChargeState) Charge {
	c.t.Helper()
	var last []Dissent
	for range 7200 {
		last, _ = k.Dissents(c.t.Context())
		if len(last) == 1 {
			for _, x := range last[0].Charges {
				if x.Provider == private(by).Key() && slices.Contains(want, x.State) {
					return x
				}
			}
		}
		time.Sleep(time.Second)
	}
	c.t.Fatalf("want %v: %+v, ballots %+v", want, last, c.programs.State().Ballots)
	return Charge{}
}

// lost checks that a provider lost everything, once, of which the buyer and one reporter had their shares.
func (c *court) lost(liar sign.Private, reporters ...sign.Private) {
	c.t.Helper()
	s := c.programs.State()
	paid := uint64(0)
	for _, r := range reporters {
		paid += s.Tokens[program.TokenAccount(r.Key(), c.genesis.Mint)].Amount
	}
	p := s.Providers[program.ProviderAddress(c.genesis.Program, c.genesis.Escrow, liar.Key())]
	if victim := s.Tokens[program.TokenAccount(private("buyer").Key(), c.genesis.Mint)].Amount; p.Stake != 0 || !p.WasSlashed || victim != 100 || paid != lieStake/8 {
		c.t.Errorf("stake %d, slashed %v, victim %d, paid %d", p.Stake, p.WasSlashed, victim, paid)
	}
	if err := c.programs.Check(); err != nil {
		c.t.Error(err)
	}
}

// nothingLeft waits until all rent came back.
func (c *court) nothingLeft() {
	c.t.Helper()
	for range 7200 {
		if s := c.programs.State(); len(s.Ballots)+len(s.Votes)+len(s.Attested) == 0 {
			return
		}
		time.Sleep(time.Second)
	}
	s := c.programs.State()
	c.t.Errorf("left: %d ballots, %d votes, %d receipts", len(s.Ballots), len(s.Votes), len(s.Attested))
}

// Who signed a false result loses its stake when more than two thirds computed another, the others nothing; the one that bought it, or one
// of those who voted, takes it; and all rent comes back.
func TestJudge(t *testing.T) {
	t.Parallel()
	for name, found := range map[string]bool{"by its buyer": true, "by those who voted": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				liar, right := private("liar"), private("right")
				c := newJury(t, liar, right)
				c.run()
				d := c.dissent("liar=false", "right=true", "idle=true")
				reporters := []sign.Private{private("buyer's peer")}
				own := c.keeper(store.NewMemory())
				if found {
					c.judge(own, reporters[0], func() (replica.Result, error) { t.Error("one that does not vote runs nothing"); return honest() })
					if _, err := own.KeepDissent(t.Context(), d); err != nil {
						t.Fatal(err)
					}
				}
				var ks []*Keeper
				for i := range jurors {
					k := c.keeper(store.NewMemory())
					c.judge(k, juror(i), honest)
					if fresh, err := k.HearDissent(t.Context(), d, reporters[0].Key()); err != nil || !fresh {
						t.Fatal(fresh, err)
					}
					ks, reporters = append(ks, k), append(reporters, juror(i))
				}
				if found {
					got := c.charged(own, "liar", ChargeTaken)
					if o := got.Outcome; o.Taken != lieStake || o.Reward.Amount != lieStake/8 || len(o.Paid) != 1 || o.Paid[0] != (Share{private("buyer").Key(), 100}) {
						t.Errorf("%+v", o)
					}
				}
				for _, k := range ks {
					c.charged(k, "liar", ChargeTaken, ChargeSlashed)
					c.charged(k, "right", ChargeRight)
				}
				c.lost(liar, reporters...)
				c.nothingLeft()
				c.lost(liar, reporters...)
				if p := c.programs.State().Providers[program.ProviderAddress(c.genesis.Program, c.genesis.Escrow, right.Key())]; p.Stake != lieStake {
					t.Errorf("who was right has %d", p.Stake)
				}
				if calls := fmt.Sprint(c.programs.Calls()); strings.Count(calls, "SlashDissent") != 1 {
					t.Error(calls)
				}
			})
		})
	}
}

// Where too few compute another result than was signed, nothing is taken: not when half of them lie, nor when they cannot run it.
func TestJudgeNotCarried(t *testing.T) {
	t.Parallel()
	for name, again := range map[string]func(i int) (replica.Result, error){
		"two of four lie": func(i int) (replica.Result, error) {
			return resultOf(map[bool]string{true: "slander", false: "true"}[i < 2]), nil
		},
		"two of four cannot": func(i int) (replica.Result, error) {
			return resultOf("slander"), map[bool]error{true: ErrUnable}[i < 2]
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				c := newJury(t, private("right"), private("also right"))
				c.run()
				d := c.dissent("liar=false", "right=true", "also right=true")
				var ks []*Keeper
				for i := range jurors {
					k := c.keeper(store.NewMemory())
					c.judge(k, juror(i), func() (replica.Result, error) { return again(i) })
					if _, err := k.HearDissent(t.Context(), d, juror(0).Key()); err != nil {
						t.Fatal(err)
					}
					ks = append(ks, k)
				}
				for _, k := range ks {
					c.charged(k, "right", ChargeExpired, ChargeRight)
					c.charged(k, "liar", ChargeExpired)
				}
				c.nothingLeft()
				if calls := fmt.Sprint(c.programs.Calls()); strings.Contains(calls, "SlashDissent") {
					t.Error(calls)
				}
				for _, who := range []string{"right", "also right"} {
					if p := c.programs.State().Providers[program.ProviderAddress(c.genesis.Program, c.genesis.Escrow, private(who).Key())]; p.Stake != lieStake || p.WasSlashed {
						t.Errorf("%s: %+v", who, p)
					}
				}
				if err := c.programs.Check(); err != nil {
					t.Error(err)
				}
			})
		})
	}
}

// Wherever a process ends, between two transactions or two writes, the next one votes once, takes the stake once, and gets its rent back.
func TestJudgeOverCrashes(t *testing.T) {
	t.Parallel()
	liar, by := private("liar"), juror(0)
	play := func(t *testing.T, crash func(*store.Crashing, *dying)) (writes int) {
		synctest.Test(t, func(t *testing.T) {
			c := newJury(t, liar)
			c.run()
			d := c.dissent("liar=false", "right=true")
			inner := store.NewMemory()
			if _, err := c.keeper(inner).KeepDissent(t.Context(), d); err != nil {
				t.Fatal(err)
			}
			for i := 1; i < jurors-1; i++ {
				k := c.keeper(store.NewMemory())
				c.judge(k, juror(i), honest)
				if _, err := k.HearDissent(t.Context(), d, by.Key()); err != nil {
					t.Fatal(err)
				}
			}
			journal := store.NewCrashing(inner)
			ledger := &dying{c.programs.Ledger(by.Key()), -1, make(chan struct{})}
			crash(journal, ledger)
			ctx, cancel := context.WithCancel(t.Context())
			done := make(chan error)
			j := c.judgeOf(by, honest)
			j.Chain, j.Turn = ledger, 0 // it opens the ballot
			go func() { done <- c.keeper(journal).Judge(ctx, j) }()
			select {
			case <-journal.Crashed():
			case <-ledger.dead:
			case <-time.After(10 * time.Minute):
			}
			cancel()
			<-done
			writes = journal.Count()
			again := c.keeper(inner)
			c.judge(again, by, honest)
			c.charged(again, "liar", ChargeTaken, ChargeSlashed)
			c.nothingLeft()
			c.lost(liar, juror(0), juror(1), juror(2))
			if calls := fmt.Sprint(c.programs.Calls()); strings.Count(calls, "SlashDissent") != 1 || strings.Count(calls, "Vote") != 2*strings.Count(calls, "CloseVote") {
				t.Error(calls)
			}
		})
		return writes
	}
	writes := 0
	t.Run("none", func(t *testing.T) { writes = play(t, func(*store.Crashing, *dying) {}) })
	if writes < 5 {
		t.Fatalf("%d writes", writes)
	}
	for n := 1; n <= writes; n++ {
		for _, when := range []store.When{store.Before, store.After} {
			t.Run(fmt.Sprintf("write %d %v", n, when), func(t *testing.T) {
				t.Parallel()
				play(t, func(s *store.Crashing, _ *dying) { s.CrashAt(n, when) })
			})
		}
	}
	for n := 1; n <= 7; n++ {
		t.Run(fmt.Sprint("transaction ", n), func(t *testing.T) {
			t.Parallel()
			play(t, func(_ *store.Crashing, d *dying) { d.left = n })
		})
	}
}

// Works that others tell of are run at most one in ten minutes, this peer's own at once.
func TestRerunsAreApart(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newJury(t, private("liar 0"), private("liar 1"), private("liar 2"), private("liar 3"))
		c.run()
		var runs atomic.Int32
		k := c.keeper(store.NewMemory())
		c.judge(k, juror(0), func() (replica.Result, error) { runs.Add(1); return honest() })
		for i := range 3 {
			if _, err := k.HearDissent(t.Context(), c.dissent(fmt.Sprintf("liar %d=false", i), fmt.Sprintf("right %d=true", i)), juror(1).Key()); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(5 * time.Minute)
		if n := runs.Load(); n != 1 {
			t.Errorf("%d runs in five minutes", n)
		}
		if _, err := k.KeepDissent(t.Context(), c.dissent("liar 3=false", "right 3=true")); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		if n := runs.Load(); n != 2 {
			t.Errorf("%d runs with this peer's own", n)
		}
	})
}

// A work whose end was never seen is not begun for ever.
func TestRerunsEnd(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newJury(t, private("liar"))
		c.run()
		inner := store.NewMemory()
		if _, err := c.keeper(inner).KeepDissent(t.Context(), c.dissent("liar=false", "right=true")); err != nil {
			t.Fatal(err)
		}
		var runs atomic.Int32
		for range rerunTries + 2 { // processes that end while it runs
			ctx, cancel := context.WithCancel(t.Context())
			journal := store.NewCrashing(inner)
			j := c.judgeOf(juror(0), honest)
			j.Again = func(ctx context.Context, _ replica.Dissent, _ sign.Key) (replica.Result, error) {
				runs.Add(1)
				journal.CrashAt(journal.Count()+1, store.Before)
				return replica.Result{}, errors.New("killed")
			}
			done := make(chan error)
			go func() { done <- c.keeper(journal).Judge(ctx, j) }()
			select {
			case <-journal.Crashed():
			case <-time.After(time.Minute):
			}
			cancel()
			<-done
		}
		if n := runs.Load(); n != rerunTries {
			t.Errorf("begun %d times", n)
		}
	})
}

// What others tell of is bounded, for each provider and in all; what this peer found makes room.
func TestDissentsAreBounded(t *testing.T) {
	t.Parallel()
	c := newCourt(t)
	k := c.keeper(store.NewMemory())
	n := 0
	for i := range maxDissentsOf + 3 {
		fresh, err := k.HearDissent(t.Context(), c.dissent("liar=false", fmt.Sprintf("other %d=true", i)), juror(0).Key())
		if err != nil {
			t.Fatal(err)
		}
		if fresh {
			n++
		}
	}
	if n != maxDissentsOf {
		t.Errorf("%d about one provider", n)
	}
	for i := range maxDissentsOthers {
		if _, err := k.HearDissent(t.Context(), c.dissent(fmt.Sprintf("a %d=false", i), fmt.Sprintf("b %d=true", i)), juror(0).Key()); err != nil {
			t.Fatal(err)
		}
	}
	all, err := k.Dissents(t.Context())
	if err != nil || len(all) != maxDissentsOthers {
		t.Fatalf("%d, %v", len(all), err)
	}
	if id, err := k.KeepDissent(t.Context(), c.dissent("liar=false", "mine=true")); err != nil || id == "" {
		t.Error(id, err)
	}
	d := c.dissent("a 5=false", "b 5=true")
	if !k.KnowsDissent(replica.Announce(d)) || k.KnowsDissent(replica.Announce(c.dissent("c=false", "d=true"))) {
		t.Error("what is known")
	}
	if fresh, err := k.HearDissent(t.Context(), d, juror(0).Key()); fresh || err != nil {
		t.Error("kept twice", err)
	}
	if id, err := k.KeepDissent(t.Context(), d); err != nil || id == "" { // this peer bought it too
		t.Error(id, err)
	}
	all, _ = k.Dissents(t.Context())
	own := 0
	for _, x := range all {
		if x.Own {
			own++
		}
	}
	if own != 2 {
		t.Errorf("%d are this peer's own", own)
	}
	d.Results[0].Receipt.ProviderSig[0] ^= 1
	if _, err := k.HearDissent(t.Context(), d, juror(0).Key()); err == nil {
		t.Error("a forged signature is kept")
	}
}
