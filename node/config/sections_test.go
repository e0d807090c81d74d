package config

import (
	"errors"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/starling-network/starling/chain"
)

func TestGuardSection(t *testing.T) {
	t.Parallel()
	good := Default().Guard
	if err := good.check(); err != nil {
		t.Error(err)
	}
	for field, change := range map[string]func(*Guard){
		"maxJobs": func(g *Guard) { g.MaxJobs = 10_001 },
		"share":   func(g *Guard) { g.Share = maxShare * 1.01 },
		"maxMiB":  func(g *Guard) { g.MaxMiB = -1 },
		"longest": func(g *Guard) { g.Longest = 366 * 24 * time.Hour },
	} {
		g := good
		change(&g)
		if err := g.check(); !errors.Is(err, ErrConfig) || !strings.Contains(err.Error(), "guard."+field+": ") {
			t.Errorf("%s: got %v", field, err)
		}
	}
	good.Share = math.NaN()
	if err := good.check(); !errors.Is(err, ErrConfig) {
		t.Errorf("a share that is no number: %v", err)
	}
}

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
