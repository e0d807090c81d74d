package audit

import (
	"context"
	"sync"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/node/audit/sight"
	"github.com/starling-network/starling/node/nodepb"
	"github.com/starling-network/starling/verify/audit"
	"github.com/starling-network/starling/verify/audit/audittest"
)

// played is an honest audit of one unit, as its steps went to one member.
type played struct {
	member sign.Key
	steps  [][]byte // nodepb.AuditRequest
}

func play(f *testing.F) played {
	f.Helper()
	w := newWorld(7, time.Now)
	p := played{member: w.Bonded.Draw(w.Block(w.At), w.At, w.provider.Key(), 1)[0].Key}
	var mu sync.Mutex
	prover := w.prover()
	prover.cfg.Call = func(ctx context.Context, m sign.Key, req *nodepb.AuditRequest) (*nodepb.AuditReply, error) {
		r, err := w.call(ctx, m, req)
		if err == nil && m == p.member {
			mu.Lock()
			defer mu.Unlock()
			step, _ := proto.Marshal(req)
			p.steps = append(p.steps, step)
		}
		return r, err
	}
	results, err := prover.Audit(f.Context(), units(1))
	if err != nil || results[0].Err != nil {
		f.Fatal(err, errs(results))
	}
	return p
}

// counting counts the verdicts of one member.
type counting struct {
	*world
	judged int
}

func (c *counting) Judged(sign.Key, audit.Verdict) { c.judged++ }

// A member reads what anybody sends, at any step of an audit, twice: it gives a reason or an answer, one verdict of a unit, and blames
// nobody who signed nothing false.
func FuzzAuditStep(f *testing.F) {
	p := play(f)
	for i, b := range p.steps {
		f.Add(uint8(i), b)
	}
	f.Fuzz(func(t *testing.T, at uint8, b []byte) {
		var bad nodepb.AuditRequest
		if proto.Unmarshal(b, &bad) != nil {
			return
		}
		w := newWorld(7, time.Now)
		one := &counting{world: w}
		w.members[p.member].cfg.Results = one
		prover, calls := w.prover(), 0
		var mu sync.Mutex
		prover.cfg.Call = func(ctx context.Context, m sign.Key, req *nodepb.AuditRequest) (*nodepb.AuditReply, error) {
			mu.Lock()
			defer mu.Unlock()
			if m == p.member {
				if calls == int(at)%len(p.steps) {
					for range 2 {
						_, _ = w.members[m].Answer(ctx, w.provider.Key(), proto.Clone(&bad).(*nodepb.AuditRequest))
					}
				}
				calls++
			}
			return w.call(ctx, m, req)
		}
		_, _ = prover.Audit(t.Context(), units(1))
		if len(w.lies) != 0 || one.judged > audit.MaxAttempts {
			t.Fatalf("lies %v, judged %d times", w.lies, one.judged)
		}
	})
}

// A provider reads what a member answers: a verdict that is not that of its unit, by that member, is none.
func FuzzAuditReply(f *testing.F) {
	r := made(f, audittest.NewUnit("unit 0"))
	for _, v := range r.Verdicts[:2] {
		verdict := v.Verdict.Marshal()
		b, err := proto.Marshal(&nodepb.AuditReply{Verdict: verdict[:], Signature: v.Signature[:], Found: "nothing"})
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	s := session{p: newWorld(7, time.Now).prover(), window: r.Answer.Window, beacon: sight.Drawn{Beacon: r.Beacon}}
	u := &running{answer: r.Answer, shown: r.Shown}
	for _, v := range r.Verdicts {
		s.members = append(s.members, v.Member)
		for i, n := range v.Nonces {
			s.given[i] = append(s.given[i], audit.Given{Member: v.Member, Nonce: n})
		}
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		var reply nodepb.AuditReply
		if proto.Unmarshal(b, &reply) != nil {
			return
		}
		for k := range s.members {
			v, err := s.verdict(u, k, &reply)
			if err == nil && v != r.Verdicts[k] {
				t.Fatalf("member %d is believed: %+v", k, v)
			}
		}
	})
}
