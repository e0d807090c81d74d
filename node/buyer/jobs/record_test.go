package jobs_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/node/buyer/jobs"
)

// plain are the params of an ordinary job of n ranks.
func plain(n uint32) jobs.Params {
	return jobs.Params{
		Count: n, Rounds: 1, Restart: jobs.Restart{Max: 3, Backoff: time.Second, MostBackoff: time.Minute},
		Queue: 20 * time.Second, Run: 2 * time.Minute, Grace: 2 * time.Second, LostAfter: 5 * time.Second, Rate: 1_000_000, Budget: 1 << 40,
		SlotMillis: 100, Interval: 10, Seed: 7,
	}
}

// running returns a job all of whose programs run, at epoch.
func running(t testing.TB, p jobs.Params) jobs.State {
	t.Helper()
	now := jobs.Now{Time: epoch, Slot: 1000}
	s, fx := jobs.New(p, true, now)
	step := func(ev jobs.Event) {
		t.Helper()
		next, out, err := s.Step(now, ev)
		if err != nil {
			t.Fatal(err)
		}
		s, fx = next, out
	}
	if p.Guarded {
		step(jobs.GuardiansEngaged{Epoch: 1})
	}
	order := fx[len(fx)-1].(jobs.OrderGang)
	step(jobs.OrderPlaced{Gang: order.Gang, Order: market.OrderID{1}})
	formed := jobs.GangFormed{Gang: order.Gang}
	for i, seat := range order.Seats {
		id := market.LeaseID{byte(i), byte(i >> 8), 1}
		most, _ := p.Rate.Owed(order.Slots)
		formed.Leases = append(formed.Leases, jobs.Lease{
			ID: id, Chain: id, Rank: seat.Rank, Epoch: seat.Epoch, Provider: sign.Key{byte(i), byte(i >> 8), 1},
			End: now.Slot + market.Slot(order.Slots), Rate: p.Rate, Most: most, Open: true, Usable: true,
		})
	}
	step(formed)
	if s.Phase != jobs.Working {
		t.Fatalf("phase %s, want working", s.Phase)
	}
	return s
}

func encode(t testing.TB, s jobs.State) []byte {
	t.Helper()
	b, err := s.Encode()
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func TestRecordIsReadable(t *testing.T) {
	t.Parallel()
	b := encode(t, running(t, plain(1)))
	for _, want := range []string{`"version":1`, `"phase":"working"`, `"state":"running"`, `"started":"2026-01-01T00:00:00Z"`} {
		if !bytes.Contains(b, []byte(want)) {
			t.Errorf("the record does not contain %s:\n%s", want, b)
		}
	}
	for _, volatile := range []string{"doing", "leases", "since", "resumed"} {
		if bytes.Contains(bytes.ToLower(b), []byte(volatile)) {
			t.Errorf("the record contains %s, which is volatile:\n%s", volatile, b)
		}
	}
}

// TestRecordRefuses breaks one rule at a time.
func TestRecordRefuses(t *testing.T) {
	t.Parallel()
	guarded := plain(2)
	guarded.Guarded = true
	good := running(t, guarded)
	cluster := plain(2)
	cluster.Cluster = &jobs.Engine{}
	lease := market.LeaseID{1}
	cases := map[string]func(*jobs.State){
		"no count":            func(s *jobs.State) { s.Params.Count = 0 },
		"too many ranks":      func(s *jobs.State) { s.Params.Count = jobs.MaxRanks + 1 },
		"no rounds":           func(s *jobs.State) { s.Params.Rounds = 0 },
		"no run limit":        func(s *jobs.State) { s.Params.Run = 0 },
		"negative grace":      func(s *jobs.State) { s.Params.Grace = -1 },
		"endless queue":       func(s *jobs.State) { s.Params.Queue = 1 << 62 },
		"no slots":            func(s *jobs.State) { s.Params.SlotMillis = 0 },
		"no interval":         func(s *jobs.State) { s.Params.Interval = 0 },
		"restarts":            func(s *jobs.State) { s.Params.Restart.Max = 101 },
		"standbys":            func(s *jobs.State) { s.Params.Standbys = 1 << 20 },
		"checked and guarded": func(s *jobs.State) { s.Params.Checked, s.Judged = true, make([]bool, 2) },
		"guarded cluster":     func(s *jobs.State) { s.Params.Cluster = &jobs.Engine{} },
		"no phase":            func(s *jobs.State) { s.Phase = 0 },
		"early outcome":       func(s *jobs.State) { s.Outcome = jobs.Outcome{Result: jobs.ResultStopped} },
		"no outcome":          func(s *jobs.State) { s.Phase = jobs.Settling },
		"failed without code": func(s *jobs.State) { s.Phase, s.Outcome = jobs.Settling, jobs.Outcome{Result: jobs.ResultFailed} },
		"reduces nothing":     func(s *jobs.State) { s.Phase = jobs.Reducing },
		"round":               func(s *jobs.State) { s.Round = 1 },
		"not started":         func(s *jobs.State) { s.Started = time.Time{} },
		"scale of no cluster": func(s *jobs.State) { s.Scale = &jobs.Scale{From: 2, Target: 1} },
		"missing rank":        func(s *jobs.State) { s.Ranks = s.Ranks[:1] },
		"judged":              func(s *jobs.State) { s.Judged = []bool{true} },
		"carry":               func(s *jobs.State) { s.Carry = jobs.File{CID: "../x"} },
		"rank without state":  func(s *jobs.State) { s.Ranks[0].State = 0 },
		"failed rank":         func(s *jobs.State) { s.Ranks[0].State = jobs.RankFailed },
		"leased for nothing":  func(s *jobs.State) { s.Ranks[0].Lease = market.LeaseID{} },
		"waits with a lease":  func(s *jobs.State) { s.Ranks[0].State = jobs.RankWaiting },
		"runs nothing":        func(s *jobs.State) { s.Ranks[0].Seq = 0 },
		"joining":             func(s *jobs.State) { s.Ranks[1].Joining = true },
		"last epoch":          func(s *jobs.State) { s.Ranks[0].Epoch = 1<<32 - 1 },
		"restarted":           func(s *jobs.State) { s.Ranks[0].Restarts = 1 << 20 },
		"many outputs":        func(s *jobs.State) { s.Ranks[0].Outputs = make([]jobs.File, 17) },
		"output path":         func(s *jobs.State) { s.Ranks[0].Outputs = []jobs.File{{Path: "/a\x1b"}} },
		"output size":         func(s *jobs.State) { s.Ranks[0].Outputs = []jobs.File{{Bytes: -1}} },
		"checkpoint": func(s *jobs.State) {
			s.Ranks[0].Checkpoints = []jobs.Checkpoint{{File: jobs.File{CID: strings.Repeat("a", 129)}}}
		},
		"no checkpoint": func(s *jobs.State) { s.Ranks[0].Checkpoints = make([]jobs.Checkpoint, 1) },
		"3 checkpoints": func(s *jobs.State) {
			c := jobs.Checkpoint{File: jobs.File{CID: "k"}}
			s.Ranks[0].Checkpoints = []jobs.Checkpoint{c, c, c}
		},
		"gang without ranks": func(s *jobs.State) { s.Gangs = []jobs.Gang{{ID: 1, Order: market.OrderID{1}}} },
		"gang of later": func(s *jobs.State) {
			s.Gangs = []jobs.Gang{{ID: s.Placed + 1, Ranks: []uint32{0}, Order: market.OrderID{1}}}
		},
		"renewal of nothing": func(s *jobs.State) { s.Renewals = []jobs.Renewal{{}} },
		"renewal twice":      func(s *jobs.State) { s.Renewals = []jobs.Renewal{{Of: lease, Chain: lease}, {Of: lease, Chain: lease}} },
		"grant twice":        func(s *jobs.State) { s.Grants = make([]jobs.Grant, 2) },
	}
	for name, spoil := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := jobs.DeepCopy(good)
			spoil(&s)
			b, err := s.Encode()
			if err != nil {
				t.Fatal(err)
			}
			if _, err := jobs.Decode(b); !errors.Is(err, jobs.ErrRecord) {
				t.Errorf("got %v, want ErrRecord", err)
			}
		})
	}
}

func TestRecordRefusesText(t *testing.T) {
	t.Parallel()
	good := string(encode(t, running(t, plain(1))))
	cases := map[string]string{
		"nothing": "", "no object": "[]", "two values": good + "{}", "old version": strings.Replace(good, `"version":1`, `"version":0`, 1),
		"unknown field": strings.Replace(good, "{", `{"leases":[],`, 1), "unknown phase": strings.Replace(good, "working", "playing", 1),
		"unknown state": strings.Replace(good, `"running"`, `"sleeping"`, 1), "too long": good + strings.Repeat(" ", 16<<20),
	}
	for name, text := range cases {
		if _, err := jobs.Decode([]byte(text)); !errors.Is(err, jobs.ErrRecord) {
			t.Errorf("%s: got %v, want ErrRecord", name, err)
		}
	}
}

// guardedPair is a guarded job as this peer has it, and as another supervisor left it.
func guardedPair(t testing.TB) (own, theirs jobs.State) {
	p := plain(2)
	p.Guarded, p.Rounds = true, 3
	own = running(t, p)
	theirs = jobs.DeepCopy(own)
	theirs.Command.Epoch = 2
	return own, theirs
}

func TestMergeRefuses(t *testing.T) {
	t.Parallel()
	cases := map[string]func(own, theirs *jobs.State){
		"other seed":    func(_, s *jobs.State) { s.Params.Seed++ },
		"other rate":    func(_, s *jobs.State) { s.Params.Rate++ },
		"more restarts": func(_, s *jobs.State) { s.Params.Restart.Max++ },
		"other time":    func(_, s *jobs.State) { s.Created = s.Created.Add(time.Second) },
		"lower round":   func(own, _ *jobs.State) { own.Round = 1 },
		"lower phase": func(own, _ *jobs.State) {
			own.Phase, own.Outcome = jobs.Stopping, jobs.Outcome{Result: jobs.ResultStopped}
		},
		"other outcome": func(own, s *jobs.State) {
			own.Phase, own.Outcome = jobs.Stopping, jobs.Outcome{Result: jobs.ResultStopped}
			s.Phase, s.Outcome = jobs.Settling, jobs.Outcome{Result: jobs.ResultSucceeded}
		},
		"not guarded": func(own, s *jobs.State) { own.Params.Guarded, s.Params.Guarded = false, false },
	}
	for name, change := range cases {
		own, theirs := guardedPair(t)
		change(&own, &theirs)
		before := jobs.DeepCopy(own)
		got, err := jobs.Merge(own, encode(t, theirs), true)
		if !errors.Is(err, jobs.ErrForeign) {
			t.Errorf("%s: got %v, want ErrForeign", name, err)
		}
		if fmt.Sprint(got) != fmt.Sprint(before) {
			t.Errorf("%s: Merge changed the own state", name)
		}
	}
	own, _ := guardedPair(t)
	if _, err := jobs.Merge(own, []byte("{}"), true); !errors.Is(err, jobs.ErrRecord) {
		t.Errorf("got %v, want ErrRecord", err)
	}
}

func TestMergeKeepsOwn(t *testing.T) {
	t.Parallel()
	own, theirs := guardedPair(t)
	own.Ranks[0].State, own.Ranks[0].Epoch, own.Ranks[1].Epoch = jobs.RankDone, 3, 4
	own.Ranks[0].Outputs = []jobs.File{{CID: "own"}}
	own.WantStop = true
	theirs.Ranks[1].Epoch, theirs.Ranks[1].Unextended = 2, "no\x1b[0m"
	theirs.Params.Budget, theirs.Params.Run, theirs.Paused = 1, time.Hour, true
	theirs.Account.Owed = 9
	theirs.Avoid = []sign.Key{{1}}

	if got, err := jobs.Merge(own, encode(t, own), true); err != nil || got.Ranks[1].Epoch != 4 {
		t.Errorf("a standing of the same command: got %+v, %v, want the own state", got, err)
	}
	got, err := jobs.Merge(own, encode(t, theirs), true)
	if err != nil {
		t.Fatal(err)
	}
	if r := got.Ranks[0]; r.State != jobs.RankDone || r.Epoch != 3 || len(r.Outputs) != 1 {
		t.Errorf("a done rank became %+v", r)
	}
	if r := got.Ranks[1]; r.State != jobs.RankRunning || r.Epoch != 4 || r.Unextended != "no [0m" {
		t.Errorf("rank 1 became %+v", r)
	}
	if got.Params.Budget != own.Params.Budget || got.Params.Run != own.Params.Run || got.Paused {
		t.Errorf("an owner's params became %+v", got.Params)
	}
	if !got.WantStop || got.Account.Owed != 0 || got.Command != own.Command || len(got.Avoid) != 1 {
		t.Errorf("merged: %+v", got)
	}
	own.Command.Owner = false
	if got, err = jobs.Merge(own, encode(t, theirs), true); err != nil || got.Params.Run != time.Hour || !got.Paused {
		t.Errorf("a guardian's params became %+v, %v", got.Params, err)
	}
}

func TestMergeSettlesWhatEnded(t *testing.T) {
	t.Parallel()
	own, theirs := guardedPair(t)
	theirs.Phase, theirs.Outcome, theirs.Round = jobs.Ended, jobs.Outcome{Result: jobs.ResultSucceeded}, 3
	theirs.Ended = epoch
	for i := range theirs.Ranks {
		theirs.Ranks[i].State = jobs.RankDone
	}
	got, err := jobs.Merge(own, encode(t, theirs), true)
	if err != nil || got.Phase != jobs.Settling || !got.Ended.IsZero() || got.Outcome.Result != jobs.ResultSucceeded {
		t.Errorf("got %s %+v, %v, want settling", got.Phase, got.Outcome, err)
	}
}

// FuzzDecode checks that a record that is read encodes to itself, and that the job continues from it.
func FuzzDecode(f *testing.F) {
	for _, s := range seeds(f) {
		f.Add(encode(f, s))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		s, err := jobs.Decode(b)
		if err != nil {
			if !errors.Is(err, jobs.ErrRecord) {
				t.Fatalf("got %v, want ErrRecord", err)
			}
			return
		}
		once := encode(t, s)
		again, err := jobs.Decode(once)
		if err != nil {
			t.Fatalf("a record cannot be read again: %v\n%s", err, once)
		}
		if twice := encode(t, again); !bytes.Equal(once, twice) {
			t.Fatalf("two encodings:\n%s\n%s", once, twice)
		}
		continues(t, s, jobs.Recovered{Leases: leasesOf(s)})
	})
}

// FuzzMerge checks that a standing lowers no epoch and no round and undoes no done rank, and that the job continues.
func FuzzMerge(f *testing.F) {
	own, theirs := guardedPair(f)
	for _, change := range []func(*jobs.State){
		func(*jobs.State) {}, func(s *jobs.State) { s.Round = 1 }, func(s *jobs.State) { s.Ranks[0].Epoch = 9 },
		func(s *jobs.State) { s.Phase, s.Outcome = jobs.Settling, jobs.Outcome{Result: jobs.ResultStopped} },
		func(s *jobs.State) { s.Started, s.Params.Run = time.Date(9000, 1, 1, 0, 0, 0, 0, time.UTC), 1 },
		func(s *jobs.State) {
			l := s.Ranks[0].Lease
			s.Renewals = []jobs.Renewal{{Of: l, Chain: l, Until: 1 << 63, Cap: 1 << 63}}
		},
	} {
		s := jobs.DeepCopy(theirs)
		change(&s)
		f.Add(encode(f, s), true)
	}
	own.Ranks[1].State = jobs.RankDone
	f.Fuzz(func(t *testing.T, b []byte, owner bool) {
		own := jobs.DeepCopy(own)
		own.Command.Owner, own.Command.Lost = owner, true
		got, err := jobs.Merge(own, b, false)
		if err != nil {
			return
		}
		if got.Round < own.Round || got.Phase == jobs.Ended || got.Phase < jobs.Working || len(got.Ranks) != len(own.Ranks) {
			t.Fatalf("phase %s, round %d, %d ranks", got.Phase, got.Round, len(got.Ranks))
		}
		for i := range got.Ranks {
			if got.Ranks[i].Epoch < own.Ranks[i].Epoch {
				t.Fatalf("rank %d: epoch %d after %d", i, got.Ranks[i].Epoch, own.Ranks[i].Epoch)
			}
		}
		if got.Round == own.Round && got.Ranks[1].State != jobs.RankDone {
			t.Fatalf("rank 1 is %s after it was done", got.Ranks[1].State)
		}
		continues(t, own, jobs.CommandGranted{Epoch: 3, Theirs: &got, Leases: leasesOf(own)})
	})
}

// seeds are states of all kinds.
func seeds(t testing.TB) []jobs.State {
	fresh, _ := jobs.New(plain(3), true, jobs.Now{Time: epoch})
	cluster := plain(2)
	cluster.Cluster = &jobs.Engine{HeadEnds: true, Binds: true, HeadFirst: true, Autostop: time.Minute}
	checked := plain(2)
	checked.Checked = true
	own, _ := guardedPair(t)
	now := jobs.Now{Time: epoch.Add(time.Second), Slot: 1010}
	out := []jobs.State{fresh, running(t, plain(1)), own}
	for _, ev := range []jobs.Event{
		jobs.ScaleRequested{Count: 3}, jobs.ScaleRequested{Count: 1}, jobs.ExtendRequested{By: time.Minute},
	} {
		s, _, err := running(t, cluster).Step(now, ev)
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, s)
	}
	s, _, _ := running(t, checked).Step(now, jobs.StopRequested{})
	return append(out, s)
}

// leasesOf are usable leases for all ranks of a state.
func leasesOf(s jobs.State) (out []jobs.Lease) {
	for i, r := range s.Ranks {
		if !r.Lease.IsZero() && i < 16 {
			out = append(out, jobs.Lease{
				ID: r.Lease, Chain: r.Lease, Rank: uint32(i), Epoch: r.Epoch, End: 1 << 40, Rate: 1, Most: 1,
				Open: true, Usable: true,
			})
		}
	}
	return out
}

// continues gives a state events that must not break it.
func continues(t *testing.T, s jobs.State, ev jobs.Event) {
	now := jobs.Now{Time: epoch.Add(time.Minute), Slot: 1600}
	for _, ev := range []jobs.Event{ev, jobs.Ticked{}, jobs.StopRequested{Req: 1}, jobs.Ticked{}} {
		next, fx, err := s.Step(now, ev)
		if err != nil {
			t.Fatalf("%T: %v", ev, err)
		}
		for _, e := range fx {
			if _, ok := e.(jobs.RenewLease); ok && next.Promised() > next.Params.Budget {
				t.Fatalf("%d of %d are promised", next.Promised(), next.Params.Budget)
			}
		}
		if at := next.Next(); !at.IsZero() && !at.After(now.Time) {
			t.Fatalf("%T: the next deadline %v is not after %v", ev, at, now.Time)
		}
		if b, err := next.Encode(); err != nil {
			t.Fatalf("%T: %v", ev, err)
		} else if !json.Valid(b) {
			t.Fatalf("%T: %s", ev, b)
		}
		s, now.Time = next, now.Time.Add(time.Hour)
	}
}
