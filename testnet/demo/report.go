package demo

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/starling-network/starling/chain"
	"github.com/starling-network/starling/chain/program"
	"github.com/starling-network/starling/chain/program/account"
	"github.com/starling-network/starling/chain/solana"
	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/node/api"
	"github.com/starling-network/starling/node/buyer"
	"github.com/starling-network/starling/node/proof"
	"github.com/starling-network/starling/node/proof/jobproof"
	"github.com/starling-network/starling/testnet"
)

// Report is the result of a demonstration, as demo.json.
type Report struct {
	Peers     []testnet.PeerReport `json:"peers"`
	Leases    []LeaseReport        `json:"leases"`
	Rounds    []Round              `json:"rounds"`
	Reference Reference            `json:"reference"`
	Killed    *Killed              `json:"killed"`
	Receipts  Receipts             `json:"receipts"`
	Escrows   []buyer.Escrow       `json:"escrows"` // the job's first escrow, then one for each replacement
	Payouts   []PayoutLine         `json:"payouts"`
	Tokens    Conservation         `json:"conservation"`
	// Seconds of wall time by stage.
	Seconds map[string]float64 `json:"seconds"`
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

// Reference is the reference for the training, in bits per held-out byte.
type Reference struct {
	Order0        float64 `json:"order_0"`
	Order1        float64 `json:"order_1"`
	Order2        float64 `json:"order_2"`
	SingleMachine float64 `json:"single_machine"`
	Difference    float64 `json:"difference"` // of the network's model over the single machine's, as a ratio
}

// Killed is the killed provider and the time of its end.
type Killed struct {
	Name  string `json:"name"`
	Key   string `json:"key"`
	Rank  int    `json:"rank"`
	Round int    `json:"round"` // counted from 0
}

// Receipts sums up the checked receipts.
type Receipts struct {
	Count    int      `json:"count"`
	Root     string   `json:"root"`
	Anchored []string `json:"anchored"` // transactions in which the program stored the root
	// transaction in which the program proved the last receipt under the root
	Proven       string `json:"proven"`
	LeasesIntact int    `json:"leases_intact"`
}

// PayoutLine is one owner's payout. Amounts are base units.
type PayoutLine struct {
	Name    string        `json:"name"`
	Owner   string        `json:"owner"`
	Vouched market.Amount `json:"vouched"`
	Before  market.Amount `json:"before"`
	After   market.Amount `json:"after"`
	Fees    market.Amount `json:"fees"` // of its claims
	// whether after − before is the vouchers' amount less the fee; for a killed provider, at most that
	Exact        bool     `json:"exact"`
	Transactions []string `json:"transactions"`
}

// Conservation shows that the total number of tokens stayed the same. Amounts are base units.
type Conservation struct {
	SupplyBefore market.Amount `json:"supply_before"`
	SupplyAfter  market.Amount `json:"supply_after"`
	HeldBefore   market.Amount `json:"held_before"` // by all owners
	HeldAfter    market.Amount `json:"held_after"`
	Emission     market.Amount `json:"emission"` // unpaid emission, before and after
	BuyerPaid    market.Amount `json:"buyer_paid"`
	Fees         market.Amount `json:"fees"`   // of all claims: burned, or of the verifiers' pool and the treasury
	Burned       market.Amount `json:"burned"` // part of Fees
	Conserved    bool          `json:"conserved"`
}

// held is the balance of a peer's owner, and the part of it in the peer's own account.
func held(ctx context.Context, l chain.Ledger, p *testnet.Peer) (market.Amount, error) {
	owner, err := l.Balance(ctx, p.Owner)
	if err != nil || p.Owner == p.Key {
		return owner, err
	}
	own, err := l.Balance(ctx, p.Key)
	return owner + own, err
}

// balances reads every owner's tokens.
func (d *demo) balances(ctx context.Context) (map[string]market.Amount, error) {
	l, err := d.net.Ledger()
	if err != nil {
		return nil, err
	}
	out := map[string]market.Amount{}
	for _, p := range d.net.Peers {
		if out[p.Name], err = held(ctx, l, p); err != nil {
			return nil, fmt.Errorf("reading the balance of %s: %w", p.Name, err)
		}
		d.report.Tokens.HeldAfter += out[p.Name]
	}
	if d.report.Tokens.SupplyAfter, err = d.net.Chain().Supply(ctx); err != nil {
		return nil, err
	}
	emission, err := l.Holds(ctx, account.EmissionAddress(d.net.Genesis.Program, d.net.Genesis.Escrow))
	if err != nil {
		return nil, fmt.Errorf("reading the emission's balance: %w", err)
	}
	if d.before != nil && d.report.Tokens.Emission != market.Amount(emission) {
		return nil, fmt.Errorf("the emission's balance changed from %d to %d, want no rewards",
			d.report.Tokens.Emission, emission)
	}
	if d.before == nil {
		d.report.Tokens.Emission = market.Amount(emission)
		t := &d.report.Tokens
		t.HeldBefore, t.SupplyBefore = t.HeldAfter, t.SupplyAfter
		d.report.Tokens.HeldAfter = 0
	}
	return out, nil
}

// verify checks every receipt, the anchors on chain, and every balance.
func (d *demo) verify(ctx context.Context) error {
	d.title("5. Receipts and money")
	accounts, err := api.JobReceipts.Call(ctx, d.client, api.ByID{ID: d.job.ID})
	if err != nil {
		return err
	}
	p, err := jobproof.Receipts(d.job, accounts)
	if err != nil {
		return err
	}
	v, err := p.Verify(d.net.Genesis)
	if err != nil {
		return fmt.Errorf("invalid receipts: %w", err)
	}
	l, err := d.net.Ledger()
	if err != nil {
		return err
	}
	if err := v.CheckAnchors(ctx, l); err != nil {
		return fmt.Errorf("invalid receipts: %w", err)
	}
	d.report.Receipts = Receipts{Count: v.Receipts, Root: v.Root.String(), LeasesIntact: len(v.Leases)}
	for _, tx := range v.Transactions {
		d.report.Receipts.Anchored = append(d.report.Receipts.Anchored, string(tx.ID))
		d.say("   %d receipts of %d leases verified; "+
			"transaction %.16s… in slot %d stored their root %s",
			v.Receipts, len(v.Leases), tx.ID, tx.Slot, v.Root.Short())
	}
	if err := d.prove(ctx, p, v); err != nil {
		return err
	}
	if err := d.escrows(ctx); err != nil {
		return err
	}
	terms, err := d.terms(ctx)
	if err != nil {
		return err
	}
	vouched, fees := map[string]market.Amount{}, map[string]market.Amount{}
	for _, a := range accounts {
		vouched[a.Payout.String()] += a.Owed
		fees[a.Payout.String()] += (a.Owed*market.Amount(terms.FeeBps) + 9999) / 10000
		d.report.Leases = append(d.report.Leases, LeaseReport{
			Lease: a.Lease.String(), Rank: a.Rank, Epoch: a.Epoch, Provider: d.name(a.Provider.String()),
			Route: a.Route, Receipts: len(a.Receipts), Vouched: a.Owed, Reason: a.Reason,
		})
	}
	return d.money(ctx, vouched, fees)
}

// prove has the program prove that the job's last receipt is under the root. It anchors the root again for that, and
// closes the anchor.
func (d *demo) prove(ctx context.Context, p proof.Receipts, v proof.Verdict) error {
	hashes := p.Hashes()
	if len(v.Transactions) != 1 || len(hashes) != v.Receipts {
		return fmt.Errorf("the receipts' root was not anchored: %+v", v.Transactions)
	}
	key := d.net.Chain().Faucet()
	l, err := solana.New(solana.ConfigOf([]string{d.net.RPC}, d.net.Genesis, key))
	if err != nil {
		return err
	}
	at, last := d.net.Genesis.Program, len(hashes)-1
	anchor := program.Anchor{Authority: key.Key(), Anchor: account.AnchorAddress(at, key.Key(), v.Root), Root: v.Root,
		Count: uint64(len(hashes))}
	call := program.Prove{Anchor: anchor.Anchor, Receipt: hashes[last], Index: uint64(last),
		Path: chain.ProofOf(hashes, last)}
	end := program.CloseAnchor{Authority: anchor.Authority, Anchor: anchor.Anchor}
	tx, err := l.Run(ctx, program.Instructions(at, anchor, call, end))
	if err != nil {
		return fmt.Errorf("proving receipt %d: %w", last, err)
	}
	d.report.Receipts.Proven = string(tx)
	d.say("   receipt %d of %d is under it: the program checked the path, in transaction %.16s…",
		len(hashes), len(hashes), tx)
	return nil
}

// closeTime bounds the wait for the last claims and the closing of the escrows.
const closeTime = time.Minute

// escrows waits until all of the job's accounts on chain are closed, and reports its money.
func (d *demo) escrows(ctx context.Context) (err error) {
	ctx, cancel := context.WithTimeout(ctx, closeTime)
	defer cancel()
	open := func(e buyer.Escrow) bool { return !e.Closed }
	for slices.ContainsFunc(d.job.Escrows, open) {
		select {
		case <-ctx.Done():
			return fmt.Errorf("the job's escrows are not closed after %v: %+v", closeTime, d.job.Escrows)
		case <-time.After(200 * time.Millisecond):
		}
		if d.job, err = api.GetJob.Call(ctx, d.client, api.ByID{ID: d.job.ID}); err != nil {
			return err
		}
	}
	g := d.net.Genesis
	for _, e := range d.job.Escrows {
		d.report.Tokens.Fees += e.Fees
		d.say("   escrow %.8s…: %s deposited, %s claimed (%s of it fees), "+
			"%s refunded, closed with its rent back; %d transactions",
			e.Address, g.FormatAmount(e.Deposited), g.FormatAmount(e.Paid), g.FormatAmount(e.Fees),
			g.FormatAmount(e.Refunded), len(e.Transactions))
		for _, tx := range e.Transactions {
			d.say("      %.16s… %s", tx.Tx, strings.Join(tx.Calls, " "))
		}
	}
	d.report.Escrows = d.job.Escrows
	return nil
}

// terms are the network's fees on claims.
func (d *demo) terms(ctx context.Context) (account.MintTerms, error) {
	l, err := d.net.Ledger()
	if err != nil {
		return account.MintTerms{}, err
	}
	n, err := l.Network(ctx)
	if err != nil {
		return account.MintTerms{}, err
	}
	return n.Terms(0), nil
}

// money compares every balance with the vouchers.
func (d *demo) money(ctx context.Context, vouched, fees map[string]market.Amount) error {
	after, err := d.balances(ctx)
	if err != nil {
		return err
	}
	g := d.net.Genesis
	d.say("   %-10s %16s %16s %16s", "", "before", "after", "vouchers")
	exact := true
	for i, p := range d.net.Peers {
		due, fee := vouched[p.Owner.String()], fees[p.Owner.String()]
		line := PayoutLine{Name: p.Name, Owner: p.Owner.String(), Vouched: due, Before: d.before[p.Name],
			After: after[p.Name], Fees: fee, Transactions: d.job.Transactions}
		note := ""
		if i < len(d.net.Providers()) {
			line.Exact = line.After-line.Before == due-fee ||
				d.report.Peers[i].Killed && line.After-line.Before <= due-fee
		} else {
			d.report.Tokens.BuyerPaid = line.Before - line.After
			line.Exact = d.report.Tokens.BuyerPaid == d.job.Paid
			note = "  (paid " + g.FormatAmount(d.report.Tokens.BuyerPaid) + ")"
		}
		if d.report.Peers[i].Killed {
			note = "  (killed; unclaimed amounts were refunded)"
		}
		exact = exact && line.Exact
		d.report.Payouts = append(d.report.Payouts, line)
		d.say("   %-10s %16s %16s %16s%s",
			p.Name, g.FormatAmount(line.Before), g.FormatAmount(line.After), g.FormatAmount(due), note)
	}
	t := &d.report.Tokens
	t.Burned = t.SupplyBefore - t.SupplyAfter
	t.Conserved = t.HeldBefore+t.Emission == t.SupplyBefore && t.HeldAfter+t.Fees == t.HeldBefore && t.Burned > 0 &&
		t.Burned <= t.Fees
	d.say("   tokens: %s before; %s after and %s of fees, "+
		"of which %s were burned and %s went to the pool and the treasury: %s",
		g.FormatAmount(t.HeldBefore), g.FormatAmount(t.HeldAfter), g.FormatAmount(t.Fees), g.FormatAmount(t.Burned),
		g.FormatAmount(t.Fees-min(t.Fees, t.Burned)),
		map[bool]string{true: "conserved", false: "NOT conserved"}[t.Conserved])
	if !exact {
		return fmt.Errorf("a payment differs from its vouchers")
	}
	if !t.Conserved {
		return fmt.Errorf("tokens were not conserved")
	}
	return nil
}

// restart starts the killed provider again on its journal. It must offer all its units again.
func (d *demo) restart(ctx context.Context) error {
	d.title("7. The killed provider restarts")
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
		if err := testnet.WaitFree(ctx, c); err != nil {
			return fmt.Errorf("%s: %w", p.Name, err)
		}
		d.say("   %s restarted from its journal: its leases are settled, all its units are for sale again", p.Name)
	}
	return nil
}

// finish writes demo.json.
func (d *demo) finish() error {
	path := filepath.Join(d.dir, "demo.json")
	if err := testnet.WriteReport(path, d.report); err != nil {
		return err
	}
	d.say("\nDone in %.0f s. The output is in %s", d.report.Seconds["total"], path)
	return nil
}
