package audit

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"sync"

	"github.com/libp2p/go-libp2p/core/peer"
	"github.com/libp2p/go-libp2p/core/peerstore"

	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/node/nodepb"
	"github.com/starling-network/starling/node/protocol"
	"github.com/starling-network/starling/p2p"
	"github.com/starling-network/starling/verify/audit"
	"github.com/starling-network/starling/verify/challenge"
)

// CanaryIn is the number of audits per canary: an audit with a planted fault in its answer. A member that passes a
// canary did not check, and its verdict proves that. Members that check lose nothing, so a member has to check every
// audit.
const CanaryIn = 20

// Mask is a peer that was made for one canary and is unknown to others: the fault is signed, and under the peer's own
// key that would be a lie.
type Mask struct {
	Host *p2p.Host
	Key  sign.Private
	// Where finds a peer's addresses.
	Where func(ctx context.Context, p peer.ID) (peer.AddrInfo, error)
}

// Canary is the result of one.
type Canary struct {
	Planted audit.Answer
	Looked  []sign.Key  // members that found the fault
	Lies    []audit.Lie // of members that passed it: one each
}

// canary has a unit audited under a mask, with a bit flip in one opened value that members must compute. It replaces
// the unit's own audit in the window, since a card answers for one identity at the instant. It returns an error if the
// audit had no verdicts.
func (s *Service) canary(ctx context.Context, u Unit) (Canary, error) {
	mask, err := s.cfg.Mask()
	if err != nil {
		return Canary{}, err
	}
	defer mask.Host.Close()
	if _, err := rand.Read(u.ID[:]); err != nil {
		return Canary{}, err
	}
	p := NewProver(ProverConfig{
		Domain: s.cfg.Genesis.Domain(), Key: mask.Key, WindowSlots: s.cfg.Genesis.AuditSlots,
		Sight: s.cfg.Sight, Plan: ByPlan, Wait: s.until, Log: s.cfg.Log,
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
	})
	p.plant = flip
	results, err := p.Audit(ctx, []Unit{u})
	if err != nil {
		return Canary{}, err
	}
	return found(results[0])
}

// flip flips a bit of a value that members must compute.
func flip(a audit.Answer, o *challenge.Opened) {
	at := int(below(uint32(len(o.Openings))))
	o.Openings[at].Values[audit.Pick(a.WalkSeed)(at)] ^= 1 << below(32)
}

// found reads from a canary's result which members checked and which did not.
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
	lies := audit.FindLie(
		r.Record.Answer, r.Record.Shown, r.Record.ShownSig, r.Record.Verdicts, r.Record.Opened.Openings, false)
	for _, l := range lies {
		if l.Kind == audit.FalsePass {
			c.Lies = append(c.Lies, l)
		}
	}
	return c, nil
}

// below returns an unpredictable number below n.
func below(n uint32) uint32 {
	var b [8]byte
	if _, err := rand.Read(b[:]); err != nil {
		panic(err) // the system's generator does not fail
	}
	return uint32(binary.LittleEndian.Uint64(b[:]) % uint64(n))
}

// Plant has one of this peer's idle units answer a canary in the place of its next audit, and keeps the lies of members
// that passed it. ErrUnits where there is no unit or no mask.
func (s *Service) Plant(ctx context.Context) (Canary, error) {
	if s.cfg.Seller == nil || s.cfg.Mask == nil {
		return Canary{}, fmt.Errorf("%w: this peer has nothing to plant a canary with", ErrUnits)
	}
	came := make(chan planted, 1)
	s.mu.Lock()
	s.wanted = append(s.wanted, came)
	s.mu.Unlock()
	select {
	case p := <-came:
		return p.Canary, p.err
	case <-ctx.Done():
		return Canary{}, ctx.Err()
	}
}

// planted is a canary, or the reason why there is none.
type planted struct {
	Canary
	err error
}

// plant plants a canary and keeps its result.
func (s *Service) plant(ctx context.Context, u Unit) (Canary, error) {
	c, err := s.canary(ctx, u)
	if err != nil {
		return c, fmt.Errorf("planting a canary: %w", err)
	}
	s.cfg.Log.Info("a canary was judged", "looked", len(c.Looked), "did_not", len(c.Lies))
	var errs []error
	for _, l := range c.Lies {
		errs = append(errs, s.cfg.Results.KeepFraud(ctx, l))
	}
	return c, errors.Join(errs...)
}

// plantSome starts the canaries of this window: for a unit that Plant waits for, and for one in CanaryIn of the units
// that are still listed by their last record. It returns the other units, and a function that waits for the canaries.
func (s *Service) plantSome(ctx context.Context, units []Unit) (others []Unit, wait func()) {
	var wg sync.WaitGroup
	if s.cfg.Mask == nil {
		return units, wg.Wait
	}
	s.mu.Lock()
	wanted := s.wanted
	s.wanted = nil
	s.mu.Unlock()
	asked := -1
	if len(wanted) > 0 {
		asked = int(below(uint32(len(units))))
	}
	for i, u := range units {
		if i != asked && (below(CanaryIn) != 0 || s.cfg.Shelf.State().Standing(u.ID).State != audit.Listed) {
			others = append(others, u)
			continue
		}
		wg.Go(func() {
			c, err := s.plant(ctx, u)
			if err != nil && ctx.Err() == nil {
				s.cfg.Log.Warn("canary failed", "unit", u.ID, "err", err)
			}
			if i == asked {
				for _, came := range wanted {
					came <- planted{c, err}
				}
			}
		})
	}
	return others, wg.Wait
}
