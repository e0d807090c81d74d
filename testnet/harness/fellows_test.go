package harness

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/starling-network/starling/node/buyer"
	"github.com/starling-network/starling/node/job"
)

// Providers that have a job's input already send it to the other providers of the job.
func TestSharedInput(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const providers, chunks = 4, 10
		n := New(t, Options{Providers: providers, Units: 1, Programs: programs, RTT: 50 * time.Millisecond})
		time.Sleep(3 * time.Second)
		b := n.Buyer(0)
		model := b.Put(strings.Repeat("model...", chunks<<20/8))
		for _, count := range []uint32{2, providers} {
			spec := b.Job("work", count, "5") // seconds: fellows read only while it runs
			spec.Inputs = []job.Input{{Source: "model", Path: "/model/all"}}
			spec.Blobs["model"] = model
			n.check(t, b, b.Wait(b.Submit(spec).ID, time.Minute), buyer.Succeeded)
		}
		var shared uint64
		for i := range providers {
			shared += n.Provider(i).Node.Files().Shared()
		}
		if most := uint64(providers * chunks); shared == 0 || shared > most {
			t.Errorf("providers sent each other %d chunks, want 1 to %d", shared, most)
		}
	})
}
