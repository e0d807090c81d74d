package harness

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ipfs/go-cid"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/node/buyer"
	"github.com/starling-network/starling/node/buyer/record"
	"github.com/starling-network/starling/node/job"
	"github.com/starling-network/starling/node/runtime/runtimetest/guest"
)

// leaves are programs that leave a file at /out.
func leaves() map[string]guest.Program {
	return with("leave", func(p guest.Process) int {
		if guest.WriteFile(p, "/out/f", []byte(p.Args()[0])) != nil {
			return 1
		}
		return 0
	})
}

// copies waits until the copies of a job's outputs are as wanted.
func (p *Peer) copies(id string, wanted func(record.ShownCopies) bool) record.ShownCopies {
	p.net.t.Helper()
	var s record.ShownCopies
	var err error
	for range 1200 {
		if s, err = p.Node.Copies().Show(p.net.t.Context(), id); err == nil && wanted(s) {
			return s
		}
		time.Sleep(100 * time.Millisecond)
	}
	p.net.t.Fatalf("copies of job %s: %+v, %v\n%s", id, s, err, p.Why(id))
	return s
}

// keepers returns the providers that have copies.
func keepers(s record.ShownCopies) (out []sign.Key) {
	for _, c := range s.Copies {
		if c.State == record.CopyKept {
			out = append(out, c.Provider)
		}
	}
	return out
}

// blobs returns the digests of a peer's stored files.
func (p *Peer) blobs() (out []cid.Cid) {
	p.net.t.Helper()
	all, err := p.Blobs.List()
	if err != nil {
		p.net.t.Fatal(err)
	}
	for _, b := range all {
		out = append(out, b.CID)
	}
	return out
}

// The outputs of a job survive their provider, and the loss of all files of the buyer's peer. Two providers keep them,
// and cannot read them. After one of them was killed, the outputs come from the other, and a third one takes a copy.
func TestCopies(t *testing.T) {
	t.Parallel()
	for name, free := range map[string]bool{"free": true, "paid": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				price, most := "0.36", uint64(1_000_000)
				if free {
					price, most = "0", 0
				}
				n := New(t, Options{
					Providers: 4, Units: 1, Free: free, Programs: leaves(), Log: Logger(), Configure: withDisk(4, price),
				})
				time.Sleep(3 * time.Second)
				b := n.Buyer(0)
				const text = "the text of a result"
				spec := b.Job("leave", 1, text)
				spec.Outputs = []job.Output{{Path: "/out"}}
				spec.Copies = &job.Copies{Count: 2, For: job.Span(10 * time.Minute), MaxPrice: market.Price(most)}
				j := b.Wait(b.Submit(spec).ID, time.Minute)
				if j.State != buyer.Succeeded || len(j.Ranks[0].Outputs) != 1 {
					t.Fatalf("%s\n%s", j.Summary(), b.Why(j.ID))
				}
				s := b.copies(j.ID, func(s record.ShownCopies) bool { return s.Kept() == 2 })
				at := keepers(s)
				if at[0] == at[1] || at[0] == j.Ranks[0].Provider || at[1] == j.Ranks[0].Provider {
					t.Errorf("copies at %v, of the outputs of %v", at, j.Ranks[0].Provider)
				}
				for _, c := range s.Copies {
					if d := time.Until(c.Until); d < 9*time.Minute || d > 11*time.Minute {
						t.Errorf("copy at %v: paid for %v", c.Provider, d)
					}
				}
				for _, p := range at {
					for _, c := range n.peer(p).blobs() {
						if strings.Contains(n.peer(p).Read(c.String()), text) {
							t.Errorf("%v reads the outputs in %s", p, c)
						}
					}
				}

				output := j.Ranks[0].Outputs[0].CID
				n.peer(j.Ranks[0].Provider).Kill()
				n.peer(at[0]).Kill()
				for _, c := range b.blobs() {
					if err := b.Blobs.Remove(c); err != nil {
						t.Fatal(err)
					}
				}
				if err := b.Node.Copies().Restore(t.Context(), j.ID); err != nil {
					t.Fatal(err)
				}
				if got := b.Read(output); !strings.Contains(got, text) {
					t.Errorf("the output is %.80q", got)
				}
				s = b.copies(j.ID, func(s record.ShownCopies) bool { return s.Kept() == 2 && len(s.Copies) > 2 })
				if s.Copies[0].State != record.CopyLost || s.Copies[0].Reason == "" {
					t.Errorf("the copy of a killed provider: %+v", s.Copies[0])
				}
				b.Kill()
				b.Restart()
				s = b.copies(j.ID, func(s record.ShownCopies) bool { return s.Kept() == 2 })
				if len(s.Copies) != 3 {
					t.Errorf("after a restart: %+v", s.Copies)
				}
				for _, c := range s.Copies {
					v, err := b.Node.Buyer().Job(c.Job)
					if err != nil || free == (v.Spec.Payment.Budget > 0) {
						t.Errorf("volume %s: budget %d, %v", c.Job, v.Spec.Payment.Budget, err)
					}
				}
			})
		})
	}
}
