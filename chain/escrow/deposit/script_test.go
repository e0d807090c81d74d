package deposit_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"

	"github.com/starling-network/starling/chain/escrow"
	"github.com/starling-network/starling/market"
)

// TestScripts runs testdata/script: lives of an escrow by hand, and what buyer and providers are told in each. -rewrite writes
// the answers anew. Leases are named by a letter, in the order in which they are funded.
func TestScripts(t *testing.T) {
	t.Parallel()
	datadriven.Walk(t, "testdata/script", func(t *testing.T, path string) {
		w := simple(t)
		told := map[string]int{}
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			w.t = t
			w.obey(t, d)
			return w.news(told)
		})
	})
}

func (w *world) obey(t *testing.T, d *datadriven.TestData) {
	t.Helper()
	n := func(name string, otherwise int) int {
		d.MaybeScanArgs(t, name, &otherwise)
		return otherwise
	}
	lease := func() *rental {
		var name string
		d.ScanArgs(t, "lease", &name)
		return w.leases[name[0]-'a']
	}
	land := always
	if d.HasArg("halted") {
		land = func() bool { return false }
	}
	switch d.Cmd {
	case "fund":
		var cores []market.LeaseCore
		for range n("leases", 1) {
			cores = append(cores, w.lease(uint64(n("before", 60)), uint64(n("length", 200))))
		}
		if err := w.fund(market.Slot(n("deadline", 2000)), market.Amount(n("deposit", 0)), cores...); err != nil {
			d.Fatalf(t, "%v", err)
		}
	case "pass":
		w.pass(n("slots", 1), land)
	case "voucher":
		w.voucher(lease(), uint64(n("slots", 10)))
	case "finish":
		w.finish(lease())
	case "retire":
		w.retire(lease())
	case "lazy":
		lease().lazy, lease().claims.wallet.Lose = true, true
	case "end":
		w.end()
	case "fork":
		w.s.Fork(n("transactions", 1), d.HasArg("back"))
	case "buyer":
		w.buyer.wallet.Down, w.buyer.wallet.Lose = d.HasArg("down"), d.HasArg("lose")
	case "crash":
		w.buyer.crash = n("write", 1)
	case "accounts":
		w.accounts()
	default:
		d.Fatalf(t, "unknown command %s", d.Cmd)
	}
}

// news is what was told since it was last asked, and how the chain looks.
func (w *world) news(told map[string]int) string {
	var out strings.Builder
	for _, e := range w.log[told["buyer"]:] {
		fmt.Fprintf(&out, "buyer: %s\n", w.show(e))
	}
	told["buyer"] = len(w.log)
	for i, r := range w.leases {
		name := string(rune('a' + i))
		for _, e := range r.log[told[name]:] {
			fmt.Fprintf(&out, "%s: %s\n", name, w.show(e))
		}
		told[name] = len(r.log)
	}
	fmt.Fprintf(&out, "slot %d", w.s.Slot)
	for _, e := range w.s.Tip.Escrows {
		fmt.Fprintf(&out, ": outstanding %d, free %d, fees %d, tranches %d, closed %d", e.Outstanding, w.s.Tip.Tokens[e.Vault].Amount-e.Outstanding-e.Fee,
			e.Fee, e.Tranches, e.Closed)
	}
	if reason := w.buyer.m.Reason(); reason != "" {
		fmt.Fprintf(&out, "\nbuyer waits: %s", reason)
	}
	return out.String() + "\n"
}

func (w *world) show(e escrow.Effect) string {
	names := func(ids []market.LeaseID) (out string) {
		for _, id := range ids {
			for i, r := range w.leases {
				if r.core.ID() == id {
					out += string(rune('a' + i))
				}
			}
		}
		return out
	}
	switch e := e.(type) {
	case escrow.Opening:
		return fmt.Sprintf("opens the escrow of slot %d", e.Opened)
	case escrow.Funded:
		var ids []market.LeaseID
		for _, l := range e.Leases {
			ids = append(ids, l.Lease)
		}
		word := map[bool]string{true: "for ever", false: "confirmed"}[e.Final]
		return fmt.Sprintf("funded %s in tranche %d, slot %d, %s", names(ids), e.Leases[0].Funding.Tranche, e.Landed, word)
	case escrow.Void:
		return "void " + names(e.Leases)
	case escrow.Refunded:
		return fmt.Sprintf("refunded %d", e.Amount)
	case escrow.Closed:
		return "closed"
	case escrow.Paid:
		return fmt.Sprintf("paid %d", e.Cumulative)
	case escrow.Settled:
		return fmt.Sprintf("settled with %d", e.Paid)
	case escrow.Lost:
		return fmt.Sprintf("lost %d of %d: %s", e.Owed-e.Paid, e.Owed, e.Reason)
	}
	return fmt.Sprintf("%T", e)
}
