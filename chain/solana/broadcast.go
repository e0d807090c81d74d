package solana

import (
	"context"
	"errors"
	"fmt"
	"strings"

	solanago "github.com/gagliardetto/solana-go"
	"github.com/gagliardetto/solana-go/rpc"
	"github.com/gagliardetto/solana-go/rpc/jsonrpc"

	"github.com/starling-network/starling/chain"
	"github.com/starling-network/starling/chain/program"
	"github.com/starling-network/starling/chain/solana/calls"
	"github.com/starling-network/starling/chain/solana/cluster"
	"github.com/starling-network/starling/chain/solana/transaction"
	"github.com/starling-network/starling/chain/svm"
	"github.com/starling-network/starling/market/sign"
)

const (
	// walletRent is the least balance of an account without data, in lamports.
	walletRent = 890_880
)

// tokenRent is the rent of a token account, in lamports.
var tokenRent = svm.Rent(svm.TokenSize)

// SignMemo implements chain.MemoLedger. The transaction has the memo's bytes as the data of the memo program, and no
// accounts.
func (l *Wallet) SignMemo(ctx context.Context, memo []byte) (chain.Prepared, error) {
	if err := chain.CheckMemo(memo); err != nil {
		return chain.Prepared{}, err
	}
	return l.Sign(ctx, []svm.Instruction{{Program: sign.Key(solanago.MemoProgramID), Data: memo}}, nil)
}

// Send submits the transaction to every endpoint. It succeeds if one accepts it.
func (l *Wallet) Send(ctx context.Context, tx chain.Prepared) error {
	parsed, err := transaction.Parse(tx.Raw)
	if err != nil || chain.TxID(parsed.Signatures[0].String()) != tx.ID {
		return fmt.Errorf("transaction %s: %w", tx.ID, chain.ErrMalformed)
	}
	encoded := rawTransaction(tx.Raw)
	answers := cluster.Everyone(ctx, l.cluster, func(ctx context.Context, c *rpc.Client) (struct{}, error) {
		_, err := c.SendEncodedTransactionWithOpts(ctx, encoded, rpc.TransactionOpts{
			Encoding: solanago.EncodingBase64, PreflightCommitment: rpc.CommitmentConfirmed})
		return struct{}{}, rejection(err, l.cfg.Program)
	}, nil)
	var failures []error
	for _, a := range answers {
		if a.Err == nil {
			return nil
		}
		failures = append(failures, a.Err)
	}
	for _, err := range failures {
		if errors.Is(err, chain.ErrRejected) {
			return fmt.Errorf("sending %s: %w", tx.ID, err)
		}
	}
	return cluster.NoAnswer(ctx, failures)
}

// rejection reads the answer to sendTransaction. A transaction that is already on chain counts as sent. A blockhash
// unknown to the endpoint is too old or too new: Status decides. Refusals by Starling's program also have its
// program.Code.
func rejection(err error, starling sign.Key) error {
	var remote *jsonrpc.RPCError
	if !errors.As(err, &remote) || calls.IsUnwell(remote.Code) {
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
	case has("insufficient lamports", "insufficientfundsfor", "insufficient funds for fee",
		"insufficient funds for rent"):
		return fmt.Errorf("%w: %s: %w", chain.ErrRejected, cluster.Said(remote), chain.ErrFees)
	// the token program's InsufficientFunds
	case has("insufficient funds") || strings.HasSuffix(remote.Message, "custom program error: 0x1"):
		return fmt.Errorf("%w: %s: %w", chain.ErrRejected, cluster.Said(remote), chain.ErrAllowance)
	}
	return fmt.Errorf("%w: %s", chain.ErrRejected, cluster.Said(remote))
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
