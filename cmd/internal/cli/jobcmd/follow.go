package jobcmd

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/starling-network/starling/cmd/internal/cli"
	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/node/api"
	"github.com/starling-network/starling/node/buyer/record"
)

// errDetached reports that the user detached from a job.
var errDetached = errors.New("detached")

// until reports whether a job is no longer followed.
type until func(record.Job) bool

// The values of --wait.
var untils = map[string]until{
	"result": func(j record.Job) bool { _, ok := j.Result(); return ok },
	"paid":   func(j record.Job) bool { return j.State.Ended() },
}

// follow shows a job's logs and progress until over, and returns its last state. It returns errDetached if ctx ends
// earlier.
func follow(a *cli.App, ctx context.Context, c *api.Client, g market.Genesis, j record.Job, over until) (record.Job,
	error) {
	p := a.Progress()
	defer p.Clear()
	p.Say("job %s", j.ID)
	out := a.Out
	if a.Output != cli.OutputTable {
		out = a.Err // standard output is for the one document at the end
	}
	eg, gctx := errgroup.WithContext(ctx)
	eg.Go(func() error {
		q := api.Log{Rank: cli.AllRanks, Follow: true}
		return copyLogs(gctx, c, j, q, p.Above(cli.Plain(out)), p.Above(cli.Plain(a.Err)))
	})
	w := watch{p: p, g: g, over: over, last: j, began: time.Now()}
	eg.Go(func() error { return w.run(gctx, c) })
	err := eg.Wait()
	last := w.job()
	switch {
	case ctx.Err() != nil && !over(last):
		p.Clear()
		p.Say("detached; the job runs on. Come back with `starling logs -f %s`, end it with `starling stop %[1]s`",
			j.ID)
		return last, errDetached
	case err == nil && !over(last):
		err = io.ErrUnexpectedEOF
	case over(last):
		return last, nil // an incomplete log is still readable
	}
	if errors.Is(err, api.ErrNoPeer) || errors.Is(err, io.ErrUnexpectedEOF) {
		return last, &cli.Error{Code: cli.ExitUnreachable, Err: fmt.Errorf("the peer stopped while job %s was %s",
			j.ID, last.State),
			Hint: fmt.Sprintf("the job resumes when the peer runs again: starling up, then starling logs -f %s", j.ID)}
	}
	return last, fmt.Errorf("following job %s: %w", j.ID, err)
}

// watch reports a job's changes.
type watch struct {
	p     *cli.Progress
	g     market.Genesis
	over  until
	began time.Time

	mu   sync.Mutex
	last record.Job
}

func (w *watch) job() record.Job {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.last
}

// run follows the job's events until the job is over.
func (w *watch) run(ctx context.Context, c *api.Client) error {
	done := make(chan struct{})
	var wg sync.WaitGroup
	defer wg.Wait()
	defer close(done)
	wg.Go(func() { // the time on the status line
		t := time.NewTicker(time.Second)
		defer t.Stop()
		for {
			w.status()
			select {
			case <-done:
				return
			case <-t.C:
			}
		}
	})
	ectx, enough := context.WithCancel(ctx)
	defer enough()
	err := c.Events(ectx, w.job().ID, w.step, func(j record.Job) {
		if w.change(j); w.over(j) {
			enough()
		}
	})
	if w.over(w.job()) {
		return nil
	}
	return err
}

// step prints the steps of interest to a user; starling why shows all.
func (w *watch) step(s record.Step) {
	switch s.Kind {
	case record.StepLeased, record.StepLost, record.StepAway, record.StepRestarted:
	case record.StepRound:
		if w.job().Spec.RoundCount() == 1 {
			return
		}
	case record.StepPaid:
		if s.Provider != "" { // of one lease; the sum follows
			return
		}
	default:
		return
	}
	w.p.Say("%s", s)
}

func (w *watch) change(j record.Job) {
	w.mu.Lock()
	changed := j.State != w.last.State
	w.last = j
	w.mu.Unlock()
	if changed && w.p.Live == nil && !w.over(j) {
		w.p.Say("%s", j.Summary())
	}
	w.status()
}

func (w *watch) status() {
	w.p.Status("%s, %s", w.job().Summary(), time.Since(w.began).Round(time.Second))
}

// copyLogs copies the part q of the log of one rank or of all ranks. The log of a single rank is unchanged; else each
// line has its rank. With Follow it runs until the job has ended.
func copyLogs(ctx context.Context, c *api.Client, j record.Job, q api.Log, stdout, stderr io.Writer) error {
	q.ID = j.ID
	if q.Rank == cli.AllRanks && len(j.Ranks) == 1 {
		q.Rank = 0
	}
	if q.Rank != cli.AllRanks {
		return c.Log(ctx, q, stdout, stderr)
	}
	both := &sync.Mutex{}
	eg, gctx := errgroup.WithContext(ctx)
	if !q.Follow {
		eg.SetLimit(1) // one after another, in order
	}
	for i := range j.Ranks {
		eg.Go(func() error {
			prefix := fmt.Sprintf("[%d] ", i)
			o := &cli.Prefixed{W: &Locked{both, stdout}, Prefix: prefix}
			e := &cli.Prefixed{W: &Locked{both, stderr}, Prefix: prefix}
			of := q
			of.Rank = i
			err := c.Log(gctx, of, o, e)
			return errors.Join(err, o.Flush(), e.Flush())
		})
	}
	return eg.Wait()
}

// Locked is a writer that several goroutines share.
type Locked struct {
	Mu *sync.Mutex
	W  io.Writer
}

func (l *Locked) Write(b []byte) (int, error) {
	l.Mu.Lock()
	defer l.Mu.Unlock()
	return l.W.Write(b)
}

// Summary is the last line about a job that ended.
func Summary(g market.Genesis, j record.Job) string {
	if end, ok := j.Result(); ok && !j.State.Ended() {
		text := fmt.Sprintf("%s %s", j.ID, end)
		if !j.Started.IsZero() {
			text += fmt.Sprintf(" in %v", j.Ran(time.Now()).Round(100*time.Millisecond))
		}
		if g.Free {
			return text
		}
		return text + "; its peer pays the amount due: starling status " + j.ID
	}
	text := fmt.Sprintf("%s %s", j.ID, j.State)
	if !j.Started.IsZero() && !j.Ended.IsZero() {
		text += fmt.Sprintf(" in %v", j.Ran(j.Ended).Round(100*time.Millisecond))
	}
	text += ", cost " + g.FormatAmount(j.Owed)
	if j.Paid != j.Owed || j.Held > 0 {
		text += ", " + paidText(g, j)
	}
	return text + fmt.Sprintf(", %s, %s", cli.Count(j.Receipts, "receipt"),
		cli.Count(len(j.Transactions), "transaction"))
}

// paidText is the amount paid for a job.
func paidText(g market.Genesis, j record.Job) string {
	text := "paid " + g.FormatAmount(j.Paid)
	switch {
	case !j.State.Ended():
		return text
	case j.Held > 0:
		return text + " so far, to be claimed " + g.FormatAmount(j.Held)
	case j.Paid < j.Owed && len(j.Escrows) > 0:
		return text + ", the unclaimed rest was refunded"
	}
	return text
}
