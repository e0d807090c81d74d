package slash

import (
	"context"
	"crypto/sha256"
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
	"github.com/starling-network/starling/chain/program/account"
	"github.com/starling-network/starling/chain/svm"
	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/node/proof"
	"github.com/starling-network/starling/node/proof/keep"
	"github.com/starling-network/starling/node/proof/prooftest"
	"github.com/starling-network/starling/node/store"
	"github.com/starling-network/starling/p2p/admit"
	"github.com/starling-network/starling/p2p/p2ptest"
	"github.com/starling-network/starling/verify/audit"
	"github.com/starling-network/starling/verify/audit/audittest"
)

const (
	lieStake = 1000
	// lieSlots is the length of a window here.
	lieSlots = 10
)

func private(name string) sign.Private { return sign.NewPrivate(sha256.Sum256([]byte(name))) }

var genesis = market.Genesis{
	Network: "test", Chain: sign.Sum([]byte("chain")), Symbol: "STAR", SlotMillis: 400, IntervalSlots: 10, Simulated: true,
}

// court is a chain with the program, on which somebody may have a stake.
type court struct {
	t        *testing.T
	genesis  market.Genesis
	chain    *chaintest.Chain
	programs *chaintest.Programs
	lied     []audit.Lie // that keepers told of
}

func newCourt(t *testing.T, staked ...sign.Private) *court {
	return newCourtWith(t, func(*account.Params) {}, staked...)
}

func newCourtWith(t *testing.T, change func(*account.Params), staked ...sign.Private) *court {
	c := &court{t: t, chain: chaintest.NewChain(chaintest.Config{}), genesis: genesis}
	c.genesis.Chain, c.genesis.AuditSlots, c.genesis.AuditOneIn, c.genesis.Decimals = c.chain.Genesis(), lieSlots, 1, 6
	mint := sign.Key(sign.Sum([]byte("mint")))
	params := account.Params{
		Network: c.genesis.Network, Chain: c.genesis.Chain, StakeMint: mint, MarginSlots: 100, ResponseSlots: 100, UnbondingSlots: 2000, EvidenceSlots: 1000,
		MinStake: 1, AuditSlots: lieSlots, Mints: []account.MintTerms{account.DefaultTerms(mint, 6)},
	}
	change(&params)
	net, err := escrow.NewNet(sign.Key(sign.Sum([]byte("program"))), account.NewNetwork(params), mint)
	if err != nil {
		t.Fatal(err)
	}
	c.genesis.Program, c.genesis.Escrow, c.genesis.Mint = net.Program, net.Address(), net.Mint
	c.programs = chaintest.NewPrograms(c.chain, net)
	for _, k := range staked {
		c.programs.Register(account.Provider{Peer: k.Key(), Owner: private("owner").Key(), Payout: k.Key(), Stake: lieStake})
	}
	c.advance(100)
	return c
}

func (c *court) advance(n int) {
	for range n {
		c.chain.Advance(1)
		c.programs.Advance()
	}
}

// run makes blocks until the test ends.
func (c *court) run() {
	p2ptest.Go(c.t, func(ctx context.Context) error {
		for ctx.Err() == nil {
			select {
			case <-ctx.Done():
			case <-time.After(400 * time.Millisecond):
				c.advance(1)
			}
		}
		return nil
	})
}

// window is one that is over.
func (c *court) window() audit.Window {
	now, err := c.chain.Ledger(sign.Key{}).Slot(c.t.Context())
	if err != nil {
		c.t.Fatal(err)
	}
	return audit.WindowOf(now, lieSlots) - 1
}

func (c *court) lies(provider, member string) []audit.Lie {
	return audittest.Lies(c.genesis.Domain(), private(provider), private(member), c.window())
}

func (c *court) accuser(s store.Store) *Accuser {
	c.t.Helper()
	var k *Accuser
	proofs, err := keep.Open(c.t.Context(), keep.Config{
		Genesis: c.genesis, Journal: s, Standing: func(sign.Key) admit.Standing { return admit.Stranger }, Log: p2ptest.Quiet(),
		Kept: func(x proof.Content) {
			c.lied = append(c.lied, x.(proof.Fraud).Lie)
			k.Found()
		},
	})
	if err != nil {
		c.t.Fatal(err)
	}
	k = New(Config{
		Genesis: c.genesis, Log: p2ptest.Quiet(), Proofs: proofs,
		Slot: func() (market.Slot, error) { return c.chain.Ledger(sign.Key{}).Slot(context.Background()) },
	})
	return k
}

func (c *court) keep(k *Accuser, l audit.Lie, own bool) {
	c.t.Helper()
	if fresh, err := k.cfg.Proofs.Keep(c.t.Context(), proof.Fraud{Lie: l}, own); err != nil || !fresh {
		c.t.Fatalf("kept: %v, %v", fresh, err)
	}
}

// until waits for a state of the only fraud that is kept.
func (c *court) until(k *Accuser, want ...proof.State) proof.Entry {
	c.t.Helper()
	var last []proof.Entry
	for range 3600 {
		last = k.cfg.Proofs.List(proof.KindFraud)
		if len(last) == 1 && slices.Contains(want, last[0].State) {
			return last[0]
		}
		time.Sleep(time.Second)
	}
	c.t.Fatalf("want %v: %+v", want, last)
	return proof.Entry{}
}

// taken checks that the liar lost everything, once, and what became of it.
func (c *court) taken(liar sign.Private, reporters ...sign.Private) {
	c.t.Helper()
	s := c.programs.State()
	paid := uint64(0)
	for _, r := range reporters {
		paid += s.Tokens[svm.TokenAccount(r.Key(), c.genesis.Mint)].Amount
	}
	p := s.Providers[account.ProviderAddress(c.genesis.Program, c.genesis.Escrow, liar.Key())]
	if p.Stake != 0 || !p.WasSlashed || paid != lieStake/8 || s.Mints[c.genesis.Mint].Supply%lieStake != lieStake/8 || len(s.Stated) != 0 {
		c.t.Errorf("stake %d, slashed %v, paid %d, supply %d, %d statements left", p.Stake, p.WasSlashed, paid, s.Mints[c.genesis.Mint].Supply, len(s.Stated))
	}
	if err := c.programs.Check(); err != nil {
		c.t.Error(err)
	}
}

// Every kind of lie costs who told it its whole stake, by a peer that found it, in one go.
func TestAccuse(t *testing.T) {
	t.Parallel()
	for i, kind := range []string{"false opening", "two answers", "false pass"} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				liar := private(map[bool]string{true: "member", false: "provider"}[i == 2])
				c := newCourt(t, liar)
				c.run()
				k, by := c.accuser(store.NewMemory()), private("reporter")
				p2ptest.Go(t, func(ctx context.Context) error { return k.Run(ctx, c.programs.Ledger(by.Key()), by.Key()) })
				c.keep(k, c.lies("provider", "member")[i], true)
				got := c.until(k, proof.StateTaken)
				if o := got.Outcome; o.Taken != lieStake || o.Reward.Amount != lieStake/8 || o.Reward.Wallet != by.Key() || !strings.HasPrefix(got.Proves, kind) || got.Subjects[0] != liar.Key() {
					t.Errorf("%+v, %+v", got, o)
				}
				if len(c.lied) != 1 || c.lied[0].Liar() != liar.Key() {
					t.Errorf("told of %v", c.lied)
				}
				time.Sleep(time.Minute)
				c.taken(liar, by)
				if calls := fmt.Sprint(c.programs.Calls()); strings.Count(calls, "SlashAudit") != 1 {
					t.Error(calls)
				}
			})
		})
	}
}

// What others found is left to them for a while, and two peers that hear of it do not both pay; the one that comes
// second says so.
func TestAccuseOthers(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		liar := private("provider")
		c := newCourt(t, liar)
		c.run()
		l := c.lies("provider", "member")[0]
		var ks []*Accuser
		var by []sign.Private
		for i := range 4 {
			k, r := c.accuser(store.NewMemory()), private(fmt.Sprint("reporter", i))
			ks, by = append(ks, k), append(by, r)
			p2ptest.Go(t, func(ctx context.Context) error { return k.Run(ctx, c.programs.Ledger(r.Key()), r.Key()) })
			c.keep(k, l, false)
		}
		var first time.Duration
		taken := 0
		for i, k := range ks {
			if d := lot(proof.Fraud{Lie: l}.Hash(), by[i].Key()); first == 0 || d < first {
				first = d
			}
			if got := c.until(k, proof.StateTaken, proof.StateSlashed); got.State == proof.StateTaken {
				taken++
			} else if !got.Outcome.Already {
				t.Errorf("%+v", got)
			}
		}
		if taken != 1 {
			t.Errorf("%d have taken it", taken)
		}
		time.Sleep(10 * time.Second)
		c.taken(liar, by...)
	})
}

// dying is a chain that answers nobody any more after so many transactions: the process that sent the last one never
// hears of it.
type dying struct {
	*chaintest.ProgramLedger
	left int
	dead chan struct{}
}

func (d *dying) Run(ctx context.Context, in []svm.Instruction, others ...sign.Signer) (chain.TxID, error) {
	if d.left == 0 {
		return "", chain.ErrDown
	}
	id, err := d.ProgramLedger.Run(ctx, in, others...)
	if d.left--; d.left == 0 {
		close(d.dead)
		return "", chain.ErrDown
	}
	return id, err
}

// Wherever a process ends, between two transactions or two writes, the next one takes the stake once, is paid once, and
// gets its rent back.
func TestAccuseOverCrashes(t *testing.T) {
	t.Parallel()
	liar, by := private("provider"), private("reporter")
	play := func(t *testing.T, crash func(*store.Crashing, *dying)) (writes int) {
		synctest.Test(t, func(t *testing.T) {
			c := newCourt(t, liar)
			c.run()
			inner := store.NewMemory()
			l := c.lies("provider", "member")[1] // two statements
			c.keep(c.accuser(inner), l, true)
			journal := store.NewCrashing(inner)
			ledger := &dying{c.programs.Ledger(by.Key()), -1, make(chan struct{})}
			crash(journal, ledger)
			ctx, cancel := context.WithCancel(t.Context())
			done := make(chan error)
			go func() { done <- c.accuser(journal).Run(ctx, ledger, by.Key()) }()
			select {
			case <-journal.Crashed():
			case <-ledger.dead:
			case <-time.After(5 * time.Minute):
			}
			cancel()
			<-done
			writes = journal.Count()
			again := c.accuser(inner)
			p2ptest.Go(t, func(ctx context.Context) error { return again.Run(ctx, c.programs.Ledger(by.Key()), by.Key()) })
			c.until(again, proof.StateTaken, proof.StateSlashed)
			time.Sleep(time.Minute)
			c.taken(liar, by)
		})
		return writes
	}
	writes := 0
	t.Run("none", func(t *testing.T) { writes = play(t, func(*store.Crashing, *dying) {}) })
	if writes == 0 {
		t.Fatal("nothing was written")
	}
	for n := 1; n <= writes; n++ {
		for _, when := range []store.When{store.Before, store.After} {
			t.Run(fmt.Sprintf("write %d %v", n, when), func(t *testing.T) {
				t.Parallel()
				play(t, func(s *store.Crashing, _ *dying) { s.CrashAt(n, when) })
			})
		}
	}
	for n := 1; n <= 6; n++ {
		t.Run(fmt.Sprint("transaction ", n), func(t *testing.T) {
			t.Parallel()
			play(t, func(_ *store.Crashing, d *dying) { d.left = n })
		})
	}
}

// What cannot be submitted is said, waits, and goes when it can; what is too old never does.
func TestAccuseWaits(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		liar, by := private("provider"), private("reporter")
		c := newCourt(t)
		c.run()
		c.chain.SetDown(true)
		l := audittest.Lies(c.genesis.Domain(), liar, private("member"), audit.Window(15))[0]
		k := c.accuser(store.NewMemory())
		p2ptest.Go(t, func(ctx context.Context) error { return k.Run(ctx, c.programs.Ledger(by.Key()), by.Key()) })
		c.keep(k, l, true)
		said := func(want string) {
			t.Helper()
			for range 1000 {
				if ls := k.cfg.Proofs.List(proof.KindFraud); len(ls) == 1 && strings.Contains(ls[0].Why, want) {
					return
				}
				time.Sleep(time.Second)
			}
			t.Fatalf("%+v", k.cfg.Proofs.List(proof.KindFraud))
		}
		said(chain.ErrDown.Error())
		c.chain.SetDown(false)
		said(ErrNotStaked.Error())
		c.programs.Register(account.Provider{Peer: liar.Key(), Owner: liar.Key(), Payout: liar.Key(), Stake: lieStake})
		c.until(k, proof.StateTaken)
		time.Sleep(time.Minute)
		c.taken(liar, by)
	})
	synctest.Test(t, func(t *testing.T) {
		liar, by := private("provider"), private("reporter")
		c := newCourt(t, liar)
		c.advance(2000)
		k := c.accuser(store.NewMemory())
		c.keep(k, audittest.Lies(c.genesis.Domain(), liar, private("member"), 3)[0], true)
		c.run()
		p2ptest.Go(t, func(ctx context.Context) error { return k.Run(ctx, c.programs.Ledger(by.Key()), by.Key()) })
		c.until(k, proof.StateExpired)
	})
}

// Nothing is sent for a proof that costs nobody anything, and on a network without a program.
func TestSubmitNothing(t *testing.T) {
	t.Parallel()
	g := genesis
	g.AuditSlots, g.AuditOneIn = lieSlots, 1
	fraud := proof.Fraud{Lie: audittest.Lies(g.Domain(), private("provider"), private("member"), 3)[0]}
	f, err := proof.Check(fraud, g)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Submit(t.Context(), nil, f, private("reporter").Key()); !errors.Is(err, ErrNoProgram) {
		t.Errorf("without a program: %v", err)
	}
	d, err := proof.Check(prooftest.Dispute(0, 1, 2), prooftest.Genesis())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Submit(t.Context(), nil, d, private("reporter").Key()); !errors.Is(err, ErrNoStake) {
		t.Errorf("a dispute: %v", err)
	}
}
