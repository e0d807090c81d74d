package provider

import (
	"context"
	"fmt"
	"time"

	"github.com/libp2p/go-libp2p/core/peer"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/node/nodepb"
	"github.com/starling-network/starling/node/store"
	"github.com/starling-network/starling/p2p/stream"
	"github.com/starling-network/starling/verify/exclusive"
)

const (
	kindSeen = "seen" // a snapshot and both signatures, by the hash of its layout
	// healthTime bounds one look at the devices: a driver that hangs must not keep a program from starting.
	healthTime = 5 * time.Second
)

func seenKey(l market.LeaseID, seq uint64, when exclusive.When) string {
	return fmt.Sprintf("%s/%s", execKey(l, seq), when)
}

// Health returns the current state of the hardware of units: everything of a snapshot but its subject.
type Health func(ctx context.Context, units []market.UnitID) (exclusive.Snapshot, error)

// takeSnapshot signs the state of an execution's hardware, and adds it to the reports for its buyer. It is journalled
// with the execution's next change; one that cannot be taken is left out.
func (x *executor) takeSnapshot(e *execution, when exclusive.When) {
	if x.health == nil {
		return
	}
	e.mu.Lock()
	have := e.state.Before
	if when == exclusive.After {
		have = e.state.After
	}
	e.mu.Unlock()
	if have != nil {
		return // an earlier process took it
	}
	ctx, cancel := context.WithTimeout(x.ctx, healthTime)
	defer cancel()
	s, err := x.health(ctx, e.rec.Units)
	if err == nil {
		s.When, s.Lease, s.Execution = when, e.rec.Lease, e.seq()
		err = s.Check()
	}
	var sig sign.Signature
	if err == nil {
		sig, err = s.Sign(x.domain, x.key)
	}
	if err != nil {
		x.log.Warn("the health of an execution's devices is not told", "lease", e.rec.Lease, "when", when, "err", err)
		return
	}
	signed := &nodepb.SignedSnapshot{Snapshot: s.Marshal(), Signature: sig[:]}
	e.mu.Lock()
	defer e.mu.Unlock()
	if when == exclusive.Before {
		e.state.Before = signed
	} else {
		e.state.After = signed
	}
}

// seen keeps a buyer's signature under a snapshot that it received.
func (p *Provider) seen(ctx context.Context, from peer.ID, e *execution, req *nodepb.ExecRequest_Seen) error {
	if len(req.GetSnapshot()) != sign.HashSize || len(req.GetSignature()) != sign.SignatureSize {
		return &stream.Malformed{Reason: "a hash or a signature has a wrong size"}
	}
	state, _, _ := e.snapshot()
	for _, of := range []*nodepb.SignedSnapshot{state.Before, state.After} {
		if of == nil || sign.Sum(of.Snapshot) != sign.Hash(req.Snapshot) {
			continue
		}
		s, err := exclusive.UnmarshalSnapshot(of.Snapshot)
		if err != nil {
			return err
		}
		r, err := p.record(from, e.rec.Lease[:])
		if err != nil {
			return err
		}
		if err := s.Verify(p.domain, r.Core.Buyer, sign.Signature(req.Signature)); err != nil {
			return &stream.Malformed{Reason: err.Error()}
		}
		value := append(append(append([]byte{}, of.Signature...), req.Signature...), of.Snapshot...)
		if err := p.cfg.Store.Write(ctx, store.Put{Kind: kindSeen, Key: seenKey(s.Lease, s.Execution, s.When), Value: value}); err != nil {
			return fmt.Errorf("journalling a snapshot: %w", err)
		}
		return nil
	}
	return stream.Refuse("snapshot", "no such snapshot of this execution")
}
