package buyer

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/starling-network/starling/node/buyer/archive"
	"github.com/starling-network/starling/node/buyer/record"
	"github.com/starling-network/starling/node/job"
)

// List returns one page of the jobs that match. ErrQuery for a query that makes no sense.
func (b *Buyer) List(ctx context.Context, q Query) (Page, error) {
	wanted, err := q.Check()
	if err != nil {
		return Page{}, err
	}
	page := Page{Jobs: []Job{}}
	for _, e := range b.entries(wanted.Has) {
		if len(page.Jobs) == wanted.Limit {
			page.Next = page.Jobs[wanted.Limit-1].Cursor().String()
			break
		}
		j, err := b.shownOf(ctx, e) // only a page is copied, or read, however many jobs there ever were
		if err != nil {
			return Page{}, err
		}
		page.Jobs = append(page.Jobs, j)
	}
	return page, nil
}

// Jobs returns this peer's own jobs, newest first. It leaves out, and logs, jobs that it cannot read.
func (b *Buyer) Jobs() []Job {
	out := []Job{}
	for _, e := range b.entries(func(Job) bool { return true }) {
		j, err := b.shownOf(context.Background(), e)
		if err != nil {
			b.cfg.Log.Warn("a job is not listed", "err", err)
			continue
		}
		out = append(out, j)
	}
	return out
}

// Open lists those of this peer's own that have not ended, newest first.
func (b *Buyer) Open() []Job {
	out := []Job{}
	for _, s := range b.sorted() {
		if j := s.Peek(); b.owned(j) && !j.State.Ended() {
			out = append(out, s.shown())
		}
	}
	return out
}

// States counts the jobs of this peer's own.
func (b *Buyer) States() map[State]int {
	out := map[State]int{}
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, s := range b.jobs {
		if j := s.Peek(); b.owned(j) {
			out[j.State]++
		}
	}
	for e := range b.archive.Entries() {
		out[State(e.State)]++
	}
	return out
}

// Anchored returns the ended jobs whose receipts are anchored, newest first. Detached jobs are not among them: they
// have keys of their own.
func (b *Buyer) Anchored() (out []Anchored) {
	for _, e := range b.entries(func(j Job) bool { return j.State.Ended() }) {
		if e.anchored.Tx != "" {
			out = append(out, e.anchored)
		}
	}
	return out
}

// listed is a job of the list.
type listed struct {
	at       record.Cursor
	s        *supervisor // nil for an archived job
	anchored Anchored
}

// entries are the jobs of this peer's own that match, newest first. An archived one has no more than a Query needs.
func (b *Buyer) entries(is func(Job) bool) []listed {
	b.mu.Lock()
	defer b.mu.Unlock()
	var out []listed
	for _, s := range b.jobs {
		if j := s.Peek(); b.owned(j) && is(j) {
			out = append(out, listed{j.Cursor(), s, Anchored{Job: j.ID, Tx: j.AnchoredIn()}})
		}
	}
	for e := range b.archive.Entries() {
		if j := matched(e); is(j) {
			out = append(out, listed{j.Cursor(), nil, Anchored{Job: j.ID, Tx: j.AnchoredIn()}})
		}
	}
	slices.SortFunc(out, func(x, y listed) int { return x.at.Compare(y.at) })
	return out
}

// matched is the part of an archived job that a Query looks at.
func matched(e archive.Entry) Job {
	j := Job{ID: e.ID, State: State(e.State), Key: e.Key, Created: time.Unix(0, e.Created), Spec: job.Job{Name: e.Name}}
	if e.Tx != "" {
		j.Transactions = []string{e.Tx}
	}
	return j
}

// shownOf is a job of the list as it is shown.
func (b *Buyer) shownOf(ctx context.Context, e listed) (Job, error) {
	if e.s != nil {
		return e.s.shown(), nil
	}
	var j Job
	err := b.archive.Read(ctx, e.at.ID, &j)
	return withMoney(j), err
}

// supervisors are those of all jobs, also of those that this peer guards, in no order.
func (b *Buyer) supervisors() []*supervisor {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Collect(maps.Values(b.jobs))
}

// sorted are the same, the newest job first.
func (b *Buyer) sorted() []*supervisor {
	all := b.supervisors()
	at := make(map[*supervisor]record.Cursor, len(all))
	for _, s := range all {
		at[s] = s.Peek().Cursor()
	}
	slices.SortFunc(all, func(x, y *supervisor) int { return at[x].Compare(at[y]) })
	return all
}

// get finds a job by its id or a unique beginning of it. An archived one is read from the journal.
func (b *Buyer) get(id string) (*supervisor, error) {
	s, id, err := b.lookUp(id)
	if s == nil && err == nil {
		return b.recall(id)
	}
	return s, err
}

// lookUp is get without reading: nil for an archived job.
func (b *Buyer) lookUp(id string) (*supervisor, string, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if s := b.jobs[id]; s != nil || b.archive.Has(id) {
		return s, id, nil
	}
	var found []string
	for k, s := range b.jobs {
		if id != "" && strings.HasPrefix(k, id) && s.Mine {
			found = append(found, k)
		}
	}
	for e := range b.archive.Entries() {
		if id != "" && strings.HasPrefix(e.ID, id) {
			found = append(found, e.ID)
		}
	}
	switch len(found) {
	case 0:
		return nil, "", fmt.Errorf("%w: %q", ErrNoJob, id)
	case 1:
		return b.jobs[found[0]], found[0], nil
	}
	return nil, "", fmt.Errorf("%w: %q is the beginning of several", ErrNoJob, id)
}
