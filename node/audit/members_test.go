package audit

import (
	"context"
	"errors"
	"math"
	"slices"
	"sync"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/node/nodepb"
	"github.com/starling-network/starling/verify/audit"
	"github.com/starling-network/starling/verify/audit/audittest"
)

// Whatever a member answers, its provider passes without it: one member is not enough to void what the others say.
func TestOneMemberVoidsNothing(t *testing.T) {
	t.Parallel()
	verdict := func(change func(v *audit.Verdict)) func(w *world, by sign.Signer, r *nodepb.AuditReply) {
		return func(_ *world, by sign.Signer, r *nodepb.AuditReply) {
			v, err := audit.UnmarshalVerdict(r.Verdict)
			if err != nil {
				panic(err)
			}
			change(&v)
			sig, err := v.Sign(audittest.Domain(), by)
			if err != nil {
				panic(err)
			}
			b := v.Marshal()
			r.Verdict, r.Signature = b[:], sig[:]
		}
	}
	nonce := func(change func(n []byte) []byte) func(*world, sign.Signer, *nodepb.AuditReply) {
		return func(_ *world, _ sign.Signer, r *nodepb.AuditReply) { r.Nonce = change(r.Nonce) }
	}
	at := map[string]func(r *nodepb.AuditRequest) bool{
		"begin":  func(r *nodepb.AuditRequest) bool { return r.GetBegin() != nil },
		"second": func(r *nodepb.AuditRequest) bool { return r.GetSecond() != nil },
		"third":  func(r *nodepb.AuditRequest) bool { return r.GetThird() != nil },
		"show":   func(r *nodepb.AuditRequest) bool { return r.GetShow() != nil },
	}
	type spoil = func(w *world, by sign.Signer, r *nodepb.AuditReply)
	for name, c := range map[string]struct {
		step  string
		spoil spoil
	}{
		"no first nonce":                  {"begin", nonce(func([]byte) []byte { return nil })},
		"a first nonce of 17 bytes":       {"begin", nonce(func(n []byte) []byte { return append(slices.Clone(n), 0) })},
		"a second nonce of 15 bytes":      {"second", nonce(func(n []byte) []byte { return n[:15] })},
		"another second nonce":            {"second", nonce(func(n []byte) []byte { n = slices.Clone(n); n[0]++; return n })},
		"no third nonce":                  {"third", nonce(func([]byte) []byte { return nil })},
		"another third nonce":             {"third", nonce(func(n []byte) []byte { n = slices.Clone(n); n[0]++; return n })},
		"no verdict":                      {"show", func(_ *world, _ sign.Signer, r *nodepb.AuditReply) { r.Verdict = nil }},
		"a verdict cut off":               {"show", func(_ *world, _ sign.Signer, r *nodepb.AuditReply) { r.Verdict = r.Verdict[:100] }},
		"a verdict of no outcome":         {"show", verdict(func(v *audit.Verdict) { v.Outcome = 0 })},
		"a verdict of an outcome unknown": {"show", verdict(func(v *audit.Verdict) { v.Outcome = 4 })},
		"a verdict not signed":            {"show", func(_ *world, _ sign.Signer, r *nodepb.AuditReply) { r.Signature = make([]byte, 64) }},
		"a signature of 63 bytes":         {"show", func(_ *world, _ sign.Signer, r *nodepb.AuditReply) { r.Signature = r.Signature[:63] }},
		"a verdict of somebody else": {"show", func(w *world, by sign.Signer, r *nodepb.AuditReply) {
			other := audittest.Key("else")
			verdict(func(v *audit.Verdict) { v.Member = other.Key() })(w, other, r)
		}},
		"a verdict of another answer":    {"show", verdict(func(v *audit.Verdict) { v.Answer[0]++ })},
		"a verdict of other openings":    {"show", verdict(func(v *audit.Verdict) { v.Openings[0]++ })},
		"a verdict with another nonce":   {"show", verdict(func(v *audit.Verdict) { v.Nonces[1][0]++ })},
		"a verdict of the window before": {"show", verdict(func(v *audit.Verdict) { v.Slot -= windowSlots })},
		"a verdict of no time":           {"show", verdict(func(v *audit.Verdict) { v.Product = 0 })},
		"a walk of no time":              {"show", verdict(func(v *audit.Verdict) { v.Walk = 0 })},
		"a verdict of the last slot":     {"show", verdict(func(v *audit.Verdict) { v.Slot = math.MaxUint64 })},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(12, time.Now)
			bad := w.Bonded.Draw(w.Block(w.At), w.At, w.provider.Key(), 1)[0].Key
			p := w.prover()
			p.cfg.Call = func(ctx context.Context, m sign.Key, req *nodepb.AuditRequest) (*nodepb.AuditReply, error) {
				r, err := w.call(ctx, m, req)
				if err == nil && m == bad && at[c.step](req) {
					r = proto.Clone(r).(*nodepb.AuditReply)
					c.spoil(w, w.members[m].cfg.Key, r)
				}
				return r, err
			}
			results, err := p.Audit(t.Context(), units(1))
			if err != nil || results[0].Err != nil {
				t.Fatal(err, errs(results))
			}
			for _, v := range results[0].Record.Verdicts {
				if v.Member == bad {
					t.Error("it judged nevertheless")
				}
			}
			if err := errors.Join(results[0].Record.Check(audittest.Domain()), results[0].Record.CheckMembers(w.Bonded)); err != nil {
				t.Error(err)
			}
			if len(w.lies) != 0 {
				t.Errorf("lies %v", w.lies)
			}
		})
	}
}

// The findings of a ruling are kept outside the attempt's lock: other steps are answered meanwhile. No request gets the
// verdict before they are kept.
func TestStepsWhileFindingsAreKept(t *testing.T) {
	t.Parallel()
	w := newWorld(20, time.Now)
	begun, open := make(chan struct{}), make(chan struct{})
	var once sync.Once
	w.before = func(k sign.Key, req *nodepb.AuditRequest) (*nodepb.AuditReply, error) {
		if req.GetShow() == nil {
			return nil, nil
		}
		first := false
		once.Do(func() { first = true })
		if !first {
			return nil, nil
		}
		m := w.members[k]
		m.cfg.Results = holding{w, begun, open}
		type answer struct {
			*nodepb.AuditReply
			error
		}
		came := make(chan answer)
		go func() {
			r, err := m.Answer(t.Context(), w.provider.Key(), req)
			came <- answer{r, err}
		}()
		<-begun
		third := &nodepb.AuditRequest{Window: req.Window, Attempt: req.Attempt}
		third.Step = &nodepb.AuditRequest_Third_{Third: &nodepb.AuditRequest_Third{}}
		if r, err := m.Answer(t.Context(), w.provider.Key(), third); err != nil || len(r.Nonce) == 0 {
			t.Errorf("another step: %v, %v", r, err)
		}
		ended, cancel := context.WithCancel(t.Context())
		cancel()
		if r, err := m.Answer(ended, w.provider.Key(), req); !errors.Is(err, context.Canceled) {
			t.Errorf("the verdict is out before its findings are kept: %v, %v", r, err)
		}
		close(open)
		a := <-came
		if again, err := m.Answer(t.Context(), w.provider.Key(), req); err != nil || !proto.Equal(again, a.AuditReply) {
			t.Errorf("asked again: %v, %v, want %v", again, err, a.AuditReply)
		}
		return a.AuditReply, a.error
	}
	p := w.prover()
	p.plant = flip
	if _, err := p.Audit(t.Context(), units(1)); err != nil {
		t.Fatal(err)
	}
	if len(w.refused) == 0 || w.judged[audit.Wrong] != len(w.refused) {
		t.Errorf("%d refusals, %d verdicts", len(w.refused), w.judged[audit.Wrong])
	}
}

// holding is results that keep a refusal once open is closed.
type holding struct {
	*world
	begun, open chan struct{}
}

func (h holding) Refuse(x audit.Refusal) {
	close(h.begun)
	<-h.open
	h.world.Refuse(x)
}
