package hooks_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ipfs/go-cid"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/node/executor"
	"github.com/starling-network/starling/node/executor/hooks"
	"github.com/starling-network/starling/node/nodepb"
	"github.com/starling-network/starling/node/protocol"
	"github.com/starling-network/starling/node/runtime/runtimetest/guest"
	"github.com/starling-network/starling/node/workload"
	"github.com/starling-network/starling/p2p/stream"
)

// crowded is a buyer's peer that serves others until a time.
type crowded struct {
	executor.Files
	until time.Time
}

func (f crowded) Obtain(ctx context.Context, at workload.Places, c cid.Cid, max int64) error {
	if time.Now().Before(f.until) {
		return stream.Refuse(stream.CodeBusy, "peer is answering as many streams as it can")
	}
	return f.Files.Obtain(ctx, at, c, max)
}

// A provider waits for its turn to fetch the program and the inputs, for as long as the job allows.
func TestFetchFromBusyBuyer(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		busy, pull time.Duration
		ends       nodepb.ExecState
	}{
		"for seconds":             {9 * time.Second, time.Minute, nodepb.ExecState_EXEC_STATE_EXITED},
		"for minutes, no limit":   {5 * time.Minute, 0, nodepb.ExecState_EXEC_STATE_EXITED},
		"longer than it may take": {time.Hour, time.Minute, nodepb.ExecState_EXEC_STATE_FAILED},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t, map[string]guest.Program{"train": func(guest.Process) int { return 0 }})
				r.Stop()
				r.hooks.Files = crowded{r.Files, time.Now().Add(c.busy)}
				r.Bench.Hooks = hooks.All(r.hooks, noNetworks{}, nil)
				r.Start()
				began := time.Now()
				s := r.Await(r.Must(market.LeaseID{1}, 1, &nodepb.Workload{
					Runtime: "wasm", Module: r.Module("train"), PullMillis: uint64(c.pull / time.Millisecond),
				}))
				late := c.ends == nodepb.ExecState_EXEC_STATE_FAILED
				if s.State != c.ends || late && s.Reason != protocol.ReasonStart {
					t.Errorf("%v", s)
				}
				if took := time.Since(began); late && took != c.pull || !late && (took < c.busy || took > c.busy+10*time.Second) {
					t.Errorf("after %v", took)
				}
			})
		})
	}
}
