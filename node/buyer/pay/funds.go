package pay

import (
	"context"
	"fmt"
	"time"

	"github.com/starling-network/starling/chain"
	"github.com/starling-network/starling/chain/program"
	"github.com/starling-network/starling/chain/program/account"
	"github.com/starling-network/starling/chain/svm"
	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/node/buyer/record"
)

const fundsTimeout = 2 * time.Second

// Afford returns an error that wraps record.ErrFunds if the wallet cannot pay for a job in addition to the accepted
// ones. need is the job's maximum cost, leases its number of leases at a time. If the chain does not answer, Afford
// returns nil. job is empty for a new one.
func (x *Payments) Afford(ctx context.Context, job string, need market.Amount, leases uint32) error {
	rent := anchorRent + tranchesRent(leases)
	there := false // an escrow to which leases that make others longer are added
	for _, e := range x.Escrows(job) {
		need -= min(need, e.Deposited-min(e.Deposited, e.Refunded))
		there = there || !e.Closed
	}
	if !there {
		rent += account.EscrowRent(1, 0)
	}
	others, othersRent := x.waiting(job)
	ctx, cancel := context.WithTimeout(ctx, fundsTimeout)
	defer cancel()
	f, err := x.cfg.Chain.Funds(ctx)
	if err != nil {
		return nil
	}
	if x.cfg.Owner != x.cfg.Self && f.Own == 0 {
		rent += svm.Rent(svm.TokenSize) // of the account that jobs are paid from
	}
	g, fees := x.cfg.Genesis, x.Lamports(leases, need).Most
	all, err := need.Add(others)
	switch {
	case err != nil || f.Spendable < all:
		e := &fundsError{need: g.FormatAmount(need), have: g.FormatAmount(f.Balance), wallet: x.cfg.Owner}
		if x.cfg.Owner != x.cfg.Self {
			e.peer, e.allowed, e.short = x.cfg.Self, g.FormatAmount(f.Spendable), f.Balance+f.Own < all
		}
		if others > 0 {
			e.others = g.FormatAmount(others)
		}
		return e
	case f.Lamports < rent+fees+othersRent:
		e := &lamportsError{need: rent + fees, rent: rent, have: f.Lamports, key: x.cfg.Self}
		if othersRent > 0 {
			e.others = fmt.Sprint(othersRent)
		}
		return e
	}
	return nil
}

// waiting returns the most money, and the most lamports, for the other jobs that have not set anything aside yet.
func (x *Payments) waiting(job string) (sum market.Amount, lamports uint64) {
	for _, w := range x.cfg.Jobs.Waiting() {
		if w.Job == job || len(x.Escrows(w.Job)) > 0 {
			continue
		}
		sum = sum.Plus(w.Most)
		lamports += account.EscrowRent(1, 0) + anchorRent + tranchesRent(w.Ranks) + x.Lamports(w.Ranks, w.Most).Most
	}
	return sum, lamports
}

// Lamports estimates the SOL for a job of a number of ranks with stake set aside, if it is ordered once. It counts
// opening, funding, sweeping and closing the escrow, retiring each lease, the refund, and the anchor of the receipts.
func (x *Payments) Lamports(ranks uint32, stake market.Amount) record.Lamports {
	at, g := x.cfg.Genesis.Program, x.cfg.Genesis
	fees := x.cfg.Fees
	if fees == (chain.Fees{}) {
		fees = chain.DefaultFees()
	}
	l := record.Lamports{Rent: account.EscrowRent(1, 0) + tranchesRent(ranks)}
	tranches := (uint64(ranks) + account.MaxLeaves - 1) / account.MaxLeaves
	for _, tx := range []struct {
		times, signatures uint64
		stake             market.Amount
		calls             []svm.Instruction
	}{
		{1, 1, stake, []svm.Instruction{
			program.OpenEscrow{}.Instruction(at), program.AddTranche{}.Instruction(at),
		}},
		{uint64(ranks), 2, stake / market.Amount(max(ranks, 1)), []svm.Instruction{
			program.RetireFinal{}.Instruction(at), // the provider signs, too
		}},
		{1, 1, stake, []svm.Instruction{program.Refund{}.Instruction(at)}},
		{1, 1, 0, []svm.Instruction{program.Sweep{}.Instruction(at)}},
		{tranches, 1, 0, []svm.Instruction{program.CloseTranche{}.Instruction(at)}},
		{1, 1, 0, []svm.Instruction{program.CloseEscrow{}.Instruction(at)}},
		{1, 1, 0, anchorCalls(at, x.cfg.Self, Anchoring{})},
	} {
		units := program.Units(at, tx.calls)
		bid := chain.BidLamports(fees.Price(0, 0, units, fees.Ceiling(tx.stake, g.Decimals)), units)
		l.Fees += tx.times * (tx.signatures*chain.SignatureFee + bid)
		l.Most += tx.times * fees.CostAtMost(tx.signatures, tx.stake, g.Decimals)
	}
	return l
}

// Took returns the SOL that a job of a number of ranks has taken so far, by its anchors' transactions and its escrows.
func Took(escrows []record.Escrow, transactions int, ranks uint32) (l record.Lamports) {
	l.Fees = uint64(transactions) * chain.SignatureFee
	for _, e := range escrows {
		for _, tx := range e.Transactions {
			l.Fees += max(tx.Fee, chain.SignatureFee)
		}
		if !e.Closed && e.Deposited > 0 {
			l.Rent += account.EscrowRent(1, 0) + tranchesRent(ranks)
		}
	}
	return l
}

// anchorRent is the rent of a job's anchor, in lamports.
var anchorRent = svm.Rent(account.AnchorSize)

// tranchesRent returns the rent of the tranches for a number of leases, in lamports.
func tranchesRent(leases uint32) (rent uint64) {
	for left := int(leases); left > 0; left -= account.MaxLeaves {
		rent += account.TrancheRent(min(left, account.MaxLeaves))
	}
	return rent
}

// fundsError is returned if the wallet cannot pay for a job.
type fundsError struct {
	need, have string
	others     string // the part of it for earlier jobs; empty means none
	wallet     sign.Key
	// Where the peer is not the owner: the peer's allowance, and whether the wallet would be short if it allowed all.
	peer    sign.Key
	allowed string
	short   bool
}

func (e *fundsError) Error() string {
	if e.allowed != "" && !e.short {
		return fmt.Sprintf("the job can cost up to %s, wallet %s holds %s, and its owner lets the peer %s spend %s%s; "+
			"allow it more (starling wallet allow), or lower payment.budget or timeouts.run",
			e.need, e.wallet, e.have, e.peer, e.allowed, forOthers(e.others))
	}
	return fmt.Sprintf("the job can cost up to %s, wallet %s holds %s%s; "+
		"lower payment.budget or timeouts.run, or fund the wallet", e.need, e.wallet, e.have, forOthers(e.others))
}

func (e *fundsError) Unwrap() []error { return []error{record.ErrRefused, record.ErrFunds} }

// lamportsError is returned if the peer's key cannot pay the rent of a job's escrow and anchor.
type lamportsError struct {
	need, rent, have uint64
	others           string // as in fundsError
	key              sign.Key
}

func (e *lamportsError) Error() string {
	return fmt.Sprintf("the job's escrow and anchor need %d lamports, of which %d are refundable rent; "+
		"the peer's key %s holds %d%s; send it some SOL", e.need, e.rent, e.key, e.have, forOthers(e.others))
}

func (e *lamportsError) Unwrap() []error { return []error{record.ErrRefused, record.ErrFunds} }

func forOthers(amount string) string {
	if amount == "" {
		return ""
	}
	return ", of which " + amount + " are for jobs that were taken before and have not set it aside yet"
}
