package provider

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/libp2p/go-libp2p/core/peer"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/node/provider/offers"
	"github.com/starling-network/starling/node/runtime"
	"github.com/starling-network/starling/node/runtime/runtimetest"
	"github.com/starling-network/starling/node/store"
)

// An operator who wants no clusters refuses their members, and so does a peer that cannot have any; the offers of both say so.
func TestRefusesClusters(t *testing.T) {
	t.Parallel()
	rt := map[string]runtime.Runtime{"docker": runtimetest.NewFake("docker", nil)}
	p := &Provider{cfg: Config{Runtimes: rt, Policy: Policy{Clusters: Clusters{No: true}}}, work: joining{errNone}}
	if no := p.joins(t.Context(), "docker"); no == nil || no.Reason != market.ReasonRuntime {
		t.Errorf("the operator's word: %v", no)
	}
	if (seen{p}).Clusters() {
		t.Error("its offers do not say so")
	}
	p = &Provider{cfg: Config{Runtimes: rt}, work: joining{errNone}}
	if no := p.joins(t.Context(), "docker"); no == nil || no.Reason != market.ReasonRuntime {
		t.Errorf("without networks: %v", no)
	}
	if !(seen{p}).Clusters() {
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
		p := &Provider{
			cfg:  Config{Runtimes: map[string]runtime.Runtime{"docker": rt}, Log: slog.New(slog.DiscardHandler)},
			work: joining{},
		}
		var err error
		if p.board, err = offers.New(ctx, offers.Config{Store: store.NewMemory()}); err != nil {
			t.Fatal(err)
		}
		done := make(chan struct{})
		go func() { p.overlays.try(ctx, p); close(done) }()
		synctest.Wait()
		if (seen{p}).Clusters() {
			t.Fatalf("without overlays: offers clusters %v", (seen{p}).Clusters())
		}
		time.Sleep(3 * overlaysAgain)
		synctest.Wait()
		rt.NoOverlay = ""
		<-done
		if !(seen{p}).Clusters() {
			t.Errorf("with overlays: offers clusters %v", (seen{p}).Clusters())
		}
	})
}

var errNone = errors.New("this provider gives programs no networks")

// joining is Work of a machine that can have members of clusters unless err says why not, or its engine does.
type joining struct{ err error }

func (j joining) Joins(ctx context.Context, rt runtime.Runtime) error {
	if j.err != nil {
		return j.err
	}
	return rt.(runtime.Networker).CanOverlay(ctx)
}

func (joining) CPUMillis(context.Context, market.LeaseID) uint64              { return 0 }
func (joining) Digest(market.LeaseID) sign.Hash                               { return sign.Hash{} }
func (joining) End(context.Context, market.LeaseID, time.Duration) error      { return nil }
func (joining) HandTo(context.Context, market.LeaseID, peer.ID, uint64) error { return nil }
func (joining) Terms(market.LeaseID) (job, guardians sign.Hash, ok bool)      { return }
