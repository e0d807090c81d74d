package buyer

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/node/buyer/guardian"
	"github.com/starling-network/starling/node/buyer/guardian/wards"
	"github.com/starling-network/starling/node/buyer/jobs"
	"github.com/starling-network/starling/node/buyer/leases"
	"github.com/starling-network/starling/node/buyer/record"
	"github.com/starling-network/starling/node/buyer/run"
	"github.com/starling-network/starling/node/buyer/trace"
	"github.com/starling-network/starling/node/buyer/voice"
	"github.com/starling-network/starling/node/sealed"
	"github.com/starling-network/starling/node/store"
)

// stranger makes the i-th job one of another peer that this one supervised.
func (w *pastWorld) stranger(i int, guardians market.KeySet) Job {
	j, self := w.ended(i), w.cfg.Key.Key()
	key := sign.NewPrivate([32]byte{200, byte(i)})
	box, err := sealed.Seal(self, sealed.Purpose{Network: w.cfg.Genesis.Tag(), What: "jobkey", ID: j.ID}, append([]byte{200, byte(i)}, make([]byte, 30)...))
	if err != nil {
		w.t.Fatal(err)
	}
	j.State, j.Outcome, j.Key = Settling, Succeeded, ""
	j.Detached = &Detached{Owner: sign.NewPrivate([32]byte{150}).Key(), Key: key.Key(), Terms: sign.Hash{9, byte(i)}, Box: box, Engaged: true}
	for _, k := range guardians.Keys {
		j.Detached.Guardians = append(j.Detached.Guardians, record.Guardian{Key: k})
	}
	return j
}

// supervised is the record of a job that this peer supervised for another to its end.
func (w *pastWorld) supervised(j Job) []byte {
	p, err := j.Params(w.cfg.Genesis, time.Second)
	if err != nil {
		w.t.Fatal(err)
	}
	st, _ := run.Beginning{Params: p, Created: j.Created}.State(jobs.Now{Time: j.Created})
	st.Phase, st.Round, st.Outcome = jobs.Settling, p.Rounds, jobs.Outcome{Result: jobs.ResultSucceeded}
	st.Command = jobs.Command{Epoch: 2}
	work, err := st.Encode()
	if err != nil {
		w.t.Fatal(err)
	}
	return encoded(w.t, record.Record{Job: j, Work: work})
}

// TestAttackEndlessGuardedJobs: of a stranger's job that this peer guards no more nothing stays, in memory, in the journal or on the disk,
// while one that it guards stays, and its own.
func TestAttackEndlessGuardedJobs(t *testing.T) {
	t.Parallel()
	const gone, dismissed, guarded, mine = 0, 1, 2, 3
	for n := range 4 {
		disk := store.NewMemory()
		st := store.NewCrashing(disk)
		w := newPastWorld(t, disk)
		w.cfg.Boxes = sealed.Boxes{Key: sign.NewPrivate([32]byte{1}), Network: w.cfg.Genesis.Tag()}
		set, err := market.NewKeySet(2, w.cfg.Key.Key(), sign.NewPrivate([32]byte{101}).Key(), sign.NewPrivate([32]byte{102}).Key())
		if err != nil {
			t.Fatal(err)
		}
		for i := range mine {
			j := w.stranger(i, set)
			w.journal(j)
			ward := wards.Ward{
				Charter: guardian.Charter{Job: j.Detached.Terms, Owner: j.Detached.Owner, Buyer: j.Detached.Key, Keys: set}, Members: voice.MembersOf(j.Detached.Guardians),
				Until: time.Now().Add(time.Hour), Epoch: 1, Dismissed: i == dismissed,
			}
			puts := []store.Put{
				{Kind: leases.Receipts.Kind(), Key: fmt.Sprintf("%s/%020d", w.core(i).ID(), 1), Value: []byte{1}}, {Kind: record.Records.Kind(), Key: j.ID, Value: w.supervised(j)},
			}
			if i != gone {
				puts = append(puts, store.Put{Kind: "ward", Key: ward.Job.String(), Value: encoded(t, ward)})
			}
			if err := disk.Write(t.Context(), puts...); err != nil {
				t.Fatal(err)
			}
		}
		w.journal(w.ended(mine))
		start := func(st store.Store) *Buyer {
			w.cfg.Store = st
			if w.cfg.Guardian, err = wards.New(t.Context(), wards.Config{Genesis: w.cfg.Genesis, Key: w.cfg.Key, Store: disk}); err != nil {
				t.Fatal(err)
			}
			return w.start()
		}
		b := start(st)
		st.CrashAt(st.Count()+n, store.Before)
		if err := (retiring{b}).forget(t.Context()); (err == nil) != (n == 0) {
			t.Errorf("crash at write %d: %v", n, err)
		}
		b = start(disk)
		if err := (retiring{b}).forget(t.Context()); err != nil {
			t.Fatal(err)
		}
		for i := range mine + 1 {
			id, stays := pastID(i), i >= guarded
			lease := w.core(i).ID().String()
			for kind, prefix := range map[string]string{record.Records.Kind(): id, leases.Records.Kind(): lease, leases.Payers.Kind(): lease, trace.Records.Kind(): id + "/", leases.Receipts.Kind(): lease + "/"} {
				there := kind == leases.Receipts.Kind() && i == mine // it has none
				if err := disk.List(t.Context(), kind, prefix, func(string, []byte) error { there = true; return nil }); err != nil || there != stays {
					t.Errorf("job %d: its %s is there: %v, want %v: %v", i, kind, there, stays, err)
				}
			}
			_, err := os.Stat(filepath.Join(w.cfg.Dir, "jobs", id))
			if (b.jobs[id] != nil) != stays || (b.leases.Get(w.core(i).ID()) != nil) != stays || (err == nil) != stays {
				t.Errorf("job %d is in memory: %v, its lease: %v, its logs: %v", i, b.jobs[id] != nil, b.leases.Get(w.core(i).ID()) != nil, err)
			}
		}
	}
}
