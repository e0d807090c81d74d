package solana

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"

	solanago "github.com/gagliardetto/solana-go"
	"github.com/gagliardetto/solana-go/rpc"

	"github.com/starling-network/starling/chain"
	"github.com/starling-network/starling/market"
)

// answer of one endpoint.
type answer[T any] struct {
	value T
	err   error
}

// everyone asks all endpoints at once and waits for all answers.
func everyone[T any](ctx context.Context, p *pool, question func(context.Context, *rpc.Client) (T, error)) []answer[T] {
	answers := make([]answer[T], len(p.endpoints))
	var wg sync.WaitGroup
	for i, e := range p.endpoints {
		wg.Go(func() {
			if answers[i].err = e.checked(ctx, p.genesis); answers[i].err != nil {
				return
			}
			value, err := question(ctx, e.client)
			if err != nil && !errors.Is(err, chain.ErrRejected) && !errors.Is(err, chain.ErrHistory) {
				err = e.fail(ctx, err)
			}
			answers[i] = answer[T]{value, err}
		})
	}
	wg.Wait()
	return answers
}

// Status asks every endpoint. What can never change (final, failed, expired) is believed when two say so, or the only one configured.
func (l *Ledger) Status(ctx context.Context, tx chain.Prepared) (chain.TxStatus, error) {
	signature, err := solanago.SignatureFromBase58(string(tx.ID))
	if err != nil {
		return chain.TxStatus{}, fmt.Errorf("transaction id: %w", chain.ErrMalformed)
	}
	answers := everyone(ctx, l.pool, func(ctx context.Context, c *rpc.Client) (chain.TxStatus, error) {
		return statusAt(ctx, c, signature, tx)
	})
	status, err := combine(ctx, answers)
	if err == nil && status.State == chain.Expired {
		// A chain that lost its past, or is another, saw nothing either. Ours has the mint.
		err = l.Check(ctx)
	}
	if err != nil {
		return chain.TxStatus{}, err
	}
	return status, nil
}

// statusAt is one endpoint's view. The final height is read first: a transaction that is not there once that height is
// past its last valid block can be in no block at all.
func statusAt(ctx context.Context, c *rpc.Client, signature solanago.Signature, tx chain.Prepared) (chain.TxStatus, error) {
	slot, err := c.GetSlot(ctx, rpc.CommitmentFinalized)
	if err != nil {
		return chain.TxStatus{}, err
	}
	height, err := c.GetBlockHeight(ctx, rpc.CommitmentFinalized)
	if err != nil {
		return chain.TxStatus{}, err
	}
	out, err := c.GetSignatureStatuses(ctx, true, signature)
	if err != nil && !errors.Is(err, rpc.ErrNotFound) {
		return chain.TxStatus{}, err
	}
	if err == nil && len(out.Value) == 1 && out.Value[0] != nil {
		return statusOf(out.Value[0]), nil
	}
	// Behind one address may stand many servers: the one that looked must have been as far as the one that counted.
	if height <= tx.LastValid || out == nil || out.Context.Slot < slot {
		return chain.TxStatus{}, nil
	}
	first, err := c.GetFirstAvailableBlock(ctx)
	if err != nil {
		return chain.TxStatus{}, err
	}
	if market.Slot(first) > tx.Since {
		return chain.TxStatus{}, fmt.Errorf("its first block is %d, the transaction's could be %d: %w", first, tx.Since, chain.ErrHistory)
	}
	return chain.TxStatus{State: chain.Expired}, nil
}

func statusOf(s *rpc.SignatureStatusesResult) chain.TxStatus {
	status := chain.TxStatus{State: chain.Pending, Slot: market.Slot(s.Slot)}
	if s.Err != nil {
		text, err := json.Marshal(s.Err)
		if err != nil {
			text = []byte("unreadable")
		}
		status.Err = "transaction failed: " + string(text[:min(len(text), 300)])
	}
	switch {
	case s.ConfirmationStatus == rpc.ConfirmationStatusFinalized && s.Err != nil:
		status.State = chain.Failed
	case s.ConfirmationStatus == rpc.ConfirmationStatusFinalized:
		status.State = chain.Finalized
	case s.ConfirmationStatus == rpc.ConfirmationStatusConfirmed && s.Err == nil:
		status.State = chain.Confirmed
	}
	return status
}

// combine weighs the endpoints' views.
func combine(ctx context.Context, answers []answer[chain.TxStatus]) (chain.TxStatus, error) {
	var count [chain.Expired + 1]int
	var sample [chain.Expired + 1]chain.TxStatus
	var failures []error
	for _, a := range answers {
		if a.err != nil {
			failures = append(failures, a.err)
			continue
		}
		count[a.value.State]++
		sample[a.value.State] = a.value
	}
	if len(failures) == len(answers) {
		for _, err := range failures {
			if errors.Is(err, chain.ErrHistory) {
				return chain.TxStatus{}, err
			}
		}
		return chain.TxStatus{}, noAnswer(ctx, failures)
	}
	landed := count[chain.Pending] + count[chain.Confirmed] + count[chain.Finalized] + count[chain.Failed]
	if count[chain.Finalized] > 0 && count[chain.Failed] > 0 || count[chain.Expired] > 0 && landed > 0 {
		return chain.TxStatus{}, fmt.Errorf("of %d endpoints %d saw the transaction, %d say that it failed for good, %d that it expired: %w",
			len(answers), landed, count[chain.Failed], count[chain.Expired], chain.ErrDisagree)
	}
	for _, state := range []chain.TxState{chain.Finalized, chain.Failed, chain.Expired} {
		if count[state] >= min(2, len(answers)) {
			return sample[state], nil
		}
	}
	switch {
	case count[chain.Finalized] > 0:
		return chain.TxStatus{State: chain.Confirmed, Slot: sample[chain.Finalized].Slot}, nil
	case count[chain.Confirmed] > 0:
		return sample[chain.Confirmed], nil
	case count[chain.Failed] > 0:
		return chain.TxStatus{State: chain.Pending, Slot: sample[chain.Failed].Slot, Err: sample[chain.Failed].Err}, nil
	case count[chain.Pending] > 0:
		return sample[chain.Pending], nil
	}
	return chain.TxStatus{}, nil
}

// Memo reads the first memo of a final transaction that did not fail, from the first endpoint that answers.
func (l *Ledger) Memo(ctx context.Context, id chain.TxID) ([]byte, market.Slot, error) {
	signature, err := solanago.SignatureFromBase58(string(id))
	if err != nil {
		return nil, 0, fmt.Errorf("transaction id %q: %w", id, chain.ErrNotFound)
	}
	version := uint64(0)
	out, err := ask(ctx, l.pool, func(ctx context.Context, c *rpc.Client) (*rpc.GetTransactionResult, error) {
		return c.GetTransaction(ctx, signature, &rpc.GetTransactionOpts{Encoding: solanago.EncodingBase64,
			Commitment: rpc.CommitmentFinalized, MaxSupportedTransactionVersion: &version})
	})
	if errors.Is(err, rpc.ErrNotFound) {
		return nil, 0, fmt.Errorf("transaction %s: %w", id, chain.ErrNotFound)
	}
	if err != nil {
		return nil, 0, fmt.Errorf("reading transaction %s: %w", id, err)
	}
	if out.Meta == nil || out.Meta.Err != nil || out.Transaction == nil {
		return nil, 0, fmt.Errorf("transaction %s had no effect: %w", id, chain.ErrNotFound)
	}
	text, err := memoOf(out.Transaction.GetBinary(), signature)
	if err != nil {
		return nil, 0, fmt.Errorf("transaction %s: %w", id, err)
	}
	return text, market.Slot(out.Slot), nil
}

// memoOf finds the memo in a transaction's wire form. The endpoint need not be trusted for more than that it landed: the
// signatures must hold, and the first be the one that was asked for.
func memoOf(raw []byte, id solanago.Signature) ([]byte, error) {
	tx, err := parseTransaction(raw)
	if err != nil {
		return nil, err
	}
	if tx.Signatures[0] != id || tx.VerifySignatures() != nil {
		return nil, fmt.Errorf("signatures do not hold: %w", chain.ErrMalformed)
	}
	for _, in := range tx.Message.Instructions {
		program, err := tx.Message.Program(in.ProgramIDIndex)
		if err == nil && program == solanago.MemoProgramID && len(in.Data) > 0 && len(in.Data) <= chain.MaxMemo {
			return bytes.Clone(in.Data), nil
		}
	}
	return nil, fmt.Errorf("memo: %w", chain.ErrNotFound)
}

// parseTransaction reads a wire form of at most chain.MaxRaw bytes. The library indexes before it checks, hence the recover.
func parseTransaction(raw []byte) (tx *solanago.Transaction, err error) {
	defer func() {
		if recover() != nil {
			tx, err = nil, fmt.Errorf("transaction of %d bytes: %w", len(raw), chain.ErrMalformed)
		}
	}()
	if len(raw) > chain.MaxRaw {
		return nil, fmt.Errorf("transaction of %d bytes: %w", len(raw), chain.ErrMalformed)
	}
	tx, err = solanago.TransactionFromBytes(raw)
	if err != nil || len(tx.Signatures) == 0 || len(tx.Signatures) != int(tx.Message.Header.NumRequiredSignatures) ||
		len(tx.Message.AccountKeys) < len(tx.Signatures) {
		return nil, fmt.Errorf("transaction of %d bytes: %w", len(raw), chain.ErrMalformed)
	}
	return tx, nil
}
