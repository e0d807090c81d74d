package harness

import (
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/node/buyer"
	"github.com/starling-network/starling/node/job"
)

// metric reads one number of the peer's metrics, by its whole name; false where there is none.
func (p *Peer) metric(t *testing.T, name string) (float64, bool) {
	t.Helper()
	w := httptest.NewRecorder()
	p.Metrics().ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/metrics", nil))
	if w.Code != http.StatusOK {
		t.Fatalf("status %d: %s", w.Code, w.Body)
	}
	for line := range strings.Lines(w.Body.String()) {
		if text, ok := strings.CutPrefix(line, name+" "); ok {
			v, err := strconv.ParseFloat(strings.TrimSpace(text), 64)
			if err != nil {
				t.Fatal(err)
			}
			return v, true
		}
	}
	return 0, false
}

// An operator sees in the metrics what was earned and paid, what was refused, and how executions, leases and jobs ended.
func TestMetricsOfMoneyAndEnds(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		n := New(t, Options{Providers: 1, Programs: programs, Log: Logger()})
		time.Sleep(3 * time.Second)
		b, p := n.Buyer(0), n.Provider(0)
		n.check(t, b, b.Wait(b.Submit(b.Job("work", 1, "3")).ID, time.Minute), buyer.Succeeded)
		fails := b.Job("work", 1, "3")
		fails.Module = "fail.wasm"
		fails.Blobs = map[string]job.Blob{fails.Module: b.Put("starling fake program fail\n")}
		b.Wait(b.Submit(fails).ID, time.Minute)
		tooLong := b.Job("work", 1, "3")
		tooLong.Timeouts.Run = 700 * time.Hour
		tooLong.Payment.Budget = market.Amount(700) * 1_000_000
		tooLong.Timeouts.Queue = 5 * time.Second
		b.Wait(b.Submit(tooLong).ID, time.Minute)
		n.Settle()
		time.Sleep(time.Minute)
		paid, _ := b.metric(t, "starling_paid_tokens_total")
		earned, _ := p.metric(t, "starling_earned_tokens_total")
		claimed, _ := p.metric(t, "starling_claimed_tokens_total")
		if paid <= 0 || claimed != paid || earned != claimed {
			t.Errorf("earned %v, claimed %v, paid %v", earned, claimed, paid)
		}
		for name, want := range map[string]float64{
			"starling_lost_tokens_total": 0, "starling_unclaimed_tokens": 0, "starling_offer_price_tokens{class=\"cpu\"}": 0.36,
			"starling_offer_state{state=\"selling\"}": 1, "starling_offer_state{state=\"drained\"}": 0, "starling_runtime{runtime=\"wasm\"}": 1,
			"starling_executions_ended_total{end=\"ok\"}": 1, "starling_executions_ended_total{end=\"exit\"}": 1,
			"starling_leases_ended_total{cause=\"released\"}": 2,
		} {
			if v, ok := p.metric(t, name); !ok || v != want {
				t.Errorf("the provider's %s is %v, %v, want %v", name, v, ok, want)
			}
		}
		for _, name := range []string{`starling_provider_orders_total{answer="quoted"}`, `starling_provider_orders_total{answer="duration"}`, "starling_fee_balance_sol"} {
			if v, ok := p.metric(t, name); !ok || v <= 0 {
				t.Errorf("the provider's %s is %v, %v", name, v, ok)
			}
		}
		for name, want := range map[string]float64{
			`starling_jobs_ended_total{outcome="succeeded"}`: 1, `starling_jobs_ended_total{outcome="failed"}`: 2, "starling_escrowed_tokens": 0,
		} {
			if v, ok := b.metric(t, name); !ok || v != want {
				t.Errorf("the buyer's %s is %v, %v, want %v", name, v, ok, want)
			}
		}
		for _, name := range []string{"starling_balance_tokens", "starling_spendable_tokens", "starling_fees_sol_total", "starling_stored_bytes"} {
			if v, ok := b.metric(t, name); !ok || v <= 0 {
				t.Errorf("the buyer's %s is %v, %v", name, v, ok)
			}
		}
	})
}
