package jobs_test

import (
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"
	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/node/buyer/jobs"
)

var epoch = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// TestScripts plays the scenarios in testdata/*.txt; -rewrite writes the effects as the expected ones. A slot lasts
// 100 ms, an interval has 10, the rate is 1 a slot, and the queue time is 20 s. Providers and leases are letters: 1/b.2
// is rank 1, lease b, execution 2; 1@3 is rank 1 under epoch 3.
//
//	new ranks=2 rounds=2 policy=on-failure max=1 pull=30 start=30 run=60 budget=300 checked cluster=ray autostop=60 idle=60
//	new … guarded standbys=2      new … guardian: this peer is not the owner      new … free
//	placed g1      formed g1 a b      unformed g1 short      cost a most=40 settled      leaselost a defaulted
//	renewed a A      norenewal a      seen 0 healthy      exited 0 code=1 reason=killed broken hopeless      gathered 0
//	lost 0 refused      silent 0      heard 0      frozen 0: the provider refuses to      kept 0: a checkpoint
//	reduced      unreduced program      use busy      stop      pause      resume      extend by=60 budget=9      scale to=3
//	wanted 0 most=9      replica 0 owed=4      judged 0 disputed      counted receipts=2      released      anchored
//	engaged      unengaged      commandlost epoch=2      granted epoch=3 theirs: with the standing of `standing`
//	tick 20s      crash      standing      state: phase, time to Next, ranks
//	not reported: signed a A      taken c rank=1 epoch=2      down a: the chain can be used no longer      slept 90s
func TestScripts(t *testing.T) {
	t.Parallel()
	datadriven.Walk(t, "testdata", func(t *testing.T, path string) {
		if !strings.HasSuffix(path, ".txt") {
			t.Skip("not a script")
		}
		p := &player{}
		datadriven.RunTest(t, path, p.run)
	})
}

type player struct {
	s        jobs.State
	now      jobs.Now
	leases   []jobs.Lease // as the lease room knows them
	orders   map[jobs.GangID]jobs.OrderGang
	standing []byte
}

func leaseNamed(name string) (id market.LeaseID) {
	copy(id[:], name)
	return id
}

func nameOf(id market.LeaseID) string { return strings.TrimRight(string(id[:]), "\x00") }

func showExec(x jobs.Exec) string { return fmt.Sprintf("%d/%s.%d", x.Rank, nameOf(x.Lease), x.Seq) }

// args are the words of a directive, and its key=value pairs.
type args struct {
	t *testing.T
	d *datadriven.TestData
}

func (a args) word(i int) string {
	n := 0
	for _, arg := range a.d.CmdArgs {
		if len(arg.Vals) > 0 {
			continue
		}
		if n == i {
			return arg.Key
		}
		n++
	}
	return ""
}

func (a args) words() (out []string) {
	for i := 0; a.word(i) != ""; i++ {
		out = append(out, a.word(i))
	}
	return out
}

func (a args) number(key string, def int) int {
	if a.d.HasArg(key) {
		a.d.ScanArgs(a.t, key, &def)
	}
	return def
}

func (a args) seconds(key string, def int) time.Duration {
	return time.Duration(a.number(key, def)) * time.Second
}

func (a args) text(key string) (s string) {
	if a.d.HasArg(key) {
		a.d.ScanArgs(a.t, key, &s)
	}
	return s
}

func (a args) amount(key string) market.Amount { return market.Amount(a.number(key, 0)) }

func (a args) gang() jobs.GangID {
	n, err := strconv.Atoi(strings.TrimPrefix(a.word(0), "g"))
	if err != nil {
		a.t.Fatalf("%s: gang %q", a.d.Pos, a.word(0))
	}
	return jobs.GangID(n)
}

func (a args) rank() uint32 {
	n, err := strconv.Atoi(a.word(0))
	if err != nil {
		a.t.Fatalf("%s: rank %q", a.d.Pos, a.word(0))
	}
	return uint32(n)
}

// params are those of `new`.
func (a args) params() jobs.Params {
	p := jobs.Params{
		Count: uint32(a.number("ranks", 1)), Rounds: uint32(a.number("rounds", 1)), Standbys: uint32(a.number("standbys", 0)),
		Checked: a.d.HasArg("checked"), Guarded: a.d.HasArg("guarded"),
		Restart: jobs.Restart{
			Max: uint32(a.number("max", 3)), OnFailure: a.text("policy") == "on-failure", Always: a.text("policy") == "always",
			Backoff: time.Second, MostBackoff: 5 * time.Minute,
		},
		Queue: a.seconds("queue", 20), Pull: a.seconds("pull", 0), Start: a.seconds("start", 0), Run: a.seconds("run", 120), Idle: a.seconds("idle", 0),
		Grace: 2 * time.Second, LostAfter: 5 * time.Second, Rate: 1_000_000, Budget: market.Amount(a.number("budget", 10000)),
		SlotMillis: 100, Interval: 10, Seed: 7,
	}
	p.Reduce = p.Rounds > 1 && !a.d.HasArg("unreduced")
	if a.d.HasArg("free") {
		p.Rate, p.Budget = 0, 0
	}
	engines := map[string]jobs.Engine{
		"ray": {HeadEnds: true, Binds: true, HeadFirst: true}, "none": {HeadEnds: true}, "mpi": {Binds: true}, "plain": {},
	}
	if name := a.text("cluster"); name != "" {
		c, ok := engines[name]
		if !ok {
			a.t.Fatalf("%s: engine %q", a.d.Pos, name)
		}
		c.Autostop = a.seconds("autostop", 0)
		p.Cluster = &c
	}
	if err := p.Validate(); err != nil {
		a.t.Fatalf("%s: %v", a.d.Pos, err)
	}
	return p
}

func (p *player) lease(name string) *jobs.Lease {
	for i := range p.leases {
		if p.leases[i].ID == leaseNamed(name) {
			return &p.leases[i]
		}
	}
	return nil
}

// known returns a lease that must be there.
func (p *player) known(a args, name string) *jobs.Lease {
	l := p.lease(name)
	if l == nil {
		a.t.Fatalf("%s: no lease %q", a.d.Pos, name)
	}
	return l
}

func (p *player) exec(a args) jobs.Exec {
	i := a.rank()
	if int(i) >= len(p.s.Ranks) {
		a.t.Fatalf("%s: no rank %d", a.d.Pos, i)
	}
	return jobs.Exec{Rank: i, Lease: p.s.Ranks[i].Lease, Seq: p.s.Ranks[i].Seq}
}

func (p *player) run(t *testing.T, d *datadriven.TestData) string {
	a := args{t, d}
	was := p.status()
	var fx []jobs.Effect
	switch d.Cmd {
	case "new":
		*p = player{now: jobs.Now{Time: epoch, Slot: 1000}, orders: map[jobs.GangID]jobs.OrderGang{}}
		p.s, fx = jobs.New(a.params(), !d.HasArg("guardian"), p.now)
		was = ""
	case "state":
		return p.show()
	case "signed", "taken", "down", "slept":
		p.unreported(a)
		return ""
	case "standing":
		var err error
		if p.standing, err = p.s.Encode(); err != nil {
			t.Fatal(err)
		}
		return ""
	default:
		ev := p.event(a)
		next, out, err := p.s.Step(p.now, ev)
		if err != nil {
			return fmt.Sprintf("error: %v\n", err)
		}
		p.s, fx = next, out
	}
	var b strings.Builder
	for _, e := range fx {
		b.WriteString(p.effect(e))
	}
	if now := p.status(); now != was {
		fmt.Fprintf(&b, "[%s]\n", now)
	}
	return b.String()
}

// event is the event of a directive.
func (p *player) event(a args) jobs.Event {
	switch a.d.Cmd {
	case "tick":
		p.sleep(a)
		return jobs.Ticked{}
	case "crash":
		b, err := p.s.Encode()
		if err != nil {
			a.t.Fatal(err)
		}
		if p.s, err = jobs.Decode(b); err != nil {
			a.t.Fatalf("%s: %v", a.d.Pos, err)
		}
		return jobs.Recovered{Leases: p.leases}
	case "stop":
		return jobs.StopRequested{Req: 1}
	case "pause", "resume":
		return jobs.PauseRequested{Req: 1, Pause: a.d.Cmd == "pause"}
	case "extend":
		return jobs.ExtendRequested{Req: 1, By: a.seconds("by", 60), Budget: a.amount("budget")}
	case "scale":
		return jobs.ScaleRequested{Req: 1, Count: uint32(a.number("to", 1)), Budget: a.amount("budget")}
	case "commandlost":
		return jobs.CommandLost{Epoch: uint64(a.number("epoch", 0))}
	case "granted":
		ev := jobs.CommandGranted{Epoch: uint64(a.number("epoch", 0)), Leases: p.leases}
		if a.d.HasArg("theirs") {
			theirs, err := jobs.Merge(p.s, p.standing, false)
			if err != nil {
				a.t.Fatalf("%s: %v", a.d.Pos, err)
			}
			ev.Theirs = &theirs
		}
		return ev
	case "engaged":
		return jobs.GuardiansEngaged{Epoch: 1}
	case "unengaged":
		return jobs.EngagementFailed{Reason: "nobody guards"}
	case "placed", "formed", "unformed", "cost", "leaselost", "renewed", "norenewal":
		return p.leaseEvent(a)
	}
	return p.workEvent(a)
}

func (p *player) sleep(a args) {
	d, err := time.ParseDuration(a.word(0))
	if err != nil {
		a.t.Fatalf("%s: %v", a.d.Pos, err)
	}
	p.now.Time = p.now.Time.Add(d)
	p.now.Slot += market.Slot(d / (100 * time.Millisecond))
}

// unreported is something of which the job hears later, or by Recovered.
func (p *player) unreported(a args) {
	switch a.d.Cmd {
	case "signed":
		p.successor(a)
	case "taken":
		id := leaseNamed(a.word(0))
		p.leases = append(p.leases, jobs.Lease{
			ID: id, Chain: id, Rank: uint32(a.number("rank", 0)), Epoch: uint32(a.number("epoch", 0)), Provider: sign.Key{id[0]},
			End: p.now.Slot + 1000, Rate: p.s.Params.Rate, Most: 1000, Open: true, Usable: true,
		})
	case "down":
		p.known(a, a.word(0)).Usable = false
	case "slept":
		p.sleep(a)
	}
}

// successor returns the lease that a renewal asks for, which the lease room has from then on.
func (p *player) successor(a args) jobs.Lease {
	if known := p.lease(a.word(1)); known != nil {
		return *known
	}
	next := *p.known(a, a.word(0))
	for _, n := range p.s.Renewals {
		if n.Of == next.ID {
			next.End, next.Most = n.Until, n.Cap
		}
	}
	next.ID = leaseNamed(a.word(1))
	p.leases = append(p.leases, next)
	return next
}

func (p *player) leaseEvent(a args) jobs.Event {
	name := a.word(0)
	switch a.d.Cmd {
	case "placed":
		return jobs.OrderPlaced{Gang: a.gang(), Order: market.OrderID{byte(a.gang())}}
	case "formed":
		g, formed := p.orders[a.gang()], jobs.GangFormed{Gang: a.gang()}
		if len(g.Seats)+1 != len(a.words()) {
			a.t.Fatalf("%s: gang %d has %d seats", a.d.Pos, g.Gang, len(g.Seats))
		}
		for i, n := range a.words()[1:] {
			l := jobs.Lease{
				ID: leaseNamed(n), Chain: leaseNamed(n), Rank: g.Seats[i].Rank, Epoch: g.Seats[i].Epoch, Provider: sign.Key{n[0]},
				End: p.now.Slot + market.Slot(g.Slots), Rate: p.s.Params.Rate, Open: true, Usable: true,
			}
			l.Most, _ = l.Rate.Owed(g.Slots)
			formed.Leases = append(formed.Leases, l)
		}
		p.leases = append(p.leases, formed.Leases...)
		return formed
	case "unformed":
		return jobs.GangFailed{Gang: a.gang(), Why: failures[a.word(1)], Reason: a.word(1)}
	case "cost":
		l := p.known(a, name)
		l.Most, l.Usable = a.amount("most"), false
		l.Open = !a.d.HasArg("settled")
		return jobs.LeaseCost{Lease: l.ID, Most: l.Most, Settled: !l.Open}
	case "leaselost":
		for i := range p.leases {
			if l := &p.leases[i]; l.Chain == leaseNamed(name) {
				l.Usable = false
			}
		}
		return jobs.LeaseLost{Chain: leaseNamed(name), Cause: causes[a.word(1)], Reason: a.word(1)}
	case "renewed":
		return jobs.LeaseRenewed{Of: leaseNamed(name), Next: p.successor(a)}
	}
	return jobs.RenewalRefused{Of: leaseNamed(name), Reason: "drained"}
}

func (p *player) workEvent(a args) jobs.Event {
	switch a.d.Cmd {
	case "seen":
		return jobs.ExecutionSeen{Exec: p.exec(a), Stage: stages[a.word(1)]}
	case "exited":
		return jobs.ExecutionExited{Exec: p.exec(a), Exit: jobs.Exit{
			Code: a.number("code", 0), Reason: a.text("reason"), Broken: a.d.HasArg("broken"), Hopeless: a.d.HasArg("hopeless"),
		}}
	case "gathered":
		return jobs.OutputsGathered{Exec: p.exec(a), Outputs: []jobs.File{{Path: "/out", CID: "c"}}}
	case "lost":
		return jobs.ExecutionLost{Exec: p.exec(a), Cause: causes[a.word(1)], Reason: a.word(1)}
	case "silent":
		return jobs.ProviderSilent{Exec: p.exec(a)}
	case "heard":
		return jobs.ProviderHeard{Exec: p.exec(a)}
	case "frozen":
		return jobs.FreezeRefused{Exec: p.exec(a), Reason: "cannot"}
	case "kept":
		return jobs.CheckpointKept{Exec: p.exec(a), Number: 1, File: jobs.File{CID: "k"}}
	case "reduced":
		return jobs.Reduced{Round: p.s.Round, Carry: jobs.File{CID: "c"}}
	case "unreduced":
		return jobs.ReduceFailed{Round: p.s.Round, Code: jobs.CodeProgram, Reason: "reduce: exit code 1"}
	case "use":
		return jobs.JobUse{Busy: a.word(0) == "busy"}
	case "wanted":
		return jobs.ReplicaWanted{Rank: a.rank(), Attempt: 1, Most: a.amount("most")}
	case "replica":
		return jobs.ReplicaEnded{Rank: a.rank(), Attempt: 1, Owed: a.amount("owed")}
	case "judged":
		return jobs.ResultJudged{Rank: a.rank(), Disputed: a.d.HasArg("disputed"), Reason: "no majority"}
	case "counted":
		return jobs.AccountCounted{Owed: 100, Receipts: uint64(a.number("receipts", 10))}
	case "released":
		return jobs.EscrowReleased{Paid: 100}
	case "anchored":
		return jobs.ReceiptsAnchored{Tx: "t"}
	}
	a.t.Fatalf("%s: unknown directive %s", a.d.Pos, a.d.Cmd)
	return nil
}
