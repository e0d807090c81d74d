package buyer

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/node/buyer/archive"
	"github.com/starling-network/starling/node/buyer/record"
	"github.com/starling-network/starling/node/job"
)

// catalogue has the peer's own and guarded jobs, in memory or archived.
type catalogue struct {
	self  sign.Key // the peer
	files Files
	log   *slog.Logger

	archive *archive.Archive
	mu      sync.Mutex
	jobs    map[string]*supervisor
}

// owned reports whether the job is the peer's own to settle.
func (c *catalogue) owned(j Job) bool { return j.OwnedBy(c.self) }

// List returns one page of the jobs that match. ErrQuery for a query that makes no sense.
func (c *catalogue) List(ctx context.Context, q Query) (Page, error) {
	wanted, err := q.Check()
	if err != nil {
		return Page{}, err
	}
	page := Page{Jobs: []Job{}}
	for _, e := range c.entries(wanted.Has) {
		if len(page.Jobs) == wanted.Limit {
			page.Next = page.Jobs[wanted.Limit-1].Cursor().String()
			break
		}
		j, err := c.shownOf(ctx, e) // only a page is copied, or read, however many jobs there ever were
		if err != nil {
			return Page{}, err
		}
		page.Jobs = append(page.Jobs, j)
	}
	return page, nil
}

// Jobs returns this peer's own jobs, newest first. It leaves out, and logs, jobs that it cannot read.
func (c *catalogue) Jobs() []Job {
	out := []Job{}
	for _, e := range c.entries(func(Job) bool { return true }) {
		j, err := c.shownOf(context.Background(), e)
		if err != nil {
			c.log.Warn("a job is not listed", "err", err)
			continue
		}
		out = append(out, j)
	}
	return out
}

// Open lists this peer's own jobs that have not ended, newest first.
func (c *catalogue) Open() []Job {
	out := []Job{}
	for _, s := range c.sorted() {
		if j := s.Peek(); c.owned(j) && !j.State.Ended() {
			out = append(out, s.shown())
		}
	}
	return out
}

// States counts this peer's own jobs by state.
func (c *catalogue) States() map[State]int {
	out := map[State]int{}
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, s := range c.jobs {
		if j := s.Peek(); c.owned(j) {
			out[j.State]++
		}
	}
	for e := range c.archive.Entries() {
		out[State(e.State)]++
	}
	return out
}

// Anchored returns the ended jobs whose receipts are anchored, newest first. Detached jobs are not among them: they
// have separate keys.
func (c *catalogue) Anchored() (out []Anchored) {
	for _, e := range c.entries(func(j Job) bool { return j.State.Ended() }) {
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

// entries returns this peer's own jobs that match, newest first. An archived job has only the fields that a Query
// needs.
func (c *catalogue) entries(is func(Job) bool) []listed {
	c.mu.Lock()
	defer c.mu.Unlock()
	var out []listed
	for _, s := range c.jobs {
		if j := s.Peek(); c.owned(j) && is(j) {
			out = append(out, listed{j.Cursor(), s, Anchored{Job: j.ID, Tx: j.AnchoredIn()}})
		}
	}
	for e := range c.archive.Entries() {
		if j := matched(e); is(j) {
			out = append(out, listed{j.Cursor(), nil, Anchored{Job: j.ID, Tx: j.AnchoredIn()}})
		}
	}
	slices.SortFunc(out, func(x, y listed) int { return x.at.Compare(y.at) })
	return out
}

// matched returns the part of an archived job that a Query matches.
func matched(e archive.Entry) Job {
	j := Job{ID: e.ID, State: State(e.State), Key: e.Key, Created: time.Unix(0, e.Created), Spec: job.Job{Name: e.Name}}
	if e.Tx != "" {
		j.Transactions = []string{e.Tx}
	}
	return j
}

// shownOf is a job of the list as it is shown.
func (c *catalogue) shownOf(ctx context.Context, e listed) (Job, error) {
	if e.s != nil {
		return e.s.shown(), nil
	}
	var j Job
	err := c.archive.Read(ctx, e.at.ID, &j)
	return withMoney(j), err
}

// supervisors returns the supervisors of all own and guarded jobs, in no order.
func (c *catalogue) supervisors() []*supervisor {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Collect(maps.Values(c.jobs))
}

// sorted are the same, the newest job first.
func (c *catalogue) sorted() []*supervisor {
	all := c.supervisors()
	at := make(map[*supervisor]record.Cursor, len(all))
	for _, s := range all {
		at[s] = s.Peek().Cursor()
	}
	slices.SortFunc(all, func(x, y *supervisor) int { return at[x].Compare(at[y]) })
	return all
}

// lookUp is get without reading: nil for an archived job.
func (c *catalogue) lookUp(id string) (*supervisor, string, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if s := c.jobs[id]; s != nil || c.archive.Has(id) {
		return s, id, nil
	}
	var found []string
	for k, s := range c.jobs {
		if id != "" && strings.HasPrefix(k, id) && s.Mine {
			found = append(found, k)
		}
	}
	for e := range c.archive.Entries() {
		if id != "" && strings.HasPrefix(e.ID, id) {
			found = append(found, e.ID)
		}
	}
	switch len(found) {
	case 0:
		return nil, "", fmt.Errorf("%w: %q", ErrNoJob, id)
	case 1:
		return c.jobs[found[0]], found[0], nil
	}
	return nil, "", fmt.Errorf("%w: %q is the beginning of several", ErrNoJob, id)
}
