package probe

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/libp2p/go-libp2p/core/peer"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/node/buyer/record"
	"github.com/starling-network/starling/node/exclusive"
	"github.com/starling-network/starling/node/nodepb"
	"github.com/starling-network/starling/node/protocol"
	"github.com/starling-network/starling/node/store"
	"github.com/starling-network/starling/p2p/p2ptest"
	"github.com/starling-network/starling/p2p/stream"
	rules "github.com/starling-network/starling/verify/exclusive"
	"github.com/starling-network/starling/verify/reputation"
)

var (
	buyer    = sign.NewPrivate([32]byte{1})
	provider = sign.NewPrivate([32]byte{2})
	domain   = market.Genesis{Network: "test", Symbol: "STAR", SlotMillis: 100, IntervalSlots: 10}.Domain()
)

// rank is a Rank with a journal in memory.
type rank struct {
	record.Exclusive
	journal *store.Memory
	broken  bool // the journal takes nothing
	ready   atomic.Bool
	updates int
	notes   []string
	faults  int
	shared  int
}

func (r *rank) Record() record.Exclusive { return r.Exclusive }

func (r *rank) Update(ctx context.Context, change func(*record.Exclusive), more ...store.Put) error {
	if r.updates++; r.broken {
		return store.ErrFull
	}
	change(&r.Exclusive)
	return r.journal.Write(ctx, append(more, store.Put{Kind: "rank", Key: "0", Value: []byte{1}})...)
}

func (r *rank) Ready() bool   { return r.ready.Load() }
func (r *rank) Note(s string) { r.notes = append(r.notes, s) }
func (r *rank) Fault()        { r.faults++ }
func (r *rank) Shared(string) { r.shared++ }

// facts and clock are what else a Prober needs.
type facts struct{ all []reputation.Fact }

func (f *facts) Record(x reputation.Fact) { f.all = append(f.all, x) }

type clock struct{}

func (clock) Now(time.Time) (market.Slot, error) { return 77, nil }

func newProber() (*Prober, *rank, *facts) {
	r, f := &rank{journal: store.NewMemory()}, &facts{}
	core := market.LeaseCore{
		Version: market.LeaseVersion, Units: 2, Order: market.OrderID{1}, Buyer: buyer.Key(), Provider: provider.Key(),
		Payout: sign.Key{3}, UnitsRoot: sign.Hash{1}, Terms: sign.Hash{1}, VoucherKeys: sign.Hash{1},
		Rate: 1, Cap: 1000, Start: 10, ActivateBefore: 20, End: 1000,
	}
	r.Lease = core.ID()
	return &Prober{
		Rank: r, Domain: domain, Key: buyer, Clock: clock{}, Facts: f, Log: p2ptest.Quiet(), Lease: market.Lease{Core: core},
		Class: "gpu/x",
	}, r, f
}

// Records of interest keep their places; the others share the latest 64, and all are listed in their order.
func TestRecords(t *testing.T) {
	t.Parallel()
	p, r, f := newProber()
	probe := func(n uint64, wrong bool) {
		rec := rules.Record{Lease: p.Lease, Question: rules.Question{Lease: p.id(), Execution: 1, Number: n, Shape: rules.Fit(rules.CPU, 0)}, Elapsed: time.Second}
		got := exclusive.Probed{Record: rec}
		if wrong {
			got.Wrong = rules.ErrWrong
		}
		if err := p.take(t.Context(), []exclusive.Probed{got}, nil, func(*record.Exclusive) {}); err != nil {
			t.Fatal(err)
		}
	}
	probe(1, true)
	for n := uint64(2); n < 2+2*keptProbes; n++ {
		probe(n, false)
	}
	all, err := List(t.Context(), r.journal, p.id(), market.LeaseID{9})
	if err != nil || len(all) != keptProbes+1 || all[0].Question.Number != 1 || all[keptProbes].Question.Number != 1+2*keptProbes {
		t.Fatalf("%d records: %v", len(all), err)
	}
	if r.Wrong != 1 || len(f.all) != 1 || f.all[0].Kind != reputation.AuditFailed || f.all[0].Subject != provider.Key() || r.shared != 1 {
		t.Errorf("%+v, facts %+v, %d times shared", r.Exclusive, f.all, r.shared)
	}
	if len(r.notes) != 1 || !strings.Contains(r.notes[0], "wrong answer") {
		t.Errorf("notes %q", r.notes)
	}
}

// An error counts as what it is, and says nothing else about the units.
func TestMissed(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		err        error
		want       func(x record.Exclusive) bool
		neverAgain bool
	}{
		"unanswered": {&unanswered{errors.New("cut")}, func(x record.Exclusive) bool { return x.Unanswered == 1 }, false},
		"full":       {exclusive.ErrMemory, func(x record.Exclusive) bool { return x.Full == 1 }, false},
		"full, too":  {stream.Refuse(exclusive.CodeMemory, "full"), func(x record.Exclusive) bool { return x.Full == 1 }, false},
		"paused":     {stream.Refuse("paused", "frozen"), func(x record.Exclusive) bool { return x.Note == "its provider: frozen" }, false},
		"busy":       {stream.Refuse(stream.CodeBusy, "busy"), func(x record.Exclusive) bool { return x.Note != "" }, false},
		"refused":    {stream.Refuse("never", "\x1b[2Jno"), func(x record.Exclusive) bool { return !strings.Contains(x.Note, "\x1b") }, true},
		"malformed":  {&stream.Malformed{Reason: "what"}, func(x record.Exclusive) bool { return x.Note == "" }, true},
		"lost":       {stream.ErrUnreachable, func(x record.Exclusive) bool { return x.Note == "" && x.Unanswered == 0 }, false},
	} {
		p, r, _ := newProber()
		err := p.take(t.Context(), nil, c.err, func(x *record.Exclusive) { x.Asked = 5 })
		if !errors.Is(err, c.err) || !c.want(r.Exclusive) || r.Asked != 5 || final(err) != c.neverAgain {
			t.Errorf("%s: %+v, %v, final %v", name, r.Exclusive, err, final(err))
		}
	}
}

// A provider cannot answer with other hardware than the leased one.
func TestCheckDevices(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		gauge   uint32
		devices int
		gpus    bool
		ok      bool
	}{
		"processor":          {uint32(rules.CPU), 1, false, true},
		"processors":         {uint32(rules.CPU), 2, false, false},
		"processor for GPUs": {uint32(rules.CPU), 1, true, false},
		"both GPUs":          {uint32(rules.GPU), 2, true, true},
		"one of two GPUs":    {uint32(rules.GPU), 1, true, false},
		"unknown kind":       {uint32(rules.GPU) + 1, 2, true, false},
	} {
		p, _, _ := newProber()
		p.GPUs = c.gpus
		if err := p.checkDevices(c.gauge, c.devices); (err == nil) != c.ok || err != nil && !errors.Is(err, exclusive.ErrProtocol) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// snapshot is a provider's signed report of an execution's one device.
func snapshot(t *testing.T, p *Prober, when rules.When, change func(*rules.Snapshot)) *nodepb.SignedSnapshot {
	t.Helper()
	s := rules.Snapshot{When: when, Lease: p.id(), Execution: 1, At: 5, CPUs: 8, MemoryMiB: 1024, CPUModel: "EPYC", Devices: []rules.Device{{
		Unit: market.NewUnitID(provider.Key(), "gpu/x", "GPU-1", 0), UUID: "GPU-1", Model: "H100", Tells: rules.TellsECC,
	}}}
	if change != nil {
		change(&s)
	}
	sig, err := s.Sign(domain, provider)
	if err != nil {
		t.Fatal(err)
	}
	return &nodepb.SignedSnapshot{Snapshot: s.Marshal(), Signature: sig[:]}
}

// Reports are journalled and countersigned once, broken hardware is a fault, and other reports are ignored.
func TestExamine(t *testing.T) {
	t.Parallel()
	p, r, _ := newProber()
	before := snapshot(t, p, rules.Before, nil)
	for name, ex := range map[string]*nodepb.Execution{
		"torn":                {Seq: 1, Before: &nodepb.SignedSnapshot{Snapshot: before.Snapshot[1:], Signature: before.Signature}},
		"unsigned":            {Seq: 1, Before: &nodepb.SignedSnapshot{Snapshot: before.Snapshot}},
		"another's signature": {Seq: 1, Before: &nodepb.SignedSnapshot{Snapshot: before.Snapshot, Signature: make([]byte, sign.SignatureSize)}},
		"another execution":   {Seq: 2, Before: before},
		"the other end":       {Seq: 1, After: before},
	} {
		if p.Examine(ex); r.updates > 0 {
			t.Errorf("%s was journalled", name)
		}
	}
	p.Units = []market.UnitID{{9}}
	if p.Examine(&nodepb.Execution{Seq: 1, Before: before}); r.updates > 0 {
		t.Error("a unit of another lease was journalled")
	}
	p.Units, r.broken = nil, true
	if n := len(p.Examine(&nodepb.Execution{Seq: 1, Before: before})); n > 0 || r.Health != nil {
		t.Errorf("%d signatures are delivered that the journal does not have", n)
	}
	r.broken = false
	after := snapshot(t, p, rules.After, func(s *rules.Snapshot) { s.Devices[0].Uncorrectable = 2 })
	ex := &nodepb.Execution{Seq: 1, Before: before, After: after}
	if n := len(p.Examine(ex)); n != 2 || r.faults != 1 || !slices.Equal(r.notes, []string{"its hardware: 2 uncorrectable memory errors"}) {
		t.Errorf("%d signatures, %d faults, notes %q", n, r.faults, r.notes)
	}
	if err := r.Health.After.Verify(domain, buyer.Key(), r.Health.After.BuyerSig); err != nil {
		t.Errorf("the buyer's signature: %v", err)
	}
	if n := len(p.Examine(ex)); n != 0 || r.faults != 1 {
		t.Errorf("known reports are taken again: %d", n)
	}
	strange := snapshot(t, p, rules.Before, func(s *rules.Snapshot) { s.Execution, s.Devices[0].UUID = 2, "GPU-2" })
	if p.Examine(&nodepb.Execution{Seq: 2, Before: strange}); len(r.notes) != 2 || !strings.Contains(r.notes[1], "GPU-2, is not the unit that was leased") {
		t.Errorf("notes %q", r.notes)
	}
}

// A prober asks again and again while its program is ready, pays before it asks, and stops for a provider that will
// never answer.
func TestRun(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		net := p2ptest.NewNet(t, 2, 10*time.Millisecond)
		net.ConnectAll()
		answers := []error{stream.Refuse("paused", "frozen"), stream.Refuse(stream.CodeBusy, "busy"), stream.Refuse("never", "no probes")}
		var asked atomic.Int32
		live := protocol.Live.Serve(net.Hosts[1], p2ptest.Network,
			func(context.Context, peer.ID, *nodepb.LiveRequest, func(*nodepb.LiveReply) (*stream.Conn, error)) error {
				return answers[min(int(asked.Add(1)), len(answers))-1]
			}, stream.Limits{Logger: p2ptest.Quiet()})
		t.Cleanup(live.Close)
		p, r, _ := newProber()
		p.Host, p.Tag, p.Peer = net.Hosts[0], p2ptest.Network, net.Addr(1).ID
		r.Budget.Lease = 1000 * time.Hour
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Hour)
		defer cancel()
		done := make(chan struct{})
		go func() {
			defer close(done)
			p.Run(ctx, 1)
		}()
		time.Sleep(time.Hour)
		if asked.Load() > 0 {
			t.Error("a program that does not run is probed")
		}
		r.ready.Store(true)
		<-done
		if ctx.Err() != nil || int(asked.Load()) != len(answers) || r.Asked != uint64(len(answers)) || r.Exclusive.Note != "its provider: no probes" {
			t.Errorf("asked %d times: %+v, %v", asked.Load(), r.Exclusive, ctx.Err())
		}
		p.deliver(1, &record.Snapshot{}) // the provider does not take it
	})
}
