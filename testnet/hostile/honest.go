//go:build linux

package hostile

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/starling-network/starling/node/api"
	"github.com/starling-network/starling/node/buyer/record"
	"github.com/starling-network/starling/node/config"
	"github.com/starling-network/starling/node/job"
	"github.com/starling-network/starling/testnet/scenarios"
)

// sample is the figures of honest jobs in a period.
type sample struct {
	toLease []time.Duration // time from the order to the leases, of each job
	peak    map[string]int  // peak memory of each peer, MiB
}

func (s sample) String() string { return fmt.Sprintf("%d jobs", len(s.toLease)) }

// p99 is the value that 99 of 100 do not exceed.
func (s sample) p99() time.Duration {
	sorted := slices.Sorted(slices.Values(s.toLease))
	if len(sorted) == 0 {
		return 0
	}
	return sorted[(len(sorted)*99+99)/100-1]
}

// ticks is the length of a job: a second or two.
const ticks = 10

// honest has every buyer run jobs in sequence for a period, and checks each.
func (w *world) honest(ctx context.Context, length time.Duration) (sample, error) {
	s := sample{peak: map[string]int{}}
	until := time.Now().Add(length)
	watched, stop := context.WithCancel(ctx)
	var mu sync.Mutex
	var wg, watch sync.WaitGroup
	watch.Go(func() { w.watch(watched, &s) })
	var errs []error
	for _, p := range w.net.Buyers() {
		wg.Go(func() {
			for n := 0; time.Now().Before(until); n++ {
				took, err := w.one(ctx, p.Home, n)
				mu.Lock()
				if err != nil {
					errs = append(errs, fmt.Errorf("job %d of %s: %w", n+1, p.Name, err))
				} else {
					s.toLease = append(s.toLease, took)
				}
				failed := err != nil
				mu.Unlock()
				if failed {
					return
				}
			}
		})
	}
	wg.Wait()
	stop()
	watch.Wait()
	if len(errs) == 0 && len(s.toLease) == 0 {
		errs = append(errs, errors.New("no job was completed"))
	}
	return s, errors.Join(errs...)
}

// one runs a job of two ranks to its end and checks its log and its payment. It returns the time from the order to the
// leases.
func (w *world) one(ctx context.Context, home string, n int) (time.Duration, error) {
	c, err := api.Dial(home, config.FileAPI)
	if err != nil {
		return 0, err
	}
	b, err := api.PutBlob.Call(ctx, c, api.Upload{Data: bytes.NewReader(w.tick)})
	if err != nil {
		return 0, err
	}
	j, err := c.Submit(ctx, job.Job{
		Name: "tick", Runtime: job.RuntimeWasm, Module: "tick.wasm", Args: []string{strconv.Itoa(ticks)}, Count: 2,
		Resources: job.Resources{Class: job.DefaultClass, Units: 1}, Restart: job.Restart{Max: 0},
		Timeouts: job.Timeouts{Queue: time.Minute, Run: 5 * time.Minute},
		Payment:  job.Payment{MaxPrice: 1_000_000, Budget: 1_000_000, Decimals: w.net.Genesis.Decimals},
		Blobs:    map[string]job.Blob{"tick.wasm": b.Source()},
	}, job.Values{}, "")
	if err != nil {
		return 0, err
	}
	var leased time.Duration
	if err := c.Events(ctx, j.ID, func(s record.Step) {
		if s.Kind == record.StepLeased && leased == 0 {
			leased = s.Took
		}
	}, nil); err != nil {
		return 0, err
	}
	if j, err = scenarios.Paid(ctx, w.net, c, j.ID); err != nil {
		return 0, err
	}
	if j.State != record.Succeeded || leased == 0 {
		return 0, fmt.Errorf("%s: %s", j.State, j.Reason)
	}
	for rank := range 2 {
		var log bytes.Buffer
		if err := c.Log(ctx, api.Log{ID: j.ID, Rank: rank}, &log, io.Discard); err != nil {
			return 0, err
		}
		if got := strings.Count(log.String(), "tick "); got != ticks {
			return 0, fmt.Errorf("the log of rank %d has %d lines of %d", rank, got, ticks)
		}
	}
	return leased, nil
}

// watch records the peak memory of each peer until ctx ends.
func (w *world) watch(ctx context.Context, s *sample) {
	every := time.NewTicker(500 * time.Millisecond)
	defer every.Stop()
	for {
		for _, p := range w.net.Peers {
			if mib, err := resident(p.PID); err == nil {
				s.peak[p.Name] = max(s.peak[p.Name], mib)
			}
		}
		select {
		case <-ctx.Done():
			return
		case <-every.C:
		}
	}
}

// resident returns the private memory of a process, in MiB.
func resident(pid int) (int, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(text)) {
		if rest, ok := strings.CutPrefix(line, "RssAnon:"); ok {
			kib, err := strconv.Atoi(strings.Fields(rest)[0])
			return kib >> 10, err
		}
	}
	return 0, fmt.Errorf("process %d: no RssAnon", pid)
}

// latency compares the slowest orders.
func (w *world) latency(context.Context) (string, error) {
	quiet, attacked := w.quiet.p99(), w.attacked.p99()
	saw := fmt.Sprintf("99 of 100 within %v, %v without the attack",
		attacked.Round(time.Millisecond), quiet.Round(time.Millisecond))
	if attacked > 3*quiet {
		return saw, fmt.Errorf("more than three times the quiet value")
	}
	return saw, nil
}

// moreMiB bounds the attack's addition to a peer's memory.
const moreMiB = 256

// memory compares the peaks.
func (w *world) memory(context.Context) (string, error) {
	var worst string
	most := 0
	for name, mib := range w.attacked.peak {
		if more := mib - w.quiet.peak[name]; worst == "" || more > most {
			worst, most = name, more
		}
	}
	saw := fmt.Sprintf("largest increase: %d MiB at %s: %d MiB, %d without the attack",
		most, worst, w.attacked.peak[worst], w.quiet.peak[worst])
	if most > moreMiB {
		return saw, fmt.Errorf("more than %d MiB", moreMiB)
	}
	return saw, nil
}

// after waits until the peers have released all resources of the attack.
func (w *world) after(ctx context.Context) (string, error) {
	for _, p := range w.net.Peers {
		c, err := p.Client()
		if err != nil {
			return "", err
		}
		if saw, err := scenarios.Until(ctx, func() (bool, string, error) {
			n, err := api.GetNode.Call(ctx, c, api.None{})
			if err != nil {
				return false, "", err
			}
			peers, err := api.ListPeers.Call(ctx, c, api.None{})
			if err != nil {
				return false, "", err
			}
			strangers := 0
			for _, other := range peers {
				if slices.ContainsFunc(other.Conns, func(conn api.ConnInfo) bool {
					return strings.Contains(conn.Addr, "/"+w.attacker.IP+"/")
				}) {
					strangers++
				}
			}
			offers, err := api.ListOffers.Call(ctx, c, api.ByClass{Class: string(job.DefaultClass)})
			answered := 0
			for _, o := range offers {
				if o.Answered {
					answered++
				}
			}
			saw := fmt.Sprintf("%s has %d of %d units free, %d connections to the attacker, %d of %d offers",
				p.Name, n.FreeUnits, n.Units, strangers, answered, sellers)
			return n.FreeUnits == n.Units && strangers == 0 && answered >= sellers-1, saw, err
		}); err != nil {
			return saw, err
		}
	}
	return fmt.Sprintf("reached by all %d", len(w.net.Peers)), nil
}
