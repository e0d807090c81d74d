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

// show computes a unit's opened entries and signs the verdict; none of an attempt that a member left.
func (m *Member) show(a *attempt, r *nodepb.AuditRequest_Show) (*nodepb.AuditReply, error) {
	u, err := a.unit(r.Unit)
	if err != nil {
		return nil, err
	}
	switch {
	case u.verdict != nil: // one verdict for one answer; later openings are ignored
		return u.verdict, nil
	case a.asked[2].IsZero():
		return nil, refuse(CodeOrder, "the third nonce was not given")
	case len(r.Signature) != sign.SignatureSize:
		return nil, malformed("signature of %d bytes", len(r.Signature))
	}
	opened, rest, err := challenge.UnmarshalOpened(r.Openings)
	if err != nil {
		return nil, malformed("%v", err)
	}
	walked, rest, err := challenge.UnmarshalWalked(rest)
	if err != nil || len(rest) != 0 {
		return nil, malformed("walkers: %v, %d bytes too many", err, len(rest))
	}
	if err := m.members(a, 2, r.Third); err != nil {
		return nil, err
	}
	shown, err := audit.UnmarshalShown(r.Shown)
	if err != nil || shown.Answer != u.answer.Hash() {
		return nil, refuse(CodeAnswer, "openings: do not match the answer: %v", err)
	}
	sig := sign.Signature(r.Signature)
	if err := shown.Verify(m.cfg.Domain, a.key.provider, sig); err != nil {
		return nil, refuse(CodeAnswer, "%v", err)
	}
	v := audit.Verdict{
		Member: m.cfg.Key.Key(), Answer: shown.Answer, Openings: shown.Openings, Nonces: a.nonces, Slot: a.slot,
		Product: micros(u.product), Walk: micros(u.walk),
	}
	found := ""
	v.Outcome, err = m.judge(a, u, shown, opened, walked)
	if err != nil {
		found = err.Error()
		found = found[:min(len(found), maxFound)]
		m.cfg.Log.Warn("a unit did not pass an audit", "provider", a.key.provider, "unit", u.ID,
			"window", uint64(a.key.window), "outcome", v.Outcome.String(), "why", found)
	}
	if v.Outcome == audit.Wrong && audit.Show(*u.answer, opened.Openings) == shown {
		for _, l := range audit.FindLie(*u.answer, shown, sig, nil, opened.Openings, false) {
			if err := m.cfg.Results.KeepFraud(context.Background(), l); err != nil {
				m.cfg.Log.Error("the proof of a fraud is not kept", "err", err)
			}
		}
	}
	u.worked = v.Outcome == audit.Pass && u.whole <= u.WholeLimit
	if a.void {
		u.verdict = &nodepb.AuditReply{Found: found}
		return u.verdict, nil
	}
	signature, err := v.Sign(m.cfg.Domain, m.cfg.Key)
	if err != nil {
		return nil, err
	}
	if v.Outcome != audit.Pass {
		x, err := audit.Refuse(audit.Record{
			Beacon: a.beacon, Committee: uint8(a.size), WindowSlots: m.cfg.WindowSlots,
			Answer: *u.answer, AnswerSig: u.answerSig, Shown: shown, ShownSig: sig,
			Verdicts: []audit.Signed{{Verdict: v, Signature: signature}},
		})
		if err != nil {
			return nil, err
		}
		m.cfg.Results.Refuse(x)
	}
	m.cfg.Results.Judged(a.key.provider, v)
	b := v.Marshal()
	u.verdict = &nodepb.AuditReply{Verdict: b[:], Signature: signature[:], Found: found}
	return u.verdict, nil
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
