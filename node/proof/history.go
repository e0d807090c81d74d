package proof

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/starling-network/starling/chain"
	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
)

// Limits of a history.
const (
	MaxHistory = 8 << 20 // bytes of JSON
	MaxDeals   = 2048    // receipts
	// Ahead is how far after its anchor, in metering intervals, a receipt may end: clocks differ.
	Ahead = 10
)

// History proves leases that others kept with a peer: of each the last receipt, which both signed, with its place under
// the root that the buyer anchored.
type History struct {
	Peer     sign.Key `json:"peer"`     // provider or buyer of each lease
	Receipts [][]byte `json:"receipts"` // chain.Testimony
}

func decodeHistory(b []byte) (History, error) {
	h, err := strict[History](b, MaxHistory)
	if err == nil && len(h.Receipts) > MaxDeals {
		err = fmt.Errorf("%w: history of %d receipts, want at most %d", market.ErrMalformed, len(h.Receipts), MaxDeals)
	}
	return h, err
}

// Kind implements Content.
func (History) Kind() Kind { return KindHistory }

// Encode implements Content.
func (h History) Encode() ([]byte, error) { return json.Marshal(h) }

// Hash implements Content.
func (h History) Hash() sign.Hash {
	return hashOf("starling/proof/history/v1", h)
}

// Subjects implements Content.
func (h History) Subjects() []sign.Key { return []sign.Key{h.Peer} }

// Summary implements Content.
func (h History) Summary() string {
	return fmt.Sprintf("others kept %d leases with %s", len(h.Receipts), h.Peer.Short())
}

// Deal is one lease of a history.
type Deal struct {
	Lease    market.LeaseID `json:"lease"`
	Provider sign.Key       `json:"provider"`
	Buyer    sign.Key       `json:"buyer"`
	Earned   market.Amount  `json:"earned"`
	To       market.Slot    `json:"to"`
	Receipt  sign.Hash      `json:"receipt"`
	Tx       chain.TxID     `json:"tx"`
	Slot     market.Slot    `json:"slot"` // of the transaction
}

// open decodes the receipts and checks everything that needs no chain.
func (h History) open(g market.Genesis) ([]chain.Testimony, error) {
	out := make([]chain.Testimony, 0, len(h.Receipts))
	for i, b := range h.Receipts {
		t, err := chain.UnmarshalTestimony(b)
		if err == nil {
			err = t.Check(g.Domain(), Ahead*g.IntervalSlots)
		}
		if err == nil && t.Receipt.Provider != h.Peer && t.Receipt.Buyer != h.Peer {
			err = fmt.Errorf("%w: between other peers than %s", chain.ErrTestimony, h.Peer.Short())
		}
		if err != nil {
			return nil, broken(RuleReceipt, fmt.Sprintf("receipt %d", i+1), err)
		}
		out = append(out, t)
	}
	return out, nil
}

// Check implements Content. The detail is a []Deal.
func (h History) Check(g market.Genesis) (Finding, error) {
	all, err := h.open(g)
	if err != nil {
		return Finding{}, err
	}
	deals := []Deal{}
	for _, t := range all {
		r := t.Receipt
		deals = append(deals, Deal{r.Lease, r.Provider, r.Buyer, r.Cumulative, r.To, r.SignedHash(), t.In.Tx,
			t.In.Slot})
	}
	return Finding{Detail: deals, Chain: "not asked", rows: func(row func(...any)) {
		row("peer", h.Peer)
		row()
		row("LEASE", "PROVIDER", "BUYER", "PAID", "UNTIL SLOT", "RECEIPT", "ANCHORED IN", "SLOT")
		for _, d := range deals {
			row(d.Lease.Short(), d.Provider.Short(), d.Buyer.Short(), g.FormatAmount(d.Earned), d.To,
				d.Receipt.Short(), d.Tx,
				d.Slot)
		}
		row()
	}}, nil
}

func (h History) checkChain(ctx context.Context, c Chain, f *Finding) error {
	if c == nil {
		f.Chain = noChain
		return nil
	}
	all, err := h.open(f.genesis)
	if err != nil {
		return err
	}
	for _, t := range all {
		where := "transaction " + string(t.In.Tx)
		on, err := AnchorIn(ctx, c, t.In.Tx)
		switch {
		case errors.Is(err, chain.ErrMalformed):
			return broken(RuleAnchor, where, err)
		case err != nil:
			return unread(where, err)
		}
		if err := t.CheckOn(on); err != nil {
			return broken(RuleAnchor, where, err)
		}
	}
	f.Chain = "checked: each transaction is final and has its receipts' root"
	return nil
}

const noChain = "none: the network is free, nothing is anchored"
