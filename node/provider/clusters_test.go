package provider

import (
	"context"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/node/cluster"
	"github.com/starling-network/starling/node/runtime"
	"github.com/starling-network/starling/node/runtime/runtimetest"
)

// An operator who wants no clusters refuses their members, and so does a peer that cannot have any; the offers of both say so.
func TestRefusesClusters(t *testing.T) {
	t.Parallel()
	rt := map[string]runtime.Runtime{"docker": runtimetest.NewFake("docker", nil)}
	p := &Provider{cfg: Config{Runtimes: rt, Policy: Policy{Clusters: Clusters{No: true}}}, exec: &executor{}}
	if no := p.joins(t.Context(), "docker"); no == nil || no.Reason != market.ReasonRuntime {
		t.Errorf("the operator's word: %v", no)
	}
	if p.joinsAny() {
		t.Error("its offers do not say so")
	}
	p = &Provider{cfg: Config{Runtimes: rt}, exec: &executor{}}
	if no := p.joins(t.Context(), "docker"); no == nil || no.Reason != market.ReasonRuntime {
		t.Errorf("without networks: %v", no)
	}
	if !p.joinsAny() {
		t.Error("offers say that it has no clusters before it has tried")
	}
}

// A peer whose engine was away when it began offers members once that is back.
func TestOffersClustersLater(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		rt := runtimetest.NewFake("docker", nil)
		rt.NoOverlay = "the engine is away"
		p := &Provider{cfg: Config{Runtimes: map[string]runtime.Runtime{"docker": rt}, Log: slog.New(slog.DiscardHandler)}, changed: make(chan struct{}, 1),
			exec: &executor{networks: noNetworks{}, member: func(market.HoldID) cluster.PrivateKey { return cluster.PrivateKey{} }}}
		done := make(chan struct{})
		go func() { p.tryOverlays(ctx); close(done) }()
		synctest.Wait()
		if p.joinsAny() || len(p.changed) != 1 {
			t.Fatalf("without overlays: offers clusters %v, offers are told again %d times", p.joinsAny(), len(p.changed))
		}
		<-p.changed
		time.Sleep(3 * overlaysAgain)
		synctest.Wait()
		if len(p.changed) != 0 {
			t.Error("offers are told again though nothing changed")
		}
		rt.NoOverlay = ""
		<-done
		if !p.joinsAny() || len(p.changed) != 1 {
			t.Errorf("with overlays: offers clusters %v, offers are told again %d times", p.joinsAny(), len(p.changed))
		}
	})
}

type noNetworks struct{}

func (noNetworks) Join(Joining) (Network, error) { return nil, errNoNetworks }
