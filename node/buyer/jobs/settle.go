package jobs

import (
	"fmt"
	"slices"
)

// settle closes the account once no lease can cost more, and ends the job once all is counted, refunded, anchored and
// judged. Another peer than the owner only ends the leases.
func (t *step) settle() {
	s, a := &t.s, &t.s.Account
	if !s.Command.Owner || s.owing() {
		return
	}
	if !s.closing && !(a.Counted && a.Released) {
		s.closing = true
		t.emit(CloseAccount{})
	}
	if a.Counted && !a.Anchored && !s.anchoring {
		s.anchoring = true
		t.emit(AnchorReceipts{})
	}
	judged := !s.checking() || !slices.Contains(s.Judged, false)
	if !a.Counted || !a.Released || !a.Anchored || !judged {
		return
	}
	s.Phase, s.Ended = Ended, t.now.Time
	if s.Params.Guarded {
		t.emit(DismissGuardians{})
	}
}

func (ev AccountCounted) apply(t *step) error {
	if a := &t.s.Account; t.s.Phase == Settling {
		a.Counted, a.Owed, a.Receipts = true, ev.Owed, ev.Receipts
		a.Anchored = a.Anchored || ev.Receipts == 0
	}
	return nil
}

func (ev EscrowReleased) apply(t *step) error {
	if a := &t.s.Account; t.s.Phase == Settling {
		a.Released, a.Paid = true, ev.Paid
	}
	return nil
}

func (ev ReceiptsAnchored) apply(t *step) error {
	if a := &t.s.Account; t.s.Phase == Settling {
		a.Anchored, a.Tx = true, ev.Tx
	}
	return nil
}

func (ev Reduced) apply(t *step) error {
	if t.s.Phase != Reducing || ev.Round != t.s.Round {
		return nil
	}
	if !ev.Carry.Valid() {
		return fmt.Errorf("%w: carry of round %d", ErrEvent, ev.Round)
	}
	t.s.Carry = ev.Carry
	t.nextRound()
	return nil
}

func (ev ReduceFailed) apply(t *step) error {
	if t.s.Phase == Reducing && ev.Round == t.s.Round {
		t.s.reducing = false
		t.end(ResultFailed, ev.Code, ev.Reason)
	}
	return nil
}

func (ev ReplicaWanted) apply(t *step) error {
	s := &t.s
	if i := s.grant(ev.Rank, ev.Attempt); i >= 0 {
		t.emit(BuyReplica{ev.Rank, ev.Attempt, s.Grants[i].Most})
		return nil
	}
	most := min(ev.Most, s.left())
	reason := ""
	switch {
	case s.Phase != Settling || !s.checking() || int64(ev.Rank) >= int64(len(s.Ranks)) || len(s.Grants) >= maxList:
		reason = "no result is to be checked"
	case most == 0 && s.Params.Rate > 0:
		reason = "the budget is used up"
	}
	if reason != "" {
		t.emit(RefuseReplica{ev.Rank, ev.Attempt, reason})
		return nil
	}
	s.Grants = append(s.Grants, Grant{ev.Rank, ev.Attempt, most})
	t.emit(BuyReplica{ev.Rank, ev.Attempt, most})
	return nil
}

func (ev ReplicaEnded) apply(t *step) error {
	if i := t.s.grant(ev.Rank, ev.Attempt); i >= 0 {
		t.s.Grants[i].Most = min(t.s.Grants[i].Most, ev.Owed)
	}
	return nil
}
func (ev ResultJudged) apply(t *step) error {
	s := &t.s
	if s.Phase != Settling || !s.checking() || int64(ev.Rank) >= int64(len(s.Judged)) || s.Judged[ev.Rank] {
		return nil
	}
	if !validOutputs(ev.Outputs) {
		return fmt.Errorf("%w: outputs of rank %d", ErrEvent, ev.Rank)
	}
	s.Judged[ev.Rank] = true
	if ev.Outputs != nil {
		s.Ranks[ev.Rank].Outputs = slices.Clone(ev.Outputs)
	}
	if ev.Disputed && s.Outcome.Result == ResultSucceeded {
		s.Outcome = Outcome{ResultFailed, CodeVerify, ev.Reason}
	}
	return nil
}
