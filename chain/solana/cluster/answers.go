package cluster

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/gagliardetto/solana-go/rpc"

	"github.com/starling-network/starling/chain"
)

// Answer of one endpoint.
type Answer[T any] struct {
	Value T
	Err   error
}

// Straggle is how long the other endpoints are waited for once as many have answered as must agree.
const Straggle = 2 * time.Second

// Everyone requests answers from all endpoints in parallel. It waits until enough accepts the answers, or all have
// answered, or the last ones are late. A late answer is an error. Enough is optional.
func Everyone[T any](
	ctx context.Context, p *Cluster, question func(context.Context, *rpc.Client) (T, error),
	enough func([]Answer[T]) bool,
) []Answer[T] {
	type numbered struct {
		i int
		Answer[T]
	}
	answers, got := make([]Answer[T], len(p.endpoints)), make(chan numbered, len(p.endpoints))
	ctx, cancel := context.WithCancel(ctx)
	for i, e := range p.endpoints {
		answers[i].Err = fmt.Errorf("%s: slower than the other endpoints: %w", e.name, chain.ErrDown)
		go func() { got <- numbered{i, askOne(ctx, p, e, question)} }()
	}
	left, heard := len(answers), 0
	defer func() {
		cancel() // which ends every call
		for ; left > 0; left-- {
			<-got
		}
	}()
	var late <-chan time.Time
	for left > 0 {
		select {
		case <-late:
			return answers
		case a := <-got:
			left--
			answers[a.i] = a.Answer
			if a.Err != nil {
				continue
			}
			if heard++; enough != nil && enough(answers) {
				return answers
			}
			if late == nil && heard >= min(2, len(answers)) {
				late = time.After(Straggle)
			}
		}
	}
	return answers
}

func askOne[T any](
	ctx context.Context, p *Cluster, e *endpoint, question func(context.Context, *rpc.Client) (T, error),
) (a Answer[T]) {
	if a.Err = e.checked(ctx, p.genesis); a.Err != nil {
		return a
	}
	a.Value, a.Err = question(ctx, e.client)
	if a.Err != nil && !errors.Is(a.Err, chain.ErrRejected) && !errors.Is(a.Err, chain.ErrHistory) {
		a.Err = e.fail(ctx, a.Err)
	}
	return a
}
