// Package probe measures, while a rank's program runs, whether the leased units serve their buyer exclusively, and
// records the health of its devices. The rules are those of verify/exclusive.
package probe

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/libp2p/go-libp2p/core/peer"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/node/buyer/record"
	"github.com/starling-network/starling/node/exclusive"
	"github.com/starling-network/starling/node/nodepb"
	"github.com/starling-network/starling/node/protocol"
	"github.com/starling-network/starling/node/store"
	"github.com/starling-network/starling/p2p"
	"github.com/starling-network/starling/p2p/stream"
	rules "github.com/starling-network/starling/verify/exclusive"
	"github.com/starling-network/starling/verify/reputation"
)

const (
	// firstCost is the estimated cost of a probe before one was made.
	firstCost = 100 * time.Millisecond
	// probeTime bounds one probe.
	probeTime = 40 * time.Second
	// complaints is the number of alarms after which the buyer holds them against the provider: each but the first
	// needs two more slow probes, or one after two.
	complaints = 2
	// maxNote bounds a provider's text in a record.
	maxNote = 800
)

// Rank is the rank that a Prober works for.
type Rank interface {
	// Record returns the rank's record under the lease.
	Record() record.Exclusive
	// Update changes the record under the lease and journals it with more.
	Update(ctx context.Context, change func(*record.Exclusive), more ...store.Put) error
	// Ready reports whether the program runs and may be probed.
	Ready() bool
	// Note adds a finding to the job's trace.
	Note(finding string)
	// Fault reports a fault of the provider to its reputation.
	Fault()
	// Shared ends the lease if the job's specification requests it.
	Shared(finding string)
}

// Facts records facts that any peer can check.
type Facts interface {
	Record(f reputation.Fact)
}

// Clock returns the chain's slot.
type Clock interface {
	Now(t time.Time) (market.Slot, error)
}

// Prober probes the executions of one rank under one lease.
type Prober struct {
	Rank   Rank
	Host   *p2p.Host
	Tag    string
	Domain sign.Domain
	Key    sign.Signer // the buyer of the lease
	Clock  Clock
	Facts  Facts
	Log    *slog.Logger

	Lease  market.Lease // the first of its renewal chain
	Peer   peer.ID
	Units  []market.UnitID
	Class  market.Class // of the units
	Proven uint64       // operations a second that audits proved of each unit; 0: not known
	GPUs   bool         // the program may have the units' GPUs
}

func (p *Prober) id() market.LeaseID { return p.Lease.Core.ID() }

// Run probes an execution at random instants until ctx ends.
func (p *Prober) Run(ctx context.Context, seq uint64) {
	for cost := firstCost; ; {
		x := p.Rank.Record()
		gap := x.Budget.Gap(cost, x.Watch.InARow > 0 || x.Watch.Known() == 0, random())
		select {
		case <-ctx.Done():
			return
		case <-time.After(gap):
		}
		if !p.Rank.Ready() || !x.Budget.Allows(cost) {
			continue
		}
		// The estimated cost is journalled before it is spent, and corrected afterwards.
		if err := p.Rank.Update(ctx, func(x *record.Exclusive) {
			x.Asked, x.Budget.Spent = x.Asked+1, x.Budget.Spent+cost
		}); err != nil {
			p.Log.Warn("skipping a probe: journalling it failed", "err", err)
			continue
		}
		got, err := p.question(ctx, seq, x)
		if ctx.Err() != nil {
			return
		}
		guess := cost
		if got.took > 0 {
			cost = got.took
		}
		paid := func(x *record.Exclusive) {
			x.Budget.Spent = max(x.Budget.Spent+cost-guess, 0)
			x.Watch.Proven = got.proven
		}
		if err = p.take(ctx, got.records, err, paid); err != nil {
			p.Log.Info("a probe has no result", "err", err)
			if final(err) {
				return
			}
		}
	}
}

// final reports whether a provider that answered so will never answer a probe.
func final(err error) bool {
	var no *stream.Refused
	var bad *stream.Malformed
	return errors.As(err, &bad) || errors.As(err, &no) && !slices.Contains([]string{
		stream.CodeBusy, stream.CodeClosing, "paused", exclusive.CodeMemory,
	}, no.Code)
}

// probed is the result of a question.
type probed struct {
	records []exclusive.Probed // of each device
	took    time.Duration      // its maximum cost in the program's time; 0 without a question
	proven  uint64             // operations a second that audits proved of each device; 0: not known
}

// question sends a question to every device of the lease.
func (p *Prober) question(ctx context.Context, seq uint64, x record.Exclusive) (got probed, err error) {
	ctx, cancel := context.WithTimeout(ctx, probeTime)
	defer cancel()
	got.proven = x.Watch.Proven
	at, err := p.Clock.Now(time.Now())
	if err != nil {
		return got, err
	}
	first := p.id()
	p.Host.Forgive(p.Peer)
	begun := time.Now()
	reply, conn, err := protocol.Live.Open(ctx, p.Host, p.Tag, p.Peer, &nodepb.LiveRequest{Lease: first[:], Seq: seq,
		Op: &nodepb.LiveRequest_Probe_{Probe: &nodepb.LiveRequest_Probe{}}})
	if err != nil {
		return got, err
	}
	defer conn.Abort()
	got.took = time.Since(begun)
	kind, devices := rules.Kind(reply.Gauge), max(int(reply.Devices), 1)
	if err := p.checkDevices(reply.Gauge, devices); err != nil {
		return got, err
	}
	if kind == rules.GPU && got.proven == 0 {
		got.proven = p.Proven
	}
	x.Watch.Proven = got.proven
	asker := exclusive.Buyer{Domain: p.Domain, Key: p.Key, Lease: p.Lease, Known: x.Watch.Known()}
	got.records, err = asker.Ask(conn, rules.Question{
		Lease: first, Execution: seq, Number: x.Asked + 1, Shape: rules.Fit(kind, x.Watch.Last()), At: at}, devices)
	if kind == rules.GPU {
		got.took = time.Since(begun) // the program stands still from before the pings
	} else if err == nil {
		got.took += got.records[0].Elapsed
	}
	if err != nil && !errors.Is(err, exclusive.ErrMemory) {
		err = &unanswered{err}
	}
	return got, err
}

// checkDevices refuses other hardware than the leased one.
func (p *Prober) checkDevices(gauge uint32, devices int) error {
	leased := int(p.Lease.Core.Units)
	switch kind := rules.Kind(gauge); {
	case gauge > uint32(rules.GPU):
		return fmt.Errorf("%w: hardware of kind %d", exclusive.ErrProtocol, gauge)
	case kind == rules.CPU && (devices != 1 || p.GPUs):
		return &unanswered{fmt.Errorf("%w: %d processors instead of the leased units", exclusive.ErrProtocol, devices)}
	case kind == rules.GPU && devices != min(leased, exclusive.MaxDevices):
		return &unanswered{fmt.Errorf("%w: %d GPUs are ready, %d are leased", exclusive.ErrProtocol, devices, leased)}
	}
	return nil
}

// unanswered is the error of a provider that was ready and did not complete its answer.
type unanswered struct{ err error }

func (e *unanswered) Error() string { return "not answered: " + e.err.Error() }
func (e *unanswered) Unwrap() error { return e.err }

// take judges the result of a question by the slowest of the lease's devices, because a shared device makes the lease a
// shared one. A wrong answer of any device is a wrong answer. It returns err if the error is no evidence about the
// units.
func (p *Prober) take(ctx context.Context, got []exclusive.Probed, err error, paid func(*record.Exclusive)) error {
	if err != nil {
		return errors.Join(err, p.Rank.Update(ctx, func(x *record.Exclusive) {
			paid(x)
			missed(x, err)
		}))
	}
	r := slices.MaxFunc(got, func(x, y exclusive.Probed) int {
		return cmp.Or(cmp.Compare(number(x.Wrong != nil), number(y.Wrong != nil)), cmp.Compare(x.Elapsed, y.Elapsed))
	})
	wrong, verdict := r.Wrong != nil, rules.Learning
	x := p.Rank.Record()
	paid(&x)
	watch := x.Watch
	if !wrong {
		watch, verdict = watch.See(r.Observation())
	}
	place := placeOf(p.id(), r.Question.Number, wrong || verdict >= rules.Slow)
	put, err := Records.Encode(place, r.Marshal())
	if err != nil {
		return err
	}
	if err := p.Rank.Update(ctx, func(x *record.Exclusive) {
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
		found = "its provider signed a wrong answer to a probe; `starling proof export --kind probes` has the proof"
		p.Facts.Record(reputation.Fact{ID: sign.Hash(p.id()), Kind: reputation.AuditFailed, Role: reputation.Provider,
			Subject: p.Lease.Core.Provider, At: r.Question.At})
	case verdict == rules.Contended:
		found = "the leased units are shared: " + watch.Text()
		if watch.Alarms >= complaints {
			p.Rank.Fault()
		}
	default:
		return nil
	}
	p.Rank.Note(found)
	p.Rank.Shared(found)
	return nil
}

// missed counts a question without an answer.
func missed(x *record.Exclusive, err error) {
	var missing *unanswered
	var no *stream.Refused
	switch {
	case errors.As(err, &missing):
		x.Unanswered++
	case errors.Is(err, exclusive.ErrMemory) || errors.As(err, &no) && no.Code == exclusive.CodeMemory:
		x.Full++
	case no != nil:
		x.Note = "its provider: " + market.Clean(no.Reason, maxNote)
	}
}

func number(b bool) int {
	if b {
		return 1
	}
	return 0
}

func random() uint64 {
	var b [8]byte
	_, _ = rand.Read(b[:]) // never fails
	return binary.LittleEndian.Uint64(b[:])
}
