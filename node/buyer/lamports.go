package buyer

import (
	"fmt"

	"github.com/starling-network/starling/chain/program"
	"github.com/starling-network/starling/market/sign"
)

// Besides tokens, a job takes SOL from the peer's key: fees for its transactions, and rent for its accounts, which comes back when they are
// closed.

// txFee is the chain's fee for a transaction with one signature, in lamports; what is paid for being taken first comes on top.
const txFee = 5000

// Lamports is what a job takes of the peer's SOL.
type Lamports struct {
	Fees uint64 `json:"fees"` // paid for ever, about
	Rent uint64 `json:"rent"` // out while its accounts are open
}

// lamports is what a job of so many ranks will take, if it is ordered once: the escrow is opened, funded, retired, refunded, swept and closed,
// tranche by tranche, and its receipts are anchored.
func (b *Buyer) lamports(ranks uint32) Lamports {
	if b.cfg.Escrows == nil {
		return Lamports{}
	}
	tranches := (uint64(ranks) + program.MaxLeaves - 1) / program.MaxLeaves
	return Lamports{Fees: (5 + 3*tranches) * txFee, Rent: program.EscrowRent(1, 0) + tranchesRent(ranks)}
}

// took is what a job has taken so far, by its transactions and by the escrows that are open.
func (j Job) took() (l Lamports) {
	l.Fees = uint64(len(j.Transactions)) * txFee
	for _, e := range j.Escrows {
		l.Fees += uint64(len(e.Transactions)) * txFee
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
