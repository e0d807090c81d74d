package model_test

import (
	"reflect"
	"testing"

	"pgregory.net/rapid"

	"github.com/starling-network/starling/chain/program"
	"github.com/starling-network/starling/chain/program/account"
	"github.com/starling-network/starling/chain/program/model"
	"github.com/starling-network/starling/chain/program/modeltest"
	"github.com/starling-network/starling/chain/svm"
	"github.com/starling-network/starling/market/sign"
)

var programID = sign.NewPrivate(sign.Sum([]byte("program"))).Key()

const steps = 100

// watch sees one step: the state before and after it, and whether it was refused.
type watch func(t *rapid.T, before *model.State, w *modeltest.World, s modeltest.Step, refused error)

// sequences runs random calls through the model and shows each to whoever watches. What happened is counted: a property over
// calls that never succeed would say nothing.
func sequences(t *testing.T, needed []program.Call, watcher func() watch) {
	t.Helper()
	done := map[reflect.Type]int{}
	rapid.Check(t, func(t *rapid.T) {
		w := modeltest.New(t, programID)
		see := watcher()
		w.Begin(func(before *model.State, s modeltest.Step) { see(t, before, w, s, nil) })
		for range steps {
			before := w.State.Clone()
			s, err := w.Next()
			if err == nil {
				done[reflect.TypeOf(s.Call)]++
			}
			see(t, before, w, s, err)
		}
	})
	for _, c := range needed {
		if done[reflect.TypeOf(c)] == 0 {
			t.Errorf("%T never succeeded: this test shows nothing", c)
		}
	}
}

// everything is one of each call.
var everything = []program.Call{
	program.InitNetwork{}, program.SetAuthority{}, program.InitPool{}, program.OpenEscrow{}, program.AddTranche{}, program.AddStandbyTranche{},
	program.TopUp{}, program.Claim{}, program.RetireBegin{}, program.RetireFinish{}, program.RetireFinal{}, program.Refund{}, program.Sweep{},
	program.CloseTranche{}, program.CloseEscrow{}, program.Register{}, program.Update{}, program.Stake{},
	program.RequestUnstake{}, program.Withdraw{}, program.Attest{}, program.CloseAttested{}, program.Slash{}, program.Anchor{}, program.Prove{},
	program.CloseAnchor{}, program.DrawPool{}, program.Bond{}, program.Release{}, program.ProposeRules{}, program.ProposeRewards{}, program.CastVote{},
	program.CloseVote{}, program.Enact{}, program.CloseBallot{}, program.InitEmission{}, program.Accept{}, program.ClaimReward{}, program.ClosePayout{},
	program.State{}, program.CloseStated{}, program.SlashAudit{},
}

// TestNothingIsMadeOrLost: tokens of a mint are always as many as its supply, which only burning changes; a call that is refused
// changes nothing at all; lamports that are out as rent are those of the accounts there are.
func TestNothingIsMadeOrLost(t *testing.T) {
	t.Parallel()
	sequences(t, everything, func() watch {
		return func(t *rapid.T, before *model.State, w *modeltest.World, s modeltest.Step, refused error) {
			if refused != nil && !reflect.DeepEqual(before, w.State) {
				t.Fatalf("refused, and yet: %s", s.Describe())
			}
			sums := map[sign.Key]uint64{}
			for _, a := range w.Tokens {
				sums[a.Mint] += a.Amount
			}
			for at, m := range w.State.Mints {
				if sums[at] != m.Supply || m.Supply > before.Mints[at].Supply {
					t.Fatalf("%d tokens of a supply of %d, before %d: %s", sums[at], m.Supply, before.Mints[at].Supply, s.Describe())
				}
			}
			checkRent(t, w, s)
		}
	})
}

func checkRent(t *rapid.T, w *modeltest.World, s modeltest.Step) {
	var paid, held int64
	for _, v := range w.Rent {
		paid += v
	}
	add := func(size int) { held += int64(svm.Rent(size)) }
	for _, n := range w.Networks {
		add(account.NetworkSize(len(n.Params.Mints)))
	}
	for _, e := range w.Escrows {
		add(account.EscrowSize(len(e.Keys.Keys), len(e.Standbys)))
	}
	for _, n := range w.Tranches {
		add(account.TrancheSize(len(n.Leaves)))
	}
	for range w.Providers {
		add(account.ProviderSize)
	}
	for range w.Attested {
		add(program.AttestedSize)
	}
	for range w.Anchors {
		add(account.AnchorSize)
	}
	for range w.Ballots {
		add(account.BallotSize)
	}
	for range w.Votes {
		add(account.VoteSize)
	}
	for _, s := range w.Stated {
		add(program.StatedSize(s.What))
	}
	for _, p := range w.Payouts {
		add(account.PayoutSize(p.Count))
	}
	for range len(w.Tokens) - 2*modeltest.People {
		add(svm.TokenSize)
	}
	if paid != held {
		t.Fatalf("%d lamports paid for accounts that hold %d: %s", paid, held, s.Describe())
	}
}

// TestEscrowAddsUp: what was put in is what was paid, refunded, and is still there; and all that is owed is there.
func TestEscrowAddsUp(t *testing.T) {
	t.Parallel()
	sequences(t, []program.Call{program.Claim{}, program.Refund{}, program.Sweep{}, program.RetireFinish{}, program.RetireFinal{}, program.CloseEscrow{}}, func() watch {
		gifts := map[sign.Key]uint64{} // to a vault, from who withdrew into it
		return func(t *rapid.T, before *model.State, w *modeltest.World, s modeltest.Step, refused error) {
			switch c := s.Call.(type) {
			case program.Withdraw:
				if refused == nil {
					gifts[c.Destination] += before.Providers[c.Provider].Unbonding
				}
			case program.CloseEscrow:
				if e := before.Escrows[c.Escrow]; refused == nil && (e.Outstanding > 0 || e.Fee > 0) {
					t.Fatalf("closed with %d owed and %d of fees: %s", e.Outstanding, e.Fee, s.Describe())
				}
			}
			owed := map[sign.Key]uint64{}
			for _, n := range w.Tranches {
				var paid, freed uint64
				for _, l := range n.Leaves {
					paid, freed = paid+l.Paid, freed+l.Freed
				}
				if n.Outstanding != n.Sum-paid-freed {
					t.Fatalf("%d outstanding of %d with %d paid and %d freed: %s", n.Outstanding, n.Sum, paid, freed, s.Describe())
				}
				owed[n.Escrow] += n.Outstanding
			}
			for at, e := range w.Escrows {
				vault := w.Tokens[e.Vault].Amount
				if e.Deposited+gifts[e.Vault] != e.Paid-e.Fee+e.Refunded+vault {
					t.Fatalf("deposited %d and %d, paid %d with %d of fees there, refunded %d, in the vault %d: %s", e.Deposited, gifts[e.Vault], e.Paid, e.Fee, e.Refunded, vault, s.Describe())
				}
				if e.State == account.EscrowOpen && owed[at] != e.Outstanding || e.Outstanding+e.Fee > vault {
					t.Fatalf("%d outstanding, %d by the tranches, %d of fees, %d in the vault: %s", e.Outstanding, owed[at], e.Fee, vault, s.Describe())
				}
			}
		}
	})
}

type leafAt struct {
	tranche sign.Key
	index   uint16
}

// TestNobodyIsOverpaid: a leaf gets at most its best voucher, its cap, and its rate for the slots that passed, and only at its
// payout; nothing while its window is closed; and every claim pays only what was not paid before.
func TestNobodyIsOverpaid(t *testing.T) {
	t.Parallel()
	sequences(t, []program.Call{program.Claim{}, program.RetireBegin{}, program.RetireFinish{}, program.RetireFinal{}}, func() watch {
		best, received := map[leafAt]uint64{}, map[leafAt]uint64{}
		return func(t *rapid.T, before *model.State, w *modeltest.World, s modeltest.Step, refused error) {
			c, isClaim := s.Call.(program.Claim)
			if !isClaim || refused != nil {
				return
			}
			at, leaf := leafAt{c.Tranche, c.Leaf.Index}, w.Leaf(c.Tranche, c.Leaf.Index)
			best[at] = max(best[at], le64(s.Beside[c.Ed].Message[96+80:]))
			got := w.Tokens[c.Destination].Amount - before.Tokens[c.Destination].Amount
			kept := w.Escrows[c.Escrow].Fee - before.Escrows[c.Escrow].Fee
			received[at] += got + kept
			state := w.Tranches[c.Tranche].Leaves[c.Leaf.Index]
			if received[at] != state.Paid {
				t.Fatalf("%d received in all, %d booked: %s", received[at], state.Paid, s.Describe())
			}
			passed := min(max(s.Slot, uint64(leaf.Start)), uint64(leaf.End)) - uint64(leaf.Start)
			earned, err := leaf.Rate.Owed(passed)
			if err != nil || state.Paid > uint64(earned) || state.Paid > best[at] || state.Paid+state.Freed > uint64(leaf.Cap) {
				t.Fatalf("paid %d, earned %d, voucher %d, cap %d of which freed %d, %v: %s", state.Paid, earned, best[at], leaf.Cap, state.Freed, err, s.Describe())
			}
			if to := w.Tokens[c.Destination]; to.Owner != leaf.Payout {
				t.Fatalf("paid to %s: %s", to.Owner, s.Describe())
			}
			if window := before.Tranches[c.Tranche].Leaves[c.Leaf.Index].Window; window != 0 && s.Slot > before.Tranches[c.Tranche].Opened+uint64(window) {
				t.Fatalf("paid after its window: %s", s.Describe())
			}
		}
	})
}

func le64(b []byte) (v uint64) {
	for i := range 8 {
		v |= uint64(b[i]) << (8 * i)
	}
	return v
}

// TestVoucherKeysOnlyHireStandbys: whatever guardians sign, money reaches only the buyer's own leaves' payouts and standbys', and
// standbys together no more than the budgets that the buyer set.
func TestVoucherKeysOnlyHireStandbys(t *testing.T) {
	t.Parallel()
	sequences(t, []program.Call{program.AddStandbyTranche{}, program.Claim{}}, func() watch {
		budget, paid := map[sign.Key]uint64{}, map[sign.Key]uint64{}
		return func(t *rapid.T, before *model.State, w *modeltest.World, s modeltest.Step, refused error) {
			if refused != nil {
				return
			}
			switch c := s.Call.(type) {
			case program.OpenEscrow:
				for _, b := range c.Standbys {
					budget[c.Escrow] += uint64(b.Budget)
				}
			case program.AddTranche:
				if c.Buyer != before.Escrows[c.Escrow].Buyer {
					t.Fatalf("a tranche of any leaves by somebody else: %s", s.Describe())
				}
			case program.Claim:
				n, e := w.Tranches[c.Tranche], w.Escrows[c.Escrow]
				if n.By != account.ByKeys {
					return
				}
				named := false
				for _, b := range e.Standbys {
					named = named || b.Provider == c.Leaf.Provider && b.Payout == w.Tokens[c.Destination].Owner && b.MaxRate >= c.Leaf.Rate
				}
				paid[c.Escrow] += w.Tranches[c.Tranche].Leaves[c.Leaf.Index].Paid - before.Tranches[c.Tranche].Leaves[c.Leaf.Index].Paid
				if !named || paid[c.Escrow] > budget[c.Escrow] {
					t.Fatalf("%d paid of budgets of %d, to a standby: %v: %s", paid[c.Escrow], budget[c.Escrow], named, s.Describe())
				}
			}
		}
	})
}

// TestAddressesNeverReturn: an escrow that was closed is never there again, nor any tranche of it.
func TestAddressesNeverReturn(t *testing.T) {
	t.Parallel()
	sequences(t, []program.Call{program.CloseEscrow{}, program.CloseTranche{}, program.OpenEscrow{}}, func() watch {
		gone := map[sign.Key]bool{}
		return func(t *rapid.T, before *model.State, w *modeltest.World, s modeltest.Step, _ error) {
			for at := range gone {
				_, escrow := w.Escrows[at]
				_, tranche := w.Tranches[at]
				if escrow || tranche {
					t.Fatalf("%s is back: %s", at, s.Describe())
				}
			}
			for at := range before.Escrows {
				if _, there := w.Escrows[at]; !there {
					gone[at] = true
				}
			}
			for at := range before.Tranches {
				if _, there := w.Tranches[at]; !there {
					gone[at] = true
				}
			}
		}
	})
}

// TestSlashingOneselfLoses: whoever owner, buyers and reporter are, all of them together have at most half of what was slashed;
// and stake leaves no other way than after waiting longer than evidence is good for.
func TestSlashingOneselfLoses(t *testing.T) {
	t.Parallel()
	sequences(t, []program.Call{program.Slash{}, program.SlashAudit{}, program.Withdraw{}, program.RequestUnstake{}}, func() watch {
		asked := map[sign.Key]uint64{} // slot of the last request
		return func(t *rapid.T, before *model.State, w *modeltest.World, s modeltest.Step, refused error) {
			if refused != nil {
				return
			}
			switch c := s.Call.(type) {
			case program.RequestUnstake:
				asked[c.Provider] = s.Slot
			case program.Withdraw:
				n := w.Networks[w.Providers[c.Provider].Network]
				if s.Slot <= asked[c.Provider]+n.Params.EvidenceSlots {
					t.Fatalf("stake left in slot %d, asked for in %d: %s", s.Slot, asked[c.Provider], s.Describe())
				}
			case program.SlashAudit:
				p := before.Providers[c.Provider]
				total, burned := p.Stake+p.Unbonding, before.Mints[c.Mint].Supply-w.State.Mints[c.Mint].Supply
				if 8*(total-burned) > total || w.Providers[c.Provider].Stake+w.Providers[c.Provider].Unbonding != 0 {
					t.Fatalf("%d burned of %d: %s", burned, total, s.Describe())
				}
			case program.Slash:
				p := before.Providers[c.Provider]
				total := p.Stake + p.Unbonding
				burned := before.Mints[c.Mint].Supply - w.State.Mints[c.Mint].Supply
				if 2*burned < total || w.Tokens[c.Vault].Amount != before.Tokens[c.Vault].Amount-total || w.Providers[c.Provider].Stake != 0 {
					t.Fatalf("%d burned of %d: %s", burned, total, s.Describe())
				}
				a, b := before.Attested[c.A].Core, before.Attested[c.B].Core
				if a.Lease == b.Lease || max(a.From, b.From) >= min(a.To, b.To) || uint64(min(a.To, b.To)) <= p.Slashed || uint64(max(a.To, b.To)) > s.Slot {
					t.Fatalf("slashed for %+v and %+v: %s", a, b, s.Describe())
				}
			}
		}
	})
}

// TestFeesBurn: of all fees of an escrow at least the share burns that is in force when they are swept, in however many pieces. Shares
// are counted from totals, so that a vote that changes them may round each of the three others up once.
func TestFeesBurn(t *testing.T) {
	t.Parallel()
	sequences(t, []program.Call{program.Sweep{}}, func() watch {
		type fees struct {
			burned, due, changes uint64 // due and what a change may take in parts of program.Shares
			share                account.Fees
		}
		of := map[sign.Key]fees{}
		return func(t *rapid.T, before *model.State, w *modeltest.World, s modeltest.Step, refused error) {
			c, isSweep := s.Call.(program.Sweep)
			if !isSweep || refused != nil {
				return
			}
			e := w.Escrows[c.Escrow]
			f, known := of[c.Escrow]
			share := w.Networks[e.Network].Rules.Fees[e.MintIndex]
			if known && share != f.share {
				f.changes++
			}
			f.share = share
			f.burned += before.Mints[c.Mint].Supply - w.State.Mints[c.Mint].Supply
			f.due += (e.Swept - before.Escrows[c.Escrow].Swept) * uint64(share.BurnBps)
			of[c.Escrow] = f
			if (f.burned+3*f.changes)*account.Shares < f.due {
				t.Fatalf("%d burned of %d, after %d changes: %s", f.burned, e.Swept, f.changes, s.Describe())
			}
		}
	})
}
