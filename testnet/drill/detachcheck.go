package drill

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/node/api"
	"github.com/starling-network/starling/node/buyer/record"
	"github.com/starling-network/starling/node/config"
)

// back reconnects the laptop through another peer.
func (d *detach) back(ctx context.Context) error {
	back := detachEntry
	for !d.net.Peers[back].Running() {
		back++
	}
	p := d.net.Peers[back]
	entry, err := d.address(ctx, back)
	if err != nil {
		return err
	}
	d.say("\n6. The laptop returns through %s", p.Name)
	if err := d.starling(ctx, nil, "--peer", entry, "ps", "-a"); err != nil {
		return err
	}
	c, err := api.Dial(d.laptop, config.FileAPI)
	if err != nil {
		return err
	}
	for !d.job.State.Ended() {
		if d.job, err = api.GetJob.Call(ctx, c, api.ByID{ID: d.job.ID}); err != nil {
			return err
		}
		if err := pause(ctx, "the job is not settled: "+d.job.Summary()); err != nil {
			return err
		}
	}
	if d.job.State != record.Succeeded {
		return fmt.Errorf("the job %s: %s", d.job.State, d.job.Reason)
	}
	for !d.job.Escrows[0].Closed {
		if d.job, err = api.GetJob.Call(ctx, c, api.ByID{ID: d.job.ID}); err != nil {
			return err
		}
		if err := pause(ctx, "the escrow is not closed: "+d.job.Escrows[0].Waiting); err != nil {
			return err
		}
	}
	results := filepath.Join(d.dir, "detach", "results")
	if err := d.starling(ctx, nil, "get", d.job.ID, results); err != nil {
		return err
	}
	for rank := range detachRanks {
		b, err := os.ReadFile(filepath.Join(results, fmt.Sprint(rank), "out", "result.txt"))
		if err != nil {
			return err
		}
		d.report.Results = append(d.report.Results, strings.TrimSpace(string(b)))
		d.say("   rank %d: %s", rank, d.report.Results[rank])
	}
	return nil
}

// check compares the report with the expected outcome.
func (d *detach) check(ctx context.Context) error {
	accounts, err := d.accounts(ctx)
	if err != nil {
		return err
	}
	d.report.Leases = len(accounts)
	for _, a := range accounts {
		d.report.Receipts += len(a.Receipts)
	}
	for _, e := range d.job.Escrows {
		d.report.Deposited, d.report.Paid, d.report.Refunded = d.report.Deposited+e.Deposited, d.report.Paid+e.Paid,
			d.report.Refunded+e.Refunded
	}
	var w struct {
		Tokens market.Amount `json:"tokens"`
		Own    market.Amount `json:"own"`
	}
	if err := d.starling(ctx, &w, "wallet", "show", "--rpc", d.net.RPC); err != nil {
		return err
	}
	d.report.After = w.Tokens + w.Own
	money := d.net.Genesis.FormatAmount
	d.say("\n7. The money: %s deposited, %s paid for work and guarding, %s refunded; the wallet had %s and has %s",
		money(d.report.Deposited), money(d.report.Paid), money(d.report.Refunded), money(d.report.Before),
		money(d.report.After))
	switch r := d.report; {
	case r.Leases <= detachRanks:
		return fmt.Errorf("the job had %d leases, want more than %d ranks: one for the lost provider",
			r.Leases, detachRanks)
	case len(r.Supervisors) != 2 || r.Supervisors[0] == r.Supervisors[1]:
		return fmt.Errorf("unexpected supervisors of the job: %v", r.Supervisors)
	case r.Deposited != r.Paid+r.Refunded || r.Paid == 0 || r.Before != r.After+r.Paid:
		return fmt.Errorf("money is missing: %d deposited, %d paid, %d refunded; the wallet had %d and has %d",
			r.Deposited, r.Paid, r.Refunded, r.Before, r.After)
	}
	d.say("   %d leases with %d receipts; the wallet paid exactly the claims", d.report.Leases, d.report.Receipts)
	return nil
}

func (d *detach) accounts(ctx context.Context) ([]record.LeaseAccount, error) {
	c, err := api.Dial(d.laptop, config.FileAPI)
	if err != nil {
		return nil, err
	}
	return api.JobReceipts.Call(ctx, c, api.ByID{ID: d.job.ID})
}
