package solana

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	solanago "github.com/gagliardetto/solana-go"
	"github.com/gagliardetto/solana-go/rpc"

	"github.com/starling-network/starling/chain"
	"github.com/starling-network/starling/chain/solana/cluster"
	"github.com/starling-network/starling/market"
)

// Status polls every endpoint. A permanent state (final, failed, expired) counts if two endpoints report it, or the
// only one configured.
func (l *Wallet) Status(ctx context.Context, tx chain.Prepared) (chain.TxStatus, error) {
	signature, err := solanago.SignatureFromBase58(string(tx.ID))
	if err != nil {
		return chain.TxStatus{}, fmt.Errorf("transaction id: %w", chain.ErrMalformed)
	}
	answers := cluster.Everyone(ctx, l.cluster, func(ctx context.Context, c *rpc.Client) (chain.TxStatus, error) {
		return statusAt(ctx, c, signature, tx)
	}, nil)
	status, err := combine(ctx, answers)
	if err == nil && status.State == chain.Expired {
		// A chain that lost its history, or another chain, has not seen it either. Ours has the mint.
		err = l.Check(ctx)
	}
	if err != nil {
		return chain.TxStatus{}, err
	}
	return status, nil
}

// validBlocks is how many blocks after its blockhash's a transaction can be in.
const validBlocks = 150

// statusAt returns one endpoint's view.
func statusAt(
	ctx context.Context, c *rpc.Client, signature solanago.Signature, tx chain.Prepared,
) (chain.TxStatus, error) {
	at, seen, err := seenAt(ctx, c, signature)
	if err != nil || seen != nil {
		return statusOf(seen), err
	}
	// The block height grows by at most one a slot, so it has not passed the last valid block.
	if at > 0 && at < tx.Since+validBlocks {
		return chain.TxStatus{}, nil
	}
	return expiredAt(ctx, c, signature, tx)
}

// expiredAt reports whether a transaction that was not seen has expired. It reads the final height first and searches
// the transaction afterwards. A transaction that is missing once the final height is past its last valid block can be
// in no block.
func expiredAt(
	ctx context.Context, c *rpc.Client, signature solanago.Signature, tx chain.Prepared,
) (chain.TxStatus, error) {
	slot, err := c.GetSlot(ctx, rpc.CommitmentFinalized)
	if err != nil {
		return chain.TxStatus{}, err
	}
	height, err := c.GetBlockHeight(ctx, rpc.CommitmentFinalized)
	if err != nil || height <= tx.LastValid {
		return chain.TxStatus{}, err
	}
	at, seen, err := seenAt(ctx, c, signature)
	if err != nil || seen != nil {
		return statusOf(seen), err
	}
	// One address may have many servers. The server with the status must not be behind the server with the height.
	if at < market.Slot(slot) {
		return chain.TxStatus{}, nil
	}
	first, err := c.GetFirstAvailableBlock(ctx)
	if err != nil {
		return chain.TxStatus{}, err
	}
	if market.Slot(first) > tx.Since {
		return chain.TxStatus{}, fmt.Errorf("its first block is %d, later than the transaction's earliest, %d: %w",
			first, tx.Since, chain.ErrHistory)
	}
	return chain.TxStatus{State: chain.Expired}, nil
}

// seenAt returns an endpoint's status of a transaction and the slot of that status. The status is nil if the endpoint
// has none; the slot is 0 if the answer has none.
func seenAt(
	ctx context.Context, c *rpc.Client, signature solanago.Signature,
) (market.Slot, *rpc.SignatureStatusesResult, error) {
	out, err := c.GetSignatureStatuses(ctx, true, signature)
	switch {
	case errors.Is(err, rpc.ErrNotFound):
		return 0, nil, nil
	case err != nil:
		return 0, nil, err
	case len(out.Value) != 1:
		return market.Slot(out.Context.Slot), nil, nil
	}
	return market.Slot(out.Context.Slot), out.Value[0], nil
}

func statusOf(s *rpc.SignatureStatusesResult) chain.TxStatus {
	if s == nil {
		return chain.TxStatus{}
	}
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
func combine(ctx context.Context, answers []cluster.Answer[chain.TxStatus]) (chain.TxStatus, error) {
	var count [chain.Expired + 1]int
	var sample [chain.Expired + 1]chain.TxStatus
	var failures []error
	for _, a := range answers {
		if a.Err != nil {
			failures = append(failures, a.Err)
			continue
		}
		count[a.Value.State]++
		sample[a.Value.State] = a.Value
	}
	if len(failures) == len(answers) {
		for _, err := range failures {
			if errors.Is(err, chain.ErrHistory) {
				return chain.TxStatus{}, err
			}
		}
		return chain.TxStatus{}, cluster.NoAnswer(ctx, failures)
	}
	landed := count[chain.Pending] + count[chain.Confirmed] + count[chain.Finalized] + count[chain.Failed]
	if count[chain.Finalized] > 0 && count[chain.Failed] > 0 || count[chain.Expired] > 0 && landed > 0 {
		return chain.TxStatus{}, fmt.Errorf("of %d endpoints %d saw the transaction, "+
			"%d report a final failure, %d an expiry: %w",
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
