package node

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/ipfs/go-cid"

	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/p2p/blob"
)

func TestLoadConfig(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ name, text, want string }{
		{"empty", "", ""},
		{"all", `
listen: [/ip4/127.0.0.1/tcp/4001]
bootstrap: []
region: eu-west
api: 127.0.0.1:9000
solana: {rpc: ["http://127.0.0.1:8899"]}
provide:
  enabled: true
  units: 2
  unit: {milliCPU: 500, memoryMiB: 256, diskMiB: 512}
  price: "0.05"
  minTime: 1s
  maxTime: 1h
buy: {quoteWindow: 3s, maxJobs: 4}
`, ""},
		{"unknown field", "regoin: eu\n", "regoin"},
		{"line of a wrong type", "region: eu\nprovide:\n  units: many\n", "3 |"},
		{"region", "region: Europe\n", "region"},
		{"owner", "owner: nobody\n", "owner"},
		{"no units", "provide: {enabled: true, units: 0}\n", "provide.units"},
		{"too many units", "provide: {enabled: true, units: 257}\n", "provide.units"},
		{"half a unit", "provide: {enabled: true, unit: {milliCPU: 1000, memoryMiB: 0, diskMiB: 1}}\n", "provide.unit"},
		{"times", "provide: {enabled: true, minTime: 2h, maxTime: 1h}\n", "provide.minTime"},
		{"window", "buy: {quoteWindow: 0s}\n", "buy.quoteWindow"},
		{"jobs", "buy: {maxJobs: 0}\n", "buy.maxJobs"},
		{"not yaml", "region: [\n", "config.yaml"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			path := filepath.Join(t.TempDir(), FileConfig)
			if err := os.WriteFile(path, []byte(c.text), 0o600); err != nil {
				t.Fatal(err)
			}
			cfg, err := LoadConfig(path)
			if c.want == "" {
				if err != nil {
					t.Fatal(err)
				}
				if c.name == "all" && (cfg.Provide.MaxTime != time.Hour || cfg.Provide.Unit.DiskMiB != 512 || cfg.Buy.MaxJobs != 4 || cfg.Region != "eu-west") {
					t.Errorf("read as %+v", cfg)
				}
				return
			}
			if !errors.Is(err, ErrConfig) || !strings.Contains(err.Error(), c.want) {
				t.Errorf("error %v, want one that names %q", err, c.want)
			}
		})
	}
	if cfg, err := LoadConfig(filepath.Join(t.TempDir(), "none.yaml")); err != nil || cfg.Provide.Enabled {
		t.Errorf("without a file: %+v, %v", cfg, err)
	}
}

func FuzzLoadConfig(f *testing.F) {
	f.Add("region: eu\nprovide: {enabled: true, price: \"0.1\"}\n")
	f.Add("provide:\n  unit: {milliCPU: 1e9}\n")
	f.Fuzz(func(t *testing.T, text string) {
		path := filepath.Join(t.TempDir(), FileConfig)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if cfg, err := LoadConfig(path); err == nil && cfg.Validate() != nil {
			t.Error("a configuration that is not valid was read without an error")
		}
	})
}

func TestCPUUnits(t *testing.T) {
	t.Parallel()
	key := sign.NewPrivate([32]byte{7}).Key()
	c := DefaultConfig().Provide
	c.Units = 3
	units, err := cpuUnits(key, c)
	if err != nil || len(units) != 3 {
		t.Fatalf("%d units, %v", len(units), err)
	}
	again, err := cpuUnits(key, c)
	if err != nil {
		t.Fatal(err)
	}
	seen := map[string]bool{}
	for i, u := range units {
		if u.ID != again[i].ID {
			t.Error("a unit has another id after a restart")
		}
		if seen[u.ID.String()] {
			t.Error("two units have one id")
		}
		seen[u.ID.String()] = true
	}
	c.Unit.MemoryMiB = 1 << 30
	if _, err := cpuUnits(key, c); !errors.Is(err, ErrConfig) || !strings.Contains(err.Error(), "this machine has") {
		t.Errorf("more memory than there is: %v", err)
	}
}

func TestOpenSaysWhatIsMissing(t *testing.T) {
	t.Parallel()
	home := t.TempDir()
	if _, err := Open(t.Context(), home, t.TempDir(), "test", nil); err == nil || !strings.Contains(err.Error(), "genesis") {
		t.Errorf("without a genesis: %v", err)
	}
	if _, err := bootstrap([]string{"/ip4/127.0.0.1/tcp/1"}); !errors.Is(err, ErrConfig) {
		t.Errorf("an address without a peer: %v", err)
	}
	if _, err := bootstrap([]string{"127.0.0.1:1"}); !errors.Is(err, ErrConfig) || !strings.Contains(err.Error(), "bootstrap[0]") {
		t.Errorf("no multiaddr: %v", err)
	}
}

func TestGrants(t *testing.T) {
	t.Parallel()
	g := newGrants()
	id := func(i int) cid.Cid { return blob.Sum([]byte{byte(i), byte(i >> 8), byte(i >> 16)}) }
	for i := range maxGrants + 1000 {
		g.add("peer", id(i))
	}
	if len(g.m) > maxGrants || !g.allowed("peer", id(maxGrants+999)) || g.allowed("peer", id(0)) || g.allowed("other", id(maxGrants+999)) {
		t.Errorf("%d grants are kept", len(g.m))
	}
}
