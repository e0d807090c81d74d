// Package orders orders leases for the ranks of a job: all of an order or none.
//
// An order is journalled and published on the market. A provider is chosen for each rank among the quotes, and a gang
// takes their leases. A job with guardians is completed from its standbys instead, by the quotes that its first order
// brought. A quotation is an order for which nothing is reserved.
package orders

import (
	"context"
	"log/slog"
	"time"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/node/buyer/exchange"
	"github.com/starling-network/starling/node/buyer/gangs"
	"github.com/starling-network/starling/node/buyer/leases"
	"github.com/starling-network/starling/node/buyer/record"
	"github.com/starling-network/starling/node/buyer/run"
	"github.com/starling-network/starling/node/buyer/selection"
	"github.com/starling-network/starling/node/store"
	"github.com/starling-network/starling/p2p"
)

// Config is the surroundings of the orders of all jobs. All of it is required.
type Config struct {
	Host     *p2p.Host
	Genesis  market.Genesis
	Key      sign.Signer
	Store    store.Store
	Clock    run.Clock
	Secret   [32]byte // the peer's own
	Weights  exchange.Weights
	FundTime time.Duration // to set money aside
	Exchange *exchange.Exchange
	Leases   *leases.Book
	Wallet   Wallet
	Money    gangs.Money
	Limits   selection.Limits
	Replicas selection.Replicas
	Tasks    leases.Tasks
	Log      *slog.Logger
}

// Office writes the orders of a peer.
type Office struct {
	Config
	selector *selection.Selector // chooses among quotes
	former   *gangs.Former       // takes the leases of an order
}

// Open returns the office of a peer.
func Open(cfg Config) *Office {
	return &Office{
		Config: cfg,
		selector: selection.New(selection.Config{
			Host: cfg.Host, Genesis: cfg.Genesis, Weights: cfg.Weights, Exchange: cfg.Exchange, Limits: cfg.Limits,
			Replicas: cfg.Replicas,
		}),
		former: gangs.New(gangs.Config{
			Host: cfg.Host, Genesis: cfg.Genesis, Secret: cfg.Secret, FundTime: cfg.FundTime, Clock: cfg.Clock,
			Market: cfg.Exchange, Leases: cfg.Leases, Money: cfg.Money, Tasks: cfg.Tasks, Log: cfg.Log,
		}),
	}
}

// Wallet is the money that pays for jobs.
type Wallet interface {
	// Account returns the account that orders name beside the peer's own, or zero if there is no other.
	Account() sign.Key
	// Afford returns an error if the wallet cannot pay need, the most that the job can cost, with that many leases at a
	// time. The job is empty for a new job.
	Afford(ctx context.Context, job string, need market.Amount, leases uint32) error
	// Lamports estimates the SOL for a job of a number of ranks, with stake set aside.
	Lamports(ranks uint32, stake market.Amount) record.Lamports
}

// Paths are the measured paths between the members of a cluster.
type Paths interface {
	// Formed reports the leases of a gang of members with the paths between them.
	Formed(ev run.Event, g *gangs.Gang)
}
