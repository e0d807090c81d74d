package pay

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/starling-network/starling/chain/escrow"
	"github.com/starling-network/starling/chain/escrow/deposit"
	"github.com/starling-network/starling/chain/program/account"
	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/node/buyer/record"
)

// FundTime bounds the time in which the money of leases is set aside: until its transaction is ready to be sent.
const FundTime = 10 * time.Second

// Fund sets the money of leases of one order aside, and returns the source of each, in their order. The journal has the
// sources when it returns, and the money need not be on chain. After an error Fund may be called again, or else Retire
// with the leases.
func (x *Payments) Fund(ctx context.Context, job string, leases []Lease) ([]Source, error) {
	ctx, cancel := context.WithTimeout(ctx, FundTime)
	defer cancel()
	net, err := x.cfg.Network.Get(ctx)
	if err != nil {
		return nil, err
	}
	guard, err := x.cfg.Jobs.Guard(job)
	if err != nil {
		return nil, err
	}
	first := leases[0]
	if first.Hired {
		return x.hire(ctx, net, job, guard, leases)
	}
	name := nameOf(job, first.Core.Order)
	deal := deposit.Deal{Order: first.Core.Order, Buyer: x.cfg.Self, Keys: first.Keys}
	deal.Source, deal.RefundOwner = x.till.source()
	ev := escrow.Fund{}
	margin := market.Slot(net.Account.Params.MarginSlots)
	for _, l := range leases {
		ev.Leases = append(ev.Leases, l.Core)
		lasts := market.Slot(2*l.Core.Slots()+x.cfg.Genesis.SlotsIn(spareTime)) + margin
		ev.Deadline = max(ev.Deadline, l.Core.Start+lasts)
	}
	if guard != nil && !first.Core.Successor() {
		if err := guard.back(x.cfg.Genesis, &deal, &ev, margin); err != nil {
			return nil, err
		}
	}
	m, err := deposit.New(net, deal, x.cfg.Params)
	if err != nil {
		return nil, err
	}
	if err := x.till.deposit(ctx, name, m, ev); err != nil {
		return nil, err
	}
	var out []Source
	m, err = x.deposits.Until(ctx, name, func(m deposit.Deposit) bool {
		at, ok := m.Escrow()
		out = sourcesOf(at, ok, m.Funding, leases)
		return out != nil
	})
	if err != nil {
		return nil, fmt.Errorf("the escrow is not ready: %s: %w", m.Reason(), err)
	}
	if guard == nil {
		return out, nil
	}
	at, err := guard.placement(out[0], deal, m)
	if err == nil {
		err = x.cfg.Jobs.Placed(ctx, job, at)
	}
	if err != nil {
		return nil, err
	}
	return out, nil
}

// placement returns the escrow of a deposit, where one source is.
func (d *Guard) placement(s Source, deal deposit.Deal, m deposit.Deposit) (Placement, error) {
	f, err := escrow.UnmarshalFunding(s.Funding)
	if err != nil {
		return Placement{}, err
	}
	out := Placement{
		Place: record.Place{Address: s.Escrow, Order: deal.Order, Opened: f.Opened, Deadline: m.Deadline()},
		Wages: map[market.LeaseID][]byte{},
	}
	for _, wage := range d.Wages {
		if f, ok := m.Funding(wage.ID()); ok {
			out.Wages[wage.ID()] = f.Marshal()
		}
	}
	for _, sb := range m.Deal().Standbys {
		out.Standbys = append(out.Standbys, sb.Provider)
	}
	return out, nil
}

// back adds the job's own key to a deal, the standbys with the money for them, and the guardians' wages. The leases of
// the order come first.
func (d *Guard) back(g market.Genesis, deal *deposit.Deal, ev *escrow.Fund, margin market.Slot) error {
	deal.LeaseBuyer = d.Key
	taken := map[sign.Key]bool{}
	var err error
	for _, c := range ev.Leases {
		taken[c.Provider] = true
		if ev.Deposit, err = ev.Deposit.Add(c.Cap); err != nil {
			return err
		}
	}
	for _, sb := range d.Standbys {
		if taken[sb.Provider] {
			continue
		}
		rate, err := market.RateOf(sb.Price, int(sb.Units), g.SlotMillis)
		if err != nil {
			return err
		}
		deal.Standbys = append(deal.Standbys, account.Standby{
			Provider: sb.Provider, Payout: sb.Payout, MaxRate: rate, Budget: sb.Budget,
		})
		if ev.Deposit, err = ev.Deposit.Add(sb.Budget); err != nil {
			return err
		}
	}
	for _, wage := range d.Wages {
		ev.Leases = append(ev.Leases, wage)
		ev.Deadline = max(ev.Deadline, wage.End+margin)
		if ev.Deposit, err = ev.Deposit.Add(wage.Cap); err != nil {
			return err
		}
	}
	return nil
}

// hire sets money of a detached job's escrow aside for standbys, on the word of its guardians.
func (x *Payments) hire(
	ctx context.Context, net escrow.Net, job string, guard *Guard, leases []Lease,
) ([]Source, error) {
	leases = slices.Clone(leases)
	slices.SortFunc(leases, func(a, b Lease) int { // as the owner's deposit gets them
		return cmp.Compare(a.Core.Rank, b.Core.Rank)
	})
	if guard == nil || guard.Place == nil {
		return nil, ErrNoPlace
	}
	m, err := deposit.NewHire(net, deposit.Hiring{
		Order: guard.Place.Order, Buyer: guard.Owner, Opened: guard.Place.Opened, Deadline: guard.Place.Deadline,
		Keys: guard.Keys, LeaseBuyer: guard.Key, Hirer: x.cfg.Self,
	}, x.cfg.Params)
	if err != nil {
		return nil, err
	}
	name := nameOf(job, leases[0].Core.Order)
	if err := x.turns.take(ctx, name); err != nil {
		return nil, err
	}
	x.hires.Add(name, m)
	ev := escrow.Fund{}
	for _, l := range leases {
		ev.Leases = append(ev.Leases, l.Core)
	}
	if err := x.hires.Ask(ctx, name, ev); err != nil {
		x.turns.end(name)
		return nil, fmt.Errorf("hiring %d standbys: %w", len(leases), err)
	}
	var out []Source
	m, err = x.hires.Until(ctx, name, func(m deposit.Hire) bool {
		out = sourcesOf(m.Escrow(), true, m.Funding, leases)
		return out != nil
	})
	if err != nil {
		x.turns.end(name)
		return nil, fmt.Errorf("the standbys' money is not ready: %s: %w", m.Reason(), err)
	}
	return out, nil
}

// sourcesOf returns the sources of leases once all of their money is in a journalled transaction, and nil before.
func sourcesOf(
	at sign.Key, ok bool, funding func(market.LeaseID) (escrow.Funding, bool), leases []Lease,
) []Source {
	var out []Source
	for _, l := range leases {
		f, funded := funding(l.ID)
		if !ok || !funded {
			return nil
		}
		out = append(out, Source{Escrow: at, Funding: f.Marshal()})
	}
	return out
}
