package cluster_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	ma "github.com/multiformats/go-multiaddr"
	"google.golang.org/protobuf/proto"
	"pgregory.net/rapid"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/node/cluster"
	"github.com/starling-network/starling/node/nodepb"
	"github.com/starling-network/starling/node/runtime"
)

// rewrite says that testdata is to be written anew: by the flag that datadriven has.
func rewrite() bool { return flag.Lookup("rewrite").Value.String() == "true" }

var (
	domain = sign.Domain{Network: "test", Chain: sign.Hash{1}}
	buyer  = sign.NewPrivate([32]byte{1})
)

func provider(rank uint32) sign.Private { return sign.NewPrivate([32]byte{2, byte(rank)}) }

// member is a rank that was leased as it should be; change may spoil the core before it is signed.
func member(t testing.TB, rank, epoch uint32, change func(*market.LeaseCore)) cluster.Member {
	t.Helper()
	hold, key := market.HoldID{byte(rank + 1), byte(epoch + 1)}, market.OverlayKey{9, byte(rank + 1), byte(epoch + 1)}
	core := market.LeaseCore{
		Version: market.LeaseVersion, Units: 1, Rank: rank, RankEpoch: epoch, Order: market.OrderID{7}, Buyer: buyer.Key(), Provider: provider(rank).Key(),
		Payout: sign.Key{3}, UnitsRoot: sign.Hash{4}, Terms: sign.Hash{5}, VoucherKeys: sign.Hash{6}, Rate: 1, Cap: 1000,
		Start: 10, ActivateBefore: 20, End: 1000, Nonce: market.OverlayNonce(hold, key),
	}
	if change != nil {
		change(&core)
	}
	l := market.Lease{Core: core}
	var err error
	if l.ProviderSig, err = core.Sign(domain, provider(rank)); err != nil {
		t.Fatal(err)
	}
	if l.BuyerSig, err = core.Sign(domain, buyer); err != nil {
		t.Fatal(err)
	}
	return cluster.Member{
		Rank: rank, Epoch: epoch, Lease: l, Hold: hold, Key: key, Addrs: []ma.Multiaddr{ma.StringCast("/ip4/192.0.2.1/udp/4001/quic-v1")},
		GPUs: rank % 2, Slots: 1 + rank, MilliCPU: 2000, MemoryMiB: 4096,
	}
}

func plan(t testing.TB, rank uint32, members ...cluster.Member) cluster.Plan {
	t.Helper()
	return cluster.Plan{ID: "jabc", Rank: rank, Size: 4, Version: 1, Members: members, MTU: 1420, Engine: "ray"}
}

func whole(t testing.TB) cluster.Plan {
	t.Helper()
	p := plan(t, 1, member(t, 0, 0, nil), member(t, 1, 0, nil), member(t, 3, 2, nil))
	p.Paths = []cluster.Path{{A: 0, B: 1, RTTMicros: 210, Mbit: 940}, {A: 0, B: 3, RTTMicros: 12_400, Relayed: true}}
	return p
}

func own(p cluster.Plan) cluster.Own {
	m, _ := p.Own()
	return cluster.Own{Lease: m.Lease.Core.ID(), Buyer: buyer.Key(), Key: m.Key}
}

// taken is what a provider does with a plan that comes.
func taken(p *nodepb.ClusterPlan, o cluster.Own) (cluster.Plan, error) {
	got, err := cluster.Decode(p)
	if err != nil {
		return got, err
	}
	return got, got.Check(domain, o)
}

func TestPlan(t *testing.T) {
	t.Parallel()
	want := whole(t)
	got, err := taken(want.Proto(), own(want))
	if err != nil {
		t.Fatal(err)
	}
	if !proto.Equal(got.Proto(), want.Proto()) {
		t.Errorf("decoded it is %v", got)
	}
	if m, ok := got.Member(3); !ok || m.Epoch != 2 {
		t.Errorf("member 3: %v, %t", m.Epoch, ok)
	}
	if _, ok := got.Member(2); ok {
		t.Error("member 2 is there")
	}
	if _, err := cluster.Decode(nil); !errors.Is(err, cluster.ErrPlan) {
		t.Errorf("no plan at all: %v", err)
	}
}

// TestWrongPlans: one thing wrong refuses the whole plan, with its reason.
func TestWrongPlans(t *testing.T) {
	t.Parallel()
	o := own(whole(t))
	for _, c := range []struct {
		name   string
		spoil  func(p *cluster.Plan)
		reason string
	}{
		{"id with a dot", func(p *cluster.Plan) { p.ID = "a.b" }, "id"},
		{"id with a line break", func(p *cluster.Plan) { p.ID = "a\n10.77.0.2" }, "id"},
		{"no id", func(p *cluster.Plan) { p.ID = "" }, "id"},
		{"engine with a blank", func(p *cluster.Plan) { p.Engine = "ray 2" }, "engine"},
		{"no size", func(p *cluster.Plan) { p.Size = 0 }, "size"},
		{"too large", func(p *cluster.Plan) { p.Size = cluster.MaxMembers + 1 }, "size"},
		{"version 0", func(p *cluster.Plan) { p.Version = 0 }, "version"},
		{"small MTU", func(p *cluster.Plan) { p.MTU = 1279 }, "MTU"},
		{"large MTU", func(p *cluster.Plan) { p.MTU = 1421 }, "MTU"},
		{"rank out of size", func(p *cluster.Plan) { p.Size = 3 }, "no such rank"},
		{"for somebody else", func(p *cluster.Plan) { p.Rank = 0 }, "not the lease that the plan comes under"},
		{"for nobody", func(p *cluster.Plan) { p.Rank = 2 }, "not among its members"},
		{"descending", func(p *cluster.Plan) { slices.Reverse(p.Members) }, "not ascending"},
		{"a rank twice", func(p *cluster.Plan) { p.Members[1] = p.Members[0] }, "not ascending"},
		{"another key", func(p *cluster.Plan) { p.Members[0].Key[5]++ }, "does not name its key"},
		{"another hold", func(p *cluster.Plan) { p.Members[0].Hold[5]++ }, "does not name its key"},
		{"no key", func(p *cluster.Plan) { p.Members[0].Key = market.OverlayKey{} }, "key"},
		{"key of small order, signed", func(p *cluster.Plan) {
			m := member(t, 0, 0, func(c *market.LeaseCore) { c.Nonce = market.OverlayNonce(market.HoldID{1, 1}, market.OverlayKey{1}) })
			m.Key = market.OverlayKey{1}
			p.Members[0] = m
		}, "small order"},
		{"another epoch", func(p *cluster.Plan) { p.Members[0].Epoch = 1 }, "epoch 1: the lease"},
		{"the rank of another lease", func(p *cluster.Plan) { p.Members[2].Rank = 2 }, "the lease is for rank 3"},
		{"another buyer's lease", func(p *cluster.Plan) {
			p.Members[2] = member(t, 3, 2, func(c *market.LeaseCore) { c.Buyer = sign.NewPrivate([32]byte{8}).Key() })
		}, "another buyer"},
		{"another job's lease", func(p *cluster.Plan) {
			p.Members[2] = member(t, 3, 2, func(c *market.LeaseCore) { c.Terms = sign.Hash{55} })
		}, "another job"},
		{"a successor", func(p *cluster.Plan) {
			p.Members[2] = member(t, 3, 2, func(c *market.LeaseCore) { c.Flags, c.ActivateBefore = market.LeaseSuccessor, c.Start })
		}, "the lease is a successor"},
		{"not signed by its provider", func(p *cluster.Plan) { p.Members[0].Lease.ProviderSig[3]++ }, "provider: "},
		{"not signed by its buyer", func(p *cluster.Plan) { p.Members[0].Lease.BuyerSig[3]++ }, "buyer: "},
		{"the signatures of another lease", func(p *cluster.Plan) { p.Members[0].Lease.ProviderSig = p.Members[2].Lease.ProviderSig }, "provider: "},
		{"many addresses", func(p *cluster.Plan) { p.Members[0].Addrs = make([]ma.Multiaddr, cluster.MaxAddrs+1) }, "addresses"},
		{"many GPUs", func(p *cluster.Plan) { p.Members[0].GPUs = 1 << 20 }, "GPUs"},
		{"no slots", func(p *cluster.Plan) { p.Members[0].Slots = 0 }, "slots"},
		{"an own lease of before", func(p *cluster.Plan) { p.Members[1] = member(t, 1, 5, nil) }, "not the lease"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			p := whole(t)
			c.spoil(&p)
			_, err := taken(p.Proto(), o)
			if !errors.Is(err, cluster.ErrPlan) || !strings.Contains(err.Error(), c.reason) {
				t.Errorf("%v, want %q in it", err, c.reason)
			}
		})
	}
}

// TestWrongBytes: what no Plan can say.
func TestWrongBytes(t *testing.T) {
	t.Parallel()
	o := own(whole(t))
	for name, spoil := range map[string]func(p *nodepb.ClusterPlan){
		"short lease":     func(p *nodepb.ClusterPlan) { p.Members[0].Lease = p.Members[0].Lease[1:] },
		"short key":       func(p *nodepb.ClusterPlan) { p.Members[0].Key = p.Members[0].Key[1:] },
		"long hold":       func(p *nodepb.ClusterPlan) { p.Members[0].Hold = append(p.Members[0].Hold, 0) },
		"nil member":      func(p *nodepb.ClusterPlan) { p.Members[0] = nil },
		"no address":      func(p *nodepb.ClusterPlan) { p.Members[0].Addrs = []string{"192.0.2.1"} },
		"long address":    func(p *nodepb.ClusterPlan) { p.Members[0].Addrs = []string{"/dns/" + strings.Repeat("a", 300)} },
		"many members":    func(p *nodepb.ClusterPlan) { p.Members = make([]*nodepb.ClusterMember, cluster.MaxMembers+1) },
		"no members":      func(p *nodepb.ClusterPlan) { p.Members = nil },
		"a changed lease": func(p *nodepb.ClusterPlan) { p.Members[0].Lease[250]++ },

		"few round trips":             func(p *nodepb.ClusterPlan) { p.Paths.RttMicros = p.Paths.RttMicros[1:] },
		"many round trips":            func(p *nodepb.ClusterPlan) { p.Paths.RttMicros = append(p.Paths.RttMicros, 5) },
		"few rates":                   func(p *nodepb.ClusterPlan) { p.Paths.Mbit = p.Paths.Mbit[1:] },
		"a long round trip":           func(p *nodepb.ClusterPlan) { p.Paths.RttMicros[0] = 10_000_001 },
		"a high rate":                 func(p *nodepb.ClusterPlan) { p.Paths.Mbit[0] = 1_000_001 },
		"a rate without a round trip": func(p *nodepb.ClusterPlan) { p.Paths.Mbit[2] = 1 },
		"a relay without one":         func(p *nodepb.ClusterPlan) { p.Paths.Relayed = []uint32{2} },
		"a relayed path twice":        func(p *nodepb.ClusterPlan) { p.Paths.Relayed = []uint32{1, 1} },
		"relayed ones descending":     func(p *nodepb.ClusterPlan) { p.Paths.Relayed = []uint32{1, 0} },
		"a relayed path of nobody":    func(p *nodepb.ClusterPlan) { p.Paths.Relayed = []uint32{3} },
		"many relayed ones":           func(p *nodepb.ClusterPlan) { p.Paths.Relayed = []uint32{0, 1, 2, 3} },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := whole(t).Proto()
			spoil(p)
			if _, err := taken(p, o); !errors.Is(err, cluster.ErrPlan) {
				t.Errorf("%v", err)
			}
		})
	}
	p := whole(t)
	for name, o := range map[string]cluster.Own{
		"key of somebody else":   {Lease: o.Lease, Buyer: o.Buyer, Key: p.Members[0].Key},
		"buyer of another lease": {Lease: o.Lease, Buyer: provider(0).Key(), Key: o.Key},
		"lease of somebody else": {Lease: p.Members[0].Lease.Core.ID(), Buyer: o.Buyer, Key: o.Key},
	} {
		if err := p.Check(domain, o); !errors.Is(err, cluster.ErrPlan) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := p.Check(sign.Domain{Network: "test", Chain: sign.Hash{2}}, o); !errors.Is(err, cluster.ErrPlan) {
		t.Errorf("another network: %v", err)
	}
}

// TestAfter: which plan may follow on which.
func TestAfter(t *testing.T) {
	t.Parallel()
	before := whole(t)
	before.Version = 5
	change := func(f func(p *cluster.Plan)) cluster.Plan {
		p := before
		p.Members, p.Paths = slices.Clone(before.Members), slices.Clone(before.Paths)
		f(&p)
		return p.WithPaths(p.Paths)
	}
	for _, c := range []struct {
		name string
		next cluster.Plan
		want error
	}{
		{"the same again", before, nil},
		{"the same, measured otherwise", change(func(p *cluster.Plan) { p.Paths = p.Paths[:1] }), nil},
		{"the same under another version", change(func(p *cluster.Plan) { p.Version = 6 }), nil},
		{"larger", change(func(p *cluster.Plan) { p.Version, p.Size = 9, 9 }), nil},
		{"fewer members", change(func(p *cluster.Plan) { p.Version, p.Members = 6, p.Members[:2] }), nil},
		{"an older one", change(func(p *cluster.Plan) { p.Version = 4 }), cluster.ErrOld},
		{"another one of the same version", change(func(p *cluster.Plan) { p.Members = p.Members[:2] }), cluster.ErrOld},
		{"another cluster", change(func(p *cluster.Plan) { p.ID, p.Version = "jother", 6 }), cluster.ErrPlan},
		{"another rank", change(func(p *cluster.Plan) { p.Rank, p.Version = 0, 6 }), cluster.ErrPlan},
		{"another engine", change(func(p *cluster.Plan) { p.Engine, p.Version = "mpi", 6 }), cluster.ErrPlan},
		{"another MTU", change(func(p *cluster.Plan) { p.MTU, p.Version = 1280, 6 }), cluster.ErrPlan},
	} {
		if err := c.next.After(before); !errors.Is(err, c.want) || (err == nil) != (c.want == nil) {
			t.Errorf("%s: %v, want %v", c.name, err, c.want)
		}
	}
}

// TestOldEpochNeverReturns: what was replaced is not a member again, whatever came in between.
func TestOldEpochNeverReturns(t *testing.T) {
	t.Parallel()
	first := whole(t)
	seen, err := cluster.Seen(nil).See(first)
	if err != nil {
		t.Fatal(err)
	}
	gone, err := seen.See(plan(t, 1, first.Members[:2]...))
	if err != nil {
		t.Fatal(err)
	}
	replaced, err := gone.See(plan(t, 1, first.Members[0], first.Members[1], member(t, 3, 4, nil)))
	if err != nil {
		t.Fatal(err)
	}
	b, err := json.Marshal(replaced) // as journalled
	if err != nil {
		t.Fatal(err)
	}
	var back cluster.Seen
	if err := json.Unmarshal(b, &back); err != nil {
		t.Fatal(err)
	}
	if _, err := back.See(first); !errors.Is(err, cluster.ErrPlan) || !strings.Contains(err.Error(), "epoch 2: already") {
		t.Errorf("the replaced one is back: %v", err)
	}
	twin := member(t, 3, 4, func(c *market.LeaseCore) { c.Cap++ })
	if _, err := back.See(plan(t, 1, first.Members[0], first.Members[1], twin)); !errors.Is(err, cluster.ErrPlan) {
		t.Errorf("two leases of one epoch: %v", err)
	}
	if len(seen) != 3 || seen[3].Epoch != 2 {
		t.Errorf("See changed what it was called on: %v", seen)
	}
	if _, err := gone.See(first); err != nil {
		t.Errorf("nobody has replaced it, and it may come back: %v", err)
	}
}

func TestAddresses(t *testing.T) {
	t.Parallel()
	seen := map[netip.Addr]bool{cluster.Service: true}
	for rank := range uint32(cluster.MaxMembers) {
		a := cluster.Address(rank)
		if seen[a] || !cluster.Prefix.Contains(a) {
			t.Errorf("rank %d: %s", rank, a)
		}
		seen[a] = true
		if r, ok := cluster.RankOf(a); !ok || r != rank {
			t.Errorf("%s: rank %d, %t", a, r, ok)
		}
		for _, n := range []string{cluster.Name(rank), strings.ToUpper(cluster.Name(rank)) + ".", cluster.Name(rank) + ".jabc", cluster.Name(rank) + ".JABC."} {
			if r, ok := cluster.Resolve(n, "jabc"); !ok || r != rank {
				t.Errorf("%s: rank %d, %t", n, r, ok)
			}
		}
	}
	for _, a := range []string{"10.77.0.0", "10.77.0.1", "10.77.0.252", "10.77.1.8", "10.77.255.254", "10.78.0.2", "127.0.0.1", "::1", "fe80::1%ovl0"} {
		if r, ok := cluster.RankOf(netip.MustParseAddr(a)); ok {
			t.Errorf("%s: rank %d", a, r)
		}
	}
	if r, ok := cluster.RankOf(netip.MustParseAddr("::ffff:10.77.0.5")); !ok || r != 3 {
		t.Errorf("mapped: %d, %t", r, ok)
	}
	if r, ok := cluster.Resolve("Head.", "jabc"); !ok || r != 0 {
		t.Errorf("head: %d, %t", r, ok)
	}
	for _, n := range []string{"", ".", "node-", "node-01", "node-+1", "node-256", "node--1", "node-1.jother", "node-1.jabc.jabc", "head.com", "example.com", "node-99999999999999999999"} {
		if r, ok := cluster.Resolve(n, "jabc"); ok {
			t.Errorf("%q: rank %d", n, r)
		}
	}
}

// TestContract holds what programs find to testdata/contract.json, which every implementation must give them.
func TestContract(t *testing.T) {
	t.Parallel()
	c := whole(t).Contract()
	files := map[string]string{}
	for name, b := range c.Files() {
		files[name] = string(b)
	}
	got, err := json.MarshalIndent(map[string]any{"hostname": c.Hostname(), "env": c.Env(), "files": files}, "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	got = append(got, '\n')
	path := filepath.Join("testdata", "contract.json")
	if rewrite() {
		if err := os.WriteFile(path, got, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Errorf("%s is not what this implementation does; if that is meant, run with -rewrite:\n%s", path, got)
	}
	if env := c.WithEnv(map[string]string{"NODE_IP": "mine"}); env["NODE_IP"] != "mine" || env["NODE_RANK"] != "1" {
		t.Errorf("%v", env)
	}
}

// anyPath is a path of a cluster, also one that is nobody's.
var anyPath = rapid.Custom(func(t *rapid.T) cluster.Path {
	return cluster.Path{
		A: rapid.Uint32Range(0, 12).Draw(t, "a"), B: rapid.Uint32Range(0, 12).Draw(t, "b"),
		RTTMicros: rapid.Uint32().Draw(t, "rtt"), Mbit: rapid.Uint32().Draw(t, "mbit"), Relayed: rapid.Bool().Draw(t, "relayed"),
	}
})

// TestPlanTravels: any plan that is valid is the same on the other side.
func TestPlanTravels(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		var ms []cluster.Member
		for rank := range uint32(rapid.IntRange(1, 12).Draw(rt, "size")) {
			if rapid.Bool().Draw(rt, "there") {
				ms = append(ms, member(t, rank, uint32(rapid.IntRange(0, 200).Draw(rt, "epoch")), nil))
			}
		}
		if len(ms) == 0 {
			return
		}
		p := cluster.Plan{
			ID: rapid.StringMatching(`[a-z0-9]([a-z0-9-]{0,20}[a-z0-9])?`).Draw(rt, "id"), Rank: ms[rapid.IntRange(0, len(ms)-1).Draw(rt, "rank")].Rank,
			Size: uint32(rapid.IntRange(12, cluster.MaxMembers).Draw(rt, "n")), Version: rapid.Uint64Range(1, 1<<63).Draw(rt, "version"), Members: ms,
			MTU: uint32(rapid.IntRange(cluster.MinMTU, cluster.MaxMTU).Draw(rt, "mtu")), Engine: "none",
		}.WithPaths(rapid.SliceOfN(anyPath, 0, 60).Draw(rt, "paths"))
		b, err := proto.Marshal(p.Proto())
		if err != nil || len(b) > cluster.MaxSize {
			rt.Fatalf("%d bytes, %v", len(b), err)
		}
		var m nodepb.ClusterPlan
		if err := proto.Unmarshal(b, &m); err != nil {
			rt.Fatal(err)
		}
		got, err := taken(&m, own(p))
		if err != nil {
			rt.Fatal(err)
		}
		if !proto.Equal(got.Proto(), p.Proto()) {
			rt.Fatalf("%v became %v", p, got)
		}
		if err := got.After(p); err != nil {
			rt.Fatal(err)
		}
		if !slices.Equal(got.Paths, p.Paths) {
			rt.Fatalf("paths %v became %v", p.Paths, got.Paths)
		}
		checkMatrix(rt, got)
	})
}

// checkMatrix holds what programs read of a plan's paths to the plan.
func checkMatrix(t rapid.TB, p cluster.Plan) {
	t.Helper()
	var d struct {
		Members []cluster.Node
		Class   cluster.Class
		Paths   struct {
			RTT     [][]*uint32 `json:"rtt_micros"`
			Mbit    [][]*uint32
			Relayed [][2]uint32
		}
	}
	if err := json.Unmarshal(p.Contract().Files()[cluster.FileCluster], &d); err != nil {
		t.Fatal(err)
	}
	n, known := len(p.Members), 0
	if len(d.Paths.RTT) != n || len(d.Paths.Mbit) != n {
		t.Fatalf("%d and %d rows for %d members", len(d.Paths.RTT), len(d.Paths.Mbit), n)
	}
	paths := map[[2]uint32]cluster.Path{}
	for _, path := range p.Paths {
		paths[[2]uint32{path.A, path.B}] = path
	}
	relayed := map[[2]uint32]bool{}
	for _, pair := range d.Paths.Relayed {
		relayed[pair] = true
	}
	for b := range n {
		if len(d.Paths.RTT[b]) != b || len(d.Paths.Mbit[b]) != b {
			t.Fatalf("row %d has %d and %d places", b, len(d.Paths.RTT[b]), len(d.Paths.Mbit[b]))
		}
		for a := range b {
			pair := [2]uint32{d.Members[a].Rank, d.Members[b].Rank}
			want, measured := paths[pair]
			rtt, mbit := d.Paths.RTT[b][a], d.Paths.Mbit[b][a]
			same := p.Members[a].Provider() == p.Members[b].Provider()
			if (rtt != nil) != (measured || same) || rtt != nil && *rtt != want.RTTMicros || (mbit != nil) != (want.Mbit > 0) || mbit != nil && *mbit != want.Mbit || relayed[pair] != want.Relayed {
				t.Fatalf("%d to %d: %v, %v, %t; want %+v", pair[0], pair[1], rtt, mbit, relayed[pair], want)
			}
			if rtt != nil {
				known++
			}
		}
	}
	if all := n > 1 && known == n*(n-1)/2; all != (d.Class != "") {
		t.Fatalf("%d of %d paths are known, the class is %q", known, n*(n-1)/2, d.Class)
	}
}

// TestPathsOfOnePeer: ranks on one peer are no way apart, and the class is that of the slowest path.
func TestPathsOfOnePeer(t *testing.T) {
	t.Parallel()
	on := func(rank uint32) cluster.Member { // all on the peer of rank 0
		m := member(t, rank, 0, func(c *market.LeaseCore) { c.Provider = provider(0).Key() })
		return m
	}
	p := plan(t, 1, on(0), on(1), member(t, 3, 2, nil))
	checkMatrix(t, p)
	p = p.WithPaths([]cluster.Path{{A: 0, B: 3, RTTMicros: 300}, {A: 3, B: 1, RTTMicros: 300, Mbit: 60}, {A: 2, B: 1, RTTMicros: 5}, {A: 1, B: 1, RTTMicros: 5}})
	checkMatrix(t, p)
	text := string(p.Contract().Files()[cluster.FileCluster])
	for _, want := range []string{`"class": "metro"`, "[0],", "[300,300]", "[null,60]", `"relayed": []`} {
		if !strings.Contains(text, want) {
			t.Errorf("no %s in\n%s", want, text)
		}
	}
}

func TestLargestPlanFits(t *testing.T) {
	t.Parallel()
	m := member(t, 0, 0, nil)
	long := ma.StringCast("/dns/" + strings.Repeat("a", cluster.MaxAddrSize-5))
	pm := plan(t, 0, m).Proto()
	pm.Id, pm.Engine, pm.Size, pm.Version = strings.Repeat("a", 63), strings.Repeat("e", 32), cluster.MaxMembers, 1<<64-1
	one := pm.Members[0]
	one.Rank, one.Epoch, one.Gpus, one.Slots, one.MilliCpu, one.MemoryMib = 255, 1<<32-1, 1024, 4096, 1<<32-1, 1<<32-1
	one.Addrs = slices.Repeat([]string{long.String()}, cluster.MaxAddrs)
	pm.Members = slices.Repeat(pm.Members, cluster.MaxMembers)
	pairs := cluster.MaxMembers * (cluster.MaxMembers - 1) / 2
	pm.Paths = &nodepb.ClusterPaths{RttMicros: slices.Repeat([]uint32{10_000_000}, pairs), Mbit: slices.Repeat([]uint32{1_000_000}, pairs)}
	for i := range pairs {
		pm.Paths.Relayed = append(pm.Paths.Relayed, uint32(i))
	}
	if n := proto.Size(pm); n > cluster.MaxSize {
		t.Errorf("%d bytes, MaxSize is %d", n, cluster.MaxSize)
	}
}

// TestLargestFilesFit: what the largest cluster's containers find is no more than runtimes take.
func TestLargestFilesFit(t *testing.T) {
	t.Parallel()
	m := member(t, 0, 0, nil)
	p := cluster.Plan{ID: strings.Repeat("a", 63), Size: cluster.MaxMembers, Version: 1<<64 - 1, MTU: 1420, Engine: strings.Repeat("e", 32)}
	var all []cluster.Path
	for b := range uint32(cluster.MaxMembers) {
		m.Rank, m.Epoch, m.GPUs, m.Slots, m.MilliCPU, m.MemoryMiB = b, 1<<32-1, 1024, 4096, 1<<32-1, 1<<32-1
		p.Members = append(p.Members, m)
		for a := range b {
			all = append(all, cluster.Path{A: a, B: b, RTTMicros: 1<<32 - 1, Mbit: 1<<32 - 1, Relayed: true})
		}
	}
	if err := runtime.CheckOverlayFiles(p.WithPaths(all).Contract().Files()); err != nil {
		t.Error(err)
	}
}

// FuzzPlan: any bytes are a plan that is the same when encoded and decoded again, or ErrPlan; and what programs get of it is bounded.
func FuzzPlan(f *testing.F) {
	for _, p := range []cluster.Plan{whole(f), plan(f, 0, member(f, 0, 0, nil))} {
		b, err := proto.Marshal(p.Proto())
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	o := own(whole(f))
	f.Fuzz(func(t *testing.T, b []byte) {
		var m nodepb.ClusterPlan
		if proto.Unmarshal(b, &m) != nil {
			return
		}
		p, err := cluster.Decode(&m)
		if err != nil {
			if !errors.Is(err, cluster.ErrPlan) {
				t.Fatal(err)
			}
			return
		}
		if err := p.Check(domain, o); err != nil && !errors.Is(err, cluster.ErrPlan) {
			t.Fatal(err)
		}
		again, err := cluster.Decode(p.Proto())
		if err != nil || !proto.Equal(again.Proto(), p.Proto()) {
			t.Fatalf("decoded and encoded again it is something else: %v", err)
		}
		if err := again.After(p); err != nil {
			t.Fatal(err)
		}
		if _, err := cluster.Seen(nil).See(p); err != nil {
			t.Fatal(err)
		}
		c := p.Contract()
		files := c.Files()
		if err := runtime.CheckOverlayFiles(files); err != nil {
			t.Fatal(err)
		}
		for name, b := range files {
			if bytes.ContainsRune(b, 0) {
				t.Fatalf("%s has a zero", name)
			}
		}
		if !json.Valid(files[cluster.FileCluster]) {
			t.Fatalf("%s", files[cluster.FileCluster])
		}
		if len(c.Env()) > 32 {
			t.Fatal("more variables than a workload leaves room for")
		}
	})
}
