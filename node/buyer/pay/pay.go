// Package pay pays for the leases of a peer's jobs: from escrows on the chain, or not at all on a free network.
//
//	Fund ──▸ deposit (journal) ──▸ escrow on chain ──▸ the provider claims by vouchers
//	             │                       │
//	             └ Retire, Unused ──▸ Settle ──▸ refund, anchor of the receipts, rent
//
// Each order has one escrow, which is filled before the order's leases begin. Standbys are hired from the escrow of a
// job that continues without its owner, signed by its guardians. Providers claim the amounts of their vouchers. The
// rest is refunded to the peer.
//
// A deposit and each of its transactions are in the journal before anything is sent. After a crash the next process
// resumes the same transactions: no money is set aside twice, and none is left on chain. Leases with money that was not
// on chain in time are void and cost nothing.
package pay

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/semaphore"

	"github.com/starling-network/starling/chain"
	"github.com/starling-network/starling/chain/escrow"
	"github.com/starling-network/starling/chain/escrow/deposit"
	"github.com/starling-network/starling/chain/program"
	"github.com/starling-network/starling/chain/program/account"
	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/node/buyer/record"
	"github.com/starling-network/starling/node/buyer/trace"
	"github.com/starling-network/starling/node/journal"
	"github.com/starling-network/starling/node/settle"
	"github.com/starling-network/starling/node/store"
	"github.com/starling-network/starling/verify"
)

var (
	// ErrNoPlace is returned for standbys of a job that has no escrow.
	ErrNoPlace = errors.New("the job has no escrow to hire standbys from")
)

// Escrows is the configuration of a buyer that pays from escrows.
type Escrows struct {
	Chain   settle.Chain
	Network *settle.Network
	Params  escrow.Params
	Fees    chain.Fees // limits of the chain's priority fees; zero means chain.DefaultFees
}

// Config is the configuration of Payments. All of it is required.
type Config struct {
	Escrows
	Genesis market.Genesis
	Self    sign.Key
	Owner   sign.Key // owner of the money; Self where the peer spends its own
	Store   journal.Store
	Jobs    Jobs
	Leases  Leases
	Log     *slog.Logger
}

// Jobs has the jobs that are paid for.
type Jobs interface {
	// Guard returns the guard of a job, or nil if the job has no guardians. It returns an error for an unknown job.
	Guard(job string) (*Guard, error)
	// Placed journals the escrow of a guarded job before it is sent to any other peer.
	Placed(ctx context.Context, job string, at Placement) error
	// Witnesses returns the signers of a job's transactions beside this peer: its guardians, where it has some.
	Witnesses(job string) []sign.Signer
	// Waiting returns the accepted jobs that do not run yet.
	Waiting() []Waiting
	// Note adds a step to a job's trace.
	Note(job string, step trace.Step)
}

// Leases has the leases of jobs.
type Leases interface {
	// Of returns the leases of a job that a first voucher was signed for.
	Of(job string) []Lease
	// Together returns the leases of one order of a job by rank, without successors.
	Together(job string, o market.OrderID) []market.LeaseCore
	// Final returns the final receipt of a lease, or nil.
	Final(l market.LeaseID) (*verify.Receipt, error)
	// Void ends leases that cost nothing, because their money was not on chain in time. It does not wait for the
	// journal, and ignores unknown leases.
	Void(leases []market.LeaseID, reason string)
	// Retired notes that a lease's deposit has its end in this process. It ignores unknown leases.
	Retired(l market.LeaseID)
}

// Bill is the bill of a job that is being settled.
type Bill interface {
	// Owed counts the receipts of all leases that are not void.
	Owed(ctx context.Context) (Anchoring, error)
	// Void ends a lease of the bill that costs nothing, and returns once the journal has that.
	Void(ctx context.Context, l market.LeaseID, reason string) error
}

// Lease is one lease of a job, as its payment needs it.
type Lease struct {
	ID      market.LeaseID
	Job     string
	Core    market.LeaseCore
	Keys    market.KeySet // signers of its vouchers
	Escrow  sign.Key      // the escrow that it is paid from; zero before it is funded
	Hired   bool          // its provider was a standby, hired on the guardians' word
	Settled bool          // it costs nothing more
	Retired bool          // its deposit had its end in this process
}

// Guard is the guard of a job that continues without its owner.
type Guard struct {
	Mine     bool     // the job is this peer's own
	Running  bool     // every rank has a lease
	Owner    sign.Key // the peer that submitted the job; its escrow pays
	Key      sign.Key // buyer in the job's leases
	Keys     market.KeySet
	Place    *record.Place // nil before the first order was funded
	Standbys []Standby
	Wages    []market.LeaseCore // of the guardians
}

// GuardOf returns the guarded job of a record, or nil if the job has no guardians.
func GuardOf(j record.Job, mine bool, keys market.KeySet) *Guard {
	d := j.Detached
	if d == nil {
		return nil
	}
	out := &Guard{
		Mine: mine, Running: j.State == record.Running, Owner: d.Owner, Key: d.Key, Keys: keys, Place: d.Escrow,
	}
	for _, sb := range d.Standbys {
		out.Standbys = append(out.Standbys, Standby{
			Provider: sb.Quote.Provider, Payout: sb.Quote.Payout, Price: sb.Quote.Price, Units: j.Spec.Resources.Units,
			Budget: sb.Budget,
		})
	}
	for _, m := range d.Guardians {
		if m.Wage != nil {
			out.Wages = append(out.Wages, *m.Wage)
		}
	}
	return out
}

// Standby is a provider that may be hired for a lost rank.
type Standby struct {
	Provider, Payout sign.Key
	Price            market.Price
	Units            uint32        // of each rank
	Budget           market.Amount // of all its leases
}

// Waiting is a job that was accepted and may have set nothing aside yet.
type Waiting struct {
	Job   string
	Ranks uint32
	Most  market.Amount // the most that it can cost
}

// Placement is the escrow of a guarded job, and the shares of others in it.
type Placement struct {
	record.Place
	Standbys []sign.Key                // with money for them
	Wages    map[market.LeaseID][]byte // encoded escrow.Funding, by the lease that is a guardian's wage
}

// WagesOf returns the encoded funding of each guardian's wage, by the guardian's key.
func (p Placement) WagesOf(guardians []record.Guardian) (map[string][]byte, error) {
	wages := map[string][]byte{}
	for _, g := range guardians {
		if g.Wage == nil {
			continue
		}
		f, ok := p.Wages[g.Wage.ID()]
		if !ok {
			return nil, fmt.Errorf("the wage of guardian %s is not set aside", g.Key.Short())
		}
		wages[g.Key.String()] = f
	}
	return wages, nil
}

// In returns a copy of a job's guardians' part with the place of its money. It is journalled before the place is sent
// to any other peer, including guardians.
func (p Placement) In(d *record.Detached, wages map[string][]byte) *record.Detached {
	d = d.Clone()
	d.Escrow, d.Wages = &p.Place, wages
	d.Standbys = slices.DeleteFunc(slices.Clone(d.Standbys), func(sb record.Standby) bool {
		return !slices.Contains(p.Standbys, sb.Quote.Provider)
	})
	return d
}

// Limits of the program on the standbys of an escrow.
const (
	MaxStandbys      = account.MaxStandbys      // of one escrow
	MaxStandbyLeaves = program.MaxStandbyLeaves // that are hired together
)

// Source is the source of a lease's payments; zero where nothing is paid.
type Source struct {
	Escrow  sign.Key
	Funding []byte // encoded escrow.Funding, for the provider
}

// Records by job and order: a deposit.Deposit, and a deposit.Hire.
var (
	depositTable = settle.Define("deposit")
	hireTable    = settle.Define("hire")
)

// Payments pays from escrows: one for each order, filled before its leases begin.
type Payments struct {
	cfg      Config
	deposits *settle.Keeper[deposit.Deposit]
	hires    *settle.Keeper[deposit.Hire]
	views    *views
	turns    *turns
	till     *till
	anchors  *anchors
}

// New reads the escrows of an earlier process. It starts nothing; Run does.
func New(ctx context.Context, cfg Config) (*Payments, error) {
	x := &Payments{
		cfg: cfg, views: newViews(cfg), turns: &turns{busy: map[string]turn{}}, anchors: &anchors{cfg},
	}
	if err := x.views.load(ctx); err != nil {
		return nil, err
	}
	var err error
	x.deposits, err = settle.NewKeeper(ctx, settle.KeeperConfig[deposit.Deposit]{
		Table: depositTable, Ledger: cfg.Chain, Store: cfg.Store, Owner: deposits{x}, Program: cfg.Genesis.Program,
		Log: cfg.Log,
	})
	if err != nil {
		return nil, err
	}
	x.till = &till{cfg: cfg, deposits: x.deposits, turn: semaphore.NewWeighted(1)}
	x.hires, err = settle.NewKeeper(ctx, settle.KeeperConfig[deposit.Hire]{
		Table: hireTable, Ledger: cfg.Chain, Store: cfg.Store, Owner: hires{x}, Program: cfg.Genesis.Program,
		Log: cfg.Log,
	})
	return x, err
}

// Run carries out deposits and hires until ctx ends.
func (x *Payments) Run(ctx context.Context) {
	var wg sync.WaitGroup
	wg.Go(func() { x.deposits.Run(ctx) })
	wg.Go(func() { x.hires.Run(ctx) })
	wg.Wait()
}

// Escrows returns the escrows of a job, the first one first.
func (x *Payments) Escrows(job string) []record.Escrow { return x.views.of(job) }

// Account returns the token account of the owner if the peer spends another's money, and else zero. Orders name it
// beside the peer's own account.
func (x *Payments) Account() sign.Key { return x.till.account() }

// of lists the deposits of a job.
func (x *Payments) of(job string) []string {
	names := slices.DeleteFunc(x.deposits.Names(), func(n string) bool { return jobOf(n) != job })
	slices.Sort(names)
	return names
}

// nameOf is the name of an order's deposit.
func nameOf(job string, o market.OrderID) string { return job + "/" + o.String() }

// jobOf is the job of a deposit.
func jobOf(name string) string {
	job, _, _ := strings.Cut(name, "/")
	return job
}

// Free pays for nothing: nothing costs anything on a free network.
type Free struct{}

// Afford refuses nothing.
func (Free) Afford(context.Context, string, market.Amount, uint32) error { return nil }

// Account returns zero.
func (Free) Account() sign.Key { return sign.Key{} }

// Lamports returns zero.
func (Free) Lamports(uint32, market.Amount) record.Lamports { return record.Lamports{} }

// Escrows returns none.
func (Free) Escrows(string) []record.Escrow { return nil }

// Fund returns a zero source for each lease.
func (Free) Fund(_ context.Context, _ string, leases []Lease) ([]Source, error) {
	return make([]Source, len(leases)), nil
}

// Retire does nothing.
func (Free) Retire(Lease) {}

// Unused does nothing.
func (Free) Unused(string, market.OrderID) {}

// Forsake does nothing.
func (Free) Forsake(string) {}

// Settle counts the receipts and anchors none.
func (Free) Settle(ctx context.Context, _ string, _ []Lease, bill Bill) (market.Amount, []string, error) {
	_, err := bill.Owed(ctx)
	return 0, nil, err
}

// LetGo forgets nothing.
func (Free) LetGo(string) ([]store.Put, func(bool), bool) { return nil, func(bool) {}, true }

// GiveUp does nothing.
func (Free) GiveUp(string) error { return nil }

// Run does nothing.
func (Free) Run(context.Context) {}

// spareTime is added to twice the time of an order's leases, for successors, before the escrow ends.
const spareTime = time.Hour
