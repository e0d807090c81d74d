package slash

import (
	"context"
	"errors"
	"fmt"

	"github.com/starling-network/starling/chain"
	"github.com/starling-network/starling/chain/program"
	"github.com/starling-network/starling/chain/program/account"
	"github.com/starling-network/starling/chain/svm"
	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/node/proof"
	"github.com/starling-network/starling/verify"
)

// Chain is the part of the chain that submitting needs; a *solana.Ledger.
type Chain interface {
	// Run does the calls in one transaction, which its key pays for, and waits until it is confirmed.
	Run(ctx context.Context, calls []svm.Instruction, others ...sign.Signer) (chain.TxID, error)
	// Provider reads a registration by its peer key; chain.ErrNotFound.
	Provider(ctx context.Context, peer sign.Key) (account.Provider, market.Slot, error)
	Network(ctx context.Context) (account.Network, error)
}

// Submit slashes the stake of an offender, by submitting a checked proof to the network's program. The reporter, with
// the chain's signing key, pays for it. Submit may be called again after any error: nothing is done twice. Reasons for
// a refusal by the program are returned before any payment. It returns ErrNoStake for a kind that is not slashed.
func Submit(ctx context.Context, c Chain, f proof.Finding, reporter sign.Key) (proof.Outcome, error) {
	switch x := f.Content().(type) {
	case proof.DoubleSale:
		return submitSale(ctx, c, f, x.Conflict, reporter)
	case proof.Fraud:
		return submitFraud(ctx, c, f, x, reporter, func() error { return nil })
	}
	return proof.Outcome{}, fmt.Errorf("%w: %s", ErrNoStake, f.Kind)
}

// submitSale shows both receipts of a double sale to the program and has the provider's stake taken.
func submitSale(
	ctx context.Context, c Chain, f proof.Finding, sold verify.Conflict, reporter sign.Key,
) (proof.Outcome, error) {
	out := proof.Outcome{Proof: f.Hash.String(), Provider: sold.A.Provider, Transactions: []chain.TxID{}}
	if f.Genesis().Program.IsZero() {
		return out, ErrNoProgram
	}
	n, err := c.Network(ctx)
	if err != nil {
		return out, err
	}
	out.Mint = n.Params.StakeMint
	p, now, err := c.Provider(ctx, sold.A.Provider)
	switch {
	case errors.Is(err, chain.ErrNotFound):
		return out, fmt.Errorf("%w: %s", ErrNotStaked, sold.A.Provider)
	case err != nil:
		return out, err
	case slashed(p, sold):
		out.Already, out.Slot = true, market.Slot(p.Slashed)
		return out, nil
	}
	if err := slashable(p, n.Params, sold, now); err != nil {
		return out, err
	}
	s := newSubmission(c, f.Genesis(), reporter)
	s.sold = sold
	for _, r := range []verify.Receipt{sold.A, sold.B} {
		if err := s.attest(ctx, r, &out); err != nil {
			return out, err
		}
	}
	if err := s.slash(ctx, n.Params.StakeMint, &out); err != nil {
		// Another reporter may have been faster.
		if again, _, readErr := c.Provider(ctx, sold.A.Provider); readErr == nil && slashed(again, sold) {
			out.Already, out.Slot = true, market.Slot(again.Slashed)
			return out, s.close(ctx, &out)
		}
		return out, err
	}
	after, _, err := c.Provider(ctx, sold.A.Provider)
	if err != nil {
		return out, err
	}
	shares := program.TakenFor(p.Stake+p.Unbonding, uint64(sold.A.Cumulative), uint64(sold.B.Cumulative))
	out.Slot, out.Taken, out.Burned = market.Slot(after.Slashed), p.Stake+p.Unbonding, shares.Burned
	out.Paid = []proof.Share{
		{Wallet: sold.A.Buyer, Amount: shares.VictimA}, {Wallet: sold.B.Buyer, Amount: shares.VictimB},
	}
	out.Reward = &proof.Share{Wallet: reporter, Amount: shares.Reporter}
	return out, s.close(ctx, &out)
}

// slashed reports whether the provider was slashed after one of the receipts, which then no longer count.
func slashed(p account.Provider, sold verify.Conflict) bool {
	return p.WasSlashed && uint64(min(sold.A.To, sold.B.To)) <= p.Slashed
}

// slashable returns the error with which the program would refuse, or nil.
func slashable(p account.Provider, params account.Params, sold verify.Conflict, now market.Slot) error {
	last := max(sold.A.To, sold.B.To)
	oldest := min(sold.A.To, sold.B.To)
	switch {
	case p.Stake+p.Unbonding == 0:
		return fmt.Errorf("%w: %s", ErrNotStaked, p.Peer)
	case last > now:
		return fmt.Errorf("%w: in slot %d, now is %d", ErrNotYet, last, now)
	case oldest < now && uint64(now-oldest) > params.EvidenceSlots:
		return fmt.Errorf("%w: the receipts ended %d slots ago, want at most %d", ErrTooOld, now-oldest,
			params.EvidenceSlots)
	}
	return nil
}

// submission is one on its way.
type submission struct {
	c                     Chain
	domain                sign.Domain
	sold                  verify.Conflict // of a double sale
	id, network, reporter sign.Key
}

func newSubmission(c Chain, g market.Genesis, reporter sign.Key) submission {
	return submission{c: c, domain: g.Domain(), id: g.Program, network: g.Escrow, reporter: reporter}
}

func (s submission) attested(r verify.Receipt) sign.Key {
	return program.AttestedAddress(s.id, s.network, s.reporter, r.ReceiptCore.Hash())
}

// attest writes one receipt down, unless that was done before.
func (s submission) attest(ctx context.Context, r verify.Receipt, out *proof.Outcome) error {
	id, err := s.c.Run(ctx, []svm.Instruction{
		program.SignedReceipt(s.domain, r).Instruction(),
		program.Attest{Reporter: s.reporter, Network: s.network, Attested: s.attested(r)}.Instruction(s.id),
	})
	if errors.Is(err, program.ErrExists) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("showing the receipt of lease %s: %w", r.Lease.Short(), err)
	}
	out.Transactions = append(out.Transactions, id)
	return nil
}

// slash opens the token accounts that are paid into, where they are missing, and takes the stake.
func (s submission) slash(ctx context.Context, mint sign.Key, out *proof.Outcome) error {
	c := s.sold
	var open []svm.Instruction
	wallets := []sign.Key{c.A.Buyer, c.B.Buyer, s.reporter}
	for _, w := range wallets {
		open = append(open, svm.OpenTokenAccount(s.reporter, w, mint))
	}
	id, err := s.c.Run(ctx, open)
	if err != nil {
		return fmt.Errorf("opening token accounts: %w", err)
	}
	out.Transactions = append(out.Transactions, id)
	provider := account.ProviderAddress(s.id, s.network, s.sold.A.Provider)
	id, err = s.c.Run(ctx, []svm.Instruction{program.Slash{
		Network: s.network, Provider: provider, Vault: account.StakeAddress(s.id, provider), Mint: mint,
		A: s.attested(c.A), B: s.attested(c.B),
		VictimA: svm.TokenAccount(wallets[0], mint), VictimB: svm.TokenAccount(wallets[1], mint),
		Reporter: svm.TokenAccount(wallets[2], mint), Unit: c.Unit, InA: c.InA, InB: c.InB,
	}.Instruction(s.id)})
	if err != nil {
		return fmt.Errorf("taking the stake: %w", err)
	}
	out.Transactions = append(out.Transactions, id)
	return nil
}

// close takes the receipts' rent back.
func (s submission) close(ctx context.Context, out *proof.Outcome) error {
	var calls []svm.Instruction
	for _, r := range []verify.Receipt{s.sold.A, s.sold.B} {
		calls = append(calls, program.CloseAttested{Reporter: s.reporter, Attested: s.attested(r)}.Instruction(s.id))
	}
	id, err := s.c.Run(ctx, calls)
	if err != nil {
		return fmt.Errorf("the stake is taken, but the rent of the receipts was not taken back: %w", err)
	}
	out.Transactions = append(out.Transactions, id)
	return nil
}
