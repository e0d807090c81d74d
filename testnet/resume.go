package testnet

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/starling-network/starling/chain/solana"
	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/node/config"
)

// ErrLost is returned for a stopped network that cannot be resumed.
var ErrLost = errors.New("the stopped network cannot be resumed")

// Stopped returns the stopped network whose homes are in dir, or nil if dir has none. It returns ErrLost if the network
// cannot be resumed: its local Solana was in memory, or a home is incomplete. ctx bounds the request to the chain.
func Stopped(ctx context.Context, dir string) (*Network, error) {
	names, err := homes(dir)
	if err != nil || len(names) == 0 {
		return nil, err
	}
	n := &Network{Dir: dir}
	for i, name := range names {
		g, err := n.readHome(name)
		if err == nil && i > 0 && g != n.Genesis {
			err = fmt.Errorf("genesis: network %s, want %s", g.Tag(), n.Genesis.Tag())
		}
		if err != nil {
			return nil, fmt.Errorf("%w: %s: %w", ErrLost, filepath.Join(dir, name), err)
		}
		n.Genesis = g
	}
	if n.Genesis.Free {
		return n, nil
	}
	chain, err := solana.Genesis(ctx, n.RPC)
	switch {
	case err != nil:
		return nil, fmt.Errorf("%w: the chain at %s is gone with its accounts and balances: %w", ErrLost, n.RPC, err)
	case chain != n.Genesis.Chain:
		return nil, fmt.Errorf("%w: the chain at %s is another: genesis %s, want %s", ErrLost, n.RPC, chain,
			n.Genesis.Chain)
	}
	return n, nil
}

// homes returns the names of the peers' homes in dir: providers, then buyers, by number.
func homes(dir string) ([]string, error) {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var names []string
	for _, e := range entries {
		if e.IsDir() && homeName.MatchString(e.Name()) {
			names = append(names, e.Name())
		}
	}
	number := func(name string) int {
		_, digits, _ := strings.Cut(name, "-")
		i, _ := strconv.Atoi(digits)
		return i
	}
	slices.SortFunc(names, func(a, b string) int {
		return cmp.Or(-strings.Compare(a[:1], b[:1]), number(a)-number(b))
	})
	return names, nil
}

// readHome adds the peer of a home, and returns the genesis of its network.
func (n *Network) readHome(name string) (market.Genesis, error) {
	p := &Peer{Name: name, Home: filepath.Join(n.Dir, name)}
	path := filepath.Join(p.Home, config.FileConfig)
	if _, err := os.Stat(path); err != nil { // a peer without one takes the defaults
		return market.Genesis{}, err
	}
	cfg, err := config.Load(path)
	if err != nil {
		return market.Genesis{}, err
	}
	g, err := config.LoadGenesis(p.Home)
	if err != nil {
		return g, err
	}
	key, owner, err := config.LoadKeys(p.Home, cfg)
	if err != nil {
		return g, err
	}
	if len(cfg.Solana.RPC) > 0 {
		n.RPC = cfg.Solana.RPC[0]
	}
	p.Key, p.Owner = key.Key(), owner
	n.Peers = append(n.Peers, p)
	return g, nil
}

// Sellers is the number of peers that sell.
func (n *Network) Sellers() int {
	sells := func(p *Peer) bool { return strings.HasPrefix(p.Name, "peer-") }
	return len(slices.DeleteFunc(slices.Clone(n.Peers), func(p *Peer) bool { return !sells(p) }))
}

// Resume starts the peers of the stopped network in o.Dir on their homes, with their configurations, and returns when
// they see the chain and have found others. Of the other options it uses Binary, Env, Connected and Say.
func Resume(ctx context.Context, o Options) (n *Network, err error) {
	if o, err = o.withDefaults(); err != nil {
		return nil, err
	}
	if err := unused(o.Dir); err != nil {
		return nil, err
	}
	began := time.Now()
	n, err = Stopped(ctx, o.Dir)
	if err != nil {
		return nil, err
	}
	if n == nil {
		return nil, fmt.Errorf("resuming the network in %s: no homes of peers are there", o.Dir)
	}
	o.Providers = n.Sellers()
	o.Buyers = len(n.Peers) - o.Providers
	n.PID, n.Started, n.opts = os.Getpid(), startTime(os.Getpid()), o
	for _, p := range n.Peers[:o.Providers] {
		p.yields = len(n.Peers) > many
	}
	for _, p := range n.Peers {
		p.binary, p.env = o.Binary, o.Env
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, n.Stop())
			n = nil
		}
	}()
	o.Say("resuming the network %s of %d peers", n.Genesis.Tag(), len(n.Peers))
	if err := n.launch(ctx); err != nil {
		return n, err
	}
	return n, n.ready(began)
}
