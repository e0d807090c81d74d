package gauge_test

import (
	"bytes"
	"errors"
	"io"
	"testing"

	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/node/runtime/gauge"
	"github.com/starling-network/starling/verify/challenge"
	"github.com/starling-network/starling/verify/exclusive"
)

func TestAnswersAreTheProducts(t *testing.T) {
	t.Parallel()
	in, ask := io.Pipe()
	answer, out := io.Pipe()
	done := make(chan error, 1)
	go func() { done <- gauge.Serve(in, out, 2) }()
	c, err := gauge.NewClient(ask, answer)
	if err != nil {
		t.Fatal(err)
	}
	s := exclusive.Fit(exclusive.CPU, 0)
	for i := range 2 {
		seed := sign.Hash{byte(i)}
		tiles, err := c.Multiply(seed, s)
		if err != nil {
			t.Fatal(err)
		}
		g := challenge.ProductGenerator(seed)
		for k, got := range tiles {
			if got != challenge.NewTile(&g, s, s.Place(k)).Hash() {
				t.Errorf("tile %d of product %d is another", k, i)
			}
		}
	}
	_ = ask.Close()
	if err := <-done; err != nil {
		t.Error(err)
	}
}

// What answers may be the buyer's program.
func TestNonsenseIsRefused(t *testing.T) {
	t.Parallel()
	for _, said := range []string{"", "ready", "hello!"} {
		if _, err := gauge.NewClient(io.Discard, bytes.NewBufferString(said)); !errors.Is(err, gauge.ErrAnswer) {
			t.Errorf("%q: %v", said, err)
		}
	}
	for _, said := range []string{"", "\x00", "\xff\xff\xff\xff", "\x10\x00\x00\x00short"} {
		c, err := gauge.NewClient(io.Discard, bytes.NewBufferString("ready\n"+said))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := c.Multiply(sign.Hash{}, exclusive.Fit(exclusive.CPU, 0)); !errors.Is(err, gauge.ErrAnswer) {
			t.Errorf("%q: %v", said, err)
		}
	}
	big := challenge.Shape{Rows: 64, Columns: 64, Depth: 64, Products: 9}.Marshal()
	for _, asked := range [][]byte{make([]byte, 7), make([]byte, 48), append(make([]byte, 32), big[:]...)} {
		if err := gauge.Serve(bytes.NewReader(asked), io.Discard, 1); err == nil {
			t.Errorf("%x was answered", asked)
		}
	}
}
