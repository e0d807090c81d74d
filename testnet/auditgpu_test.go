package testnet_test

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/node/api"
	"github.com/starling-network/starling/node/buyer/record"
	"github.com/starling-network/starling/node/gpu"
	"github.com/starling-network/starling/node/proof"
	"github.com/starling-network/starling/testnet"
	"github.com/starling-network/starling/testnet/engine"
	rules "github.com/starling-network/starling/verify/audit"
)

const h100 = market.Class("gpu/h100")

// interpreters builds programs that take the PTX interpreter for a GPU: starling, and beside it starling-cuda with the interpreter in the
// driver's place and starling-nvml with NVIDIA's mocks.
func interpreters(t *testing.T) string {
	t.Helper()
	if _, err := exec.LookPath("cc"); err != nil {
		t.Skip("no C compiler: nothing lists simulated GPUs")
	}
	dir := t.TempDir()
	const module = "github.com/starling-network/starling"
	for _, c := range []struct {
		env  []string
		args []string
	}{
		{[]string{"CGO_ENABLED=0"}, []string{
			"-ldflags=-s -w -X " + module + "/verify/audit.interpreted=yes", "-o", "starling", module + "/cmd/starling",
		}},
		{[]string{"CGO_ENABLED=1", "CGO_CFLAGS=-O2 -g -Wno-deprecated-declarations"}, []string{
			"-tags=nvml", "-o", "starling-nvml", module + "/cmd/starling-nvml",
		}},
	} {
		c.args[len(c.args)-2] = filepath.Join(dir, c.args[len(c.args)-2])
		cmd := exec.CommandContext(t.Context(), "go", append([]string{"build", "-trimpath"}, c.args...)...)
		cmd.Env = append(os.Environ(), c.env...)
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%v: %v\n%s", cmd.Args, err, out)
		}
	}
	if err := engine.Build(filepath.Join(dir, "starling-cuda"), module+"/node/device/cuda/cudatest/interpreter"); err != nil {
		t.Fatal(err)
	}
	return filepath.Join(dir, "starling")
}

// TestAuditOfGPU: GPUs of whole peers, which are processes, show committees of the other peers what they are, over starling-cuda and the
// real kernels, and are sold by that as proven. Three that are one card pass for one of them. Then one becomes slower than its class and
// another computes something else: neither passes any more, those who buy do not see them as proven, and the third goes on. The GPUs are NVIDIA's mock and the PTX interpreter, none
// is a real one; what they are asked is as much smaller as the interpreter is slower (verify/audit.Interpreted).
func TestAuditOfGPU(t *testing.T) {
	t.Parallel()
	program, faults := interpreters(t), t.TempDir()
	refusesRealNetworks(t, program)
	host, image, registries := boxes(t)
	n := start(t, testnet.Options{
		Engine: func(int) string { return host }, Registries: registries,
		Binary: program, Providers: 4, Buyers: 1, Units: 1, Audit: testnet.MinAudit,
		GPUs: func(i int) testnet.GPUs {
			if i == 3 {
				return testnet.GPUs{Mock: "dgxh100:mig", Devices: "h100-mig-3g-40gb"}
			}
			return testnet.GPUs{Mock: "dgxh100", Devices: "1"}
		},
		Env: []string{"STARLING_TEST_CUDA=" + faults},
	})
	good, slow, wrong, slice := n.Providers()[0], n.Providers()[1], n.Providers()[2], n.Providers()[3]
	shown := func(p *testnet.Peer) (past proof.PastAudit, ok bool) {
		for _, a := range audits(t, p) {
			if a.Class.Family() == "gpu" && (!ok || a.Window > past.Window) {
				past, ok = a, true
			}
		}
		return past, ok
	}
	first := map[*testnet.Peer]proof.PastAudit{}
	eventually(t, "every GPU passes", func() bool {
		for _, p := range n.Providers() {
			a, ok := shown(p)
			if !ok || a.Record.IsZero() {
				return false
			}
			first[p] = a
		}
		return true
	})
	// Anybody checks a GPU's record, with no network: it was asked what an H100 is asked.
	file := filepath.Join(t.TempDir(), "gpu.json")
	saysAt(t, program, n.Buyers()[0], "proof", "export", first[good].Record.String(), file, "--of", good.Key.String())
	if out := saysAt(t, program, n.Buyers()[0], "proof", "check", file, "--offline"); !strings.Contains(out, first[good].Unit.Short()) {
		t.Errorf("proof check: %s", out)
	}

	c, err := n.Buyers()[0].Client()
	if err != nil {
		t.Fatal(err)
	}
	// sold has a container run on a GPU, as a buyer's command line asks for it: of a unit that is proven, for nothing else is said.
	sold := func(gpus string, more ...string) (record.Job, bool) {
		out := saysAt(t, program, n.Buyers()[0], append(append([]string{"run", "-d", "--gpus", gpus, "--max-price", "1", "--budget", "0.1",
			"--timeout", "1m", "--queue-timeout", "10s"}, more...), image, "--", "exit", "0")...)
		ctx, cancel := context.WithTimeout(t.Context(), auditWait)
		defer cancel()
		id := strings.TrimSpace(out)
		if err := c.Events(ctx, id, nil, nil); err != nil {
			t.Fatal(err)
		}
		j, err := api.GetJob.Call(ctx, c, api.ByID{ID: id})
		if err != nil {
			t.Fatal(err)
		}
		return j, j.State == record.Succeeded
	}
	if image != "" {
		eventually(t, "a GPU is sold as proven", func() bool { _, ok := sold("h100:1"); return ok })
		// A slice of an H100 is a model whose speed nobody has measured: whatever computes as fast as the slowest GPU passes as one, the
		// interpreter too. It is proven as a GPU and sold as one, and by no record as what it is called.
		t.Run("TestAttackUnlistedModelIsSold", func(t *testing.T) {
			if j, ok := sold("h100-mig-3g-40gb:1"); ok {
				t.Errorf("%s was sold as proven", j.Ranks[0].Units.Model)
			}
			eventually(t, "it is sold to who asks for no proof", func() bool { _, ok := sold("h100-mig-3g-40gb:1", "--unproven"); return ok })
			eventually(t, "it is sold as a GPU", func() bool {
				j, ok := sold("1", "--exclude", good.Key.String(), "--exclude", slow.Key.String(), "--exclude", wrong.Key.String())
				return ok && j.Ranks[0].Provider == slice.Key
			})
		})
	}

	devices := map[*testnet.Peer]string{}
	breaks := func(p *testnet.Peer, fault string) {
		if devices[p] == "" {
			var inv gpu.Inventory
			parse(t, saysAt(t, program, p, "provider", "gpus", "--mock", "dgxh100", "--select", "1", "-o", "json"), &inv)
			if len(inv.Devices) != 1 {
				t.Fatalf("%s: %+v", p.Name, inv)
			}
			devices[p] = filepath.Join(faults, inv.Devices[0].UUID)
		}
		// Renamed into its place, for the device may read it at any moment.
		if err := errors.Join(os.WriteFile(devices[p]+".new", []byte(fault), 0o600), os.Rename(devices[p]+".new", devices[p])); err != nil {
			t.Fatal(err)
		}
	}
	three := []*testnet.Peer{good, slow, wrong}
	// latest is the newest window that may have begun with the devices as they were.
	latest := func() (last rules.Window) {
		for _, p := range three {
			a, _ := shown(p)
			last = max(last, a.Window+1)
		}
		return last
	}
	// One card behind three peers has to answer for all of them at one instant, and passes for one of them at most in any
	// window. It is shared for one window at a time, for a peer that fails three in a row never passes again.
	t.Run("TestAttackOneCardBehindPeers", func(t *testing.T) {
		const attempts = 4
		for range attempts {
			for _, p := range three {
				breaks(p, "card one")
			}
			last := latest()
			seen := map[rules.Window]map[*testnet.Peer]bool{} // whether it passed
			answered := func() (most int) {
				for _, p := range three {
					a, ok := shown(p)
					if !ok || a.Window <= last {
						continue
					}
					if seen[a.Window] == nil {
						seen[a.Window] = map[*testnet.Peer]bool{}
					}
					if _, again := seen[a.Window][p]; !again {
						t.Logf("%s, window %d: passed %t %q", p.Name, a.Window, !a.Record.IsZero(), a.Failed)
					}
					seen[a.Window][p] = !a.Record.IsZero()
				}
				for w, by := range seen {
					passed := 0
					for _, ok := range by {
						if ok {
							passed++
						}
					}
					if passed > 1 {
						t.Fatalf("%d of three pass in window %d with one card", passed, w)
					}
					most = max(most, len(by))
				}
				return most
			}
			eventually(t, "one card answers in a window", func() bool { return answered() > 0 })
			for began := time.Now(); answered() < len(three) && time.Since(began) < testnet.MinAudit/3; {
				time.Sleep(time.Second)
			}
			all := answered() == len(three)
			for _, p := range three {
				breaks(p, "")
			}
			apart := latest()
			eventually(t, "every GPU passes again, with a card of its own", func() bool {
				for _, p := range three {
					if a, _ := shown(p); a.Window <= apart || a.Record.IsZero() {
						return false
					}
				}
				return true
			})
			if all {
				return
			}
		}
		t.Errorf("in %d windows the card was not asked to answer for all three", attempts)
	})

	breaks(slow, "slow")
	breaks(wrong, "wrong")
	last := latest()
	for p, says := range map[*testnet.Peer][]string{
		slow: {"requested after", "may take"}, wrong: {"committed tile: differs when computed again"},
	} {
		said := ""
		eventually(t, p.Name+" fails, with the reason", func() bool {
			a, ok := shown(p)
			if a.Failed != said {
				said = a.Failed
				t.Logf("%s, window %d: %q", p.Name, a.Window, said)
			}
			return ok && a.Window > last && slices.ContainsFunc(says, func(s string) bool { return strings.Contains(a.Failed, s) })
		})
	}
	eventually(t, "only the good one is offered as proven", func() bool {
		offers, err := api.ListOffers.Call(t.Context(), c, api.ByClass{Class: string(h100)})
		if err != nil {
			t.Fatal(err)
		}
		proven := map[string]bool{}
		for _, o := range offers {
			proven[o.Provider.String()] = o.Proven > 0
		}
		return proven[good.Key.String()] && !proven[slow.Key.String()] && !proven[wrong.Key.String()]
	})
	if image != "" {
		eventually(t, "the good one is sold", func() bool {
			j, ok := sold("h100:1")
			if ok && j.Ranks[0].Provider != good.Key {
				t.Errorf("a GPU that failed its audit was sold: %s", j.Ranks[0].Provider.Short())
			}
			return ok
		})
	}
	if a, _ := shown(good); a.Record.IsZero() {
		t.Errorf("the good one: %+v", a)
	}
}

// refusesRealNetworks sees that a program which takes the PTX interpreter for a GPU joins no network but a simulated one.
func refusesRealNetworks(t *testing.T, program string) {
	t.Helper()
	nowhere := &testnet.Peer{Home: filepath.Join(t.TempDir(), "home")}
	genesis := filepath.Join(t.TempDir(), "genesis.json")
	if err := os.WriteFile(genesis, []byte(saysAt(t, program, nowhere, "network", "genesis", "--network", "lab", "--free")), 0o600); err != nil {
		t.Fatal(err)
	}
	saysAt(t, program, nowhere, "init", "--genesis", genesis)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	out, err := exec.CommandContext(ctx, program, "--home", nowhere.Home, "up").CombinedOutput()
	if err == nil || !strings.Contains(string(out), "treats the PTX interpreter as a GPU") {
		t.Errorf("on a network that is not a simulated one: %v: %s", err, out)
	}
}

// boxes starts a container engine, and gives its address and an image on it that ends with the code that it is told. The engine is "" where
// containers are not tested. A peer has to allow the registries.
func boxes(t *testing.T) (host, image string, registries []string) {
	t.Helper()
	if os.Getenv("STARLING_DOCKER") != "1" {
		t.Log("no GPU is sold here: without STARLING_DOCKER=1 there is no container engine, and only containers are leased GPUs")
		return "", "", nil
	}
	e, err := engine.Start(t.Context(), engine.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := e.Close(); err != nil {
			t.Error(err)
		}
	})
	r, err := engine.NewRegistry()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := r.Close(); err != nil {
			t.Error(err)
		}
	})
	box := filepath.Join(t.TempDir(), "box")
	if err := engine.Build(box, "github.com/starling-network/starling/testnet/engine/box"); err != nil {
		t.Fatal(err)
	}
	if image, err = r.Push("box", nil, engine.File{Path: "/box", From: box}); err != nil {
		t.Fatal(err)
	}
	return e.Host(), image, r.Addrs()
}
