package solana

import (
	"context"
	"errors"
	"fmt"
	"sort"
	"strings"

	solanago "github.com/gagliardetto/solana-go"
	"github.com/gagliardetto/solana-go/rpc"
	"github.com/gagliardetto/solana-go/rpc/jsonrpc"

	"github.com/starling-network/starling/chain"
	"github.com/starling-network/starling/chain/program"
	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
)

const (
	// MaxPayouts is the most payouts that one transaction could hold, all to one account and without a memo. How many
	// do fit depends on the receivers; Prepared.Count says it.
	MaxPayouts = 50
	// lamportsPerSignature is the base fee.
	lamportsPerSignature = 5_000
	// walletRent is what an account without data must keep, in lamports.
	walletRent = 890_880
)

// tokenRent is what opening a token account costs, in lamports.
var tokenRent = program.Rent(program.TokenSize)

// Prepare reads what it needs from one endpoint, packs as many payouts as fit from the front, checks that they can be
// paid, and signs.
func (l *Ledger) Prepare(ctx context.Context, p chain.Payment) (chain.Prepared, error) {
	if err := p.Check(); err != nil {
		return chain.Prepared{}, err
	}
	if err := l.Check(ctx); err != nil {
		return chain.Prepared{}, err
	}
	payouts := p.Payouts[:min(len(p.Payouts), MaxPayouts)]
	plan := l.plan(payouts, p.Memo)
	if err := l.look(ctx, plan); err != nil {
		return chain.Prepared{}, err
	}
	n := plan.fit()
	if n == 0 && len(payouts) > 0 {
		return chain.Prepared{}, fmt.Errorf("%w: not one payout fits beside the memo", chain.ErrPayment)
	}
	if err := l.affordable(plan, n); err != nil {
		return chain.Prepared{}, err
	}
	tx, err := l.sign(plan.now, plan.instructions(n), nil, nil)
	tx.Count = n
	return tx, err
}

// plan is a payment on its way to a transaction.
type plan struct {
	ledger   *Ledger
	payouts  []chain.Payout
	accounts []solanago.PublicKey // token account of each payout
	memo     []byte

	// as the chain has it
	missing map[solanago.PublicKey]bool // token accounts to open
	funds   chain.Funds
	now     recent
}

func (l *Ledger) plan(payouts []chain.Payout, memo []byte) *plan {
	p := &plan{ledger: l, payouts: payouts, memo: memo, missing: map[solanago.PublicKey]bool{}}
	for _, o := range payouts {
		p.accounts = append(p.accounts, tokenAccountOf(solanago.PublicKey(o.To), l.mint))
	}
	return p
}

// look reads everything the plan depends on.
func (l *Ledger) look(ctx context.Context, p *plan) error {
	keys := append([]solanago.PublicKey{l.source, l.payer}, p.accounts...)
	now, accounts, err := l.latestAnd(ctx, keys)
	if err != nil {
		return err
	}
	p.now = now
	for i, a := range accounts[2:] {
		if a == nil || a.Owner != solanago.TokenProgramID {
			p.missing[p.accounts[i]] = true
		}
	}
	p.funds, err = l.funds(accounts[0], accounts[1])
	return err
}

// instructions of the first n payouts.
func (p *plan) instructions(n int) []solanago.Instruction {
	var out []solanago.Instruction
	if len(p.memo) > 0 {
		out = append(out, memoInstruction(p.memo))
	}
	l, opened := p.ledger, map[solanago.PublicKey]bool{}
	for i, o := range p.payouts[:n] {
		if account := p.accounts[i]; p.missing[account] && !opened[account] {
			opened[account] = true
			out = append(out, openTokenAccount(l.payer, solanago.PublicKey(o.To), l.mint))
		}
		out = append(out, transferChecked(l.source, l.mint, p.accounts[i], l.payer, o.Amount, l.cfg.Decimals))
	}
	return out
}

// fit is how many payouts, from the front, one transaction holds.
func (p *plan) fit() int {
	return sort.Search(len(p.payouts), func(n int) bool {
		size, err := p.size(n + 1)
		return err != nil || size > chain.MaxRaw
	})
}

// size is the length of the signed transaction with n payouts.
func (p *plan) size(n int) (int, error) {
	tx, err := solanago.NewTransaction(p.instructions(n), p.now.blockhash, solanago.TransactionPayer(p.ledger.payer))
	if err != nil {
		return 0, err
	}
	message, err := tx.Message.MarshalBinary()
	return 1 + 64 + len(message), err
}

// affordable checks that the first n payouts can be paid, fee and new accounts too.
func (l *Ledger) affordable(p *plan, n int) error {
	var sum market.Amount
	opened := map[solanago.PublicKey]bool{}
	for i, o := range p.payouts[:n] {
		sum += o.Amount // cannot overflow: Payment.Check
		if p.missing[p.accounts[i]] {
			opened[p.accounts[i]] = true
		}
	}
	lamports := lamportsPerSignature + walletRent + tokenRent*uint64(len(opened))
	switch f := p.funds; {
	case f.Balance < sum:
		return fmt.Errorf("owner %s holds %s, %s needed: %w", l.owner, l.text(f.Balance), l.text(sum), chain.ErrAllowance)
	case f.Spendable < sum:
		return fmt.Errorf("owner %s lets %s spend %s, %s needed; approve more: %w",
			l.owner, l.payer, l.text(f.Spendable), l.text(sum), chain.ErrAllowance)
	case f.Lamports < lamports:
		return fmt.Errorf("key %s holds %d lamports, %d needed for the fee, %d new token accounts and its own rent: %w",
			l.payer, f.Lamports, lamports, len(opened), chain.ErrFees)
	}
	return nil
}

// text writes an amount in whole tokens.
func (l *Ledger) text(a market.Amount) string {
	digits := fmt.Sprintf("%0*d", int(l.cfg.Decimals)+1, uint64(a))
	whole, part := digits[:len(digits)-int(l.cfg.Decimals)], strings.TrimRight(digits[len(digits)-int(l.cfg.Decimals):], "0")
	return strings.TrimSuffix(whole+"."+part, ".")
}

// Send hands the transaction to every endpoint; one that takes it is enough.
func (l *Ledger) Send(ctx context.Context, tx chain.Prepared) error {
	parsed, err := parseTransaction(tx.Raw)
	if err != nil || chain.TxID(parsed.Signatures[0].String()) != tx.ID {
		return fmt.Errorf("transaction %s: %w", tx.ID, chain.ErrMalformed)
	}
	encoded := rawTransaction(tx.Raw)
	answers := everyone(ctx, l.pool, func(ctx context.Context, c *rpc.Client) (struct{}, error) {
		_, err := c.SendEncodedTransactionWithOpts(ctx, encoded, rpc.TransactionOpts{
			Encoding: solanago.EncodingBase64, PreflightCommitment: rpc.CommitmentConfirmed})
		return struct{}{}, rejection(err, l.cfg.Program)
	}, nil)
	var failures []error
	for _, a := range answers {
		if a.err == nil {
			return nil
		}
		failures = append(failures, a.err)
	}
	for _, err := range failures {
		if errors.Is(err, chain.ErrRejected) {
			return fmt.Errorf("sending %s: %w", tx.ID, err)
		}
	}
	return noAnswer(ctx, failures)
}

// rejection reads the answer to sendTransaction. What is already there was sent; a blockhash that the endpoint does not
// know is old, or new to it: Status tells which. What Starling's program refused is its program.Code too.
func rejection(err error, starling sign.Key) error {
	var remote *jsonrpc.RPCError
	if !errors.As(err, &remote) || unwell(remote.Code) {
		return err
	}
	text := strings.ToLower(remote.Message + fmt.Sprint(remote.Data))
	has := func(parts ...string) bool {
		for _, p := range parts {
			if strings.Contains(text, p) {
				return true
			}
		}
		return false
	}
	code, _, refused := program.Refusal(starling, logsOf(remote.Data))
	switch {
	case has("already been processed", "alreadyprocessed", "blockhash not found", "blockhashnotfound"):
		return nil
	case !starling.IsZero() && refused:
		return fmt.Errorf("%w: %w", chain.ErrRejected, code)
	case has("insufficient lamports", "insufficientfundsfor", "insufficient funds for fee", "insufficient funds for rent"):
		return fmt.Errorf("%w: %s: %w", chain.ErrRejected, remote.Message, chain.ErrFees)
	case has("insufficient funds") || strings.HasSuffix(remote.Message, "custom program error: 0x1"): // the token program's InsufficientFunds
		return fmt.Errorf("%w: %s: %w", chain.ErrRejected, remote.Message, chain.ErrAllowance)
	}
	return fmt.Errorf("%w: %s", chain.ErrRejected, remote.Message)
}

// logsOf finds the transaction's log in the data of an RPC error.
func logsOf(data any) (logs []string) {
	fields, _ := data.(map[string]any)
	lines, _ := fields["logs"].([]any)
	for _, line := range lines {
		if text, ok := line.(string); ok {
			logs = append(logs, text)
		}
	}
	return logs
}
