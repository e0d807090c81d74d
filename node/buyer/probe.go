package buyer

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/node/exclusive"
	"github.com/starling-network/starling/node/job"
	"github.com/starling-network/starling/node/nodepb"
	"github.com/starling-network/starling/node/protocol"
	"github.com/starling-network/starling/node/store"
	"github.com/starling-network/starling/p2p/stream"
	rules "github.com/starling-network/starling/verify/exclusive"
	"github.com/starling-network/starling/verify/reputation"
)

// While a rank's program runs, its buyer measures whether the units are there for it alone (verify/exclusive), as Spec.Probes says.

const (
	kindProbe = "probe" // exclusive.Record by lease id and place, see placeOf
	// keptProbes is how many records of a lease are kept that say nothing special, the latest, and how many that do.
	keptProbes = 64
	// firstCost is what a probe is taken to cost before one was made.
	firstCost = 100 * time.Millisecond
	// probeTime bounds one probe.
	probeTime = 40 * time.Second
	// complaints is how many alarms it takes until the buyer holds them against the provider: each but the first needs two more slow
	// probes, or one after two.
	complaints = 2
)

// Exclusive is what a buyer found out about a rank's units while it had them.
type Exclusive struct {
	Lease      market.LeaseID `json:"lease"` // the first of its line
	Watch      rules.Watch    `json:"watch"`
	Budget     rules.Budget   `json:"budget"`
	Asked      uint64         `json:"asked"`                // questions
	Unanswered int            `json:"unanswered,omitempty"` // of them
	Full       int            `json:"full,omitempty"`       // of them: the program had left the devices no memory
	Wrong      int            `json:"wrong,omitempty"`      // answers
	Note       string         `json:"note,omitempty"`       // why there are none
	Health     *Health        `json:"health,omitempty"`     // nil: the provider said nothing of its devices
}

// Text says it in a line, for a person; "" where there is nothing to say.
func (x *Exclusive) Text() string {
	if x == nil {
		return ""
	}
	text := x.Watch.Text()
	add := func(more string) {
		if text != "" {
			text += "; "
		}
		text += more
	}
	if x.Wrong > 0 {
		add(fmt.Sprintf("%d wrong answers", x.Wrong))
	}
	if x.Unanswered > 0 {
		add(fmt.Sprintf("%d not answered", x.Unanswered))
	}
	if x.Full > 0 {
		add(fmt.Sprintf("%d not possible beside the program, which had filled the devices' memory", x.Full))
	}
	if x.Note != "" {
		add(x.Note)
	}
	return text
}

// probing probes an execution of rank i until what it returns is called.
func (s *supervisor) probing(ctx context.Context, i int, l *bought, seq uint64) (stop func()) {
	if s.snapshot().Spec.Probes == job.ProbesOff {
		return func() {}
	}
	ctx, cancel := context.WithCancel(ctx)
	over := context.AfterFunc(l.ctx, cancel)
	done := make(chan struct{})
	go func() {
		defer close(done)
		s.probe(ctx, i, l, seq)
	}()
	return func() {
		over()
		cancel()
		<-done
	}
}

// exclusive is what is known of rank i under a lease.
func (s *supervisor) exclusive(i int, l *bought) Exclusive {
	if ranks := s.snapshot().Ranks; i < len(ranks) && ranks[i].Exclusive != nil && ranks[i].Exclusive.Lease == l.first {
		return *ranks[i].Exclusive
	}
	g := s.b.cfg.Genesis
	return Exclusive{Lease: l.first, Budget: rules.Budget{Lease: time.Duration(l.core.Slots()*g.SlotMillis) * time.Millisecond}}
}

// update changes what is known of rank i under a lease, and journals it with more.
func (s *supervisor) update(ctx context.Context, i int, l *bought, change func(*Exclusive), more ...store.Put) error {
	return s.save(ctx, func(j *Job) {
		if i >= len(j.Ranks) { // a cluster was scaled down
			return
		}
		x := Exclusive{}
		if was := j.Ranks[i].Exclusive; was != nil && was.Lease == l.first {
			x = *was
		} else {
			g := s.b.cfg.Genesis
			x = Exclusive{Lease: l.first, Budget: rules.Budget{Lease: time.Duration(l.core.Slots()*g.SlotMillis) * time.Millisecond}}
		}
		change(&x)
		j.Ranks[i].Exclusive = &x
	}, more...)
}

// probe asks at random instants.
func (s *supervisor) probe(ctx context.Context, i int, l *bought, seq uint64) {
	log := s.b.cfg.Log.With("job", s.trace.job, "rank", i, "lease", l.first)
	for cost := firstCost; ; {
		x := s.exclusive(i, l)
		if pause(ctx, x.Budget.Gap(cost, x.Watch.InARow > 0 || x.Watch.Known() == 0, random())) != nil {
			return
		}
		j := s.snapshot()
		if j.Ranks[i].Live.Phase != "running" || j.Cluster != nil && j.Cluster.Ready.IsZero() || !x.Budget.Allows(cost) {
			continue
		}
		// What it will cost is journalled before it is spent, and set right afterwards.
		if err := s.update(ctx, i, l, func(x *Exclusive) { x.Asked, x.Budget.Spent = x.Asked+1, x.Budget.Spent+cost }); err != nil {
			log.Warn("a probe is not asked, for it would not be journalled", "err", err)
			continue
		}
		got, err := s.question(ctx, l, seq, x)
		if ctx.Err() != nil {
			return
		}
		guess := cost
		if got.took > 0 {
			cost = got.took
		}
		paid := func(x *Exclusive) {
			x.Budget.Spent = max(x.Budget.Spent+cost-guess, 0)
			x.Watch.Proven = got.proven
		}
		if err = s.take(ctx, i, l, got.records, err, paid); err != nil {
			log.Info("a probe says nothing", "err", err)
			var no *stream.Refused
			var bad *stream.Malformed
			if errors.As(err, &no) && no.Code != stream.CodeBusy && no.Code != stream.CodeClosing && no.Code != "paused" && no.Code != exclusive.CodeMemory || errors.As(err, &bad) {
				return // and never will
			}
		}
	}
}

// probed is what came of a question.
type probed struct {
	records []exclusive.Probed // of each device
	took    time.Duration      // what it cost of the program's time, at most; 0 when nothing was asked
	proven  uint64             // operations a second that audits proved of each device; 0: not known
}

// question asks one of every device of the lease.
func (s *supervisor) question(ctx context.Context, l *bought, seq uint64, x Exclusive) (p probed, err error) {
	ctx, cancel := context.WithTimeout(ctx, probeTime)
	defer cancel()
	b := s.b
	p.proven = x.Watch.Proven
	at, err := b.cfg.Slots.Now(time.Now())
	if err != nil {
		return p, err
	}
	signed, err := b.firstOf(l)
	if err != nil {
		return p, err
	}
	b.cfg.Host.Forgive(l.peer)
	begun := time.Now()
	reply, conn, err := protocol.Live.Open(ctx, b.cfg.Host, b.tag, l.peer, &nodepb.LiveRequest{Lease: l.first[:], Seq: seq,
		Op: &nodepb.LiveRequest_Probe_{Probe: &nodepb.LiveRequest_Probe{}}})
	if err != nil {
		return p, err
	}
	defer conn.Abort()
	p.took = time.Since(begun)
	kind, devices := rules.Kind(reply.Gauge), max(int(reply.Devices), 1)
	proven, vram := l.hardware()
	hasGPUs := vram > 0 && s.snapshot().Spec.Image != ""
	switch {
	case reply.Gauge > uint32(rules.GPU):
		return p, fmt.Errorf("%w: hardware of kind %d", exclusive.ErrProtocol, reply.Gauge)
	case kind == rules.CPU && (devices != 1 || hasGPUs):
		return p, &unanswered{fmt.Errorf("%w: %d processors in the place of what is leased", exclusive.ErrProtocol, devices)}
	case kind == rules.GPU && devices != min(int(l.core.Units), exclusive.MaxDevices):
		return p, &unanswered{fmt.Errorf("%w: %d GPUs are ready, %d are leased", exclusive.ErrProtocol, devices, l.core.Units)}
	case kind == rules.GPU && p.proven == 0:
		p.proven = proven
	}
	x.Watch.Proven = p.proven
	p.records, err = exclusive.Buyer{Domain: b.domain, Key: l.as.key(), Lease: signed, Known: x.Watch.Known()}.Ask(conn, rules.Question{
		Lease: l.first, Execution: seq, Number: x.Asked + 1, Shape: rules.Fit(kind, x.Watch.Last()), At: at}, devices)
	if kind == rules.GPU {
		p.took = time.Since(begun) // the program stands still from before the pings
	} else if err == nil {
		p.took += p.records[0].Elapsed
	}
	if err != nil && !errors.Is(err, exclusive.ErrMemory) {
		err = &unanswered{err}
	}
	return p, err
}

// hardware is what audits proved of each of the lease's units, and how much memory of GPUs each has.
func (l *bought) hardware() (proven uint64, vramMiB uint32) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.rec.Proven, l.rec.PerUnit.VRAMMiB
}

// unanswered says that a provider that was ready did not bring its answer to an end.
type unanswered struct{ err error }

func (e *unanswered) Error() string { return "not answered: " + e.err.Error() }
func (e *unanswered) Unwrap() error { return e.err }

// firstOf is the first lease of a line, which is what executions and probes are named by.
func (b *Buyer) firstOf(l *bought) (market.Lease, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if first := b.leases[l.first]; first != nil {
		return first.signed, nil
	}
	return market.Lease{}, fmt.Errorf("lease %s is not known any more", l.first.Short())
}

// take judges what came of a question: by the slowest of the lease's devices, for who shares one shares the lease. A wrong answer of
// any is wrong. It returns err where that says nothing of the units.
func (s *supervisor) take(ctx context.Context, i int, l *bought, got []exclusive.Probed, err error, paid func(*Exclusive)) error {
	var missing *unanswered
	if err != nil {
		return errors.Join(err, s.update(ctx, i, l, func(x *Exclusive) {
			paid(x)
			no := (*stream.Refused)(nil)
			switch {
			case errors.As(err, &missing):
				x.Unanswered++
			case errors.Is(err, exclusive.ErrMemory) || errors.As(err, &no) && no.Code == exclusive.CodeMemory:
				x.Full++
			case no != nil:
				x.Note = "its provider: " + clip(no.Reason)
			}
		}))
	}
	r := slices.MaxFunc(got, func(x, y exclusive.Probed) int {
		return cmp.Or(cmp.Compare(btoi(x.Wrong != nil), btoi(y.Wrong != nil)), cmp.Compare(x.Elapsed, y.Elapsed))
	})
	wrong, verdict := r.Wrong != nil, rules.Learning
	x := s.exclusive(i, l)
	paid(&x)
	watch := x.Watch
	if !wrong {
		watch, verdict = watch.See(r.Observation())
	}
	put := store.Put{Kind: kindProbe, Key: placeOf(l.first, r.Question.Number, wrong || verdict >= rules.Slow), Value: r.Marshal()}
	if err := s.update(ctx, i, l, func(x *Exclusive) {
		paid(x)
		x.Watch, x.Note = watch, ""
		if wrong {
			x.Wrong++
		}
	}, put); err != nil {
		return err
	}
	var found string
	switch {
	case wrong:
		found = "its provider signed a wrong answer to a probe; `starling job probe export` has the proof"
		s.b.cfg.Reputation.Record(reputation.Fact{ID: sign.Hash(l.first), Kind: reputation.AuditFailed, Role: reputation.Provider, Subject: l.core.Provider, At: r.Question.At})
	case verdict == rules.Contended:
		found = "its units are shared with somebody: " + watch.Text()
		if watch.Alarms >= complaints {
			s.b.cfg.Reputation.Failed(l.core, l.loss(time.Time{}))
		}
	default:
		return nil
	}
	s.trace.add(Step{At: time.Now(), Kind: StepProbed, Rank: &i, Provider: l.core.Provider.String(), Detail: found})
	s.trace.poke()
	if s.snapshot().Spec.Probes == job.ProbesMove {
		l.dead(found)
	}
	return nil
}

// placeOf is where a record lies: what is special is not replaced by what is not.
func placeOf(l market.LeaseID, number uint64, special bool) string {
	kind := 'a'
	if special {
		kind = 's'
	}
	return fmt.Sprintf("%s/%c%02d", l, kind, number%keptProbes)
}

func btoi(b bool) int {
	if b {
		return 1
	}
	return 0
}

func random() uint64 {
	var b [8]byte
	_, _ = rand.Read(b[:])
	return binary.LittleEndian.Uint64(b[:])
}

// Probes lists the records of a job's probes, by lease and number.
func (b *Buyer) Probes(ctx context.Context, id string) ([]rules.Record, error) {
	s, err := b.get(id)
	if err != nil {
		return nil, err
	}
	var out []rules.Record
	seen := map[market.LeaseID]bool{}
	for _, l := range s.bought() {
		if seen[l.first] {
			continue
		}
		seen[l.first] = true
		if err := b.cfg.Store.List(ctx, kindProbe, l.first.String()+"/", func(key string, value []byte) error {
			r, err := rules.UnmarshalRecord(value)
			if err != nil {
				return fmt.Errorf("reading probe %s: %w", key, err)
			}
			out = append(out, r)
			return nil
		}); err != nil {
			return nil, err
		}
	}
	sortProbes(out)
	return out, nil
}
