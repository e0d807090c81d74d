package entry

import (
	"bytes"
	"context"
	"errors"
	"slices"
	"sync/atomic"
	"testing"

	"github.com/libp2p/go-libp2p/core/peer"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/p2p/stream"
	"github.com/starling-network/starling/verify"
	"github.com/starling-network/starling/verify/replica"
)

// dissentOf is a proof that two providers signed different results for a buyer.
func dissentOf(t *testing.T, buyer sign.Private) replica.Dissent {
	t.Helper()
	d := replica.Dissent{Work: replica.Work{Seed: 1, MemoryMiB: 1, DiskMiB: 1, Outputs: []string{"/out"}}}
	for i := range 2 {
		p, r := keyOf(20+i), replica.Result{Trees: []sign.Hash{{byte(i)}}}
		core := verify.ReceiptCore{Version: verify.ReceiptVersion, Flags: verify.ReceiptFinal, Units: 1, Lease: market.LeaseID{byte(i)}, Seq: 1, Provider: p.Key(), Buyer: buyer.Key(),
			From: 1, To: 2, Output: replica.Output(d.Work.Hash(), r)}
		s := replica.Signed{Receipt: verify.Receipt{ReceiptCore: core}, Result: r}
		var errs [2]error
		s.Receipt.ProviderSig, errs[0] = core.Sign(genesis.Domain(), p)
		s.Receipt.BuyerSig, errs[1] = core.Sign(genesis.Domain(), buyer)
		if err := errors.Join(errs[:]...); err != nil {
			t.Fatal(err)
		}
		d.Results = append(d.Results, s)
	}
	slices.SortFunc(d.Results, func(x, y replica.Signed) int { return bytes.Compare(x.Receipt.Lease[:], y.Receipt.Lease[:]) })
	return d
}

// An entry takes a proof from who bought one of its results, if it holds, and a few only.
func TestTell(t *testing.T) {
	t.Parallel()
	var told atomic.Int64
	w := newWorld(t, func(c *Config) {
		c.Tell = func(_ context.Context, _ peer.ID, d replica.Dissent) error {
			told.Add(1)
			return replica.CheckDissent(genesis.Domain(), d)
		}
	})
	tell := func(b []byte) error { return Tell(t.Context(), w.client, genesis.Tag(), w.entry, b) }
	good := dissentOf(t, keyOf(0))
	if err := tell(good.Marshal()); err != nil || told.Load() != 1 {
		t.Fatalf("%v, told %d", err, told.Load())
	}
	if err := tell(make([]byte, replica.MaxDissent+100)); !errors.Is(err, stream.ErrTooLarge) {
		t.Errorf("too large: %v", err)
	}
	forged := dissentOf(t, keyOf(0))
	forged.Results[0].Receipt.ProviderSig[0] ^= 1
	for _, c := range []struct {
		name string
		b    []byte
	}{{"noise", []byte("noise")}, {"forged", forged.Marshal()}, {"another buyer's", dissentOf(t, keyOf(5)).Marshal()}} {
		var bad *stream.Malformed
		if err := tell(c.b); !errors.As(err, &bad) {
			t.Errorf("%s: %v", c.name, err)
		}
	}
	if told.Load() != 1 {
		t.Errorf("%d were told of", told.Load())
	}
	var no *stream.Refused
	busy := false
	for range 100 * tellBurst { // what the bucket gains meanwhile is allowed, too
		if err := tell(good.Marshal()); errors.As(err, &no) && no.Code == stream.CodeBusy {
			busy = true
			break
		}
	}
	if !busy {
		t.Error("a flood is let through")
	}
}
