package settings

import (
	"errors"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/starling-network/starling/node/buyer/spend"
	"github.com/starling-network/starling/node/service"
)

func TestCheck(t *testing.T) {
	t.Parallel()
	if err := Default().Check(); err != nil {
		t.Error(err)
	}
	for field, change := range map[string]func(*Buy){
		"quoteWindow":   func(b *Buy) { b.QuoteWindow = time.Minute + 1 },
		"minReputation": func(b *Buy) { b.MinReputation = math.NaN() },
		"maxJobs":       func(b *Buy) { b.MaxJobs = 0 },
		"limits.perJob": func(b *Buy) { b.Limits.PerJob = "0" },
	} {
		b := Default()
		change(&b)
		if err := b.Check(); !errors.Is(err, service.ErrConfig) || !strings.Contains(err.Error(), "buy."+field+": ") {
			t.Errorf("%s: got %v", field, err)
		}
	}
}

func TestLimits(t *testing.T) {
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
		if err := (Limits{PerDay: text}).check(); !errors.Is(err, service.ErrConfig) || !strings.Contains(err.Error(), "perDay") {
			t.Errorf("%s: got %v", text, err)
		}
	}
	if _, err := (Limits{PerDay: "0.1"}).Amounts(0); !errors.Is(err, service.ErrConfig) { // the token has no decimals
		t.Errorf("got %v", err)
	}
}
