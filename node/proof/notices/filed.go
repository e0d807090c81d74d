package notices

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/node/journal"
	"github.com/starling-network/starling/verify"
	"github.com/starling-network/starling/verify/notice"
)

// filed is a lease of this peer, as buyer or provider, with the receipts that are published.
type filed struct {
	lease    market.Lease
	units    []market.UnitID
	receipts []verify.Receipt // of each hour those over its roundest slots
	dirty    bool             // the journal does not have it
}

// filedRecord is the journal's record of it.
type filedRecord struct {
	Lease    []byte           `json:"lease"`
	Units    []market.UnitID  `json:"units"`
	Receipts []verify.Receipt `json:"receipts"`
}

// File takes a receipt that both sides have signed. It does not block, and may be called again with the same one. A
// receipt that is lost in a crash is made good by the next ones of its lease.
func (k *Publisher) File(l market.Lease, units []market.UnitID, r verify.Receipt) {
	if r.From >= r.To || len(units) == 0 {
		return // of no slot, or from before units were remembered
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	f := k.filed[r.Lease]
	if f == nil {
		f = &filed{lease: l, units: slices.Clone(units)}
		k.filed[r.Lease] = f
		k.makeRoom()
	}
	if !slices.Contains(f.receipts, r) {
		k.add(f, r)
	}
}

// add files a receipt under the hours that it meets; k.mu is held.
func (k *Publisher) add(f *filed, r verify.Receipt) {
	hour := market.Slot(k.calendar.HourSlots())
	first, last := r.From/hour, (r.To-1)/hour
	if last-first >= maxHours {
		first = last - maxHours + 1
	}
	var stay []verify.Receipt
	for _, o := range f.receipts { // of other hours
		if o.To <= first*hour || o.From >= (last+1)*hour {
			stay = append(stay, o)
		}
	}
	all, kept := append(slices.Clone(f.receipts), r), false
	for h := first; h <= last; h++ {
		at, err := k.calendar.At(f.lease.Core.Provider, f.units[0], h*hour)
		if err != nil {
			return
		}
		keep := notice.Keep(k.calendar, at, all)
		stay = append(stay, keep...)
		if !slices.Contains(keep, r) {
			continue
		}
		kept = true
		wait := settleMore
		within := func(o verify.Receipt) bool { return o.From < (h+1)*hour && o.To > h*hour }
		if r.Final() || !slices.ContainsFunc(f.receipts, within) {
			wait = settleDown
		}
		for _, u := range f.units {
			at.Unit = u
			k.change(at, wait)
		}
	}
	if !kept {
		return
	}
	slices.SortFunc(stay, func(x, y verify.Receipt) int { return cmp.Compare(x.Seq, y.Seq) })
	f.receipts, f.dirty = slices.Compact(stay), true
}

// change notes that there is something new to publish at a place, after some time; k.mu is held.
func (k *Publisher) change(at notice.Place, wait time.Duration) {
	v := k.places[at]
	if v == nil {
		if len(k.places) >= maxDue {
			return
		}
		v = &visit{}
		k.places[at] = v
	}
	now := time.Now()
	if v.say.IsZero() {
		v.news = now
	}
	if say := now.Add(k.patient(at, wait)); v.say.IsZero() || say.Before(v.say) {
		v.say = say
	}
}

// patient is how long this peer waits at a place where others wait for some time.
func (k *Publisher) patient(at notice.Place, wait time.Duration) time.Duration {
	if at.Provider == k.cfg.Self {
		return patience * wait
	}
	return wait
}

func (k *Publisher) wake() {
	select {
	case k.poke <- struct{}{}:
	default:
	}
}

// makeRoom forgets the leases that ended first when there are too many; k.mu is held.
func (k *Publisher) makeRoom() {
	for len(k.filed) > maxFiled {
		var oldest market.LeaseID
		for id, f := range k.filed {
			if o := k.filed[oldest]; o == nil || f.lease.Core.End < o.lease.Core.End {
				oldest = id
			}
		}
		delete(k.filed, oldest)
	}
}

// journal writes the changed leases before they are published, and deletes the leases that are no longer published.
func (k *Publisher) journal(ctx context.Context, now market.Slot) error {
	k.mu.Lock()
	var batch journal.Batch
	var wrote []*filed
	for id, f := range k.filed {
		if k.past(f, now) {
			delete(k.filed, id)
			filedTable.Delete(&batch, id)
			continue
		}
		if !f.dirty {
			continue
		}
		f.dirty = false
		wrote = append(wrote, f)
		filedTable.Put(&batch, id, filedRecord{f.lease.Marshal(), f.units, f.receipts})
	}
	for at := range k.places {
		if _, to := k.calendar.Slots(at); to+freshHours*market.Slot(k.calendar.HourSlots()) < now {
			delete(k.places, at)
		}
	}
	k.mu.Unlock()
	if err := batch.Commit(ctx, k.cfg.Store); err != nil {
		k.mu.Lock()
		for _, f := range wrote {
			f.dirty = true
		}
		k.mu.Unlock()
		return fmt.Errorf("journalling published leases: %w", err)
	}
	return nil
}

// past reports whether the time to publish a lease has passed; k.mu is held.
func (k *Publisher) past(f *filed, now market.Slot) bool {
	last := f.lease.Core.Start
	for _, r := range f.receipts {
		last = max(last, r.To)
	}
	return last+(freshHours+1)*market.Slot(k.calendar.HourSlots()) < now
}

func (k *Publisher) loadFiled(ctx context.Context) error {
	err := filedTable.List(ctx, k.cfg.Store, "", func(id market.LeaseID, rec filedRecord) error {
		l, err := market.UnmarshalLease(rec.Lease)
		if err != nil || l.Core.ID() != id {
			return fmt.Errorf("reading published lease %s: %w", id, cmp.Or(err, market.ErrMalformed))
		}
		for _, r := range rec.Receipts {
			k.File(l, rec.Units, r)
		}
		if f := k.filed[id]; f != nil {
			f.dirty = false
		}
		return nil
	})
	for _, v := range k.places {
		v.news = time.Time{}
	}
	return err
}

// ours returns the notice of this peer's own leases at a place.
func (k *Publisher) ours(p notice.Place) (notice.Notice, error) {
	k.mu.Lock()
	var mine []filed
	for _, f := range k.filed {
		if f.lease.Core.Provider == p.Provider && slices.Contains(f.units, p.Unit) {
			mine = append(mine, *f)
		}
	}
	k.mu.Unlock()
	var ns []notice.Notice
	for _, f := range mine {
		n, err := notice.Of(k.calendar, p, f.lease, f.units, f.receipts)
		if err != nil {
			return notice.Notice{}, err
		}
		ns = append(ns, n)
	}
	return notice.Join(k.calendar, p, ns...), nil
}

// task is a place to visit. This peer's notice has been there since the given time, if it is there now.
type task struct {
	notice.Place
	since time.Time
}

// plan lists the places to visit now, the longest overdue first: this peer's places with new data or expiring in the
// DHT, its places of the present and the last hour, and these two hours of every watched unit.
func (k *Publisher) plan(now time.Time, slot market.Slot) []task {
	k.mu.Lock()
	defer k.mu.Unlock()
	hour := market.Slot(k.calendar.HourSlots())
	for w := range k.watched {
		for _, s := range []market.Slot{slot, slot - min(slot, hour)} {
			at, err := k.calendar.At(w.Provider, w.Unit, s)
			if err == nil && k.places[at] == nil && len(k.places) < maxDue {
				k.places[at] = &visit{}
			}
		}
	}
	type overdue struct {
		task
		by time.Duration
	}
	var all []overdue
	for at, v := range k.places {
		from, to := k.calendar.Slots(at)
		when := v.at.Add(k.patient(at, republish))
		switch {
		case !v.say.IsZero():
			when = v.say
		case to+freshHours*hour < slot:
			continue
		case at.Provider != k.cfg.Self && from <= slot && slot < to+hour:
			when = v.at.Add(lookEvery)
		}
		if by := now.Sub(when); by >= 0 {
			since := v.put
			if v.news.After(since) {
				since = v.news
			}
			all = append(all, overdue{task{at, since}, by})
		}
	}
	slices.SortFunc(all, func(x, y overdue) int { return cmp.Compare(y.by, x.by) })
	var out []task
	for _, o := range all[:min(len(all), mostPerPass)] {
		out = append(out, o.task)
		v := k.places[o.Place]
		v.at, v.say, v.news = now, time.Time{}, time.Time{}
	}
	return out
}

// said records the time at which all of this peer's data of a place was published.
func (k *Publisher) said(p notice.Place, since time.Time) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if v := k.places[p]; v != nil {
		v.put = since
	}
}

// failed has a place visited again.
func (k *Publisher) failed(p notice.Place) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if v := k.places[p]; v != nil && v.say.IsZero() {
		v.say = time.Now().Add(settleDown)
	}
}
