// Package money is a peer's view of its own money, on a network with a token: earnings from escrows, payments for its
// jobs, and the funds that it may spend.
package money

import (
	"context"
	"maps"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/starling-network/starling/chain"
	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/node/api"
	"github.com/starling-network/starling/node/buyer/guardian/wards"
	"github.com/starling-network/starling/node/buyer/record"
	"github.com/starling-network/starling/node/money/wages"
	"github.com/starling-network/starling/node/settle"
)

const (
	// fundsEvery is the minimum interval between reads of the chain by metrics.
	fundsEvery = 15 * time.Second
	// fundsTimeout bounds one such request.
	fundsTimeout = 2 * time.Second
)

// Funds reads the peer's funds from the chain.
type Funds interface {
	Funds(ctx context.Context) (chain.Funds, error)
}

// Buyer is the payments for the peer's own jobs.
type Buyer interface {
	Totals() record.Totals
}

// Seller is the peer's earnings from its leases.
type Seller interface {
	Accounts() map[market.LeaseID]settle.Account
}

// Money is a service that claims the peer's wages and measures its money.
type Money struct {
	chain    Funds
	buyer    Buyer
	seller   Seller       // nil if the peer sells nothing
	wages    *wages.Wages // nil if it guards nothing
	decimals uint8

	mu    sync.Mutex
	at    time.Time // of the last request
	funds chain.Funds
	err   error
}

// New returns the Money of a peer on a network with a token of decimals decimals. The seller is optional.
func New(chain Funds, b Buyer, s Seller, decimals uint8) *Money {
	return &Money{chain: chain, buyer: b, seller: s, decimals: decimals}
}

// Guarding is the configuration of Guards.
type Guarding = wages.Config

// Guards has a peer that guards others' jobs claim its wages. It is called before Run.
func (m *Money) Guards(ctx context.Context, cfg Guarding) (err error) {
	m.wages, err = wages.New(ctx, cfg)
	return err
}

// Wages returns the wages for guarding jobs, by job, also of jobs that ended long ago.
func (m *Money) Wages() map[sign.Hash]settle.Account {
	if m == nil || m.wages == nil {
		return nil
	}
	return m.wages.Accounts()
}

// Backed returns nil if this peer's wage for a job that it guards is on chain, at the place in the job's state.
func (m *Money) Backed(ctx context.Context, w wards.Ward, state []byte) error {
	return m.wages.Backed(ctx, w, state)
}

// Name implements service.Service.
func (*Money) Name() string { return "money" }

// Run claims wages until ctx ends.
func (m *Money) Run(ctx context.Context) error {
	if m.wages != nil {
		return m.wages.Run(ctx)
	}
	<-ctx.Done()
	return nil
}

// Inform adds funds and earnings to the description of the peer.
func (m *Money) Inform(ctx context.Context, info *api.NodeInfo) {
	if f, err := m.chain.Funds(ctx); err == nil {
		info.Funds = &f
	}
	if e := m.earnings(); m.seller != nil || e != (api.Earnings{}) {
		info.Earnings = &e
	}
}

// earnings sums up the earnings from escrows, for leases and for guarding.
func (m *Money) earnings() (out api.Earnings) {
	accounts := slices.Collect(maps.Values(m.Wages()))
	for _, a := range accounts {
		out.Wages += a.Claimed
	}
	if m.seller != nil {
		accounts = slices.AppendSeq(accounts, maps.Values(m.seller.Accounts()))
	}
	for _, a := range accounts {
		out.Earned, out.Claimed, out.Lost = out.Earned+a.Owed, out.Claimed+a.Claimed, out.Lost+a.Lost
	}
	out.Unclaimed = out.Earned - min(out.Earned, out.Claimed+out.Lost)
	return out
}

// look returns the funds, at most fundsEvery old. It reads them from the chain if they are older.
func (m *Money) look() (chain.Funds, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if now := time.Now(); m.at.IsZero() || now.Sub(m.at) >= fundsEvery {
		ctx, cancel := context.WithTimeout(context.Background(), fundsTimeout)
		defer cancel()
		m.at = now
		m.funds, m.err = m.chain.Funds(ctx)
	}
	return m.funds, m.err
}

func desc(name, help string) *prometheus.Desc {
	return prometheus.NewDesc("starling_"+name, help, nil, nil)
}

var (
	descEarned    = desc("earned_tokens_total", "Tokens that vouchers for this peer's leases and wages promise.")
	descClaimed   = desc("claimed_tokens_total", "Earned tokens claimed on chain, before the network's fee.")
	descLost      = desc("lost_tokens_total", "Earned tokens that can never be claimed.")
	descUnclaimed = desc("unclaimed_tokens", "Earned tokens that are not claimed yet.")
	descPaid      = desc("paid_tokens_total", "Tokens paid for this peer's own jobs, with the network's fees.")
	descEscrowed  = desc("escrowed_tokens", "Tokens in escrows for this peer's own jobs.")
	descFees      = desc("fees_sol_total", "SOL that the transactions of this peer's own jobs took in fees, about.")
	descBalance   = desc("balance_tokens", "Tokens that the owner holds.")
	descSpendable = desc("spendable_tokens", "Tokens that this peer may spend of them.")
	descSOL       = desc("fee_balance_sol", "SOL that the peer's key holds for fees and rent.")
)

// Describe implements prometheus.Collector.
func (*Money) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{
		descEarned, descClaimed, descLost, descUnclaimed, descPaid, descEscrowed, descFees,
		descBalance, descSpendable, descSOL,
	} {
		ch <- d
	}
}

// Collect implements prometheus.Collector.
func (m *Money) Collect(ch chan<- prometheus.Metric) {
	send := func(d *prometheus.Desc, kind prometheus.ValueType, v float64) {
		ch <- prometheus.MustNewConstMetric(d, kind, v)
	}
	if e := m.earnings(); m.seller != nil || e != (api.Earnings{}) {
		send(descEarned, prometheus.CounterValue, m.tokens(e.Earned))
		send(descClaimed, prometheus.CounterValue, m.tokens(e.Claimed))
		send(descLost, prometheus.CounterValue, m.tokens(e.Lost))
		send(descUnclaimed, prometheus.GaugeValue, m.tokens(e.Unclaimed))
	}
	t := m.buyer.Totals()
	send(descPaid, prometheus.CounterValue, m.tokens(t.Paid))
	send(descEscrowed, prometheus.GaugeValue, m.tokens(t.Held))
	send(descFees, prometheus.CounterValue, sol(t.Fees))
	if f, err := m.look(); err == nil {
		send(descBalance, prometheus.GaugeValue, m.tokens(f.Balance))
		send(descSpendable, prometheus.GaugeValue, m.tokens(f.Spendable))
		send(descSOL, prometheus.GaugeValue, sol(f.Lamports))
	}
}

// tokens is an amount in whole tokens.
func (m *Money) tokens(a market.Amount) float64 { return float64(a) / math.Pow10(int(m.decimals)) }

// sol is an amount of lamports in SOL.
func sol(lamports uint64) float64 { return float64(lamports) / 1e9 }
