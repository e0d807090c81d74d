package buyer

import (
	"strings"
	"testing"

	"github.com/ipfs/go-cid"
	"github.com/multiformats/go-multihash"

	"github.com/starling-network/starling/node/job"
	"github.com/starling-network/starling/node/nodepb"
)

// TestAttackTerminalTexts: what a provider says of an execution drives no terminal, whichever field it says it in.
func TestAttackTerminalTexts(t *testing.T) {
	t.Parallel()
	const evil = "\x1b]0;owned\x07\x1b[2J\u009b31mhello\nhint: run this"
	sum, err := multihash.Sum(nil, multihash.SHA2_256, -1)
	if err != nil {
		t.Fatal(err)
	}
	b, l := &Buyer{}, leased(t)
	said := func(ex *nodepb.Execution) string {
		res, err := b.gather(t.Context(), l, ex, []job.Output{{Path: "/out"}})
		if err != nil {
			t.Fatal(err)
		}
		return res.reason + res.message + res.lost
	}
	v := liveOf(&nodepb.Execution{State: nodepb.ExecState_EXEC_STATE_RUNNING, Health: nodepb.Health_HEALTH_UNHEALTHY, HealthMessage: evil, Devices: []string{evil}})
	for what, text := range map[string]string{
		"a failure":  said(&nodepb.Execution{State: nodepb.ExecState_EXEC_STATE_FAILED, Reason: evil, Message: evil}),
		"no start":   said(&nodepb.Execution{State: nodepb.ExecState_EXEC_STATE_FAILED, Reason: "start", Message: evil}),
		"a loss":     said(&nodepb.Execution{Reason: "lost", Message: evil}),
		"its health": v.Message + strings.Join(v.Devices, ""),
		"an output": said(&nodepb.Execution{State: nodepb.ExecState_EXEC_STATE_EXITED,
			Outputs: []*nodepb.Output{{Path: "/out/" + evil, Blob: &nodepb.Blob{Cid: cid.NewCidV1(cid.Raw, sum).Bytes()}}}}),
	} {
		if text == "" || strings.ContainsAny(text, "\x1b\x07\u009b\n") {
			t.Errorf("%s: %q", what, text)
		}
	}
}
