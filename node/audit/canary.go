package audit

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/libp2p/go-libp2p/core/peer"
	"github.com/libp2p/go-libp2p/core/peerstore"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/node/nodepb"
	"github.com/starling-network/starling/node/protocol"
	"github.com/starling-network/starling/p2p"
	"github.com/starling-network/starling/verify/audit"
	"github.com/starling-network/starling/verify/challenge"
)

// CanaryIn is how many audits there are for each canary: an audit whose answer has a known fault. Whoever passes it did not look,
// and its verdict proves that. Members who look lose nothing, so a member that would save the work must look at everything.
const CanaryIn = 20

// Mask is a peer that was made for one canary and that nobody has heard of: who plants a fault signs it, and under its own key that
// would be a lie.
type Mask struct {
	Host *p2p.Host
	Key  sign.Private
	// Where finds a peer's addresses.
	Where func(ctx context.Context, p peer.ID) (peer.AddrInfo, error)
}

// Canary is what came of one.
type Canary struct {
	Planted audit.Answer
	Looked  []sign.Key  // members who found the fault
	Lies    []audit.Lie // of members who passed it: one each
}

// canary has a unit audited under a mask, with one opened value of which a bit is wrong: one that members must compute. It comes
// after the unit's own audit in the window. The error of an audit that did not come to verdicts.
func (s *Service) canary(ctx context.Context, u Unit) (Canary, error) {
	mask, err := s.cfg.Mask()
	if err != nil {
		return Canary{}, err
	}
	defer mask.Host.Close()
	if _, err := rand.Read(u.ID[:]); err != nil {
		return Canary{}, err
	}
	u.Last = audit.Record{} // nobody has heard of it: its records begin
	p := NewProver(ProverConfig{
		Domain: s.cfg.Genesis.Domain(), Key: mask.Key, WindowSlots: s.cfg.Genesis.AuditSlots, Sight: s.cfg.Sight, Plan: ByPlan, Log: s.cfg.Log,
		Call: func(ctx context.Context, m sign.Key, req *nodepb.AuditRequest) (*nodepb.AuditReply, error) {
			id, err := p2p.PeerIDFromKey(m)
			if err != nil {
				return nil, err
			}
			if len(mask.Host.Peerstore().Addrs(id)) == 0 {
				info, err := mask.Where(ctx, id)
				if err != nil {
					return nil, err
				}
				mask.Host.Peerstore().AddAddrs(id, info.Addrs, peerstore.TempAddrTTL)
			}
			return protocol.Audit.Call(ctx, mask.Host, s.tag, id, req)
		},
		Plant: plant,
	})
	results, err := p.Audit(ctx, []Unit{u})
	if err != nil {
		return Canary{}, err
	}
	return found(results[0])
}

// plant flips a bit of a value that members must compute.
func plant(a audit.Answer, o *challenge.Opened) {
	at := int(below(uint32(len(o.Openings))))
	o.Openings[at].Values[audit.Pick(a.WalkSeed)(at)] ^= 1 << below(32)
}

// found reads from a canary's result who looked and who did not.
func found(r Result) (Canary, error) {
	c := Canary{Planted: r.Record.Answer}
	if len(r.Record.Verdicts) == 0 {
		return c, r.Err
	}
	for _, v := range r.Record.Verdicts {
		if v.Outcome == audit.Wrong {
			c.Looked = append(c.Looked, v.Member)
		}
	}
	for _, l := range audit.FindLie(r.Record.Answer, r.Record.Shown, r.Record.ShownSig, r.Record.Verdicts, r.Record.Opened.Openings, false) {
		if l.Kind == audit.FalsePass {
			c.Lies = append(c.Lies, l)
		}
	}
	return c, nil
}

// below is a number below n that nobody foresees.
func below(n uint32) uint32 {
	var b [8]byte
	if _, err := rand.Read(b[:]); err != nil {
		panic(err) // the system's generator does not fail
	}
	return uint32(binary.LittleEndian.Uint64(b[:]) % uint64(n))
}

// Plant has one of this peer's idle units answer a canary now, and keeps the lies of members who passed it. ErrUnits where there is
// no unit or no mask.
func (s *Service) Plant(ctx context.Context) (Canary, error) {
	if err := s.take(ctx); err != nil {
		return Canary{}, err
	}
	defer s.give()
	if s.cfg.Units == nil || s.cfg.Mask == nil {
		return Canary{}, fmt.Errorf("%w: this peer has nothing to plant a canary with", ErrUnits)
	}
	units, free, err := s.cfg.Units(ctx)
	if err != nil {
		return Canary{}, err
	}
	defer free()
	if len(units) == 0 {
		return Canary{}, fmt.Errorf("%w: none is idle", ErrUnits)
	}
	return s.planted(ctx, units[below(uint32(len(units)))])
}

// planted plants a canary and keeps what came of it.
func (s *Service) planted(ctx context.Context, u Unit) (Canary, error) {
	c, err := s.canary(ctx, u)
	if err != nil {
		return c, fmt.Errorf("planting a canary: %w", err)
	}
	s.cfg.Log.Info("a canary was judged", "looked", len(c.Looked), "did_not", len(c.Lies))
	var errs []error
	for _, l := range c.Lies {
		errs = append(errs, s.cfg.Lie(ctx, l))
	}
	return c, errors.Join(errs...)
}

// plantSome plants a canary for one in CanaryIn of the units that were audited.
func (s *Service) plantSome(ctx context.Context, units []Unit) {
	if s.cfg.Mask == nil {
		return
	}
	for _, u := range units {
		if below(CanaryIn) != 0 {
			continue
		}
		if _, err := s.planted(ctx, u); err != nil && ctx.Err() == nil {
			s.cfg.Log.Warn("no canary came of it", "unit", market.UnitID(u.ID), "err", err)
		}
	}
}
