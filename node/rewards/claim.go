package rewards

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/starling-network/starling/chain/program"
	"github.com/starling-network/starling/chain/program/account"
	"github.com/starling-network/starling/chain/rewards"
	"github.com/starling-network/starling/chain/svm"
	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/node/store"
)

// Mine is the reward of this peer's wallet for an epoch.
type Mine struct {
	Epoch  uint64    `json:"epoch"`
	Source uint8     `json:"source"` // 0 the emission, i the pool of mint i − 1
	Root   sign.Hash `json:"root"`
	Wallet sign.Key  `json:"wallet"`
	Amount uint64    `json:"amount"` // 0: nothing
	Paid   bool      `json:"paid"`
}

// claim claims accepted rewards for this peer's wallet, once. The amount is journalled before the claim; the chain
// shows whether it was paid.
func (s *Service) claim(ctx context.Context, l *look, of subject, p account.Payout) error {
	m, err := mineTable.Get(ctx, s.cfg.Store, of.key())
	if err == nil && m.Root == p.Root && (m.Paid || m.Amount == 0) && m.Wallet == l.mine.Payout {
		return nil
	}
	if err != nil && !errors.Is(err, store.ErrNotFound) {
		return err
	}
	a, err := s.awardOf(ctx, l, of, p)
	if err != nil {
		return fmt.Errorf("fetching the list of payments: %w", err)
	}
	m = Mine{Epoch: of.epoch, Source: of.source, Root: p.Root, Wallet: l.mine.Payout}
	index, amount, path, err := a.Proof(m.Wallet)
	if err == nil {
		m.Amount, m.Paid = amount, p.WasPaid(index)
	}
	if err := mineTable.Write(ctx, s.cfg.Store, of.key(), m); err != nil {
		return err
	}
	if m.Amount == 0 || m.Paid {
		return nil
	}
	g, mint := s.cfg.Genesis, l.mint(of.source)
	payout := account.PayoutAddress(g.Program, g.Escrow, of.source, of.epoch)
	_, err = s.cfg.Chain.Run(ctx, []svm.Instruction{
		svm.OpenTokenAccount(s.cfg.Key, m.Wallet, mint),
		program.ClaimReward{
			Payout: payout, Vault: account.RewardsAddress(g.Program, payout),
			Destination: svm.TokenAccount(m.Wallet, mint), Mint: mint,
			Index: index, Amount: amount, Path: path,
		}.Instruction(g.Program),
	})
	if err != nil && !errors.Is(err, program.ErrClaimed) { // another peer of this wallet
		return fmt.Errorf("claiming %d: %w", amount, err)
	}
	m.Paid = true
	s.cfg.Log.Info("a reward was paid", "epoch", of.epoch, "source", of.source, "amount", amount, "wallet", m.Wallet)
	return mineTable.Write(ctx, s.cfg.Store, of.key(), m)
}

// awardOf returns the payees under an accepted root: from the journal, or from any peer that has them, since the root
// verifies them.
func (s *Service) awardOf(ctx context.Context, l *look, of subject, p account.Payout) (rewards.Award, error) {
	right := func(b []byte) (rewards.Award, error) {
		a, err := rewards.UnmarshalAward(of.source, of.epoch, b)
		want := account.Rewards{Source: of.source, Count: p.Count, Epoch: of.epoch, Sum: p.Sum, Root: p.Root}
		if err == nil && a.Rewards() != want {
			err = ErrRoot
		}
		return a, err
	}
	b, err := s.keep.awarded(ctx, of.epoch, p.Root)
	if err == nil {
		return right(b)
	}
	if !errors.Is(err, store.ErrNotFound) {
		return rewards.Award{}, err
	}
	errs := []error{ErrNoDocument}
	for _, from := range l.peers {
		if from.Bonded == 0 || from.Peer == s.cfg.Key {
			continue
		}
		payees := Document{Kind: Payees, Epoch: of.epoch, Root: p.Root}
		b, err := s.cfg.Peers.Read(ctx, from.Peer, payees, rewards.MaxPayees)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		a, err := right(b)
		if err == nil {
			return a, s.keep.award(ctx, a)
		}
		errs = append(errs, err)
	}
	return rewards.Award{}, errors.Join(errs...)
}

// tidy reclaims the rent of this peer's ended ballots and votes.
func (s *Service) tidy(ctx context.Context, l *look) error {
	var errs []error
	for at, b := range l.ballots {
		if b.RentPayer == s.cfg.Key && b.Subject == account.SubjectRewards &&
			uint64(l.now) > max(b.Dead, b.Opened+account.OpeningSlots) {
			_, err := s.cfg.Chain.Run(ctx, []svm.Instruction{
				program.CloseBallot{Ballot: at, RentPayer: s.cfg.Key}.Instruction(s.cfg.Genesis.Program),
			})
			errs = append(errs, err)
		}
	}
	err := voteTable.List(ctx, s.cfg.Store, "", func(at sign.Key, v voted) error {
		if uint64(l.now) <= v.Ends {
			return nil
		}
		_, err := s.cfg.Chain.Run(ctx, []svm.Instruction{
			program.CloseVote{Vote: at, RentPayer: s.cfg.Key}.Instruction(s.cfg.Genesis.Program),
		})
		gone := errors.Is(err, program.ErrKind) || errors.Is(err, program.ErrOwner) // or it never was
		if err != nil && !gone {
			return err
		}
		return voteTable.Remove(ctx, s.cfg.Store, at)
	})
	return errors.Join(append(errs, err)...)
}

// Status is how rewards stand, as this peer sees it.
type Status struct {
	Slot        market.Slot `json:"slot"`
	On          bool        `json:"on"` // anything is voted on in this network
	Emission    uint64      `json:"emission"`
	Emitted     uint64      `json:"emitted"`
	Left        uint64      `json:"left"` // in the account that it is paid from
	Bonded      uint64      `json:"bonded"`
	LeastBonded uint64      `json:"leastBonded"`
	Audits      bool        `json:"audits"`
	Registered  bool        `json:"registered"`
	Counts      bool        `json:"counts"` // this peer is a voter
	Epoch       uint64      `json:"epoch"`  // that runs now
	EpochEnds   uint64      `json:"epochEnds"`
	Epochs      []Past      `json:"epochs"` // over, the newest first
}

// Past is an epoch's rewards of one source.
type Past struct {
	Epoch  uint64   `json:"epoch"`
	Source uint8    `json:"source"`
	Mint   sign.Key `json:"mint"`
	State  string   `json:"state"`            // open, voting, accepted
	For    uint64   `json:"for,omitempty"`    // of bonded stake, for the ballot that has most
	Total  uint64   `json:"total,omitempty"`  // bonded when it was opened
	Sum    uint64   `json:"sum,omitempty"`    // of all rewards
	Amount uint64   `json:"amount,omitempty"` // this peer's
	Paid   bool     `json:"paid,omitempty"`
	Claims int      `json:"claims,omitempty"` // of the epoch: known to be paid under this peer's word as a guardian
	Wage   uint64   `json:"wage,omitempty"`   // their part of the amount, if the pool has enough
	Waits  string   `json:"waits,omitempty"`  // why
}

// publish makes the status.
func (s *Service) publish(ctx context.Context, l *look) error {
	n, v := l.network, l.network.Params.Votes
	t := Status{
		Slot: l.now, On: v.On(), Emission: v.Emission, Emitted: n.Emitted, Left: l.holdings[0],
		Bonded: n.Bonded, LeastBonded: v.LeastBonded,
		Audits: s.cfg.Genesis.AuditSlots > 0, Registered: l.mine != nil, Counts: l.counts(),
	}
	if l.any {
		t.Epoch = l.last + 1
	}
	if v.On() {
		t.EpochEnds = v.EpochEnd(t.Epoch)
	}
	guarded, err := s.guarded(ctx)
	if err != nil {
		return err
	}
	for epoch := l.last + 1; l.any && epoch > l.from; epoch-- {
		for source := range l.sources() {
			p, err := s.past(ctx, l, subject{epoch - 1, source}, guarded)
			if err != nil {
				return err
			}
			t.Epochs = append(t.Epochs, p)
		}
	}
	s.mu.Lock()
	s.status = t
	s.mu.Unlock()
	return nil
}

func (s *Service) past(ctx context.Context, l *look, of subject, guarded []rewards.Guarded) (Past, error) {
	p := Past{Epoch: of.epoch, Source: of.source, Mint: l.mint(of.source), State: "open"}
	for _, b := range l.ballots {
		if b.Subject == account.SubjectRewards && b.For >= p.For &&
			b.Rewards.Epoch == of.epoch && b.Rewards.Source == of.source {
			p.State, p.For, p.Total, p.Sum = "voting", b.For, b.Total, b.Rewards.Sum
		}
	}
	s.mu.Lock()
	p.Waits = s.trouble[of]
	s.mu.Unlock()
	if paid, accepted := l.payouts[of]; accepted {
		p.State, p.Sum = "accepted", paid.Sum
	}
	p.Claims, p.Wage = l.guards(guarded, of).Of(s.cfg.Key)
	m, err := mineTable.Get(ctx, s.cfg.Store, of.key())
	if err == nil {
		p.Amount, p.Paid = m.Amount, m.Paid
	} else if !errors.Is(err, store.ErrNotFound) {
		return p, err
	}
	return p, nil
}

// Status returns the state of rewards at the last pass.
func (s *Service) Status() Status {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := s.status
	out.Epochs = slices.Clone(out.Epochs)
	return out
}
