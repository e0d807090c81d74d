package deposit

import (
	"fmt"
	"time"

	"github.com/starling-network/starling/chain/escrow"
	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
)

// Hiring is the constant part of a supervisor's hiring for an escrow while its buyer is away.
type Hiring struct {
	Order      market.OrderID // of the escrow; the leases name later ones
	Buyer      sign.Key       // its opener
	Opened     uint64         // the slot in its address
	Deadline   market.Slot    // its deadline
	Keys       market.KeySet  // its voucher keys, of which a threshold sign every hire
	LeaseBuyer sign.Key       // the buyer that leases name; zero means Buyer
	Hirer      sign.Key       // the ledger's key: pays fees, and rent that comes back to it
}

// Hire sets an escrow's money aside for standbys, with signatures of its voucher keys. The supervisor that replaces a
// job's buyer uses it. It is a Deposit that neither opens nor fills nor empties its escrow. Its events are a Deposit's,
// except Hired. Fund requests leases of standbys; their Deadline and Deposit are ignored. Retire gives them up. End
// gives up all of them, and finishes when every account with the hirer's rent is closed. The effects are Funded, Void
// and Closed.
//
// Its transactions are signed by the ledger's key and a threshold of voucher keys, which Drive receives as others. A
// Hire begins with a set that has the hirer's own key. After each failure it tries the next set, since some signers may
// be offline. The ledger's key signs first, and its signature is not shown to the others: no other signer can send the
// transaction before it is journalled.
type Hire struct{ d Deposit }

// NewHire returns a Hire for an escrow, without hires. It returns ErrEvent for an impossible escrow.
func NewHire(net escrow.Net, h Hiring, p escrow.Params) (Hire, error) {
	if h.Hirer.IsZero() {
		return Hire{}, fmt.Errorf("%w: hirer: missing", escrow.ErrEvent)
	}
	d := begin(terms{net: net, hirer: h.Hirer,
		deal: Deal{Order: h.Order, Buyer: h.Buyer, Keys: h.Keys, LeaseBuyer: h.LeaseBuyer}}, p, h.Opened, h.Deadline)
	if err := d.check(); err != nil {
		return Hire{}, err
	}
	return Hire{d}, nil
}

// RestoreHire parses the journal form, which is a Deposit's. It refuses, with market.ErrMalformed, states that Step
// cannot reach. Send Ticked next.
func RestoreHire(b []byte, net escrow.Net, p escrow.Params) (Hire, error) {
	d, err := restore(b, net, p, true)
	return Hire{d}, err
}

// Step takes one event and returns the next state and its effects, in order. On an error the state is unchanged.
// Errors: ErrEvent, ErrLease, ErrTooMany, ErrEnding, ErrReceipt, ErrDeadline, market.ErrOverflow.
func (h Hire) Step(now time.Time, ev escrow.Event) (Hire, []escrow.Effect, error) {
	if _, deposit := ev.(escrow.Hired); deposit {
		return h, nil, fmt.Errorf("%w: a hire takes no %T", escrow.ErrEvent, ev)
	}
	d, effects, err := h.d.Step(now, ev)
	return Hire{d}, effects, err
}

// Marshal gives the journal form. A hire has one.
func (h Hire) Marshal() []byte { return h.d.Marshal() }

// Next is the time of the next Ticked; zero means none. After restoring, Ticked is due immediately.
func (h Hire) Next() time.Time { return h.d.Next() }

// Escrow is the address that vouchers name.
func (h Hire) Escrow() sign.Key { return h.d.at }

// Funding returns the present or future place of a lease's money, as Deposit.Funding does.
func (h Hire) Funding(lease market.LeaseID) (f escrow.Funding, ok bool) { return h.d.Funding(lease) }

// Closed reports whether the hire has ended: End was received, and the hirer's rent is recovered.
func (h Hire) Closed() bool { return h.d.closed }

// Ending reports whether End was received.
func (h Hire) Ending() bool { return h.d.ending }

// Reason is the error of the last attempt, or else the event that is awaited; empty when all goes well.
func (h Hire) Reason() string { return h.d.Reason() }
