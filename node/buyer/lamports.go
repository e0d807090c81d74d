package buyer

import (
	"fmt"

	"github.com/starling-network/starling/chain"
	"github.com/starling-network/starling/chain/program"
	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
)

// Besides tokens, a job takes SOL from the peer's key: fees for its transactions, and rent for its accounts, which comes back when they are
// closed.

// Lamports is what a job takes of the peer's SOL.
type Lamports struct {
	Fees uint64 `json:"fees"`               // paid for ever, about
	Most uint64 `json:"mostFees,omitempty"` // what they can come to where others bid for places in blocks; 0 of a job that was submitted
	Rent uint64 `json:"rent"`               // out while its accounts are open
}

// lamports is what a job of so many ranks will take with so much set aside, if it is ordered once: the escrow is opened, funded, each lease
// retired, the rest refunded, all swept and closed, and the receipts are anchored.
func (x *escrowed) lamports(ranks uint32, stake market.Amount) Lamports {
	at, g := x.b.cfg.Genesis.Program, x.b.cfg.Genesis
	fees := x.Fees
	if fees == (chain.Fees{}) {
		fees = chain.DefaultFees()
	}
	l := Lamports{Rent: program.EscrowRent(1, 0) + tranchesRent(ranks)}
	tranches := (uint64(ranks) + program.MaxLeaves - 1) / program.MaxLeaves
	for _, tx := range []struct {
		times, signatures uint64
		stake             market.Amount
		calls             []program.Instruction
	}{
		{1, 1, stake, []program.Instruction{program.OpenEscrow{}.Instruction(at), program.AddTranche{}.Instruction(at)}},
		{uint64(ranks), 2, stake / market.Amount(max(ranks, 1)), []program.Instruction{program.RetireFinal{}.Instruction(at)}}, // and the provider's
		{1, 1, stake, []program.Instruction{program.Refund{}.Instruction(at)}},
		{1, 1, 0, []program.Instruction{program.Sweep{}.Instruction(at)}},
		{tranches, 1, 0, []program.Instruction{program.CloseTranche{}.Instruction(at)}},
		{1, 1, 0, []program.Instruction{program.CloseEscrow{}.Instruction(at)}},
		{1, 1, 0, anchorCalls(at, x.b.self, anchoring{})},
	} {
		units := program.Units(at, tx.calls)
		bid := chain.BidLamports(fees.Price(0, 0, units, fees.Ceiling(tx.stake, g.Decimals)), units)
		l.Fees += tx.times * (tx.signatures*chain.SignatureFee + bid)
		l.Most += tx.times * fees.CostAtMost(tx.signatures, tx.stake, g.Decimals)
	}
	return l
}

// took is what a job has taken so far, by its transactions and by the escrows that are open.
func (j Job) took() (l Lamports) {
	l.Fees = uint64(len(j.Transactions)) * chain.SignatureFee
	for _, e := range j.Escrows {
		for _, tx := range e.Transactions {
			l.Fees += max(tx.Fee, chain.SignatureFee)
		}
		if !e.Closed && e.Deposited > 0 {
			l.Rent += program.EscrowRent(1, 0) + tranchesRent(j.Spec.Count)
		}
	}
	return l
}

// anchorRent is the rent of a job's anchor, in lamports.
var anchorRent = program.Rent(program.AnchorSize)

// tranchesRent is that of the tranches for so many leases.
func tranchesRent(leases uint32) (rent uint64) {
	for left := int(leases); left > 0; left -= program.MaxLeaves {
		rent += program.TrancheRent(min(left, program.MaxLeaves))
	}
	return rent
}

// lamportsError says that the peer's key cannot pay the rent of a job's escrow and anchor.
type lamportsError struct {
	need, rent, have uint64
	others           string // as fundsError has it
	key              sign.Key
}

func (e *lamportsError) Error() string {
	return fmt.Sprintf("the job's escrow and anchor need %d lamports, of which %d are rent and come back; the peer's key %s holds %d%s; send it some SOL", e.need, e.rent, e.key, e.have, forOthers(e.others))
}

func (e *lamportsError) Unwrap() []error { return []error{ErrRefused, ErrFunds} }
