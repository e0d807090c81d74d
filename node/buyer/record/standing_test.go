package record

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/node/buyer/jobs"
	"github.com/starling-network/starling/node/job"
)

// otherFile is the name of a file.
const otherFile = "bafkreihdwdcefgh4dqkjv67uzcmw7ojee6xedzdetojuzjevtenxquvyku"

// another is a job with guardians that runs, as this peer has it, and as another supervisor could leave it.
func another(t *testing.T) (j Job, own, theirs jobs.State) {
	t.Helper()
	spec := job.Job{
		Name: "train", Runtime: job.RuntimeWasm, Module: "m.wasm", Blobs: map[string]job.Blob{"m.wasm": {CID: otherFile}},
		Count: 2, Guardians: 3, Resources: job.Resources{Class: "cpu", Units: 1},
		Payment: job.Payment{MaxPrice: 1000, Budget: 1000}, Timeouts: job.Timeouts{Queue: time.Minute, Run: time.Hour},
	}
	j = Job{ID: NewID(), Spec: spec, State: Running, Created: time.Now(), Ranks: make([]Rank, 2)}
	j.Detached = &Detached{Terms: sign.Hash{1}, Escrow: &Place{}}
	p, err := j.Params(genesis, time.Second)
	if err != nil {
		t.Fatal(err)
	}
	own, _ = jobs.New(p, true, jobs.Now{Time: time.Now()})
	own.Created = j.Created.Round(0).UTC()
	own.Phase, own.Started, own.Command.Epoch = jobs.Working, own.Created, 2
	own.Ranks[0] = jobs.Rank{State: jobs.RankRunning, Epoch: 4, Lease: market.LeaseID{1}, Seq: 1}
	own.Ranks[1] = jobs.Rank{
		State: jobs.RankDone, Epoch: 1, Lease: market.LeaseID{2}, Seq: 1, Outputs: []jobs.File{{Path: "/out", CID: otherFile}},
	}
	raw, err := own.Encode()
	if err == nil {
		theirs, err = jobs.Decode(raw)
	}
	if err != nil {
		t.Fatal(err)
	}
	theirs.Command.Epoch = 3
	return j, own, theirs
}

// left is a job as its guardians keep it.
func left(t *testing.T, j Job, st jobs.State, change func(*Standing)) []byte {
	t.Helper()
	work, err := st.Encode()
	if err != nil {
		t.Fatal(err)
	}
	p := StandingOf(j, work)
	if change != nil {
		change(&p)
	}
	raw, err := json.Marshal(p)
	if err != nil {
		t.Fatal(err)
	}
	return raw
}

// A peer takes a job from another supervisor for no more than the job could have come to.
func TestToldByAnotherSupervisor(t *testing.T) {
	t.Parallel()
	output := func(f jobs.File) func(*jobs.State) {
		return func(s *jobs.State) { s.Ranks[0].State, s.Ranks[0].Outputs = jobs.RankDone, []jobs.File{f} }
	}
	for name, c := range map[string]struct {
		work   func(*jobs.State)
		public func(*Standing)
	}{
		"another job":        {work: func(s *jobs.State) { s.Created = s.Created.Add(1) }},
		"more ranks":         {work: func(s *jobs.State) { s.Ranks = append(s.Ranks, jobs.Rank{State: jobs.RankWaiting}) }},
		"a state of its own": {work: func(s *jobs.State) { s.Phase = 99 }},
		"no outcome":         {work: func(s *jobs.State) { s.Phase = jobs.Settling }},
		"rounds it lacks":    {work: func(s *jobs.State) { s.Round = 2 }},
		"no such rank state": {work: func(s *jobs.State) { s.Ranks[0].State = 99 }},
		"the last epoch":     {work: func(s *jobs.State) { s.Ranks[0].Epoch = ^uint32(0) }},
		"restarts":           {work: func(s *jobs.State) { s.Ranks[0].Restarts = ^uint32(0) }},
		"another program":    {work: func(s *jobs.State) { s.Params.Restart.Max++ }},
		"no time":            {work: func(s *jobs.State) { s.Params.Run = 0 }},
		"a file of no name":  {work: output(jobs.File{Path: "/out", CID: "../.."})},
		"no name of a file":  {work: output(jobs.File{Path: "/out", CID: "x"})},
		"a negative file":    {work: output(jobs.File{Path: "/out", CID: otherFile, Bytes: -1})},
		"a path elsewhere":   {work: output(jobs.File{Path: "../out", CID: otherFile})},
		"too many files":     {work: func(s *jobs.State) { s.Ranks[0].Outputs = make([]jobs.File, 17) }},
		"no work":            {public: func(p *Standing) { p.Work = nil }},
		"no escrow":          {public: func(p *Standing) { p.Detached.Escrow = nil }},
		"nothing of a rank":  {public: func(p *Standing) { p.Ranks = p.Ranks[:1] }},
		"a carry of no name": {public: func(p *Standing) { p.Carry = &Blob{CID: "x"} }},
	} {
		j, own, theirs := another(t)
		own.Command.Owner = false
		if c.work != nil {
			c.work(&theirs)
		}
		if _, p, err := AcceptStanding(j, own, left(t, j, theirs, c.public)); err == nil || p != nil {
			t.Errorf("%s: %+v", name, p)
		}
	}
}

// What is lower than this peer knows, or cannot be shown, is left out of what another supervisor says.
func TestStandingKeepsOwn(t *testing.T) {
	t.Parallel()
	j, own, theirs := another(t)
	theirs.Ranks[0].Epoch, theirs.Ranks[1] = 1, jobs.Rank{State: jobs.RankWaiting, Epoch: 9}
	theirs.Params.LostAfter++ // another peer, another configuration
	st, p, err := AcceptStanding(j, own, left(t, j, theirs, func(p *Standing) {
		p.Ranks[0].Log, p.Ranks[1].Log = &Blob{CID: "x"}, &Blob{CID: otherFile}
		p.Ranks[0].Route, p.Ranks[0].Units.Model = "\x1b[31mred", "\x1b[31mred"
	}))
	if err != nil || p == nil {
		t.Fatalf("%+v, %v", p, err)
	}
	if st.Ranks[0].Epoch != 4 || st.Ranks[1].State != jobs.RankDone || st.Ranks[1].Epoch != 9 || len(st.Ranks[1].Outputs) != 1 {
		t.Errorf("ranks %+v", st.Ranks)
	}
	if st.Params != own.Params {
		t.Errorf("params %+v, own %+v", st.Params, own.Params)
	}
	red := Clean("\x1b[31mred")
	if k := p.Ranks[0]; k.Log != nil || p.Ranks[1].Log == nil || k.Route != red || k.Units.Model != red {
		t.Errorf("of rank 0 it says %+v", k)
	}

	theirs.Command.Epoch = own.Command.Epoch
	if _, p, err := AcceptStanding(j, own, left(t, j, theirs, nil)); p != nil || err != nil {
		t.Errorf("what this peer said itself is news to it: %v", err)
	}
	if _, p, err := AcceptStanding(j, own, []byte("{")); err == nil || p != nil {
		t.Error("no JSON")
	}
}

// An owner keeps where its money is; a guardian learns it from the last supervisor.
func TestStandingAmends(t *testing.T) {
	t.Parallel()
	for _, owner := range []bool{true, false} {
		j, own, theirs := another(t)
		raw := left(t, j, theirs, func(p *Standing) {
			p.Detached.Escrow = &Place{Opened: 7}
			p.Ranks[1].Log, p.Orders = &Blob{CID: otherFile}, []market.OrderID{{5}}
		})
		_, p, err := AcceptStanding(j, own, raw)
		if err != nil {
			t.Fatal(err)
		}
		before := j.Detached
		p.Amend(&j, owner)
		if d := j.Detached; (d.Escrow.Opened == 7) == owner || before.Escrow.Opened != 0 {
			t.Errorf("owner %v: %+v", owner, d)
		}
		if j.Ranks[1].Log == nil || len(j.Orders) != 1 {
			t.Errorf("owner %v: %+v, orders %v", owner, j.Ranks[1], j.Orders)
		}
	}
}
