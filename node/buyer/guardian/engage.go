package guardian

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/node/nodepb"
	"github.com/starling-network/starling/node/sealed"
	"github.com/starling-network/starling/p2p"
)

// Candidate is a peer that could guard a job.
type Candidate struct {
	Key   sign.Key
	Addrs []string
}

// Offered is a peer's price for guarding a job.
type Offered struct {
	Candidate
	ShareMillionths uint32 // of the largest cost of the job's leases
	Payout          sign.Key
	MaxBytes        int64         // of the files of one job
	Longest         time.Duration // a job may last
	RTT             time.Duration
}

// Offers requests guard offers from peers. Peers that refuse, or do not answer before ctx ends, are left out.
func Offers(ctx context.Context, h *p2p.Host, g market.Genesis, candidates []Candidate) []Offered {
	found := make([]*Offered, len(candidates))
	var wg sync.WaitGroup
	for i, c := range candidates {
		wg.Go(func() {
			start := time.Now()
			reply, err := ask(ctx, h, g.Tag(), Member{Key: c.Key, Addrs: c.Addrs}, &nodepb.GuardRequest{
				Op: &nodepb.GuardRequest_Offer_{Offer: &nodepb.GuardRequest_Offer{}},
			})
			o := reply.GetOffered()
			if err != nil || o == nil || len(o.Payout) != sign.KeySize ||
				o.MaxBytes > 1<<62 || o.LongestMillis > 1<<42 {
				return
			}
			found[i] = &Offered{
				Candidate: c, ShareMillionths: o.ShareMillionths, Payout: sign.Key(o.Payout),
				MaxBytes: int64(o.MaxBytes), Longest: time.Duration(o.LongestMillis) * time.Millisecond,
				RTT: time.Since(start),
			}
		})
	}
	wg.Wait()
	var out []Offered
	for _, o := range found {
		if o != nil {
			out = append(out, *o)
		}
	}
	return out
}

// Engagement is the data that the guardians receive. It never changes.
type Engagement struct {
	Key   sign.Private // the job's
	File  []byte
	Files []File // stored at this peer, readable for the guardians
	Addrs []string
	Until time.Time
	// Complete has guardians answer once they have the files, those too that do not fetch them before their wage is on
	// chain.
	Complete bool
}

// Engage hands the job to all guardians, and returns when all have accepted it and its files (see Engagement.Complete).
// A voucher must not depend on a guardian without the job. Guardians that still fetch are polled until ctx ends. A call
// with the same job may be repeated.
func (p *Panel) Engage(ctx context.Context, e Engagement) error {
	if err := p.cfg.Charter.Check(p.cfg.Genesis); err != nil {
		return err
	}
	answers := everyone(ctx, p, func(_ context.Context, _ int, m Member) (struct{}, error) {
		return struct{}{}, p.engage(ctx, m, e)
	})
	failed := map[int]error{}
	for i := range p.cfg.Members {
		failed[i] = errSilent
	}
	for range p.cfg.Members {
		a, err := next(ctx, answers)
		if err != nil {
			break
		}
		if failed[a.from] = a.err; a.err == nil {
			delete(failed, a.from)
		}
	}
	if len(failed) == 0 {
		return nil
	}
	out := &NotEngaged{why: p.minority(len(p.cfg.Members)-len(failed), failed)}
	for i := range failed {
		out.By = append(out.By, p.cfg.Members[i].Key)
	}
	return out
}

var errSilent = errors.New("no answer in time")

// NotEngaged is the error that names the guardians that did not accept a job.
type NotEngaged struct {
	By  []sign.Key
	why error
}

func (e *NotEngaged) Error() string { return e.why.Error() }
func (e *NotEngaged) Unwrap() error { return e.why }

func (p *Panel) engage(ctx context.Context, m Member, e Engagement) error {
	seed := e.Key.Seed()
	box, err := sealed.Seal(m.Key, SealedFor(p.tag, p.cfg.Charter.Job), seed[:])
	if err != nil {
		return err
	}
	engaged := Engaged{
		Keys: p.cfg.Charter.Keys, Members: p.cfg.Members, Sealed: box, File: e.File, Files: e.Files,
		Addrs: e.Addrs, Until: e.Until, Complete: e.Complete,
	}
	req := &nodepb.GuardRequest{Op: &nodepb.GuardRequest_Engage_{Engage: engaged.PB()}}
	for {
		_, err := p.ask(ctx, m, req)
		if !Refused(err, CodeFetching) {
			return err
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(TimingOf(p.cfg.Genesis).Beat):
		}
	}
}

// Dismiss makes all guardians forget the job. Its error names the guardians that it could not reach. They delete the
// job when its time has passed.
func (p *Panel) Dismiss(ctx context.Context) error {
	answers := everyone(ctx, p, func(ctx context.Context, _ int, m Member) (struct{}, error) {
		dismiss := &nodepb.GuardRequest_Dismiss_{Dismiss: &nodepb.GuardRequest_Dismiss{}}
		_, err := p.ask(ctx, m, &nodepb.GuardRequest{Op: dismiss})
		if Refused(err, CodeUnknown) {
			err = nil
		}
		return struct{}{}, err
	})
	failed := map[int]error{}
	for range p.cfg.Members {
		a, err := next(ctx, answers)
		if err != nil {
			return errors.Join(p.minority(len(p.cfg.Members)-len(failed), failed), err)
		}
		if a.err != nil {
			failed[a.from] = a.err
		}
	}
	if len(failed) > 0 {
		return p.minority(len(p.cfg.Members)-len(failed), failed)
	}
	return nil
}
