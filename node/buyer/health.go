package buyer

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/node/nodepb"
	"github.com/starling-network/starling/node/protocol"
	rules "github.com/starling-network/starling/verify/exclusive"
)

// Health is what a provider said of the hardware of an execution, at both ends of it, and what became of it in between.
type Health struct {
	Execution uint64         `json:"execution"`
	Before    *Snapshot      `json:"before,omitempty"`
	After     *Snapshot      `json:"after,omitempty"`
	Changes   []rules.Change `json:"changes,omitempty"`
}

// Snapshot is one of the two, with both signatures.
type Snapshot struct {
	rules.Snapshot
	ProviderSig sign.Signature `json:"providerSig"`
	BuyerSig    sign.Signature `json:"buyerSig"`
}

// examine takes in the snapshots that come with an execution of rank i: it journals and signs what it has not seen, and hands the
// provider the signature. What is not signed by the provider, or is of something else, is as if it were not there.
func (s *supervisor) examine(i int, l *bought, ex *nodepb.Execution) {
	for _, got := range []struct {
		when rules.When
		of   *nodepb.SignedSnapshot
	}{{rules.Before, ex.Before}, {rules.After, ex.After}} {
		if len(got.of.GetSnapshot()) == 0 || s.examined(i, l, ex.Seq, got.when) {
			continue
		}
		snap, err := s.countersign(l, ex.Seq, got.when, got.of)
		if err != nil {
			s.b.cfg.Log.Warn("what a provider says of its devices is not good", "lease", l.first, "err", err)
			continue
		}
		s.noteHealth(i, l, ex.Seq, snap)
	}
}

// examined reports whether a snapshot is journalled.
func (s *supervisor) examined(i int, l *bought, seq uint64, when rules.When) bool {
	x := s.exclusive(i, l)
	if x.Health == nil || x.Health.Execution != seq {
		return false
	}
	return when == rules.Before && x.Health.Before != nil || when == rules.After && x.Health.After != nil
}

// countersign checks and signs a snapshot.
func (s *supervisor) countersign(l *bought, seq uint64, when rules.When, of *nodepb.SignedSnapshot) (*Snapshot, error) {
	snap, err := rules.UnmarshalSnapshot(of.Snapshot)
	if err != nil {
		return nil, err
	}
	if len(of.Signature) != sign.SignatureSize || snap.Lease != l.first || snap.Execution != seq || snap.When != when {
		return nil, fmt.Errorf("%w: it is of execution %d of %s, %s", rules.ErrRecord, snap.Execution, snap.Lease.Short(), snap.When)
	}
	out := &Snapshot{Snapshot: snap, ProviderSig: sign.Signature(of.Signature)}
	if err := snap.Verify(s.b.domain, l.core.Provider, out.ProviderSig); err != nil {
		return nil, err
	}
	for _, d := range snap.Devices {
		if len(l.rec.Units) > 0 && !slices.Contains(l.rec.Units, d.Unit) {
			return nil, fmt.Errorf("%w: unit %s is not of the lease", rules.ErrRecord, d.Unit.Short())
		}
	}
	out.BuyerSig, err = snap.Sign(s.b.domain, l.as.key())
	return out, err
}

// strangers are the devices of a snapshot that are not the units that were leased, and audited: a unit's id is made of its UUID.
func strangers(s *Snapshot, provider sign.Key, class market.Class) (out []rules.Change) {
	for _, d := range s.Devices {
		if market.NewUnitID(provider, class, d.UUID, 0) != d.Unit {
			out = append(out, rules.Change{Unit: d.Unit, Text: fmt.Sprintf("%s, %s, is not the unit that was leased", d.Model, d.UUID)})
		}
	}
	return out
}

// healthTime bounds handing one signature over.
const healthTime = 10 * time.Second

// noteHealth journals a snapshot, tells what changed, and gives the provider the buyer's signature under it.
func (s *supervisor) noteHealth(i int, l *bought, seq uint64, snap *Snapshot) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(l.ctx), healthTime)
	defer cancel()
	changes := strangers(snap, l.core.Provider, s.snapshot().Ranks[i].Units.Class)
	if err := s.update(ctx, i, l, func(x *Exclusive) {
		h := Health{Execution: seq}
		if x.Health != nil && x.Health.Execution == seq {
			h = *x.Health
		}
		if snap.When == rules.Before {
			h.Before = snap
		} else {
			h.After = snap
		}
		if h.Before != nil && h.After != nil {
			changes = append(changes, rules.Changes(h.Before.Snapshot, h.After.Snapshot)...)
		}
		h.Changes = append(slices.Clone(h.Changes), changes...)
		x.Health = &h
	}); err != nil {
		s.b.cfg.Log.Warn("what a provider says of its devices is not journalled", "lease", l.first, "err", err)
		return
	}
	fault := false
	for _, c := range changes {
		fault = fault || c.Fault
		s.trace.Add(Step{At: time.Now(), Kind: StepProbed, Rank: &i, Provider: l.core.Provider.String(), Detail: "its hardware: " + c.Text})
	}
	if fault { // what was sold broke
		s.b.cfg.Reputation.Failed(l.core, l.loss(time.Time{}))
	}
	s.trace.Poke()
	s.b.wg.Go(func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(l.ctx), healthTime)
		defer cancel()
		hash := sign.Sum(snap.Marshal())
		if _, err := protocol.Exec.Call(ctx, s.b.cfg.Host, s.b.tag, l.peer, &nodepb.ExecRequest{Lease: l.first[:], Seq: seq,
			Op: &nodepb.ExecRequest_Seen_{Seen: &nodepb.ExecRequest_Seen{Snapshot: hash[:], Signature: snap.BuyerSig[:]}}}); err != nil {
			s.b.cfg.Log.Debug("a provider did not take the signature under its devices' health", "lease", l.first, "err", err)
		}
	})
}

func sortProbes(rs []rules.Record) {
	slices.SortFunc(rs, func(x, y rules.Record) int {
		return cmp.Or(bytes.Compare(x.Question.Lease[:], y.Question.Lease[:]), cmp.Compare(x.Question.Execution, y.Question.Execution), cmp.Compare(x.Question.Number, y.Question.Number))
	})
}
