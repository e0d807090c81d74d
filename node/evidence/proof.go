package evidence

import (
	"fmt"
	"time"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/node/jsonfile"
	"github.com/starling-network/starling/verify"
)

// Limits of an evidence file.
const (
	MaxFile = 512 << 10 // bytes
	format  = "starling-evidence/1"
)

// Proof is an evidence file: the receipts that prove a double sale, or that results differ, or what was signed that is a lie, and
// the network whose signatures they carry. Anybody can check it without asking anyone. It has exactly one of Conflict, Dissent
// and Lie.
type Proof struct {
	Format   string         `json:"format"` // format
	Genesis  market.Genesis `json:"genesis"`
	Conflict []byte         `json:"conflict,omitempty"` // verify.Conflict
	Dissent  []byte         `json:"dissent,omitempty"`  // replica.Dissent
	Lie      []byte         `json:"lie,omitempty"`      // audit.Lie
}

// NewProof is the file of a conflict on a network.
func NewProof(g market.Genesis, conflict []byte) Proof {
	return Proof{Format: format, Genesis: g, Conflict: conflict}
}

// ParseProof reads an evidence file: one JSON object without unknown fields. It verifies nothing; Check does.
func ParseProof(b []byte) (Proof, error) {
	p, err := jsonfile.Parse(b, MaxFile, format, func(p Proof) string { return p.Format })
	if err != nil {
		return p, fmt.Errorf("%w: %w", ErrFile, err)
	}
	n := 0
	for _, b := range [][]byte{p.Conflict, p.Dissent, p.Lie} {
		if len(b) > 0 {
			n++
		}
	}
	if n != 1 {
		return p, fmt.Errorf("%w: it has to have one proof, of a conflict, of a dissent or of a lie", ErrFile)
	}
	return p, nil
}

// Finding is what a checked proof shows.
type Finding struct {
	ID          string        `json:"id"`
	Network     string        `json:"network"`
	GenesisHash sign.Hash     `json:"genesisHash"`
	Provider    sign.Key      `json:"provider"`
	Unit        market.UnitID `json:"unit"`
	From        market.Slot   `json:"from"` // the slots sold twice
	To          market.Slot   `json:"to"`
	Sales       [2]Sale       `json:"sales"`

	Genesis  market.Genesis  `json:"-"`
	Conflict verify.Conflict `json:"-"`
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

// Check verifies everything in the file: that it names a network, that both receipts are signed on it by the provider and by
// their buyers, are of two leases and share a slot, and that the unit is one of both leases' units. The error is a
// *verify.RuleError where a rule has a name.
func (p Proof) Check() (Finding, error) {
	if err := p.Genesis.Validate(); err != nil {
		return Finding{}, err
	}
	c, err := verify.UnmarshalConflict(p.Conflict)
	if err != nil {
		return Finding{}, err
	}
	if err := verify.CheckConflict(p.Genesis.Domain(), c); err != nil {
		return Finding{}, err
	}
	f := Finding{
		ID: idOf(c), Network: p.Genesis.Tag(), GenesisHash: p.Genesis.Hash(), Provider: c.A.Provider, Unit: c.Unit,
		From: max(c.A.From, c.B.From), To: min(c.A.To, c.B.To), Genesis: p.Genesis, Conflict: c,
	}
	for i, r := range []verify.Receipt{c.A, c.B} {
		f.Sales[i] = Sale{Lease: r.Lease, Buyer: r.Buyer, Seq: r.Seq, From: r.From, To: r.To, Units: r.Units, Paid: r.Cumulative}
	}
	return f, nil
}

// Lasted is for how long the unit was sold twice at least, at the network's nominal slot length; 0 when that is no sensible time.
func (f Finding) Lasted() time.Duration {
	const most = 1 << 30 // slots
	n := uint64(f.To - f.From)
	if n > most {
		return 0
	}
	return time.Duration(n*f.Genesis.SlotMillis) * time.Millisecond
}
