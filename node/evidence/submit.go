package evidence

import (
	"context"
	"errors"
	"fmt"

	"github.com/starling-network/starling/chain"
	"github.com/starling-network/starling/chain/program"
	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/verify"
)

// Chain is what submitting needs of the chain; a *solana.Ledger.
type Chain interface {
	// Run does the calls in one transaction, which its key pays for, and waits until it is confirmed.
	Run(ctx context.Context, calls []program.Instruction, others ...sign.Signer) (chain.TxID, error)
	// Provider reads a registration by its peer key; chain.ErrNotFound.
	Provider(ctx context.Context, peer sign.Key) (program.Provider, market.Slot, error)
	Network(ctx context.Context) (program.Network, error)
}

// Outcome is what came of submitting a proof.
type Outcome struct {
	Evidence     string       `json:"evidence"`
	Provider     sign.Key     `json:"provider"`
	Already      bool         `json:"already"`          // slashed before, for these slots or later ones: nothing was sent
	Slot         market.Slot  `json:"slot"`             // of the slash
	Mint         sign.Key     `json:"mint"`             // of the stake
	Taken        uint64       `json:"taken"`            // base units of it, all that was staked
	Paid         []Share      `json:"paid,omitempty"`   // to the victims, in the order of the evidence
	Reward       *Share       `json:"reward,omitempty"` // to who submitted
	Burned       uint64       `json:"burned"`
	Transactions []chain.TxID `json:"transactions"`
}

// Share is what one wallet got.
type Share struct {
	Wallet sign.Key `json:"wallet"`
	Amount uint64   `json:"amount"`
}

// Submit shows both receipts to the program and has the provider's stake taken, at the cost of the reporter, whose key the
// chain signs with. It may be called again after any error: what was done is not done twice. What the program would refuse anyhow is said
// before anything is paid for.
func Submit(ctx context.Context, c Chain, f Finding, reporter sign.Key) (Outcome, error) {
	out := Outcome{Evidence: f.ID, Provider: f.Provider, Transactions: []chain.TxID{}}
	if f.Genesis.Program.IsZero() {
		return out, ErrNoProgram
	}
	n, err := c.Network(ctx)
	if err != nil {
		return out, err
	}
	out.Mint = n.Params.StakeMint
	p, now, err := c.Provider(ctx, f.Provider)
	switch {
	case errors.Is(err, chain.ErrNotFound):
		return out, fmt.Errorf("%w: %s", ErrNotStaked, f.Provider)
	case err != nil:
		return out, err
	case slashed(p, f):
		out.Already, out.Slot = true, market.Slot(p.Slashed)
		return out, nil
	}
	if err := slashable(p, n.Params, f, now); err != nil {
		return out, err
	}
	s := submission{c: c, f: f, id: f.Genesis.Program, network: f.Genesis.Escrow, reporter: reporter}
	for _, r := range []verify.Receipt{f.Conflict.A, f.Conflict.B} {
		if err := s.attest(ctx, r, &out); err != nil {
			return out, err
		}
	}
	if err := s.slash(ctx, n.Params.StakeMint, &out); err != nil {
		// Somebody may have been faster.
		if again, _, readErr := c.Provider(ctx, f.Provider); readErr == nil && slashed(again, f) {
			out.Already, out.Slot = true, market.Slot(again.Slashed)
			return out, s.close(ctx, &out)
		}
		return out, err
	}
	after, _, err := c.Provider(ctx, f.Provider)
	if err != nil {
		return out, err
	}
	shares := program.TakenFor(p.Stake+p.Unbonding, uint64(f.Conflict.A.Cumulative), uint64(f.Conflict.B.Cumulative))
	out.Slot, out.Taken, out.Burned = market.Slot(after.Slashed), p.Stake+p.Unbonding, shares.Burned
	out.Paid = []Share{{f.Conflict.A.Buyer, shares.VictimA}, {f.Conflict.B.Buyer, shares.VictimB}}
	out.Reward = &Share{reporter, shares.Reporter}
	return out, s.close(ctx, &out)
}

// slashed reports whether the provider was slashed after one of the receipts, so that they count no more.
func slashed(p program.Provider, f Finding) bool {
	return p.WasSlashed && uint64(min(f.Conflict.A.To, f.Conflict.B.To)) <= p.Slashed
}

// slashable says why the program would refuse, or nothing.
func slashable(p program.Provider, params program.Params, f Finding, now market.Slot) error {
	last := max(f.Conflict.A.To, f.Conflict.B.To)
	oldest := min(f.Conflict.A.To, f.Conflict.B.To)
	switch {
	case p.Stake+p.Unbonding == 0:
		return fmt.Errorf("%w: %s", ErrNotStaked, p.Peer)
	case last > now:
		return fmt.Errorf("%w: in slot %d, now is %d", ErrNotYet, last, now)
	case oldest < now && uint64(now-oldest) > params.EvidenceSlots:
		return fmt.Errorf("%w: it counts for %d slots, and ended %d ago", ErrTooOld, params.EvidenceSlots, now-oldest)
	}
	return nil
}

// submission is one on its way.
type submission struct {
	c                     Chain
	f                     Finding
	id, network, reporter sign.Key
}

func (s submission) attested(r verify.Receipt) sign.Key {
	return program.AttestedAddress(s.id, s.network, s.reporter, r.ReceiptCore.Hash())
}

// attest writes one receipt down, unless that was done before.
func (s submission) attest(ctx context.Context, r verify.Receipt, out *Outcome) error {
	id, err := s.c.Run(ctx, []program.Instruction{
		program.SignedReceipt(s.f.Genesis.Domain(), r).Instruction(),
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
func (s submission) slash(ctx context.Context, mint sign.Key, out *Outcome) error {
	c := s.f.Conflict
	var open []program.Instruction
	wallets := []sign.Key{c.A.Buyer, c.B.Buyer, s.reporter}
	for _, w := range wallets {
		open = append(open, program.OpenTokenAccount(s.reporter, w, mint))
	}
	id, err := s.c.Run(ctx, open)
	if err != nil {
		return fmt.Errorf("opening token accounts: %w", err)
	}
	out.Transactions = append(out.Transactions, id)
	provider := program.ProviderAddress(s.id, s.network, s.f.Provider)
	id, err = s.c.Run(ctx, []program.Instruction{program.Slash{
		Network: s.network, Provider: provider, Vault: program.StakeAddress(s.id, provider), Mint: mint,
		A: s.attested(c.A), B: s.attested(c.B), VictimA: program.TokenAccount(wallets[0], mint), VictimB: program.TokenAccount(wallets[1], mint),
		Reporter: program.TokenAccount(wallets[2], mint), Unit: c.Unit, InA: c.InA, InB: c.InB,
	}.Instruction(s.id)})
	if err != nil {
		return fmt.Errorf("taking the stake: %w", err)
	}
	out.Transactions = append(out.Transactions, id)
	return nil
}

// close takes the receipts' rent back.
func (s submission) close(ctx context.Context, out *Outcome) error {
	var calls []program.Instruction
	for _, r := range []verify.Receipt{s.f.Conflict.A, s.f.Conflict.B} {
		calls = append(calls, program.CloseAttested{Reporter: s.reporter, Attested: s.attested(r)}.Instruction(s.id))
	}
	id, err := s.c.Run(ctx, calls)
	if err != nil {
		return fmt.Errorf("the stake is taken, but the rent of the receipts was not taken back: %w", err)
	}
	out.Transactions = append(out.Transactions, id)
	return nil
}
