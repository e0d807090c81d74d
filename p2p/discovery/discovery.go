// Package discovery finds peers by topic. A peer publishes one signed record about itself. The Kademlia DHT stores it
// under the peer's ID, and stores the peer's ID under the keys of the record's topics:
//
//	/starling-record/<peer ID>                                   → signed envelope, highest sequence wins
//	sha256(starling/topic/2, network, class, region, shard, epoch) → provider records: members of that shard
//
// A topic has several shards, so that a popular topic has no hot key. A publisher is in one shard; a finder reads all.
// The keys change every hour, so that IDs generated to be nearest to a key soon lose their use. Near the change,
// publishers are found under the keys of both hours. Provider records are unsigned and only hints. The finder requests
// the record from each peer itself, which also shows that the peer is alive, and falls back to the copy in the DHT.
// Size, signature, time and sequence are checked on every read. The DHT may hold values of other kinds beside records:
// see Values.
//
// Keys are free, networks are not: one network has a few places among the peers that hold a topic (walkTo), in the
// routing table (sites.BucketFilter) and among the results of Find. Half of the results are reserved for peers that
// Config.Registered names.
package discovery

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	dht "github.com/libp2p/go-libp2p-kad-dht"
	dhtpb "github.com/libp2p/go-libp2p-kad-dht/pb"
	libp2precord "github.com/libp2p/go-libp2p-record"
	"github.com/libp2p/go-libp2p/core/host"
	"github.com/libp2p/go-libp2p/core/peer"
	"github.com/libp2p/go-libp2p/core/peerstore"
	"github.com/libp2p/go-libp2p/core/protocol"

	"github.com/starling-network/starling/p2p/admit"
	"github.com/starling-network/starling/p2p/discovery/discoverypb"
	"github.com/starling-network/starling/p2p/discovery/providers"
	"github.com/starling-network/starling/p2p/discovery/sites"
	"github.com/starling-network/starling/p2p/stream"
)

// Rhythm and bounds.
const (
	// DefaultShards is the number of keys of a topic. With the DHT's replication of 20, about 80 peers share the load
	// of the most popular topic. All peers of a network must agree on it.
	DefaultShards = 4
	// DefaultValidity is how long a renewed record is believed: a peer that vanished is forgotten after it.
	DefaultValidity = 10 * time.Minute
	// fetchTimeout bounds one such question, dial included.
	fetchTimeout = 4 * time.Second
	// quorum is how many copies of a record are read from the DHT when its peer does not answer.
	quorum = 3
)

// ask requests a peer's own record.
var ask = stream.Protocol[*discoverypb.RecordRequest, *discoverypb.RecordAnswer]{
	Name: "record", Version: 1, MaxRequest: 64, MaxResponse: MaxRecord + 64, Deadline: fetchTimeout,
}

// Config is the configuration of a Discovery. Only Network is required.
type Config struct {
	Network  string        // part of every protocol ID and key
	Shards   int           // zero means DefaultShards
	Validity time.Duration // of renewed records, at most MaxValidity; zero means DefaultValidity
	Values   []Values      // kinds of values in the DHT beside records
	// Registered names peers with more than a key, a stake on a chain for example, as a second source beside the DHT.
	// It is optional; if nil, there are none. It may block until its context ends. Its result is not modified.
	Registered func(context.Context) ([]peer.ID, error)
	Logger     *slog.Logger // nil means slog.Default()
}

// Found is one peer and its record.
type Found struct {
	Peer   peer.AddrInfo
	Record Record
	// Live: the peer answered for itself just now. Otherwise the record is the DHT's copy.
	Live bool
}

// Discovery takes part in the DHT until it is closed.
type Discovery struct {
	h   host.Host
	cfg Config
	log *slog.Logger
	dht *dht.IpfsDHT
	// messages sends requests to the DHT's peers.
	messages *dhtpb.ProtocolMessenger
	// providers holds the DHT's provider records.
	providers *providers.Store
	requests  *admit.Rates
	server    *stream.Server
	known     *signed
	own       *announcement
	pusher    *pusher
	seen      sequences
}

// New joins the DHT as a server. Register handlers, this one included, before connecting. Run publishes;
// Close leaves.
func New(h host.Host, cfg Config) (*Discovery, error) {
	if cfg.Shards == 0 {
		cfg.Shards = DefaultShards
	}
	if cfg.Validity == 0 {
		cfg.Validity = DefaultValidity
	}
	if cfg.Shards < 1 || cfg.Shards > 256 || cfg.Validity < 0 || cfg.Validity > MaxValidity || cfg.Network == "" {
		return nil, fmt.Errorf("bad discovery configuration: %d shards, validity %v, network %q",
			cfg.Shards, cfg.Validity, cfg.Network)
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.Default()
	}
	key := h.Peerstore().PrivKey(h.ID())
	if key == nil {
		return nil, errors.New("bad discovery configuration: host without its private key")
	}
	d := &Discovery{h: h, cfg: cfg, log: cfg.Logger, known: &signed{}}
	d.own = &announcement{
		network: cfg.Network, id: h.ID(), key: key, validity: cfg.Validity, known: d.known, log: d.log,
	}
	d.pusher = newPusher(d)
	kinds, most := libp2precord.NamespacedValidator{namespace: validator{cfg.Network, d.known}},
		map[string]int64{namespace: maxRecords}
	for _, v := range cfg.Values {
		if err := v.check(); err != nil {
			return nil, err
		}
		kinds[v.Name], most[v.Name] = v, v.MaxStored
	}
	d.requests, d.providers = newRequests(), providers.New(h.ID(), cfg.Validity, providers.DefaultBounds)
	var err error
	d.dht, err = dht.New(h,
		dht.ProtocolPrefix(protocol.ID("/starling/"+cfg.Network)),
		dht.Mode(dht.ModeServer), // auto never becomes a server on loopback
		dht.Validator(kinds),
		dht.ValueDatastore(newHeld(h.ID(), most)),
		dht.MaxRecordAge(MaxValidity),
		dht.ProviderDatastore(d.providers),
		dht.ProviderManagerOpts(d.providers.Options()...),
		dht.OnRequestHook(d.limitRequest),
		dht.RoutingTablePeerDiversityFilter(sites.NewBucketFilter(h)),
	)
	if err == nil {
		d.messages, err = dhtpb.NewProtocolMessenger(d.dht.MessageSender())
	}
	if err != nil {
		return nil, fmt.Errorf("joining DHT: %w", err)
	}
	d.server = ask.Handle(h, cfg.Network, d.answer, stream.Limits{Logger: d.log})
	return d, nil
}

// Close leaves the DHT. Run must have returned.
func (d *Discovery) Close() error {
	d.server.Close()
	return d.dht.Close()
}

// Publish makes r this peer's record. It is available from this peer immediately. It is pushed into the DHT now, or
// later by Run if a record with the same topics was pushed recently: the DHT's copy is only a fallback for a peer that
// does not answer. The record is kept despite an error: Run pushes it again until it expires. An error of the record
// itself (ErrMalformed, ErrBadTime, ErrExpired, ErrReplayed) keeps the old one.
func (d *Discovery) Publish(ctx context.Context, r Record) error {
	err := d.own.set(r)
	if err == nil {
		err = d.pusher.publish(ctx, r)
	}
	if err != nil {
		return fmt.Errorf("publishing record: %w", err)
	}
	return nil
}

// Withdraw replaces the record by one without topics. Reachable copies in the DHT are replaced. Peers that have seen
// the replacement reject other copies.
func (d *Discovery) Withdraw(ctx context.Context) error {
	now := time.Now()
	err := d.own.set(Record{Expires: now.Add(d.cfg.Validity).Truncate(time.Millisecond)})
	if err == nil {
		err = d.pusher.push(ctx, false)
	}
	if err != nil && !errors.Is(err, ErrNoPeers) {
		return fmt.Errorf("withdrawing record: %w", err)
	}
	return nil
}

// Run keeps the record in the DHT until ctx ends, then returns nil.
func (d *Discovery) Run(ctx context.Context) error {
	d.pusher.run(ctx)
	return nil
}

// Size is the estimated number of peers in the network, from the distances between those near some keys. It is 0 while
// too few were looked up, and in a network of a few peers.
func (d *Discovery) Size() int {
	n, err := d.dht.NetworkSize()
	if err != nil {
		return 0
	}
	return max(int(n), 0)
}

// answer gives a stranger our record.
func (d *Discovery) answer(context.Context, peer.ID, *discoverypb.RecordRequest) (*discoverypb.RecordAnswer, error) {
	_, data := d.own.renewed(d.cfg.Validity / 4)
	return &discoverypb.RecordAnswer{Envelope: data}, nil
}

// Where looks up the addresses of a peer that may have published nothing.
func (d *Discovery) Where(ctx context.Context, p peer.ID) (peer.AddrInfo, error) {
	info, err := d.dht.FindPeer(ctx, p)
	if err != nil {
		return peer.AddrInfo{}, fmt.Errorf("looking up %s: %w: %w", p, ErrNotFound, err)
	}
	return info, nil
}

// Lookup returns the record of one peer: its own answer, or the DHT's copy.
func (d *Discovery) Lookup(ctx context.Context, p peer.ID) (Found, error) {
	f, err := d.fetch(ctx, d.h.Peerstore().PeerInfo(p))
	if err != nil {
		return Found{}, fmt.Errorf("looking up %s: %w", p, err)
	}
	return f, nil
}

// fetch requests p's record from p, then from the DHT.
func (d *Discovery) fetch(ctx context.Context, p peer.AddrInfo) (Found, error) {
	d.h.Peerstore().AddAddrs(p.ID, p.Addrs, peerstore.TempAddrTTL)
	resp, err := ask.Call(ctx, d.h, d.cfg.Network, p.ID, &discoverypb.RecordRequest{})
	live := err == nil
	data := resp.GetEnvelope()
	if !live {
		if ctx.Err() != nil {
			return Found{}, ctx.Err()
		}
		data, err = d.dht.GetValue(ctx, key(p.ID), dht.Quorum(quorum))
		if err != nil {
			return Found{}, fmt.Errorf("%w: %w", ErrNotFound, err)
		}
	}
	if len(data) == 0 {
		return Found{}, ErrNotFound
	}
	r, err := d.believe(p.ID, data)
	if err != nil {
		return Found{}, err
	}
	return Found{Peer: d.h.Peerstore().PeerInfo(p.ID), Record: r, Live: live}, nil
}

// believe decodes a record and rejects it if a newer one is known.
func (d *Discovery) believe(p peer.ID, data []byte) (Record, error) {
	now := time.Now()
	r, err := decode(d.cfg.Network, p, data, now, d.known)
	if err == nil {
		err = d.seen.pass(p, r.Seq, now)
	}
	if err != nil {
		return Record{}, err
	}
	return r, nil
}
