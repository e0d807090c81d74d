package evidence

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"

	"github.com/starling-network/starling/chain"
	"github.com/starling-network/starling/chain/program"
	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/verify"
)

// Voting is what submitting and judging dissents needs of the chain; a *solana.Ledger.
type Voting interface {
	Chain
	Registrations
	Ballots(ctx context.Context) (map[sign.Key]program.Ballot, error)
	Voted(ctx context.Context, topic sign.Hash, provider sign.Key) (program.Vote, error)
}

// carriedBallot is one that confirms that a receipt's output is false, and may have its stake taken: the first that was opened.
func carriedBallot(all map[sign.Key]program.Ballot, r verify.Receipt) (at sign.Key, ok bool) {
	return firstBallot(all, func(_ sign.Key, b program.Ballot) bool {
		return b.Dissent.Receipt == r.ReceiptCore.Hash() && b.Dissent.Output != r.Output && b.Carried()
	})
}

// firstBallot is the first that was opened of those on dissents that are not done and fit; of several of one slot that of the lowest address.
func firstBallot(all map[sign.Key]program.Ballot, fits func(at sign.Key, b program.Ballot) bool) (at sign.Key, ok bool) {
	var first program.Ballot
	for k, b := range all {
		if b.Subject != program.SubjectDissent || b.Done || !fits(k, b) {
			continue
		}
		if !ok || cmp.Or(cmp.Compare(b.Opened, first.Opened), bytes.Compare(k[:], at[:])) < 0 {
			at, first, ok = k, b, true
		}
	}
	return at, ok
}

// answering is the registration that answers for a key: that of the greatest stake.
func answering(all []program.Provider, key sign.Key) (found program.Provider, ok bool) {
	for _, p := range all {
		if p.AnswersFor(key) && (!ok || p.Stake+p.Unbonding > found.Stake+found.Unbonding) {
			found, ok = p, true
		}
	}
	return found, ok
}

// SubmitDissent has the stake taken of one of those whose result enough votes confirmed to be false, at the cost of the reporter, whose key
// the chain signs with. First is the peer key that the provider registered with; zero: it is looked for. It may be called again after
// any error: what was done is not done twice. ErrNotCarried: nobody's is.
func SubmitDissent(ctx context.Context, c Voting, f DissentFinding, reporter, first sign.Key) (Outcome, error) {
	out := Outcome{Evidence: f.ID, Transactions: []chain.TxID{}}
	if f.Genesis.Program.IsZero() {
		return out, ErrNoProgram
	}
	n, err := c.Network(ctx)
	if err != nil {
		return out, err
	}
	if !n.Params.Votes.On() {
		return out, ErrNoVotes
	}
	all, err := c.Providers(ctx)
	if err != nil {
		return out, err
	}
	ballots, err := c.Ballots(ctx)
	if err != nil {
		return out, err
	}
	why := ErrNotCarried
	for _, s := range f.Dissent.Results {
		p, ok := answering(all, s.Receipt.Provider)
		if ok && !first.IsZero() {
			ok = p.First == first
		}
		if ok && receiptSlashed(p, s.Receipt) {
			out.Provider, out.Mint, out.Already, out.Slot = s.Receipt.Provider, n.Params.StakeMint, true, market.Slot(p.Slashed)
			return out, nil
		}
		if at, carried := carriedBallot(ballots, s.Receipt); ok && carried {
			return submitCharge(ctx, c, f.Genesis, s.Receipt, at, p.First, reporter, nil)
		} else if carried {
			why = fmt.Errorf("%w: %s", ErrNotStaked, s.Receipt.Provider)
		}
	}
	return out, why
}

// receiptSlashed says whether a provider was slashed after a receipt, so that it counts no more.
func receiptSlashed(p program.Provider, r verify.Receipt) bool {
	return p.WasSlashed && uint64(r.To) <= p.Slashed
}

// submitCharge shows a receipt to the program and has the stake taken of who signed it, by a ballot that is carried. Begun, unless nil, is
// called before anything is sent, and its error ends it. ErrRent: the stake is taken, but the receipt's rent was not taken back.
func submitCharge(ctx context.Context, c Chain, g market.Genesis, r verify.Receipt, ballot, first, reporter sign.Key, begun func() error) (Outcome, error) {
	out := Outcome{Provider: r.Provider, Transactions: []chain.TxID{}}
	n, err := c.Network(ctx)
	if err != nil {
		return out, err
	}
	out.Mint = n.Params.StakeMint
	p, now, err := c.Provider(ctx, first) // as two endpoints have it
	switch {
	case err != nil:
		return out, err
	case receiptSlashed(p, r):
		out.Already, out.Slot = true, market.Slot(p.Slashed)
		return out, nil
	case !p.AnswersFor(r.Provider):
		return out, fmt.Errorf("%w: it registered as %s and has %s now", ErrOtherKey, p.First, p.Peer)
	case p.Stake+p.Unbonding == 0:
		return out, fmt.Errorf("%w: %s", ErrNotStaked, p.First)
	case r.To > now:
		return out, fmt.Errorf("%w: in slot %d, now is %d", ErrNotYet, r.To, now)
	case uint64(now-r.To) > n.Params.EvidenceSlots:
		return out, fmt.Errorf("%w: it counts for %d slots, and ended %d ago", ErrTooOld, n.Params.EvidenceSlots, now-r.To)
	}
	if begun != nil {
		if err := begun(); err != nil {
			return out, err
		}
	}
	s := submission{c: c, f: Finding{Genesis: g}, id: g.Program, network: g.Escrow, reporter: reporter}
	if err := s.attest(ctx, r, &out); err != nil {
		return out, err
	}
	err = s.slashDissent(ctx, r, ballot, first, out.Mint, &out)
	after, _, readErr := c.Provider(ctx, first)
	switch {
	case err != nil && readErr == nil && receiptSlashed(after, r): // somebody was faster
		out.Already, out.Slot = true, market.Slot(after.Slashed)
		return out, s.closeReceipt(ctx, r, &out)
	case err != nil:
		return out, err
	case readErr != nil:
		return out, readErr
	}
	shares := program.TakenFor(p.Stake+p.Unbonding, uint64(r.Cumulative), 0)
	out.Slot, out.Taken, out.Burned = market.Slot(after.Slashed), p.Stake+p.Unbonding, shares.Burned
	out.Paid, out.Reward = []Share{{r.Buyer, shares.VictimA}}, &Share{reporter, shares.Reporter}
	return out, s.closeReceipt(ctx, r, &out)
}

// slashDissent opens the token accounts that are paid into, where they are missing, and takes the stake.
func (s submission) slashDissent(ctx context.Context, r verify.Receipt, ballot, first, mint sign.Key, out *Outcome) error {
	id, err := s.c.Run(ctx, []program.Instruction{program.OpenTokenAccount(s.reporter, r.Buyer, mint), program.OpenTokenAccount(s.reporter, s.reporter, mint)})
	if err != nil {
		return fmt.Errorf("opening token accounts: %w", err)
	}
	out.Transactions = append(out.Transactions, id)
	provider := program.ProviderAddress(s.id, s.network, first)
	id, err = s.c.Run(ctx, []program.Instruction{program.SlashDissent{
		Network: s.network, Provider: provider, Vault: program.StakeAddress(s.id, provider), Mint: mint, Ballot: ballot, Attested: s.attested(r),
		Victim: program.TokenAccount(r.Buyer, mint), Reporter: program.TokenAccount(s.reporter, mint),
	}.Instruction(s.id)})
	if err != nil {
		return fmt.Errorf("taking the stake: %w", err)
	}
	out.Transactions = append(out.Transactions, id)
	return nil
}

// closeReceipt takes a receipt's rent back; one that is not there has none.
func (s submission) closeReceipt(ctx context.Context, r verify.Receipt, out *Outcome) error {
	id, err := s.c.Run(ctx, []program.Instruction{program.CloseAttested{Reporter: s.reporter, Attested: s.attested(r)}.Instruction(s.id)})
	switch {
	case errors.Is(err, program.ErrOwner), errors.Is(err, program.ErrKind):
		return nil
	case err != nil:
		return fmt.Errorf("%w: %w", ErrRent, err)
	}
	out.Transactions = append(out.Transactions, id)
	return nil
}
