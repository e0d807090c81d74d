package buyer

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/bits"
	"slices"
	"time"

	"github.com/ipfs/go-cid"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/node/buyer/exchange"
	"github.com/starling-network/starling/node/buyer/guardian"
	"github.com/starling-network/starling/node/buyer/jobs"
	"github.com/starling-network/starling/node/buyer/record"
	"github.com/starling-network/starling/node/buyer/trace"
	"github.com/starling-network/starling/node/job"
	"github.com/starling-network/starling/p2p"
)

// engage finds guardians for a new job and hands it to them.
func (d *command) engage() {
	ctx, cancel := context.WithCancel(d.b.desk.ctx)
	d.s.mu.Lock()
	d.engaging = cancel
	d.s.mu.Unlock()
	d.b.wg.Go(func() {
		defer cancel()
		err := d.s.engage(ctx)
		switch {
		case ctx.Err() != nil:
		case err != nil:
			d.post(jobs.EngagementFailed{Reason: err.Error()})
		default:
			d.report(event{ev: jobs.GuardiansEngaged{Epoch: 1}, amend: &amendment{change: func(j *Job) {
				j.Detached = j.Detached.Clone()
				j.Detached.Engaged, j.Detached.Epoch = true, 1
			}}})
		}
	})
}

// engage returns once guardians have taken the job.
func (s *supervisor) engage(ctx context.Context) error {
	until := time.Now().Add(engageTime)
	for {
		err := s.engageOnce(ctx)
		if err == nil || ctx.Err() != nil {
			return errors.Join(err, ctx.Err())
		}
		if time.Now().After(until) {
			return fmt.Errorf("no %d peers guard the job: %w (guard.accept of their configuration lets peers do so; "+
				"--guardians 0 does without)", s.snapshot().Spec.Guardians, err)
		}
		if err := pause(ctx, grantRetry); err != nil {
			return err
		}
	}
}

func (s *supervisor) engageOnce(ctx context.Context) error {
	j := s.snapshot()
	// Its files may be large, and one that never has them is not the last.
	ctx, cancel := context.WithTimeout(ctx, j.Spec.Timeouts.Queue/2)
	defer cancel()
	if len(j.Detached.Guardians) == 0 {
		members, err := s.b.findGuardians(ctx, j, s.driver.guards.unwilling)
		if err != nil {
			return err
		}
		if err := s.save(ctx, func(j *Job) {
			j.Detached = j.Detached.Clone()
			j.Detached.Guardians = guardiansOf(members)
		}); err != nil {
			return err
		}
		j = s.snapshot()
		if err := s.guard.guardedBy(j.Detached, nil); err != nil {
			return err
		}
	}
	e, err := s.engagement(j)
	if err != nil {
		return err
	}
	if err = s.guard.guardians().Engage(ctx, e); err != nil {
		var no *guardian.NotEngaged
		if errors.As(err, &no) {
			s.driver.guards.unwilling = append(s.driver.guards.unwilling, no.By...)
		}
		return errors.Join(err, s.anew(context.WithoutCancel(ctx), j, err))
	}
	var names []string
	for _, m := range j.Detached.Guardians {
		names = append(names, m.Key.Short())
	}
	detail := fmt.Sprintf("by %v, %d of whom decide", names, s.guard.keys().Threshold)
	s.trace.Add(trace.Step{At: time.Now(), Kind: trace.Guarded, Detail: detail})
	return nil
}

// engagement is the job as handed to its guardians, who may read its files from then on.
func (s *supervisor) engagement(j Job) (e guardian.Engagement, err error) {
	until := j.Created.Add(j.Spec.Timeouts.Queue + j.Spec.Timeouts.Run + guardedAfter)
	e = guardian.Engagement{Key: s.guard.secret, Until: until}
	if e.Files, err = filesOf(j.Spec.Blobs); err != nil {
		return e, err
	}
	if e.File, err = json.Marshal(charterFile{ID: j.ID, Spec: publicSpec(j.Spec), Created: j.Created}); err != nil {
		return e, err
	}
	for _, m := range j.Detached.Guardians {
		id, err := s.b.cfg.Host.Remember(m.Key, m.Addrs)
		if err != nil {
			return e, err
		}
		for _, f := range e.Files {
			s.b.cfg.Files.Grant(id, f.CID)
		}
	}
	for _, a := range s.b.cfg.Host.Addrs() {
		e.Addrs = append(e.Addrs, a.String())
	}
	return e, nil
}

// complete returns once the guardians have the job's files, which they fetch when their wages are on chain. It says
// false if that fails.
func (s *supervisor) complete(ctx context.Context) bool {
	e, err := s.engagement(s.snapshot())
	e.Complete = true
	if err == nil {
		err = s.guard.guardians().Engage(ctx, e)
	}
	if err != nil && ctx.Err() == nil {
		s.b.cfg.Log.Debug("guardians do not have a job's files yet", "job", s.trace.Job, "err", err)
	}
	return err == nil
}

// anew has a job look for other guardians. Nothing was signed in its name yet. It gets another key, since the guardians
// that accepted it did so for the old one.
func (s *supervisor) anew(ctx context.Context, j Job, why error) error {
	s.trace.Add(trace.Step{At: time.Now(), Kind: trace.Guarded,
		Detail: "others are looked for: " + record.Clean(why.Error())})
	call, done := context.WithTimeout(ctx, findGuardians)
	_ = s.guard.guardians().Dismiss(call)
	done()
	d, err := s.b.detachedFor(j.ID, j.Spec)
	if err != nil {
		return err
	}
	j.Detached = d
	guard, err := s.b.voiceOf(j)
	if err != nil {
		return err
	}
	if err := s.save(ctx, func(j *Job) { j.Detached = d }); err != nil {
		return err
	}
	old := s.guard
	s.mu.Lock()
	s.guard, s.as = guard, guard
	s.mu.Unlock()
	old.guardians().Close()
	return nil
}

// guardedAfter is how long after its time a job is there for its owner to come back to.
const guardedAfter = 7 * 24 * time.Hour

// publicSpec returns a job without the parts that only its owner needs.
func publicSpec(spec job.Job) job.Job {
	spec.Webhooks = nil
	return spec
}

func filesOf(blobs map[string]job.Blob) ([]guardian.File, error) {
	var out []guardian.File
	seen := map[string]bool{}
	for source, bl := range blobs {
		if seen[bl.CID] || !bl.Here() {
			continue
		}
		seen[bl.CID] = true
		c, err := cid.Parse(bl.CID)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", source, err)
		}
		out = append(out, guardian.File{CID: c, Size: bl.Size})
	}
	slices.SortFunc(out, func(a, b guardian.File) int { return bytes.Compare(a.CID.Bytes(), b.CID.Bytes()) })
	return out, nil
}

// guardedBytes is the size of the files that guardians of a job keep.
func guardedBytes(blobs map[string]job.Blob) (size int64) {
	for _, bl := range blobs {
		if bl.Here() {
			size += bl.Size
		}
	}
	return size
}

// findGuardians asks known peers whether they guard the job, and chooses among the willing ones: by stake, then by
// distance. Peers that agreed before and then refused come last.
func (b *Buyer) findGuardians(ctx context.Context, j Job, unwilling []sign.Key) ([]guardian.Member, error) {
	look, found := context.WithTimeout(ctx, exchange.FindTimeout)
	b.exchange.Find(look, j.Spec.Resources.Class, j.Spec.Placement.Regions, 0)
	found()
	var candidates []guardian.Candidate
	add := func(p sign.Key, addrs []string) {
		known := slices.ContainsFunc(candidates, func(c guardian.Candidate) bool { return c.Key == p })
		if _, no := b.exchange.Blocked(p); no || known || p == b.self || slices.Contains(j.Spec.Placement.Exclude, p) ||
			len(candidates) >= guardsAsked {
			return
		}
		candidates = append(candidates, guardian.Candidate{Key: p, Addrs: addrs})
	}
	sells := map[sign.Key]bool{} // requirements of the job
	for _, k := range b.exchange.Book.Class(j.Spec.Resources.Class, time.Now()) {
		sells[k.Offer.Provider] = true
	}
	for _, info := range b.cfg.Market.Neighbours() {
		k, err := p2p.KeyFromPeerID(info.ID)
		p := sign.Key(k)
		if err != nil || sells[p] {
			continue
		}
		var addrs []string
		for _, a := range info.Addrs[:min(len(info.Addrs), market.MaxAddrs)] {
			addrs = append(addrs, a.String())
		}
		add(p, addrs)
	}
	for _, k := range b.exchange.Book.Class("", time.Now()) {
		add(k.Offer.Provider, k.Offer.Addrs)
	}
	asked, cancel := context.WithTimeout(ctx, findGuardians)
	defer cancel()
	offers := guardian.Offers(asked, b.cfg.Host, b.cfg.Genesis, candidates)
	size := guardedBytes(j.Spec.Blobs)
	offers = slices.DeleteFunc(offers, func(o guardian.Offered) bool {
		return o.ShareMillionths > maxShare || o.MaxBytes < size ||
			o.Longest < j.Spec.Timeouts.Queue+j.Spec.Timeouts.Run+guardedAfter
	})
	n := int(j.Spec.Guardians)
	stakes := map[sign.Key]market.Amount{}
	if b.cfg.Stakes != nil {
		for _, o := range offers {
			if stake, err := b.cfg.Stakes.Stake(asked, o.Key); err == nil {
				stakes[o.Key] = stake
			}
		}
	}
	slices.SortFunc(offers, func(x, y guardian.Offered) int {
		no := func(k sign.Key) int { return bit(slices.Contains(unwilling, k)) }
		return cmp.Or(cmp.Compare(no(x.Key), no(y.Key)), cmp.Compare(stakes[y.Key], stakes[x.Key]),
			cmp.Compare(bit(sells[x.Key]), bit(sells[y.Key])),
			cmp.Compare(x.RTT, y.RTT))
	})
	// Who guards the job does not work for it: enough must be left that can.
	spare := len(sells) - int(j.Spec.Count) - int(j.Spec.Standbys)
	if j.Spec.Placement.Pack {
		spare = len(sells) - 1
	}
	offers = slices.DeleteFunc(offers, func(o guardian.Offered) bool {
		if sells[o.Key] {
			spare--
		}
		return sells[o.Key] && spare < 0
	})
	if len(offers) < n {
		return nil, fmt.Errorf("%d of %d peers that were asked would, beside those needed to run it",
			len(offers), len(candidates))
	}
	var out []guardian.Member
	for _, o := range offers[:n] {
		out = append(out, guardian.Member{Key: o.Key, Addrs: o.Addrs})
	}
	slices.SortFunc(out, func(x, y guardian.Member) int { return bytes.Compare(x.Key[:], y.Key[:]) })
	return out, b.pledge(j, out, offers[:n])
}

func bit(b bool) int {
	if b {
		return 1
	}
	return 0
}

// maxShare is the most of what a job's leases can cost that one guardian may want, in millionths.
const maxShare = 1_000_000 / job.WagePart / 5

// pledge gives each guardian the wage that it wants: a lease between the job's key and the guardian, which has no units
// and is paid for the time that it guards.
func (b *Buyer) pledge(j Job, members []guardian.Member, offers []guardian.Offered) error {
	d := *j.Detached
	d.Guardians = guardiansOf(members)
	charter, err := charterOf(&d)
	if err != nil {
		return err
	}
	slot, err := b.cfg.Slots.Now(time.Now())
	if err != nil {
		return err
	}
	spec := j.Spec
	spec.Guardians, spec.Standbys = 0, 0
	cost, err := mostCost(spec)
	if err != nil {
		return err
	}
	g := b.cfg.Genesis
	slots := max(g.SlotsIn(j.Spec.Timeouts.Queue+j.Spec.Timeouts.Run), 2)
	order := market.OrderID(sign.Sum([]byte("starling/wage/order/v1"), d.Terms[:]))
	for i, m := range members {
		o := offers[slices.IndexFunc(offers, func(o guardian.Offered) bool { return o.Key == m.Key })]
		if o.ShareMillionths == 0 {
			continue
		}
		// Rates are in millionths of a base unit.
		hi, lo := bits.Mul64(uint64(cost), uint64(o.ShareMillionths))
		if hi >= slots {
			return fmt.Errorf("the wage of guardian %s: %w", m.Key.Short(), market.ErrOverflow)
		}
		rate, _ := bits.Div64(hi, lo, slots)
		unit := market.UnitID(sign.Sum([]byte("starling/wage/v1"), d.Terms[:], m.Key[:]))
		core := market.LeaseCore{
			Version: market.LeaseVersion, Units: 1, Order: order, Buyer: d.Key,
			Provider: m.Key, Payout: o.Payout, UnitsRoot: market.UnitsRoot([]market.UnitID{unit}), Terms: d.Terms,
			VoucherKeys: charter.Keys.Hash(), Rate: market.Rate(max(rate, 1)),
			Start: slot, ActivateBefore: slot + market.Slot(slots-1), End: slot + market.Slot(slots),
		}
		if core.Cap, err = core.Rate.Owed(slots); err != nil {
			return fmt.Errorf("the wage of guardian %s: %w", m.Key.Short(), err)
		}
		core.Cap = max(core.Cap, 1)
		members[i].Wage = &core
	}
	return nil
}
