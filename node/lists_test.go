package node

import (
	"bytes"
	"context"
	"errors"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/libp2p/go-libp2p/core/peer"
	"github.com/prometheus/client_golang/prometheus/testutil/promlint"

	"github.com/starling-network/starling/chain/chaintest"
	"github.com/starling-network/starling/chain/program/account"
	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/node/api"
	"github.com/starling-network/starling/node/api/route"
	"github.com/starling-network/starling/node/config"
	"github.com/starling-network/starling/node/onchain"
	"github.com/starling-network/starling/node/runtimes"
	"github.com/starling-network/starling/node/service"
	"github.com/starling-network/starling/node/slots"
	"github.com/starling-network/starling/node/store"
	"github.com/starling-network/starling/p2p"
	"github.com/starling-network/starling/p2p/blob"
	"github.com/starling-network/starling/p2p/p2ptest"
	"github.com/starling-network/starling/verify"
	"github.com/starling-network/starling/verify/audit"
)

// freeParts are the parts of a peer of a free network that sells nothing.
func freeParts(t *testing.T) Parts {
	t.Helper()
	g, err := market.FreeGenesis("lists", strings.NewReader(strings.Repeat("number", 10)))
	if err != nil {
		t.Fatal(err)
	}
	return partsOf(t, g, Parts{Access: onchain.Access{Ledger: slots.Wall(g.SlotMillis)}})
}

// tokenParts are the parts of a peer of a network with a program, and with audits if a window has so many slots.
func tokenParts(t *testing.T, auditSlots uint64) Parts {
	t.Helper()
	c := chaintest.NewChain(chaintest.Config{})
	g := market.Genesis{
		Network: "lists", Chain: c.Genesis(), Symbol: "STAR", Decimals: 6, SlotMillis: 100, IntervalSlots: 10, Simulated: true,
		AuditSlots: auditSlots, AuditOneIn: min(auditSlots, 2),
	}
	_, programs, err := chaintest.Found(c, &g, account.Params{
		MarginSlots: 100, ResponseSlots: 100, UnbondingSlots: 2000, EvidenceSlots: 1000, MinStake: 1,
		AuditSlots: uint32(auditSlots),
	})
	if err != nil {
		t.Fatal(err)
	}
	l := programs.Ledger(privateKey(t).Key())
	return partsOf(t, g, Parts{Access: onchain.Access{Ledger: l, Program: l}})
}

// privateKey is the key of all peers here: each is alone.
func privateKey(t *testing.T) sign.Private {
	t.Helper()
	seed, err := p2p.SeedOf(p2ptest.Key(0))
	if err != nil {
		t.Fatal(err)
	}
	return sign.NewPrivate(seed)
}

func partsOf(t *testing.T, g market.Genesis, p Parts) Parts {
	t.Helper()
	blobs, err := blob.OpenStore(filepath.Join(t.TempDir(), "blobs"), 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	p.Config, p.Genesis, p.Key, p.Home = config.Default(), g, privateKey(t), t.TempDir()
	p.Owner, p.Store, p.Blobs, p.Version, p.Log = p.Key.Key(), store.NewMemory(), blobs, "test", p2ptest.Quiet()
	p.Host = p2ptest.LoopbackHost(t, p2p.Config{Key: p2ptest.Key(0), Network: g.Tag()})
	p.Runtimes, p.SlotEvery, p.NoAPI = runtimes.Set{}, 5*time.Second, true
	return p
}

// sells adds a unit of CPU to a peer's parts.
func sells(p Parts) Parts {
	p.Config.Provide.Enabled = true
	p.Config.Provide.Unit = config.Unit{MilliCPU: 100, MemoryMiB: 8, DiskMiB: 8}
	if p.Genesis.Free {
		p.Config.Provide.Price = "0"
	}
	return p
}

// fakeLight is a light peer's connection to one entry peer.
type fakeLight struct{}

func (fakeLight) Find(context.Context, market.Class, []market.Region, int) ([]market.Offer, error) {
	return nil, nil
}
func (fakeLight) Publish(context.Context, market.Order, []byte) (int, error) { return 1, nil }
func (fakeLight) Size() int                                                  { return 7 }
func (fakeLight) Peers() []peer.AddrInfo                                     { return []peer.AddrInfo{{ID: "full"}} }
func (fakeLight) Carries() int64                                             { return 0 }
func (fakeLight) Entries() []peer.ID                                         { return []peer.ID{"entry"} }
func (fakeLight) Warning() string                                            { return "one entry only; name another" }
func (fakeLight) Dials() bool                                                { return true }
func (fakeLight) Run(ctx context.Context) error                              { return wait(ctx) }

func (fakeLight) Roster(context.Context, audit.Window) (audit.Roster, error) { return nil, nil }
func (fakeLight) Recent(context.Context, audit.Window) (audit.Recent, error) {
	return audit.Recent{}, nil
}

func light(p Parts) Parts {
	p.Light = fakeLight{}
	return p
}

// kinds are peers that differ in their lists.
var kinds = []struct {
	name  string
	parts func(*testing.T) Parts
	list  string
}{
	{"light, free", func(t *testing.T) Parts { return light(freeParts(t)) },
		"journal slots host reputation files entries replies buyer copies"},
	{"light, token", func(t *testing.T) Parts { return light(tokenParts(t, 0)) },
		"journal slots host code reputation files entries replies buyer copies money"},
	{"buyer, free", freeParts,
		"journal slots host reputation files discovery gossip coordinates proofs replies exchange networks buyer copies anchored clients"},
	{"buyer, free, no entry", func(t *testing.T) Parts {
		p := freeParts(t)
		p.Config.Entry.Serve = false
		return p
	}, "journal slots host reputation files discovery gossip coordinates proofs replies exchange networks buyer copies anchored"},
	{"seller, free", func(t *testing.T) Parts { return sells(freeParts(t)) },
		"journal slots host reputation files discovery gossip coordinates proofs replies exchange networks provider buyer copies anchored " +
			"clients"},
	{"seller, token", func(t *testing.T) Parts { return sells(tokenParts(t, 0)) },
		"journal slots host code reputation files rules discovery gossip coordinates proofs replies exchange networks " +
			"provider buyer copies money guardian anchored clients"},
	{"seller, audited", func(t *testing.T) Parts { return sells(tokenParts(t, 100)) },
		"journal slots host code reputation beacons files rules discovery gossip coordinates proofs replies " +
			"exchange networks provider audits buyer copies money guardian anchored clients"},
	{"buyer, audited, with ports", func(t *testing.T) Parts {
		p := tokenParts(t, 100)
		p.NoAPI, p.Config.Metrics.Listen = false, "127.0.0.1:0"
		return p
	}, "journal slots host code reputation beacons files rules discovery gossip coordinates proofs replies " +
		"exchange networks audits buyer copies money guardian anchored clients metrics api"},
}

func newNode(t *testing.T, p Parts) *Node {
	t.Helper()
	n, err := New(t.Context(), p)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// closed closes a peer that does not run when the test ends.
func closed(t *testing.T, n *Node) *Node {
	t.Helper()
	t.Cleanup(func() {
		if err := n.services.Close(); err != nil {
			t.Error(err)
		}
	})
	return n
}

// A peer that lacks something is a shorter list of services.
func TestLists(t *testing.T) {
	t.Parallel()
	for _, k := range kinds {
		t.Run(k.name, func(t *testing.T) {
			t.Parallel()
			n := closed(t, newNode(t, k.parts(t)))
			var names []string
			for _, s := range service.With[service.Service](&n.services) {
				names = append(names, s.Name())
			}
			if got := strings.Join(names, " "); got != k.list {
				t.Errorf("list\n%s, want\n%s", got, k.list)
			}
		})
	}
}

// Each kind of peer starts and stops in order, and leaves no endpoint behind.
func TestListsRun(t *testing.T) {
	t.Parallel()
	for _, k := range kinds {
		t.Run(k.name, func(t *testing.T) {
			t.Parallel()
			p := k.parts(t)
			n := newNode(t, p)
			ctx, cancel := context.WithCancel(t.Context())
			cancel() // all services start all the same, and stop at once
			if err := n.Run(ctx); err != nil {
				t.Error(err)
			}
			if (n.local.server.Load() != nil) == p.NoAPI {
				t.Errorf("API without %t", p.NoAPI)
			}
			if _, err := os.Stat(filepath.Join(p.Home, config.FileAPI)); !errors.Is(err, fs.ErrNotExist) {
				t.Errorf("endpoint file: %v", err)
			}
		})
	}
}

// A service that ends ends the peer: here the port of metrics is taken, so that nothing begins to run.
func TestFailedStartEndsPeer(t *testing.T) {
	t.Parallel()
	p := freeParts(t)
	p.Config.Metrics.Listen = "192.0.2.1:1"
	err := newNode(t, p).Run(t.Context())
	if err == nil || !strings.Contains(err.Error(), "metrics: starting: ") || !strings.Contains(err.Error(), "loopback") {
		t.Errorf("got %v", err)
	}
}

// All peers answer the same routes, each once.
func TestRoutes(t *testing.T) {
	t.Parallel()
	var want []string
	for i, k := range kinds {
		n := closed(t, newNode(t, k.parts(t)))
		routes := n.reached().Routes()
		guard := func(_ route.Operation, w http.ResponseWriter, r *http.Request, serve func(*http.Request) error) {
			_ = serve(r)
		}
		if _, err := route.Mux(routes, guard); err != nil {
			t.Errorf("%s: %v", k.name, err)
		}
		var got []string
		for _, r := range routes {
			got = append(got, r.Pattern)
		}
		slices.Sort(got)
		if i == 0 {
			want = got
		}
		if !slices.Equal(got, want) {
			t.Errorf("%s: routes %q, want %q", k.name, got, want)
		}
	}
}

// Rooms that a peer does not have answer with the reason.
func TestAbsentRooms(t *testing.T) {
	t.Parallel()
	code := func(err error) string {
		if e, ok := errors.AsType[*api.Error](err); ok {
			return e.Code
		}
		return ""
	}
	for name, c := range map[string]struct {
		parts           func(*testing.T) Parts
		audits, rewards string
	}{
		"light":       {func(t *testing.T) Parts { return light(freeParts(t)) }, "light", "takes no part in the network"},
		"free":        {freeParts, "no_audits", "a free network"},
		"not audited": {func(t *testing.T) Parts { return tokenParts(t, 0) }, "no_audits", "audit_slots"},
	} {
		n := closed(t, newNode(t, c.parts(t)))
		u := n.user
		_, list := u.Audits.Audits()
		_, run := u.Audits.Audit(t.Context())
		for _, err := range []error{list, run} {
			if code(err) != c.audits {
				t.Errorf("%s: audits: %v, want %s", name, err, c.audits)
			}
		}
		_, shown := u.Rewards.Rewards()
		_, claimed := u.Rewards.ClaimRewards(t.Context())
		for _, err := range []error{shown, claimed} {
			if code(err) != "no_rewards" || !strings.Contains(err.Error(), c.rewards) {
				t.Errorf("%s: rewards: %v, want %q", name, err, c.rewards)
			}
		}
		_, offers := u.Operator.OwnOffers()
		for _, err := range []error{
			offers, u.Operator.PauseOffers(t.Context(), false), u.Operator.ResumeOffers(t.Context(), nil),
			u.Operator.PriceOffer(t.Context(), "cpu", 1),
		} {
			if code(err) != "sells_nothing" {
				t.Errorf("%s: operator: %v", name, err)
			}
		}
		if l := u.Leases.Leases(); l == nil || len(l) > 0 {
			t.Errorf("%s: leases %v", name, l)
		}
	}
}

// Rooms bring their metrics: a peer without a room measures none of it.
func TestMetricsOfRooms(t *testing.T) {
	t.Parallel()
	of := map[string]string{
		"starling_units{": "provider", "starling_balance_tokens": "money", "starling_orders_dropped_total": "exchange",
		"starling_egress_flows": "networks", "starling_stored_bytes": "files", "starling_info{": "host",
		"starling_quotes_total{": "replies", "starling_journal_writes_total{": "journal", "starling_reputation_leases{": "reputation",
		"starling_audit_verdicts_total{": "audits", `starling_service_healthy{service="slots"} 1`: "slots",
	}
	for _, k := range kinds {
		n := closed(t, newNode(t, k.parts(t)))
		for range 2 { // they are registered once
			w := httptest.NewRecorder()
			n.Metrics().ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/metrics", nil))
			problems, err := promlint.New(bytes.NewReader(w.Body.Bytes())).Lint()
			if err != nil || len(problems) > 0 {
				t.Errorf("%s: names, types and help: %v, %v", k.name, problems, err)
			}
			for metric, room := range of {
				has := strings.Contains(w.Body.String(), "\n"+metric)
				if want := slices.Contains(strings.Fields(k.list), room); has != want || w.Code != http.StatusOK {
					t.Errorf("%s: status %d, metric %s %t, want %t", k.name, w.Code, metric, has, want)
				}
			}
		}
	}
}

// Rooms add their part to the description of the peer.
func TestInfoOfRooms(t *testing.T) {
	t.Parallel()
	for _, k := range kinds {
		p := k.parts(t)
		n := closed(t, newNode(t, p))
		has := func(room string) bool { return slices.Contains(strings.Fields(k.list), room) }
		info := n.Status().Info(t.Context())
		if info.Peer != p.Host.ID().String() || info.Key != p.Key.Key() || info.Version != "test" || info.Region != "local" {
			t.Errorf("%s: %+v", k.name, info)
		}
		if want := map[bool]int{true: 1}[has("provider")]; info.Units != want || info.FreeUnits != want {
			t.Errorf("%s: %d units, %d free, want %d", k.name, info.Units, info.FreeUnits, want)
		}
		if (info.Funds != nil) != has("money") || (info.Earnings != nil) != (has("money") && has("provider")) {
			t.Errorf("%s: funds %v, earnings %v", k.name, info.Funds, info.Earnings)
		}
		problems := []api.Fault{}
		if has("entries") {
			problems = append(problems, api.Fault{Service: "entries", Problem: "one entry only", Remedy: "name another"})
		}
		if has("entries") != (info.Direct && len(info.Entries) == 1) || !slices.Equal(info.Problems, problems) {
			t.Errorf("%s: entries %v, problems %v, want %v", k.name, info.Entries, info.Problems, problems)
		}
		if h := n.Status().Health(); n.Idle() != 0 || h.Healthy != (len(problems) == 0) || !slices.Equal(h.Problems, problems) {
			t.Errorf("%s: idle %v, health %v", k.name, n.Idle(), h)
		}
	}
}

// Parts that cannot be a peer are refused.
func TestPartsRefused(t *testing.T) {
	t.Parallel()
	for text, change := range map[string]func(*Parts){
		"complete it with":             func(p *Parts) { p.Genesis.Program, p.Genesis.Escrow = sign.Key{}, sign.Key{} },
		"opened with a program: false": func(p *Parts) { p.Program = nil },
		"region":                       func(p *Parts) { p.Config.Region = "No Region" },
		"relay":                        func(p *Parts) { p.Config.Relay.DataMiB = 1 << 50 },
		"provide.units":                func(p *Parts) { p.Config.Provide.Enabled, p.Config.Provide.Units = true, 0 },
		"egress":                       func(p *Parts) { p.Config.Egress.Mode = "all" },
		"docker.enabled":               func(p *Parts) { p.Config.Docker.Enabled = "maybe" },
	} {
		p := tokenParts(t, 0)
		change(&p)
		if _, err := New(t.Context(), p); !errors.Is(err, config.ErrConfig) || !strings.Contains(err.Error(), text) {
			t.Errorf("got %v, want %q", err, text)
		}
	}
}

func TestReceiptsReachRooms(t *testing.T) {
	t.Parallel()
	var r receipts
	var got []string
	for _, name := range []string{"a", "b"} {
		r.add(func(l market.Lease, units []market.UnitID, _ verify.Receipt) {
			if len(units) == 1 && l.Core.Start == 7 {
				got = append(got, name)
			}
		})
	}
	r.file(market.Lease{Core: market.LeaseCore{Start: 7}}, make([]market.UnitID, 1), verify.Receipt{})
	if !slices.Equal(got, []string{"a", "b"}) {
		t.Errorf("rooms %q", got)
	}
}

// A light peer's buyer sees the market through its entries, and quotes for orders of others go nowhere.
func TestWaysAndEntries(t *testing.T) {
	t.Parallel()
	e := entries{fakeLight{}}
	if e.Size("cpu") != 7 || len(e.Neighbours()) != 1 || e.Shard("cpu") < 1 || e.Shard("cpu") > market.Shards {
		t.Errorf("size %d, neighbours %v", e.Size("cpu"), e.Neighbours())
	}
	for _, k := range kinds[:3] {
		n := closed(t, newNode(t, k.parts(t)))
		if w, ok := (quotes{n}).own(market.OrderID{1}); ok {
			t.Errorf("%s: quotes for another's order go to %s", k.name, w.To)
		}
	}
	n := closed(t, newNode(t, freeParts(t)))
	if w, ok := (quotes{n}).way(market.OrderID{1}); ok {
		t.Errorf("quotes for an order that was not heard go to %s", w.To)
	}
}
