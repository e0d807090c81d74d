package config

import (
	"errors"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/starling-network/starling/chain"
	"github.com/starling-network/starling/node/buyer/spend"
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

func TestLimitsSection(t *testing.T) {
	t.Parallel()
	l := Limits{PerJob: "2.5", PerProviderPerDay: "1"}
	if err := l.check(); err != nil {
		t.Error(err)
	}
	want := spend.Limits{PerJob: 2_500_000, PerProviderPerDay: 1_000_000}
	if got, err := l.Amounts(6); err != nil || got != want {
		t.Errorf("%+v, %v, want %+v", got, err, want)
	}
	for _, text := range []string{"0", "0.000", "-1", "much", "1e3"} {
		if err := (Limits{PerDay: text}).check(); !errors.Is(err, ErrConfig) || !strings.Contains(err.Error(), "perDay") {
			t.Errorf("%s: got %v", text, err)
		}
	}
	if _, err := (Limits{PerDay: "0.1"}).Amounts(0); !errors.Is(err, ErrConfig) { // the token has no decimals
		t.Errorf("got %v", err)
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
