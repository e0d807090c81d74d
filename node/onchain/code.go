package onchain

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/starling-network/starling/chain"
	"github.com/starling-network/starling/chain/svm"
	"github.com/starling-network/starling/market/sign"
)

const (
	// codeEvery is the interval of comparisons of the program on the chain with the genesis.
	codeEvery = 10 * time.Minute
	// codeRetry is the delay after a failed read.
	codeRetry = 10 * time.Second
)

// ErrCode is returned if the network's program on the chain differs from the genesis.
var ErrCode = errors.New("the program on the chain differs from the program in the genesis")

// followCode compares the program's code on the chain with the genesis as soon as it can be read, and every ten
// minutes from then on, until ctx ends. It returns ErrCode if they differ: the author of other code decides over
// every deposit and stake.
func (w *Watch) followCode(ctx context.Context) error {
	var last svm.Deployed
	for {
		wait := codeRetry
		d, err := w.cfg.Program.Deployed(ctx)
		switch {
		case ctx.Err() != nil:
			return nil
		case errors.Is(err, chain.ErrNotFound), errors.Is(err, chain.ErrMalformed):
			return fmt.Errorf("%w: %w", ErrCode, err)
		case err != nil:
			w.cfg.Log.Warn("the network's program cannot be read", "err", err)
		default:
			wait = codeEvery
			if err := checkCode(w.cfg.Genesis.Code, d); err != nil {
				return err
			}
			if d != last {
				w.logCode(d)
				last = d
			}
			w.code.Store(&d)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(wait):
		}
	}
}

// checkCode compares the chain's code with the genesis, if that names any.
func checkCode(want sign.Hash, d svm.Deployed) error {
	if !want.IsZero() && d.Code != want {
		return fmt.Errorf("%w: code %s, deployed in slot %d, want %s by the genesis; "+
			"do not join until its operators explain the change", ErrCode, d.Code, d.Slot, want)
	}
	return nil
}

func (w *Watch) logCode(d svm.Deployed) {
	log := w.cfg.Log.With("program", w.cfg.Genesis.Program, "code", d.Code, "slot", d.Slot)
	if w.cfg.Genesis.Code.IsZero() {
		log.Warn("the genesis names no code: the program is not verified")
	}
	switch {
	case d.Final():
		log.Info("the network's program is final: it cannot be changed")
	case d.SingleKey():
		log.Warn("the network's program can be changed by one key, which could take every deposit and stake",
			"authority", d.Authority)
	default:
		log.Info("the network's program can be changed by another program, such as a multisig",
			"authority", d.Authority)
	}
}
