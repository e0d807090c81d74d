package hooks

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/node/executor"
	"github.com/starling-network/starling/node/executor/executortest"
	"github.com/starling-network/starling/node/nodepb"
	"github.com/starling-network/starling/node/runtime"
	"github.com/starling-network/starling/node/runtime/runtimetest"
	"github.com/starling-network/starling/node/runtime/runtimetest/guest"
	"github.com/starling-network/starling/p2p/stream"
)

// One probe comes after the other, with a rest between, and none while the program is paused or not there.
func TestProbesTakeTurns(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := executortest.New(t)
		b.Runtimes = map[string]runtime.Runtime{
			"wasm": runtimetest.NewFake("wasm", map[string]guest.Program{"wait": executortest.Wait}),
		}
		release := make(starting)
		b.Hooks = []executor.Hook{release, Program{b.Blobs, b.Files}, Probes{}}
		b.Start()
		e := b.Must(market.LeaseID{1}, 1, &nodepb.Workload{Runtime: "wasm", Module: b.Module("wait")})
		begin := func() (func(), string) {
			done, err := Probes{}.begin(e)
			if no, ok := errors.AsType[*stream.Refused](err); ok {
				return done, no.Code
			}
			return done, ""
		}
		if _, code := begin(); code != stream.CodeBusy {
			t.Errorf("before the start: %q", code)
		}
		close(release)
		b.Running(e)
		synctest.Wait()
		done, code := begin()
		if code != "" {
			t.Fatalf("the first one: %q", code)
		}
		if _, code := begin(); code != stream.CodeBusy {
			t.Errorf("a second one at the same time: %q", code)
		}
		done()
		if _, code := begin(); code != stream.CodeBusy {
			t.Errorf("without a rest: %q", code)
		}
		time.Sleep(time.Second)
		if done, code = begin(); code != "" {
			t.Errorf("after the rest: %q", code)
		}
		done()
		if err := executor.SetPaused(t.Context(), e, true); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second)
		if _, code := begin(); code != "paused" {
			t.Errorf("while it is paused: %q", code)
		}
		b.End(market.LeaseID{1}, 0)
	})
}

// starting is a hook that waits until it is closed.
type starting chan struct{}

func (s starting) Prestart(context.Context, *executor.Execution, *executor.Launch) error {
	<-s
	return nil
}
