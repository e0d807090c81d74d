package claims_test

import (
	"bytes"
	"errors"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/starling-network/starling/chain/chaintest/escrowtest"
	"github.com/starling-network/starling/chain/escrow"
	"github.com/starling-network/starling/chain/escrow/claims"
	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/verify"
)

// journals are those of a lease with one key, and of one with a lookup table, from the first to the last.
func journals(t escrowtest.T) (out [][]byte, l *life) {
	l = begin(t, 2, 200, "buyer")
	out = append(out, l.journal)
	l.keep(l.voucher(1, 5, 0), 0)
	l.pass(3, always)
	l.keep(l.voucher(2, 10, 0), 50)
	l.pass(3, always)
	out = append(out, l.journal)
	l.keep(l.voucher(3, 12, verify.VoucherFinal), 120)
	out = append(out, l.journal)
	l.until("settled", 60, l.isOver)
	out = append(out, l.journal)
	x := begin(t, 4, 300, guardians...)
	x.until("table made", 100, func() bool { return len(x.chain.Tip.Tables) == 1 })
	out = append(out, x.journal)
	x.keep(x.voucher(1, 10, verify.VoucherFinal), 100)
	x.until("settled", 100, x.isOver)
	return append(out, x.journal), l
}

// A journal reads as one state or none: a changed byte is refused, or makes another state that is written so.
func TestRestoreRefuses(t *testing.T) {
	t.Parallel()
	all, l := journals(t)
	restore := func(b []byte) (claims.Claims, error) {
		return claims.Restore(b, l.chain.Net, when, escrowtest.Timing())
	}
	for i, b := range all {
		if c, err := restore(b); err != nil || !bytes.Equal(c.Marshal(), b) {
			t.Fatalf("journal %d: %v", i, err)
		}
		for n := range len(b) {
			if _, err := restore(b[:n]); !errors.Is(err, market.ErrMalformed) {
				t.Fatalf("journal %d, %d of %d bytes: %v", i, n, len(b), err)
			}
		}
		if _, err := restore(append(bytes.Clone(b), 0)); !errors.Is(err, market.ErrMalformed) {
			t.Errorf("journal %d and a byte: %v", i, err)
		}
	}
	rapid.Check(t, func(t *rapid.T) {
		b := bytes.Clone(rapid.SampledFrom(all).Draw(t, "journal"))
		b[rapid.IntRange(0, len(b)-1).Draw(t, "at")] ^= byte(rapid.IntRange(1, 255).Draw(t, "bits"))
		c, err := restore(b)
		if err == nil && !bytes.Equal(c.Marshal(), b) || err != nil && !errors.Is(err, market.ErrMalformed) {
			t.Fatalf("%v", err)
		}
	})
}

func FuzzClaims(f *testing.F) {
	all, l := journals(f)
	f.Add([]byte{})
	for _, b := range all {
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		c, err := claims.Restore(b, l.chain.Net, escrow.When{Amount: 1}, escrowtest.Timing())
		if err != nil {
			if !errors.Is(err, market.ErrMalformed) {
				t.Errorf("refused with %v", err)
			}
			return
		}
		if string(c.Marshal()) != string(b) {
			t.Errorf("%x reads as the journal %x", b, c.Marshal())
		}
		if _, _, err := c.Step(time.Unix(0, 0), escrow.Ticked{}); err != nil {
			t.Error(err)
		}
	})
}
