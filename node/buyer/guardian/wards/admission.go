package wards

import (
	"context"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/node/buyer/guardian"
	"github.com/starling-network/starling/node/nodepb"
	"github.com/starling-network/starling/p2p"
	"github.com/starling-network/starling/p2p/admit"
	"github.com/starling-network/starling/p2p/stream"
)

// Policy is a peer's policy for guarding jobs.
type Policy struct {
	Accept          bool
	MaxJobs         int           // at a time
	ShareMillionths uint32        // of the largest cost of a job's leases, for all of it; 0: for nothing
	MaxBytes        int64         // of the files of one job
	Longest         time.Duration // a job may be guarded
}

// share is the maximum number of guarded jobs for one owner, and for the owners of one network. Guarding is unpaid
// until a job's escrow is open.
func (p Policy) share() int { return max(p.MaxJobs/4, 2) }

// unbacked is the number of jobs that may be guarded without wages on chain.
func (p Policy) unbacked() int { return max(p.MaxJobs/2, 1) }

// keeps refuses files that are larger than this peer keeps for one job.
func (p Policy) keeps(lists ...[]guardian.File) error {
	if sum := guardian.BytesOf(lists...); sum > p.MaxBytes {
		return guardian.Refuse(guardian.CodePolicy, "the job's files are %s, this peer keeps %s",
			stream.Size(sum), stream.Size(p.MaxBytes))
	}
	return nil
}

// admission takes jobs in by the policy.
type admission struct {
	*guard
	wards *register
	// at is the network that a peer is connected from; not valid: none, or this machine's.
	at func(sign.Key) netip.Prefix

	mu sync.Mutex // one job at a time; held before the wards' locks
}

// connectedFrom is the network of the address at which this peer is connected to another; one behind a relay has the
// relay's.
func (g *guard) connectedFrom(k sign.Key) netip.Prefix {
	id, err := p2p.PeerIDFromKey(k)
	if err != nil || g.cfg.Host == nil {
		return netip.Prefix{}
	}
	return admit.NetworkOfPeer(g.cfg.Host.Network(), id)
}

// census counts the wards that are not dismissed.
type census struct {
	jobs     int
	owner    int // of one owner
	network  int // of the owners of one network
	unbacked int // without wages on chain
}

func (a *admission) count(owner sign.Key, at netip.Prefix) (c census) {
	for _, w := range a.wards.values() {
		if w.Dismissed {
			continue
		}
		c.jobs++
		if w.Owner == owner {
			c.owner++
		}
		if at.IsValid() && w.From == at {
			c.network++
		}
		if !w.Unbacked.IsZero() {
			c.unbacked++
		}
	}
	return c
}

// admits reports whether the policy has room for one more job beside those of a census.
func (p Policy) admits(c census) error {
	switch share := p.share(); {
	case !p.Accept:
		return guardian.Refuse(guardian.CodePolicy, "this peer guards no jobs of others")
	case c.jobs >= p.MaxJobs:
		return guardian.Refuse(guardian.CodeFull, "this peer guards %d jobs, which is all it can", c.jobs)
	case c.owner >= share || c.network >= share:
		return guardian.Refuse(guardian.CodeFull,
			"this peer guards %d jobs of one owner, or of one network, which is all it does", share)
	}
	return nil
}

// offer states the conditions of this peer, if it has room for a job of an owner.
func (a *admission) offer(from sign.Key) (*nodepb.GuardReply, error) {
	p := a.cfg.Policy
	if err := p.admits(a.count(from, a.at(from))); err != nil {
		return nil, err
	}
	return &nodepb.GuardReply{Op: &nodepb.GuardReply_Offered_{Offered: &nodepb.GuardReply_Offered{
		ShareMillionths: p.ShareMillionths, Payout: a.cfg.Payout[:],
		MaxBytes: uint64(max(p.MaxBytes, 0)), LongestMillis: uint64(max(p.Longest, 0) / time.Millisecond),
	}}}, nil
}

// wardOf checks an engagement and makes its ward.
func (a *admission) wardOf(from sign.Key, job sign.Hash, pb *nodepb.GuardRequest_Engage) (Ward, error) {
	e, err := guardian.ReadEngaged(pb)
	if err != nil {
		return Ward{}, err
	}
	seed, err := a.cfg.Unseal(guardian.SealedFor(a.tag, job), e.Sealed)
	if err != nil || len(seed) != 32 {
		return Ward{}, malformed("the job's key is not sealed to this peer")
	}
	key := sign.NewPrivate([32]byte(seed))
	clear(seed)
	w := Ward{
		Charter: guardian.Charter{Job: job, Owner: from, Buyer: key.Key(), Keys: e.Keys}, Members: e.Members,
		Sealed: e.Sealed, File: e.File, Files: e.Files, Addrs: e.Addrs,
		Until: e.Until, From: a.at(from), Epoch: 1, Ready: len(e.Files) == 0,
	}
	if err := w.Check(a.cfg.Genesis); err != nil {
		return Ward{}, malformed("%v", err)
	}
	if a.cfg.Backed != nil && w.WageOf(a.self) != nil {
		w.Unbacked = time.Now()
	}
	if !slices.Contains(w.Keys.Keys, a.self) {
		return Ward{}, malformed("this peer is not among the guardians")
	}
	if err := w.checkWages(); err != nil {
		return Ward{}, err
	}
	return w, a.wants(w)
}

// wants checks a ward against the policy for one job.
func (a *admission) wants(w Ward) error {
	p := a.cfg.Policy
	if c := w.WageOf(a.self); p.ShareMillionths > 0 && (c == nil || c.Payout != a.cfg.Payout || c.Cap == 0) {
		return guardian.Refuse(guardian.CodePolicy,
			"this peer guards for %d millionths of a job's maximum cost, paid to %s",
			p.ShareMillionths, a.cfg.Payout)
	}
	if err := p.keeps(w.Files); err != nil {
		return err
	}
	if left := time.Until(w.Until); left > p.Longest || left <= 0 {
		return guardian.Refuse(guardian.CodePolicy, "the job lasts %v, this peer guards up to %v",
			left.Round(time.Second), p.Longest)
	}
	return nil
}

// admit journals a job that is new, or finds it.
func (a *admission) admit(ctx context.Context, next Ward) (*guarded, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if w := a.wards.find(next.Job); w != nil {
		w.mu.Lock()
		defer w.mu.Unlock()
		switch {
		case !w.same(next):
			return nil, guardian.Refuse(guardian.CodeOther,
				"this peer was engaged for another job under the same terms")
		case w.Dismissed:
			return nil, guardian.Refuse(guardian.CodeOver, "the job was dismissed")
		}
		return w, nil
	}
	p, c := a.cfg.Policy, a.count(next.Owner, next.From)
	if err := p.admits(c); err != nil {
		return nil, err
	}
	if n := len(a.wards.all()); n >= 8*p.MaxJobs+64 { // dismissed wards wait for their wages
		return nil, guardian.Refuse(guardian.CodeFull, "this peer guards %d jobs, which is all it can", c.jobs)
	}
	if most := p.unbacked(); !next.Unbacked.IsZero() && c.unbacked >= most {
		return nil, guardian.Refuse(guardian.CodeFull,
			"this peer guards %d jobs without wages on chain, the maximum", most)
	}
	w, err := a.wards.add(ctx, next)
	if err != nil {
		return nil, err
	}
	a.cfg.Log.Info("guarding a job",
		"job", next.Job.Short(), "owner", next.Owner.Short(), "guardians", len(next.Keys.Keys))
	return w, nil
}
