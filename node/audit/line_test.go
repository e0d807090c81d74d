package audit

import (
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/node/nodepb"
	"github.com/starling-network/starling/verify/audit"
	"github.com/starling-network/starling/verify/audit/audittest"
)

// passes has one unit pass in a window, whose last record is given.
func (w *world) passes(t *testing.T, window audit.Window, last audit.Record) audit.Record {
	t.Helper()
	w.window = window
	us := units(1)
	us[0].Last = last
	results, err := w.prover().Audit(t.Context(), us)
	if err != nil || results[0].Err != nil {
		t.Fatalf("window %d: %v, %+v", window, err, results)
	}
	if err := results[0].Record.Check(audittest.Domain()); err != nil {
		t.Fatal(err)
	}
	return results[0].Record
}

// A unit's records say since when they go on, as far as committee after committee saw it.
func TestLineGoesOn(t *testing.T) {
	t.Parallel()
	w := newWorld(12, time.Now)
	first := w.passes(t, 50, audit.Record{})
	began := audit.Moment{Window: 50, Attempt: 1}
	if first.Line() != began {
		t.Fatalf("since %+v", first.Line())
	}
	second := w.passes(t, 51, first)
	third := w.passes(t, 51+audit.LineGap, second)
	if second.Line() != began || third.Line() != began {
		t.Errorf("since %+v and %+v", second.Line(), third.Line())
	}
	if r := w.passes(t, 52+2*audit.LineGap, third); r.Since != (audit.Moment{}) {
		t.Errorf("a line that had ended goes on since %+v", r.Since)
	}
}

// A committee takes no line that it did not see, and a provider whose line it does not take begins another.
func TestLineRefused(t *testing.T) {
	t.Parallel()
	w := newWorld(12, time.Now)
	first := w.passes(t, 50, audit.Record{})
	for what, forge := range map[string]func(l *nodepb.AuditRequest_Line){
		"no certificate":    func(l *nodepb.AuditRequest_Line) { l.Last = nil },
		"bytes after it":    func(l *nodepb.AuditRequest_Line) { l.Last = append(l.Last, 0) },
		"too many bytes":    func(l *nodepb.AuditRequest_Line) { l.Last = make([]byte, audit.MaxCertificate+1) },
		"another signature": func(l *nodepb.AuditRequest_Line) { l.Last[len(l.Last)-1] ^= 1 },
		"an older line":     func(l *nodepb.AuditRequest_Line) { l.Last[4], l.Last[56] = 1, 1 },
		"of another unit":   func(l *nodepb.AuditRequest_Line) { l.Unit[0] ^= 1 },
		"of no unit":        func(l *nodepb.AuditRequest_Line) { l.Unit = nil },
	} {
		w.before = func(_ sign.Key, req *nodepb.AuditRequest) (*nodepb.AuditReply, error) {
			if l := req.GetLine(); l != nil {
				forge(l)
			}
			return nil, nil
		}
		w.window++
		last := w.window
		us := units(1)
		us[0].Last = first
		results, err := w.prover().Audit(t.Context(), us)
		if what == "too many bytes" || what == "of no unit" { // it is malformed, and nobody begins
			if err == nil {
				t.Errorf("%s: it was audited", what)
			}
			continue
		}
		if err != nil || results[0].Err != nil {
			t.Fatalf("%s: %v", what, err)
		}
		if a := results[0].Record; a.Answer.Attempt != 1 || a.Line() != (audit.Moment{Window: last, Attempt: 1}) {
			t.Errorf("%s: attempt %d, since %+v", what, a.Answer.Attempt, a.Line())
		}
	}
	// A line that nobody was shown, or another than was shown.
	w.window++
	for attempt, change := range []func(u *nodepb.AuditRequest_Unit){
		func(u *nodepb.AuditRequest_Unit) { u.SinceWindow, u.SinceAttempt = 49, 1 },
		func(u *nodepb.AuditRequest_Unit) { u.SinceWindow, u.SinceAttempt = 50, 1+1<<8 },
	} {
		w.before = func(_ sign.Key, req *nodepb.AuditRequest) (*nodepb.AuditReply, error) {
			if b := req.GetBegin(); b != nil && b.Units[0].SinceWindow != 0 {
				change(b.Units[0])
			}
			return nil, nil
		}
		us := units(1)
		us[0].Last = first
		results, err := w.prover().Audit(t.Context(), us)
		if err != nil || results[0].Err != nil || results[0].Record.Since != (audit.Moment{}) {
			t.Fatalf("%d: %v", attempt, err)
		}
		w.window++
	}
	w.before = nil
	req := &nodepb.AuditRequest{Window: uint64(w.window) + 1, Attempt: 1, Step: &nodepb.AuditRequest_Line_{Line: &nodepb.AuditRequest_Line{}}}
	if _, err := w.members[w.roster[0].Key].Answer(t.Context(), w.provider.Key(), proto.Clone(req).(*nodepb.AuditRequest)); err == nil {
		t.Error("a line of another window is taken")
	}
}
