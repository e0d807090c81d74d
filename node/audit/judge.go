package audit

import (
	"context"
	"fmt"
	"time"

	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/node/nodepb"
	"github.com/starling-network/starling/verify/audit"
	"github.com/starling-network/starling/verify/challenge"
)

// maxFound bounds a member's description of a fault, bytes.
const maxFound = 256

// show answers the openings of a unit with a verdict; none of an attempt that a member left. The first request rules,
// and notifies the rooms of the findings, outside the attempt's lock. All requests get the same answer once those are
// kept.
func (m *Member) show(
	ctx context.Context, a *attempt, r *nodepb.AuditRequest_Show,
) (*nodepb.AuditReply, error) {
	a.mu.Lock()
	x, first, err := m.rule(a, r)
	a.mu.Unlock()
	if err != nil {
		return nil, err
	}
	if first {
		m.notify(a.key.provider, x)
	}
	select {
	case <-x.kept:
		return x.reply, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// notify has the findings of a ruling kept.
func (m *Member) notify(provider sign.Key, x *ruling) {
	defer close(x.kept)
	for _, l := range x.lies {
		if err := m.cfg.Results.KeepFraud(context.Background(), l); err != nil {
			m.cfg.Log.Error("the proof of a fraud is not kept", "err", err)
		}
	}
	if x.refusal != nil {
		m.cfg.Results.Refuse(*x.refusal)
	}
	if x.verdict != nil {
		m.cfg.Results.Judged(provider, *x.verdict)
	}
}

// rule computes a unit's opened entries and signs the verdict. It reports whether the ruling is new: there is one for
// one answer, and later openings are ignored. a.mu is held.
func (m *Member) rule(a *attempt, r *nodepb.AuditRequest_Show) (x *ruling, first bool, err error) {
	u, err := a.unit(r.Unit)
	if err != nil {
		return nil, false, err
	}
	if u.ruling != nil {
		return u.ruling, false, nil
	}
	s, err := m.openings(a, u, r)
	if err != nil {
		return nil, false, err
	}
	v := audit.Verdict{
		Member: m.cfg.Key.Key(), Answer: s.shown.Answer, Openings: s.shown.Openings, Nonces: a.nonces, Slot: a.slot,
		Product: micros(u.product), Walk: micros(u.walk),
	}
	x = &ruling{reply: &nodepb.AuditReply{}, kept: make(chan struct{})}
	v.Outcome, err = m.judge(a, u, s.shown, s.opened, s.walked)
	if err != nil {
		x.reply.Found = err.Error()
		x.reply.Found = x.reply.Found[:min(len(x.reply.Found), maxFound)]
		m.cfg.Log.Warn("a unit did not pass an audit", "provider", a.key.provider, "unit", u.ID,
			"window", uint64(a.key.window), "outcome", v.Outcome.String(), "why", x.reply.Found)
	}
	if v.Outcome == audit.Wrong && audit.Show(*u.answer, s.opened.Openings) == s.shown {
		x.lies = audit.FindLie(*u.answer, s.shown, s.sig, nil, s.opened.Openings, false)
	}
	if !a.void {
		if err := m.sign(a, u, s, v, x); err != nil {
			return nil, false, err
		}
	}
	u.ruling, u.worked = x, v.Outcome == audit.Pass && u.whole <= u.WholeLimit
	return x, true, nil
}

// sign adds a signed verdict to a ruling, and the refusal of a unit that did not pass.
func (m *Member) sign(a *attempt, u *unit, s openings, v audit.Verdict, x *ruling) error {
	signature, err := v.Sign(m.cfg.Domain, m.cfg.Key)
	if err != nil {
		return err
	}
	if v.Outcome != audit.Pass {
		refusal, err := audit.Refuse(audit.Record{
			Beacon: a.beacon, Committee: uint8(a.size), WindowSlots: m.cfg.WindowSlots,
			Answer: *u.answer, AnswerSig: u.answerSig, Shown: s.shown, ShownSig: s.sig,
			Verdicts: []audit.Signed{{Verdict: v, Signature: signature}},
		})
		if err != nil {
			return err
		}
		x.refusal = &refusal
	}
	b := v.Marshal()
	x.verdict, x.reply.Verdict, x.reply.Signature = &v, b[:], signature[:]
	return nil
}

// openings are the opened entries of a unit, with the provider's signature.
type openings struct {
	opened challenge.Opened
	walked challenge.Walked
	shown  audit.Shown
	sig    sign.Signature
}

// openings reads the openings of a unit that are due, and checks that they are of its answer.
func (m *Member) openings(a *attempt, u *unit, r *nodepb.AuditRequest_Show) (s openings, err error) {
	switch {
	case a.asked[2].IsZero():
		return s, refuse(CodeOrder, "the third nonce was not given")
	case len(r.Signature) != sign.SignatureSize:
		return s, malformed("signature of %d bytes", len(r.Signature))
	}
	s.sig = sign.Signature(r.Signature)
	opened, rest, err := challenge.UnmarshalOpened(r.Openings)
	if err != nil {
		return s, malformed("%v", err)
	}
	walked, rest, err := challenge.UnmarshalWalked(rest)
	if err != nil || len(rest) != 0 {
		return s, malformed("walkers: %v, %d bytes too many", err, len(rest))
	}
	s.opened, s.walked = opened, walked
	if err := m.members(a, 2, r.Third); err != nil {
		return s, err
	}
	if s.shown, err = audit.UnmarshalShown(r.Shown); err != nil || s.shown.Answer != u.answer.Hash() {
		return s, refuse(CodeAnswer, "openings: do not match the answer: %v", err)
	}
	if err := s.shown.Verify(m.cfg.Domain, a.key.provider, s.sig); err != nil {
		return s, refuse(CodeAnswer, "%v", err)
	}
	return s, nil
}

// judge returns the outcome of a unit, with an error if it did not pass.
func (m *Member) judge(
	a *attempt, u *unit, shown audit.Shown, opened challenge.Opened, walked challenge.Walked,
) (audit.Outcome, error) {
	if err := audit.Examine(*u.answer, shown, opened); err != nil {
		return audit.Wrong, err
	}
	drawn := audit.Walkers(u.answer.WalkSeed, u.answer.WalkRoot, u.answer.Walk, a.given[2])
	if err := walked.Check(u.dataset, u.answer.WalkSeed, u.answer.Walk, u.answer.WalkRoot, drawn); err != nil {
		return audit.Wrong, err
	}
	switch {
	case u.product > u.ProductLimit:
		return audit.Late, fmt.Errorf("the products took %s, %s are allowed",
			u.product.Round(time.Millisecond), u.ProductLimit)
	case a.asked[1].Sub(a.asked[0]) > u.SecondLimit:
		return audit.Late, fmt.Errorf("second nonce: requested after %s, want within %s",
			a.asked[1].Sub(a.asked[0]).Round(time.Millisecond), u.SecondLimit)
	case u.walk > u.WalkLimit:
		return audit.Late, fmt.Errorf("the walk took %s, %s are allowed", u.walk.Round(time.Millisecond), u.WalkLimit)
	}
	return audit.Pass, nil
}

// micros is a time in whole microseconds, at least one.
func micros(d time.Duration) uint64 { return uint64(max(d.Microseconds(), 1)) }

// duration is microseconds as a time.
func duration(micros uint64) time.Duration {
	return time.Duration(min(micros, 1<<50)) * time.Microsecond
}
