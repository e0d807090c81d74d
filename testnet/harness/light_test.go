package harness

import (
	"bytes"
	"fmt"
	"io"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/starling-network/starling/node/buyer"
	"github.com/starling-network/starling/node/live"
)

// direct lists the peers that a light client is connected to without a relay, by the harness's numbers.
func (l *Light) direct() map[int]bool {
	out := map[int]bool{}
	for _, c := range l.host.Network().Conns() {
		if strings.Contains(c.RemoteMultiaddr().String(), "p2p-circuit") {
			continue
		}
		for i := range l.net.Peers {
			if l.net.net.Addr(i).ID == c.RemotePeer() {
				out[i] = true
			}
		}
	}
	return out
}

// TestLight: a light client that knows one entry has a job done by providers to which it has no connection, pays for
// it, and is connected to its entries alone.
func TestLight(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		n := New(t, Options{Providers: 3, Buyers: 2, Entries: 2, Strangers: 1, Programs: programs, Log: Logger()})
		time.Sleep(5 * time.Second)
		l := n.Light(0, n.Buyer(0))
		time.Sleep(5 * time.Second)
		j := l.Peer.Submit(l.Peer.Job("work", 3, "5"))
		j = l.Peer.Wait(j.ID, time.Minute)
		n.check(t, l.Peer, j, buyer.Succeeded)
		if d := l.direct(); len(d) != 2 || !d[3] || !d[4] {
			t.Errorf("the client is connected to peers %v, want its two entries, 3 and 4", d)
		}
		n.Settle()
		n.checkPayer(t, l.Peer)
		for i := range 3 {
			n.checkQuiet(t, n.Provider(i), l.Peer)
		}
	})
}

// TestLightGossip: the quotes for an order that entries published for a light client come back through them, over the client's own
// connections.
func TestLightGossip(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		n := New(t, Options{Providers: 3, Buyers: 2, Entries: 2, Strangers: 1, Programs: programs, Log: Logger()})
		time.Sleep(5 * time.Second)
		l := n.Light(0, n.Buyer(0))
		time.Sleep(5 * time.Second)
		spec := l.Peer.Job("work", 2, "2")
		spec.Placement.GossipOnly = true
		j := l.Peer.Wait(l.Peer.Submit(spec).ID, time.Minute)
		n.check(t, l.Peer, j, buyer.Succeeded)
		n.Settle()
	})
}

// TestLightEntryDies: the entry that a light client uses loses power in the middle of a job. The client goes on through
// the other one, no provider stops for want of money, and everybody is paid to the last receipt.
func TestLightEntryDies(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		n := New(t, Options{Providers: 3, Buyers: 3, Entries: 3, Strangers: 1, Programs: programs, Log: Logger()})
		time.Sleep(5 * time.Second)
		l := n.Light(0, n.Buyer(0))
		time.Sleep(5 * time.Second)
		j := l.Peer.Submit(l.Peer.Job("work", 3, "20"))
		time.Sleep(5 * time.Second)
		first := l.Entries()[0]
		killed := time.Now()
		for i := range 3 {
			if n.net.Addr(3+i).ID == first {
				n.Buyer(i).Kill()
			}
		}
		for len(l.Entries()) == 0 || l.Entries()[0] == first {
			time.Sleep(10 * time.Millisecond)
		}
		t.Logf("the other entry was in use %v after the first lost power", time.Since(killed))
		time.Sleep(5 * time.Second)
		if d := l.direct(); len(d) != 2 {
			t.Errorf("the client is connected to peers %v, want two entries", d)
		}
		j = l.Peer.Wait(j.ID, time.Minute)
		n.check(t, l.Peer, j, buyer.Succeeded)
		for i, r := range j.Ranks {
			if r.Restarts > 0 || r.Epoch != 1 {
				t.Errorf("rank %d was lost: %s", i, r.Reason)
			}
		}
		n.Settle()
		n.checkPayer(t, l.Peer)
		for i := range 3 {
			n.checkQuiet(t, n.Provider(i), l.Peer)
		}
	})
}

// TestLightDies: a light client ends in the middle of a job and comes back within what was paid ahead. It finds its
// job, its programs and their logs again.
func TestLightDies(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		n := New(t, Options{Providers: 3, Buyers: 2, Entries: 2, Strangers: 1, Programs: programs, Log: Logger()})
		time.Sleep(5 * time.Second)
		l := n.Light(0, n.Buyer(0))
		time.Sleep(5 * time.Second)
		j := l.Peer.Submit(l.Peer.Job("work", 3, "20"))
		time.Sleep(5 * time.Second)
		l.Stop()
		time.Sleep(time.Second)
		l.Start() // knows its entries by what it remembered
		j = l.Peer.Wait(j.ID, time.Minute)
		n.check(t, l.Peer, j, buyer.Succeeded)
		for i, r := range j.Ranks {
			if r.Restarts > 0 {
				t.Errorf("rank %d was lost: %s", i, r.Reason)
			}
		}
		n.Settle()
		n.checkPayer(t, l.Peer)
	})
}

// TestLightCluster: a light client brings a cluster up on providers to which it has no connection, and does with it what a buyer with
// a peer of its own can: sees its members and the paths between them, runs programs beside theirs, has its ports and its logs, makes
// it larger and smaller, and takes it down.
func TestLightCluster(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		all := members()
		all["shout"] = livePrograms()["shout"]
		n := New(t, Options{Providers: 3, Units: 1, Buyers: 2, Entries: 2, Strangers: 1, Programs: all, Log: Logger()})
		time.Sleep(5 * time.Second)
		l := n.Light(0, n.Buyer(0))
		time.Sleep(5 * time.Second)
		p, ctx := l.Peer, t.Context()
		id := p.Submit(p.Cluster(2, quiet)).ID
		j := p.joined(id, 2)
		if j.Cluster.Ready.IsZero() {
			t.Error("the cluster is not ready")
		}
		if paths, err := p.Buyer().Paths(ctx, id); err != nil || len(paths) != 1 || paths[0].RTTMicros == 0 {
			t.Errorf("paths %+v, %v", paths, err)
		}
		if token, err := p.Buyer().ClusterToken(id); err != nil || len(token) != 64 {
			t.Errorf("token %q, %v", token, err)
		}
		if j, err := p.Buyer().Scale(ctx, id, 3); err != nil || j.Spec.Count != 3 {
			t.Errorf("larger: %d members, %v", j.Spec.Count, err)
		}
		p.joined(id, 3)
		for rank := range 3 {
			conn, err := p.Buyer().Attach(ctx, id, rank, buyer.Program{Args: []string{"shout", "three"}})
			if err != nil {
				t.Fatal(err)
			}
			w := live.NewWriter(conn)
			if _, err := io.WriteString(w.Stream(live.Stdin), "hello"); err != nil {
				t.Error(err)
			}
			if err := w.Write(live.EOF, nil); err != nil {
				t.Error(err)
			}
			var out, errs bytes.Buffer
			if code, err := live.Demultiplex(conn, &out, &errs); code != 5 || err != nil || out.String() != "HELLO" || errs.String() != fmt.Sprint(rank) {
				t.Errorf("rank %d: exit code %d, %v, %q %q", rank, code, err, out.String(), errs.String())
			}
			conn.Close()
			conn, err = p.Buyer().Forward(ctx, id, rank, 1) // each member answers there by hanging up
			if err != nil {
				t.Fatal(err)
			}
			if b, err := io.ReadAll(conn); err != nil || len(b) > 0 {
				t.Errorf("rank %d says %q at its port, %v", rank, b, err)
			}
			conn.Close()
			if said := p.log(t, id, rank); !strings.Contains(said, fmt.Sprintf("rank %d of ", rank)) {
				t.Errorf("rank %d logged %q", rank, said)
			}
		}
		if _, err := p.Buyer().Scale(ctx, id, 1); err != nil {
			t.Error(err)
		}
		p.joined(id, 1)
		n.takeDown(t, p, id)
		if d := l.direct(); len(d) != 2 || !d[3] || !d[4] {
			t.Errorf("the client is connected to peers %v, want its two entries, 3 and 4", d)
		}
		n.Settle()
		n.checkPayer(t, p)
		for i := range 3 {
			n.checkQuiet(t, n.Provider(i), p)
		}
	})
}

// TestLightUnguarded: too few peers guard a light client's job, which fails. Its user submits it again without guardians,
// as starling run --detach does: it runs, and its log grows meanwhile.
func TestLightUnguarded(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		n := New(t, Options{Providers: 2, Units: 1, Buyers: 2, Entries: 2, Strangers: 1, Programs: programs, Log: Logger()})
		time.Sleep(5 * time.Second)
		l := n.Light(0, n.Buyer(0))
		time.Sleep(5 * time.Second)
		b := l.Peer
		j := b.Wait(b.Submit(b.detached(1, "20")).ID, time.Minute)
		if j.State != buyer.Failed || j.Code != buyer.CodeNoMatch || j.Detached.Engaged {
			t.Errorf("with guardians: %s\n%s", j.Summary(), b.Why(j.ID))
		}
		j = b.until(b.Submit(j.Spec.Guarded(0)).ID, func(j buyer.Job) bool { return j.State == buyer.Running || j.State.Ended() })
		time.Sleep(5 * time.Second)
		if log := b.log(t, j.ID, 0); log == "" {
			t.Errorf("no log: %s\n%s", j.Summary(), b.Why(j.ID))
		}
		n.check(t, b, b.Wait(j.ID, time.Minute), buyer.Succeeded)
		n.Settle()
		n.checkPayer(t, b)
	})
}
