//go:build linux

package scenario

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"strings"

	"github.com/starling-network/starling/node/api"
	"github.com/starling-network/starling/node/buyer/record"
	"github.com/starling-network/starling/node/config"
	"github.com/starling-network/starling/p2p"
	"github.com/starling-network/starling/testnet/natlab"
	"github.com/starling-network/starling/testnet/scenarios"
)

// reserved checks that each undialable peer has a reservation at both relays and announces those addresses.
func (w *world) reserved(ctx context.Context) (string, error) {
	for _, m := range w.all {
		if m.kind == natlab.Public {
			continue
		}
		c, err := m.peer.Client()
		if err != nil {
			return "", err
		}
		if _, err := scenarios.Until(ctx, func() (bool, string, error) {
			n, err := api.GetNode.Call(ctx, c, api.None{})
			return err == nil && len(n.Reach.Relays) == 2,
				fmt.Sprintf("%s is %s, %d relays", m.name, n.Reach.State, len(n.Reach.Relays)), err
		}); err != nil {
			return "", err
		}
	}
	return "all have two", nil
}

// punched checks that two peers behind cones get a direct path.
func (w *world) punched(ctx context.Context) (string, error) {
	a, b := w.find("buyer-cone"), w.find("worker-cone")
	return scenarios.Until(ctx, func() (bool, string, error) {
		r, err := w.ping(ctx, a, b)
		if err != nil {
			return false, "", err
		}
		// Both ends may have dialled each other before both were ready: only a direct path counts.
		return r.Problem == nil && r.Conn.Path != string(p2p.PathRelayed) &&
			strings.Contains(r.Conn.Addr, b.site.Public), describe(r), nil
	})
}

// relayed checks that two peers behind symmetric NATs reach each other, and only through a relay.
func (w *world) relayed(ctx context.Context) (string, error) {
	a, b := w.find("buyer-sym"), w.find("worker-sym")
	return scenarios.Until(ctx, func() (bool, string, error) {
		r, err := w.ping(ctx, a, b)
		if err == nil && r.Problem == nil && r.Conn.Path != string(p2p.PathRelayed) {
			return false, describe(r), fmt.Errorf("%w: a direct path through two symmetric NATs", scenarios.ErrFinal)
		}
		return err == nil && r.Problem == nil, describe(r), err
	})
}

// jobTicks is the length of the jobs: a second or two.
const jobTicks = 20

// buys makes a step in which a buyer runs a job on a worker.
func (w *world) buys(who, from string) func(context.Context) (string, error) {
	return func(ctx context.Context) (string, error) {
		a, b := w.find(who), w.find(from)
		c, err := a.peer.Client()
		if err != nil {
			return "", err
		}
		j, err := w.submit(ctx, c, b.name, jobTicks)
		if err != nil {
			return "", err
		}
		if j, err = w.finish(ctx, c, j.ID, jobTicks); err != nil {
			return "", err
		}
		r, err := w.ping(ctx, a, b)
		return fmt.Sprintf("paid %s; %s", w.net.Genesis.FormatAmount(j.Paid), describe(r)), err
	}
}

// finish follows a job to its end and checks its log.
func (w *world) finish(ctx context.Context, c *api.Client, id string, want int) (record.Job, error) {
	if err := c.Events(ctx, id, nil, nil); err != nil {
		return record.Job{}, err
	}
	j, err := api.GetJob.Call(ctx, c, api.ByID{ID: id})
	if err != nil {
		return j, err
	}
	if j.State != record.Succeeded {
		return j, fmt.Errorf("the job %s: %s", j.State, j.Reason)
	}
	n, err := ticks(ctx, c, id)
	if err == nil && n != want {
		err = fmt.Errorf("the log has %d lines of %d", n, want)
	}
	return j, err
}

// ticks is the number of lines of the program in the received log.
func ticks(ctx context.Context, c *api.Client, id string) (int, error) {
	var log bytes.Buffer
	err := c.Log(ctx, api.Log{ID: id}, &log, io.Discard)
	return strings.Count(log.String(), "tick "), err
}

// movingTicks is the length of the job with the changing path, longer than the change takes; it is stopped afterwards.
const movingTicks = 100_000

// moves runs a job over a relay, and stops that relay; the job continues over another relay. Then the direct path
// opens, and the job continues over a punched hole. One lease covers all of it.
func (w *world) moves(ctx context.Context) (saw string, err error) {
	a, b := w.find("buyer-moved"), w.find("worker-cone")
	c, err := a.peer.Client()
	if err != nil {
		return "", err
	}
	j, err := w.submit(ctx, c, b.name, movingTicks)
	if err != nil {
		return "", err
	}
	if _, err := scenarios.Until(ctx, func() (bool, string, error) {
		got, err := api.GetJob.Call(ctx, c, api.ByID{ID: j.ID})
		if err == nil && got.State.Ended() {
			return false, "", fmt.Errorf("%w: the job %s: %s", scenarios.ErrFinal, got.State, got.Reason)
		}
		n, lerr := ticks(ctx, c, j.ID)
		return err == nil && got.State == record.Running && n > 0, fmt.Sprintf("the job is %s, %d lines", got.State, n),
			errors.Join(err, lerr)
	}); err != nil {
		return "", err
	}
	var r api.PingResult
	// one ping may be lost, only the path counts
	if saw, err := scenarios.Until(ctx, func() (ok bool, saw string, err error) {
		r, err = w.ping(ctx, a, b)
		return err == nil && r.Problem == nil, describe(r), err
	}); err != nil {
		return saw, err
	}
	if r.Conn.Path != string(p2p.PathRelayed) {
		return describe(r), errors.New("the job does not run over a relay")
	}
	before := describe(r)
	w.Say("  runs: %s", before)
	relay := w.named(r.Conn.Via)
	if relay == nil {
		return before, fmt.Errorf("relay %s is unknown", r.Conn.Via)
	}
	w.Say("  killing %s", relay.name)
	if err := relay.peer.Kill(); err != nil {
		return "", err
	}
	dead := r.Conn.Via
	defer func() { err = errors.Join(err, relay.peer.Start(context.WithoutCancel(ctx))) }()
	other, err := scenarios.Until(ctx, func() (bool, string, error) {
		r, err := w.ping(ctx, a, b)
		return err == nil && r.Problem == nil && r.Conn.Path == string(p2p.PathRelayed) && r.Conn.Via != dead,
			describe(r), err
	})
	if err != nil {
		return other, err
	}
	w.Say("  runs: %s", other)
	w.Say("  opening the direct path")
	if err := w.lab.Mend(); err != nil {
		return "", err
	}
	after, err := scenarios.Until(ctx, func() (bool, string, error) {
		r, err := w.ping(ctx, a, b)
		return err == nil && r.Problem == nil && r.Conn.Path != string(p2p.PathRelayed), describe(r), err
	})
	if err != nil {
		return after, err
	}
	w.Say("  runs: %s", after)
	return fmt.Sprintf("one lease; first %s, then another relay, then %s", before, after), w.same(ctx, c, j.ID)
}

// same checks that a job continues with its first lease, and stops it.
func (w *world) same(ctx context.Context, c *api.Client, id string) error {
	before, err := ticks(ctx, c, id)
	if err != nil {
		return err
	}
	if _, err := scenarios.Until(ctx, func() (bool, string, error) {
		got, err := api.GetJob.Call(ctx, c, api.ByID{ID: id})
		if err == nil && got.State != record.Running {
			return false, "", fmt.Errorf("%w: the job %s: %s", scenarios.ErrFinal, got.State, got.Reason)
		}
		n, lerr := ticks(ctx, c, id)
		return n >= before+jobTicks, fmt.Sprintf("%d lines, then %d", before, n), errors.Join(err, lerr)
	}); err != nil {
		return err
	}
	leases, err := api.JobReceipts.Call(ctx, c, api.ByID{ID: id})
	if err == nil && len(leases) != 1 {
		err = fmt.Errorf("the job has %d leases: the first lease was lost", len(leases))
	}
	if err = errors.Join(err, api.StopJob.Send(ctx, c, api.ByID{ID: id})); err != nil {
		return err
	}
	return c.Events(ctx, id, nil, nil) // until it has ended
}

// named returns the machine with a peer id, or nil.
func (w *world) named(id string) *machine {
	for _, m := range w.all {
		if got, err := p2p.PeerIDFromKey(m.peer.Key); err == nil && got.String() == id {
			return m
		}
	}
	return nil
}

// locked checks that peers with and without a pre-shared key report the difference, not an unreachable peer.
func (w *world) locked(ctx context.Context) (string, error) {
	m, from := w.find("locked"), w.find("relay-1")
	if _, err := p2p.CreatePSK(filepath.Join(m.peer.Home, config.FilePSK)); err != nil {
		return "", err
	}
	if err := m.peer.Launch(); err != nil {
		return "", err
	}
	id, err := p2p.PeerIDFromKey(m.peer.Key)
	if err != nil {
		return "", err
	}
	c, err := from.peer.Client()
	if err != nil {
		return "", err
	}
	return scenarios.Until(ctx, func() (bool, string, error) {
		r, err := api.PingPeer.Call(ctx, c, api.PingRequest{Peer: fmt.Sprintf("/ip4/%s/tcp/%d/p2p/%s",
			m.site.Public, scenarios.Port, id), Count: 1})
		if err != nil || r.Problem == nil {
			return false, "connected", errors.Join(scenarios.ErrFinal, err)
		}
		return r.Problem.Reason == string(p2p.ReasonOtherKey), describe(r), nil
	})
}
