package pay

import (
	"context"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/node/buyer/record"
	"github.com/starling-network/starling/node/store"
)

// Service pays for leases: Payments, or Free on a free network.
type Service interface {
	Budget
	Deposits
	Closing
}

// Budget shows the money of jobs.
type Budget interface {
	// Afford returns an error that wraps ErrFunds if the wallet cannot pay need, the most that the job can cost, with
	// that many leases at a time. If the chain does not answer, it returns nil. The job is empty for a new job.
	Afford(ctx context.Context, job string, need market.Amount, leases uint32) error
	// Account returns the account that orders name beside the peer's own, or zero if there is no other.
	Account() sign.Key
	// Lamports estimates the SOL for a job of a number of ranks, with stake set aside.
	Lamports(ranks uint32, stake market.Amount) record.Lamports
	// Escrows returns the escrows of a job, the first one first.
	Escrows(job string) []record.Escrow
}

// Deposits sets money aside.
type Deposits interface {
	// Fund sets the money of leases of one order aside, and returns the source of each, in their order. The journal has
	// the sources when it returns, and the money need not be on chain. After an error it may be called again, or else
	// Retire with the leases.
	Fund(ctx context.Context, job string, leases []Lease) ([]Source, error)
	// Retire takes back the money of a lease that costs nothing more. It may be called again.
	Retire(l Lease)
	// Unused winds up an order without billable leases that will get no other lease.
	Unused(job string, o market.OrderID)
	// Forsake is Unused for the orders of an earlier process that crashed. It comes before the job sets aside anything
	// else.
	Forsake(job string)
}

// Closing ends the payments of jobs.
type Closing interface {
	// Settle takes back the money that was set aside for a job and costs nothing, and has the receipts anchored. It
	// returns the amount that was paid and the transactions of the anchors. All of that is final when it returns.
	// Leases can become void meanwhile, so the bill is counted again.
	Settle(ctx context.Context, job string, leases []Lease, bill Bill) (market.Amount, []string, error)
	// LetGo drops a job's money from memory, and returns the records that the journal need not keep. ok is false if
	// some of the money can still move or a refund is pending. The caller calls end with the journal's answer: unless
	// the records are gone, the money stays in memory.
	LetGo(job string) (gone []store.Put, end func(gone bool), ok bool)
	// GiveUp winds up the hires for a job of another peer, which has wound up the rest.
	GiveUp(job string) error
	// Run carries out payments until ctx ends.
	Run(ctx context.Context)
}
