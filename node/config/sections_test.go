package config

import (
	"testing"

	"github.com/starling-network/starling/chain"
)

func TestFeesSection(t *testing.T) {
	t.Parallel()
	d := chain.DefaultFees()
	if got := (Fees{}).Bids(); got != d {
		t.Errorf("%+v, want %+v", got, d)
	}
	if got := (Fees{MaxLamports: 7, TokenLamports: 9}).Bids(); got.Most != 7 || got.TokenLamports != 9 || got.Least != d.Least {
		t.Errorf("%+v", got)
	}
}
