package stream_test

import (
	"strings"
	"testing"

	"github.com/starling-network/starling/p2p/p2ptest"
)

// BenchmarkCall is one call of 500 bytes and its answer on a warm loopback connection, both ends.
func BenchmarkCall(b *testing.B) {
	from, to := pair(b)
	defer echo.Handle(to, p2ptest.Network, upper, quiet).Close()
	connect(b, from, to)
	req := say(strings.Repeat("x", 500))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := echo.Call(b.Context(), from, p2ptest.Network, to.ID(), req); err != nil {
			b.Fatal(err)
		}
	}
}
