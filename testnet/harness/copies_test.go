package harness

import (
	"errors"
	"os"
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
	"github.com/starling-network/starling/node/store"
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
// and cannot read them. After one of them was killed, the outputs come from the other, and a third one takes a copy. The
// exported record restores them to a peer that has lost all but its key.
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

				b.Kill()
				b.Journal = store.NewMemory() // only its key and the exported record are left
				for _, c := range b.blobs() {
					if err := b.Blobs.Remove(c); err != nil {
						t.Fatal(err)
					}
				}
				b.Restart()
				for _, k := range keepers(s) { // it has lost its peers' addresses, too
					if err := n.net.Hosts[b.i].Connect(t.Context(), n.net.Addr(n.peer(k).i)); err != nil {
						t.Fatal(err)
					}
				}
				if err := b.Node.Copies().Import(t.Context(), s); err != nil {
					t.Fatal(err)
				}
				if got := b.Read(output); !strings.Contains(got, text) {
					t.Errorf("with an empty journal the output is %.80q", got)
				}
			})
		})
	}
}

// Copies get more time at once. A keeper that replaced its file by another one, and keeps its lease, is found by a
// check: its volume is stopped, and another provider has a copy until the new end.
func TestCopiesChecked(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		n := New(t, Options{
			Providers: 4, Units: 1, Programs: leaves(), Log: Logger(), Configure: withDisk(4, "0.36"),
		})
		time.Sleep(3 * time.Second)
		b := n.Buyer(0)
		spec := b.Job("leave", 1, "the text of a result")
		spec.Outputs = []job.Output{{Path: "/out"}}
		spec.Copies = &job.Copies{Count: 2, For: job.Span(10 * time.Minute), MaxPrice: 1_000_000}
		id := b.Wait(b.Submit(spec).ID, time.Minute).ID
		s := b.copies(id, func(s record.ShownCopies) bool { return s.Kept() == 2 })
		x, err := b.Node.Copies().Extend(t.Context(), id, time.Hour)
		if err != nil || len(x.Copies) != 2 {
			t.Fatalf("%+v, %v", x, err)
		}
		for _, c := range x.Copies {
			if d := time.Until(c.Until); c.State != record.Extended || c.Extra == 0 || d < 69*time.Minute || d > 71*time.Minute {
				t.Errorf("copy at %v: %+v, paid for %v", c.Provider, c, d)
			}
		}

		c, err := cid.Parse(s.Pack.CID)
		if err != nil {
			t.Fatal(err)
		}
		f, err := n.peer(s.Copies[0].Provider).Blobs.Open(c)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		if err := errors.Join(os.Remove(f.Name()), os.WriteFile(f.Name(), make([]byte, s.Pack.Size), 0o600)); err != nil {
			t.Fatal(err)
		}
		for tries := 0; s.Copies[0].State != record.CopyLost || s.Copies[1].Checked.IsZero(); tries++ {
			if tries == 20 {
				t.Fatalf("not found: %+v", s)
			}
			b.checkSoon(id)
			time.Sleep(time.Minute)
			if s, err = b.Node.Copies().Show(t.Context(), id); err != nil {
				t.Fatal(err)
			}
		}
		if !strings.Contains(s.Copies[0].Reason, "other bytes") || s.Copies[1].State != record.CopyKept {
			t.Errorf("copies: %+v", s.Copies)
		}
		s = b.copies(id, func(s record.ShownCopies) bool { return s.Kept() == 2 && len(s.Copies) == 3 })
		if d := time.Until(s.Copies[2].Until) - time.Until(x.Until); d.Abs() > time.Minute {
			t.Errorf("the new copy ends %v after the others", d)
		}
		if v := b.Wait(s.Copies[0].Job, time.Minute); !v.State.Ended() || v.Owed > x.Copies[0].Extra {
			t.Errorf("the volume of the lost copy: %s, %d is owed", v.Summary(), v.Owed)
		}
	})
}

// checkSoon lets a peer check all copies of a job within a minute.
func (p *Peer) checkSoon(id string) {
	p.net.t.Helper()
	k, err := record.Keepings.Get(p.net.t.Context(), p.Journal, record.KeptOpen+id)
	if err != nil {
		p.net.t.Fatal(err)
	}
	for i := range k.Copies {
		if k.Copies[i].Lost == "" {
			k.Copies[i].Spot.Next = time.Now()
		}
	}
	if err := record.Keepings.Write(p.net.t.Context(), p.Journal, record.KeptOpen+id, k); err != nil {
		p.net.t.Fatal(err)
	}
}
