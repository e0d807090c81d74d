package docker

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"os/exec"
	goruntime "runtime"
	"strings"
	"sync"

	"github.com/docker/docker/api/types/container"
	dockernet "github.com/docker/docker/api/types/network"
	"golang.org/x/sys/unix"

	"github.com/starling-network/starling/p2p/closed"
)

// network is the bridge of containers with NetworkInternet and the rules that hold them to it.
type network struct {
	name, bridge, chain string
	netns               string
	dns                 []string
	peer                string
	mu                  sync.Mutex
}

func newNetwork(cfg Config) network {
	sum := sha256.Sum256([]byte(cfg.Peer))
	id := hex.EncodeToString(sum[:5])
	return network{name: "starling-" + id, bridge: "strl-" + id, chain: "STARLING-" + id, netns: cfg.NetNS, dns: cfg.DNS, peer: cfg.Peer}
}

// errUnfiltered begins the refusal of a network without rules.
var errUnfiltered = errors.New("no network for this container: it could not be kept from this machine and its local network")

// join makes the network and its rules unless they are there, and puts the container on it.
func (n *network) join(ctx context.Context, e *engine, h *container.HostConfig) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if err := n.makeNetwork(ctx, e); err != nil {
		return fmt.Errorf("making network: %w", err)
	}
	if err := n.makeRules(ctx); err != nil {
		return fmt.Errorf("%w: %w", errUnfiltered, err)
	}
	h.NetworkMode = container.NetworkMode(n.name)
	h.DNS = n.dns
	h.Sysctls = map[string]string{"net.ipv6.conf.all.disable_ipv6": "1", "net.ipv6.conf.default.disable_ipv6": "1"}
	return nil
}

func (n *network) options() map[string]string {
	return map[string]string{"com.docker.network.bridge.name": n.bridge, "com.docker.network.bridge.enable_icc": "false",
		"com.docker.network.bridge.enable_ip_masquerade": "true"}
}

func (n *network) makeNetwork(ctx context.Context, e *engine) error {
	found, err := e.NetworkInspect(ctx, n.name, dockernet.InspectOptions{})
	if absent(err) {
		no := false
		_, err = e.NetworkCreate(ctx, n.name, dockernet.CreateOptions{Driver: "bridge", EnableIPv6: &no, Options: n.options(),
			Labels: map[string]string{labelPeer: n.peer}})
		return e.explain(err)
	}
	if err != nil {
		return e.explain(err)
	}
	for k, v := range n.options() {
		if found.Driver != "bridge" || found.EnableIPv6 || found.Options[k] != v {
			return fmt.Errorf("the engine has a network %s that is not this runtime's: remove it (docker network rm %s)", n.name, n.name)
		}
	}
	return nil
}

// makeRules holds iptables to what the network needs. Containers reach this machine itself through INPUT and all else
// through DOCKER-USER, which engines leave to their owner and look at first.
func (n *network) makeRules(ctx context.Context) error {
	have, err := n.iptables(ctx, "-S")
	if err != nil {
		return err
	}
	if !strings.Contains(have, "-N DOCKER-USER\n") {
		return errors.New("the engine keeps no chain DOCKER-USER: it must run with iptables")
	}
	toChain, toHost := []string{"DOCKER-USER", "-i", n.bridge, "-j", n.chain}, []string{"INPUT", "-i", n.bridge, "-j", "DROP"}
	inward := []string{"DOCKER-USER", "-o", n.bridge, "-m", "conntrack", "--ctstate", "NEW", "-j", "DROP"}
	var chain []string
	for _, r := range closed.V4() { // this machine's own and its neighbours' addresses, and what is no single host
		chain = append(chain, "-A "+n.chain+" -d "+r.String()+" -j DROP\n")
	}
	if got := linesOf(have, "-A "+n.chain+" "); strings.Join(got, "") != strings.Join(chain, "") {
		if !strings.Contains(have, "-N "+n.chain+"\n") {
			if _, err := n.iptables(ctx, "-N", n.chain); err != nil {
				return err
			}
		}
		for _, args := range append([]string{"-F " + n.chain}, chain...) {
			if _, err := n.iptables(ctx, strings.Fields(args)...); err != nil {
				return err
			}
		}
	}
	for _, rule := range [][]string{inward, toChain, toHost} {
		if err := n.first(ctx, have, rule); err != nil {
			return err
		}
	}
	return nil
}

// first puts a rule at the head of its chain, unless it stands there with only rules of this runtime's before it.
func (n *network) first(ctx context.Context, have string, rule []string) error {
	want := "-A " + strings.Join(rule, " ") + "\n"
	for _, line := range linesOf(have, "-A "+rule[0]+" ") {
		if line == want {
			return nil
		}
		if !strings.Contains(line, "strl-") {
			break
		}
	}
	_, _ = n.iptables(ctx, append([]string{"-D"}, rule...)...) // further down, if at all
	_, err := n.iptables(ctx, append([]string{"-I", rule[0], "1"}, rule[1:]...)...)
	return err
}

func linesOf(text, prefix string) (found []string) {
	for line := range strings.Lines(text) {
		if strings.HasPrefix(line, prefix) {
			found = append(found, line)
		}
	}
	return found
}

// iptables runs it where the engine's network is.
func (n *network) iptables(ctx context.Context, args ...string) (string, error) {
	program, err := exec.LookPath("iptables")
	for _, dir := range []string{"/usr/sbin/", "/sbin/"} { // often not on the PATH of a user
		if err != nil {
			program, err = exec.LookPath(dir + "iptables")
		}
	}
	if err != nil {
		return "", errors.New("iptables is not installed")
	}
	var out []byte
	err = n.inside(func() error {
		cmd := exec.CommandContext(ctx, program, append([]string{"-w", "5"}, args...)...)
		cmd.Env = []string{"LC_ALL=C"}
		var err error
		if out, err = cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("iptables %s: %w: %.300s (rules need root or CAP_NET_ADMIN)", strings.Join(args, " "), err, strings.TrimSpace(string(out)))
		}
		return nil
	})
	return string(out), err
}

// inside runs f on a thread in the engine's network namespace; what f starts is there too.
func (n *network) inside(f func() error) error {
	if n.netns == "" {
		return f()
	}
	failed := make(chan error, 1)
	go func() {
		goruntime.LockOSThread() // never unlocked: the thread ends with this goroutine
		failed <- func() error {
			ns, err := os.Open(n.netns)
			if err != nil {
				return fmt.Errorf("opening the engine's network: %w", err)
			}
			defer ns.Close()
			if err := unix.Setns(int(ns.Fd()), unix.CLONE_NEWNET); err != nil {
				return fmt.Errorf("entering the engine's network: %w", err)
			}
			return f()
		}()
	}()
	return <-failed
}
