package slash

import (
	"context"
	"errors"
	"fmt"
	"math/bits"
	"slices"

	"github.com/starling-network/starling/chain"
	"github.com/starling-network/starling/chain/program"
	"github.com/starling-network/starling/chain/program/account"
	"github.com/starling-network/starling/chain/svm"
	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/node/proof"
	"github.com/starling-network/starling/verify/audit"
)

// Registrations lists the network's registrations; a *solana.Ledger. Many public endpoints refuse this request.
type Registrations interface {
	Providers(ctx context.Context) ([]account.Provider, error)
}

// fraudEnds is the end of the window that a lie is about: it is as old as that. The last slot there is, where that lies
// beyond.
func fraudEnds(w audit.Window, slots uint32) market.Slot {
	over, end := bits.Mul64(uint64(w)+1, uint64(slots))
	if over != 0 || uint64(w)+1 == 0 {
		return ^market.Slot(0)
	}
	return market.Slot(end)
}

// accused returns the registration of a liar's key, or ErrNotStaked. If the chain lists registrations, an unregistered
// key, such as a canary's, costs no call.
func accused(ctx context.Context, c Chain, liar sign.Key) (p account.Provider, now market.Slot, err error) {
	if list, ok := c.(Registrations); ok {
		all, err := list.Providers(ctx)
		if err == nil && !slices.ContainsFunc(all, func(p account.Provider) bool { return p.Peer == liar }) {
			return p, now, fmt.Errorf("%w: %s never registered", ErrNotStaked, liar)
		}
	}
	return c.Provider(ctx, liar) // as two endpoints have it
}

// slashedSince reports whether a provider was slashed after a lie, which then no longer counts.
func slashedSince(p account.Provider, ends market.Slot) bool {
	return p.WasSlashed && uint64(ends) <= p.Slashed
}

// submitFraud shows the false statement to the program and has the offender's stake taken. It calls begun before
// anything is sent, and ends with its error.
func submitFraud(ctx context.Context, c Chain, f proof.Finding, fraud proof.Fraud, reporter sign.Key,
	begun func() error) (proof.Outcome, error) {
	out := proof.Outcome{Proof: f.Hash.String(), Provider: fraud.Offender(), Transactions: []chain.TxID{}}
	if f.Genesis().Program.IsZero() {
		return out, ErrNoProgram
	}
	n, err := c.Network(ctx)
	if err != nil {
		return out, err
	}
	out.Mint = n.Params.StakeMint
	if n.Params.AuditSlots == 0 {
		return out, ErrNoAudits
	}
	p, now, err := accused(ctx, c, fraud.Offender())
	if errors.Is(err, chain.ErrNotFound) {
		err = fmt.Errorf("%w: %s", ErrNotStaked, fraud.Offender())
	}
	if err != nil {
		return out, err
	}
	ends := fraudEnds(fraud.Answer.Window, n.Params.AuditSlots)
	s := newSubmission(c, f.Genesis(), reporter)
	stated := s.statements(fraud)
	if slashedSince(p, ends) {
		out.Already, out.Slot = true, market.Slot(p.Slashed)
		return out, nil
	}
	switch {
	case p.Stake+p.Unbonding == 0:
		return out, fmt.Errorf("%w: %s", ErrNotStaked, p.Peer)
	case ends > now:
		return out, fmt.Errorf("%w: in slot %d, now is %d", ErrNotYet, ends, now)
	case uint64(now-ends) > n.Params.EvidenceSlots:
		return out, fmt.Errorf("%w: the window ended %d slots ago, want at most %d", ErrTooOld, now-ends,
			n.Params.EvidenceSlots)
	}
	if err := begun(); err != nil {
		return out, err
	}
	for _, x := range stated {
		if err := s.state(ctx, fraud, x, &out); err != nil {
			return out, err
		}
	}
	err = s.slashFraud(ctx, fraud, p.Peer, out.Mint, stated, &out)
	after, _, readErr := c.Provider(ctx, p.Peer)
	switch {
	case err != nil && readErr == nil && slashedSince(after, ends): // another reporter was faster
		out.Already, out.Slot = true, market.Slot(after.Slashed)
		return out, s.closeStated(ctx, stated, &out)
	case err != nil:
		return out, err
	case readErr != nil:
		return out, readErr
	}
	shares := program.TakenFor(p.Stake+p.Unbonding, 0, 0)
	out.Slot, out.Taken, out.Burned = market.Slot(after.Slashed), p.Stake+p.Unbonding, shares.Burned
	out.Reward = &proof.Share{Wallet: reporter, Amount: shares.Reporter}
	return out, s.closeStated(ctx, stated, &out)
}

// statement is a statement that a liar signed, and its account on the chain.
type statement struct {
	kind   program.Statement
	layout []byte
	sig    sign.Signature
	at     sign.Key
}

// statements returns the statements that prove a lie, in the order of SlashAudit.
func (s submission) statements(fraud proof.Fraud) []statement {
	l := fraud.Lie
	var out []statement
	switch l.Kind {
	case audit.TwoAnswers:
		a, b := l.Answer.Marshal(), l.Other.Marshal()
		out = []statement{
			{kind: program.StatementAnswer, layout: a[:], sig: l.Signature},
			{kind: program.StatementAnswer, layout: b[:], sig: l.OtherSig},
		}
	case audit.FalsePass:
		v := l.Verdict.Marshal()
		out = []statement{{kind: program.StatementVerdict, layout: v[:], sig: l.Signature}}
	default:
		w := l.Shown.Marshal()
		out = []statement{{kind: program.StatementShown, layout: w[:], sig: l.Signature}}
	}
	for i, x := range out {
		out[i].at = program.StatedAddress(s.id, s.network, s.reporter, x.kind, fraud.Offender(), x.layout)
	}
	return out
}

// state writes one statement down, unless that was done before.
func (s submission) state(ctx context.Context, fraud proof.Fraud, x statement, out *proof.Outcome) error {
	id, err := s.c.Run(ctx, []svm.Instruction{
		program.SignedStatement(s.domain, x.kind, x.layout, fraud.Offender(), x.sig).Instruction(),
		program.State{Reporter: s.reporter, Network: s.network, Stated: x.at, What: x.kind}.Instruction(s.id),
	})
	if errors.Is(err, program.ErrExists) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("showing a statement of %s: %w", fraud.Offender().Short(), err)
	}
	out.Transactions = append(out.Transactions, id)
	return nil
}

// slashFraud opens the token account of the reporter, where it is missing, and takes the stake.
func (s submission) slashFraud(ctx context.Context, fraud proof.Fraud, first, mint sign.Key, stated []statement,
	out *proof.Outcome) error {
	l, provider := fraud.Lie, account.ProviderAddress(s.id, s.network, first)
	id, err := s.c.Run(ctx, []svm.Instruction{svm.OpenTokenAccount(s.reporter, s.reporter, mint)})
	if err != nil {
		return fmt.Errorf("opening a token account: %w", err)
	}
	out.Transactions = append(out.Transactions, id)
	call := program.SlashAudit{
		Network: s.network, Provider: provider, Vault: account.StakeAddress(s.id, provider), Mint: mint,
		A:        stated[0].at,
		Reporter: svm.TokenAccount(s.reporter, mint), Kind: l.Kind, Value: l.Value, Index: l.Index, Count: l.Count,
		Answer: l.Answer, Opened: l.Opening, Path: l.Path,
	}
	if len(stated) > 1 {
		call.B = stated[1].at
	}
	id, err = s.c.Run(ctx, []svm.Instruction{call.Instruction(s.id)})
	if err != nil {
		return fmt.Errorf("taking the stake: %w", err)
	}
	out.Transactions = append(out.Transactions, id)
	return nil
}

// ErrRent: the stake is taken, but the rent of the statements' accounts was not taken back.
var ErrRent = errors.New("the rent of the statements' accounts was not taken back")

// closeStated closes the statements' accounts and recovers their rent. Missing accounts are skipped.
func (s submission) closeStated(ctx context.Context, stated []statement, out *proof.Outcome) error {
	for _, x := range stated {
		call := program.CloseStated{Reporter: s.reporter, Stated: x.at}
		id, err := s.c.Run(ctx, []svm.Instruction{call.Instruction(s.id)})
		switch {
		case errors.Is(err, program.ErrOwner), errors.Is(err, program.ErrKind):
		case err != nil:
			return fmt.Errorf("%w: %w", ErrRent, err)
		default:
			out.Transactions = append(out.Transactions, id)
		}
	}
	return nil
}
