package jobs_test

import (
	"fmt"
	"strings"
	"time"

	"github.com/starling-network/starling/node/buyer/jobs"
)

// status is the phase, with the outcome from Stopping on.
func (p *player) status() string {
	if p.s.Phase == 0 {
		return ""
	}
	text := p.s.Phase.String()
	if o := p.s.Outcome; o.Result != 0 {
		text += " " + o.Result.String()
		if o.Code != 0 {
			text += " " + o.Code.String()
		}
	}
	return text
}

// show describes the state: one line for the job, one for each rank.
func (p *player) show() string {
	var b strings.Builder
	s := p.s
	fmt.Fprintf(&b, "%s round %d promised %d of %d", p.status(), s.Round, s.Promised(), s.Params.Budget)
	if s.Outcome.Reason != "" {
		fmt.Fprintf(&b, " (%s)", s.Outcome.Reason)
	}
	if next := s.Next(); !next.IsZero() {
		fmt.Fprintf(&b, " next in %s", next.Sub(p.now.Time).Round(time.Millisecond))
	}
	if s.Done() {
		b.WriteString(" done")
	}
	b.WriteByte('\n')
	for i, r := range s.Ranks {
		fmt.Fprintf(&b, "%d %s %s epoch %d losses %d restarts %d", i, r.State, r.Doing, r.Epoch, r.Losses, r.Restarts)
		if !r.Lease.IsZero() {
			fmt.Fprintf(&b, " lease %s.%d", nameOf(r.Lease), r.Seq)
		}
		if r.Unextended != "" {
			fmt.Fprintf(&b, " not extended: %s", r.Unextended)
		}
		b.WriteByte('\n')
	}
	return b.String()
}

// effect is one line for an effect; none for a note.
func (p *player) effect(e jobs.Effect) string {
	switch e := e.(type) {
	case jobs.OrderGang:
		return p.order(e)
	case jobs.CancelGang:
		return fmt.Sprintf("cancel g%d: %s\n", e.Gang, e.Reason)
	case jobs.EndLease:
		return fmt.Sprintf("end %s: %s\n", nameOf(e.Chain), e.Reason)
	case jobs.ReportFault:
		return fmt.Sprintf("fault %s: %s\n", nameOf(e.Chain), e.Reason)
	case jobs.RenewLease:
		return fmt.Sprintf("renew %s until slot %d, cap %d\n", nameOf(e.Of), e.Until, e.Cap)
	case jobs.StartExecution:
		text := fmt.Sprintf("start %s round %d", showExec(e.Exec), e.Round)
		if e.Generation > 0 {
			text += fmt.Sprintf(" generation %d", e.Generation)
		}
		if len(e.From) > 0 {
			text += " from " + e.From[0].File.CID
		}
		return text + "\n"
	case jobs.StopExecution:
		return fmt.Sprintf("stop %s in %s\n", showExec(e.Exec), e.Grace)
	case jobs.GatherOutputs:
		return fmt.Sprintf("gather %s\n", showExec(e.Exec))
	case jobs.ReclaimExecution:
		return fmt.Sprintf("reclaim %s\n", showExec(e.Exec))
	case jobs.PollProvider:
		return fmt.Sprintf("poll %s\n", showExec(e.Exec))
	case jobs.SetFrozen:
		return fmt.Sprintf("frozen %s %t\n", showExec(e.Exec), e.Frozen)
	case jobs.Reduce:
		return fmt.Sprintf("reduce round %d\n", e.Round)
	case jobs.PublishPlan:
		return fmt.Sprintf("plan %d\n", e.Version)
	case jobs.BuyReplica:
		return fmt.Sprintf("replica %d.%d budget %d\n", e.Rank, e.Attempt, e.Budget)
	case jobs.RefuseReplica:
		return fmt.Sprintf("no replica %d.%d: %s\n", e.Rank, e.Attempt, e.Reason)
	case jobs.Answer:
		if e.Err != nil {
			return fmt.Sprintf("answer: no, %v\n", e.Err)
		}
		return "answer: yes\n"
	case jobs.Note:
		return ""
	}
	return plainEffects[fmt.Sprintf("%T", e)] + "\n"
}

// plainEffects are those that carry nothing.
var plainEffects = map[string]string{
	"jobs.LeaveLeases": "leave leases", "jobs.CheckResults": "check results", "jobs.EngageGuardians": "engage guardians",
	"jobs.AcquireCommand": "acquire command", "jobs.DismissGuardians": "dismiss guardians", "jobs.CloseAccount": "close account",
	"jobs.AnchorReceipts": "anchor receipts",
}

func (p *player) order(e jobs.OrderGang) string {
	p.orders[e.Gang] = e
	var b strings.Builder
	fmt.Fprintf(&b, "order g%d:", e.Gang)
	for _, seat := range e.Seats {
		fmt.Fprintf(&b, " %d@%d", seat.Rank, seat.Epoch)
	}
	fmt.Fprintf(&b, ", %d slots, cap %d, for %s", e.Slots, e.Cap, e.Until.Sub(p.now.Time).Round(time.Second))
	if e.Standby {
		b.WriteString(", of standbys")
	}
	for i, key := range e.Avoid {
		if i == 0 {
			b.WriteString(", not")
		}
		b.WriteString(" " + string(key[:1]))
	}
	return b.String() + "\n"
}

var causes = map[string]jobs.Cause{
	"silent": jobs.CauseSilent, "refused": jobs.CauseRefused, "broken": jobs.CauseBroken, "defaulted": jobs.CauseDefaulted,
	"late": jobs.CauseLate, "expired": jobs.CauseExpired, "absent": jobs.CauseAbsent, "condemned": jobs.CauseCondemned,
	"void": jobs.CauseVoid,
}

var stages = map[string]jobs.Stage{
	"pulling": jobs.StagePulling, "pulled": jobs.StagePulled, "healthy": jobs.StageHealthy, "unhealthy": jobs.StageUnhealthy,
}

var failures = map[string]jobs.Failure{
	"unfit": jobs.GangUnfit, "short": jobs.GangShort, "unfunded": jobs.GangUnfunded, "dropped": jobs.GangDropped,
}
