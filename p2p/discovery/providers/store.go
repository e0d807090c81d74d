// Package providers holds the provider records of a DHT in memory, bounded for each provider, each key and each
// network: an attacker with any number of identities can neither fill a peer's memory nor displace others' records.
package providers

import (
	"cmp"
	"context"
	"encoding/base32"
	"encoding/binary"
	"math"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/ipfs/go-datastore"
	"github.com/libp2p/go-libp2p/core/peer"
	ma "github.com/multiformats/go-multiaddr"
	"golang.org/x/time/rate"
)

// Bounds limit the provider records of other peers.
type Bounds struct {
	all        int // records in all
	key        int // records under one key of the DHT
	keyNetwork int // records under one key of the DHT, of providers of one network
	provider   int // records of one provider
	address    int // records of providers at one IPv4 address or in one IPv6 /64
	network    int // records of providers in one IPv4 /24 or IPv6 /56
}

// DefaultBounds are for a peer of a network of thousands of providers.
var DefaultBounds = Bounds{
	// A record takes about 300 bytes, and 600 if it is the only one of its provider and of its key: 20 to 40 MiB in
	// all.
	all: 65536,
	// The most popular topic, over four shards, has as many as 8,192 providers. An answer of the DHT names all
	// providers under a key, so that more of them would also make it large and slow.
	key: 2048,
	// One network cannot take more than an eighth of a key.
	keyNetwork: 256,
	// A peer has at most 16 topics, each under two keys in an epoch, which is 64 near the change of epochs. If a
	// provider's topics change, the old ones remain until they expire.
	provider: 128,
	// Four providers with all the records that they may have, or sixteen with all that they need.
	address: 512,
	// Sixteen such networks fill the store.
	network: 4096,
}

const (
	// addRate and addBurst bound the ADD_PROVIDER messages of one peer. An honest one sends at most 64 in one
	// push, and pushes all its topics when it starts, and 15 s and 75 s later.
	addRate  = 2 // per second
	addBurst = 100
	// maxCallers bounds how many peers that sent ADD_PROVIDER are remembered. The DHT's library gives records to the
	// store at the latest when it has 256 of them, so that their providers are still remembered then.
	maxCallers = 4096
)

// root is the part of a datastore in which the DHT's library stores provider records.
const root = "/providers"

// A Store holds provider records in memory for the DHT's library, bounded for each provider, each key and each network.
// A record names a peer as a provider for a key; its value is the time at which it was received:
//
//	/providers/<base32 of the DHT's key>/<base32 of the provider's ID> → varint of Unix nanoseconds
//
// The library accepts a record only from the provider that it names, so that no peer can use up another's share. The
// bounds:
//
//   - A provider with too many records loses its oldest.
//   - An address, a network or the store with too many records loses one of its largest part: see share.
//   - Under a key with too many records, expired records are dropped. If there are none, a record of the network that
//     has the most there goes. If the network of the new record would have as many, the new record is refused.
//   - Under a key, a new record of a network that has its share of the key is refused.
//
// A record that is already stored is always renewed. The records of this peer are counted in no share, and lost only
// when they have expired.
//
// The following is not bounded:
//
//   - Providers without a network are bounded one by one and in all, not by address. They count as one network, so
//     that they lose their records first when they have most of the store.
//   - An attacker with many identities at an address can reduce its neighbours there to as many records as each
//     identity has. The same holds for many addresses in a network, and for many networks.
//   - The addresses of providers, which the DHT's library gives to the peerstore, also those of refused records.
//
// A provider belongs to the network from which its first record came, until its last record is gone.
type Store struct {
	self     string // base32 of this peer's ID
	validity time.Duration
	most     Bounds

	mu      sync.Mutex
	byName  map[string]*record // by the whole key in the datastore
	keys    map[string]*dhtKey // by base32 of the DHT's key
	order   []*dhtKey          // all of keys
	shares  map[any]*share     // of providers by base32 of their ID, and of networks and addresses by origin
	own     *share             // of this peer, in no other share
	all     *share             // of all other peers
	callers map[string]*caller // by base32 of their ID
	called  []string           // those of callers, the first one first
}

// A record is one record, with its key and value in the datastore.
type record struct {
	name     string
	value    []byte
	received int64 // Unix nanoseconds
	under    *dhtKey
	of       *share
}

// A dhtKey is a key of the DHT and its records, the oldest first.
type dhtKey struct {
	name    string // base32
	records []*record
	place   int // in Store.order
}

// A caller is a peer that sent ADD_PROVIDER.
type caller struct {
	at     origin
	adding *rate.Limiter
}

// New returns an empty store of the peer self. A record expires after validity.
func New(self peer.ID, validity time.Duration, most Bounds) *Store {
	return &Store{
		self: encodeName(string(self)), validity: validity, most: most,
		byName: map[string]*record{}, keys: map[string]*dhtKey{}, shares: map[any]*share{},
		own: &share{most: math.MaxInt}, all: &share{most: most.all}, callers: map[string]*caller{},
	}
}

// encodeName returns an ID or a key of the DHT as the DHT's library writes it.
func encodeName(raw string) string {
	return base32.StdEncoding.WithPadding(base32.NoPadding).EncodeToString([]byte(raw))
}

// Allow remembers where a peer that sends ADD_PROVIDER is connected from. It reports whether the peer is within its
// rate.
func (s *Store) Allow(p peer.ID, from ma.Multiaddr) bool {
	name, at := encodeName(string(p)), originOf(from)
	s.mu.Lock()
	defer s.mu.Unlock()
	c := s.callers[name]
	if c == nil {
		if len(s.called) >= maxCallers {
			delete(s.callers, s.called[0])
			s.called = s.called[1:]
		}
		c = &caller{adding: rate.NewLimiter(addRate, addBurst)}
		s.callers[name] = c
		s.called = append(s.called, name)
	}
	c.at = at
	return c.adding.Allow()
}

// Under returns how many records there are under a key of the DHT.
func (s *Store) Under(key []byte) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	if k := s.keys[encodeName(string(key))]; k != nil {
		return len(k.records)
	}
	return 0
}

// Held returns the number of records of other peers, and of those of providers in the network of an address.
func (s *Store) Held(at ma.Multiaddr) (all, network int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if of := s.shares[origin{network: originOf(at).network}]; of != nil {
		network = of.count
	}
	return s.all.count, network
}

// Put implements datastore.Datastore. It returns no error for a record that is refused, because the DHT's library would
// put it again, and all others of its batch with it.
func (s *Store) Put(_ context.Context, k datastore.Key, value []byte) error {
	under, provider, ok := parseName(k.String())
	received, n := binary.Varint(value)
	if !ok || provider == "" || n <= 0 {
		return nil // the DHT's library writes no such record
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if r := s.byName[k.String()]; r != nil {
		r.under.records, r.of.records = removeRecord(r.under.records, r), removeRecord(r.of.records, r)
		r.value, r.received = value, received
		r.under.records, r.of.records = insertRecord(r.under.records, r), insertRecord(r.of.records, r)
		return nil
	}
	if provider != s.self && !s.room(under, s.networkOf(provider)) {
		return nil
	}
	of := s.shareOf(provider)
	r := &record{name: k.String(), value: value, received: received, under: s.keys[under], of: of}
	if r.under == nil {
		r.under = &dhtKey{name: under, place: len(s.order)}
		s.keys[under] = r.under
		s.order = append(s.order, r.under)
	}
	s.byName[r.name] = r
	r.under.records, of.records = insertRecord(r.under.records, r), insertRecord(of.records, r)
	of.grow(1, s.forget)
	for full := of; full != nil; full = full.parent {
		if full.count > full.most {
			s.remove(full.victim(of))
		}
	}
	return nil
}

// networkOf returns the key of the network's share that a provider's records are counted in; s.mu is held.
func (s *Store) networkOf(provider string) origin {
	if of := s.shares[provider]; of != nil {
		return of.network().key.(origin)
	}
	return origin{network: s.origin(provider).network}
}

// origin returns where a provider is connected from; s.mu is held.
func (s *Store) origin(provider string) origin {
	if c := s.callers[provider]; c != nil {
		return c.at
	}
	return origin{}
}

// shareOf returns the share of a provider. If the provider has no records, the caller adds one; s.mu is held.
func (s *Store) shareOf(provider string) *share {
	if provider == s.self {
		return s.own
	}
	if of := s.shares[provider]; of != nil {
		return of
	}
	within, at := s.all, s.origin(provider)
	if at == (origin{}) {
		within = s.group(within, at, math.MaxInt)
	} else {
		within = s.group(within, origin{network: at.network}, s.most.network)
		within = s.group(within, at, s.most.address)
	}
	return s.group(within, provider, s.most.provider)
}

// group returns the part of a share that has a key; s.mu is held.
func (s *Store) group(within *share, key any, most int) *share {
	if s.shares[key] == nil {
		s.shares[key] = within.part(key, most)
	}
	return s.shares[key]
}

// forget removes a share that has no records; s.mu is held.
func (s *Store) forget(key any) { delete(s.shares, key) }

// room reports whether a key of the DHT has room for one more record of a network. It makes room where it may; s.mu is
// held.
func (s *Store) room(under string, network origin) bool {
	k := s.keys[under]
	if k == nil || len(k.records) < min(s.most.key, s.most.keyNetwork) {
		return true
	}
	expired := time.Now().Add(-s.validity).UnixNano()
	for len(k.records) > 0 && k.records[0].received < expired {
		s.remove(k.records[0])
	}
	counts, others, largest := map[*share]int{}, 0, 0
	for _, r := range k.records {
		if r.of != s.own {
			n := r.of.network()
			counts[n]++
			others++
			largest = max(largest, counts[n])
		}
	}
	has := counts[s.shares[network]]
	switch {
	case network != (origin{}) && has >= s.most.keyNetwork:
		return false
	case others < s.most.key:
		return true
	case largest <= has+1:
		return false
	}
	s.remove(k.records[slices.IndexFunc(k.records, func(r *record) bool {
		return counts[r.of.network()] == largest
	})])
	return true
}

// remove takes a record out of everything; s.mu is held.
func (s *Store) remove(r *record) {
	delete(s.byName, r.name)
	r.under.records, r.of.records = removeRecord(r.under.records, r), removeRecord(r.of.records, r)
	r.of.grow(-1, s.forget)
	if len(r.under.records) > 0 {
		return
	}
	delete(s.keys, r.under.name)
	last := s.order[len(s.order)-1]
	s.order[r.under.place], last.place = last, r.under.place
	s.order[len(s.order)-1] = nil
	s.order = s.order[:len(s.order)-1]
}

// insertRecord adds r in the order of time.
func insertRecord(to []*record, r *record) []*record {
	at, _ := slices.BinarySearchFunc(to, r, compareRecords)
	return slices.Insert(to, at, r)
}

// removeRecord takes r out.
func removeRecord(from []*record, r *record) []*record {
	at, _ := slices.BinarySearchFunc(from, r, compareRecords)
	return slices.Delete(from, at, at+1)
}

// compareRecords orders records by time, then by name.
func compareRecords(a, b *record) int {
	return cmp.Or(cmp.Compare(a.received, b.received), strings.Compare(a.name, b.name))
}
