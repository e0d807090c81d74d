// Package client is a light client: it buys on a network without being a member, from a laptop or inside another
// program, with its own key.
//
// It runs the same buying engine as a full peer (node/buyer), with its own journal: it signs its orders, leases,
// receipts and vouchers itself and supervises its jobs. Everything else comes from two entry peers, over one libp2p
// connection each:
//
//	          ┌ buying engine, key, journal ┐
//	          │                             │     offers, orders, slot, calls to the chain
//	client ───┤                             ├──── entry ──────────────────────── network
//	          │   circuits to providers ════╪════ entry ════════════════════════ providers
//	          └─────────────────────────────┘     standby
//
// Providers are reached, and reach the client, through circuits at the entries, encrypted end to end. The client does
// not listen, and dials only its entries. It trusts no single entry: offers are checked and merged, the genesis is
// pinned, slots are compared, and payments are final when both report it (node/entry/PROTOCOL.md).
//
// Package entries keeps those connections and compares the answers. Package home is the directory of a client.
//
// When an entry dies, the client continues through the other within two seconds, reconnects to its providers, and
// selects a new standby among the known entries. When the client itself dies, the next one on its home directory
// resumes its jobs from the journal. Meanwhile programs run until the prepayment is used up.
package client

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"slices"
	"time"

	"github.com/libp2p/go-libp2p/core/peer"

	"github.com/starling-network/starling/chain/solana"
	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/node"
	"github.com/starling-network/starling/node/buyer"
	"github.com/starling-network/starling/node/client/entries"
	"github.com/starling-network/starling/node/client/home"
	"github.com/starling-network/starling/node/config"
	"github.com/starling-network/starling/node/onchain"
	"github.com/starling-network/starling/node/runtimes"
	"github.com/starling-network/starling/node/store"
	"github.com/starling-network/starling/p2p"
	"github.com/starling-network/starling/p2p/blob"
)

// Config is the client's configuration. Only Home and, at the first use, Peers are required.
type Config struct {
	// Home is the client's directory: its key, journal, files and the entries that it remembers.
	Home string
	// Peers are full multiaddrs (…/p2p/<peer id>) of entry peers. One is enough to start, and it names others. These
	// are no independent witnesses, so name two of different operators.
	Peers []string
	// Genesis pins the network: the hash of its genesis in hexadecimal, or the path of its genesis file. Without it the
	// first entry is trusted once, and its genesis is pinned in Home.
	Genesis string
	// PSK is the file with the pre-shared key of a private network, its swarm.key. It is stored in Home after the first
	// successful connection.
	PSK string
	// Cache is the directory of compiled programs; empty means Home.
	Cache string
	// Direct makes the client dial providers by their own addresses too, which is faster for large files.
	Direct bool
	// API serves the local HTTP API of a full peer on a unix socket in Home, for the command line.
	API bool
	// Version is the announced version.
	Version string
	// Log is the client's log; nil means slog.Default().
	Log *slog.Logger
}

const (
	// slotEvery is the interval of requests for the slot to the entries.
	slotEvery = 5 * time.Second
	// maxBlobs bounds the client's content-addressed files, bytes.
	maxBlobs = 256 << 30
	// maxAsked is the number of known providers that receive an order directly. Each costs a circuit at the entry; the
	// others receive the order over gossip.
	maxAsked = 12
	// connectWait is how long Open waits for an entry and the slot when the network is known already.
	connectWait = 5 * time.Second
)

// Parts are the parts of a client. Their maker closes them.
type Parts struct {
	Config  config.Config
	Home    string
	Genesis market.Genesis
	Key     sign.Private
	Owner   sign.Key

	Host     *p2p.Light
	Entries  []peer.AddrInfo // the initial entries
	Store    store.Store
	Blobs    *blob.Store
	Runtimes runtimes.Set
	// Access is the chain; without a Ledger it is Solana, through the entries. Its slot is not asked, the entries are,
	// and its intervals are those of the network.
	Access    onchain.Access
	SlotEvery time.Duration
	NoAPI     bool
	Version   string
	Log       *slog.Logger
}

// Client is one light client. Safe for concurrent use.
type Client struct {
	node    *node.Node
	keeper  *entries.Keeper
	blobs   *blob.Store
	genesis market.Genesis
	owner   sign.Key
	created bool // Open made the key

	cancel context.CancelFunc // of Open's goroutines
	done   chan struct{}      // closed when that ended
	err    error              // why
	close  func() error
}

// New composes a client from its parts and starts nothing; Serve does. Most callers use Open.
func New(ctx context.Context, p Parts) (*Client, error) {
	k := entries.New(p.Host, p.Genesis, p.Home, p.Entries, p.Log)
	access := p.Access
	access.Escrow = onchain.Params(p.Genesis)
	if access.Ledger == nil {
		sc := solana.ConfigOf(entries.Endpoints, p.Genesis, p.Key)
		sc.Owner, sc.Transport = p.Owner, k.Transport()
		var err error
		if access, err = onchain.Open(sc, p.Genesis); err != nil {
			return nil, err
		}
	}
	access.Escrow.PollEvery = max(access.Escrow.PollEvery, pollEvery)
	access = k.Believe(access, p.Genesis)
	n, err := node.New(ctx, node.Parts{
		Config: p.Config, Home: p.Home, Genesis: p.Genesis, Key: p.Key, Owner: p.Owner, Host: p.Host.Host,
		Store: p.Store, Blobs: p.Blobs, Access: access, Runtimes: p.Runtimes, SlotEvery: p.SlotEvery,
		Light: k, MaxAsked: maxAsked, NoAPI: p.NoAPI, Version: p.Version, Log: p.Log,
	})
	if err != nil {
		return nil, err
	}
	k.Moved = func(ctx context.Context) {
		ctx, cancel := context.WithTimeout(ctx, slotEvery)
		defer cancel()
		n.Sync(ctx)
		n.Buyer().Reconnect(ctx)
	}
	return &Client{node: n, keeper: k, blobs: p.Blobs, genesis: p.Genesis, owner: p.Owner}, nil
}

// pollEvery is the least interval of a client's polls of the chain, also on a network with short slots: entry peers
// answer ten calls a second, and a poll takes several.
const pollEvery = time.Second

// Serve runs the client until ctx ends: it keeps connected and supervises its jobs.
func (c *Client) Serve(ctx context.Context) error { return c.node.Run(ctx) }

// Open opens the client with home cfg.Home, makes its key at the first use, connects it and resumes its jobs. It
// returns once an entry peer is connected. If none answers and the network is pinned already, it returns and retries in
// the background, so that jobs can be read. It returns ErrConfig, ErrInUse, ErrNoEntry or ErrOtherNetwork.
func Open(ctx context.Context, cfg Config) (c *Client, err error) {
	if cfg.Log == nil {
		cfg.Log = slog.Default()
	}
	given, err := config.ParsePeers(cfg.Peers)
	if err != nil {
		return nil, err
	}
	created, err := home.Make(cfg.Home)
	if err != nil {
		return nil, err
	}
	o := &opened{cfg: cfg}
	defer func() {
		if err != nil {
			err = errors.Join(err, o.close())
			c = nil
		}
	}()
	if err := o.open(ctx, given); err != nil {
		return nil, err
	}
	if c, err = New(ctx, o.parts); err != nil {
		return nil, err
	}
	c.created, c.close = created, o.close
	c.start()
	c.Ready(ctx, connectWait)
	return c, nil
}

// opened are the parts that Open made, and how to close them.
type opened struct {
	cfg   Config
	parts Parts
	undo  []func() error
}

// close closes them, the last one first.
func (o *opened) close() error {
	var errs []error
	for _, undo := range slices.Backward(o.undo) {
		errs = append(errs, undo())
	}
	o.undo = nil
	return errors.Join(errs...)
}

func (o *opened) open(ctx context.Context, given []peer.AddrInfo) error {
	cfg := o.cfg
	lock, err := home.Lock(ctx, cfg.Home)
	if err != nil {
		return err
	}
	o.undo = append(o.undo, lock.Close)
	p := Parts{
		Config: config.Default(), Home: cfg.Home, Entries: given, SlotEvery: slotEvery,
		NoAPI: !cfg.API, Version: cfg.Version, Log: cfg.Log,
	}
	if p.Key, p.Owner, err = config.LoadKeys(cfg.Home, p.Config); err != nil {
		return err
	}
	psk, err := home.ReadPSK(cfg.Home, cfg.PSK)
	if err != nil {
		return err
	}
	host := hostConfig(cfg, p.Key, psk)
	if p.Genesis, err = network(ctx, cfg, host, given); err != nil {
		return err
	}
	if err := home.KeepPSK(cfg.Home, psk); err != nil {
		return err
	}
	if p.Store, err = store.OpenSQLite(filepath.Join(cfg.Home, config.FileJournal)); err != nil {
		return fmt.Errorf("opening the journal: %w", err)
	}
	o.undo = append(o.undo, p.Store.Close)
	if p.Blobs, err = blob.OpenStore(filepath.Join(cfg.Home, "blobs"), maxBlobs); err != nil {
		return fmt.Errorf("opening the file store: %w", err)
	}
	cache := cfg.Cache
	if cache == "" {
		cache = cfg.Home
	}
	engine := config.Docker{Enabled: config.DockerOff}
	if p.Runtimes, err = runtimes.Open(ctx, engine, cfg.Home, cache, p.Key.Key(), cfg.Log); err != nil {
		return err
	}
	o.undo = append(o.undo, p.Runtimes.Close)
	host.Network = p.Genesis.Tag()
	if p.Host, err = p2p.NewLight(host, cfg.Direct); err != nil {
		return err
	}
	o.undo = append(o.undo, p.Host.Close)
	o.parts = p
	return nil
}

// hostConfig returns the configuration of a host without a known network.
func hostConfig(cfg Config, key sign.Private, psk *[32]byte) p2p.Config {
	return p2p.Config{Key: p2p.PrivKey(key.Seed()), Network: p2p.AnyNetwork, PSK: psk, Agent: "starling-client/" +
		cfg.Version, Logger: cfg.Log}
}

// network is the genesis that is pinned, or that the first entry shows.
func network(ctx context.Context, cfg Config, host p2p.Config, given []peer.AddrInfo) (market.Genesis, error) {
	p, err := home.ReadPin(cfg.Home, cfg.Genesis)
	if err != nil {
		return market.Genesis{}, err
	}
	if p.Genesis == nil {
		if len(given) == 0 {
			return market.Genesis{}, fmt.Errorf("%w: no entry peer is known; name one with Peers (--peer)", ErrConfig)
		}
		g, err := entries.Introduce(ctx, host, p, given)
		if err != nil {
			return market.Genesis{}, err
		}
		cfg.Log.Info("network pinned", "network", g.Tag(), "genesis", g.Hash())
		p.Genesis = &g
	}
	return *p.Genesis, home.KeepGenesis(cfg.Home, *p.Genesis)
}

// start serves in the background until Close.
func (c *Client) start() {
	var ctx context.Context
	ctx, c.cancel = context.WithCancel(context.Background())
	c.done = make(chan struct{})
	go func() {
		defer close(c.done)
		c.err = c.Serve(ctx)
	}()
}

// Done is closed when the client ended, by Close or because its journal or disk failed.
func (c *Client) Done() <-chan struct{} { return c.done }

// Close ends a client that Open opened. Jobs go on when it is opened again; programs run on at their providers until
// the prepayment is used up.
func (c *Client) Close() error {
	c.cancel()
	<-c.done
	return errors.Join(c.err, c.close())
}

// Ready waits until an entry is connected and the slot is known, so that jobs can be submitted. It reports whether that
// is so; after most it waits no longer.
func (c *Client) Ready(ctx context.Context, most time.Duration) bool {
	ctx, cancel := context.WithTimeout(ctx, most)
	defer cancel()
	for {
		if len(c.keeper.Entries()) > 0 && c.node.Slot() > 0 {
			return true
		}
		select {
		case <-ctx.Done():
			return false
		case <-time.After(readyEvery):
		}
	}
}

const readyEvery = 20 * time.Millisecond

// Node is the light peer itself, as the local API has it.
func (c *Client) Node() *node.Node { return c.node }

// Buyer is the buying engine, for all that this package has no method for.
func (c *Client) Buyer() *buyer.Buyer { return c.node.Buyer() }

// Genesis are the facts of the client's network.
func (c *Client) Genesis() market.Genesis { return c.genesis }

// Wallet is the owner of the tokens that pay for jobs. Fund it before the first job; fees are paid in SOL by the
// client's key, which is the same address unless the home has a separate wallet.
func (c *Client) Wallet() sign.Key { return c.owner }

// Created reports whether Open made the client's key, so that its wallet is empty.
func (c *Client) Created() bool { return c.created }

// Entries returns the connected entry peers, the one in use first.
func (c *Client) Entries() []peer.ID { return c.keeper.Entries() }
