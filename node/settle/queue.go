package settle

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/starling-network/starling/chain"
	"github.com/starling-network/starling/chain/escrow"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/node/machine"
)

// askAgain is the time between tries to journal an answer of the chain.
const askAgain = time.Second

// queue has the effects of one machine. They are carried out one at a time and in order: the chain sees a machine's
// transactions as it made them, and Notify gets its effects as they came.
type queue struct {
	ledger escrow.Ledger

	mu      sync.Mutex
	effects []escrow.Effect
	busy    bool // a call carries them out
}

// queue returns that of a machine.
func (k *Keeper[M]) queue(name string) *queue {
	k.mu.Lock()
	defer k.mu.Unlock()
	q := k.queues[name]
	if q == nil {
		q = &queue{ledger: &observed{
			Ledger: k.cfg.Ledger, name: name, program: k.cfg.Program, to: k.cfg.Owner,
			made: map[chain.TxID]Landed{}, told: map[chain.TxID]bool{},
		}}
		k.queues[name] = q
	}
	return q
}

// add adds an effect, and reports whether a call must be started for it. A push replaces a waiting one of the same
// transaction, because a machine repeats its request while the chain is slow.
func (q *queue) add(f escrow.Effect) (start bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	at := -1
	if p, push := f.(escrow.Push); push {
		at = slices.IndexFunc(q.effects, func(f escrow.Effect) bool {
			other, push := f.(escrow.Push)
			return push && other.No == p.No
		})
	}
	if at >= 0 {
		q.effects[at] = f
	} else {
		q.effects = append(q.effects, f)
	}
	start = !q.busy
	q.busy = true
	return start
}

// next removes the first effect. Without one the call ends.
func (q *queue) next() (f escrow.Effect, ok bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.effects) == 0 {
		q.effects, q.busy = nil, false
		return nil, false
	}
	f = q.effects[0]
	q.effects = q.effects[1:]
	return f, true
}

// carry carries out the effects of a machine until there are none. Once ctx has ended it makes no calls to the chain,
// but Notify still receives its effects.
func (k *Keeper[M]) carry(ctx context.Context, name string, q *queue) {
	for f, ok := q.next(); ok; f, ok = q.next() {
		switch f.(type) {
		case escrow.Sign, escrow.Push, escrow.Look:
			k.ask(ctx, name, q.ledger, f)
		default:
			k.cfg.Owner.Notify(name, f)
		}
	}
}

// ask carries out an effect on the chain, until the machine has accepted the answer or ctx ends. While the journal
// fails it repeats the request, because a waiting view or transaction becomes outdated. It also does so if the machine
// panics over the answer, because the machine waits for one.
func (k *Keeper[M]) ask(ctx context.Context, name string, l escrow.Ledger, f escrow.Effect) {
	for ctx.Err() == nil {
		var others []sign.Signer
		if _, sign := f.(escrow.Sign); sign {
			if c, ok := k.cfg.Owner.(Cosigned); ok {
				others = c.Others(name)
			}
		}
		answer := escrow.Do(ctx, l, f, others...)
		if ctx.Err() != nil {
			return // it may have failed for that; the next process repeats it
		}
		_, err := k.runner.Ask(ctx, name, answer)
		if !errors.Is(err, machine.ErrRetry) && !errors.Is(err, machine.ErrBusy) && !errors.Is(err, machine.ErrPanic) {
			return // taken, or refused finally
		}
		select {
		case <-ctx.Done():
		case <-time.After(askAgain):
		}
	}
}
