package rewards

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/starling-network/starling/chain"
	"github.com/starling-network/starling/chain/program"
	"github.com/starling-network/starling/chain/rewards"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/node/store"
)

// decide is what a verifier does about an epoch that is over and not paid: it accepts what was carried, confirms what is right, or
// puts its own to the vote when nobody's is there.
func (s *Service) decide(ctx context.Context, l *look, of subject, e rewards.Epoch) error {
	if l.holdings[of.source] == 0 || of.source == 0 && l.network.Params.Votes.Allowance(of.epoch) == 0 {
		return fmt.Errorf("%w: nothing is in the account that it is paid from", rewards.ErrNothing)
	}
	var errs []error
	open := false
	for _, at := range slices.SortedFunc(maps.Keys(l.ballots), func(a, b sign.Key) int { return bytes.Compare(a[:], b[:]) }) {
		b := l.ballots[at]
		if b.Subject != program.SubjectRewards || b.Done || b.Rewards.Epoch != of.epoch || b.Rewards.Source != of.source {
			continue
		}
		if b.Carried() {
			return s.accept(ctx, l, at, b)
		}
		if uint64(l.now) > b.Ends {
			continue
		}
		err := s.confirm(ctx, l, e, at, b)
		errs = append(errs, err)
		open = open || err == nil
	}
	if open {
		return errors.Join(errs...)
	}
	return errors.Join(append(errs, s.propose(ctx, l, of, e))...)
}

// confirm votes for a ballot, once, when its table is right.
func (s *Service) confirm(ctx context.Context, l *look, e rewards.Epoch, at sign.Key, b program.Ballot) error {
	switch _, err := s.cfg.Chain.Voted(ctx, b.Topic(at), s.address(*l.mine)); {
	case err == nil:
		return nil
	case !errors.Is(err, chain.ErrNotFound):
		return err
	case l.mine.Raised >= b.Opened:
		return nil // bonded too late to vote on it
	}
	s.mu.Lock()
	why, no := s.refused[at]
	s.mu.Unlock()
	if no {
		return errors.New(why)
	}
	soon, cancel := context.WithTimeout(ctx, checkTime)
	defer cancel()
	award, err := s.check(soon, l, e, b)
	if err != nil {
		err = fmt.Errorf("the table of %s is not confirmed: %w", b.Proposer.Short(), err)
		if wrong(err) {
			s.mu.Lock()
			s.refused[at] = err.Error()
			s.mu.Unlock()
			s.cfg.Log.Warn("rewards that are put to the vote are not right", "ballot", at, "epoch", e.Number, "err", err)
		}
		return err
	}
	if err := s.keep.award(ctx, award); err != nil {
		return err
	}
	return s.vote(ctx, l, at, b)
}

// wrong reports whether an error is about what was shown, so that it is not looked at again.
func wrong(err error) bool {
	for _, is := range []error{ErrRoot, ErrShared, rewards.ErrTable, rewards.ErrProof, rewards.ErrShort, rewards.ErrCertificates} {
		if errors.Is(err, is) {
			return true
		}
	}
	return false
}

// check holds the table behind a ballot against everything that this peer knows, and gives what it pays.
func (s *Service) check(ctx context.Context, l *look, e rewards.Epoch, b program.Ballot) (rewards.Award, error) {
	i := slices.IndexFunc(l.peers, func(p program.Provider) bool { return s.address(p) == b.Proposer })
	if i < 0 {
		return rewards.Award{}, fmt.Errorf("%w: its proposer is not registered", ErrRoot)
	}
	from := l.peers[i].Peer
	if err := s.gather(ctx, l, e); err != nil {
		return rewards.Award{}, err
	}
	raw, err := s.read(ctx, from, Document{Kind: Table, Epoch: e.Number, Root: b.Rewards.Root}, rewards.MaxTable)
	if err != nil {
		return rewards.Award{}, err
	}
	t, err := rewards.UnmarshalTable(raw)
	if err != nil {
		return rewards.Award{}, err
	}
	mine, err := s.keep.tallies(ctx, e)
	if err != nil {
		return rewards.Award{}, err
	}
	mine = slices.DeleteFunc(mine, func(x rewards.Tally) bool { _, ok := l.payout(x.Provider); return !ok })
	unseen, err := t.Compare(e, mine)
	if err != nil {
		return rewards.Award{}, err
	}
	tallies := map[rewards.UnitKey]rewards.Tally{}
	for _, m := range mine {
		if line, here := t.Line(m.UnitKey); here && line == m.Line {
			tallies[m.UnitKey] = m
		}
	}
	for _, u := range unseen {
		if _, ok := l.payout(u.Provider); !ok {
			return rewards.Award{}, fmt.Errorf("%w: %s is not registered, or was slashed", rewards.ErrTable, u.Provider.Short())
		}
		x, err := s.prove(ctx, from, e, u)
		if err != nil {
			return rewards.Award{}, err
		}
		if line, _ := t.Line(u); line != x.Line {
			return rewards.Award{}, fmt.Errorf("%w: unit %s of %s", rewards.ErrProof, u.Unit.Short(), u.Provider.Short())
		}
		tallies[u] = x
	}
	if err := s.checkShared(l, t, b.Rewards.Source); err != nil {
		return rewards.Award{}, err
	}
	guards, err := s.checkGuarded(ctx, l, t, b.Rewards.Source)
	if err != nil {
		return rewards.Award{}, err
	}
	a, err := t.Divide(b.Rewards.Source, slices.Collect(maps.Values(tallies)), guards, l.payout)
	if err != nil {
		return rewards.Award{}, fmt.Errorf("%w: %w", ErrRoot, err)
	}
	if r := a.Rewards(); r != b.Rewards {
		return rewards.Award{}, fmt.Errorf("%w: %d to %d under %s, the table makes %d to %d under %s", ErrRoot,
			b.Rewards.Sum, b.Rewards.Count, b.Rewards.Root.Short(), r.Sum, r.Count, r.Root.Short())
	}
	return a, nil
}

// prove counts what a proposer shows of a unit. Where it shows nothing, or what is not good, the line is not proven.
func (s *Service) prove(ctx context.Context, from sign.Key, e rewards.Epoch, u rewards.UnitKey) (rewards.Tally, error) {
	cs, err := s.fetch(ctx, from, e, u)
	if err != nil {
		if ctx.Err() != nil || !(errors.Is(err, ErrNoDocument) || wrong(err) || shown(err)) {
			return rewards.Tally{}, err
		}
		return rewards.Tally{}, fmt.Errorf("%w: %w", rewards.ErrProof, err)
	}
	if err := s.keep.add(ctx, cs); err != nil {
		return rewards.Tally{}, err
	}
	return rewards.Count(e, u, cs)
}

// checkShared holds what a table divides against what there is: all that the schedule gives, and of a pool at least half of what is
// in it now, since fees flow into it meanwhile.
func (s *Service) checkShared(l *look, t rewards.Table, source uint8) error {
	divides, holds := t.Shared[source], l.shared(t.Epoch)[source]
	if source == 0 {
		if divides != holds {
			return fmt.Errorf("%w: %d, the epoch gives %d", ErrShared, divides, holds)
		}
		return nil
	}
	if divides > holds || divides < holds/2 {
		return fmt.Errorf("%w: %d of a pool of %d", ErrShared, divides, holds)
	}
	return nil
}

// propose puts this peer's own table to the vote when it is its turn. The slot in the ballot's address is written down first: a
// peer that starts again sends the same ballot.
func (s *Service) propose(ctx context.Context, l *look, of subject, e rewards.Epoch) error {
	if uint64(l.now) < l.network.Params.Votes.EpochEnd(of.epoch)+s.grace()+s.place(l, of)*s.cfg.Turn || l.mine.Raised >= uint64(l.now) {
		return nil
	}
	if err := s.gather(ctx, l, e); err != nil {
		return err
	}
	tallies, err := s.keep.tallies(ctx, e)
	if err != nil {
		return err
	}
	tallies = slices.DeleteFunc(tallies, func(x rewards.Tally) bool { _, ok := l.payout(x.Provider); return !ok })
	guards, err := s.guards(ctx, l, of)
	if err != nil {
		return err
	}
	t := rewards.NewTable(of.epoch, l.shared(of.epoch), tallies).WithGuarded(guards.Claims)
	a, err := t.Divide(of.source, tallies, guards, l.payout)
	if err != nil {
		return err
	}
	if err := s.keep.table(ctx, t, a); err != nil {
		return err
	}
	was, err := get[opened](ctx, s.keep, kindOpened, of.key())
	if err != nil && !errors.Is(err, store.ErrNotFound) {
		return err
	}
	mine := s.address(*l.mine)
	if old, here := l.ballots[was.Ballot]; err != nil || uint64(l.now) > was.Slot+program.OpeningSlots || here && uint64(l.now) > old.Ends {
		was = opened{Slot: uint64(l.now), Ballot: program.BallotAddress(s.cfg.Genesis.Program, s.cfg.Genesis.Escrow, mine, uint64(l.now))}
		if err := put(ctx, s.keep, kindOpened, of.key(), was); err != nil {
			return err
		}
	} else if here {
		return nil
	}
	s.cfg.Log.Info("putting an epoch's rewards to the vote", "epoch", of.epoch, "source", of.source, "units", len(t.Lines), "claims", len(t.Claims), "payees", len(a.Payees), "sum", a.Rewards().Sum)
	_, err = s.cfg.Chain.Run(ctx, []program.Instruction{program.ProposeRewards{Payer: s.cfg.Key, Signer: s.cfg.Key, Network: s.cfg.Genesis.Escrow, Provider: mine,
		Ballot: was.Ballot, Opened: was.Slot, Rewards: a.Rewards()}.Instruction(s.cfg.Genesis.Program)})
	return err
}

// shared is what there is to divide of each source: of the emission what the schedule gives, of a pool all of it.
func (l *look) shared(epoch uint64) (shared [rewards.Sources]uint64) {
	for source, holds := range l.holdings {
		shared[source] = holds
	}
	shared[0] = min(shared[0], l.network.Params.Votes.Allowance(epoch))
	return shared
}

// place is how many verifiers come before this peer: drawn for each epoch and source.
func (s *Service) place(l *look, of subject) uint64 {
	draw := func(p program.Provider) sign.Hash {
		at := s.address(p)
		return sign.Sum([]byte("starling/turn/v1"), s.cfg.Genesis.Escrow[:], []byte(of.key()), at[:])
	}
	mine, before := draw(*l.mine), uint64(0)
	for _, p := range l.peers {
		if h := draw(p); p.Bonded > 0 && bytes.Compare(h[:], mine[:]) < 0 {
			before++
		}
	}
	return before
}

// vote says that this peer counted the same. The vote is written down first, so that its rent comes back some day.
func (s *Service) vote(ctx context.Context, l *look, at sign.Key, b program.Ballot) error {
	mine := s.address(*l.mine)
	note := program.VoteAddress(s.cfg.Genesis.Program, b.Topic(at), mine)
	if err := put(ctx, s.keep, kindVote, note.String(), voted{b.Ends}); err != nil {
		return err
	}
	s.cfg.Log.Info("confirming an epoch's rewards", "epoch", b.Rewards.Epoch, "source", b.Rewards.Source, "sum", b.Rewards.Sum)
	_, err := s.cfg.Chain.Run(ctx, []program.Instruction{program.CastVote{Payer: s.cfg.Key, Signer: s.cfg.Key, Provider: mine, Ballot: at, Vote: note, For: true}.
		Instruction(s.cfg.Genesis.Program)})
	return err
}

// accept has a carried root paid. Whoever comes second is refused, and nothing is lost.
func (s *Service) accept(ctx context.Context, l *look, at sign.Key, b program.Ballot) error {
	g, r := s.cfg.Genesis, b.Rewards
	payout := program.PayoutAddress(g.Program, g.Escrow, r.Source, r.Epoch)
	_, err := s.cfg.Chain.Run(ctx, []program.Instruction{program.Accept{Payer: s.cfg.Key, Network: g.Escrow, Ballot: at, Source: s.source(l, r.Source),
		Mint: l.mint(r.Source), Payout: payout, Vault: program.RewardsAddress(g.Program, payout)}.Instruction(g.Program)})
	if errors.Is(err, program.ErrExists) || errors.Is(err, program.ErrOver) {
		return nil
	}
	return err
}
