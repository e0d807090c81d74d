package reputation

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/starling-network/starling/chain"
	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/node/journal"
	"github.com/starling-network/starling/verify"
)

const (
	// MaxShown is how many leases a peer shows: the newest.
	MaxShown = 256
	// showAtOnce is the number of jobs processed in a turn.
	showAtOnce = 8
	// ShowAfter is the time from a lease's anchor until it is shown. Leases anchored earlier become known meanwhile.
	ShowAfter = time.Minute
)

// Settled is an ended job that this peer bought.
type Settled struct {
	Job string
	Tx  chain.TxID // that anchors its receipts
}

// ShowerConfig is the configuration of a Shower; all of it is required.
type ShowerConfig struct {
	Genesis market.Genesis
	Self    sign.Key
	Store   journal.Store
	Own     Own
	Slot    func() (market.Slot, error)
	// Anchor and Busy are as in ReaderConfig.
	Anchor func(ctx context.Context, tx chain.TxID) (chain.Commitment, error)
	Busy   func() bool
	Log    *slog.Logger
}

// Own is the receipts and records that this peer anchored.
type Own interface {
	// Settled lists the ended jobs with anchored receipts.
	Settled() []Settled
	// Receipts returns all receipts of a job, in the order of its anchor.
	Receipts(ctx context.Context, job string) ([]verify.Receipt, error)
	// Records returns the newest anchored audits of this peer's units.
	Records() []sign.Hash
}

// Shower shows the anchored receipts of the leases that this peer bought. OpenShower starts nothing; Run does.
type Shower struct {
	cfg ShowerConfig

	mu   sync.Mutex
	jobs map[string]bool
	list []chain.Testimony // in the order of marks
	done bool              // all jobs are in it
}

// OpenShower reads the receipts of an earlier process.
func OpenShower(ctx context.Context, cfg ShowerConfig) (*Shower, error) {
	s := &Shower{cfg: cfg, jobs: map[string]bool{}}
	return s, shownTable.List(ctx, cfg.Store, "", func(key string, forms [][]byte) error {
		var leases []chain.Testimony
		for _, b := range forms {
			a, err := chain.UnmarshalTestimony(b)
			if err != nil {
				return fmt.Errorf("reading the anchored receipts of job %s: %w", key, err)
			}
			leases = append(leases, a)
		}
		s.add(key, leases)
		return nil
	})
}

// add adds the leases of a job. s.mu is held, or s is not shared yet.
func (s *Shower) add(job string, leases []chain.Testimony) {
	s.jobs[job] = true
	s.list = append(s.list, leases...)
	slices.SortFunc(s.list, func(x, y chain.Testimony) int { return markOf(x).compare(markOf(y)) })
	s.list = slices.Delete(s.list, 0, max(0, len(s.list)-MaxShown))
}

// Run polls for ended jobs until ctx ends.
func (s *Shower) Run(ctx context.Context) error {
	tick := time.NewTicker(readEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		if s.cfg.Busy() {
			continue
		}
		if err := s.Turn(ctx); err != nil && ctx.Err() == nil {
			s.cfg.Log.Debug("showing this peer's anchored leases failed", "err", err)
		}
	}
}

// Turn shows a few ended jobs that are not shown yet, and drops removed jobs.
func (s *Shower) Turn(ctx context.Context) error {
	settled := s.cfg.Own.Settled()
	s.mu.Lock()
	var fresh []Settled
	gone := make(map[string]bool, len(s.jobs))
	for job := range s.jobs {
		gone[job] = true
	}
	for _, j := range settled {
		delete(gone, j.Job)
		if !s.jobs[j.Job] {
			fresh = append(fresh, j)
		}
	}
	s.mu.Unlock()
	var errs []error
	for _, j := range fresh[:min(len(fresh), showAtOnce)] {
		if err := s.show(ctx, j); err != nil {
			errs = append(errs, fmt.Errorf("job %s: %w", j.Job, err))
		}
	}
	var b journal.Batch
	for job := range gone {
		shownTable.Delete(&b, job)
	}
	errs = append(errs, b.Commit(ctx, s.cfg.Store))
	s.mu.Lock()
	defer s.mu.Unlock()
	for job := range gone {
		delete(s.jobs, job)
	}
	s.done = errors.Join(errs...) == nil && len(fresh) <= showAtOnce
	return errors.Join(errs...)
}

// show adds the last receipt of each lease of a job.
func (s *Shower) show(ctx context.Context, j Settled) error {
	receipts, err := s.cfg.Own.Receipts(ctx, j.Job)
	if err != nil {
		return err
	}
	actx, cancel := context.WithTimeout(ctx, chainTime)
	on, err := s.cfg.Anchor(actx, j.Tx)
	cancel()
	if err != nil && !errors.Is(err, chain.ErrNotFound) && !errors.Is(err, chain.ErrMalformed) {
		return err
	}
	leases := []chain.Testimony{}
	if err == nil {
		leases = include(s.cfg.Self, receipts, on, j.Tx)
	}
	forms := [][]byte{}
	for _, a := range leases {
		forms = append(forms, a.Marshal())
	}
	if err := shownTable.Write(ctx, s.cfg.Store, j.Job, forms); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.add(j.Job, leases)
	return nil
}

// include returns the last receipt of each lease that a peer itself bought, under an anchor of all receipts. It returns
// none if the anchor is of other receipts.
func include(self sign.Key, all []verify.Receipt, on chain.Commitment, tx chain.TxID) []chain.Testimony {
	hashes := make([]sign.Hash, len(all))
	for i, r := range all {
		hashes[i] = r.SignedHash()
	}
	out := []chain.Testimony{}
	if on.Of != chain.OfReceipts || on.Count != uint64(len(hashes)) || on.Root != chain.RootOf(hashes) {
		return out
	}
	last := map[market.LeaseID]int{}
	for i, r := range all {
		if j, known := last[r.Lease]; !known || all[j].Seq < r.Seq {
			last[r.Lease] = i
		}
	}
	for i, r := range all {
		if last[r.Lease] == i && r.Buyer == self && r.Cumulative > 0 && len(out) < MaxShown {
			out = append(out, chain.Testimony{Receipt: r, In: chain.Include(on.Anchor, hashes, i, tx, on.Slot)})
		}
	}
	return out
}

// Show returns the receipts after a mark, and the newest audits. It has no receipts until all jobs were read.
func (s *Shower) Show(after Mark) Page {
	page := Page{Records: s.cfg.Own.Records()}
	page.Records = page.Records[:min(len(page.Records), MaxRecords)]
	now, err := s.cfg.Slot()
	s.mu.Lock()
	defer s.mu.Unlock()
	if err != nil || !s.done {
		return page
	}
	until := now - min(now, market.Slot(s.cfg.Genesis.SlotsIn(ShowAfter)))
	i, _ := slices.BinarySearchFunc(s.list, after, func(a chain.Testimony, m Mark) int {
		return cmp.Or(markOf(a).compare(m), -1)
	})
	for _, a := range s.list[i:] {
		if a.In.Slot > until {
			break
		}
		if page.More = len(page.Receipts) == MaxPage; page.More {
			break
		}
		page.Receipts = append(page.Receipts, bytes.Clone(a.Marshal()))
	}
	return page
}
