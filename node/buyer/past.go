package buyer

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/node/buyer/spend"
	"github.com/starling-network/starling/node/buyer/trace"
	"github.com/starling-network/starling/node/store"
	"github.com/starling-network/starling/verify/meter"
)

// A job that has ended, and whose money is settled for good, leaves memory once there are enough newer ones. Its records then move to kinds
// of the journal that are not read at the start, in one write, and are read when somebody asks for the job. In memory a past of it remains,
// which is enough to find it, to list it and to count it.

const (
	kindPast      = "past"      // past by job
	kindPastJob   = "pastjob"   // Job by id, with its escrows
	kindPastLease = "pastlease" // pastLease by job and lease
	kindPastBlob  = "pastblob"  // pastBlob by CID and job

	// keptRanks is how many ranks the ended jobs that stay in memory have together, about.
	keptRanks = 256
	// pastBatch is how many jobs leave memory in one write.
	pastBatch = 64
	// tidyEvery is how often it is looked for jobs that may leave memory, beside whenever a job ends.
	tidyEvery = time.Minute
)

// past is a job that has left memory.
type past struct {
	ID      string        `json:"id"`
	State   State         `json:"state"`
	Name    string        `json:"name"`
	Key     string        `json:"key,omitempty"`
	Created int64         `json:"created"`         // nanoseconds of Unix time
	Spent   market.Amount `json:"spent,omitempty"` // as Buyer.spent has it
	Fees    uint64        `json:"fees,omitempty"`  // in lamports, about
	Tx      string        `json:"tx,omitempty"`    // anchors the receipts of a job of this peer's own key
	// Paid are the leases that were signed on the day on which the job left memory, and Day is that; in the journal alone.
	Paid []pastPaid `json:"paid,omitempty"`
	Day  string     `json:"day,omitempty"`
}

// pastPaid is what a lease cost.
type pastPaid struct {
	To     sign.Key      `json:"to"`
	Amount market.Amount `json:"amount"`
}

// pastLease is a lease of such a job.
type pastLease struct {
	Record json.RawMessage `json:"record"` // leaseRecord
	Payer  []byte          `json:"payer"`  // meter.Payer
}

// paidToday is what leases signed on a day cost whose jobs have left memory, by provider.
type paidToday struct {
	day string
	to  map[sign.Key]market.Amount
}

// job is what a past has of a job: as much as a Query looks at.
func (p *past) job() Job {
	j := Job{ID: p.ID, State: p.State, Key: p.Key, Created: time.Unix(0, p.Created)}
	j.Spec.Name = p.Name
	return j
}

// loadPast reads which jobs have left memory.
func (b *Buyer) loadPast(ctx context.Context) error {
	now, same := time.Now(), map[string]string{} // most have one of a few states, names and keys
	once := func(text string) string {
		if _, ok := same[text]; !ok {
			same[text] = text
		}
		return same[text]
	}
	return b.cfg.Store.List(ctx, kindPast, "", func(id string, value []byte) error {
		var p past
		if err := json.Unmarshal(value, &p); err != nil {
			return fmt.Errorf("reading past job %s: %w", id, err)
		}
		p.State, p.Name, p.Key = State(once(string(p.State))), once(p.Name), once(p.Key)
		b.addPast(p, now)
		return nil
	})
}

// addPast takes in a job that has left memory. b.mu is held, or nobody else has b.
func (b *Buyer) addPast(p past, now time.Time) {
	if today := spend.DayOf(now); p.Day == today {
		if b.paidToday.day != today {
			b.paidToday = paidToday{today, map[sign.Key]market.Amount{}}
		}
		for _, l := range p.Paid {
			b.paidToday.to[l.To] += l.Amount
		}
	}
	p.Paid, p.Day = nil, ""
	b.past[p.ID] = &p
}

// pastToday is what leases signed today cost whose jobs have left memory, by provider. b.mu is held.
func (b *Buyer) pastToday(now time.Time) map[sign.Key]market.Amount {
	if b.paidToday.day != spend.DayOf(now) {
		return nil
	}
	return b.paidToday.to
}

// tidying takes out of memory what is over, until ctx ends.
func (b *Buyer) tidying(ctx context.Context) {
	tick := time.NewTicker(tidyEvery)
	defer tick.Stop()
	for ctx.Err() == nil {
		if err := errors.Join(b.tidy(ctx, keptRanks), b.forget(ctx)); err != nil && ctx.Err() == nil {
			b.cfg.Log.Warn("jobs that are over stay in memory", "err", err)
		}
		select {
		case <-ctx.Done():
		case <-tick.C:
		case <-b.ended:
		}
	}
}

// hasEnded lets tidying look for what may leave memory.
func (b *Buyer) hasEnded() {
	select {
	case b.ended <- struct{}{}:
	default:
	}
}

// tidy takes ended jobs out of memory, the oldest first, until those that stay have so many ranks. One whose money can still move stays.
// It must not run twice at a time.
func (b *Buyer) tidy(ctx context.Context, keep int) error {
	ranks := 0
	var old []*supervisor
	for _, s := range b.sorted() {
		j := s.peek()
		if !s.mine || !j.State.Ended() {
			continue
		}
		if ranks += len(j.Ranks); ranks > keep {
			old = append(old, s)
		}
	}
	if ranks <= keep+keep/8 { // many leave at once
		return nil
	}
	old = slices.DeleteFunc(old, func(s *supervisor) bool { return !s.over() || !s.settled() })
	for batch := range slices.Chunk(old, pastBatch) {
		if err := b.leave(ctx, batch); err != nil {
			return err
		}
	}
	return nil
}

// over reports whether this process does nothing for the job any more.
func (s *supervisor) over() bool {
	select {
	case <-s.done:
		return true
	default:
	}
	w, _, err := s.b.desk.runner.Get(s)
	return !s.mine && err == nil && w.Done() // this peer has nothing more to do for it
}

// settled reports whether all leases of the job are.
func (s *supervisor) settled() bool {
	return !slices.ContainsFunc(s.bought(), func(l *bought) bool { return l.state() != meter.PayerSettled })
}

// leave takes jobs out of memory that have ended, those of them whose money is settled for good.
func (b *Buyer) leave(ctx context.Context, jobs []*supervisor) error {
	now := time.Now()
	var puts []store.Put
	var gone []*supervisor
	var pasts []past
	var ends []func(bool)
	for _, s := range jobs {
		money, end, ok := b.pay.letGo(s.trace.Job)
		if !ok {
			continue
		}
		p, moved, err := s.moved(now)
		if err != nil {
			end(false)
			b.cfg.Log.Warn("a job that is over stays in memory", "job", s.trace.Job, "err", err)
			continue
		}
		puts = append(append(puts, money...), moved...)
		gone, pasts, ends = append(gone, s), append(pasts, p), append(ends, end)
	}
	if len(gone) == 0 {
		return nil
	}
	err := b.cfg.Store.Write(ctx, puts...)
	if err == nil {
		b.mu.Lock()
		for i, s := range gone {
			b.drop(s)
			b.addPast(pasts[i], now)
		}
		b.mu.Unlock()
	}
	for i, s := range gone {
		ends[i](err == nil)
		s.gone(err == nil)
	}
	if err != nil {
		return fmt.Errorf("journalling past jobs: %w", err)
	}
	return nil
}

// drop takes a job and its leases out of memory. b.mu is held.
func (b *Buyer) drop(s *supervisor) {
	if b.jobs[s.trace.Job] == s {
		delete(b.jobs, s.trace.Job)
	}
	b.desk.runner.Remove(s)
	for _, l := range s.bought() {
		if b.leases[l.id] == l {
			delete(b.leases, l.id)
		}
		b.payers.Drop(paidFor{l})
	}
}

// moved says what the journal must be told when the job leaves memory. From then on nothing of it is saved, until gone says otherwise.
func (s *supervisor) moved(now time.Time) (past, []store.Put, error) {
	s.mu.Lock()
	s.closed = true
	j := s.job.clone()
	s.mu.Unlock()
	p, puts, err := s.b.movedJob(j)
	if err != nil {
		s.gone(false)
		return past{}, nil, err
	}
	for _, l := range s.bought() {
		rec, err := l.moved()
		if err != nil {
			s.gone(false)
			return past{}, nil, err
		}
		puts = append(puts, rec, store.Put{Kind: kindLease, Key: l.id.String()}, store.Put{Kind: kindPayer, Key: l.id.String()})
		if today := spend.DayOf(now); spend.DayOf(l.rec.At) == today {
			p.Day, p.Paid = today, append(p.Paid, pastPaid{l.core.Provider, l.most()})
		}
	}
	put, err := putOf(kindPast, p.ID, p)
	if err != nil {
		s.gone(false)
	}
	return p, append(puts, put), err
}

// gone reports whether the job has left memory, or has stayed after all.
func (s *supervisor) gone(left bool) {
	s.mu.Lock()
	if s.closed = left; left {
		s.driver.guards.silenceLocked()
	}
	s.mu.Unlock()
	if left && s.guard != nil {
		s.guard.close()
	}
}

func (b *Buyer) movedJob(j Job) (past, []store.Put, error) {
	j.Escrows = b.pay.escrows(j.ID)
	p := past{ID: j.ID, State: j.State, Name: j.Spec.Name, Key: j.Key, Created: j.Created.UnixNano(), Spent: b.spent(j), Fees: j.took().Fees, Tx: string(j.anchoredIn())}
	put, err := putOf(kindPastJob, j.ID, j)
	puts := []store.Put{put, {Kind: kindJob, Key: j.ID}}
	for c, of := range blobsOf(j) {
		put, no := putOf(kindPastBlob, c+"/"+j.ID, of)
		puts, err = append(puts, put), errors.Join(err, no)
	}
	return p, puts, err
}

func (l *bought) moved() (store.Put, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	rec, err := l.record()
	if err != nil {
		return rec, err
	}
	payer, err := l.payer.Marshal()
	if err != nil {
		return rec, err
	}
	return putOf(kindPastLease, l.job+"/"+l.id.String(), pastLease{rec.Value, payer})
}

func putOf(kind, key string, v any) (store.Put, error) {
	b, err := json.Marshal(v)
	if err != nil {
		return store.Put{}, fmt.Errorf("encoding %s %s: %w", kind, key, err)
	}
	return store.Put{Kind: kind, Key: key, Value: b}, nil
}

// pastJob reads a job that has left memory.
func (b *Buyer) pastJob(ctx context.Context, id string) (j Job, err error) {
	v, err := b.cfg.Store.Get(ctx, kindPastJob, id)
	if err == nil {
		err = json.Unmarshal(v, &j)
	}
	if err != nil {
		return j, fmt.Errorf("reading past job %s: %w", id, err)
	}
	return j, nil
}

// recall reads a job that has left memory, with its leases. It does not come back into memory.
func (b *Buyer) recall(id string) (*supervisor, error) {
	ctx := context.Background()
	j, err := b.pastJob(ctx, id)
	if err != nil {
		return nil, err
	}
	t := trace.New(b.cfg.Store, id)
	t.Retire()
	s, err := b.newSupervisor(j, t)
	if err != nil {
		return nil, err
	}
	s.closed = true
	close(s.done)
	if err := b.cfg.Store.List(ctx, kindPastLease, id+"/", func(key string, value []byte) error {
		var of pastLease
		var rec leaseRecord
		err := json.Unmarshal(value, &of)
		if err == nil {
			err = json.Unmarshal(of.Record, &rec)
		}
		if err != nil {
			return fmt.Errorf("reading lease %s: %w", key, err)
		}
		l, err := b.restored(rec, of.Payer, s)
		if err != nil {
			return fmt.Errorf("reading lease %s: %w", key, err)
		}
		s.paid = append(s.paid, l)
		return nil
	}); err != nil {
		return nil, err
	}
	return s, b.linkAll(s.paid)
}
