package record

import (
	"context"
	"fmt"

	"github.com/starling-network/starling/chain"
	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/node/job"
	"github.com/starling-network/starling/node/journal"
)

// Escrow is the escrow of one of a job's orders, as the chain showed it last. Amounts are base units.
type Escrow struct {
	Address   sign.Key      `json:"address"`
	Deposited market.Amount `json:"deposited"`
	Paid      market.Amount `json:"paid"` // to providers and guardians, with the network's fees
	Fees      market.Amount `json:"fees"` // of that
	Refunded  market.Amount `json:"refunded"`
	Opened    market.Slot   `json:"opened,omitempty"`
	Deadline  market.Slot   `json:"deadline,omitempty"` // after it and a margin, any key can trigger the full refund
	Closed    bool          `json:"closed,omitempty"`   // nothing is left on chain, and all rent is back
	Waiting   string        `json:"waiting,omitempty"`  // reason for a wait
	// Transactions are the transactions confirmed by a supermajority, in order.
	Transactions []Landed `json:"transactions,omitempty"`
}

// Landed is a transaction that a supermajority voted for.
type Landed struct {
	Tx    chain.TxID `json:"tx"`
	Calls []string   `json:"calls"`         // of the program, in their order
	Fee   uint64     `json:"fee,omitempty"` // lamports; 0 where an earlier process signed it
}

// Lamports is the SOL that a job takes from the peer's key besides tokens: fees for its transactions, and rent for its
// accounts, which is refunded when they are closed.
type Lamports struct {
	Fees uint64 `json:"fees"`               // spent for good, about
	Most uint64 `json:"mostFees,omitempty"` // where others bid for places in blocks; 0 of a job that was submitted
	Rent uint64 `json:"rent"`               // out while its accounts are open
}

// Place is the escrow of a detached job.
type Place struct {
	Address  sign.Key       `json:"address"`
	Order    market.OrderID `json:"order"`
	Opened   uint64         `json:"opened"`
	Deadline market.Slot    `json:"deadline"`
}

// Anchored is one of this peer's own jobs, with anchored receipts.
type Anchored struct {
	Job string
	Tx  chain.TxID
}

// Submissions has the ids of jobs by their idempotency keys.
var Submissions = journal.DefineRaw("jobkey")

// Orders has the envelope of every order that was sent, by its id.
var Orders = journal.DefineRaw("order")

// WriteOrder journals an order for no job.
func WriteOrder(ctx context.Context, s journal.Store, id market.OrderID, env []byte) error {
	var sent journal.Batch
	Orders.Put(&sent, id.String(), env)
	if err := sent.Commit(ctx, s); err != nil {
		return fmt.Errorf("journalling an order: %w", err)
	}
	return nil
}

// MostCost returns the most that a job can cost.
func MostCost(spec job.Job) (market.Amount, error) {
	cost, err := spec.MaxCost()
	return min(cost, spec.Payment.Budget), err
}
