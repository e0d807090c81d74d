package harness

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/marketpb"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/node/buyer"
	"github.com/starling-network/starling/node/cluster"
	"github.com/starling-network/starling/node/link"
	"github.com/starling-network/starling/node/nodepb"
	"github.com/starling-network/starling/p2p/p2ptest"
	"github.com/starling-network/starling/p2p/stream"
)

// toAll answers everybody who measures the path to it, and measures for everybody.
type toAll struct{}

func (toAll) Measures(market.HoldID, sign.Key) error { return nil }
func (toAll) Serves(sign.Key) bool                   { return true }

// joins makes a rogue one that could be a cluster's member: it is measured, and names an overlay key unless key says which; the
// returned function ends it.
func (r *rogue) joins(key func(market.HoldID) []byte) (stop func()) {
	if key == nil {
		key = func(h market.HoldID) []byte {
			k := cluster.MemberKey(r.key, h).Public()
			return k[:]
		}
	}
	unit := sign.Sum([]byte("unit"), []byte(r.host.ID()))
	r.reserve = func(_ context.Context, req *marketpb.Reserve) (*marketpb.Held, error) {
		return &marketpb.Held{
			Hold: req.Hold, Units: [][]byte{unit[:]}, Expires: time.Now().Add(10 * time.Second).UnixMilli(), OverlayKey: key(market.HoldID(req.Hold)),
		}, nil
	}
	paths, sells := link.New(r.host, r.tag, toAll{}, p2ptest.Quiet()), r.sell()
	return func() {
		paths.Close()
		sells()
	}
}

// vanish takes a rogue off the network for ever.
func (r *rogue) vanish(ctx context.Context) error {
	r.n.net.Cut(r.i)
	return lose(ctx)
}

// A provider that is the cheapest commits to a cluster and breaks its word, at each step: the others wait for no more than its answer,
// the cluster has another one in its place, and what it gets is one interval at the most.
func TestClusterRogueMember(t *testing.T) {
	t.Parallel()
	same := func(market.HoldID) []byte {
		k := cluster.MemberKey(sign.NewPrivate([32]byte{}), market.HoldID{}).Public()
		return k[:]
	}
	for _, c := range []struct {
		name  string
		words string // in the trace
		two   bool   // of its kind
		key   func(market.HoldID) []byte
		set   func(r *rogue)
	}{
		{"names no key", "hold: no overlay key", false, func(market.HoldID) []byte { return nil }, nil},
		{"names a key of another length", "overlay key of 31 bytes", false, func(market.HoldID) []byte { return make([]byte, 31) }, nil},
		{"names a key of small order", "is of small order", false, func(market.HoldID) []byte { return append([]byte{1}, make([]byte, 31)...) }, nil},
		{"names a key that is no field element", "is not below", false, func(market.HoldID) []byte { return []byte(strings.Repeat("\xff", 32)) }, nil},
		{"names another member's key", "hold: same overlay key as rank", true, same, nil},
		{"takes a hold and vanishes", "silent rank", false, nil, func(r *rogue) {
			r.signs = func(ctx context.Context, c market.LeaseCore) (market.LeaseCore, error) { return c, r.vanish(ctx) }
		}},
		{"signs a lease with another key", "signature", false, nil, func(r *rogue) {
			r.signs = func(_ context.Context, c market.LeaseCore) (market.LeaseCore, error) {
				c.Nonce[3]++
				return c, nil
			}
		}},
		{"signs and vanishes", "silent rank", false, nil, func(r *rogue) { r.activate = r.vanish }},
		{"is paid and runs nothing", "not today", false, nil, func(r *rogue) {
			r.exec = func(context.Context, *nodepb.ExecRequest) (*nodepb.Execution, error) {
				return nil, stream.Refuse("workload", "not today")
			}
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				n := New(t, Options{Providers: 3, Units: 1, Strangers: 2, Programs: members(), Log: Logger()})
				rogues := []*rogue{{adversary: n.adversary(t, 0)}}
				if c.two {
					rogues = append(rogues, &rogue{adversary: n.adversary(t, 1)})
				}
				for _, r := range rogues {
					if c.set != nil {
						c.set(r)
					}
					defer r.joins(c.key)()
				}
				time.Sleep(5 * time.Second)
				b := n.Buyer(0)
				id := b.Submit(b.Cluster(3, quiet)).ID
				j := b.joined(id, 3)
				why := b.Why(id)
				if !strings.Contains(why, c.words) {
					t.Errorf("the trace does not say %q", c.words)
				}
				for i := range j.Ranks {
					if n.on(j, i) < 0 {
						t.Errorf("rank %d is at a rogue", i)
					}
				}
				n.takeDown(t, b, id)
				n.checkPayer(t, b)
				for _, r := range rogues {
					for _, core := range r.leases {
						if most, err := core.Rate.Owed(intervalSlots); err != nil || b.owed(t, id, core.ID()) > most {
							t.Errorf("it was paid %d, one interval costs %d (%v)", b.owed(t, id, core.ID()), most, err)
						}
					}
				}
				n.Settle()
				for i := range 3 {
					n.checkQuiet(t, n.Provider(i), b)
				}
				if t.Failed() {
					t.Log(why)
				}
			})
		})
	}
}

// Where one member breaks its word and nobody can take its place, there is no cluster: nobody else is bound, runs anything, or is paid;
// but for the two seconds and what is paid ahead, where all had signed and one does not take its first payment.
func TestClusterAllOrNone(t *testing.T) {
	t.Parallel()
	for name, set := range map[string]func(r *rogue){
		"before it signs": func(r *rogue) {
			r.signs = func(ctx context.Context, c market.LeaseCore) (market.LeaseCore, error) { return c, r.vanish(ctx) }
		},
		"after it signed": func(r *rogue) { r.activate = r.vanish },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				n := New(t, Options{Providers: 2, Units: 1, Strangers: 1, Programs: members(), Log: Logger()})
				r := &rogue{adversary: n.adversary(t, 0)}
				set(r)
				defer r.joins(nil)()
				time.Sleep(5 * time.Second)
				b := n.Buyer(0)
				spec := b.Cluster(3, quiet)
				spec.Timeouts.Queue = 5 * time.Second
				j := b.Wait(b.Submit(spec).ID, 5*time.Minute)
				n.Settle()
				accounts := n.check(t, b, n.job(t, b, j.ID), buyer.Failed)
				n.checkPayer(t, b)
				if len(r.leases) == 0 {
					t.Error("it was never asked to sign")
				}
				for _, a := range accounts {
					signed, err := market.UnmarshalLease(a.Signed)
					if err != nil {
						t.Fatal(err)
					}
					if most, err := signed.Core.Rate.Owed(3 * intervalSlots); err != nil || a.Owed > most || name == "before it signs" && a.Owed > 0 {
						t.Errorf("the lease of rank %d costs %d, three intervals %d", a.Rank, a.Owed, most)
					}
				}
				for i := range 2 {
					n.checkQuiet(t, n.Provider(i), b)
					if began := n.Provider(i).Engine.Began(); began > 0 {
						t.Errorf("provider %d began %d programs", i, began)
					}
				}
				if left := n.Overlays.Ranks(); len(left) > 0 {
					t.Errorf("members are left: %v", left)
				}
				if t.Failed() {
					t.Log(b.Why(j.ID))
				}
			})
		})
	}
}

// Clusters of one buyer and of two have their members on the same peers at the same time, at the same addresses: none reaches
// another's, has its token, or ends with it.
func TestClustersShareAPeer(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		n := New(t, Options{Providers: 2, Buyers: 2, Units: 3, Programs: members(), Log: Logger()})
		time.Sleep(4 * time.Second)
		a, b := n.Buyer(0), n.Buyer(1)
		spec := a.Cluster(2, quiet)
		spec.Name = "another"
		of := map[string]*Peer{a.Submit(a.Cluster(2, quiet)).ID: a, a.Submit(spec).ID: a, b.Submit(b.Cluster(2, quiet)).ID: b}
		tokens := map[string]bool{}
		for id, by := range of {
			by.joined(id, 2)
			token, err := by.Buyer().ClusterToken(id)
			if err != nil {
				t.Fatal(err)
			}
			tokens[token] = true
		}
		if len(tokens) != 3 {
			t.Errorf("%d tokens of three clusters", len(tokens))
		}
		if _, err := b.Buyer().ClusterToken(a.Buyer().Jobs()[0].ID); err == nil {
			t.Error("a buyer has the token of another one's cluster")
		}
		apart := func(want int) {
			t.Helper()
			all := n.Overlays.clusters()
			if len(all) != want {
				t.Fatalf("%d clusters, want %d", len(all), want)
			}
			for x, xs := range all {
				for y, ys := range all {
					for _, k := range xs {
						for _, l := range ys {
							if k != l && n.Overlays.Reach(k, l) != (x == y) {
								t.Errorf("a member of %s reaches one of %s: %v", x, y, x != y)
							}
						}
					}
				}
			}
		}
		apart(3)
		left := 3
		for id, by := range of {
			n.takeDown(t, by, id)
			left--
			if apart(left); left == 0 {
				break
			}
			delete(of, id)
			for other, by := range of {
				by.joined(other, 2)
			}
		}
		n.checkPayer(t, a)
		n.checkPayer(t, b)
		n.Settle()
		for i := range 2 {
			n.checkQuiet(t, n.Provider(i), a, b)
		}
	})
}
