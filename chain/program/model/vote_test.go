package model_test

import (
	"testing"

	"pgregory.net/rapid"

	"github.com/starling-network/starling/chain/program"
	"github.com/starling-network/starling/chain/program/account"
	"github.com/starling-network/starling/chain/program/model"
	"github.com/starling-network/starling/chain/program/modeltest"
	"github.com/starling-network/starling/market/sign"
)

// TestNoStakeVotesTwice: what is bonded is stake that its vault holds, and the network's sum of it is right; all votes on a ballot
// together are never more than what was bonded when it was opened; what voted stays bonded until the vote is over.
func TestNoStakeVotesTwice(t *testing.T) {
	t.Parallel()
	sequences(t, []program.Call{program.Bond{}, program.Release{}, program.CastVote{}, program.Slash{}, program.RequestUnstake{}}, func() watch {
		return func(t *rapid.T, before *model.State, w *modeltest.World, s modeltest.Step, _ error) {
			bonded := map[sign.Key]uint64{}
			for at, p := range w.Providers {
				bonded[p.Network] += p.Bonded
				if p.Bonded > p.Stake || p.Stake+p.Unbonding > w.Tokens[account.StakeAddress(w.Program, at)].Amount {
					t.Fatalf("%d bonded of %d with %d unbonding: %s", p.Bonded, p.Stake, p.Unbonding, s.Describe())
				}
				if s.Slot <= p.Frozen && p.Bonded < before.Providers[at].Bonded && p.Slashed != s.Slot {
					t.Fatalf("released in slot %d, frozen until %d: %s", s.Slot, p.Frozen, s.Describe())
				}
			}
			for at, n := range w.Networks {
				if bonded[at] != n.Bonded {
					t.Fatalf("%d bonded in all, the network says %d: %s", bonded[at], n.Bonded, s.Describe())
				}
			}
			for _, b := range w.Ballots {
				if b.For+b.Against > b.Total || b.For+b.Against < b.For {
					t.Fatalf("%d and %d votes of %d: %s", b.For, b.Against, b.Total, s.Describe())
				}
			}
		}
	})
}

// TestRewardsAreBounded: what was accepted from the emission is never more than the schedule gives up to then, an epoch is accepted
// once, a payout pays no more than its sum, and each payee once.
func TestRewardsAreBounded(t *testing.T) {
	t.Parallel()
	sequences(t, []program.Call{program.Accept{}, program.ClaimReward{}, program.ClosePayout{}}, func() watch {
		type epoch struct {
			network sign.Key
			source  uint8
			number  uint64
		}
		type payee struct {
			payout sign.Key
			index  uint32
		}
		accepted, paid := map[epoch]bool{}, map[payee]bool{}
		return func(t *rapid.T, before *model.State, w *modeltest.World, s modeltest.Step, refused error) {
			if refused != nil {
				return
			}
			switch c := s.Call.(type) {
			case program.Accept:
				b := before.Ballots[c.Ballot]
				e := epoch{b.Network, b.Rewards.Source, b.Rewards.Epoch}
				if accepted[e] {
					t.Fatalf("accepted twice: %s", s.Describe())
				}
				accepted[e] = true
				if 3*b.For <= 2*b.Total || b.Total < before.Networks[b.Network].Params.Votes.LeastBonded {
					t.Fatalf("accepted with %d of %d: %s", b.For, b.Total, s.Describe())
				}
			case program.ClaimReward:
				if paid[payee{c.Payout, c.Index}] {
					t.Fatalf("paid twice: %s", s.Describe())
				}
				paid[payee{c.Payout, c.Index}] = true
			}
			for at, p := range w.Payouts {
				if p.Paid > p.Sum || p.Paid+w.Tokens[account.RewardsAddress(w.Program, at)].Amount < p.Sum {
					t.Fatalf("%d paid of %d: %s", p.Paid, p.Sum, s.Describe())
				}
			}
			for at, n := range w.Networks {
				var given uint64
				for e := range accepted {
					if e.network == at && e.source == 0 {
						given += n.Params.Votes.Allowance(e.number)
					}
				}
				if n.Emitted > given || given > n.Params.Votes.Emission {
					t.Fatalf("%d emitted, the schedule gives %d of %d: %s", n.Emitted, given, n.Params.Votes.Emission, s.Describe())
				}
			}
		}
	})
}

// TestRulesStayInBounds: rules change by a vote alone, of more than half of all that was bonded and two thirds of what was cast,
// after the lock; and whatever is voted, nobody has less time than the parameters promise, and the floor of the fees burns.
func TestRulesStayInBounds(t *testing.T) {
	t.Parallel()
	sequences(t, []program.Call{program.Enact{}}, func() watch {
		return func(t *rapid.T, before *model.State, w *modeltest.World, s modeltest.Step, refused error) {
			for at, n := range w.Networks {
				was, there := before.Networks[at]
				c, enacted := s.Call.(program.Enact)
				if there && was.Sequence != n.Sequence {
					b := before.Ballots[c.Ballot]
					if !enacted || 2*b.For <= b.Total || b.For <= 2*b.Against || s.Slot <= b.Ends+n.Params.Votes.LockSlots {
						t.Fatalf("rules changed by %+v: %s", b, s.Describe())
					}
				}
				r, p := n.Rules, n.Params
				if r.ResponseSlots < p.ResponseSlots || r.UnbondingSlots <= p.EvidenceSlots || r.UnbondingSlots > 4*p.UnbondingSlots {
					t.Fatalf("rules %+v: %s", r, s.Describe())
				}
				for _, f := range r.Fees {
					if f.BurnBps < account.MinBurnBps || f.FeeBps < account.MinFeeBps || f.FeeBps > account.MaxFeeBps {
						t.Fatalf("rules %+v: %s", r, s.Describe())
					}
				}
			}
		}
	})
}
