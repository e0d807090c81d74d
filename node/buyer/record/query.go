package record

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

// ErrQuery is returned for a query that has no answer.
var ErrQuery = errors.New("query")

const (
	// PageDefault is the default number of jobs in a page.
	PageDefault = 100
	// PageMax is the maximum number of jobs in a page.
	PageMax = 1000
)

// Query selects jobs, newest first. A zero field selects all.
type Query struct {
	After string    // Page.Next of the page before
	Limit int       // of a page
	State string    // a State, "open" for jobs that have not ended, or "ended"
	Name  string    // contained in the job's name
	Since time.Time // created at or after
	Key   *string   // submitted with this API key
}

// Page is a part of the list of jobs.
type Page struct {
	Jobs []Job  `json:"jobs"`
	Next string `json:"next,omitempty"` // for Query.After; empty: this is the last page
}

// selectors are the values of Query.State.
var selectors = []string{
	"open", "ended", string(Queued), string(Matching), string(Running), string(Settling), string(Succeeded),
	string(Failed), string(Stopped),
}

// Selection is a query that was checked.
type Selection struct {
	Limit int // of a page
	query Query
	after *Cursor // optional
}

// Check returns the query as a selection. It returns ErrQuery for values that no list of jobs has.
func (q Query) Check() (Selection, error) {
	s := Selection{Limit: q.Limit, query: q}
	switch {
	case q.Limit < 0 || q.Limit > PageMax:
		return s, fmt.Errorf("%w: limit=%d, want 1 to %d", ErrQuery, q.Limit, PageMax)
	case q.State != "" && !slices.Contains(selectors, q.State):
		return s, fmt.Errorf("%w: state=%.40q, want one of %s", ErrQuery, q.State, strings.Join(selectors, ", "))
	}
	if s.Limit == 0 {
		s.Limit = PageDefault
	}
	if q.After != "" {
		c, err := ParseCursor(q.After)
		if err != nil {
			return s, err
		}
		s.after = &c
	}
	return s, nil
}

// Has reports whether a job is selected.
func (s Selection) Has(j Job) bool {
	switch q := s.query; {
	case q.Key != nil && j.Key != *q.Key:
		return false
	case q.State == "open" && j.State.Ended(), q.State == "ended" && !j.State.Ended():
		return false
	case q.State != "" && q.State != "open" && q.State != "ended" && string(j.State) != q.State:
		return false
	case q.Name != "" && !strings.Contains(j.Spec.Name, q.Name):
		return false
	case s.after != nil && j.Cursor().Compare(*s.after) <= 0:
		return false
	}
	return !j.Created.Before(s.query.Since)
}

// Cursor is a place in the list: after the job of that time and id.
type Cursor struct {
	Created int64 // nanoseconds of Unix time
	ID      string
}

// Cursor returns the job's place in the list.
func (j Job) Cursor() Cursor { return Cursor{j.Created.UnixNano(), j.ID} }

func (c Cursor) String() string { return strconv.FormatInt(c.Created, 36) + "." + c.ID }

// ParseCursor reads the text of a cursor. It returns ErrQuery for any other text.
func ParseCursor(text string) (Cursor, error) {
	at, id, ok := strings.Cut(text, ".")
	n, err := strconv.ParseInt(at, 36, 64)
	c := Cursor{n, id}
	if !ok || err != nil || id == "" || len(id) > 64 || c.String() != text {
		return Cursor{}, fmt.Errorf("%w: after=%.80q is no place in the list: give the next of the page before",
			ErrQuery, text)
	}
	return c, nil
}

// Compare orders jobs by their creation, the latest first, then by id.
func (c Cursor) Compare(o Cursor) int {
	return cmp.Or(cmp.Compare(o.Created, c.Created), cmp.Compare(c.ID, o.ID))
}
