package trades

import (
	"fmt"
	"slices"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/testnet/sim/play"
	"github.com/starling-network/starling/verify"
	"github.com/starling-network/starling/verify/audit/audittest"
	"github.com/starling-network/starling/verify/replica"
)

// Replicas are drawn from this number of providers. A fifth of them would return the same false result.
const (
	replicaPeers = 50
	colluding    = replicaPeers / 5
	patience     = 100 // slots
	sleeps       = 25  // right results of a sleeper before its false ones
	atATime      = 50  // false results of a burst
	mostForged   = 400 // highest number of false results of a forger
)

// results is a provider with checked results, by the rules of verify/replica.
type results struct {
	w     *play.World
	trust replica.Trust
	slot  market.Slot
	all   []replica.Candidate
	bad   map[sign.Key]bool
	self  replica.Party
}

func newResults(w *play.World) *results {
	r := &results{w: w, bad: map[sign.Key]bool{}, self: replica.Party{Provider: play.Random[sign.Key](w),
		Owner: play.Random[sign.Key](w)}}
	for i := range replicaPeers {
		k := play.Random[sign.Key](w)
		r.all = append(r.all, replica.Candidate{Provider: k, Owner: k, Staked: true})
		r.bad[k] = i < colluding
	}
	return r
}

// give submits one result. drawn: replicas were made of it. found: it was false, and one replica differs. lost: most
// replicas differ.
func (r *results) give(forged bool) (drawn, found, lost bool, err error) {
	right, wrong := sign.Hash{1}, sign.Hash{2}
	of := func(bad bool) sign.Hash {
		if forged && bad {
			return wrong
		}
		return right
	}
	terms := replica.Terms{
		Params: replica.DefaultParams(patience), Trust: r.trust,
		Buyer: replica.Party{Provider: play.Random[sign.Key](r.w), Owner: play.Random[sign.Key](r.w)},
		Nonce: play.Random[replica.Nonce](r.w),
	}
	first := replica.Committed{Party: r.self, Lease: play.Random[market.LeaseID](r.w), Output: of(true), Signed: true}
	c, fx, err := replica.New(terms, first, r.slot)
	for err == nil && !c.State().Ended() {
		var e replica.Event
		switch f := fx[len(fx)-1].(type) {
		case replica.AskBeacon:
			r.slot = f.From
			e = replica.BeaconSeen{Beacon: replica.Beacon{Slot: r.slot, Hash: play.Random[sign.Hash](r.w)}}
		case replica.Replicate:
			drawn = true
			k := replica.Pick(f.Seed, f.Attempt, r.all, f.Not)[0]
			found = found || forged && !r.bad[k]
			e = replica.ReplicaCommitted{Attempt: f.Attempt, Result: replica.Committed{
				Party: replica.Party{Provider: k, Owner: k}, Lease: play.Random[market.LeaseID](r.w),
				Output: of(r.bad[k]), Signed: true,
			}}
		default:
			return drawn, found, lost, fmt.Errorf("unexpected effect of a check: %T", f)
		}
		c, fx, err = c.Step(r.slot, e)
	}
	if err != nil {
		return drawn, found, lost, err
	}
	switch v := c.Verdict(); {
	case v.State == replica.Differs && slices.ContainsFunc(v.Wrong, func(i int) bool {
		return v.Results[i].Party == r.self
	}):
		r.trust, lost = r.trust.Differed(), true
	case v.State == replica.Equal:
		r.trust = r.trust.Agreed()
	}
	return drawn, found, lost, nil
}

// forges returns right right results, then false ones until the majority differs from one. The gain is the share of
// false results among all undetected results.
func forges(right int) func(w *play.World) (play.Trial, error) {
	return func(w *play.World) (play.Trial, error) {
		r, t, passed := newResults(w), play.Trial{}, 0
		for i := 0; i < right+mostForged; i++ {
			drawn, found, lost, err := r.give(i >= right)
			if err != nil {
				return t, err
			}
			if i < right {
				continue
			}
			if drawn {
				t.Checks++
				t.First = t.First || found && t.Checks == 1
				t.Caught = t.Caught || found && t.Checks <= play.Horizon
			}
			if lost {
				break
			}
			passed++
		}
		t.Gain = float64(passed) / float64(max(right+passed, 1))
		return t, nil
	}
}

// bursts returns 25 right results, then a burst of false ones before the first is checked. The gain is the share of
// false results among all undetected results.
func bursts(w *play.World) (play.Trial, error) {
	r, t, passed := newResults(w), play.Trial{}, 0
	for range sleeps {
		if _, _, _, err := r.give(false); err != nil {
			return t, err
		}
	}
	trust := r.trust
	for range atATime {
		r.trust = trust // its buyer has seen none of them yet
		drawn, found, lost, err := r.give(true)
		if err != nil {
			return t, err
		}
		if drawn {
			t.Checks++
			t.First = t.First || found && t.Checks == 1
			t.Caught = t.Caught || lost
		}
		if !lost {
			passed++
		}
	}
	t.Gain = float64(passed) / float64(sleeps+passed)
	return t, nil
}

// A provider that invents results of reproducible work. verify/replica decides which results are computed again and by
// which providers, and which of two different results is right. A fifth of the other providers would return the same
// false result.
var forgedKinds = []play.Kind{
	{Name: "forged", Threat: 15, What: "gives false results only, a fifth of all replicas collude", Try: forges(0),
		Real: forgedRecord},
	{
		Name: "forged-late", Threat: 15, What: "gives 25 right results for its record, then false ones only",
		Try: forges(sleeps), Gain: play.Gain{What: "share of its results that are false and undetected", Most: 0.1},
	},
	{
		Name: "forged-burst", Threat: 15, What: "gives 25 right results, then 50 false ones at one moment", Try: bursts,
		Limit: "its trust counts for each of them: its record is read once",
		Gain:  play.Gain{What: "share of its results that are false and undetected", Most: 0.65},
	},
}

// forgedRecord is the proof of two signed results: running the work again identifies the forger.
func forgedRecord(i int) error {
	var e replica.Dissent
	e.Work.Seed, e.Work.MemoryMiB, e.Work.DiskMiB = uint64(i)+1, 64, 16
	e.Work.Program, e.Work.Outputs = sign.Sum([]byte("program")), []string{"/out"}
	d, buyer := audittest.Domain(), audittest.Key("buyer")
	give := func(by sign.Private, lease byte, tree string) (replica.Signed, error) {
		var s replica.Signed
		s.Result.Trees = []sign.Hash{sign.Sum([]byte(tree))}
		s.Receipt.ReceiptCore = verify.ReceiptCore{
			Version: verify.ReceiptVersion, Flags: verify.ReceiptFinal, Units: 1, RankEpoch: 1,
			Lease: market.LeaseID{lease}, Seq: 1, Provider: by.Key(), Buyer: buyer.Key(), From: 10, To: 20, Amount: 5,
			Cumulative: 5, Output: e.Work.Output(s.Result),
		}
		var err error
		if s.Receipt.ProviderSig, err = s.Receipt.Sign(d, by); err == nil {
			s.Receipt.BuyerSig, err = s.Receipt.Sign(d, buyer)
		}
		return s, err
	}
	honest, err := give(audittest.Key("honest"), 1, "right")
	if err != nil {
		return err
	}
	forger, err := give(audittest.Key("forger"), 2, "false")
	if err != nil {
		return err
	}
	e.Results = []replica.Signed{honest, forger}
	if e, err = replica.UnmarshalDissent(e.Marshal()); err != nil {
		return err
	}
	if err := replica.CheckDissent(d, e); err != nil {
		return err
	}
	if wrong := e.Against(honest.Result); !slices.Equal(wrong, []int{1}) {
		return fmt.Errorf("%w: the proof is against %v", play.ErrUnmet, wrong)
	}
	return nil
}
