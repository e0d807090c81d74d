package probe

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/node/buyer/record"
	"github.com/starling-network/starling/node/nodepb"
	"github.com/starling-network/starling/node/protocol"
	rules "github.com/starling-network/starling/verify/exclusive"
)

// healthTime bounds the journalling of a snapshot, and the delivery of a signature.
const healthTime = 10 * time.Second

// Examine takes the snapshots that come with an execution: it journals and signs new ones and returns a call for each
// that delivers the signature to the provider. A snapshot of another execution, or without the provider's signature, is
// ignored.
func (p *Prober) Examine(ex *nodepb.Execution) (deliver []func()) {
	for _, got := range []struct {
		when rules.When
		of   *nodepb.SignedSnapshot
	}{{rules.Before, ex.Before}, {rules.After, ex.After}} {
		known := p.Rank.Record()
		if len(got.of.GetSnapshot()) == 0 || known.Has(ex.Seq, got.when) {
			continue
		}
		snap, err := p.countersign(ex.Seq, got.when, got.of)
		if err == nil {
			err = p.note(ex.Seq, snap)
		}
		if err != nil {
			p.Log.Warn("a provider's report of its devices is not used", "err", err)
			continue
		}
		deliver = append(deliver, func() { p.deliver(ex.Seq, snap) })
	}
	return deliver
}

// countersign checks and signs a snapshot.
func (p *Prober) countersign(seq uint64, when rules.When, of *nodepb.SignedSnapshot) (*record.Snapshot, error) {
	snap, err := rules.UnmarshalSnapshot(of.Snapshot)
	if err != nil {
		return nil, err
	}
	if len(of.Signature) != sign.SignatureSize || snap.Lease != p.id() || snap.Execution != seq || snap.When != when {
		return nil, fmt.Errorf("%w: it is of execution %d of %s, %s",
			rules.ErrRecord, snap.Execution, snap.Lease.Short(), snap.When)
	}
	out := &record.Snapshot{Snapshot: snap, ProviderSig: sign.Signature(of.Signature)}
	if err := snap.Verify(p.Domain, p.Lease.Core.Provider, out.ProviderSig); err != nil {
		return nil, err
	}
	for _, d := range snap.Devices {
		if len(p.Units) > 0 && !slices.Contains(p.Units, d.Unit) {
			return nil, fmt.Errorf("%w: unit %s is not of the lease", rules.ErrRecord, d.Unit.Short())
		}
	}
	out.BuyerSig, err = snap.Sign(p.Domain, p.Key)
	return out, err
}

// strangers are the devices of a snapshot that are not the units that were leased, and audited: a unit's id is made of
// its UUID.
func (p *Prober) strangers(s *record.Snapshot) (out []rules.Change) {
	for _, d := range s.Devices {
		if market.NewUnitID(p.Lease.Core.Provider, p.Class, d.UUID, 0) != d.Unit {
			text := fmt.Sprintf("%s, %s, is not the unit that was leased", d.Model, d.UUID)
			out = append(out, rules.Change{Unit: d.Unit, Text: text})
		}
	}
	return out
}

// note journals a snapshot and reports the changes.
func (p *Prober) note(seq uint64, snap *record.Snapshot) error {
	ctx, cancel := context.WithTimeout(context.Background(), healthTime)
	defer cancel()
	changes := p.strangers(snap)
	if err := p.Rank.Update(ctx, func(x *record.Exclusive) { changes = x.Add(seq, snap, changes) }); err != nil {
		return fmt.Errorf("journalling it: %w", err)
	}
	fault := false
	for _, c := range changes {
		fault = fault || c.Fault
		p.Rank.Note("its hardware: " + c.Text)
	}
	if fault { // leased hardware broke
		p.Rank.Fault()
	}
	return nil
}

// deliver gives the provider the buyer's signature under a snapshot.
func (p *Prober) deliver(seq uint64, snap *record.Snapshot) {
	ctx, cancel := context.WithTimeout(context.Background(), healthTime)
	defer cancel()
	first, hash := p.id(), sign.Sum(snap.Marshal())
	seen := &nodepb.ExecRequest_Seen{Snapshot: hash[:], Signature: snap.BuyerSig[:]}
	if _, err := protocol.Exec.Call(ctx, p.Host, p.Tag, p.Peer, &nodepb.ExecRequest{Lease: first[:], Seq: seq,
		Op: &nodepb.ExecRequest_Seen_{Seen: seen}}); err != nil {
		p.Log.Debug("a provider did not take the signature under its devices' health", "err", err)
	}
}
