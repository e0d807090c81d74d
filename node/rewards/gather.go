package rewards

import (
	"context"
	"errors"
	"fmt"

	"github.com/starling-network/starling/chain/rewards"
	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/node/store"
	"github.com/starling-network/starling/verify/audit"
)

// Kind is what a document is.
type Kind uint8

// The kinds; their numbers are those of the stream.
const (
	Units        Kind = 1 // ids of a provider's units of which there are certificates
	Certificates Kind = 2 // of one of them
	Table        Kind = 3 // behind a root that a verifier put to the vote
	Payees       Kind = 4 // under a root
)

// Document names something that can be asked for.
type Document struct {
	Kind     Kind
	Epoch    uint64
	Provider sign.Key      // of units and certificates
	Unit     market.UnitID // of certificates
	Root     sign.Hash     // of a table, or of payees
}

const maxUnits = rewards.MaxUnitsOf * sign.HashSize

// Document is one that this peer has: ErrNoDocument.
func (s *Service) Document(ctx context.Context, d Document) ([]byte, error) {
	var out []byte
	var err error
	switch d.Kind {
	case Table:
		out, err = s.cfg.Store.Get(ctx, kindTable, awardKey(d.Epoch, d.Root))
	case Payees:
		out, err = s.keep.awarded(ctx, d.Epoch, d.Root)
	case Units, Certificates:
		out, err = s.proofs(ctx, d)
	}
	if err == nil && len(out) == 0 || errors.Is(err, store.ErrNotFound) {
		return nil, ErrNoDocument
	}
	return out, err
}

// proofs are the units of a provider, or the certificates of one.
func (s *Service) proofs(ctx context.Context, d Document) ([]byte, error) {
	n, err := s.cfg.Chain.Network(ctx)
	if err != nil {
		return nil, err
	}
	e, err := rewards.EpochOf(n.Params.Votes, s.cfg.Genesis.AuditSlots, d.Epoch)
	if err != nil {
		return nil, ErrNoDocument
	}
	if d.Kind == Certificates {
		cs, err := s.keep.certificates(ctx, e, rewards.UnitKey{Provider: d.Provider, Unit: d.Unit})
		return rewards.MarshalCertificates(cs), err
	}
	units, err := s.keep.units(ctx, e, d.Provider)
	var out []byte
	for _, u := range units[:min(len(units), rewards.MaxUnitsOf)] {
		out = append(out, u[:]...)
	}
	return out, err
}

// read asks a peer for a document; this peer has its own.
func (s *Service) read(ctx context.Context, from sign.Key, d Document, most int) ([]byte, error) {
	if from == s.cfg.Key {
		return s.Document(ctx, d)
	}
	return s.cfg.Peers.Read(ctx, from, d, most)
}

// gather asks every provider for its certificates of an epoch, once each, and keeps those that are good. Who does not answer is asked
// again at the next look.
func (s *Service) gather(ctx context.Context, l *look, e rewards.Epoch) error {
	s.mu.Lock()
	had := s.gathered[e.Number]
	if had == nil {
		had = map[sign.Key]bool{s.cfg.Key: true}
		s.gathered[e.Number] = had
	}
	for old := range s.gathered {
		if old+maxBehind < e.Number {
			delete(s.gathered, old)
		}
	}
	s.mu.Unlock()
	for _, p := range l.peers {
		if had[p.Peer] || p.WasSlashed {
			continue
		}
		err := s.gatherFrom(ctx, p.Peer, e)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if err != nil { // it has none, it may be: then it is asked again before the next vote
			s.cfg.Log.Debug("a provider's certificates are not to be had", "provider", p.Peer, "epoch", e.Number, "err", err)
			continue
		}
		had[p.Peer] = true // read and written by the look alone
	}
	return nil
}

func (s *Service) gatherFrom(ctx context.Context, p sign.Key, e rewards.Epoch) error {
	b, err := s.read(ctx, p, Document{Kind: Units, Epoch: e.Number, Provider: p}, maxUnits)
	if err != nil {
		return err
	}
	for ; len(b) >= sign.HashSize; b = b[sign.HashSize:] {
		cs, err := s.fetch(ctx, p, e, rewards.UnitKey{Provider: p, Unit: market.UnitID(b[:sign.HashSize])})
		if err != nil {
			return err
		}
		if err := s.keep.add(ctx, cs); err != nil {
			return err
		}
	}
	return nil
}

// fetch asks a peer for the certificates of a unit and checks each: nothing is believed of which anything is wrong.
func (s *Service) fetch(ctx context.Context, from sign.Key, e rewards.Epoch, u rewards.UnitKey) ([]audit.Certificate, error) {
	most := min(rewards.MaxCertificates, int(e.Windows())*audit.MaxCertificate)
	b, err := s.read(ctx, from, Document{Kind: Certificates, Epoch: e.Number, Provider: u.Provider, Unit: u.Unit}, most)
	if err != nil {
		return nil, err
	}
	cs, err := rewards.UnmarshalCertificates(b)
	if err != nil {
		return nil, err
	}
	if _, err := rewards.Count(e, u, cs); err != nil { // before each is looked at closely: all are of this unit, in order, each once
		return nil, err
	}
	for _, c := range cs {
		w := c.Target().Window
		seen, err := s.seen(ctx, w)
		if err == nil {
			err = c.Check(s.cfg.Genesis.Domain(), s.cfg.Genesis.AuditSlots, seen)
		}
		if err != nil {
			return nil, fmt.Errorf("certificate of unit %s in window %d: %w", u.Unit.Short(), w, err)
		}
	}
	return cs, nil
}
