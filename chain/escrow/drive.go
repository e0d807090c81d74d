package escrow

import (
	"context"
	"errors"
	"time"

	"github.com/starling-network/starling/chain"
	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
)

// Params are the machines' intervals. They are not part of their state.
type Params struct {
	// between polls of pending transactions; each poll of an unseen transaction sends it again
	PollEvery time.Duration
	// between looks at the escrow while something is waited for; well below the network's response slots
	LookEvery time.Duration
	// after a failed look; after those of one transaction doubling up to 32 times this
	RetryAfter time.Duration
}

// DefaultParams suit slots of 100 to 400 ms and response slots of minutes.
func DefaultParams() Params {
	return Params{PollEvery: time.Second, LookEvery: 10 * time.Second, RetryAfter: 2 * time.Second}
}

// When is the bound on a provider's unclaimed earnings. It is not part of the machine's state.
type When struct {
	Amount market.Amount // unclaimed earnings that trigger a claim
	Slots  uint64        // slots since the last claim that trigger the next
}

// Machine is a Deposit, a Hire or Claims: a value with a Step that returns the next one. On an error it is unchanged.
type Machine[M any] interface {
	Step(now time.Time, ev Event) (M, []Effect, error)
}

// Do runs one of Sign, Push and Look against the ledger and returns its answer; nil for every other effect. Others sign
// whatever they must beside the ledger's key.
func Do(ctx context.Context, l Ledger, e Effect, others ...sign.Signer) Event {
	switch e := e.(type) {
	case Sign:
		var out Signed
		for _, o := range e.Orders {
			var tx chain.Prepared
			var err error
			in := o.Instructions
			if !o.Full {
				in, err = l.Bid(ctx, in, o.Stake, o.Retries)
			}
			if err == nil {
				tx, err = l.Sign(ctx, in, o.Tables, others...)
			}
			r := SignResult{No: o.No, Tx: tx}
			if err != nil {
				r = SignResult{No: o.No, Err: err.Error(), TooLong: errors.Is(err, chain.ErrPayment)}
			}
			out.Results = append(out.Results, r)
		}
		return out
	case Push:
		return push(ctx, l, e)
	case Look:
		out := Looked{Escrow: e.Escrow}
		for _, at := range []struct {
			level Level
			view  *View
		}{{Finalized, &out.Final}, {Confirmed, &out.Confirmed}} {
			v, err := l.Look(ctx, e.Escrow, e.Tranches, at.level)
			if err != nil {
				return Looked{Escrow: e.Escrow, Err: err.Error()}
			}
			*at.view = v
		}
		return out
	}
	return nil
}

func push(ctx context.Context, l Ledger, e Push) Event {
	out := Pushed{No: e.No}
	if e.Send {
		if err := l.Send(ctx, e.Tx); errors.Is(err, chain.ErrRejected) {
			out.Rejected = err.Error()
		} else if err != nil {
			out.Err = err.Error()
			return out
		}
	}
	status, err := l.Status(ctx, e.Tx)
	if err != nil {
		out.Err, out.Gone = err.Error(), errors.Is(err, chain.ErrHistory)
		return out
	}
	out.Status = status
	return out
}
