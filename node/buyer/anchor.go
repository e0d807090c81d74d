package buyer

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/starling-network/starling/chain"
	"github.com/starling-network/starling/chain/program"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/node/settle"
	"github.com/starling-network/starling/node/store"
)

const kindAnchor = "anchor" // anchored by job

// anchored is the transaction that anchors a job's receipts, and the root that it anchors.
type anchored struct {
	chain.Prepared
	Root sign.Hash
}

// anchor has the program write down the root of the job's receipts, and returns the transaction that did when it is final; none
// without receipts, or with more than one anchor takes. One that is under way for another root is left to itself. The transaction is what shows it from then on: it closes the account in which
// the program wrote, so that no rent is left there. Should nobody remember how one ended, another one is sent; both say the same.
func (x *escrowed) anchor(ctx context.Context, job string, of anchoring) (string, error) {
	if of.Receipts == 0 {
		return "", nil
	}
	if of.Receipts > program.MaxAnchored {
		x.b.note(job, Step{At: time.Now(), Kind: StepPaid, Detail: fmt.Sprintf("%d receipts are not anchored: an anchor takes %d", of.Receipts, program.MaxAnchored)})
		return "", nil
	}
	tx, err := x.anchoring(ctx, job, of.Root)
	if err != nil {
		return "", err
	}
	l := settle.Landing{
		Chain: x.Chain, Every: x.Params.PollEvery, Wait: func(why string) { x.b.waiting(job, why, time.Now().Add(x.Params.PollEvery)) },
		Sign: func(ctx context.Context, wait func(error)) (chain.Prepared, error) {
			return x.signAnchor(ctx, job, of, wait)
		},
		Gone: func(context.Context, chain.Prepared, bool) error { return chain.ErrNotFound },
	}
	if tx, _, err = l.Run(ctx, tx); err != nil {
		return "", err
	}
	return string(tx.ID), nil
}

// anchoring is what the journal has of a job's anchor of a root: the zero value when nothing was signed.
func (x *escrowed) anchoring(ctx context.Context, job string, root sign.Hash) (tx chain.Prepared, err error) {
	var was anchored
	b, err := x.b.cfg.Store.Get(ctx, kindAnchor, job)
	if errors.Is(err, store.ErrNotFound) {
		return tx, nil
	}
	if err == nil {
		err = json.Unmarshal(b, &was)
	}
	if err != nil {
		return tx, fmt.Errorf("reading the anchor of job %s: %w", job, err)
	}
	if was.Root != root {
		return tx, nil
	}
	return was.Prepared, nil
}

// anchorCalls write a root down, and close the account where it stands.
func anchorCalls(at, self sign.Key, of anchoring) []program.Instruction {
	call := program.Anchor{Authority: self, Anchor: program.AnchorAddress(at, self, of.Root), Root: of.Root, Count: of.Receipts}
	return []program.Instruction{call.Instruction(at), program.CloseAnchor{Authority: self, Anchor: call.Anchor}.Instruction(at)}
}

// signAnchor signs one and journals it, in the place of one that can never land. The zero value: the chain has to be asked again.
func (x *escrowed) signAnchor(ctx context.Context, job string, of anchoring, wait func(error)) (chain.Prepared, error) {
	at := x.b.cfg.Genesis.Program
	in, err := x.Chain.Bid(ctx, anchorCalls(at, x.b.self, of), 0, 0) // nothing is lost if it takes long
	var tx chain.Prepared
	if err == nil {
		tx, err = x.Chain.Sign(ctx, in, nil)
	}
	if err != nil {
		wait(err)
		return chain.Prepared{}, nil
	}
	b, err := json.Marshal(anchored{tx, of.Root})
	if err == nil {
		err = x.b.cfg.Store.Write(ctx, store.Put{Kind: kindAnchor, Key: job, Value: b})
	}
	return tx, err
}
