package testnet

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"

	"github.com/starling-network/starling/chain/solana"
	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/node/proof"
)

// Report is what a demonstration found, as demo.json.
type Report struct {
	Peers     []PeerReport  `json:"peers"`
	Leases    []LeaseReport `json:"leases"`
	Rounds    []Round       `json:"rounds"`
	Reference Reference     `json:"reference"`
	Killed    *Killed       `json:"killed"`
	Receipts  Receipts      `json:"receipts"`
	Payouts   []PayoutLine  `json:"payouts"`
	Tokens    Conservation  `json:"conservation"`
	// Seconds of wall time by stage.
	Seconds map[string]float64 `json:"seconds"`
}

// PeerReport is one peer.
type PeerReport struct {
	Name   string `json:"name"`
	Key    string `json:"key"`
	Owner  string `json:"owner"`
	PID    int    `json:"pid"`
	Killed bool   `json:"killed,omitempty"`
}

// LeaseReport is one lease of the job. Amounts are base units.
type LeaseReport struct {
	Lease    string        `json:"lease"`
	Rank     uint32        `json:"rank"`
	Epoch    uint32        `json:"epoch"`
	Provider string        `json:"provider"`
	Route    string        `json:"route"`
	Receipts int           `json:"receipts"`
	Vouched  market.Amount `json:"vouched"`
	Reason   string        `json:"reason,omitempty"`
}

// Round is one round of training.
type Round struct {
	Round       int     `json:"round"` // counted from 1
	BitsPerByte float64 `json:"bits_per_byte"`
	Seconds     float64 `json:"seconds"`
	Weights     string  `json:"weights"` // CID of the round's output
}

// Reference is what the training is compared with, in bits per held-out byte.
type Reference struct {
	Order0        float64 `json:"order_0"`
	Order1        float64 `json:"order_1"`
	Order2        float64 `json:"order_2"`
	SingleMachine float64 `json:"single_machine"`
	Difference    float64 `json:"difference"` // of the network's model over the single machine's, as a ratio
}

// Killed says which provider was killed, and when.
type Killed struct {
	Name  string `json:"name"`
	Key   string `json:"key"`
	Rank  int    `json:"rank"`
	Round int    `json:"round"` // counted from 0
}

// Receipts sums up what was checked.
type Receipts struct {
	Count        int      `json:"count"`
	Root         string   `json:"root"`
	Anchored     []string `json:"anchored"` // transactions whose memo commits to the root
	LeasesIntact int      `json:"leases_intact"`
}

// PayoutLine is what one owner got. Amounts are base units.
type PayoutLine struct {
	Name         string        `json:"name"`
	Owner        string        `json:"owner"`
	Vouched      market.Amount `json:"vouched"`
	Before       market.Amount `json:"before"`
	After        market.Amount `json:"after"`
	Exact        bool          `json:"exact"` // after − before is what the vouchers say
	Transactions []string      `json:"transactions"`
}

// Conservation says that no token was made or lost. Amounts are base units.
type Conservation struct {
	SupplyBefore market.Amount `json:"supply_before"`
	SupplyAfter  market.Amount `json:"supply_after"`
	HeldBefore   market.Amount `json:"held_before"` // by all owners
	HeldAfter    market.Amount `json:"held_after"`
	BuyerPaid    market.Amount `json:"buyer_paid"`
	Conserved    bool          `json:"conserved"`
}

// ledger looks at the chain without a wallet of its own.
func (d *demo) ledger() (*solana.Ledger, error) {
	return solana.NewReader([]string{d.net.RPC}, d.net.Genesis)
}

// balances reads every owner's tokens.
func (d *demo) balances(ctx context.Context) (map[string]market.Amount, error) {
	l, err := d.ledger()
	if err != nil {
		return nil, err
	}
	out := map[string]market.Amount{}
	for _, p := range d.net.Peers {
		if out[p.Name], err = l.Balance(ctx, p.Owner); err != nil {
			return nil, fmt.Errorf("reading the balance of %s: %w", p.Name, err)
		}
		d.report.Tokens.HeldAfter += out[p.Name]
	}
	if d.report.Tokens.SupplyAfter, err = d.net.Chain().Supply(ctx); err != nil {
		return nil, err
	}
	if d.before == nil {
		d.report.Tokens.HeldBefore, d.report.Tokens.SupplyBefore = d.report.Tokens.HeldAfter, d.report.Tokens.SupplyAfter
		d.report.Tokens.HeldAfter = 0
	}
	return out, nil
}

// verify checks every receipt, the anchors on chain, and every balance.
func (d *demo) verify(ctx context.Context) error {
	d.title("5. Receipts and money")
	accounts, err := d.client.Receipts(ctx, d.job.ID)
	if err != nil {
		return err
	}
	p, err := proof.New(d.net.Genesis, d.job, accounts)
	if err != nil {
		return err
	}
	v, err := p.Check()
	if err != nil {
		return fmt.Errorf("the receipts do not hold: %w", err)
	}
	l, err := d.ledger()
	if err != nil {
		return err
	}
	if err := v.CheckAnchors(ctx, l); err != nil {
		return fmt.Errorf("the receipts do not hold: %w", err)
	}
	d.report.Receipts = Receipts{Count: v.Receipts, Root: v.Root.String(), LeasesIntact: len(v.Leases)}
	for _, tx := range v.Transactions {
		d.report.Receipts.Anchored = append(d.report.Receipts.Anchored, string(tx.ID))
		d.say("   %d receipts of %d leases verified; transaction %.16s… in slot %d anchors their root %s", v.Receipts, len(v.Leases), tx.ID, tx.Slot, v.Root.Short())
	}
	vouched := map[string]market.Amount{}
	for _, a := range accounts {
		vouched[a.Payout.String()] += a.Owed
		d.report.Leases = append(d.report.Leases, LeaseReport{
			Lease: a.Lease.String(), Rank: a.Rank, Epoch: a.Epoch, Provider: d.name(a.Provider.String()), Route: a.Route,
			Receipts: len(a.Receipts), Vouched: a.Owed, Reason: a.Reason,
		})
	}
	return d.money(ctx, vouched)
}

// money compares every balance with what the vouchers say.
func (d *demo) money(ctx context.Context, vouched map[string]market.Amount) error {
	after, err := d.balances(ctx)
	if err != nil {
		return err
	}
	g := d.net.Genesis
	d.say("   %-10s %16s %16s %16s", "", "before", "after", "vouchers say")
	exact := true
	for i, p := range d.net.Peers {
		due := vouched[p.Owner.String()]
		line := PayoutLine{Name: p.Name, Owner: p.Owner.String(), Vouched: due, Before: d.before[p.Name], After: after[p.Name], Transactions: d.job.Transactions}
		note := ""
		if i < len(d.net.Providers()) {
			line.Exact = line.After-line.Before == due
		} else {
			d.report.Tokens.BuyerPaid = line.Before - line.After
			line.Exact = d.report.Tokens.BuyerPaid == d.job.Paid
			note = "  (paid " + g.FormatAmount(d.report.Tokens.BuyerPaid) + ")"
		}
		if d.report.Peers[i].Killed {
			note = "  (killed)"
		}
		exact = exact && line.Exact
		d.report.Payouts = append(d.report.Payouts, line)
		d.say("   %-10s %16s %16s %16s%s", p.Name, g.FormatAmount(line.Before), g.FormatAmount(line.After), g.FormatAmount(due), note)
	}
	t := &d.report.Tokens
	t.Conserved = t.SupplyBefore == t.SupplyAfter && t.HeldBefore == t.HeldAfter && t.HeldAfter == t.SupplyAfter
	d.say("   tokens: %s before, %s after: %s", g.FormatAmount(t.HeldBefore), g.FormatAmount(t.HeldAfter), map[bool]string{true: "conserved", false: "NOT conserved"}[t.Conserved])
	if !exact {
		return fmt.Errorf("somebody was not paid exactly what the vouchers say")
	}
	if !t.Conserved {
		return fmt.Errorf("tokens were not conserved")
	}
	return nil
}

// restart brings the killed provider back on what its journal has: it must offer
// all its units again.
func (d *demo) restart(ctx context.Context) error {
	d.title("7. The killed provider comes back")
	for i, p := range d.net.Providers() {
		if !d.report.Peers[i].Killed {
			continue
		}
		if err := p.Start(ctx); err != nil {
			return err
		}
		c, err := p.Client()
		if err != nil {
			return err
		}
		if err := waitFree(ctx, c); err != nil {
			return fmt.Errorf("%s: %w", p.Name, err)
		}
		d.say("   %s restarted from its journal: its leases are settled, all its units are for sale again", p.Name)
	}
	return nil
}

// finish writes demo.json.
func (d *demo) finish() error {
	b, err := json.MarshalIndent(d.report, "", "  ")
	if err != nil {
		return err
	}
	path := filepath.Join(d.dir, "demo.json")
	if err := os.WriteFile(path, append(b, '\n'), 0o644); err != nil {
		return err
	}
	d.say("\nDone in %.0f s. Everything is in %s", d.report.Seconds["total"], path)
	return nil
}
