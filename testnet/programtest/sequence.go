package programtest

import (
	"context"
	"fmt"

	"github.com/starling-network/starling/chain/svm"
	"github.com/starling-network/starling/market/sign"
)

// Sequencer runs many transactions in one request, on a separate chain: thousands in seconds.
type Sequencer interface {
	Engine
	// Begin resets the chain and stores accounts; programs have to be deployed again.
	Begin(ctx context.Context, accounts map[sign.Key]Account) error
	// Sequence runs the steps in order. The steps set the clocks, which must not decrease.
	Sequence(ctx context.Context, steps []Step) ([]Outcome, error)
}

// Step is one transaction of a sequence; the first signer pays.
type Step struct {
	Slot         uint64
	Instructions []svm.Instruction
	Signers      []sign.Signer
}

// Outcome is the result of a step, with the state of its accounts after it, without missing accounts.
type Outcome struct {
	Result
	Accounts map[sign.Key]Account
}

func (e *liteSVM) Begin(ctx context.Context, accounts map[sign.Key]Account) error {
	if _, err := e.ask(ctx, request{Do: "reset"}); err != nil {
		return err
	}
	var put []accountJSON
	for k, a := range accounts {
		put = append(put, accountJSON{Key: k[:], Lamports: a.Lamports, Owner: a.Owner[:], Data: a.Data})
	}
	_, err := e.ask(ctx, request{Do: "put", Accounts: put})
	return err
}

func (e *liteSVM) Sequence(ctx context.Context, steps []Step) ([]Outcome, error) {
	latest, err := e.ask(ctx, request{Do: "blockhash"})
	if err != nil {
		return nil, err
	}
	r := request{Do: "sequence", Steps: make([]stepRequest, len(steps))}
	named := make([][]sign.Key, len(steps))
	for i, s := range steps {
		raw, err := signed(s.Instructions, latest.Blockhash, s.Signers)
		if err != nil {
			return nil, fmt.Errorf("step %d: %w", i, err)
		}
		named[i] = keysOf(s)
		r.Steps[i] = stepRequest{Slot: s.Slot, Data: raw}
		for _, k := range named[i] {
			r.Steps[i].Keys = append(r.Steps[i].Keys, k[:])
		}
	}
	a, err := e.ask(ctx, r)
	if err != nil {
		return nil, err
	}
	if len(a.Steps) != len(steps) {
		return nil, fmt.Errorf("LiteSVM: %d answers to %d steps", len(a.Steps), len(steps))
	}
	out := make([]Outcome, len(steps))
	for i, step := range a.Steps {
		if out[i], err = step.outcome(named[i]); err != nil {
			return nil, fmt.Errorf("step %d: %w", i, err)
		}
	}
	return out, nil
}

func keysOf(s Step) []sign.Key {
	var keys []sign.Key
	seen := map[sign.Key]bool{}
	for _, in := range s.Instructions {
		for _, m := range in.Accounts {
			if !seen[m.Key] {
				seen[m.Key] = true
				keys = append(keys, m.Key)
			}
		}
	}
	return keys
}

func (a answer) outcome(keys []sign.Key) (Outcome, error) {
	text, err := errText(a.Err)
	if err != nil || len(a.Accounts) != len(keys) {
		return Outcome{}, fmt.Errorf("LiteSVM: %d accounts of %d: %w", len(a.Accounts), len(keys), err)
	}
	o := Outcome{Result: Result{Err: text, Logs: a.Logs, Units: a.Units}, Accounts: map[sign.Key]Account{}}
	for i, k := range keys {
		found, err := a.Accounts[i].account()
		if err != nil {
			return Outcome{}, err
		}
		if found != nil {
			o.Accounts[k] = *found
		}
	}
	return o, nil
}
