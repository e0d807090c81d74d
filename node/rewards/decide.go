package rewards

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/starling-network/starling/chain"
	"github.com/starling-network/starling/chain/program"
	"github.com/starling-network/starling/chain/program/account"
	"github.com/starling-network/starling/chain/rewards"
	"github.com/starling-network/starling/chain/svm"
	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/node/store"
)

// decide is a verifier's work on an unpaid past epoch: it accepts a carried ballot, proposes its own table when it is
// its turn, and confirms the ballot of the newest turn with a right table.
func (s *Service) decide(ctx context.Context, l *look, of subject, e rewards.Epoch) error {
	if l.holdings[of.source] == 0 || of.source == 0 && l.network.Params.Votes.Allowance(of.epoch) == 0 {
		return fmt.Errorf("%w: paying account is empty", rewards.ErrNothing)
	}
	turns, err := s.turns(ctx, l, of)
	if err != nil {
		return err
	}
	due, carried := l.due(of, turns)
	if carried != nil {
		return s.accept(ctx, l, carried.at, carried.Ballot)
	}
	now, begun := turns.At(uint64(l.now))
	if !begun {
		return nil
	}
	if whose, _ := turns.Of(now); whose == s.address(*l.mine) && (len(due) == 0 || due[0].turn != now) {
		return s.propose(ctx, l, of, e, now)
	}
	var errs []error
	for _, d := range due[:min(len(due), maxDue)] {
		err := s.confirm(ctx, l, e, d.at, d.Ballot)
		if err == nil {
			return nil
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// maxDue is the number of ballots on an epoch's rewards that a peer considers, those of the newest turns.
const maxDue = 3

// due is a ballot that counts: the first in a turn that the turn's voter opened.
type due struct {
	account.Ballot
	at   sign.Key
	turn uint64
}

// due returns the votable ballots on an epoch's rewards that count, the newest turn first; or a carried one.
func (l *look) due(of subject, turns rewards.Turns) (out []due, carried *due) {
	for at, b := range l.ballots {
		if b.Subject != account.SubjectRewards || b.Done ||
			b.Rewards.Epoch != of.epoch || b.Rewards.Source != of.source {
			continue
		}
		if b.Carried() {
			return nil, &due{Ballot: b, at: at}
		}
		// the slot in which it was opened; Opened is the proposer's claim
		turn, begun := turns.At(b.Ends - l.network.Params.Votes.VotingSlots)
		if whose, ok := turns.Of(turn); begun && ok && whose == b.Proposer && uint64(l.now) <= b.Ends {
			out = append(out, due{b, at, turn})
		}
	}
	slices.SortFunc(out, func(a, b due) int {
		return cmp.Or(cmp.Compare(b.turn, a.turn), cmp.Compare(a.Ends, b.Ends), bytes.Compare(a.at[:], b.at[:]))
	})
	return slices.CompactFunc(out, func(a, b due) bool { return a.turn == b.turn }), nil
}

// turns are those of an epoch's rewards; chain.ErrNotFound before the first block after the epoch is final.
func (s *Service) turns(ctx context.Context, l *look, of subject) (rewards.Turns, error) {
	v := l.network.Params.Votes
	end := v.EpochEnd(of.epoch)
	block, err := blockTable.Get(ctx, s.cfg.Store, of.epoch)
	if errors.Is(err, store.ErrNotFound) {
		if block, err = s.cfg.Chain.Block(ctx, market.Slot(end)); err == nil {
			err = blockTable.Write(ctx, s.cfg.Store, of.epoch, block)
		}
	}
	if err != nil {
		return rewards.Turns{}, fmt.Errorf("the first block after the epoch, by which turns are drawn: %w", err)
	}
	return rewards.NewTurns(v, of.epoch, of.source, end+s.grace(), block.Hash, l.peers, s.address), nil
}

// confirm votes for a ballot when its table is right, or moves this peer's vote to it.
func (s *Service) confirm(ctx context.Context, l *look, e rewards.Epoch, at sign.Key, b account.Ballot) error {
	cast, err := s.cfg.Chain.Voted(ctx, b.Topic(at), s.address(*l.mine))
	switch {
	case err == nil && cast.Ballot == at:
		return nil
	case err != nil && !errors.Is(err, chain.ErrNotFound):
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
	t, award, err := s.check(soon, l, e, b)
	if err != nil {
		err = fmt.Errorf("the table of %s is not confirmed: %w", b.Proposer.Short(), err)
		if wrong(err) {
			s.mu.Lock()
			s.refused[at] = err.Error()
			s.mu.Unlock()
			s.cfg.Log.Warn("rewards that are put to the vote are not right",
				"ballot", at, "epoch", e.Number, "err", err)
		}
		return err
	}
	if err := s.keep.table(ctx, t, award); err != nil { // other peers request it before they vote
		return err
	}
	return s.vote(ctx, l, at, cast.Ballot, b)
}

// wrong reports whether an error refutes the table that a ballot names, so that the ballot is not checked again. A peer
// with a missing or false proof does not refute the table.
func wrong(err error) bool {
	for _, is := range []error{ErrRoot, ErrShared, rewards.ErrTable, rewards.ErrShort} {
		if errors.Is(err, is) {
			return !errors.Is(err, ErrNoDocument)
		}
	}
	return false
}

// maxHolders is the number of peers that a table is requested from: its proposer, then the other verifiers by bonded
// stake.
const maxHolders = 32

// holders are the peers that may have a ballot's table. Each peer that found it right has it, with all certificates.
func (s *Service) holders(l *look, b account.Ballot) []sign.Key {
	all := slices.DeleteFunc(slices.Clone(l.peers), func(p account.Provider) bool {
		return p.Peer == s.cfg.Key || p.Bonded == 0 && s.address(p) != b.Proposer
	})
	slices.SortStableFunc(all, func(x, y account.Provider) int {
		if first := s.address(x) == b.Proposer; first != (s.address(y) == b.Proposer) {
			return map[bool]int{true: -1, false: 1}[first]
		}
		return cmp.Compare(y.Bonded, x.Bonded)
	})
	var out []sign.Key
	for _, p := range all[:min(len(all), maxHolders)] {
		out = append(out, p.Peer)
	}
	return out
}

// check checks the table of a ballot against all data of this peer, and returns it with its payments. Any peer may send
// the table that the ballot names. A holder without the certificates behind it does not count against others.
func (s *Service) check(
	ctx context.Context, l *look, e rewards.Epoch, b account.Ballot,
) (t rewards.Table, a rewards.Award, err error) {
	if err := s.gather(ctx, l, e); err != nil {
		return t, a, err
	}
	var errs []error
	for _, from := range s.holders(l, b) {
		raw, err := s.read(ctx, from, Document{Kind: Table, Epoch: e.Number, Root: b.Rewards.Table}, rewards.MaxTable)
		if err == nil && sign.Sum(raw) != b.Rewards.Table {
			err = fmt.Errorf("%w: %s gives another table than the ballot names", ErrNoDocument, from.Short())
		}
		if err == nil {
			if t, err = rewards.UnmarshalTable(raw); err != nil {
				return t, a, err
			}
			if a, err = s.checkTable(ctx, l, e, b, t, from); err == nil {
				return t, a, nil
			}
		}
		if wrong(err) || ctx.Err() != nil {
			return t, a, err // it is wrong from any peer
		}
		errs = append(errs, err)
	}
	if len(errs) == 0 {
		return t, a, ErrNoDocument
	}
	return t, a, fmt.Errorf("%w (from its proposer or the largest verifiers; %d requests failed)", errs[0], len(errs))
}

// checkTable is check for a table, with the certificates of one peer.
func (s *Service) checkTable(
	ctx context.Context, l *look, e rewards.Epoch, b account.Ballot, t rewards.Table, from sign.Key,
) (rewards.Award, error) {
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
			return rewards.Award{}, fmt.Errorf("%w: %s is not registered, or was slashed",
				rewards.ErrTable, u.Provider.Short())
		}
		x, err := s.prove(ctx, from, e, u)
		if err != nil {
			return rewards.Award{}, err
		}
		if line, _ := t.Line(u); line != x.Line {
			return rewards.Award{}, fmt.Errorf("%w: unit %s of %s",
				rewards.ErrProof, u.Unit.Short(), u.Provider.Short())
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
	if r := said(t, a); r != b.Rewards {
		return rewards.Award{}, fmt.Errorf("%w: %d to %d under %s, the table makes %d to %d under %s", ErrRoot,
			b.Rewards.Sum, b.Rewards.Count, b.Rewards.Root.Short(), r.Sum, r.Count, r.Root.Short())
	}
	return a, nil
}

// said is the content of a ballot on a table.
func said(t rewards.Table, a rewards.Award) account.Rewards {
	r := a.Rewards()
	r.Table = t.Hash()
	return r
}

// prove counts a peer's certificates of a unit. Without certificates, or with bad ones, the line is not proven.
func (s *Service) prove(ctx context.Context, from sign.Key, e rewards.Epoch, u rewards.UnitKey) (rewards.Tally, error) {
	cs, err := s.fetch(ctx, from, e, u)
	if err != nil {
		return rewards.Tally{}, fmt.Errorf("%w: %w", rewards.ErrProof, err)
	}
	if err := s.keep.add(ctx, cs); err != nil {
		return rewards.Tally{}, err
	}
	return rewards.Count(e, u, cs)
}

// checkShared checks the sum that a table divides, to the base unit; of a pool it may be one step less, for fees that
// came since it was counted. Other sources have none.
func (s *Service) checkShared(l *look, t rewards.Table, source uint8) error {
	holds := l.shared(t.Epoch, source)
	less := holds
	less[source] = rewards.Divisible(max(holds[source], 1) - 1)
	if t.Shared != holds && (source == 0 || t.Shared != less) {
		return fmt.Errorf("%w: %d, there is %d", ErrShared, t.Shared, holds)
	}
	return nil
}

// propose puts this peer's own table to the vote, in its turn. The slot in the ballot's address is written down first:
// a peer that starts again in its turn sends the same ballot.
func (s *Service) propose(ctx context.Context, l *look, of subject, e rewards.Epoch, turn uint64) error {
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
	t := rewards.NewTable(of.epoch, l.shared(of.epoch, of.source), tallies).WithGuarded(guards.Claims)
	a, err := t.Divide(of.source, tallies, guards, l.payout)
	if err != nil {
		return err
	}
	if err := s.keep.table(ctx, t, a); err != nil {
		return err
	}
	was, err := openedTable.Get(ctx, s.cfg.Store, of.key())
	if err != nil && !errors.Is(err, store.ErrNotFound) {
		return err
	}
	mine := s.address(*l.mine)
	if err != nil || was.Turn != turn || uint64(l.now) > was.Slot+account.OpeningSlots {
		was = opened{
			Turn: turn, Slot: uint64(l.now),
			Ballot: account.BallotAddress(s.cfg.Genesis.Program, s.cfg.Genesis.Escrow, mine, uint64(l.now)),
		}
		if err := openedTable.Write(ctx, s.cfg.Store, of.key(), was); err != nil {
			return err
		}
	}
	s.cfg.Log.Info("putting an epoch's rewards to the vote", "epoch", of.epoch, "source", of.source, "turn", turn,
		"units", len(t.Lines), "claims", len(t.Claims), "payees", len(a.Payees), "sum", a.Rewards().Sum)
	_, err = s.cfg.Chain.Run(ctx, []svm.Instruction{program.ProposeRewards{
		Payer: s.cfg.Key, Signer: s.cfg.Key, Network: s.cfg.Genesis.Escrow, Provider: mine,
		Ballot: was.Ballot, Opened: was.Slot, Rewards: said(t, a),
	}.Instruction(s.cfg.Genesis.Program)})
	if errors.Is(err, program.ErrExists) { // it was opened before, and is not seen yet
		return nil
	}
	return err
}

// shared is the sum to divide of a source, and nothing of the others: of the emission the schedule's, of a pool the
// divisible part.
func (l *look) shared(epoch uint64, source uint8) (shared [rewards.Sources]uint64) {
	if source == 0 {
		shared[0] = min(l.holdings[0], l.network.Params.Votes.Allowance(epoch))
	} else {
		shared[source] = rewards.Divisible(l.holdings[source])
	}
	return shared
}

// vote confirms a ballot whose count this peer shares. former is the ballot that it confirmed before; zero if none. The
// vote is journalled first, so that its rent is reclaimed later.
func (s *Service) vote(ctx context.Context, l *look, at, former sign.Key, b account.Ballot) error {
	mine := s.address(*l.mine)
	note := account.VoteAddress(s.cfg.Genesis.Program, b.Topic(at), mine)
	if err := voteTable.Write(ctx, s.cfg.Store, note, voted{b.Ends}); err != nil {
		return err
	}
	s.cfg.Log.Info("confirming an epoch's rewards",
		"epoch", b.Rewards.Epoch, "source", b.Rewards.Source, "sum", b.Rewards.Sum)
	_, err := s.cfg.Chain.Run(ctx, []svm.Instruction{program.CastVote{
		Payer: s.cfg.Key, Signer: s.cfg.Key, Provider: mine, Ballot: at, Vote: note, Former: former, For: true,
	}.Instruction(s.cfg.Genesis.Program)})
	return err
}

// accept sets a carried root's payout aside. The program refuses a second acceptance, which costs nothing.
func (s *Service) accept(ctx context.Context, l *look, at sign.Key, b account.Ballot) error {
	g, r := s.cfg.Genesis, b.Rewards
	payout := account.PayoutAddress(g.Program, g.Escrow, r.Source, r.Epoch)
	_, err := s.cfg.Chain.Run(ctx, []svm.Instruction{program.Accept{
		Payer: s.cfg.Key, Network: g.Escrow, Ballot: at, Source: s.source(l, r.Source),
		Mint: l.mint(r.Source), Payout: payout, Vault: account.RewardsAddress(g.Program, payout),
	}.Instruction(g.Program)})
	if errors.Is(err, program.ErrExists) || errors.Is(err, program.ErrOver) {
		return nil
	}
	return err
}
