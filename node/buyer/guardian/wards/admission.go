package wards

import (
	"context"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/node/buyer/guardian"
	"github.com/starling-network/starling/node/nodepb"
	"github.com/starling-network/starling/p2p"
	"github.com/starling-network/starling/p2p/admit"
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

// admission takes jobs in by the policy.
//
// A place is counted from the moment that it is given: by coming while the engagement is written, then by the ward. No
// lock is held over the write.
type admission struct {
	*guard
	// at is the network that a peer is connected from; not valid: none, or this machine's.
	at func(sign.Key) netip.Prefix

	mu     sync.Mutex         // a ward is in coming or in the runner, and never in both
	coming map[sign.Hash]Ward // admitted, and not in the runner yet
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

func (a *admission) countLocked(owner sign.Key, at netip.Prefix) (c census) {
	for _, w := range append(slices.Collect(maps.Values(a.coming)), a.wards()...) {
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
	p, at := a.cfg.Policy, a.at(from)
	a.mu.Lock()
	c := a.countLocked(from, at)
	a.mu.Unlock()
	if err := p.admits(c); err != nil {
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
	key := a.open(job, e.Sealed)
	if key == nil {
		return Ward{}, malformed("the job's key is not sealed to this peer")
	}
	w := Ward{
		Charter: guardian.Charter{Job: job, Owner: from, Buyer: key.Key(), Keys: e.Keys}, Members: e.Members,
		Sealed: e.Sealed, File: e.File, Files: e.Files, Addrs: e.Addrs,
		Until: e.Until, From: a.at(from), Epoch: 1, Ready: len(e.Files) == 0,
	}
	if err := w.Check(a.genesis); err != nil {
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
	if err := a.keeps(w.Files); err != nil {
		return err
	}
	if left := time.Until(w.Until); left > p.Longest || left <= 0 {
		return guardian.Refuse(guardian.CodePolicy, "the job lasts %v, this peer guards up to %v",
			left.Round(time.Second), p.Longest)
	}
	return nil
}

// admit journals a job that is new and adds its ward.
func (a *admission) admit(ctx context.Context, next Ward) error {
	if known, err := a.reserve(next); known || err != nil {
		return err
	}
	// A request that ends first does not interrupt the write: it is known whether there is a ward.
	err := wards.Write(context.WithoutCancel(ctx), a.cfg.Store, next.Job, next)
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.coming, next.Job)
	if err != nil {
		return fmt.Errorf("journalling a guarded job: %w", err)
	}
	w := guarded{rules: &a.rules, Ward: next, key: a.open(next.Job, next.Sealed), refreshed: true}
	a.runner.Add(next.Job, w, resumed{})
	a.cfg.Log.Info("guarding a job",
		"job", next.Job.Short(), "owner", next.Owner.Short(), "guardians", len(next.Keys.Keys))
	return nil
}

// reserve reserves a place for a job, or reports that it has one.
func (a *admission) reserve(next Ward) (known bool, err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if _, _, err := a.runner.Get(next.Job); err == nil {
		return true, nil
	}
	if _, under := a.coming[next.Job]; under {
		return false, guardian.Refuse(guardian.CodeFetching, "the job is being taken on: retry")
	}
	p, c := a.cfg.Policy, a.countLocked(next.Owner, next.From)
	if err := p.admits(c); err != nil {
		return false, err
	}
	if n := len(a.coming) + len(a.runner.Keys()); n >= 8*p.MaxJobs+64 { // dismissed wards wait for their wages
		return false, guardian.Refuse(guardian.CodeFull, "this peer guards %d jobs, which is all it can", c.jobs)
	}
	if most := p.unbacked(); !next.Unbacked.IsZero() && c.unbacked >= most {
		return false, guardian.Refuse(guardian.CodeFull,
			"this peer guards %d jobs without wages on chain, the maximum", most)
	}
	a.coming[next.Job] = next
	return false, nil
}
