package orders

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/node/buyer/exchange"
	"github.com/starling-network/starling/node/buyer/gangs"
	"github.com/starling-network/starling/node/buyer/jobs"
	"github.com/starling-network/starling/node/buyer/pay"
	"github.com/starling-network/starling/node/buyer/record"
	"github.com/starling-network/starling/node/buyer/selection"
)

// standbysOf picks the standbys among the quotes that were not chosen, best first: each may be hired for as long as the
// leases last that were ordered.
func (s *Orders) standbysOf(
	o market.Order, spare []sign.Key, quotes map[sign.Key]exchange.Quoted,
) ([]record.Standby, error) {
	var out []record.Standby
	for _, k := range spare {
		q, ok := quotes[k]
		if !ok || len(out) == int(s.Snapshot().Spec.Standbys) || len(out) == pay.MaxStandbys {
			continue
		}
		rate, err := market.RateOf(q.Quote.Price, int(o.UnitsPer), s.cfg.Genesis.SlotMillis)
		if err != nil {
			return nil, err
		}
		budget, err := rate.Owed(o.Slots)
		if err != nil {
			return nil, err
		}
		addrs := append(slices.Clone(q.Quote.Addrs), q.Offer.Addrs...)
		out = append(out, record.Standby{Quote: q.Quote, Addrs: addrs, Budget: budget})
	}
	return out, nil
}

// standbys returns the job's standbys as quotes for a new order, without lost ones and ones with a lease of the job.
func (s *Orders) standbys(o market.Order) []exchange.Quoted {
	j := s.Snapshot()
	busy := map[sign.Key]bool{}
	for _, p := range j.Lost {
		busy[p] = true
	}
	for _, l := range s.Seats() {
		busy[l.Core.Provider] = true
	}
	var out []exchange.Quoted
	for _, sb := range j.Detached.Standbys {
		if busy[sb.Quote.Provider] {
			continue
		}
		q := sb.Quote
		q.Order, q.Expires = o.ID, o.Expires
		out = append(out, exchange.Quoted{Quote: q, Offer: market.Offer{Addrs: sb.Addrs}, Route: exchange.RouteStandby})
	}
	return out
}

// prepare journals the standbys of the order that a job's first leases are taken by.
func (s *Orders) prepare(
	ctx context.Context, o market.Order, spares []sign.Key, quotes map[sign.Key]exchange.Quoted,
) error {
	standbys, err := s.standbysOf(o, spares, quotes)
	if err != nil {
		return err
	}
	return s.Save(ctx, func(j *record.Job) {
		d := j.Detached.Clone()
		d.Standbys = standbys
		j.Detached = d
	})
}

// standbySlots is how many slots a standby may be hired for, at most most: its money is set aside until the escrow
// ends.
func (s *Orders) standbySlots(most uint64) (uint64, error) {
	j := s.Snapshot()
	if j.Detached.Escrow == nil {
		return 0, pay.ErrNoPlace
	}
	if now, err := s.cfg.Clock.Now(time.Now()); err == nil {
		most = min(most, uint64(max(j.Detached.Escrow.Deadline, now)-now))
	}
	for _, sb := range j.Detached.Standbys {
		rate, err := market.RateOf(sb.Quote.Price, int(j.Spec.Resources.Units), s.cfg.Genesis.SlotMillis)
		if err != nil {
			return 0, err
		}
		most = min(most, slotsFor(rate, sb.Budget))
	}
	return max(most, 1), nil
}

// hire takes standbys by an order that is journalled. The money for them is in the job's escrow, and the guardians'
// word moves it.
func (s *Orders) hire(ctx context.Context, o market.Order, env []byte, seats []jobs.Seat) (*gangs.Gang, error) {
	if len(seats) > pay.MaxStandbyLeaves {
		return nil, &exchange.Unplaced{Reason: fmt.Sprintf(
			"%d ranks need standbys at once, at most %d are hired", len(seats), pay.MaxStandbyLeaves)}
	}
	quotes := s.standbys(o)
	if len(quotes) < len(seats) {
		return nil, &exchange.Unplaced{Raced: true, Reason: fmt.Sprintf(
			"%d ranks were lost, and only %d of the job's standbys are left (see --standbys)",
			len(seats), len(quotes))}
	}
	r, choice := s.request(o, env, seats), selection.InOrder(ranksOf(seats), quotes)
	r.Quotes = choice.Quotes
	return s.cfg.former.Form(ctx, r, choice.Members, choice.Spares)
}
