// Package deposit is the payer's side of an escrow, as two machines. A Deposit is a buyer's: it opens the escrow of an
// order, sets money aside for its leases, and reclaims the unearned rest. A Hire is a supervisor's: it sets the
// escrow's money aside for standbys while the buyer is away.
//
//	Fund, Retire, End ─▶ Deposit ─▶ Look ─▶ Looked ─▶ books ─▶ plan ─▶ Sign ─▶ queue
//
// Books compare the escrow with the final view of the chain, and keep the result. A plan compares it with the confirmed
// view, and requests the transactions that are missing.
package deposit

import (
	"slices"
	"time"

	"github.com/starling-network/starling/chain/escrow"
	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
)

// Deposit is a buyer's escrow for one order, from the first lease to the last lamport: a value; Step returns the next
// one.
type Deposit struct {
	books
	params escrow.Params

	// The rest is not kept over a restart.
	asked   uint16 // number of tranches, from the first, in a look
	apart   bool   // the opening and the first tranches do not fit together
	looking bool   // Look was not answered yet
	lookAt  time.Time
	waits   string // the event that is awaited
	repeat  bool   // final events must be repeated: they may not have been received before a restart
}

// New returns the Deposit of an order without funding. It returns ErrEvent for a deal without a possible escrow.
func New(net escrow.Net, deal Deal, p escrow.Params) (Deposit, error) {
	if err := deal.check(); err != nil {
		return Deposit{}, err
	}
	deal.Standbys = slices.Clone(deal.Standbys)
	return begin(terms{net: net, deal: deal}, p, 0, 0), nil
}

func begin(t terms, p escrow.Params, opened uint64, deadline market.Slot) Deposit {
	return Deposit{params: p, asked: 1,
		books: books{calls: calls{terms: t}.named(opened), deadline: deadline, queue: escrow.NewQueue()}}
}

// Deal is the deal that it was made with.
func (d Deposit) Deal() Deal { return d.deal }

// Escrow is the address that vouchers name; ok is false before it is decided.
func (d Deposit) Escrow() (at sign.Key, ok bool) { return d.at, d.opened != 0 }

// Deadline is the slot after which, and the network's margin, everything goes back.
func (d Deposit) Deadline() market.Slot { return d.deadline }

// Refunded is the finalized amount of seen refunds.
func (d Deposit) Refunded() market.Amount { return d.refunded }

// Owing returns the sum that unseen transactions are to take from the deal's Source.
func (d Deposit) Owing() market.Amount { return d.owing() }

// Closed reports whether the deposit has ended and no account is left on chain.
func (d Deposit) Closed() bool { return d.closed }

// Back reports whether End was received and everything that can come back without the providers is refunded, finally.
// They can claim the rest.
func (d Deposit) Back() bool { return d.closed || d.ending && d.back }

// Landed reports whether the money of a lease was seen on chain in time. It is permanent once Funded was reported with
// Final; before that it may in rare cases be forked away.
func (d Deposit) Landed(lease market.LeaseID) bool {
	b, j, ok := d.batches.find(lease)
	return ok && !b.leases[j].void &&
		(b.stage == stageFunded || b.stage == stageSigned && b.near != 0 && b.near <= b.leases[j].before)
}

// Ending reports whether End was received.
func (d Deposit) Ending() bool { return d.ending }

// Reason is the error of the last attempt, or else the event that is awaited; empty when all goes well.
func (d Deposit) Reason() string {
	if d.queue.Reason != "" {
		return d.queue.Reason
	}
	return d.waits
}

// Funding returns the place of a lease's money in the escrow. It is false for a lease that is void or that no signed
// transaction funds. The money need not be there yet: see Funded.
func (d Deposit) Funding(lease market.LeaseID) (f escrow.Funding, ok bool) {
	b, j, ok := d.batches.find(lease)
	if !ok || b.stage != stageSigned && b.stage != stageFunded {
		return escrow.Funding{}, false
	}
	return d.funding(b, j), true
}

// Void reports whether a lease was not on chain in time, finalized.
func (d Deposit) Void(lease market.LeaseID) bool {
	b, j, ok := d.batches.find(lease)
	return ok && b.leases[j].void
}

// Next is the time of the next Ticked; zero means none. After restoring, Ticked is due immediately.
func (d Deposit) Next() time.Time {
	switch {
	case d.closed:
		return time.Time{}
	case d.looking: // the answer sets the time of the next Look
		return d.queue.Soonest(time.Time{})
	}
	return d.queue.Soonest(d.lookAt)
}
