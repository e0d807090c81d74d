package settings

import (
	"errors"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/starling-network/starling/node/service"
)

func TestCheck(t *testing.T) {
	t.Parallel()
	if err := Default().Check(); err != nil {
		t.Error(err)
	}
	for field, change := range map[string]func(*Guard){
		"maxJobs": func(g *Guard) { g.MaxJobs = 10_001 },
		"share":   func(g *Guard) { g.Share = maxShare * 1.01 },
		"maxMiB":  func(g *Guard) { g.MaxMiB = -1 },
		"longest": func(g *Guard) { g.Longest = 366 * 24 * time.Hour },
	} {
		g := Default()
		change(&g)
		if err := g.Check(); !errors.Is(err, service.ErrConfig) || !strings.Contains(err.Error(), "guard."+field+": ") {
			t.Errorf("%s: got %v", field, err)
		}
	}
	g := Default()
	g.Share = math.NaN()
	if err := g.Check(); !errors.Is(err, service.ErrConfig) {
		t.Errorf("a share that is no number: %v", err)
	}
}
