// Package search finds guardians for a job, and pledges them their wages.
package search

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"math/bits"
	"slices"
	"time"

	"github.com/libp2p/go-libp2p/core/peer"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/node/buyer/exchange"
	"github.com/starling-network/starling/node/buyer/guardian"
	"github.com/starling-network/starling/node/buyer/record"
	"github.com/starling-network/starling/node/buyer/voice"
	"github.com/starling-network/starling/node/job"
	"github.com/starling-network/starling/p2p"
)

// Config is the surroundings of a search. All of it is required but Stakes.
type Config struct {
	Host       *p2p.Host
	Genesis    market.Genesis
	Self       sign.Key
	Clock      voice.Clock
	Exchange   *exchange.Exchange
	Neighbours Neighbours
	Stakes     Stakes // optional; if nil, no peer counts as staked
}

// Neighbours lists peers beside the providers that may guard jobs.
type Neighbours interface {
	// Neighbours returns them with their addresses.
	Neighbours() []peer.AddrInfo
}

// Stakes has the stakes of peers.
type Stakes interface {
	// Stake returns the stake of a peer.
	Stake(ctx context.Context, peer sign.Key) (market.Amount, error)
}

const (
	// askTime bounds one search for guardians, and mostAsked the number of peers polled in it.
	askTime   = 3 * time.Second
	mostAsked = 48
)

// Guardians polls known peers for guardians of the job, and chooses among the willing ones: by stake, then by distance.
// Peers that agreed before and then refused come last.
func (c Config) Guardians(ctx context.Context, j record.Job, unwilling []sign.Key) ([]guardian.Member, error) {
	look, found := context.WithTimeout(ctx, exchange.FindTimeout)
	c.Exchange.Find(look, j.Spec.Resources.Class, j.Spec.Placement.Regions, 0)
	found()
	var candidates []guardian.Candidate
	add := func(p sign.Key, addrs []string) {
		known := slices.ContainsFunc(candidates, func(k guardian.Candidate) bool { return k.Key == p })
		if _, no := c.Exchange.Blocked(p); no || known || p == c.Self || slices.Contains(j.Spec.Placement.Exclude, p) ||
			len(candidates) >= mostAsked {
			return
		}
		candidates = append(candidates, guardian.Candidate{Key: p, Addrs: addrs})
	}
	sells := map[sign.Key]bool{} // requirements of the job
	for _, k := range c.Exchange.Book.Class(j.Spec.Resources.Class, time.Now()) {
		sells[k.Offer.Provider] = true
	}
	for _, info := range c.Neighbours.Neighbours() {
		k, err := p2p.KeyFromPeerID(info.ID)
		p := sign.Key(k)
		if err != nil || sells[p] {
			continue
		}
		var addrs []string
		for _, a := range info.Addrs[:min(len(info.Addrs), market.MaxAddrs)] {
			addrs = append(addrs, a.String())
		}
		add(p, addrs)
	}
	for _, k := range c.Exchange.Book.Class("", time.Now()) {
		add(k.Offer.Provider, k.Offer.Addrs)
	}
	asked, cancel := context.WithTimeout(ctx, askTime)
	defer cancel()
	offers := guardian.Offers(asked, c.Host, c.Genesis, candidates)
	size := keptBytes(j)
	offers = slices.DeleteFunc(offers, func(o guardian.Offered) bool {
		return o.ShareMillionths > maxShare || o.MaxBytes < size ||
			o.Longest < j.Spec.Timeouts.Queue+j.Spec.Timeouts.Run+voice.KeptFor
	})
	n := int(j.Spec.Guardians)
	stakes := map[sign.Key]market.Amount{}
	if c.Stakes != nil {
		for _, o := range offers {
			if stake, err := c.Stakes.Stake(asked, o.Key); err == nil {
				stakes[o.Key] = stake
			}
		}
	}
	slices.SortFunc(offers, func(x, y guardian.Offered) int {
		no := func(k sign.Key) int { return bit(slices.Contains(unwilling, k)) }
		return cmp.Or(cmp.Compare(no(x.Key), no(y.Key)), cmp.Compare(stakes[y.Key], stakes[x.Key]),
			cmp.Compare(bit(sells[x.Key]), bit(sells[y.Key])),
			cmp.Compare(x.RTT, y.RTT))
	})
	// A guardian of the job does not work for it: enough providers must remain.
	spare := len(sells) - int(j.Spec.Count) - int(j.Spec.Standbys)
	if j.Spec.Placement.Pack {
		spare = len(sells) - 1
	}
	offers = slices.DeleteFunc(offers, func(o guardian.Offered) bool {
		if sells[o.Key] {
			spare--
		}
		return sells[o.Key] && spare < 0
	})
	if len(offers) < n {
		return nil, fmt.Errorf("%d of %d polled peers accept, beside the peers needed to run it",
			len(offers), len(candidates))
	}
	var out []guardian.Member
	for _, o := range offers[:n] {
		out = append(out, guardian.Member{Key: o.Key, Addrs: o.Addrs})
	}
	slices.SortFunc(out, func(x, y guardian.Member) int { return bytes.Compare(x.Key[:], y.Key[:]) })
	return out, c.pledge(j, out, offers[:n])
}

func bit(b bool) int {
	if b {
		return 1
	}
	return 0
}

// maxShare is the maximum share of the job's maximum lease cost for one guardian's wage, in millionths.
const maxShare = 1_000_000 / job.WagePart / 5

// pledge gives each guardian its requested wage: a lease without units between the job's key and the guardian, paid for
// the time that it guards.
func (c Config) pledge(j record.Job, members []guardian.Member, offers []guardian.Offered) error {
	d := *j.Detached
	d.Guardians = voice.GuardiansOf(members)
	charter, err := voice.CharterOf(&d)
	if err != nil {
		return err
	}
	slot, err := c.Clock.Now(time.Now())
	if err != nil {
		return err
	}
	spec := j.Spec
	spec.Guardians, spec.Standbys = 0, 0
	cost, err := record.MostCost(spec)
	if err != nil {
		return err
	}
	g := c.Genesis
	slots := max(g.SlotsIn(j.Spec.Timeouts.Queue+j.Spec.Timeouts.Run), 2)
	order := market.OrderID(sign.Sum([]byte("starling/wage/order/v1"), d.Terms[:]))
	for i, m := range members {
		o := offers[slices.IndexFunc(offers, func(o guardian.Offered) bool { return o.Key == m.Key })]
		if o.ShareMillionths == 0 {
			continue
		}
		// Rates are in millionths of a base unit.
		hi, lo := bits.Mul64(uint64(cost), uint64(o.ShareMillionths))
		if hi >= slots {
			return fmt.Errorf("the wage of guardian %s: %w", m.Key.Short(), market.ErrOverflow)
		}
		rate, _ := bits.Div64(hi, lo, slots)
		unit := market.UnitID(sign.Sum([]byte("starling/wage/v1"), d.Terms[:], m.Key[:]))
		core := market.LeaseCore{
			Version: market.LeaseVersion, Units: 1, Order: order, Buyer: d.Key,
			Provider: m.Key, Payout: o.Payout, UnitsRoot: market.UnitsRoot([]market.UnitID{unit}), Terms: d.Terms,
			VoucherKeys: charter.Keys.Hash(), Rate: market.Rate(max(rate, 1)),
			Start: slot, ActivateBefore: slot + market.Slot(slots-1), End: slot + market.Slot(slots),
		}
		if core.Cap, err = core.Rate.Owed(slots); err != nil {
			return fmt.Errorf("the wage of guardian %s: %w", m.Key.Short(), err)
		}
		core.Cap = max(core.Cap, 1)
		members[i].Wage = &core
	}
	return nil
}

// keptBytes returns the size of the files that guardians of a job keep.
func keptBytes(j record.Job) (size int64) {
	for _, bl := range j.Spec.Blobs {
		if bl.Here() {
			size += bl.Size
		}
	}
	return size
}
