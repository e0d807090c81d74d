package inventory

import (
	"context"
	"errors"
	"log/slog"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/node/gpu"
	"github.com/starling-network/starling/node/service"
)

// selling is the default section of a peer that sells.
func selling() Provide {
	p := Default()
	p.Enabled = true
	return p
}

func TestCheck(t *testing.T) {
	t.Parallel()
	for _, p := range []Provide{Default(), selling(), {}} {
		if err := p.Check(); err != nil {
			t.Errorf("%+v: %v", p, err)
		}
	}
	key := sign.NewPrivate([32]byte{7}).Key().String()
	for field, change := range map[string]func(*Provide){
		"units":               func(p *Provide) { p.Units = maxUnits + 1 },
		"unit":                func(p *Provide) { p.Unit.DiskMiB = 0 },
		"minTime and maxTime": func(p *Provide) { p.MaxTime = p.MinTime - 1 },
		"retain":              func(p *Provide) { p.Retain = maxRetain + 1 },
		"startWhen":           func(p *Provide) { p.StartWhen = "soon" },
		"claim":               func(p *Provide) { p.Claim.Amount = "much" },
		"retainMiB":           func(p *Provide) { p.RetainMiB = 0 },
		"gpu":                 func(p *Provide) { p.GPU.Price = "1" },
		"share":               func(p *Provide) { p.Share.CPU = 101 },
		"floor":               func(p *Provide) { p.Floor = map[string]string{"No Class": "1"} },
		"share.keep":          func(p *Provide) { p.Share.Keep = map[string]uint32{"": 1} },
		"maxLeasesPerBuyer":   func(p *Provide) { p.MaxLeasesPerBuyer = -1 },
		"minReputation":       func(p *Provide) { p.MinReputation = math.NaN() },
		"hours":               func(p *Provide) { p.Hours = []string{"never"} },
		"block[1]":            func(p *Provide) { p.Block = []Blocked{{Buyer: key}, {Buyer: "x"}} },
		"block and only":      func(p *Provide) { p.Only = make([]string, maxListed+1) },
		"only[0]":             func(p *Provide) { p.Only = []string{"x"} },
	} {
		p := selling()
		change(&p)
		err := p.Check()
		if !errors.Is(err, service.ErrConfig) || !strings.Contains(err.Error(), "provide."+field+": ") {
			t.Errorf("%s: got %v", field, err)
		}
	}
}

func TestPolicy(t *testing.T) {
	t.Parallel()
	key := sign.NewPrivate([32]byte{7}).Key()
	p := selling()
	p.Block, p.Only, p.MinReputation = []Blocked{{Buyer: key.String(), Reason: "owes us"}}, []string{key.String()}, 0.25
	got, err := p.Policy()
	if err != nil || got.Block[key] != "owes us" || len(got.Only) != 1 || got.Only[0] != key || got.MinReputation != 250_000 {
		t.Errorf("%+v, %v", got, err)
	}
}

func TestClaimWhen(t *testing.T) {
	t.Parallel()
	g := market.Genesis{Decimals: 6, SlotMillis: 400}
	if w, err := (Claim{Amount: "2.5", Every: time.Hour}).When(g); err != nil || w.Amount != 2_500_000 || w.Slots != 9000 {
		t.Errorf("%+v, %v", w, err)
	}
	if w, err := (Claim{Every: time.Hour}).When(g); err != nil || w.Amount != math.MaxUint64 {
		t.Errorf("by time alone: %+v, %v", w, err)
	}
	if _, err := (Claim{Amount: "0", Every: time.Hour}).When(g); !errors.Is(err, service.ErrConfig) {
		t.Errorf("of nothing: %v", err)
	}
}

// Lots are made of the machine's processors and of its GPUs; the rest is sold if the GPUs are not there.
func TestLots(t *testing.T) {
	t.Parallel()
	need := Need{Owner: sign.NewPrivate([32]byte{7}).Key(), Decimals: 6, Log: slog.New(slog.DiscardHandler)}
	small := selling()
	small.Unit = Unit{MilliCPU: 100, MemoryMiB: 1, DiskMiB: 1}
	withGPU := small
	withGPU.GPU = GPU{Price: "1", MilliCPU: 1, MemoryMiB: 1, DiskMiB: 1}
	gpusOnly, none := withGPU, small
	gpusOnly.Units, none.Share.Keep = 0, map[string]uint32{"cpu": 1}
	for name, c := range map[string]struct {
		of     Provide
		source gpu.Source
		want   []market.Class // nil: an error
	}{
		"sells nothing":    {Default(), nil, []market.Class{}},
		"processors":       {small, nil, []market.Class{CPU}},
		"both":             {withGPU, testMachine(), []market.Class{CPU, "gpu/h100", "gpu/l4"}},
		"no inventory":     {withGPU, nil, []market.Class{CPU}},
		"nothing but GPUs": {gpusOnly, nil, nil},
		"nothing is left":  {none, nil, nil},
	} {
		lots, err := NewGPUs(c.source).Lots(t.Context(), c.of, need)
		var got []market.Class
		for _, l := range lots {
			got = append(got, l.Class)
		}
		if (err != nil) != (c.want == nil) || err == nil && len(got) != len(c.want) {
			t.Errorf("%s: %v, %v, want %v", name, got, err, c.want)
		}
	}
}

// clock is a chain at slot 5, or one that is not known.
type clock struct{ err error }

func (c clock) Now(time.Time) (market.Slot, error) { return 5, c.err }

func TestHealth(t *testing.T) {
	t.Parallel()
	g, unknown := NewGPUs(nil), errors.New("no slot")
	s, err := g.Health(context.Background(), clock{}, []market.UnitID{{1}})
	if err != nil || s.At != 5 || s.CPUs == 0 || len(s.Devices) > 0 {
		t.Errorf("%+v, %v", s, err)
	}
	if _, err := g.Health(context.Background(), clock{unknown}, nil); !errors.Is(err, unknown) {
		t.Errorf("got %v", err)
	}
}
