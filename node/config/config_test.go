package config

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func TestLoad(t *testing.T) {
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
  gpu: {price: "1.00", prices: {gpu/h100: "2.50"}, milliCPU: 4000, memoryMiB: 8192, diskMiB: 10000, devices: "device=0,1"}
  floor: {cpu: "0.01", gpu: "0.50"}
  hours: ["Mon-Fri 18:00-08:00", "Sat,Sun"]
  timeZone: Europe/Berlin
  share: {units: 80, cpu: 50, memory: 50, keep: {gpu: 1}}
  maxLeasesPerBuyer: 4
  images: {allow: ["docker.io/library/*"], deny: ["docker.io/library/alpine"]}
  block: [{buyer: 4zvwRjXUKGfvwnParsHAS3HuSVzV5cA4McphgmoCtajS, reason: did not pay}]
  only: []
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
		{"hours", "provide: {hours: [\"Mon 8-9\"]}\n", "provide.hours"},
		{"zone", "provide: {timeZone: Mars}\n", "time zone"},
		{"image", "provide: {images: {deny: [\"a b\"]}}\n", "provide.images: deny"},
		{"blocked", "provide: {block: [{buyer: x}]}\n", "provide.block[0]"},
		{"only", "provide: {only: [x]}\n", "provide.only[0]"},
		{"share", "provide: {share: {cpu: 101}}\n", "provide.share"},
		{"floor", "provide: {floor: {GPU: \"1\"}}\n", "provide.floor"},
		{"gpu", "provide: {enabled: true, gpu: {price: \"1\"}}\n", "provide.gpu"},
		{"leases of one buyer", "provide: {maxLeasesPerBuyer: -1}\n", "provide.maxLeasesPerBuyer"},
		{"window", "buy: {quoteWindow: 0s}\n", "buy.quoteWindow"},
		{"jobs", "buy: {maxJobs: 0}\n", "buy.maxJobs"},
		{"limits of many tokens", "buy: {limits: {perJob: \"2.5\", perDay: \"1000\", perProviderPerDay: \"0.000001\"}}\n", ""},
		{"limit of nothing", "buy: {limits: {perDay: \"0.00\"}}\n", "buy.limits.perDay"},
		{"limit", "buy: {limits: {perJob: \"many\"}}\n", "buy.limits.perJob"},
		{"reach", `
nat: {auto: false, portMap: false, relays: [/ip4/1.2.3.4/tcp/1/p2p/12D3KooWPECgJvMCjuF6G4QQbHUU1Gssr2KWfokMoCiihN3Yd1Bm]}
relay: {serve: true, dataMiB: -1, duration: 1h, circuits: 8, perPeer: 2, reservations: 4, perIP: 2}
privateNetwork: swarm.key
block: [12D3KooWPECgJvMCjuF6G4QQbHUU1Gssr2KWfokMoCiihN3Yd1Bm, 11111111111111111111111111111112]
`, ""},
		{"relays without ids", "nat: {relays: [/ip4/1.2.3.4/tcp/1]}\n", "nat.relays"},
		{"block", "block: [somebody]\n", "block[0]"},
		{"dial out and listen", "listen: [/ip4/0.0.0.0/tcp/1]\nnat: {dialOutOnly: true}\n", "nat.dialOutOnly"},
		{"dial out and relay", "nat: {dialOutOnly: true}\nrelay: {serve: true}\n", "relay.serve"},
		{"relay of nothing", "relay: {circuits: -1}\n", "relay"},
		{"relay of too much", "relay: {dataMiB: 9000000000000000000}\n", "relay.dataMiB"},
		{"not yaml", "region: [\n", "config.yaml"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			path := filepath.Join(t.TempDir(), FileConfig)
			if err := os.WriteFile(path, []byte(c.text), 0o600); err != nil {
				t.Fatal(err)
			}
			cfg, err := Load(path)
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
	if cfg, err := Load(filepath.Join(t.TempDir(), "none.yaml")); err != nil || cfg.Provide.Enabled {
		t.Errorf("without a file: %+v, %v", cfg, err)
	}
}

func FuzzLoad(f *testing.F) {
	f.Add("region: eu\nprovide: {enabled: true, price: \"0.1\"}\n")
	f.Add("provide:\n  unit: {milliCPU: 1e9}\n")
	f.Fuzz(func(t *testing.T, text string) {
		path := filepath.Join(t.TempDir(), FileConfig)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if cfg, err := Load(path); err == nil && cfg.Validate() != nil {
			t.Error("a configuration that is not valid was read without an error")
		}
	})
}

func TestBootstrapSaysWhatIsMissing(t *testing.T) {
	t.Parallel()
	home := t.TempDir()
	for text, want := range map[string]string{"/ip4/127.0.0.1/tcp/1": "does not end in /p2p/", "127.0.0.1:1": "bootstrap[0]"} {
		c := Default()
		c.Bootstrap = []string{text}
		if _, err := c.Reach().Host(home); !errors.Is(err, ErrConfig) || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", text, err, want)
		}
	}
}

// The engine is auto, true or false, with and without quotes.
func TestDockerConfig(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{"": "auto", "docker: {enabled: auto}": "auto", "docker: {enabled: true}": "true", "docker: {enabled: false}": "false",
		"docker: {enabled: \"true\", host: \"unix:///run/docker.sock\"}": "true", "docker: {enabled: on}": "-", "docker: {enabled: 1}": "-",
		"docker: {registries: [\"registry.lan:5000\"], imagesPercent: 90, freeMiB: 1}": "auto", "docker: {registries: [\"http://x\"]}": "-",
		"docker: {imagesPercent: 101}": "-", "docker: {runtime: runsc}": "auto", "docker: {runtime: \"--x\"}": "-", "docker: {runtime: /bin/runc}": "-"} {
		path := filepath.Join(t.TempDir(), FileConfig)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		cfg, err := Load(path)
		if want == "-" && !errors.Is(err, ErrConfig) || want != "-" && (err != nil || cfg.Docker.Enabled != want) {
			t.Errorf("%s: %q, %v", text, cfg.Docker.Enabled, err)
		}
	}
}
