package harness

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/node/buyer"
	"github.com/starling-network/starling/node/buyer/record"
	"github.com/starling-network/starling/node/config"
	"github.com/starling-network/starling/node/job"
	"github.com/starling-network/starling/node/runtime/runtimetest/guest"
)

// stores are programs that use files in a volume.
func stores() map[string]guest.Program {
	all := with("put", func(p guest.Process) int { // text at a path
		if guest.WriteFile(p, p.Args()[0], []byte(p.Args()[1])) != nil {
			return 1
		}
		return 0
	})
	all["get"] = func(p guest.Process) int { // whether a path has a text
		if b, err := guest.ReadFile(p, p.Args()[0], 1<<20); err != nil || string(b) != p.Args()[1] {
			return 1
		}
		return 0
	}
	return all
}

// Volume returns a job that is a volume for a time.
func (p *Peer) Volume(name string, d time.Duration) job.Job {
	pay := job.Payment{MaxPrice: 1_000_000, Budget: 50_000_000, Decimals: 6}
	if p.net.opts.Free {
		pay = job.Payment{Decimals: 6, Free: true}
	}
	return job.Job{
		Name: name, Runtime: job.RuntimeVolume, Count: 1, Payment: pay, Probes: job.ProbesOff,
		Resources: job.Resources{Class: market.Disk, Units: 2, Unproven: true},
		Timeouts:  job.Timeouts{Queue: 20 * time.Second, Run: d},
	}
}

// stored submits a job of a program with a volume.
func (p *Peer) stored(volume string, readOnly bool, program string, args ...string) (buyer.Job, error) {
	spec := p.Job(program, 1, args...)
	spec.Volumes = []job.VolumeMount{{Name: volume, Path: "/data", ReadOnly: readOnly}}
	return p.Node.Buyer().Submit(p.net.t.(*testing.T).Context(), buyer.Submission{Spec: spec})
}

// kept waits until a volume can be used.
func (p *Peer) kept(id string) buyer.Job {
	p.net.t.Helper()
	for range 600 {
		j, err := p.Node.Buyer().Job(id)
		if err == nil && j.Ranks[0].Live.Phase == "running" {
			return j
		}
		time.Sleep(100 * time.Millisecond)
	}
	p.net.t.Fatalf("volume %s is not ready\n%s", id, p.Why(id))
	return buyer.Job{}
}

// directories returns the directories of volumes at a peer.
func (p *Peer) directories() (out []string) {
	_ = filepath.WalkDir(p.Home, func(path string, d os.DirEntry, err error) error {
		if err == nil && d.IsDir() && d.Name() == "data" && filepath.Base(filepath.Dir(path)) == "run" {
			out = append(out, path)
		}
		return nil
	})
	return out
}

// withDisk makes providers sell disk.
func withDisk(providers int, price string) func(i int, c *config.Config) {
	return func(i int, c *config.Config) {
		if i < providers {
			c.Provide.Disk.GiB, c.Provide.Disk.Price = 40, price
		}
	}
}

// A volume outlives the job that wrote to it. The next job runs at its provider, among several, and reads the file, also
// after the provider was restarted and the volume's time extended. After its paid time the directory is gone, and what was
// not used is refunded.
func TestVolume(t *testing.T) {
	t.Parallel()
	for name, free := range map[string]bool{"free": true, "paid": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				price := "0.36"
				if free {
					price = "0"
				}
				n := New(t, Options{
					Providers: 3, Units: 1, Free: free, Programs: stores(), Log: Logger(), Configure: withDisk(3, price),
				})
				time.Sleep(3 * time.Second)
				b := n.Buyer(0)
				v := b.kept(b.Submit(b.Volume("data", time.Minute)).ID)
				at := v.Ranks[0].Provider
				first, err := b.stored("data", false, "put", "/data/f", "text")
				if err != nil {
					t.Fatal(err)
				}
				second := func(what string) {
					t.Helper()
					next, err := b.stored("data", true, "get", "/data/f", "text")
					if err != nil {
						t.Fatalf("%s: %v", what, err)
					}
					j := b.Wait(next.ID, time.Minute)
					if j.State != buyer.Succeeded || j.Ranks[0].Provider != at {
						t.Errorf("%s: %s at %s, want %s\n%s", what, j.Summary(), j.Ranks[0].Provider, at, b.Why(j.ID))
					}
				}
				if j := b.Wait(first.ID, time.Minute); j.State != buyer.Succeeded || j.Ranks[0].Provider != at {
					t.Fatalf("writing: %s at %s, want %s\n%s", j.Summary(), j.Ranks[0].Provider, at, b.Why(j.ID))
				}
				second("the next job")
				n.peer(at).Kill()
				time.Sleep(time.Second)
				n.peer(at).Restart()
				time.Sleep(2 * time.Second)
				second("after a restart of the provider")
				b.extend(t, v.ID, 30*time.Second)
				time.Sleep(time.Until(v.Until().Add(5 * time.Second)))
				second("in the extended time")
				j := b.Wait(v.ID, 5*time.Minute)
				time.Sleep(5 * time.Second)
				if dirs := n.peer(at).directories(); len(dirs) > 0 {
					t.Errorf("after the paid time (%s): %v", j.Summary(), dirs)
				}
				if free == (j.Owed > 0) {
					t.Errorf("the volume cost %d", j.Owed)
				}
				if _, err := b.stored("data", true, "get", "/data/f", "text"); !errors.Is(err, buyer.ErrRefused) {
					t.Errorf("a volume that has ended: %v", err)
				}
			})
		})
	}
}

// What a buyer cannot have is refused with its cause: another buyer's volume, a second one of a name, a provider without a
// free unit, and a volume that is being written.
func TestVolumeRefused(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		n := New(t, Options{
			Providers: 2, Buyers: 2, Units: 2, Free: true, Programs: stores(), Log: Logger(), Configure: withDisk(1, "0"),
		})
		time.Sleep(3 * time.Second)
		b, other := n.Buyer(0), n.Buyer(1)
		refused := func(what string, err error, cause string) {
			t.Helper()
			if !errors.Is(err, buyer.ErrRefused) || !strings.Contains(err.Error(), cause) {
				t.Errorf("%s: %v, want %q", what, err, cause)
			}
		}
		v := b.kept(b.Submit(b.Volume("data", 10*time.Minute)).ID)
		_, err := b.Node.Buyer().Submit(t.Context(), buyer.Submission{Spec: b.Volume("data", time.Minute)})
		refused("a second volume of one name", err, "take another name")
		_, err = b.stored("other", false, "work", "1")
		refused("an unknown volume", err, "there is none now")
		_, err = other.stored("data", false, "work", "1")
		refused("another buyer's volume", err, "there is none now")

		writer, err := b.stored("data", false, "work", "60")
		if err != nil {
			t.Fatal(err)
		}
		b.kept(writer.ID)
		spec := b.Job("work", 1, "1")
		spec.Restart.Max = 0
		spec.Volumes = []job.VolumeMount{{Name: "data", Path: "/data"}}
		if j := b.Wait(b.Submit(spec).ID, 2*time.Minute); j.State != buyer.Failed ||
			!strings.Contains(j.Reason+j.Ranks[0].Detail+b.Why(j.ID), "in use by another program") {
			t.Errorf("a second writer: %s\n%s", j.Summary(), b.Why(j.ID))
		}
		busy := b.Job("work", 1, "60") // takes the last unit of the volume's provider
		busy.Volumes = []job.VolumeMount{{Name: "data", Path: "/data", ReadOnly: true}}
		b.kept(b.Submit(busy).ID)
		full, err := b.stored("data", true, "work", "1")
		if err != nil {
			t.Fatal(err)
		}
		if j := b.Wait(full.ID, 2*time.Minute); j.Code != record.CodeNoMatch ||
			!strings.Contains(j.Reason, "only these providers are wanted") {
			t.Errorf("without a free unit: %s %s\n%s", j.Code, j.Summary(), b.Why(j.ID))
		}
		if err := b.Node.Buyer().Stop(t.Context(), v.ID); err != nil {
			t.Fatal(err)
		}
		b.Wait(v.ID, time.Minute)
		if j := b.Wait(writer.ID, time.Minute); j.State == buyer.Succeeded {
			t.Errorf("a program whose volume ended: %s", j.Summary())
		}
	})
}

// A volume with guardians is paid for while its owner's peer is away, and its owner's next job finds the file.
func TestVolumeAway(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		n := New(t, Options{
			Providers: 5, Units: 1, Programs: stores(), Log: Logger(), Configure: withDisk(5, "0.36"),
		})
		time.Sleep(3 * time.Second)
		b := n.Buyer(0)
		spec := b.Volume("data", 10*time.Minute)
		spec.Guardians = 3
		v := b.kept(b.Submit(spec).ID)
		b.until(v.ID, func(j buyer.Job) bool { return j.Detached.Held })
		first, err := b.stored("data", false, "put", "/data/f", "text")
		if err != nil {
			t.Fatal(err)
		}
		if j := b.Wait(first.ID, time.Minute); j.State != buyer.Succeeded {
			t.Fatalf("writing: %s\n%s", j.Summary(), b.Why(j.ID))
		}
		b.Kill()
		time.Sleep(40 * time.Second) // many payment intervals
		if dirs := n.peer(v.Ranks[0].Provider).directories(); len(dirs) != 1 {
			t.Errorf("while the owner is away: %v", dirs)
		}
		b.Restart()
		b.kept(v.ID)
		var next buyer.Job
		for range 60 { // the command of the volume comes back first
			if next, err = b.stored("data", true, "get", "/data/f", "text"); err == nil {
				break
			}
			time.Sleep(time.Second)
		}
		if err != nil {
			t.Fatalf("%v\n%s", err, b.Why(v.ID))
		}
		if j := b.Wait(next.ID, time.Minute); j.State != buyer.Succeeded {
			t.Errorf("reading: %s\n%s", j.Summary(), b.Why(j.ID))
		}
	})
}
