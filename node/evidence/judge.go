package evidence

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/starling-network/starling/chain"
	"github.com/starling-network/starling/chain/program"
	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/node/store"
	"github.com/starling-network/starling/verify/replica"
)

// What running works again costs this peer is bounded: one at a time, each for so long, those that others told of so far apart.
const (
	rerunLimit = 30 * time.Minute
	rerunApart = 10 * time.Minute
	rerunRetry = 10 * time.Second // and twice as long after each failure
	rerunWait  = 10 * time.Minute // at most
	// rerunTries is how often a work is begun that no end was seen of: a program that takes this process down is not run for ever.
	rerunTries = 3
)

// Judge is what a Keeper needs to judge dissents.
type Judge struct {
	Chain Voting
	Key   sign.Key // of this peer, which pays; it speaks for its registration
	// Again runs a work again on files that are here, or that the holder has; its key is zero where they are this peer's own. ErrUnable:
	// it never will.
	Again func(ctx context.Context, d replica.Dissent, holder sign.Key) (replica.Result, error)
	// Every is how often the chain is looked at while something is to be done.
	Every time.Duration
	// Turn is how many slots one that votes leaves to the one before it to open a ballot.
	Turn uint64
}

// Judge has the stake taken of those who signed a false result, until ctx ends. Where this peer has something bonded it runs the work of each
// dissent again, and votes that the outputs which differ from its own are false; what was voted for it has taken, like everybody who keeps
// the proof. A crash at any point, and a chain that is away, are waited out: nothing that was done is done twice, for what is on chain is
// looked at first.
func (k *Keeper) Judge(ctx context.Context, j Judge) error {
	want := make(chan struct{}, 1) // holds one token when a work is to be run again
	var wg sync.WaitGroup
	defer wg.Wait()
	wg.Go(func() { k.computing(ctx, j, want) })
	said := ""
	for {
		text := ""
		if err := k.judgePass(ctx, j, want); err != nil && ctx.Err() == nil {
			if text = err.Error(); text != said {
				k.cfg.Log.Info("dissents wait", "err", err)
			}
		}
		said = text
		t := time.NewTimer(j.Every)
		select {
		case <-ctx.Done():
			t.Stop()
			return nil
		case <-k.judge:
		case <-t.C:
		}
		t.Stop()
	}
}

// sitting is the state of things that one pass goes by.
type sitting struct {
	Judge
	g       market.Genesis
	now     market.Slot
	network program.Network
	all     []program.Provider
	ballots map[sign.Key]program.Ballot
	mine    *program.Provider // this peer's registration; nil: none
}

// votes says whether this peer is one of those who vote.
func (s *sitting) votes() bool {
	return s.mine != nil && s.mine.Bonded > 0 && s.network.Bonded >= s.network.Params.Votes.LeastBonded
}

func (s *sitting) address(p program.Provider) sign.Key {
	return program.ProviderAddress(s.g.Program, s.g.Escrow, p.First)
}

// sit reads the chain; nil where nothing is voted on.
func (k *Keeper) sit(ctx context.Context, j Judge) (*sitting, error) {
	s := &sitting{Judge: j, g: k.cfg.Genesis}
	var err error
	if s.network, err = j.Chain.Network(ctx); err != nil || !s.network.Params.Votes.On() {
		return nil, err
	}
	if s.now, err = k.cfg.Slot(); err != nil {
		return nil, err
	}
	if s.all, err = j.Chain.Providers(ctx); err != nil {
		return nil, err
	}
	for _, p := range s.all {
		if p.Peer == j.Key {
			s.mine = &p
		}
	}
	s.ballots, err = j.Chain.Ballots(ctx)
	return s, err
}

// judgePass does everything that can be done now about every dissent. Only Judge calls it.
func (k *Keeper) judgePass(ctx context.Context, j Judge, want chan struct{}) error {
	k.judging.Lock()
	var ids []string
	for id, x := range k.dissents {
		if !x.finished() {
			ids = append(ids, id)
		}
	}
	k.judging.Unlock()
	if len(ids) == 0 {
		return nil
	}
	slices.Sort(ids)
	s, err := k.sit(ctx, j)
	if err != nil {
		return err
	}
	for _, id := range ids {
		var errs []error
		if s == nil {
			errs = append(errs, ErrNoVotes)
		} else {
			for i := range k.snapshot(id).Charges {
				errs = append(errs, k.chargeOne(ctx, s, id, i))
			}
			errs = append(errs, k.tidyDissent(ctx, s, id))
		}
		if ctx.Err() != nil {
			return nil
		}
		k.noteWhy(id, errors.Join(errs...))
	}
	poke(want)
	return nil
}

// snapshot is a dissent as it stands, a copy; one without charges if it made room for another.
func (k *Keeper) snapshot(id string) keptDissent {
	k.judging.Lock()
	defer k.judging.Unlock()
	x := k.dissents[id]
	if x == nil {
		return keptDissent{}
	}
	y := *x
	y.judged = x.judged.clone()
	return y
}

// mark changes what is only remembered of a dissent, if it is still there.
func (k *Keeper) mark(id string, f func(*keptDissent)) {
	k.judging.Lock()
	defer k.judging.Unlock()
	if x := k.dissents[id]; x != nil {
		f(x)
	}
}

var errGone = errors.New("the dissent made room for another")

// changeDissent journals what becomes of a dissent.
func (k *Keeper) changeDissent(ctx context.Context, id string, f func(*judged)) error {
	k.judging.Lock()
	defer k.judging.Unlock()
	x := k.dissents[id]
	if x == nil {
		return errGone
	}
	rec := x.judged.clone()
	f(&rec)
	b, err := json.Marshal(rec)
	if err == nil {
		err = k.cfg.Store.Write(ctx, store.Put{Kind: kindJudged, Key: id, Value: b})
	}
	if err != nil {
		return fmt.Errorf("journalling what became of a dissent: %w", err)
	}
	x.judged = rec
	return nil
}

// noteWhy remembers why nothing comes of a dissent now.
func (k *Keeper) noteWhy(id string, err error) {
	text := ""
	if err != nil {
		text = err.Error()
	}
	k.mark(id, func(x *keptDissent) {
		if x.Tries >= rerunTries && x.Output.IsZero() {
			text = ErrUnable.Error()
		}
		if x.why != text && text != "" {
			k.cfg.Log.Info("a dissent waits", "id", id, "err", text)
		}
		x.why = text
	})
}

// chargeOne does the next thing about one result.
func (k *Keeper) chargeOne(ctx context.Context, s *sitting, id string, i int) error {
	x := k.snapshot(id)
	c, r := x.Charges[i], x.receipts[i]
	if c.State.Over() {
		return nil
	}
	end := func(state ChargeState, out *Outcome) error {
		k.cfg.Log.Info("a result of a dissent is settled", "provider", r.Provider, "id", id, "state", state)
		return k.changeDissent(ctx, id, func(rec *judged) { rec.Charges[i].State, rec.Charges[i].Outcome = state, out })
	}
	p, registered := answering(s.all, r.Provider)
	switch {
	case registered && receiptSlashed(p, r):
		return end(ChargeSlashed, &Outcome{Evidence: id, Provider: r.Provider, Already: true, Slot: market.Slot(p.Slashed), Mint: s.network.Params.StakeMint, Transactions: []chain.TxID{}})
	case r.To < s.now && uint64(s.now-r.To) > s.network.Params.EvidenceSlots:
		return end(ChargeExpired, nil)
	case !x.Output.IsZero() && x.Output == r.Output:
		return end(ChargeRight, nil)
	case r.To > s.now:
		return ErrNotYet
	case !registered || p.Stake+p.Unbonding == 0:
		return fmt.Errorf("%w: %s", ErrNotStaked, r.Provider.Short())
	}
	if ballot, carried := carriedBallot(s.ballots, r); carried {
		return k.take(ctx, s, id, i, ballot, p.First)
	}
	if !s.votes() {
		return ErrNotCarried
	}
	if x.Output.IsZero() {
		k.mark(id, func(x *keptDissent) { x.wanted = true })
		return nil
	}
	return k.vote(ctx, s, id, i, program.Dissent{Receipt: r.ReceiptCore.Hash(), Output: x.Output})
}

// take has the stake taken by a ballot that is carried: at once by whoever bought the result, by the others in the order of a lot, so that
// seldom two pay for it.
func (k *Keeper) take(ctx context.Context, s *sitting, id string, i int, ballot, first sign.Key) error {
	x := k.snapshot(id)
	c, r := x.Charges[i], x.receipts[i]
	if x.carried.IsZero() {
		x.carried = time.Now()
		k.mark(id, func(y *keptDissent) { y.carried = x.carried })
	}
	if x.others && c.State == ChargeOpen && time.Since(x.carried) < lot(id, s.Key) {
		return nil
	}
	begun := func() error {
		return k.changeDissent(ctx, id, func(rec *judged) { rec.Charges[i].State, rec.Charges[i].Shown = ChargeSubmitting, true })
	}
	out, err := submitCharge(ctx, s.Chain, s.g, r, ballot, first, s.Key, begun)
	if err != nil && !errors.Is(err, ErrRent) {
		return err
	}
	out.Evidence = id
	state := ChargeTaken
	if out.Already { // perhaps by this peer, before a crash: its account is still open then
		state = ChargeSlashed
	}
	k.cfg.Log.Info("a result of a dissent is settled", "provider", r.Provider, "id", id, "state", state, "taken", out.Taken)
	return k.changeDissent(ctx, id, func(rec *judged) {
		y := &rec.Charges[i]
		y.State, y.Outcome = state, &out
		y.Shown = err != nil || out.Already && c.Shown
	})
}

// vote confirms what this peer computed on the ballot that was opened first, or opens one when it is its turn.
func (k *Keeper) vote(ctx context.Context, s *sitting, id string, i int, truth program.Dissent) error {
	x, mine := k.snapshot(id), s.address(*s.mine)
	open := func(b program.Ballot) bool { return b.Dissent == truth && uint64(s.now) <= b.Ends }
	at, ok := firstBallot(s.ballots, func(_ sign.Key, b program.Ballot) bool { return open(b) && s.mine.Raised < b.Opened })
	if !ok {
		if _, late := firstBallot(s.ballots, func(_ sign.Key, b program.Ballot) bool { return open(b) }); late {
			return nil // bonded too late to vote on it
		}
		return k.propose(ctx, s, id, i, truth)
	}
	b := s.ballots[at]
	if _, err := s.Chain.Voted(ctx, b.Topic(at), mine); !errors.Is(err, chain.ErrNotFound) {
		return err
	}
	note := voteNote{Ballot: at, Note: program.VoteAddress(s.g.Program, b.Topic(at), mine), Ends: b.Ends}
	if !slices.Contains(x.Votes, note) {
		if err := k.changeDissent(ctx, id, func(rec *judged) { rec.Votes = append(rec.Votes, note) }); err != nil {
			return err
		}
	}
	k.cfg.Log.Info("confirming that a result is false", "provider", x.receipts[i].Provider, "id", id, "ballot", at)
	_, err := s.Chain.Run(ctx, []program.Instruction{program.CastVote{Payer: s.Key, Signer: s.Key, Provider: mine, Ballot: at, Vote: note.Note, For: true}.Instruction(s.g.Program)})
	if errors.Is(err, program.ErrExists) {
		return nil
	}
	return err
}

// propose opens a ballot. The slot in its address is written down first: a peer that starts again sends the same.
func (k *Keeper) propose(ctx context.Context, s *sitting, id string, i int, truth program.Dissent) error {
	x, mine := k.snapshot(id), s.address(*s.mine)
	c := x.Charges[i]
	switch b, there := s.ballots[c.Ballot]; {
	case there && b.Dissent == truth:
		return nil // it was not carried in time, and goes first
	case !c.Ballot.IsZero() && (there || uint64(s.now) > c.Opened+program.OpeningSlots): // something else is there, or it never came
		c.Ballot = sign.Key{}
	}
	if c.Ballot.IsZero() {
		if x.ready == 0 {
			x.ready = s.now
			k.mark(id, func(y *keptDissent) { y.ready = s.now })
		}
		if uint64(s.now-x.ready) < s.place(id)*s.Turn {
			return nil
		}
		opened, ok := k.freeSlot(s, mine)
		if !ok {
			return nil // in a slot to come
		}
		c.Opened, c.Ballot = opened, program.BallotAddress(s.g.Program, s.g.Escrow, mine, opened)
		if err := k.changeDissent(ctx, id, func(rec *judged) { rec.Charges[i].Opened, rec.Charges[i].Ballot = c.Opened, c.Ballot }); err != nil {
			return err
		}
	}
	k.cfg.Log.Info("putting a false result to the vote", "provider", x.receipts[i].Provider, "id", id)
	_, err := s.Chain.Run(ctx, []program.Instruction{program.ProposeDissent{Payer: s.Key, Signer: s.Key, Network: s.g.Escrow, Provider: mine, Ballot: c.Ballot,
		Opened: c.Opened, Dissent: truth}.Instruction(s.g.Program)})
	return err
}

// freeSlot is the newest slot since this peer bonded under which it has no ballot: one address takes one.
func (k *Keeper) freeSlot(s *sitting, mine sign.Key) (slot uint64, ok bool) {
	taken := map[uint64]bool{}
	k.judging.Lock()
	for _, x := range k.dissents {
		for _, c := range x.Charges {
			taken[c.Opened] = true
		}
	}
	k.judging.Unlock()
	for slot = uint64(s.now); slot > s.mine.Raised && slot+program.OpeningSlots > uint64(s.now)+10; slot-- {
		_, there := s.ballots[program.BallotAddress(s.g.Program, s.g.Escrow, mine, slot)]
		if !there && !taken[slot] {
			return slot, true
		}
	}
	return 0, false
}

// place is how many of those who vote come before this peer: drawn for each dissent.
func (s *sitting) place(id string) uint64 {
	draw := func(p program.Provider) sign.Hash {
		at := s.address(p)
		return sign.Sum([]byte("starling/dissent/turn/v1"), []byte(id), at[:])
	}
	mine, before := draw(*s.mine), uint64(0)
	for _, p := range s.all {
		if h := draw(p); p.Bonded > 0 && bytes.Compare(h[:], mine[:]) < 0 {
			before++
		}
	}
	return before
}

// tidyDissent takes back the rent of what is over: votes, ballots and shown receipts of this peer.
func (k *Keeper) tidyDissent(ctx context.Context, s *sitting, id string) error {
	x := k.snapshot(id)
	var errs []error
	send := func(call program.Call) bool {
		_, err := s.Chain.Run(ctx, []program.Instruction{call.Instruction(s.g.Program)})
		if errors.Is(err, program.ErrKind) || errors.Is(err, program.ErrOwner) { // it is gone, or never was
			err = nil
		}
		errs = append(errs, err)
		return err == nil
	}
	for _, v := range x.Votes {
		if uint64(s.now) > v.Ends && send(program.CloseVote{Vote: v.Note, RentPayer: s.Key}) {
			errs = append(errs, k.changeDissent(ctx, id, func(rec *judged) { rec.Votes = slices.DeleteFunc(rec.Votes, func(o voteNote) bool { return o == v }) }))
		}
	}
	for i, c := range x.Charges {
		b, there := s.ballots[c.Ballot]
		past := !there && uint64(s.now) > c.Opened+program.OpeningSlots || there && uint64(s.now) > max(b.Dead, b.Opened+program.OpeningSlots)
		if !c.Ballot.IsZero() && past && (!there || b.RentPayer != s.Key || send(program.CloseBallot{Ballot: c.Ballot, RentPayer: s.Key})) {
			errs = append(errs, k.changeDissent(ctx, id, func(rec *judged) { rec.Charges[i].Ballot = sign.Key{} }))
		}
		if c.State.Over() && c.Shown {
			sub := submission{c: s.Chain, f: Finding{Genesis: s.g}, id: s.g.Program, network: s.g.Escrow, reporter: s.Key}
			err := sub.closeReceipt(ctx, x.receipts[i], &Outcome{})
			if err == nil {
				err = k.changeDissent(ctx, id, func(rec *judged) { rec.Charges[i].Shown = false })
			}
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// computing runs works again, one after the other, until ctx ends.
func (k *Keeper) computing(ctx context.Context, j Judge, want chan struct{}) {
	var next time.Time // when one that others told of may be run
	for ctx.Err() == nil {
		id, others, wait := k.nextWork(next)
		if id != "" {
			if others {
				next = time.Now().Add(rerunApart)
			}
			if err := k.computeOne(ctx, j, id); err != nil && ctx.Err() == nil {
				k.cfg.Log.Info("a work is not run again", "id", id, "err", err)
			}
			poke(k.judge)
			continue
		}
		t := time.NewTimer(wait)
		select {
		case <-ctx.Done():
		case <-want:
		case <-t.C:
		}
		t.Stop()
	}
}

// nextWork is the dissent whose work is run next: this peer's own first, then the oldest. Otherwise for how long there is none.
func (k *Keeper) nextWork(apart time.Time) (id string, others bool, wait time.Duration) {
	k.judging.Lock()
	defer k.judging.Unlock()
	now := time.Now()
	wait = rerunWait
	var best *keptDissent
	for key, x := range k.dissents {
		if !x.wanted || !x.Output.IsZero() || x.Tries >= rerunTries {
			continue
		}
		due := x.due
		if x.others && apart.After(due) {
			due = apart
		}
		if rest := due.Sub(now); rest > 0 {
			wait = min(wait, rest)
			continue
		}
		if best == nil || x.others != best.others && !x.others || x.others == best.others && x.found.Before(best.found) {
			best, id, others = x, key, x.others
		}
	}
	return id, others, wait
}

// computeOne runs one work again, and journals its output.
func (k *Keeper) computeOne(ctx context.Context, j Judge, id string) error {
	value, err := k.cfg.Store.Get(ctx, kindDissent, id)
	if err != nil {
		return err
	}
	rec, d, err := readDissent(id, value)
	if err == nil {
		err = k.changeDissent(ctx, id, func(rec *judged) { rec.Tries++ })
	}
	if err != nil {
		return k.runLater(id, err)
	}
	soon, cancel := context.WithTimeout(ctx, rerunLimit)
	defer cancel()
	r, err := j.Again(soon, d, rec.Holder)
	if err == nil && len(r.Trees) != len(d.Work.Outputs) {
		err = fmt.Errorf("%w: %d outputs, want %d", ErrUnable, len(r.Trees), len(d.Work.Outputs))
	}
	switch {
	case err == nil:
		return k.changeDissent(ctx, id, func(rec *judged) { rec.Output, rec.Tries = replica.Output(d.Work.Hash(), r), 0 })
	case errors.Is(err, ErrUnable), soon.Err() != nil && ctx.Err() == nil:
		return errors.Join(err, k.changeDissent(ctx, id, func(rec *judged) { rec.Tries = rerunTries }))
	}
	return k.runLater(id, errors.Join(err, k.changeDissent(context.WithoutCancel(ctx), id, func(rec *judged) { rec.Tries-- })))
}

// runLater notes when a work is tried again.
func (k *Keeper) runLater(id string, why error) error {
	k.mark(id, func(x *keptDissent) {
		x.wait = min(max(2*x.wait, rerunRetry), rerunWait)
		x.due = time.Now().Add(x.wait)
	})
	return why
}
