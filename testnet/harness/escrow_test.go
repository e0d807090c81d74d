package harness

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/starling-network/starling/chain"
	"github.com/starling-network/starling/chain/chaintest"
	"github.com/starling-network/starling/chain/program"
	"github.com/starling-network/starling/chain/program/account"
	"github.com/starling-network/starling/chain/svm"
	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/node/buyer"
	"github.com/starling-network/starling/node/buyer/record"
	"github.com/starling-network/starling/node/config"
	"github.com/starling-network/starling/node/job"
	"github.com/starling-network/starling/node/proof/jobproof"
	"github.com/starling-network/starling/node/settle"
	"github.com/starling-network/starling/node/store"
)

// fee is what the network keeps of a claim.
func fee(amount market.Amount) market.Amount { return (amount*200 + 9999) / 10000 }

// tokens is what a peer's wallet holds.
func (n *Net) tokens(t *testing.T, p *Peer) market.Amount {
	t.Helper()
	have, err := n.Programs.Ledger(p.Key.Key()).Balance(t.Context(), p.Key.Key())
	if err != nil {
		t.Fatal(err)
	}
	return have
}

// job is a job as it is shown now.
func (n *Net) job(t *testing.T, b *Peer, id string) buyer.Job {
	t.Helper()
	j, err := b.Node.Buyer().Job(id)
	if err != nil {
		t.Fatal(err)
	}
	return j
}

// checkEscrow fails the test unless a job that has ended as wanted was paid for from escrows that are closed, with its rent back,
// exactly what its providers claimed. It returns the job's leases.
func (n *Net) checkEscrow(t *testing.T, b *Peer, id string, want buyer.State) []buyer.LeaseAccount {
	t.Helper()
	j := n.job(t, b, id)
	if j.State != want {
		t.Fatalf("job ended as %s\n%s", j.Summary(), b.Why(id))
	}
	if err := n.Programs.Check(); err != nil {
		t.Error(err)
	}
	s := n.Programs.State()
	if len(s.Escrows)+len(s.Tranches)+len(s.Anchors) > 0 || s.Rent[b.Key.Key()] != 0 {
		t.Errorf("%d escrows, %d tranches and %d anchors are left, %d lamports of rent are out\n%s", len(s.Escrows), len(s.Tranches), len(s.Anchors), s.Rent[b.Key.Key()], b.Why(id))
	}
	var claimed market.Amount
	for i := range n.opts.Providers {
		for _, a := range n.Provider(i).Node.Provider().Accounts() {
			claimed += a.Claimed
		}
	}
	for _, p := range n.Peers {
		if p.Node != nil {
			for _, a := range p.Node.Money().Wages() {
				claimed += a.Claimed
			}
		}
	}
	if left := n.tokens(t, b); left+j.Paid != funds || j.Paid != claimed {
		t.Errorf("the buyer has %d of %d, the job says that it paid %d, providers and guardians claimed %d\n%s", left, market.Amount(funds), j.Paid, claimed, b.Why(id))
	}
	for _, e := range j.Escrows {
		if !e.Closed || e.Deposited != e.Paid+e.Refunded {
			t.Errorf("an escrow that is closed is shown as %+v", e)
		}
	}
	accounts, err := b.Node.Buyer().Receipts(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	p, err := jobproof.Receipts(j, accounts)
	if err != nil {
		t.Fatal(err)
	}
	v, err := p.Verify(n.Genesis)
	if err == nil {
		err = v.CheckAnchors(t.Context(), n.Programs.Ledger(b.Key.Key()))
	}
	if anchored := len(v.Transactions) == 1 && v.Transactions[0].Anchor != ""; anchored != (v.Receipts > 0) {
		t.Errorf("%d receipts are anchored in %v", v.Receipts, v.Transactions)
	}
	if err != nil || v.Owed != j.Owed {
		t.Errorf("the job's proof: %d owed (%v), the job says %d", v.Owed, err, j.Owed)
	}
	return accounts
}

// Every provider has what its vouchers say but the fee, which is burned as far as nobody else gets it; the rest is back.
func TestEscrow(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		n := New(t, Options{Providers: 3, Programs: programs, Log: Logger()})
		time.Sleep(3 * time.Second)
		b := n.Buyer(0)
		j := b.Wait(b.Submit(b.rounds(2, 2)).ID, 3*time.Minute)
		if j.Owed == 0 || j.Paid+j.Held != j.Owed {
			t.Errorf("the job owes %d, paid %d, and %d can be claimed\n%s", j.Owed, j.Paid, j.Held, b.Why(j.ID))
		}
		n.Settle()
		if j = n.job(t, b, j.ID); j.Paid != j.Owed || j.Held != 0 {
			t.Errorf("the job owes %d, paid %d, and %d can be claimed\n%s", j.Owed, j.Paid, j.Held, b.Why(j.ID))
		}
		accounts := n.checkEscrow(t, b, j.ID, buyer.Succeeded)
		for i := range 3 {
			p := n.Provider(i)
			var want market.Amount
			for _, a := range accounts {
				if a.Provider == p.Key.Key() {
					want += a.Owed - fee(a.Owed)
				}
			}
			if have := n.tokens(t, p); have != want {
				t.Errorf("%s has %d, want %d", name(i), have, want)
			}
			n.checkQuiet(t, p, b)
		}
		e := n.job(t, b, j.ID).Escrows
		if len(e) != 1 || !e[0].Closed || e[0].Paid != j.Paid || e[0].Deposited != j.Paid+e[0].Refunded || len(e[0].Transactions) < 3 {
			t.Errorf("the job's escrow is shown as %+v", e)
		}
		calls := n.Programs.Calls()
		for _, want := range []string{"OpenEscrow", "AddTranche", "Claim", "Retire", "Refund", "Sweep", "CloseTranche", "CloseEscrow", "Anchor"} {
			if !slices.Contains(calls, want) {
				t.Errorf("no %s among %v", want, calls)
			}
		}
		mint := n.Programs.State().Mints[n.Genesis.Mint]
		pool := n.Programs.State().Tokens[account.PoolAddress(n.Genesis.Program, n.Genesis.Escrow, n.Genesis.Mint)]
		if burned := funds - mint.Supply; burned == 0 || burned+pool.Amount != uint64(e[0].Fees) {
			t.Errorf("%d of %d are burned, the pool has %d, fees were %d", burned, funds, pool.Amount, e[0].Fees)
		}
	})
}

// What is free comes back, and the receipts are anchored, in little more than the time in which one transaction becomes final.
func TestSettledTogether(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		n := New(t, Options{Providers: 2, Programs: programs, Log: Logger()})
		time.Sleep(3 * time.Second)
		b := n.Buyer(0)
		j := b.Wait(b.Submit(b.Job("work", 2, "3")).ID, 3*time.Minute)
		if j.State != buyer.Succeeded || len(j.Transactions) != 1 {
			t.Fatalf("%s, anchored in %v\n%s", j.Summary(), j.Transactions, b.Why(j.ID))
		}
		steps, _, err := b.Node.Buyer().Trace(j.ID, 0)
		if err != nil {
			t.Fatal(err)
		}
		over := slices.IndexFunc(steps, func(s record.Step) bool { return s.Kind == record.StepEnded })
		one := chaintest.FinalBlocks * time.Duration(n.Genesis.SlotMillis) * time.Millisecond
		if took := j.Ended.Sub(steps[over].At); took > one*3/2 {
			t.Errorf("all was final %v after the job's work was over, one transaction is after %v\n%s", took, one, b.Why(j.ID))
		}
		n.Settle()
		n.checkEscrow(t, b, j.ID, buyer.Succeeded)
	})
}

// A provider dies: what it had earned it may claim within the network's response slots, by itself when it is back, and the rest goes
// to the buyer; its rank goes elsewhere, paid from an escrow of its own.
func TestEscrowReplaced(t *testing.T) {
	t.Parallel()
	for name, back := range map[string]time.Duration{"away": 0, "back in time": time.Second} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				n := New(t, Options{Providers: 3, Units: 1, Programs: programs, Price: map[int]string{0: "0.5"}, Log: Logger()})
				time.Sleep(3 * time.Second)
				b := n.Buyer(0)
				id := b.Submit(b.Job("work", 2, "20")).ID
				time.Sleep(6 * time.Second)
				victim := n.Provider(1)
				victim.Kill()
				if back > 0 {
					time.Sleep(back)
					victim.Restart()
				}
				j := b.Wait(id, 3*time.Minute)
				if back == 0 {
					victim.Restart()
				}
				n.Settle()
				accounts := n.checkEscrow(t, b, id, buyer.Succeeded)
				j = n.job(t, b, id)
				var got sums
				for _, a := range victim.Node.Provider().Accounts() {
					got.add(a)
				}
				switch escrows := n.job(t, b, id).Escrows; {
				case back == 0 && (len(accounts) != 3 || len(escrows) != 2):
					t.Errorf("%d leases, %d escrows\n%s", len(accounts), len(escrows), b.Why(id))
				case back == 0 && (got.lost == 0 || j.Paid+got.lost != j.Owed):
					t.Errorf("the job owes %d and paid %d, its lost provider claimed %d of %d and lost %d", j.Owed, j.Paid, got.claimed, got.owed, got.lost)
				case back > 0 && (got.lost > 0 || got.claimed != got.owed || j.Paid != j.Owed):
					t.Errorf("the job owes %d and paid %d, its provider claimed %d of %d and lost %d", j.Owed, j.Paid, got.claimed, got.owed, got.lost)
				}
			})
		})
	}
}

// What an order's leases did not cost comes back as soon as it has none left, long before its job ends; also when the buyer dies in
// between and has it wound up by its next process.
func TestEscrowOfOrderComesBack(t *testing.T) {
	t.Parallel()
	for _, dies := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			n := New(t, Options{Providers: 2, Units: 1, Programs: programs, Price: map[int]string{0: "0.1"}, Log: Logger()})
			time.Sleep(3 * time.Second)
			b := n.Buyer(0)
			id := b.Submit(b.Job("work", 1, "90")).ID
			time.Sleep(6 * time.Second)
			n.Provider(0).Kill()
			for n.Provider(1).Fake.Began() == 0 && !n.job(t, b, id).State.Ended() { // in its place, once that is funded
				time.Sleep(100 * time.Millisecond)
			}
			if dies {
				b.Kill()
				time.Sleep(time.Second)
				b.Restart()
			}
			time.Sleep(40 * time.Second)
			j := n.job(t, b, id)
			if len(j.Escrows) != 2 || !j.Escrows[0].Closed || j.Escrows[1].Closed || len(n.Programs.State().Escrows) != 1 {
				t.Errorf("buyer died: %v: %d escrows are open while the job is %s: %+v\n%s", dies, len(n.Programs.State().Escrows), j.State, j.Escrows, b.Why(id))
			}
			n.Provider(0).Restart()
			b.Wait(id, 3*time.Minute)
			n.Settle()
			n.checkEscrow(t, b, id, buyer.Succeeded)
		})
	}
}

// sums of accounts.
type sums struct{ owed, claimed, lost market.Amount }

func (s *sums) add(a settle.Account) {
	s.owed, s.claimed, s.lost = s.owed+a.Owed, s.claimed+a.Claimed, s.lost+a.Lost
}

// opens reports whether a transaction opens an escrow.
func opens(at sign.Key) func([]svm.Instruction) bool {
	return func(in []svm.Instruction) bool {
		return slices.ContainsFunc(in, func(i svm.Instruction) bool { return program.CallName(at, i) == "OpenEscrow" })
	}
}

// The escrow never comes: its leases are void on both sides. Nobody began to work for a buyer that never paid, whatever the provider is
// configured for, and the buyer owes nobody anything.
func TestEscrowNeverLands(t *testing.T) {
	t.Parallel()
	for _, when := range []string{"optimistic", "funded"} {
		t.Run(when, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				n := New(t, Options{Providers: 2, Programs: programs, Log: Logger(), Configure: func(_ int, c *config.Config) { c.Provide.StartWhen = when }})
				n.Programs.Lose(opens(n.Genesis.Program))
				time.Sleep(3 * time.Second)
				b := n.Buyer(0)
				spec := b.Job("work", 2, "60")
				spec.Restart.Max, spec.Timeouts.Queue = 0, 5*time.Second
				j := b.Wait(b.Submit(spec).ID, 3*time.Minute)
				n.Settle()
				n.checkEscrow(t, b, j.ID, buyer.Failed)
				if j.Paid != 0 || j.Owed != 0 || n.tokens(t, b) != funds {
					t.Errorf("the job owes %d and paid %d for leases that were never funded\n%s", j.Owed, j.Paid, b.Why(j.ID))
				}
				for i := range 2 {
					p := n.Provider(i)
					n.checkQuiet(t, p, b)
					for _, s := range p.Node.Provider().Sold() {
						if !strings.Contains(s.Record.EndReason, "escrow: not on chain") && !strings.Contains(s.Record.EndReason, "released") {
							t.Errorf("%s: the lease is %s: %s", name(i), s.Record.State, s.Record.EndReason)
						}
					}
					if began := p.Fake.Began(); began > 0 {
						t.Errorf("%s: %d programs began", name(i), began)
					}
				}
			})
		})
	}
}

// What an endpoint says that cannot answer proves nothing about an escrow: the provider asks again, and works on.
func TestEscrowNotSeenAtOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		n := New(t, Options{Providers: 1, Programs: programs, Log: Logger()})
		time.Sleep(3 * time.Second)
		b, blind := n.Buyer(0), n.Provider(0).Key.Key()
		b.Wait(b.Submit(b.Job("work", 1, "1")).ID, 3*time.Minute) // whoever paid once is worked for before its deposit is seen
		n.Settle()
		n.Programs.Blind(blind, errors.New("RPC error -32000: try again"))
		spec := b.Job("work", 1, "12")
		spec.Restart.Max = 0
		id := b.Submit(spec).ID
		for s := n.job(t, b, id).State; s != buyer.Running && !s.Ended(); s = n.job(t, b, id).State {
			time.Sleep(100 * time.Millisecond)
		}
		time.Sleep(3 * time.Second)
		n.Programs.Blind(blind, nil)
		j := b.Wait(id, 3*time.Minute)
		n.Settle()
		if j = n.job(t, b, id); j.State != buyer.Succeeded || j.Paid == 0 || j.Paid != j.Owed {
			t.Errorf("%s: %d owed, %d paid\n%s", j.Summary(), j.Owed, j.Paid, b.Why(j.ID))
		}
	})
}

// A buyer that did not fund its lease gets no work begun on a promise again, also by the provider's next process; what it funds runs.
func TestEscrowPromiseBroken(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		n := New(t, Options{Providers: 1, Programs: programs, Log: Logger()})
		time.Sleep(3 * time.Second)
		b, p := n.Buyer(0), n.Provider(0)
		try := func() buyer.Job {
			spec := b.Job("work", 1, "10")
			spec.Restart.Max, spec.Timeouts.Queue = 0, 5*time.Second
			j := b.Wait(b.Submit(spec).ID, 3*time.Minute)
			n.Settle()
			return j
		}
		if j, began := try(), p.Fake.Began(); j.State != buyer.Succeeded || began != 1 {
			t.Errorf("paid: %s, %d programs began", j.Summary(), began)
		}
		n.Programs.Lose(opens(n.Genesis.Program))
		if j, began := try(), p.Fake.Began(); j.State != buyer.Failed || began != 2 {
			t.Errorf("the first that is not: %s, %d programs began", j.Summary(), began)
		}
		for i := range 2 {
			time.Sleep(time.Duration(i) * 10 * time.Minute) // once is forgiven
			j, began := try(), p.Fake.Began()
			leases, err := b.Node.Buyer().Receipts(t.Context(), j.ID)
			if j.State != buyer.Failed || began != 2 || err != nil || len(leases) == 0 {
				t.Errorf("a later one: %s, %d leases (%v), %d programs began", j.Summary(), len(leases), err, began)
			}
			p.Kill()
			p.Restart()
			time.Sleep(time.Minute) // the buyer finds out
		}
		n.Programs.Lose(nil)
		time.Sleep(20 * time.Minute)
		if j, began := try(), p.Fake.Began(); j.State != buyer.Succeeded || began != 3 {
			t.Errorf("funded: %s, %d programs began", j.Summary(), began)
		}
	})
}

// A provider that waits for the escrow works as soon as it is there.
func TestEscrowFundedFirst(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		n := New(t, Options{Providers: 2, Programs: programs, Log: Logger(), Configure: func(_ int, c *config.Config) { c.Provide.StartWhen = "funded" }})
		time.Sleep(3 * time.Second)
		b := n.Buyer(0)
		j := b.Wait(b.Submit(b.rounds(1, 2)).ID, 3*time.Minute)
		n.Settle()
		n.checkEscrow(t, b, j.ID, buyer.Succeeded)
	})
}

// A job's time is made longer: its successors are paid from the same escrow, which gets more.
func TestEscrowExtended(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		n := New(t, Options{Providers: 2, Programs: programs, Log: Logger()})
		time.Sleep(3 * time.Second)
		b := n.Buyer(0)
		spec := b.Job("work", 2, "30")
		spec.Timeouts.Run = 20 * time.Second
		id := b.Submit(spec).ID
		time.Sleep(5 * time.Second)
		x, err := b.Node.Buyer().Extend(t.Context(), id, time.Minute, 0)
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range x.Ranks {
			if r.State != record.Extended {
				t.Errorf("rank %d: %s: %s", r.Rank, r.State, r.Reason)
			}
		}
		j := b.Wait(id, 3*time.Minute)
		n.Settle()
		accounts := n.checkEscrow(t, b, id, buyer.Succeeded)
		if e := n.job(t, b, id).Escrows; len(accounts) != 4 || len(e) != 1 || j.Paid != j.Owed {
			t.Errorf("%d leases, %d escrows, %d owed, %d paid\n%s", len(accounts), len(e), j.Owed, j.Paid, b.Why(id))
		}
	})
}

// A job is refused whose wallet could not fill its escrow, and one that pays nothing.
func TestEscrowRefused(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		n := New(t, Options{Providers: 1, Programs: programs, Log: Logger()})
		time.Sleep(3 * time.Second)
		b := n.Buyer(0)
		spec := b.Job("work", 1, "1")
		spec.Payment = job.Payment{Decimals: 6, Free: true}
		if _, err := b.Node.Buyer().Submit(t.Context(), buyer.Submission{Spec: spec}); !errors.Is(err, buyer.ErrRefused) || !strings.Contains(err.Error(), "payment.maxPrice is missing") {
			t.Errorf("a job of a free network: %v", err)
		}
		spec = b.Job("work", 100, "1")
		spec.Payment.MaxPrice, spec.Payment.Budget, spec.Timeouts.Run = 1<<40, 2*funds, time.Hour
		if _, err := b.Node.Buyer().Submit(t.Context(), buyer.Submission{Spec: spec}); !errors.Is(err, buyer.ErrFunds) || !strings.Contains(err.Error(), "holds 1000.00 STAR") {
			t.Errorf("a job that costs too much: %v", err)
		}
	})
}

// A job is refused whose escrow's rent the peer's key cannot pay, with what it needs and has; one lamport more and it is done.
func TestEscrowRent(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		n := New(t, Options{Providers: 2, Programs: programs, Log: Logger()})
		time.Sleep(3 * time.Second)
		b := n.Buyer(0)
		q, err := b.Node.Buyer().Quote(t.Context(), buyer.Submission{Spec: b.Job("work", 2, "1")})
		if err != nil {
			t.Fatal(err)
		}
		fees := q.Lamports.Most
		if least := uint64(10 * chain.SignatureFee); q.Lamports.Fees < least || q.Lamports.Fees > least+8*1000 || fees <= q.Lamports.Fees { // of eight transactions two carry a receipt's signature
			t.Errorf("%+v", q.Lamports)
		}
		rent := account.EscrowRent(1, 0) + account.TrancheRent(2) + svm.Rent(account.AnchorSize)
		n.Programs.SetLamports(b.Key.Key(), rent+fees-1)
		_, err = b.Node.Buyer().Submit(t.Context(), buyer.Submission{Spec: b.Job("work", 2, "1")})
		want := fmt.Sprintf("need %d lamports, of which %d are refundable rent; the peer's key %s holds %d", rent+fees, rent, b.Key.Key(), rent+fees-1)
		if !errors.Is(err, buyer.ErrRefused) || !errors.Is(err, buyer.ErrFunds) || !strings.Contains(err.Error(), want) {
			t.Errorf("without the rent: %v, want one that says that it %s", err, want)
		}
		if jobs := b.Node.Buyer().Jobs(); len(jobs) > 0 || len(n.Programs.Calls()) > 0 {
			t.Errorf("a refused job is among %v, or on chain: %v", jobs, n.Programs.Calls())
		}
		n.Programs.SetLamports(b.Key.Key(), rent+fees)
		j := b.Wait(b.Submit(b.Job("work", 2, "1")).ID, time.Minute)
		n.Settle()
		n.checkEscrow(t, b, j.ID, buyer.Succeeded)
	})
}

// What a registration says of a provider's inventory is what its receipts say of the units, when all of them are leased.
func TestInventory(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		n := New(t, Options{Providers: 1, Units: 1, Programs: programs, Log: Logger()})
		time.Sleep(3 * time.Second)
		b, p := n.Buyer(0), n.Provider(0)
		b.Wait(b.Submit(b.Job("work", 1, "1")).ID, time.Minute)
		root := p.Node.Provider().Sold()[0].Record.Core.UnitsRoot
		if got := p.Node.Provider().Inventory(); got != root || got.IsZero() {
			t.Errorf("the inventory is %s, the units of its lease are %s", got, root)
		}
	})
}

// A peer dies before or after any write that has to do with money, and comes back: nobody is paid twice, nothing is lost.
func TestEscrowCrash(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		who   string
		kinds []string
	}{{"buyer", []string{"deposit", "lease+payer", "job+lease+trace", "anchor", "escrow"}}, {"provider", []string{"claims", "hold", "seller", "seller+sold"}}} {
		t.Run(c.who, func(t *testing.T) {
			t.Parallel()
			peer := map[string]int{"buyer": crashBuyer, "provider": crashProvider}[c.who]
			_, writes := escrowCrash(t, peer, Crash{})
			all, seen := map[string]int{}, map[string]int{}
			for _, kind := range writes {
				all[kind]++
			}
			for i, kind := range writes {
				// The first two writes of a kind and the last, which are not all alike.
				if seen[kind]++; !slices.Contains(c.kinds, kind) || seen[kind] > 2 && seen[kind] < all[kind] {
					continue
				}
				for _, when := range []store.When{store.Before, store.After} {
					escrowCrash(t, peer, Crash{Write: i + 1, When: when})
				}
			}
			for _, kind := range c.kinds {
				if seen[kind] == 0 {
					t.Errorf("the %s never wrote a %s: %v", c.who, kind, seen)
				}
			}
		})
	}
}

// escrowCrash runs a job with one crash on its way, and lists the writes of the peer's first process.
func escrowCrash(t *testing.T, victim int, at Crash) (crashed bool, writes []string) {
	synctest.Test(t, func(t *testing.T) {
		n := New(t, Options{Providers: 3, Units: 1, Programs: programs, Price: map[int]string{crashSpare: "0.5"}, Crash: map[int]Crash{victim: at}, Log: Logger()})
		b, m := n.Buyer(0), n.Peers[victim].mayCrash(time.Second)
		wait := m.wait
		wait(3 * time.Second)
		spec := b.rounds(2, 2)
		var id string
		for id == "" {
			if j, err := b.Node.Buyer().Submit(t.Context(), buyer.Submission{Spec: spec, Once: "the job"}); err == nil {
				id = j.ID
			} else if !m.peer.power.down() {
				t.Fatal(err)
			}
			wait(100 * time.Millisecond)
		}
		for end := time.Now().Add(3 * time.Minute); time.Now().Before(end); wait(500 * time.Millisecond) {
			if j, err := b.Node.Buyer().Job(id); err == nil && j.State.Ended() {
				break
			}
		}
		for range 80 {
			wait(500 * time.Millisecond)
		}
		crashed, writes = m.happened()
		n.checkEscrow(t, b, id, buyer.Succeeded)
		for i := range 3 {
			n.checkQuiet(t, n.Provider(i), b)
		}
		if t.Failed() {
			t.Errorf("crash at write %d, %v", at.Write, at.When)
		}
	})
	return crashed, writes
}

// A buyer takes back what backs a lease that runs on: the provider stops while it may still claim, and has all that it worked for.
func TestEscrowRetiredWhileItRuns(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		n := New(t, Options{Providers: 1, Programs: programs, Log: Logger()})
		time.Sleep(3 * time.Second)
		b := n.Buyer(0)
		spec := b.Job("work", 1, "120")
		spec.Restart.Max = 0
		id := b.Submit(spec).ID
		time.Sleep(6 * time.Second)
		n.retire(t, b)
		j := b.Wait(id, 3*time.Minute)
		n.Settle()
		p := n.Provider(0)
		n.checkQuiet(t, p, b)
		var got sums
		for _, a := range p.Node.Provider().Accounts() {
			got.add(a)
		}
		// A claim was final only when it was too late for one more.
		interval := market.Amount(uint64(p.Node.Provider().Sold()[0].Record.Core.Rate) * intervalSlots / 1_000_000)
		if j.State != buyer.Failed || got.claimed == 0 || got.claimed+interval < got.owed {
			t.Errorf("%s: it owes %d; its provider claimed %d of %d and lost %d\n%s", j.Summary(), j.Owed, got.claimed, got.owed, got.lost, b.Why(id))
		}
		if why := p.Node.Provider().Sold()[0].Record.EndReason; !strings.Contains(why, "withdraws") {
			t.Errorf("the lease ended: %s", why)
		}
	})
}

// retire has a peer's key give up every lease that its escrows hold, whatever the peer thinks of that.
func (n *Net) retire(t *testing.T, p *Peer) {
	t.Helper()
	l := n.Programs.Ledger(p.Key.Key())
	for at, tranche := range n.Programs.State().Tranches {
		for i := range tranche.Leaves {
			call := program.RetireBegin{Escrow: tranche.Escrow, Tranche: at, Network: n.Genesis.Escrow, Signers: []sign.Key{p.Key.Key()}, Index: uint16(i)}
			tx, err := l.Sign(t.Context(), []svm.Instruction{call.Instruction(n.Genesis.Program)}, nil)
			if err == nil {
				err = l.Send(t.Context(), tx)
			}
			if err != nil {
				t.Fatal(err)
			}
		}
	}
}

// A buyer dies when it has set money aside for leases that its journal does not know yet: it has that back while the job still runs.
func TestEscrowForsaken(t *testing.T) {
	t.Parallel()
	_, writes := escrowCrash(t, crashBuyer, Crash{})
	known := slices.Index(writes, "lease+payer")
	for i, kind := range writes[:known] {
		if kind != "deposit" {
			continue
		}
		synctest.Test(t, func(t *testing.T) {
			n := New(t, Options{Providers: 3, Units: 1, Programs: programs, Price: map[int]string{crashSpare: "0.5"},
				Crash: map[int]Crash{crashBuyer: {Write: i + 1, When: store.After}}, Log: Logger()})
			time.Sleep(3 * time.Second)
			b := n.Buyer(0)
			id := b.Submit(b.Job("work", 2, "60")).ID
			<-b.Crashed()
			b.Kill()
			time.Sleep(time.Second)
			b.Restart()
			well := func() bool { return n.job(t, b, id).State == buyer.Running && len(n.Programs.State().Escrows) == 1 }
			for end := time.Now().Add(50 * time.Second); !well() && time.Now().Before(end); {
				time.Sleep(time.Second) // money that was on chain already may be claimed for half a minute
			}
			if j := n.job(t, b, id); !well() {
				t.Errorf("crash at write %d: %d escrows are open while it runs: %s\n%s", i+1, len(n.Programs.State().Escrows), j.Summary(), b.Why(id))
			}
			b.Wait(id, 3*time.Minute)
			n.Settle()
			n.checkEscrow(t, b, id, buyer.Succeeded)
		})
	}
}

// A job's time is made longer while its chain's transactions cannot be made: it is asked for again, and what the first attempt set
// aside is not taken back under the second.
func TestEscrowExtendedLater(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		n := New(t, Options{Providers: 2, Programs: programs, Log: Logger()})
		time.Sleep(3 * time.Second)
		b := n.Buyer(0)
		spec := b.Job("work", 2, "40")
		spec.Timeouts.Run = 30 * time.Second
		id := b.Submit(spec).ID
		time.Sleep(8 * time.Second)
		n.Chain.SetDown(true)
		time.AfterFunc(12*time.Second, func() { n.Chain.SetDown(false) })
		if _, err := b.Node.Buyer().Extend(t.Context(), id, time.Minute, 0); err != nil {
			t.Fatal(err)
		}
		j := b.Wait(id, 3*time.Minute)
		n.Settle()
		accounts := n.checkEscrow(t, b, id, buyer.Succeeded)
		if len(accounts) != 4 || j.Paid != j.Owed {
			t.Errorf("%d leases, %d owed, %d paid\n%s", len(accounts), j.Owed, j.Paid, b.Why(id))
		}
	})
}

// Keys are free: buyers that never paid a provider, and whose deposits never come, get no work of it, however many they are.
func TestAttackFreeComputeWithFreshKeys(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		n := New(t, Options{Providers: 1, Buyers: 3, Programs: programs, Log: Logger()})
		n.Programs.Lose(opens(n.Genesis.Program))
		time.Sleep(3 * time.Second)
		for i := range 3 {
			b := n.Buyer(i)
			spec := b.Job("work", 1, "10")
			spec.Restart.Max, spec.Timeouts.Queue = 0, 5*time.Second
			if j := b.Wait(b.Submit(spec).ID, 3*time.Minute); j.State != buyer.Failed {
				t.Errorf("buyer %d: %s", i, j.Summary())
			}
		}
		if began := n.Provider(0).Fake.Began(); began > 0 {
			t.Errorf("%d programs began for nothing", began)
		}
	})
}
