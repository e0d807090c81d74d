package wasm

import (
	"path/filepath"
	"testing"
	"time"

	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/node/runtime"
	"github.com/starling-network/starling/verify/exclusive"
)

// What a probe of a program that computes costs it: readying beside it, and the time that it stands still.
func BenchmarkGauge(b *testing.B) {
	module, _ := program(b)
	r := newRuntime(b, time.Minute)
	h, err := r.Start(b.Context(), runtime.Spec{ID: "bench", Module: module, Args: []string{"spin"}, Dir: filepath.Join(b.TempDir(), "run")})
	if err != nil {
		b.Fatal(err)
	}
	defer func() { _ = r.Destroy(b.Context(), h) }()
	shape := exclusive.Fit(exclusive.CPU, 10e9)
	var readied, still time.Duration
	for b.Loop() {
		begun := time.Now()
		g, err := r.Gauge(b.Context(), h)
		if err != nil {
			b.Fatal(err)
		}
		readied += time.Since(begun)
		begun = time.Now()
		if err := g.Multiply(b.Context(), make([]sign.Hash, 1), shape, func(int, []sign.Hash) error { return nil }); err != nil {
			b.Fatal(err)
		}
		still += time.Since(begun)
		_ = g.Close()
	}
	b.ReportMetric(float64(readied.Milliseconds())/float64(b.N), "ready-ms")
	b.ReportMetric(float64(still.Milliseconds())/float64(b.N), "still-ms")
}
