package bench

import (
	"fmt"
)

// judgeOrders adds the lines of orders to the table.
func (r *Report) judgeOrders(
	line func(name, unit string, measured float64), held func(name, unit string, measured, limit float64, atLeast bool),
) {
	if r.Direct.Orders == 0 {
		return
	}
	held("order to signed lease, direct, p50", "ms", r.Direct.Signed.P50, 50, false)
	held("order to signed lease, direct, p99", "ms", r.Direct.Signed.P99, 200, false)
	line("order to signed lease, gossip only, p50", "ms", r.Gossip.Signed.P50)
	held("order to signed lease, gossip only, p99", "ms", r.Gossip.Signed.P99, 1000, false)
	for _, o := range []struct {
		name string
		of   RouteReport
	}{{"direct", r.Direct}, {"gossip only", r.Gossip}} {
		line(fmt.Sprintf("order to funded lease, %s, p50", o.name), "ms", o.of.ToLease.P50)
		line(fmt.Sprintf("order to funded lease, %s, p99", o.name), "ms", o.of.ToLease.P99)
	}
	for _, g := range []struct {
		name string
		of   RouteReport
	}{{"direct", r.GangDirect}, {"gossip only", r.GangGossip}} {
		line(fmt.Sprintf("order to %d leases, %s, p50", g.of.Leases, g.name), "ms", g.of.ToLease.P50)
		line(fmt.Sprintf("order to %d leases, %s, p99", g.of.Leases, g.name), "ms", g.of.ToLease.P99)
	}
}

// judge makes the table and the ratios and counts the targets that were missed.
func (r *Report) judge() (missed int) {
	line := func(name, unit string, measured float64) {
		r.Targets = append(r.Targets, Target{Name: name, Unit: unit, Measured: measured})
	}
	held := func(name, unit string, measured, limit float64, atLeast bool) {
		pass := measured <= limit
		if atLeast {
			pass = measured >= limit
		}
		if !pass {
			missed++
		}
		r.Targets = append(r.Targets, Target{Name: name, Unit: unit, Measured: measured, Limit: &limit, AtLeast: atLeast, Pass: &pass})
	}
	r.judgeOrders(line, held)
	for _, s := range r.Simulated {
		what := fmt.Sprintf("order to lease, simulated, %s", s.Name)
		line(what+", p50", "ms", s.P50)
		line(what+", p99", "ms", s.P99)
	}
	for _, s := range r.Starts {
		line(fmt.Sprintf("submit to running, %s, p50", s.Runtime), "ms", s.Submitted.P50)
		if s.First.P50 > 0 {
			line(fmt.Sprintf("the same, %s, with a provider not paid before", s.Runtime), "ms", s.First.P50)
		}
		held(fmt.Sprintf("of that over the bare runtime, %s", s.Runtime), "ms", s.Overhead, 60, false)
	}
	for _, c := range r.Clusters {
		what := fmt.Sprintf("%d members with %s", c.Members, c.Engine)
		line(what+", order to all of them seen, p50", "s", c.Submitted.P50/1000)
		line("of that, until all programs run, p50", "s", c.Running.P50/1000)
		line("as many plain containers with the same commands, p50", "s", c.Bare.P50/1000)
		held(what+", more than plain containers need", "s", c.Overhead/1000, 3, false)
	}
	for _, c := range r.Cores {
		if c.Limit == 0 {
			line(c.What, c.Unit, c.Measured)
		} else {
			held(c.What, c.Unit, c.Measured, c.Limit, c.AtLeast)
		}
	}
	if c := r.Chain; c.Leases > 0 {
		line(fmt.Sprintf("escrow of %d leases, transactions", c.Leases), "", float64(c.Open.Transactions))
		line("of these, bytes", "", float64(c.Open.Bytes))
		line("fees of opening and closing it", "lamports", float64(c.Open.Fees+c.Close.Fees))
		line("rent while it is open", "lamports", float64(c.Open.Rent))
		held("of that, what came back", "", c.Recovered, 1, true)
		line("fee of a claim", "lamports", ratio(float64(c.Claims.Fees), float64(c.Claims.Transactions)))
		line("claims on the local chain", "1/s", c.ClaimsPerSec)
		line("processor for each, who claims", "ms", c.ClaimCPU)
		line("processor for each, the local chain", "ms", c.ClaimChain)
		for _, a := range c.Anchors {
			line(fmt.Sprintf("anchored receipt, %d to an anchor, all fees", a.Receipts), "lamports", a.PerReceipt)
			line(fmt.Sprintf("rent for it while the anchor of %d stays", a.Receipts), "lamports", a.Rent)
		}
	}
	if r.Idle.Peers > 0 {
		line("idle peer, resident memory, median", "MB", r.Idle.RSS.P50)
		held("idle peer, resident memory, largest", "MB", r.Idle.RSS.Max, 80, false)
		line("idle peer, processor, median", "% of a core", r.Idle.CPUPercent.P50)
		held("idle peer, processor, largest", "% of a core", r.Idle.CPUPercent.Max, 1, false)
	}
	r.Ratios = map[string]float64{
		"gossip_p50_over_direct_p50":      ratio(r.Gossip.ToLease.P50, r.Direct.ToLease.P50),
		"direct_p99_over_p50":             ratio(r.Direct.ToLease.P99, r.Direct.ToLease.P50),
		"gossip_p99_over_p50":             ratio(r.Gossip.ToLease.P99, r.Gossip.ToLease.P50),
		"five_leases_p50_over_one_direct": ratio(r.GangDirect.ToLease.P50, r.Direct.ToLease.P50),
		"five_leases_p50_over_one_gossip": ratio(r.GangGossip.ToLease.P50, r.Gossip.ToLease.P50),
	}
	return missed
}
