package testnet_test

import (
	"bytes"
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/starling-network/starling/node/api"
	"github.com/starling-network/starling/node/buyer/record"
	"github.com/starling-network/starling/node/config"
	"github.com/starling-network/starling/p2p"
	"github.com/starling-network/starling/testnet"
)

// outsider is a machine with starling that is no part of a testnet.
type outsider struct {
	home string
	env  []string
}

func newOutsider(t *testing.T) outsider {
	t.Helper()
	return outsider{filepath.Join(t.TempDir(), "home"), append(os.Environ(), "XDG_CACHE_HOME="+t.TempDir())}
}

// cli runs a command there and returns its exit code and what it said.
func (o outsider) cli(t *testing.T, args ...string) (int, string, string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	var out, errs bytes.Buffer
	cmd := exec.CommandContext(ctx, starling(t), append([]string{"--home", o.home}, args...)...)
	cmd.Env, cmd.Stdout, cmd.Stderr = o.env, &out, &errs
	err := cmd.Run()
	if exit, ok := errors.AsType[*exec.ExitError](err); !ok && err != nil || ok && exit.ExitCode() < 0 {
		t.Fatalf("%v: %v\n%s", args, err, errs.String())
	}
	return cmd.ProcessState.ExitCode(), out.String(), errs.String()
}

// up sets a peer up as its operator would and runs it until the test ends.
func (o outsider) up(t *testing.T, n *testnet.Network, boot string, args ...string) (c *api.Client, log func() string) {
	t.Helper()
	init := append([]string{"init", "--genesis", filepath.Join(n.Peers[0].Home, config.FileGenesis), "--solana-rpc", n.RPC, "--bootstrap", boot}, args...)
	if code, _, errs := o.cli(t, init...); code != 0 {
		t.Fatalf("init ends with %d: %s", code, errs)
	}
	settings := filepath.Join(o.home, config.FileConfig)
	text, err := os.ReadFile(settings)
	if err != nil {
		t.Fatal(err)
	}
	here := strings.Replace(string(text), "listen: []", "listen: [/ip4/127.0.0.1/tcp/0]", 1)
	if err := os.WriteFile(settings, []byte(here), 0o600); err != nil || here == string(text) {
		t.Fatalf("%v; the configuration is\n%s", err, text)
	}
	path := filepath.Join(o.home, "up.log")
	file, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	cmd := exec.Command(starling(t), "up", "--home", o.home)
	cmd.Env, cmd.Stdout, cmd.Stderr = o.env, file, file
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	log = func() string {
		b, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		return string(b)
	}
	t.Cleanup(func() {
		if err := errors.Join(cmd.Process.Signal(syscall.SIGTERM), cmd.Wait()); err != nil {
			t.Errorf("the peer ended with: %v\n%s", err, log())
		}
	})
	until(t, "the peer answers", log, func() bool {
		if c, err = api.Dial(o.home, config.FileAPI); err == nil {
			_, err = api.GetNode.Call(t.Context(), c, api.None{})
		}
		return err == nil
	})
	return c, log
}

// until waits for something, or fails with what was seen.
func until(t *testing.T, what string, saw func() string, is func() bool) {
	t.Helper()
	for end := time.Now().Add(2 * time.Minute); !is(); time.Sleep(50 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("waited in vain until %s; last:\n%s", what, saw())
		}
	}
}

// A whole job on a network of peers that hold a key: ordered, leased, run, and paid on the chain. Who has the key joins as a
// peer or buys as a light client; who has none, or another one, gets no connection and is told why.
func TestPrivateNetwork(t *testing.T) {
	t.Parallel()
	needChain(t)
	keys := t.TempDir()
	right, wrong := filepath.Join(keys, "right.key"), filepath.Join(keys, "wrong.key")
	for _, path := range []string{right, wrong} {
		if _, err := p2p.CreatePSK(path); err != nil {
			t.Fatal(err)
		}
	}
	n := start(t, testnet.Options{Providers: 2, Buyers: 2, PSK: right})
	c, err := n.Buyers()[0].Client()
	if err != nil {
		t.Fatal(err)
	}
	info, err := api.GetNode.Call(t.Context(), c, api.None{})
	if err != nil || !info.Reach.Private {
		t.Fatalf("the network is private: %v, %v", info.Reach.Private, err)
	}
	j := end(t, c, submit(t, c, 2, token).ID)
	if j.State != record.Succeeded || j.Paid+j.Held != j.Owed || j.Owed == 0 || len(j.Transactions) == 0 {
		t.Fatalf("%s: owed %d, paid %d in %v", j.Summary(), j.Owed, j.Paid, j.Transactions)
	}
	for rank := range 2 {
		var out, errs strings.Builder
		if err := c.Log(t.Context(), api.Log{ID: j.ID, Rank: rank}, &out, &errs); err != nil || out.String() != "hello\n" || errs.Len() > 0 {
			t.Errorf("rank %d said %q and %q, %v", rank, out.String(), errs.String(), err)
		}
	}
	for _, a := range info.Addrs {
		if strings.Contains(a, "/udp/") {
			t.Errorf("the peer is at %s, where no pre-shared key is asked for", a)
		}
	}
	at := info.Addrs[0]
	t.Run("peers", func(t *testing.T) {
		t.Parallel()
		for _, p := range []struct {
			name string
			args []string
			why  string // "": it joins
		}{
			{"right", []string{"--psk", right}, ""},
			{"wrong", []string{"--psk", wrong}, "is on another private network, or has no pre-shared key or another one"},
			{"none", nil, "is on a private network with a pre-shared key that this peer does not have"},
		} {
			t.Run(p.name, func(t *testing.T) {
				t.Parallel()
				c, log := newOutsider(t).up(t, n, at, p.args...)
				if p.why == "" {
					until(t, "the peer has joined", log, func() bool {
						info, err := api.GetNode.Call(t.Context(), c, api.None{})
						return err == nil && info.Peers > 0
					})
					return
				}
				until(t, "the peer says why it does not join", log, func() bool {
					return strings.Contains(log(), "cannot join by a peer") && strings.Contains(log(), p.why) && strings.Contains(log(), "swarm.key")
				})
				r, err := api.PingPeer.Call(t.Context(), c, api.PingRequest{Peer: at, Count: 1})
				if err != nil || r.Problem == nil || r.Problem.Reason != string(p2p.ReasonOtherKey) || !strings.Contains(r.Problem.Text, p.why) {
					t.Errorf("ping: %+v, %v", r.Problem, err)
				}
				if info, err := api.GetNode.Call(t.Context(), c, api.None{}); err != nil || info.Peers != 0 {
					t.Errorf("connected to %d peers, %v", info.Peers, err)
				}
			})
		}
	})
	t.Run("client", func(t *testing.T) {
		t.Parallel()
		o := newOutsider(t)
		program := filepath.Join(t.TempDir(), "hello.wasm")
		if err := os.WriteFile(program, hello, 0o600); err != nil {
			t.Fatal(err)
		}
		for _, p := range []struct {
			args []string
			code int
			why  string
		}{
			{nil, 5, "is on a private network with a pre-shared key that this peer does not have"},
			{[]string{"--psk", wrong}, 5, "is on another private network, or has no pre-shared key or another one"},
			{[]string{"--psk", program}, 2, "not a file with a pre-shared key"},
		} {
			code, out, errs := o.cli(t, append([]string{"--peer", at, "ps"}, p.args...)...)
			if code != p.code || !strings.Contains(errs, p.why) || code == 5 && !strings.Contains(errs, "hint: get the private network's swarm.key file and name it with --psk") {
				t.Errorf("%v: exit code %d, %q, %q", p.args, code, out, errs)
			}
		}
		if code, _, errs := o.cli(t, "--peer", at, "--psk", right, "ps"); code != 0 {
			t.Fatalf("with the key: exit code %d, %s", code, errs)
		}
		t.Cleanup(func() {
			cmd := exec.Command(starling(t), "--home", o.home, "--peer", at, "client", "stop")
			if out, err := cmd.CombinedOutput(); err != nil {
				t.Errorf("stopping the client: %v: %s", err, out)
			}
		})
		key, _, err := config.LoadKeys(o.home, config.Default())
		if err != nil {
			t.Fatal(err)
		}
		if err := n.Chain().FundKey(t.Context(), key.Key(), 10_000_000, 1_000_000_000); err != nil {
			t.Fatal(err)
		}
		code, out, errs := o.cli(t, "--peer", at, "run", "--max-price", "1", "--budget", "1", program) // it has kept the key
		if code != 0 || !strings.Contains(out, "hello") {
			t.Errorf("run: exit code %d, %q, %q", code, out, errs)
		}
	})
}
