// Package discovery finds peers by topic. A peer publishes one signed record about itself; the Kademlia DHT holds it
// under the peer's ID, and holds the peer's ID under the keys of the record's topics:
//
//	/starling-record/<peer ID>                                   → signed envelope, highest sequence wins
//	sha256(starling/topic/2, network, class, region, shard, epoch) → provider records: members of that shard
//
// A topic has several shards, so that a popular one makes no hot key: a publisher is in one of them, a finder reads
// all. Its keys change every hour, so that IDs made to lie nearest to a key soon lose their use; near the change
// publishers are found under the keys of both hours. Provider records are unsigned and only hints. The finder asks each
// peer for its record itself, which also shows that the peer is alive, and falls back to the copy in the DHT. Whatever
// the way, size, signature, time and sequence are checked on every read. The DHT may hold values of other kinds beside
// records: see Values.
//
// Keys are free, networks are not: among the peers that hold a topic (walkTo), in the routing table (bucketFilter) and
// among those that are found (Find), one network has a few places. Half of the results are kept for peers that
// Config.Registered names.
package discovery

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/ipfs/go-cid"
	dht "github.com/libp2p/go-libp2p-kad-dht"
	dhtpb "github.com/libp2p/go-libp2p-kad-dht/pb"
	libp2precord "github.com/libp2p/go-libp2p-record"
	"github.com/libp2p/go-libp2p/core/crypto"
	"github.com/libp2p/go-libp2p/core/host"
	"github.com/libp2p/go-libp2p/core/peer"
	"github.com/libp2p/go-libp2p/core/peerstore"
	"github.com/libp2p/go-libp2p/core/protocol"

	"github.com/starling-network/starling/p2p/admit"
	"github.com/starling-network/starling/p2p/discovery/discoverypb"
	"github.com/starling-network/starling/p2p/stream"
)

// Rhythm and bounds.
const (
	// DefaultShards is over how many keys a topic is spread: with the DHT's replication of 20, the load of
	// the most popular topic falls on about 80 peers. All peers of a network must agree on it.
	DefaultShards = 4
	// DefaultValidity is how long a renewed record is believed: a peer that vanished is forgotten after it.
	DefaultValidity = 10 * time.Minute
	// fetchTimeout bounds one such question, dial included.
	fetchTimeout = 4 * time.Second
	// quorum is how many copies of a record are read from the DHT when its peer does not answer.
	quorum = 3
	// seenMax bounds how many peers' sequences are remembered.
	seenMax = 16384
)

// ask asks a peer for its own record.
var ask = stream.Protocol[*discoverypb.RecordRequest, *discoverypb.RecordAnswer]{
	Name: "record", Version: 1, MaxRequest: 64, MaxResponse: MaxRecord + 64, Deadline: fetchTimeout,
}

// Config says how to take part. Only Network is required.
type Config struct {
	Network  string        // part of every protocol ID and key
	Shards   int           // zero means DefaultShards
	Validity time.Duration // of renewed records, at most MaxValidity; zero means DefaultValidity
	Values   []Values      // kinds of values in the DHT beside records
	// Registered names peers with more than a key, a stake on a chain for example, as a second source beside the DHT.
	// It is optional; if nil, there are none. It may take as long as its context lasts. Its result is not changed.
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
	key crypto.PrivKey
	dht *dht.IpfsDHT
	// messages sends requests to the DHT's peers.
	messages *dhtpb.ProtocolMessenger
	// providers holds the DHT's provider records.
	providers *providerStore
	requests  *admit.Rates
	server    *stream.Server
	wake      chan struct{} // a push is wished for; holds one token

	// pushing holds a token while a push runs, one at a time. A channel and not a mutex: a push waits for the
	// network, and in a synctest bubble time stands still while anybody waits for a mutex.
	pushing chan struct{}
	stored  map[cid.Cid]time.Time // when topics were last stored; guarded by pushing

	known signed

	mu      sync.Mutex
	own     *Record // the argument of Publish; nil before and after Withdraw
	current []byte  // its latest signed form
	seq     uint64  // of current
	seen    map[peer.ID]mark
	wish    time.Time // when Run is to push at the latest; zero: as it would anyway
	last    pushed
}

// mark is the highest sequence seen of a peer, and until when a record with it can be believed.
type mark struct {
	seq     uint64
	expires time.Time
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
	d := &Discovery{h: h, cfg: cfg, log: cfg.Logger, key: h.Peerstore().PrivKey(h.ID()),
		wake: make(chan struct{}, 1), pushing: make(chan struct{}, 1), stored: make(map[cid.Cid]time.Time),
		seen: make(map[peer.ID]mark)}
	if d.log == nil {
		d.log = slog.Default()
	}
	if d.key == nil {
		return nil, errors.New("bad discovery configuration: host without its private key")
	}
	kinds, most := libp2precord.NamespacedValidator{namespace: validator{cfg.Network,
		&d.known}}, map[string]int64{namespace: maxRecords}
	for _, v := range cfg.Values {
		if err := v.check(); err != nil {
			return nil, err
		}
		kinds[v.Name], most[v.Name] = v, v.MaxStored
	}
	d.requests, d.providers = newRequests(), newProviderStore(h.ID(), cfg.Validity, defaultBounds)
	var err error
	d.dht, err = dht.New(h,
		dht.ProtocolPrefix(protocol.ID("/starling/"+cfg.Network)),
		dht.Mode(dht.ModeServer), // auto never becomes a server on loopback
		dht.Validator(kinds),
		dht.ValueDatastore(newHeld(h.ID(), most)),
		dht.MaxRecordAge(MaxValidity),
		dht.ProviderDatastore(d.providers),
		dht.ProviderManagerOpts(d.providers.options()...),
		dht.OnRequestHook(d.limitRequest),
		dht.RoutingTablePeerDiversityFilter(newBucketFilter(h)),
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

// Publish makes r this peer's record. Peers that request it from this one have it at once. It is pushed into the DHT
// now, or soon after by Run if another of the same topics was pushed a moment ago: the DHT's copy only replaces a peer
// that does not answer. The record is kept despite an error: Run pushes it again until it expires. An error of the
// record itself (ErrMalformed, ErrBadTime, ErrExpired, ErrReplayed) keeps the old one.
func (d *Discovery) Publish(ctx context.Context, r Record) error {
	if err := d.set(r); err != nil {
		return fmt.Errorf("publishing record: %w", err)
	}
	if again := d.again(r); time.Until(again) > 0 {
		d.poke(again)
		return nil
	}
	if err := d.push(ctx, false); err != nil {
		d.poke(time.Now().Add(firstRetry))
		return fmt.Errorf("publishing record: %w", err)
	}
	return nil
}

// Withdraw replaces the record by one that is found by nothing. Copies in the DHT are replaced where they
// can be reached, and believed nowhere that has seen the replacement.
func (d *Discovery) Withdraw(ctx context.Context) error {
	now := time.Now()
	if err := d.set(Record{Expires: now.Add(d.cfg.Validity).Truncate(time.Millisecond)}); err != nil {
		return fmt.Errorf("withdrawing record: %w", err)
	}
	if err := d.push(ctx, false); err != nil && !errors.Is(err, ErrNoPeers) {
		return fmt.Errorf("withdrawing record: %w", err)
	}
	return nil
}

// set signs r and makes it current.
func (d *Discovery) set(r Record) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.sign(r)
}

// sign makes r current with a sequence above the last; d.mu is held.
func (d *Discovery) sign(r Record) error {
	now := time.Now()
	given := r
	if r.Seq == 0 {
		r.Seq = max(uint64(now.UnixMilli()), d.seq+1)
	}
	if r.Seq <= d.seq {
		return fmt.Errorf("%w: sequence %d after %d", ErrReplayed, r.Seq, d.seq)
	}
	if r.Expires.IsZero() {
		r.Expires = time.UnixMilli(int64(r.Seq)).Add(d.cfg.Validity)
	}
	data, err := encode(d.cfg.Network, d.key, r, now)
	if err != nil {
		return err
	}
	d.own, d.current, d.seq = &given, data, r.Seq
	return nil
}

// renewed is the current record, signed anew when Publish left that to us and its signature is older than
// age; nil when there is none.
func (d *Discovery) renewed(age time.Duration) (Record, []byte) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.own == nil {
		return Record{}, nil
	}
	now := time.Now()
	if d.own.Seq == 0 && d.own.Expires.IsZero() && now.Sub(time.UnixMilli(int64(d.seq))) >= age {
		if err := d.sign(*d.own); err != nil {
			d.log.Error("record not renewed", "err", err)
		}
	}
	r, err := decode(d.cfg.Network, d.h.ID(), d.current, now, &d.known)
	if err != nil { // expired
		d.own, d.current = nil, nil
		return Record{}, nil
	}
	return r, d.current
}

// answer gives a stranger our record.
func (d *Discovery) answer(context.Context, peer.ID, *discoverypb.RecordRequest) (*discoverypb.RecordAnswer, error) {
	_, data := d.renewed(d.cfg.Validity / 4)
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

// fetch asks p, then the DHT, for p's record.
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

// believe decodes a record and refuses one that is older than the newest known.
func (d *Discovery) believe(p peer.ID, data []byte) (Record, error) {
	now := time.Now()
	r, err := decode(d.cfg.Network, p, data, now, &d.known)
	if err != nil {
		return Record{}, err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if m, ok := d.seen[p]; ok && r.Seq < m.seq {
		return Record{}, fmt.Errorf("%w: sequence %d after %d", ErrReplayed, r.Seq, m.seq)
	}
	if len(d.seen) >= seenMax {
		for id, m := range d.seen { // expired ones first; then any, in Go's random order
			if !now.Before(m.expires) || len(d.seen) >= seenMax {
				delete(d.seen, id)
			}
		}
	}
	// A record older than r can be believed until MaxValidity after its own signing, which is before r's.
	d.seen[p] = mark{r.Seq, time.UnixMilli(int64(r.Seq)).Add(MaxValidity)}
	return r, nil
}
