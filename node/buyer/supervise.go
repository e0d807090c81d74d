package buyer

import (
	"context"
	"fmt"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/starling-network/starling/node/buyer/leases"
	"github.com/starling-network/starling/node/buyer/ranklog"
	"github.com/starling-network/starling/node/buyer/trace"
	"github.com/starling-network/starling/node/store"
)

const (
	// journalRetry is how often a journal that fails is tried again.
	journalRetry = time.Second
)

// outcome is why the work of a job failed.
type outcome struct {
	code   Code
	reason string
}

func (o *outcome) Error() string { return o.reason }

func failed(code Code, format string, args ...any) error {
	return &outcome{code, fmt.Sprintf(format, args...)}
}

// supervisor is one job as this peer keeps it. Its driver carries out what the job's machine decides.
type supervisor struct {
	b     *Buyer
	as    voice
	guard *guarded // nil for a job that has no guardians; else as
	mine  bool     // this peer is the job's owner
	trace *trace.Trace
	logs  []*ranklog.Log
	done  chan struct{} // closed when the job has ended, or the peer stops
	// resumed: an earlier process began the job; this one first has to find its neighbours again.
	resumed bool
	// returned are the ranks that were taken up since then; under mu.
	returned map[int]bool
	driver   *driver
	closing  sync.Once

	mu     sync.Mutex
	closed bool // it has left memory, or is about to: nothing of it changes
	job    Job
	leases []*leases.Lease // of each rank, or nil
	paid   []*leases.Lease // every lease the job ever activated

	pauses  *pauses
	plans   *plans       // if it is a cluster
	streams atomic.Int64 // that somebody has open into the job's programs
}

func (b *Buyer) newSupervisor(j Job, t *trace.Trace) (*supervisor, error) {
	s := &supervisor{
		b: b, as: b.own, mine: b.owned(j), trace: t, job: j,
		leases: make([]*leases.Lease, len(j.Ranks)), done: make(chan struct{}),
	}
	if j.Detached != nil {
		guard, err := b.voiceOf(j)
		if err != nil {
			return nil, err
		}
		s.guard, s.as = guard, guard
	}
	s.driver, s.pauses = newDriver(s, j), &pauses{s: s}
	s.plans = &plans{s: s, observed: make([]observedPlan, len(j.Ranks))}
	for i := range j.Ranks {
		l, err := ranklog.Open(filepath.Join(b.jobDir(j.ID), fmt.Sprintf("rank-%d.log", i)))
		if err != nil {
			return nil, err
		}
		if j.State.Ended() {
			l.End()
		}
		// A power cut may have lost the end of the log: it is sent again from the start of the execution.
		s.job.Ranks[i].LogBase = min(s.job.Ranks[i].LogBase, l.Len())
		s.driver.bases[i].at = s.job.Ranks[i].LogBase
		s.logs = append(s.logs, l)
	}
	return s, nil
}

// ranklogs are the logs of all ranks.
func (s *supervisor) ranklogs() []*ranklog.Log {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.logs
}

// snapshot returns the job as it stands.
func (s *supervisor) snapshot() Job {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.job.Clone()
}

// peek is snapshot without copies of slices and maps, for reads of the job's own fields.
func (s *supervisor) peek() Job {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.job
}

// save changes the job's state beside its machine's, and journals it with more.
func (s *supervisor) save(ctx context.Context, change func(*Job), more ...store.Put) error {
	_, err := s.driver.ask(ctx, event{puts: more, amend: &amendment{change: change}})
	return err
}

// close lets those go on who wait for the end of the job's run in this process.
func (s *supervisor) close() { s.closing.Do(func() { close(s.done) }) }
