package billing

import (
	"context"
	"log/slog"
	"maps"
	"os"
	"regexp"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/lease"
	"github.com/starling-network/starling/node/metering"
	"github.com/starling-network/starling/node/provider/providertest"
	"github.com/starling-network/starling/p2p/p2ptest"
	"github.com/starling-network/starling/verify/meter"
)

// Each effect of a seller is either journalled with its step or carried out by the loop.
func TestEffects(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		effects := map[string]meter.Effect{
			"Persist": meter.Persist{State: []byte("{}")}, "CompleteReceipt": meter.CompleteReceipt{},
			"StartWork": meter.StartWork{}, "ProposeReceipt": meter.ProposeReceipt{}, "StopWork": meter.StopWork{},
			"Settled": meter.Settled{},
		}
		payers := map[string]meter.Effect{
			"Cosign": meter.Cosign{}, "IssueVoucher": meter.IssueVoucher{}, "StopPaying": meter.StopPaying{},
			"Refuse": meter.Refuse{},
		}
		source, err := os.ReadFile("../../../verify/meter/event.go")
		if err != nil {
			t.Fatal(err)
		}
		var all []string
		for _, m := range regexp.MustCompile(`(?m)^func \((\w+)\) effect\(\)`).FindAllSubmatch(source, -1) {
			all = append(all, string(m[1]))
		}
		slices.Sort(all)
		known := slices.AppendSeq(slices.Collect(maps.Keys(effects)), maps.Keys(payers))
		if slices.Sort(known); !slices.Equal(all, known) {
			t.Fatalf("verify/meter has the effects %v, this test %v", all, known)
		}

		host := p2ptest.NewNet(t, 1, time.Millisecond).Hosts[0]
		s := &Meter{
			p: &Meters{
				cfg: Config{Host: host, Genesis: providertest.Genesis, Key: providertest.KeyOf(t, 0), Filed: unpublished{},
					Log: slog.New(slog.DiscardHandler)},
				floor: &floor{until: map[market.UnitID]market.Slot{}},
			},
			rec:  lease.Record{Lease: market.LeaseID{1}, Core: &market.LeaseCore{}},
			poke: make(chan struct{}, 1),
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel() // nobody is asked for a cosignature
		for name, e := range effects {
			step := metering.Step[meter.Seller]{Effects: []meter.Effect{e}}
			if err := (sold{s}).Complete(&step); err != nil {
				t.Errorf("%s: %v", name, err)
			}
			journalled := name == "Persist" || name == "CompleteReceipt"
			if journalled != (len(step.Records) == 1) || journalled != (len(step.Effects) == 0) {
				t.Errorf("%s: %d records, %d effects remain", name, len(step.Records), len(step.Effects))
			}
			if _, err := s.carryOut(ctx, step.Effects); err != nil {
				t.Errorf("%s is not carried out: %v", name, err)
			}
		}
		for name, e := range payers {
			if _, err := s.carryOut(ctx, []meter.Effect{e}); err == nil {
				t.Errorf("%s is carried out by a seller", name)
			}
		}
	})
}
