package chain_test

import (
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"

	"github.com/starling-network/starling/chain"
	"github.com/starling-network/starling/market"
)

// TestScripts runs testdata/settlement: events by hand, and what the machine wants done. -rewrite writes the answers anew.
func TestScripts(t *testing.T) {
	t.Parallel()
	datadriven.Walk(t, "testdata/settlement", func(t *testing.T, path string) {
		s, now := chain.New(root(0), params()), time.Unix(0, 0)
		var journal []byte
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			var after string
			if d.MaybeScanArgs(t, "after", &after) {
				pause, err := time.ParseDuration(after)
				if err != nil {
					d.Fatalf(t, "after: %v", err)
				}
				now = now.Add(pause)
			}
			if d.Cmd == "restart" {
				restored, err := chain.Restore(journal, params())
				if err != nil {
					d.Fatalf(t, "restoring: %v", err)
				}
				s = restored
				return show(s)
			}
			next, effects, err := s.Step(now, scriptEvent(t, d))
			if err != nil {
				return "error: " + err.Error() + "\n"
			}
			s = next
			var out strings.Builder
			for _, e := range effects {
				if persist, ok := e.(chain.Persist); ok {
					journal = persist.State
				}
				fmt.Fprintln(&out, showEffect(e, now))
			}
			return out.String() + show(s)
		})
	})
}

// scriptEvent reads a command. Leases are named by one letter; a is owed to wallet A.
func scriptEvent(t *testing.T, d *datadriven.TestData) chain.Event {
	var batch uint32
	var reason string
	count, state := 1, ""
	d.MaybeScanArgs(t, "batch", &batch)
	d.MaybeScanArgs(t, "count", &count)
	d.MaybeScanArgs(t, "state", &state)
	d.MaybeScanArgs(t, "reason", &reason)
	switch d.Cmd {
	case "owe":
		ev := chain.AmountsOwed{Root: root(1), Receipts: 1}
		for _, field := range strings.Fields(d.Input) {
			name, amount, _ := strings.Cut(field, "=")
			n, err := strconv.ParseUint(amount, 10, 64)
			if err != nil {
				d.Fatalf(t, "%s: %v", field, err)
			}
			ev.Owed = append(ev.Owed, chain.Owed{Lease: lease(int(name[0])), To: key(int(name[0])), Cumulative: market.Amount(n)})
		}
		return ev
	case "prepared":
		return chain.PaymentPrepared{Batch: batch, Tx: chain.Prepared{ID: chain.TxID(fmt.Sprint("tx", batch)), Raw: []byte{1}, LastValid: 150, Count: count}}
	case "prepare-failed":
		return chain.PrepareFailed{Batch: batch, Reason: reason}
	case "sent":
		return chain.PaymentSent{Batch: batch}
	case "send-failed":
		return chain.SendFailed{Batch: batch, Reason: reason, Rejected: d.HasArg("rejected")}
	case "poll-failed":
		return chain.PollFailed{Batch: batch, Reason: reason}
	case "status":
		for s := chain.Unknown; s <= chain.Expired; s++ {
			if s.String() == state {
				return chain.StatusSeen{Batch: batch, Status: chain.TxStatus{State: s, Err: reason}}
			}
		}
	case "tick":
		return chain.Ticked{}
	}
	d.Fatalf(t, "unknown command %s %s", d.Cmd, state)
	return nil
}

func leaseName(l market.LeaseID) string {
	for c := 'a'; c <= 'z'; c++ {
		if lease(int(c)) == l {
			return string(c)
		}
	}
	return "?"
}

func showPayouts(payouts []chain.Payout) string {
	var out []string
	for _, p := range payouts {
		out = append(out, fmt.Sprintf("%s=%d", leaseName(p.Lease), p.Amount))
	}
	return strings.Join(out, " ")
}

func showEffect(e chain.Effect, now time.Time) string {
	switch e := e.(type) {
	case chain.Persist:
		return "persist"
	case chain.Prepare:
		return fmt.Sprintf("prepare batch %d: %s", e.Batch, showPayouts(e.Payment.Payouts))
	case chain.Send:
		return fmt.Sprintf("send batch %d", e.Batch)
	case chain.Poll:
		return fmt.Sprintf("poll batch %d", e.Batch)
	case chain.Settled:
		return fmt.Sprintf("settled batch %d: %s", e.Batch.No, showPayouts(e.Batch.Payouts))
	case chain.Waiting:
		return fmt.Sprintf("waiting %s: %s", e.Until.Sub(now), e.Reason)
	case chain.Done:
		return "done"
	}
	return "?"
}

func show(s chain.Settlement) string {
	var out strings.Builder
	for _, a := range s.Accounts() {
		fmt.Fprintf(&out, "  %s owed %d paid %d", leaseName(a.Lease), a.Owed, a.Paid)
		if a.Fails > 0 {
			fmt.Fprintf(&out, " fails %d", a.Fails)
		}
		fmt.Fprintln(&out)
	}
	for _, b := range s.InFlight() {
		fmt.Fprintf(&out, "  batch %d %s: %s\n", b.No, b.State, showPayouts(b.Payouts))
	}
	return out.String()
}
