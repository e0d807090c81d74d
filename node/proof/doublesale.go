package proof

import (
	"fmt"
	"time"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/verify"
)

// DoubleSale proves that a provider sold one unit to two buyers at a time.
type DoubleSale struct{ verify.Conflict }

func decodeDoubleSale(b []byte) (DoubleSale, error) {
	c, err := verify.UnmarshalConflict(b)
	return DoubleSale{c}, err
}

// Kind implements Content.
func (DoubleSale) Kind() Kind { return KindDoubleSale }

// Encode implements Content.
func (s DoubleSale) Encode() ([]byte, error) { return s.Marshal(), nil }

// Hash implements Content. It depends on the two leases and the unit, not on the receipts in the proof.
func (s DoubleSale) Hash() sign.Hash {
	return sign.Sum([]byte("starling/evidence/v1"), s.A.Lease[:], s.B.Lease[:], s.Unit[:])
}

// Subjects implements Content: the provider.
func (s DoubleSale) Subjects() []sign.Key { return []sign.Key{s.A.Provider} }

// Buyers returns the two victims.
func (s DoubleSale) Buyers() [2]sign.Key { return [2]sign.Key{s.A.Buyer, s.B.Buyer} }

// From and To are the slots in which the unit was sold twice.
func (s DoubleSale) From() market.Slot { return max(s.A.From, s.B.From) }

// To is the end of these slots.
func (s DoubleSale) To() market.Slot { return min(s.A.To, s.B.To) }

// Summary implements Content.
func (s DoubleSale) Summary() string {
	return fmt.Sprintf("provider %s sold unit %s to %s and to %s at a time", s.A.Provider.Short(), s.Unit.Short(),
		s.A.Buyer.Short(), s.B.Buyer.Short())
}

// DoubleSaleDetail is the detail of a checked double sale.
type DoubleSaleDetail struct {
	Provider sign.Key      `json:"provider"`
	Unit     market.UnitID `json:"unit"`
	From     market.Slot   `json:"from"` // the slots sold twice
	To       market.Slot   `json:"to"`
	Sales    [2]Sale       `json:"sales"`
}

// Sale is one of the two sales.
type Sale struct {
	Lease market.LeaseID `json:"lease"`
	Buyer sign.Key       `json:"buyer"`
	Seq   uint64         `json:"seq"` // of the receipt
	From  market.Slot    `json:"from"`
	To    market.Slot    `json:"to"`
	Units uint16         `json:"units"`
	Paid  market.Amount  `json:"paid"` // that the buyer had agreed to owe by then
}

// Check implements Content. The detail is a DoubleSaleDetail.
func (s DoubleSale) Check(g market.Genesis) (Finding, error) {
	if err := verify.CheckConflict(g.Domain(), s.Conflict); err != nil {
		return Finding{}, named(err)
	}
	d := DoubleSaleDetail{Provider: s.A.Provider, Unit: s.Unit, From: s.From(), To: s.To()}
	for i, r := range []verify.Receipt{s.A, s.B} {
		d.Sales[i] = Sale{r.Lease, r.Buyer, r.Seq, r.From, r.To, r.Units, r.Cumulative}
	}
	return Finding{Detail: d, rows: func(row func(...any)) {
		row("provider", d.Provider, "sold one unit to two at a time")
		row("unit", d.Unit)
		long := ""
		if l := lasted(d.From, d.To, g.SlotMillis); l > 0 {
			long = fmt.Sprintf(", %v", l)
		}
		row("when", slotsText(d.From, d.To)+long+", and perhaps longer")
		for _, s := range d.Sales {
			row("sold to", fmt.Sprintf("%s under lease %s: receipt %d of %s, %s owed by then", s.Buyer,
				s.Lease.Short(), s.Seq,
				slotsText(s.From, s.To), g.FormatAmount(s.Paid)))
		}
	}}, nil
}

// lasted returns the duration between two slots; 0 if it is out of range.
func lasted(from, to market.Slot, millis uint64) time.Duration {
	const most = 1 << 30 // slots
	n := uint64(to - from)
	if n > most {
		return 0
	}
	return time.Duration(n*millis) * time.Millisecond
}
