package node

import (
	"context"
	"math"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/starling-network/starling/chain"
	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/node/provider"
)

var (
	descEarned     = desc("earned_tokens_total", "Tokens that vouchers for this peer's leases and wages promise.")
	descClaimed    = desc("claimed_tokens_total", "Tokens of that that were claimed on chain, before the network's fee.")
	descLost       = desc("lost_tokens_total", "Tokens of that that can never be claimed.")
	descUnclaimed  = desc("unclaimed_tokens", "Tokens of that that are still to be claimed.")
	descPaid       = desc("paid_tokens_total", "Tokens that were paid for this peer's own jobs, with the network's fees.")
	descEscrowed   = desc("escrowed_tokens", "Tokens in escrows for this peer's own jobs.")
	descFees       = desc("fees_sol_total", "SOL that the transactions of this peer's own jobs took in fees, about.")
	descBalance    = desc("balance_tokens", "Tokens that the owner holds.")
	descSpendable  = desc("spendable_tokens", "Tokens that this peer may spend of them.")
	descSOL        = desc("fee_balance_sol", "SOL that the peer's key holds for fees and rent.")
	descAsked      = desc("provider_orders_total", "Orders that this peer's provider answered, by answer: quoted, error, or the reason of refusal.", "answer")
	descLeasesOver = desc("leases_ended_total", "Leases of this peer's units that ended, by cause.", "cause")
	descExecOver   = desc("executions_ended_total", "Executions on this peer that ended: ok, exit (another exit code), or why else.", "end")
	descJobsOver   = desc("jobs_ended_total", "Jobs of this peer's user that ended, by outcome.", "outcome")
	descPrice      = desc("offer_price_tokens", "Price of a unit-hour that this peer asks, in tokens.", "class")
	descSelling    = desc("offer_state", "1 for the state of this peer's offers.", "state")
	descRuntime    = desc("runtime", "1 for each runtime that this peer offers.", "runtime")
	descSick       = desc("units_withdrawn", "Units of this peer that are not sold because something is wrong with them.")
	descBlobs      = desc("stored_bytes", "Bytes of files that this peer stores.")
	descsMoney     = []*prometheus.Desc{
		descEarned, descClaimed, descLost, descUnclaimed, descPaid, descEscrowed, descFees, descBalance, descSpendable, descSOL, descAsked,
		descLeasesOver, descExecOver, descJobsOver, descPrice, descSelling, descRuntime, descSick, descBlobs,
	}
)

// fundsEvery bounds how often measuring asks the chain.
const fundsEvery = 15 * time.Second

// fundsSeen is what the chain last said of the peer's funds.
type fundsSeen struct {
	mu    sync.Mutex
	at    time.Time // when it was asked
	funds chain.Funds
	err   error
}

// look returns the funds, which are at most fundsEvery old. It asks the chain if they are older.
func (f *fundsSeen) look(ask func(context.Context) (chain.Funds, error)) (chain.Funds, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if now := time.Now(); f.at.IsZero() || now.Sub(f.at) >= fundsEvery {
		ctx, cancel := context.WithTimeout(context.Background(), infoTimeout)
		defer cancel()
		f.at = now
		f.funds, f.err = ask(ctx)
	}
	return f.funds, f.err
}

// tokens is an amount in whole tokens.
func (g gauges) tokens(a market.Amount) float64 {
	return float64(a) / math.Pow10(int(g.n.p.Genesis.Decimals))
}

// sol is an amount of lamports in SOL.
func sol(lamports uint64) float64 { return float64(lamports) / 1e9 }

// money measures what the peer earned, paid and holds.
func (g gauges) money(ch chan<- prometheus.Metric) {
	set := func(d *prometheus.Desc, kind prometheus.ValueType, v float64) {
		ch <- prometheus.MustNewConstMetric(d, kind, v)
	}
	if e := g.n.earnings(); e != nil {
		set(descEarned, prometheus.CounterValue, g.tokens(e.Earned))
		set(descClaimed, prometheus.CounterValue, g.tokens(e.Claimed))
		set(descLost, prometheus.CounterValue, g.tokens(e.Lost))
		set(descUnclaimed, prometheus.GaugeValue, g.tokens(e.Unclaimed))
	}
	if g.n.p.Program == nil { // a free network
		return
	}
	t := g.n.buyer.Totals()
	set(descPaid, prometheus.CounterValue, g.tokens(t.Paid))
	set(descEscrowed, prometheus.GaugeValue, g.tokens(t.Held))
	set(descFees, prometheus.CounterValue, sol(t.Fees))
	if f, err := g.n.funds.look(g.n.p.Program.Funds); err == nil {
		set(descBalance, prometheus.GaugeValue, g.tokens(f.Balance))
		set(descSpendable, prometheus.GaugeValue, g.tokens(f.Spendable))
		set(descSOL, prometheus.GaugeValue, sol(f.Lamports))
	}
}

// work measures what ended, and why.
func (g gauges) work(ch chan<- prometheus.Metric) {
	count := func(d *prometheus.Desc, v float64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, v, labels...)
	}
	set := func(d *prometheus.Desc, v float64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
	}
	for s, v := range g.n.buyer.States() {
		if s.Ended() {
			count(descJobsOver, float64(v), string(s))
		}
	}
	set(descBlobs, float64(g.n.p.Blobs.Used()))
	if g.n.provider == nil {
		return
	}
	c := g.n.provider.Counts()
	for d, m := range map[*prometheus.Desc]map[string]uint64{descAsked: c.Quotes, descLeasesOver: c.Leases, descExecOver: c.Executions} {
		for k, v := range m {
			count(d, float64(v), k)
		}
	}
	s := g.n.provider.Status()
	for _, state := range provider.OfferStates {
		set(descSelling, truth(s.State == state), state)
	}
	for _, name := range s.Runtimes {
		set(descRuntime, 1, name)
	}
	for _, l := range s.Lots {
		set(descPrice, g.tokens(market.Amount(l.Asked)), string(l.Class))
	}
	set(descSick, float64(len(s.Sick)))
}
