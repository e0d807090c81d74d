package hooks

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/node/executor"
	"github.com/starling-network/starling/node/journal"
	"github.com/starling-network/starling/node/nodepb"
	"github.com/starling-network/starling/p2p/stream"
	"github.com/starling-network/starling/verify/exclusive"
)

// healthTime bounds one health query of the devices: a driver that hangs must not delay a program's start.
const healthTime = 5 * time.Second

// seenTable has snapshots with both signatures, by execution and when.
var seenTable = journal.Define[string, seen]("seen")

type seen struct {
	Snapshot []byte         `json:"snapshot"`
	Provider []byte         `json:"provider"` // signature
	Buyer    sign.Signature `json:"buyer"`
}

func seenKey(e *executor.Execution, when exclusive.When) string {
	return fmt.Sprintf("%s/%020d/%s", e.Lease, e.Seq, when)
}

// Snapshots signs the state of an execution's hardware before its start and after its end, for the reports to its
// buyer. It is journalled with the execution's next change. A snapshot that fails is omitted.
type Snapshots struct {
	Devices Devices
	Store   journal.Store
	Domain  sign.Domain
	Key     sign.Signer
	Log     *slog.Logger
}

var (
	_ executor.Prestart   = Snapshots{}
	_ executor.Exit       = Snapshots{}
	_ executor.Forgetting = Snapshots{}
)

// Prestart takes the first snapshot.
func (h Snapshots) Prestart(_ context.Context, e *executor.Execution, _ *executor.Launch) error {
	h.take(e.Alive(), e, exclusive.Before)
	return nil
}

// Exited takes the second one of a program that ran.
func (h Snapshots) Exited(ctx context.Context, e *executor.Execution, r *executor.Result) error {
	if r.Exit != nil {
		h.take(ctx, e, exclusive.After)
	}
	return nil
}

// at is the place of a snapshot in the state.
func at(s *nodepb.Execution, when exclusive.When) **nodepb.SignedSnapshot {
	if when == exclusive.Before {
		return &s.Before
	}
	return &s.After
}

func (h Snapshots) take(ctx context.Context, e *executor.Execution, when exclusive.When) {
	if s, _, _ := e.Snapshot(); *at(s, when) != nil {
		return // an earlier process took it
	}
	ctx, cancel := context.WithTimeout(ctx, healthTime)
	defer cancel()
	s, err := h.Devices.Health(ctx, e.Units)
	if err == nil {
		s.When, s.Lease, s.Execution = when, e.Lease, e.Seq
		err = s.Check()
	}
	var sig sign.Signature
	if err == nil {
		sig, err = s.Sign(h.Domain, h.Key)
	}
	if err != nil {
		h.Log.Warn("the health of an execution's devices is not reported", "lease", e.Lease, "when", when, "err", err)
		return
	}
	signed := &nodepb.SignedSnapshot{Snapshot: s.Marshal(), Signature: sig[:]}
	e.Update(func(s *nodepb.Execution) { *at(s, when) = signed })
}

// Seen journals the signature of a lease's buyer under a snapshot that it received.
func (h Snapshots) Seen(ctx context.Context, e *executor.Execution, buyer sign.Key, hash, signature []byte) error {
	if len(hash) != sign.HashSize || len(signature) != sign.SignatureSize {
		return &stream.Malformed{Reason: "a hash or a signature has a wrong size"}
	}
	state, _, _ := e.Snapshot()
	for _, when := range []exclusive.When{exclusive.Before, exclusive.After} {
		signed := *at(state, when)
		if signed == nil || sign.Sum(signed.Snapshot) != sign.Hash(hash) {
			continue
		}
		s, err := exclusive.UnmarshalSnapshot(signed.Snapshot)
		if err != nil {
			return err
		}
		sig := sign.Signature(signature)
		if err := s.Verify(h.Domain, buyer, sig); err != nil {
			return &stream.Malformed{Reason: err.Error()}
		}
		rec := seen{Snapshot: signed.Snapshot, Provider: signed.Signature, Buyer: sig}
		if err := seenTable.Write(ctx, h.Store, seenKey(e, when), rec); err != nil {
			return fmt.Errorf("journalling a snapshot: %w", err)
		}
		return nil
	}
	return stream.Refuse("snapshot", "no such snapshot of this execution")
}

// Forget removes the snapshots of an execution.
func (h Snapshots) Forget(e *executor.Execution, b *journal.Batch) (done func()) {
	for _, when := range []exclusive.When{exclusive.Before, exclusive.After} {
		seenTable.Delete(b, seenKey(e, when))
	}
	return nil
}
