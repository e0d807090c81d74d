package buyer

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/starling-network/starling/chain"
	"github.com/starling-network/starling/node/buyer/archive"
	"github.com/starling-network/starling/node/job"
)

// ErrQuery says that a list of jobs cannot be asked for like that.
var ErrQuery = errors.New("query")

const (
	// PageDefault is how many jobs a page has where the query does not say.
	PageDefault = 100
	// PageMax is how many it can have.
	PageMax = 1000
)

// Query selects jobs, newest first. A zero field selects all.
type Query struct {
	After string    // Page.Next of the page before
	Limit int       // of a page
	State string    // a State, or "open" for those that have not ended, or "ended"
	Name  string    // contained in the job's name
	Since time.Time // created at or after
	Key   *string   // submitted with this API key
}

// Page is a part of the list of jobs.
type Page struct {
	Jobs []Job  `json:"jobs"`
	Next string `json:"next,omitempty"` // for Query.After; empty: this is the last page
}

// cursor is a place in the list: after the job of that time and id.
type cursor struct {
	created int64 // nanoseconds of Unix time
	id      string
}

func (c cursor) String() string { return strconv.FormatInt(c.created, 36) + "." + c.id }

func parseCursor(text string) (cursor, error) {
	at, id, ok := strings.Cut(text, ".")
	n, err := strconv.ParseInt(at, 36, 64)
	if !ok || err != nil || id == "" || len(id) > 64 {
		return cursor{}, fmt.Errorf("%w: after=%.80q is no place in the list: give the next of the page before", ErrQuery, text)
	}
	c := cursor{n, id}
	if c.String() != text {
		return cursor{}, fmt.Errorf("%w: after=%.80q is no place in the list: give the next of the page before", ErrQuery, text)
	}
	return c, nil
}

// newest orders jobs by their creation, the latest first, then by id.
func (c cursor) compare(o cursor) int {
	return cmp.Or(cmp.Compare(o.created, c.created), cmp.Compare(c.id, o.id))
}

func (j Job) cursor() cursor { return cursor{j.Created.UnixNano(), j.ID} }

func (q Query) matches(j Job) bool {
	switch {
	case q.Key != nil && j.Key != *q.Key:
		return false
	case q.State == "open" && j.State.Ended(), q.State == "ended" && !j.State.Ended():
		return false
	case q.State != "" && q.State != "open" && q.State != "ended" && string(j.State) != q.State:
		return false
	case q.Name != "" && !strings.Contains(j.Spec.Name, q.Name):
		return false
	}
	return !j.Created.Before(q.Since)
}

var queryStates = []string{"open", "ended", string(Queued), string(Matching), string(Running), string(Settling), string(Succeeded), string(Failed), string(Stopped)}

// List returns one page of the jobs that match. ErrQuery for a query that makes no sense.
func (b *Buyer) List(ctx context.Context, q Query) (Page, error) {
	switch {
	case q.Limit < 0 || q.Limit > PageMax:
		return Page{}, fmt.Errorf("%w: limit=%d, want 1 to %d", ErrQuery, q.Limit, PageMax)
	case q.State != "" && !slices.Contains(queryStates, q.State):
		return Page{}, fmt.Errorf("%w: state=%.40q, want one of %s", ErrQuery, q.State, strings.Join(queryStates, ", "))
	}
	limit := q.Limit
	if limit == 0 {
		limit = PageDefault
	}
	var from cursor
	if q.After != "" {
		var err error
		if from, err = parseCursor(q.After); err != nil {
			return Page{}, err
		}
	}
	page := Page{Jobs: []Job{}}
	for _, e := range b.entries(func(j Job) bool { return q.matches(j) && (q.After == "" || j.cursor().compare(from) > 0) }) {
		if len(page.Jobs) == limit {
			page.Next = page.Jobs[limit-1].cursor().String()
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
		if j := s.peek(); b.owned(j) && !j.State.Ended() {
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
		if j := s.peek(); b.owned(j) {
			out[j.State]++
		}
	}
	for e := range b.archive.Entries() {
		out[State(e.State)]++
	}
	return out
}

// Anchored is a job of this peer's own whose receipts are anchored.
type Anchored struct {
	Job string
	Tx  chain.TxID
}

// Anchored returns the ended jobs whose receipts are anchored, newest first. Detached jobs are not among them: they
// have keys of their own.
func (b *Buyer) Anchored() (out []Anchored) {
	for _, e := range b.entries(func(j Job) bool { return j.State.Ended() }) {
		tx := chain.TxID("")
		if e.s == nil {
			tx = chain.TxID(e.tx)
		} else {
			tx = e.s.peek().anchoredIn()
		}
		if tx != "" {
			out = append(out, Anchored{e.at.id, tx})
		}
	}
	return out
}

// anchoredIn is the transaction that anchors the job's receipts; empty for a job that was detached.
func (j Job) anchoredIn() chain.TxID {
	if j.Detached != nil || len(j.Transactions) == 0 {
		return ""
	}
	return chain.TxID(j.Transactions[0])
}

// listed is a job of the list.
type listed struct {
	at cursor
	s  *supervisor // nil for an archived job
	tx string      // anchors the receipts of an archived job
}

// entries are the jobs of this peer's own that match, newest first. An archived one has no more than a Query needs.
func (b *Buyer) entries(is func(Job) bool) []listed {
	b.mu.Lock()
	defer b.mu.Unlock()
	var out []listed
	for _, s := range b.jobs {
		if j := s.peek(); b.owned(j) && is(j) {
			out = append(out, listed{j.cursor(), s, ""})
		}
	}
	for e := range b.archive.Entries() {
		if j := matched(e); is(j) {
			out = append(out, listed{j.cursor(), nil, e.Tx})
		}
	}
	slices.SortFunc(out, func(x, y listed) int { return x.at.compare(y.at) })
	return out
}

// matched is the part of an archived job that a Query looks at.
func matched(e archive.Entry) Job {
	return Job{ID: e.ID, State: State(e.State), Key: e.Key, Created: time.Unix(0, e.Created), Spec: job.Job{Name: e.Name}}
}

// shownOf is a job of the list as it is shown.
func (b *Buyer) shownOf(ctx context.Context, e listed) (Job, error) {
	if e.s != nil {
		return e.s.shown(), nil
	}
	var j Job
	err := b.archive.Read(ctx, e.at.id, &j)
	return j.shown(), err
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
	at := make(map[*supervisor]cursor, len(all))
	for _, s := range all {
		at[s] = s.peek().cursor()
	}
	slices.SortFunc(all, func(x, y *supervisor) int { return at[x].compare(at[y]) })
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
		if id != "" && strings.HasPrefix(k, id) && s.mine {
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
