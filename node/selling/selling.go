// Package selling is the room of a peer that sells: the provider's loop, the operator's view of its offers and leases,
// and their metrics.
package selling

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"math"
	"net/http"
	"slices"

	"github.com/ipfs/go-cid"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/node/api"
	"github.com/starling-network/starling/node/inventory"
	"github.com/starling-network/starling/node/provider"
	"github.com/starling-network/starling/node/runtime"
	"github.com/starling-network/starling/node/service"
	"github.com/starling-network/starling/node/settle"
)

// Seller is the service of a peer that sells.
type Seller struct {
	provider *provider.Provider
	gpus     *inventory.GPUs
	decimals uint8
}

// New returns the seller of a provider, for tokens with a number of decimals.
func New(p *provider.Provider, gpus *inventory.GPUs, decimals uint8) *Seller {
	return &Seller{provider: p, gpus: gpus, decimals: decimals}
}

// Name implements service.Service.
func (*Seller) Name() string { return "provider" }

// Run sells until ctx ends.
func (s *Seller) Run(ctx context.Context) error { return s.provider.Run(ctx) }

// Health implements service.Health. It returns a problem while fees cannot be paid, containers cannot be started, or
// units are withdrawn.
func (s *Seller) Health() *service.Problem {
	var all service.Problem
	add := func(text, remedy string) {
		if all.Problem != "" {
			all.Problem, all.Remedy = all.Problem+". "+text, all.Remedy+". "+remedy
			return
		}
		all.Problem, all.Remedy = text, remedy
	}
	now := s.provider.Status()
	if now.Reason != "" {
		add("nothing is sold: "+now.Reason, "send SOL to the peer's key, which starling peer status shows")
	}
	if err := s.provider.Engine(context.Background()); err != nil {
		add(fmt.Sprintf("orders are refused, nothing can be started: %s", market.Clean(err.Error(), maxText)),
			"start the container engine, for example by systemctl start docker")
	}
	if n := len(now.Sick); n > 0 {
		first := now.Sick[0]
		add(fmt.Sprintf("%d units are withdrawn from sale, %s first: %s", n, first.Unit.Serial, first.Reason),
			"see starling provider status, repair them, then sell them again by starling provider resume DEVICE")
	}
	if all.Problem == "" {
		return nil
	}
	return &all
}

// maxText bounds the part of an engine's error that is quoted, bytes.
const maxText = 400

// Blobs returns the files that leases need.
func (s *Seller) Blobs() (map[cid.Cid]bool, error) { return s.provider.Blobs(), nil }

// Inform adds the units to the peer's description.
func (s *Seller) Inform(_ context.Context, info *api.NodeInfo) {
	info.Units, info.FreeUnits = s.provider.Units()
	info.Inventory = s.provider.Inventory()
}

// Leases lists the leases of this peer's units, then those that the book has forgotten and that escrows paid for.
func (s *Seller) Leases() []api.SoldLease {
	out := []api.SoldLease{}
	accounts := s.provider.Accounts()
	for _, sold := range s.provider.Sold() {
		r, paid := sold.Record, accounts[sold.Record.Lease]
		delete(accounts, r.Lease)
		out = append(out, api.SoldLease{
			Lease: r.Lease, Hold: r.ID.String(), Buyer: r.Buyer, State: r.State.String(), Units: len(r.Units),
			Rank: r.Rank, Class: r.Class, Model: sold.Lot.Model, Simulated: sold.Lot.Simulated,
			Receipts: sold.Receipts, Earned: sold.Earned, Reason: r.EndReason,
			Escrow: r.Escrow, Unfunded: r.FundBy > 0, Claimed: paid.Claimed, Lost: paid.Lost,
		})
	}
	return append(out, past(accounts)...)
}

// maxPast bounds the listed leases that the book has forgotten.
const maxPast = 100

// past lists the leases of accounts, the newest first.
func past(accounts map[market.LeaseID]settle.Account) []api.SoldLease {
	all := slices.SortedFunc(maps.Values(accounts), func(a, b settle.Account) int {
		return cmp.Compare(b.Lease.Start, a.Lease.Start)
	})
	out := []api.SoldLease{}
	for _, a := range all[:min(len(all), maxPast)] {
		out = append(out, api.SoldLease{
			Lease: a.Lease.ID(), Buyer: a.Lease.Buyer, Rank: a.Lease.Rank, Units: int(a.Lease.Units),
			State: api.LeasePast, Earned: a.Owed, Claimed: a.Claimed, Lost: a.Lost,
		})
	}
	return out
}

func desc(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc("starling_"+name, help, labels, nil)
}

var (
	descOffers     = desc("offers", "Offers of this peer that are out, one for each class.")
	descUnits      = desc("units", "Units of this peer's offers.", "state")
	descLeases     = desc("leases", "Holds and leases of this peer's units, by state.", "state")
	descExecutions = desc("cluster_executions", "Executions of this peer that are members of a cluster now.")
	descAsked      = desc("provider_orders_total",
		"Orders that this peer's provider answered, by answer: quoted, error, or the reason of refusal.", "answer")
	descLeasesOver = desc("leases_ended_total", "Leases of this peer's units that ended, by cause.", "cause")
	descExecOver   = desc("executions_ended_total",
		"Executions on this peer that ended: ok, exit (another exit code), or why else.", "end")
	descPrice   = desc("offer_price_tokens", "Price of a unit-hour of this peer, in tokens.", "class")
	descState   = desc("offer_state", "1 for the state of this peer's offers.", "state")
	descRuntime = desc("runtime", "1 for each runtime that this peer offers.", "runtime")
	descSick    = desc("units_withdrawn", "Units of this peer that are not sold because something is wrong with them.")
)

// Describe implements prometheus.Collector.
func (*Seller) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{
		descOffers, descUnits, descLeases, descExecutions, descAsked, descLeasesOver, descExecOver, descPrice,
		descState, descRuntime, descSick,
	} {
		ch <- d
	}
}

// Collect implements prometheus.Collector.
func (s *Seller) Collect(ch chan<- prometheus.Metric) {
	set := func(d *prometheus.Desc, v float64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
	}
	total, free := s.provider.Units()
	set(descUnits, float64(free), "free")
	set(descUnits, float64(total-free), "taken")
	leases := map[string]int{}
	for _, sold := range s.provider.Sold() {
		leases[sold.Record.State.String()]++
	}
	for state, n := range leases {
		set(descLeases, float64(n), state)
	}
	set(descOffers, float64(s.provider.Out()))
	set(descExecutions, float64(s.provider.Members()))
	c := s.provider.Counts()
	for d, m := range map[*prometheus.Desc]map[string]uint64{
		descAsked: c.Quotes, descLeasesOver: c.Leases, descExecOver: c.Executions,
	} {
		for label, v := range m {
			ch <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, float64(v), label)
		}
	}
	now := s.provider.Status()
	for _, state := range provider.OfferStates {
		v := 0.0
		if now.State == state {
			v = 1
		}
		set(descState, v, state)
	}
	for _, name := range now.Runtimes {
		set(descRuntime, 1, name)
	}
	for _, l := range now.Lots {
		set(descPrice, float64(l.Asked)/math.Pow10(int(s.decimals)), string(l.Class))
	}
	set(descSick, float64(len(now.Sick)))
}

// None is the operator's view of a peer that sells nothing.
type None struct{}

func (None) err() error {
	return &api.Error{
		Status: http.StatusConflict, Code: "sells_nothing", Message: "this peer sells nothing",
		Hint: "set provide.enabled and a price in config.yaml, and start the peer again",
	}
}

// OwnOffers returns the error of a peer that does not sell.
func (n None) OwnOffers() (api.OwnOffers, error) { return api.OwnOffers{}, n.err() }

// PauseOffers returns the error of a peer that does not sell.
func (n None) PauseOffers(context.Context, bool) error { return n.err() }

// ResumeOffers returns the error of a peer that does not sell.
func (n None) ResumeOffers(context.Context, []string) error { return n.err() }

// PriceOffer returns the error of a peer that does not sell.
func (n None) PriceOffer(context.Context, market.Class, market.Price) error { return n.err() }

// Images returns none.
func (None) Images(context.Context) ([]api.ImageInfo, error) { return []api.ImageInfo{}, nil }

// RemoveImage returns runtime.ErrNoImage.
func (None) RemoveImage(context.Context, string) error { return runtime.ErrNoImage }

// Leases returns none.
func (None) Leases() []api.SoldLease { return []api.SoldLease{} }
