package jobs_test

import (
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/node/buyer/jobs"
	"pgregory.net/rapid"
)

// TestNothingBeforeNext checks that a job neither acts nor changes before Next, and that it does at Next: a runner that
// sleeps until then misses nothing and never wakes in vain.
func TestNothingBeforeNext(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		w := newWorld(t)
		for range rapid.IntRange(0, 120).Draw(t, "turns") {
			w.turn()
		}
		next := w.s.Next()
		if next.IsZero() {
			next = w.now.Time.Add(1000 * time.Hour)
		}
		if wait := next.Sub(w.now.Time); wait > 1 {
			early := w.now
			early.Time = early.Time.Add(time.Duration(rapid.Int64Range(0, int64(wait)-1).Draw(t, "early")))
			s, fx, err := w.s.Step(early, jobs.Ticked{})
			if err != nil || len(fx) > 0 || !reflect.DeepEqual(jobs.DeepCopy(s), jobs.DeepCopy(w.s)) {
				t.Fatalf("%v before Next: %v, %v, phase %s", next.Sub(early.Time), fx, err, s.Phase)
			}
		}
		if w.s.Next().IsZero() {
			return
		}
		due := w.now
		due.Time = next
		if s, fx, err := w.s.Step(due, jobs.Ticked{}); err != nil || len(fx) == 0 && reflect.DeepEqual(s, w.s) {
			t.Fatalf("at Next nothing happens in phase %s: %v", s.Phase, err)
		}
	})
}

// TestDeadlines checks each limit of time at its moment: nothing happens a nanosecond before.
func TestDeadlines(t *testing.T) {
	t.Parallel()
	slow := func(p *jobs.Params) { p.Pull, p.Start = 10*time.Second, 20*time.Second }
	cluster := func(p *jobs.Params) { p.Cluster = &jobs.Engine{HeadEnds: true, Autostop: 15 * time.Second} }
	exec := func(s jobs.State) jobs.Exec { return jobs.Exec{Lease: s.Ranks[0].Lease, Seq: s.Ranks[0].Seq} }
	cases := []struct {
		name   string
		change func(*jobs.Params)
		events func(jobs.State) []jobs.Event
		after  time.Duration
		phase  jobs.Phase // after it
		want   string     // in the outcome's reason, or in the reason why the rank was lost
	}{
		{"run", func(*jobs.Params) {}, nil, 2 * time.Minute, jobs.Stopping, "timeouts.run: 2m0s"},
		{"pull", slow, nil, 10 * time.Second, jobs.Working, "timeouts.pull of 10s"},
		{
			"start", slow,
			func(s jobs.State) []jobs.Event {
				return []jobs.Event{jobs.ExecutionSeen{Exec: exec(s), Stage: jobs.StagePulled}}
			},
			20 * time.Second, jobs.Working, "timeouts.start of 20s",
		},
		{
			"silence", func(*jobs.Params) {},
			func(s jobs.State) []jobs.Event { return []jobs.Event{jobs.ProviderSilent{Exec: exec(s)}} },
			5 * time.Second, jobs.Working, "did not answer for 5s",
		},
		{
			"a silence that was broken", func(*jobs.Params) {},
			func(s jobs.State) []jobs.Event {
				return []jobs.Event{jobs.ProviderSilent{Exec: exec(s)}, jobs.ProviderHeard{Exec: exec(s)}}
			},
			2 * time.Minute, jobs.Stopping, "timeouts.run",
		},
		{
			"a stop", func(*jobs.Params) {},
			func(jobs.State) []jobs.Event { return []jobs.Event{jobs.StopRequested{}} },
			4 * time.Second, jobs.Settling, "stopped by its user",
		},
		{
			"an unhealthy program that does not exit", func(p *jobs.Params) { p.Restart.OnFailure = true },
			func(s jobs.State) []jobs.Event {
				return []jobs.Event{jobs.ExecutionSeen{Exec: exec(s), Stage: jobs.StageUnhealthy}}
			},
			4 * time.Second, jobs.Working, "did not exit within 4s of a stop",
		},
		{
			"an idle cluster", cluster,
			func(s jobs.State) []jobs.Event {
				return []jobs.Event{
					jobs.JobUse{Busy: true}, jobs.JobUse{}, jobs.JobUse{},
					jobs.ExecutionSeen{Exec: exec(s), Stage: jobs.StageHealthy},
				}
			},
			15 * time.Second, jobs.Stopping, "idle for 15s (autostop)",
		},
		{
			"an idle job", func(p *jobs.Params) { p.Idle = 15 * time.Second },
			func(s jobs.State) []jobs.Event {
				return []jobs.Event{
					jobs.ExecutionSeen{Exec: exec(s), Stage: jobs.StageHealthy},
					jobs.JobUse{Busy: true}, jobs.JobUse{}, jobs.JobUse{},
				}
			},
			15 * time.Second, jobs.Stopping, "idle for 15s (idle)",
		},
		{
			"an idle job whose program does not run yet", func(p *jobs.Params) { p.Idle = 15 * time.Second },
			func(jobs.State) []jobs.Event { return []jobs.Event{jobs.JobUse{}} },
			2 * time.Minute, jobs.Stopping, "timeouts.run",
		},
		{
			"an idle cluster that is not ready", cluster,
			func(jobs.State) []jobs.Event { return []jobs.Event{jobs.JobUse{}} },
			2 * time.Minute, jobs.Stopping, "timeouts.run",
		},
		{
			"an idle cluster that is paused", cluster,
			func(s jobs.State) []jobs.Event {
				return []jobs.Event{
					jobs.ExecutionSeen{Exec: exec(s), Stage: jobs.StageHealthy}, jobs.JobUse{},
					jobs.PauseRequested{Pause: true},
				}
			},
			2 * time.Minute, jobs.Stopping, "timeouts.run",
		},
	}
	for _, c := range cases {
		p := plain(1)
		c.change(&p)
		s, now := running(t, p), jobs.Now{Time: epoch, Slot: 1000}
		if c.events != nil {
			for _, ev := range c.events(s) {
				s, _, _ = s.Step(now, ev)
			}
		}
		if got := s.Next().Sub(epoch); got != c.after {
			t.Errorf("%s: Next after %v, want %v", c.name, got, c.after)
			continue
		}
		now.Time = epoch.Add(c.after - 1)
		early, fx, _ := s.Step(now, jobs.Ticked{})
		if len(fx) > 0 || early.Phase != s.Phase {
			t.Errorf("%s: a nanosecond early: %s, %v", c.name, early.Phase, fx)
		}
		now.Time = epoch.Add(c.after)
		late, fx, _ := s.Step(now, jobs.Ticked{})
		text := late.Outcome.Reason
		for _, e := range fx {
			if n, ok := e.(jobs.Note); ok && n.Kind == jobs.NoteLost {
				text += n.Detail
			}
		}
		if late.Phase != c.phase || !strings.Contains(text, c.want) {
			t.Errorf("%s: %s with %q, want %s with %q", c.name, late.Phase, text, c.phase, c.want)
		}
	}
}

// TestLateReturn checks that limits which expired while a peer was away wait until its network view can be trusted.
func TestLateReturn(t *testing.T) {
	t.Parallel()
	p := plain(1)
	p.Pull = 10 * time.Second
	s := running(t, p)
	leases := leasesOf(s)
	s, err := jobs.Decode(encode(t, s))
	if err != nil {
		t.Fatal(err)
	}
	back := epoch.Add(time.Hour)
	s, fx, err := s.Step(jobs.Now{Time: back, Slot: 1100}, jobs.Recovered{Leases: leases})
	if err != nil || s.Phase != jobs.Working {
		t.Fatalf("%s with %+v: %v", s.Phase, s.Outcome, err)
	}
	if start := one[jobs.StartExecution](t, fx); start.Seq != 1 {
		t.Errorf("execution %d is started, want the one that runs", start.Seq)
	}
	wait := 2 * p.LostAfter
	if got := s.Next().Sub(back); got != wait {
		t.Errorf("Next after %v, want %v", got, wait)
	}
	if s, _, _ = s.Step(jobs.Now{Time: back.Add(wait), Slot: 1200}, jobs.Ticked{}); s.Outcome.Code != jobs.CodeTimeout {
		t.Errorf("after it: %s, %+v", s.Phase, s.Outcome)
	}
}

// TestQueueTime checks that timeouts.queue bounds the search for each rank, and that the outcome has the last reason.
func TestQueueTime(t *testing.T) {
	t.Parallel()
	for reason, want := range map[string]string{"": "no order could be sent", "too few": "too few"} {
		now := jobs.Now{Time: epoch}
		s, _ := jobs.New(plain(1), true, now)
		if reason != "" {
			s, _, _ = s.Step(now, jobs.GangFailed{Gang: 1, Why: jobs.GangShort, Reason: reason})
			now.Time = s.Next()
			s, _, _ = s.Step(now, jobs.Ticked{}) // ordered anew
		}
		// While an order is open it says itself when it gives up.
		s, _, _ = s.Step(now, jobs.GangFailed{Gang: s.Gang, Why: jobs.GangShort, Reason: reason})
		now.Time = epoch.Add(20*time.Second - 1)
		if s, _, _ = s.Step(now, jobs.Ticked{}); s.Phase != jobs.Placing {
			t.Fatalf("%q: gives up early: %+v", reason, s.Outcome)
		}
		s, _, _ = s.Step(now, jobs.GangFailed{Gang: s.Gang, Why: jobs.GangShort, Reason: reason})
		now.Time = epoch.Add(20 * time.Second)
		s, _, _ = s.Step(now, jobs.Ticked{})
		if s.Outcome.Code != jobs.CodeTimeout || !strings.Contains(s.Outcome.Reason, "timeouts.queue of 20s: "+want) {
			t.Errorf("%q: %+v, want %q", reason, s.Outcome, want)
		}
	}
}

// TestGangsThatDoNotFit checks that leases which are not one for each seat within the order's money seat nobody, and are
// all ended: a provider may answer anything.
func TestGangsThatDoNotFit(t *testing.T) {
	t.Parallel()
	for name, spoil := range map[string]func(*jobs.GangFormed){
		"too few":               func(ev *jobs.GangFormed) { ev.Leases = ev.Leases[:1] },
		"one rank twice":        func(ev *jobs.GangFormed) { ev.Leases[1].Rank = 0 },
		"a rank that is not":    func(ev *jobs.GangFormed) { ev.Leases[1].Rank = 2 },
		"a rank far off":        func(ev *jobs.GangFormed) { ev.Leases[1].Rank = 1<<32 - 1 },
		"an older epoch":        func(ev *jobs.GangFormed) { ev.Leases[1].Epoch-- },
		"a newer epoch":         func(ev *jobs.GangFormed) { ev.Leases[1].Epoch++ },
		"more than its cap":     func(ev *jobs.GangFormed) { ev.Leases[1].Most++ },
		"more than all amounts": func(ev *jobs.GangFormed) { ev.Leases[1].Most = 1<<64 - 1 },
		"a successor":           func(ev *jobs.GangFormed) { ev.Leases[1].Chain = market.LeaseID{77} },
		"another gang":          func(ev *jobs.GangFormed) { ev.Gang++ },
	} {
		now := jobs.Now{Time: epoch, Slot: 1000}
		s, fx := jobs.New(plain(2), true, now)
		order := one[jobs.OrderGang](t, fx)
		s, _, _ = s.Step(now, jobs.OrderPlaced{Gang: order.Gang, Order: market.OrderID{1}})
		ev := jobs.GangFormed{Gang: order.Gang}
		for i, seat := range order.Seats {
			id := market.LeaseID{byte(i + 1)}
			ev.Leases = append(ev.Leases, jobs.Lease{
				ID: id, Chain: id, Rank: seat.Rank, Epoch: seat.Epoch, Most: order.Cap / 2, Open: true, Usable: true,
			})
		}
		spoil(&ev)
		s, fx, err := s.Step(now, ev)
		ended := map[market.LeaseID]bool{}
		for _, e := range fx {
			if end, ok := e.(jobs.EndLease); ok {
				ended[end.Chain] = true
			}
		}
		seated := 0
		for _, r := range s.Ranks {
			if !r.Lease.IsZero() {
				seated++
			}
		}
		if err != nil || seated > 0 || len(ended) != len(ev.Leases) {
			t.Errorf("%s: %d ranks have a lease, %d of %d are ended: %v", name, seated, len(ended), len(ev.Leases), err)
		}
	}
}
