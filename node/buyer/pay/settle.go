package pay

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/starling-network/starling/chain"
	"github.com/starling-network/starling/chain/escrow"
	"github.com/starling-network/starling/chain/escrow/deposit"
	"github.com/starling-network/starling/chain/program"
	"github.com/starling-network/starling/chain/program/account"
	"github.com/starling-network/starling/chain/svm"
	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/node/buyer/trace"
	"github.com/starling-network/starling/node/journal"
	"github.com/starling-network/starling/node/settle"
	"github.com/starling-network/starling/node/store"
)

// Settle takes back the money that was set aside for a job and costs nothing, and has the receipts anchored. It returns
// the amount that was paid, and the transaction of the anchor. Both are final when it returns. Leases can become void
// meanwhile, so the bill is counted again.
func (x *Payments) Settle(ctx context.Context, job string, leases []Lease, bill Bill) (market.Amount, []string, error) {
	if err := x.windUp(ctx, job, leases); err != nil {
		return 0, nil, err
	}
	var early Anchoring
	var tx string
	eg, ectx := errgroup.WithContext(ctx)
	eg.Go(func() error { return x.back(ectx, job, leases, bill) })
	eg.Go(func() error { // beside the refund, where only a fork could make a lease void
		there, err := x.there(ectx, job, leases)
		if err != nil || !there {
			return err
		}
		if early, err = bill.Owed(ectx); err == nil {
			tx, err = x.anchors.anchor(ectx, job, early)
		}
		return err
	})
	if err := eg.Wait(); err != nil {
		return 0, nil, err
	}
	of, err := bill.Owed(ctx) // leases that were void cost nothing
	if err != nil {
		return 0, nil, err
	}
	if of != early {
		if tx, err = x.anchors.anchor(ctx, job, of); err != nil {
			return 0, nil, err
		}
	}
	var paid market.Amount // providers claim their part; it is theirs already
	for _, e := range x.Escrows(job) {
		paid += e.Deposited - min(e.Deposited, e.Refunded)
	}
	if tx == "" {
		return paid, nil, nil
	}
	return paid, []string{tx}, nil
}

// windUp retires a job's leases, and ends its deposits and hires.
func (x *Payments) windUp(ctx context.Context, job string, leases []Lease) error {
	for _, l := range leases {
		if err := x.giveBack(l); err != nil {
			return fmt.Errorf("winding up a lease: %w", err)
		}
	}
	for _, name := range x.hires.Names() {
		if jobOf(name) == job {
			if err := x.hires.Post(name, escrow.End{}); err != nil {
				return fmt.Errorf("winding up hires: %w", err)
			}
		}
	}
	for _, name := range x.of(job) {
		if err := x.deposits.Ask(ctx, name, escrow.End{}); err != nil {
			return fmt.Errorf("winding up an escrow: %w", err)
		}
	}
	return nil
}

// back waits until all unspent money is refunded for good. It voids every lease that was not on chain in time.
func (x *Payments) back(ctx context.Context, job string, leases []Lease, bill Bill) error {
	for _, name := range x.of(job) {
		m, err := x.deposits.Until(ctx, name, deposit.Deposit.Back)
		if err == nil {
			err = x.voided(ctx, m, leases, bill)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// there waits until the money of each lease is confirmed on chain in time, or known to be missing. It reports whether
// all of it is confirmed.
func (x *Payments) there(ctx context.Context, job string, leases []Lease) (bool, error) {
	seen := map[market.LeaseID]bool{}
	for _, name := range x.of(job) {
		_, err := x.deposits.Until(ctx, name, func(m deposit.Deposit) bool {
			all := true
			for _, l := range leases {
				if l.Core.Order == m.Deal().Order {
					seen[l.ID] = m.Landed(l.ID)
					all = all && seen[l.ID]
				}
			}
			return all || m.Back()
		})
		if err != nil {
			return false, err
		}
	}
	return !slices.ContainsFunc(leases, func(l Lease) bool { return !seen[l.ID] }), nil
}

// voided voids the leases of a settled deposit that had no money on chain, as far as that is not done yet.
func (x *Payments) voided(ctx context.Context, m deposit.Deposit, leases []Lease, bill Bill) error {
	at, _ := m.Escrow()
	for _, l := range leases {
		if l.Core.Order != m.Deal().Order || l.Escrow == at && !m.Void(l.ID) {
			continue
		}
		if err := bill.Void(ctx, l.ID, unfunded); err != nil {
			return err
		}
	}
	return nil
}

// Anchoring is the commitment of a job's anchor.
type Anchoring struct {
	Root     sign.Hash // over all receipts of the job, in their order
	Receipts uint64    // the number of them
}

// AnchoringOf returns the commitment to receipts, by their hashes.
func AnchoringOf(receipts []sign.Hash) Anchoring {
	return Anchoring{Root: chain.RootOf(receipts), Receipts: uint64(len(receipts))}
}

// anchored is the transaction that anchors a job's receipts, and the root that it anchors.
type anchored struct {
	chain.Prepared
	Root sign.Hash
}

// anchorTable has an anchored by job.
var anchorTable = journal.Define[string, anchored]("anchor")

// anchors has the roots of jobs' receipts written down on chain.
type anchors struct{ cfg Config }

// anchor has the program write down the root of the job's receipts, and returns the transaction that did when it is
// final. It returns none without receipts, or with more of them than one anchor takes. A transaction under way for
// another root is left to itself.
//
// The transaction is the proof from then on: it closes the account in which the program wrote, so no rent is left.
// If the chain forgot the outcome of one, another is sent; both commit to the same root.
func (x *anchors) anchor(ctx context.Context, job string, of Anchoring) (string, error) {
	if of.Receipts == 0 {
		return "", nil
	}
	if of.Receipts > program.MaxAnchored {
		x.note(job, fmt.Sprintf("%d receipts are not anchored: an anchor takes %d", of.Receipts, program.MaxAnchored))
		return "", nil
	}
	tx, err := x.signed(ctx, job, of.Root)
	if err != nil {
		return "", err
	}
	every := x.cfg.Params.PollEvery
	l := settle.Landing{
		Chain: x.cfg.Chain, Every: every,
		Wait: func(why string) {
			x.note(job, "waiting until "+time.Now().Add(every).Format(time.TimeOnly)+": "+why)
		},
		Sign: func(ctx context.Context, wait func(error)) (chain.Prepared, error) {
			return x.sign(ctx, job, of, wait)
		},
		Gone: func(context.Context, chain.Prepared, bool) error { return chain.ErrNotFound },
	}
	if tx, _, err = l.Run(ctx, tx); err != nil {
		return "", err
	}
	return string(tx.ID), nil
}

func (x *anchors) note(job, detail string) {
	x.cfg.Jobs.Note(job, trace.Step{At: time.Now(), Kind: trace.Paid, Detail: detail})
}

// signed returns the journalled transaction of a job's anchor of a root, or the zero value if none was signed.
func (x *anchors) signed(ctx context.Context, job string, root sign.Hash) (tx chain.Prepared, err error) {
	was, err := anchorTable.Get(ctx, x.cfg.Store, job)
	switch {
	case errors.Is(err, store.ErrNotFound):
		return tx, nil
	case err != nil:
		return tx, fmt.Errorf("reading the anchor of job %s: %w", job, err)
	case was.Root != root:
		return tx, nil
	}
	return was.Prepared, nil
}

// sign signs a transaction and journals it, replacing one that can never land. It returns the zero value if the chain
// must be polled again.
func (x *anchors) sign(ctx context.Context, job string, of Anchoring, wait func(error)) (chain.Prepared, error) {
	in, err := x.cfg.Chain.Bid(ctx, anchorCalls(x.cfg.Genesis.Program, x.cfg.Self, of), 0, 0) // a delay costs nothing
	var tx chain.Prepared
	if err == nil {
		tx, err = x.cfg.Chain.Sign(ctx, in, nil)
	}
	if err != nil {
		wait(err)
		return chain.Prepared{}, nil
	}
	return tx, anchorTable.Write(ctx, x.cfg.Store, job, anchored{tx, of.Root})
}

// anchorCalls write a root down, and close the account where it stands.
func anchorCalls(at, self sign.Key, of Anchoring) []svm.Instruction {
	call := program.Anchor{
		Authority: self, Anchor: account.AnchorAddress(at, self, of.Root), Root: of.Root, Count: of.Receipts,
	}
	return []svm.Instruction{
		call.Instruction(at), program.CloseAnchor{Authority: self, Anchor: call.Anchor}.Instruction(at),
	}
}
