// Package archive stores the ended jobs of a buyer that are no longer in memory. Their records are not read at the
// start, except one Entry for each job. An Entry is enough to find, list and count the job.
package archive

import (
	"context"
	"encoding/json"
	"fmt"
	"iter"
	"maps"
	"strings"
	"sync"
	"time"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/node/buyer/spend"
	"github.com/starling-network/starling/node/journal"
	"github.com/starling-network/starling/node/store"
)

var (
	entries = journal.Define[string, Entry]("past")              // by job
	jobs    = journal.Define[string, json.RawMessage]("pastjob") // by job
	held    = journal.Define[string, Lease]("pastlease")         // by job and lease
	blobs   = journal.Define[string, Blob]("pastblob")           // by CID and job
	removed = journal.Define[string, Sums]("pruned")             // the sums of removed jobs, under sumsKey
)

const sumsKey = "totals"

// Entry is the part of a job that stays in memory.
type Entry struct {
	ID      string        `json:"id"`
	State   string        `json:"state"`
	Name    string        `json:"name"`
	Key     string        `json:"key,omitempty"`   // of the API that submitted it
	Created int64         `json:"created"`         // nanoseconds of Unix time
	Spent   market.Amount `json:"spent,omitempty"` // its cost
	Fees    uint64        `json:"fees,omitempty"`  // in lamports, about
	Tx      string        `json:"tx,omitempty"`    // anchors the receipts of a job of this peer's own key
	// Paid are the leases that were signed on the day on which the job was archived, and Day is that; in the journal
	// alone.
	Paid []Cost `json:"paid,omitempty"`
	Day  string `json:"day,omitempty"`
}

// Cost is the cost of a lease.
type Cost struct {
	To     sign.Key      `json:"to"`
	Amount market.Amount `json:"amount"`
}

// Job is all that is archived of a job.
type Job struct {
	Entry
	Full   any              // encoded as JSON, for Read
	Leases map[string]Lease // by id
	Blobs  map[string]Blob  // by CID
}

// Lease is a lease of a job.
type Lease struct {
	Record json.RawMessage `json:"record"`
	Payer  []byte          `json:"payer"` // meter.Payer
}

// Blob is the relation of a job to a blob.
type Blob struct {
	Key   string    `json:"key,omitempty"`
	Left  bool      `json:"left,omitempty"` // the job left it; else it reads it
	Ended time.Time `json:"ended"`          // of the job
}

// Sums are sums over jobs.
type Sums struct {
	Paid market.Amount `json:"paid"`
	Fees uint64        `json:"fees"` // in lamports, about
}

func (s *Sums) add(e *Entry) {
	s.Paid += e.Spent
	s.Fees += e.Fees
}

// Archive is safe for concurrent use. Only one goroutine at a time may add and remove jobs.
type Archive struct {
	st journal.Store

	mu      sync.Mutex
	index   map[string]*Entry
	day     string                     // of paid
	paid    map[sign.Key]market.Amount // cost of the day's leases by provider
	removed Sums
}

// Open reads the entries.
func Open(ctx context.Context, st journal.Store) (*Archive, error) {
	a := &Archive{st: st, index: map[string]*Entry{}}
	now, same := time.Now(), map[string]string{} // most have one of a few states, names and keys
	once := func(text string) string {
		if _, ok := same[text]; !ok {
			same[text] = text
		}
		return same[text]
	}
	err := entries.List(ctx, st, "", func(_ string, e Entry) error {
		e.State, e.Name, e.Key = once(e.State), once(e.Name), once(e.Key)
		a.Add(e, now)
		return nil
	})
	if err == nil {
		err = removed.List(ctx, st, sumsKey, func(_ string, s Sums) error {
			a.removed = s
			return nil
		})
	}
	return a, err
}

// Puts returns the writes by which a job is archived. Once they are in the journal Add takes its entry in.
func Puts(j Job) (all []store.Put, err error) {
	put := func(p store.Put, e error) {
		if all = append(all, p); err == nil {
			err = e
		}
	}
	full, err := json.Marshal(j.Full)
	put(jobs.Encode(j.ID, full))
	for c, b := range j.Blobs {
		put(blobs.Encode(c+"/"+j.ID, b))
	}
	for id, l := range j.Leases {
		put(held.Encode(j.ID+"/"+id, l))
	}
	put(entries.Encode(j.ID, j.Entry))
	if err != nil {
		return nil, fmt.Errorf("archiving job %s: %w", j.ID, err)
	}
	return all, nil
}

// Add adds the entry of a job that is in the journal.
func (a *Archive) Add(e Entry, now time.Time) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if today := spend.DayOf(now); e.Day == today {
		if a.day != today {
			a.day, a.paid = today, map[sign.Key]market.Amount{}
		}
		for _, c := range e.Paid {
			a.paid[c.To] += c.Amount
		}
	}
	e.Paid, e.Day = nil, ""
	a.index[e.ID] = &e
}

// Len returns the number of jobs.
func (a *Archive) Len() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return len(a.index)
}

// Has reports whether a job is archived.
func (a *Archive) Has(id string) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.index[id] != nil
}

// Entries returns the entries in no order, without Paid and Day. A loop over them must not call the archive.
func (a *Archive) Entries() iter.Seq[Entry] {
	return func(yield func(Entry) bool) {
		a.mu.Lock()
		defer a.mu.Unlock()
		for _, e := range a.index {
			if !yield(*e) {
				return
			}
		}
	}
}

// PaidToday returns the cost of the leases that were signed today, by provider.
func (a *Archive) PaidToday(now time.Time) map[sign.Key]market.Amount {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.day != spend.DayOf(now) {
		return nil
	}
	return maps.Clone(a.paid)
}

// Sums returns the sums over all jobs that were ever archived, so that they never decrease.
func (a *Archive) Sums() Sums {
	a.mu.Lock()
	defer a.mu.Unlock()
	sums := a.removed
	for _, e := range a.index {
		sums.add(e)
	}
	return sums
}

// Read decodes the archived job with an id into v. It returns store.ErrNotFound if the archive has no such job.
func (a *Archive) Read(ctx context.Context, id string, v any) error {
	full, err := jobs.Get(ctx, a.st, id)
	if err == nil {
		err = json.Unmarshal(full, v)
	}
	if err != nil {
		return fmt.Errorf("reading archived job %s: %w", id, err)
	}
	return nil
}

// Leases calls f for the leases of a job, and returns its first error.
func (a *Archive) Leases(ctx context.Context, id string, f func(lease string, l Lease) error) error {
	return held.List(ctx, a.st, id+"/", func(key string, l Lease) error {
		return f(strings.TrimPrefix(key, id+"/"), l)
	})
}

// Blobs calls f for the relations of jobs to a blob, or to all blobs where cid is empty.
func (a *Archive) Blobs(ctx context.Context, cid string, f func(cid string, b Blob)) error {
	if a.Len() == 0 {
		return nil
	}
	prefix := ""
	if cid != "" {
		prefix = cid + "/"
	}
	return blobs.List(ctx, a.st, prefix, func(key string, b Blob) error {
		c, _, _ := strings.Cut(key, "/")
		f(c, b)
		return nil
	})
}

// Remove removes a job with its leases and its relations to blobs, in one write. Sums counts it still.
func (a *Archive) Remove(ctx context.Context, id string, cids iter.Seq[string]) error {
	var b journal.Batch
	for c := range cids {
		blobs.Delete(&b, c+"/"+id)
	}
	if err := held.List(ctx, a.st, id+"/", func(key string, _ Lease) error {
		held.Delete(&b, key)
		return nil
	}); err != nil {
		return err
	}
	a.mu.Lock()
	e, sums := a.index[id], a.removed
	a.mu.Unlock()
	if e == nil {
		return fmt.Errorf("removing job %s from the archive: %w", id, store.ErrNotFound)
	}
	sums.add(e)
	removed.Put(&b, sumsKey, sums)
	jobs.Delete(&b, id)
	entries.Delete(&b, id)
	if err := b.Commit(ctx, a.st); err != nil {
		return fmt.Errorf("removing job %s from the archive: %w", id, err)
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.index, id)
	a.removed = sums
	return nil
}
