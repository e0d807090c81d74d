package overlay

import (
	"testing"

	"github.com/prometheus/client_golang/prometheus"
)

func TestMetricsAreWhole(t *testing.T) {
	t.Parallel()
	r := prometheus.NewPedanticRegistry()
	n := New("test", nil)
	n.stats.dropped[dropSpoofed].Add(3)
	if err := r.Register(n); err != nil {
		t.Fatal(err)
	}
	got, err := r.Gather()
	if err != nil {
		t.Fatal(err)
	}
	series, spoofed := 0, 0.0
	for _, f := range got {
		series += len(f.GetMetric())
		for _, m := range f.GetMetric() {
			for _, l := range m.GetLabel() {
				if l.GetValue() == "spoofed" {
					spoofed = m.GetCounter().GetValue()
				}
			}
		}
	}
	if want := int(drops) + 2 + 3 + 1 + 3 + 2; series != want || spoofed != 3 {
		t.Fatalf("%d series, want %d; spoofed %v", series, want, spoofed)
	}
}
