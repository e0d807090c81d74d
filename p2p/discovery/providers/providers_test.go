package providers

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"maps"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ipfs/go-datastore"
	"github.com/ipfs/go-datastore/query"
	dssync "github.com/ipfs/go-datastore/sync"
	"github.com/libp2p/go-libp2p-kad-dht/records"
	"github.com/libp2p/go-libp2p/core/peer"
	ma "github.com/multiformats/go-multiaddr"
	"pgregory.net/rapid"

	"github.com/starling-network/starling/p2p/p2ptest"
)

// topics is the number of topics of a peer.
const topics = 16

func idOf(i int) peer.ID {
	id, err := peer.IDFromPrivateKey(p2ptest.Key(i))
	if err != nil {
		panic(err)
	}
	return id
}

// fleet stores records of many providers. The clock of its records goes on by a millisecond for each.
type fleet struct {
	rapid.TB
	datastore.Batching
	now time.Time
}

func newFleet(t rapid.TB, s datastore.Batching) *fleet {
	return &fleet{TB: t, Batching: s, now: time.Now()}
}

// providerID returns an ID that depends on i only, of the length that IDs have.
func providerID(i int) peer.ID {
	return peer.ID(fmt.Sprintf("\x00\x24\x08\x01\x12\x20%032d", i))
}

func providerName(key string, p peer.ID) datastore.Key {
	return datastore.NewKey(root + "/" + encodeName(key) + "/" + encodeName(string(p)))
}

// put stores a record that was received just now.
func (f *fleet) put(key string, p peer.ID) {
	f.now = f.now.Add(time.Millisecond)
	f.putAt(key, p, f.now)
}

func (f *fleet) putAt(key string, p peer.ID, at time.Time) {
	f.Helper()
	if err := f.Put(context.Background(), providerName(key, p), binary.AppendVarint(nil, at.UnixNano())); err != nil {
		f.Fatal(err)
	}
}

func (f *fleet) has(key string, p peer.ID) bool {
	f.Helper()
	has, err := f.Has(context.Background(), providerName(key, p))
	if err != nil {
		f.Fatal(err)
	}
	return has
}

// names returns the records below a prefix.
func (f *fleet) names(prefix string) map[string][]byte {
	f.Helper()
	res, err := f.Query(context.Background(), query.Query{Prefix: prefix})
	if err != nil {
		f.Fatal(err)
	}
	all, err := res.Rest()
	if err != nil {
		f.Fatal(err)
	}
	out := map[string][]byte{}
	for _, e := range all {
		out[e.Key] = e.Value
	}
	if len(out) != len(all) {
		f.Fatalf("%d records of %q, %d of them different", len(all), prefix, len(out))
	}
	return out
}

// at returns an address in one of many IPv4 /24.
func at(network, host int) ma.Multiaddr {
	return ma.StringCast(fmt.Sprintf("/ip4/20.%d.%d.%d/tcp/4001", network/256, network%256, host))
}

// TestAttackManyProviders: a thousand identities of one laptop get the share of one address and pushed out no record of anybody
// elsewhere. Nor do strangers with many networks that fill the whole store.
func TestAttackManyProviders(t *testing.T) {
	t.Parallel()
	s := New(idOf(0), time.Hour, DefaultBounds)
	f := newFleet(t, s)
	honest := map[string]peer.ID{"own": idOf(0), "at the same address": providerID(1), "in the same network": providerID(2), "elsewhere": providerID(3)}
	s.Allow(honest["at the same address"], at(0, 1))
	s.Allow(honest["in the same network"], at(0, 2))
	s.Allow(honest["elsewhere"], at(1, 1))
	for i := range 2 * topics {
		for _, p := range honest {
			f.put(fmt.Sprint("topic ", i), p)
		}
	}
	kept := func(who string) (n int) {
		for i := range 2 * topics {
			if f.has(fmt.Sprint("topic ", i), honest[who]) {
				n++
			}
		}
		return n
	}
	next := 1000
	flood := func(from ma.Multiaddr, identities, each int) {
		for range identities {
			p := providerID(next)
			s.Allow(p, from)
			for i := range each {
				f.put(fmt.Sprint(next, " ", i), p)
			}
			next++
		}
	}
	flood(at(0, 1), 8, 1000)
	for who := range honest {
		if n := kept(who); n != 2*topics {
			t.Errorf("after a few identities with many records, the provider %s has %d records, want %d", who, n, 2*topics)
		}
	}
	flood(at(0, 1), 1000, 10)
	if n, want := s.all.count, DefaultBounds.address+2*2*topics; n != want {
		t.Errorf("%d records of others are stored, want %d", n, want)
	}
	for network := range 20 {
		for host := range 10 {
			flood(at(2+network, host), 4, 130)
		}
	}
	if n := s.all.count; n != DefaultBounds.all {
		t.Errorf("%d records of others are stored, want %d", n, DefaultBounds.all)
	}
	for _, who := range []string{"own", "in the same network", "elsewhere"} {
		if n := kept(who); n != 2*topics {
			t.Errorf("the provider %s has %d records, want %d", who, n, 2*topics)
		}
	}
	if kept("at the same address") == 0 {
		t.Error("the provider at the same address has no records")
	}
	late := providerID(4)
	s.Allow(late, at(100, 1))
	for i := range 2 * topics {
		f.put(fmt.Sprint("topic ", i), late)
		if !f.has(fmt.Sprint("topic ", i), late) {
			t.Fatalf("record %d of a newcomer was refused", i)
		}
	}
}

// TestAttackKey: providers of one network cannot take a key of the DHT, those of many cannot keep others out of it, and records
// that have expired give way.
func TestAttackKey(t *testing.T) {
	t.Parallel()
	s := New(idOf(0), time.Hour, DefaultBounds)
	f := newFleet(t, s)
	flood := func(network, identities int) (stored int) {
		for i := range identities {
			p := providerID(1000 + 1000*network + i)
			s.Allow(p, at(network, i%250))
			f.put("topic", p)
			if f.has("topic", p) {
				stored++
			}
		}
		return stored
	}
	for network := range 8 {
		if n := flood(network, 300); n != DefaultBounds.keyNetwork {
			t.Fatalf("%d providers of network %d are under the key, want %d", n, network, DefaultBounds.keyNetwork)
		}
	}
	if n := len(f.names("/providers/" + encodeName("topic"))); n != DefaultBounds.key {
		t.Fatalf("%d providers are under the key, want %d", n, DefaultBounds.key)
	}
	if n := flood(8, 10); n != 10 {
		t.Errorf("%d of 10 providers of another network were accepted", n)
	}
	if f.put("topic", idOf(0)); !f.has("topic", idOf(0)) {
		t.Error("the record of this peer itself was refused")
	}
	if n := len(f.names("/providers/" + encodeName("topic"))); n != DefaultBounds.key+1 {
		t.Errorf("%d providers are under the key, want %d and this peer", n, DefaultBounds.key)
	}

	unknown := newFleet(t, New(idOf(0), time.Hour, DefaultBounds))
	expired, first := unknown.now.Add(-time.Hour-time.Minute), providerID(0)
	for i := range DefaultBounds.key {
		unknown.put("topic", providerID(i))
	}
	if unknown.put("topic", providerID(5000)); unknown.has("topic", providerID(5000)) || !unknown.has("topic", first) {
		t.Error("a provider was accepted under a full key in the place of one of the same network")
	}
	unknown.putAt("topic", first, expired)
	if unknown.put("topic", providerID(5000)); !unknown.has("topic", providerID(5000)) || unknown.has("topic", first) {
		t.Error("a provider was refused under a key with a record that has expired")
	}
}

// A provider with too many records loses its oldest, and one that it renews is not its oldest any more.
func TestProviderLosesOldest(t *testing.T) {
	t.Parallel()
	most := DefaultBounds
	most.provider = 3
	f := newFleet(t, New(idOf(0), time.Hour, most))
	for _, key := range []string{"a", "b", "c", "a", "d"} {
		f.put(key, providerID(1))
	}
	for key, want := range map[string]bool{"a": true, "b": false, "c": true, "d": true} {
		if f.has(key, providerID(1)) != want {
			t.Errorf("record %q is stored: %v, want %v", key, !want, want)
		}
	}
	for i := range 10 {
		f.put(fmt.Sprint(i), idOf(0))
	}
	if n := len(f.names("/")); n != 13 {
		t.Errorf("%d records are stored, want 3 and 10 of this peer itself", n)
	}
}

// The store does as a datastore should, whatever is asked.
func TestProviderStoreContract(t *testing.T) {
	t.Parallel()
	s := New(idOf(0), time.Hour, DefaultBounds)
	f := newFleet(t, s)
	f.put("a", providerID(1))
	f.put("a", providerID(2))
	f.put("ab", providerID(1))
	for name, value := range map[string][]byte{
		"/":                     {2},
		"/providers":            {2},
		"/providers/a":          {2},
		"/providers/a/b/c":      {2},
		"/provider/a/b":         {2},
		"/providersx/a/b":       {2},
		"/providers/empty/time": nil,
	} {
		if err := s.Put(t.Context(), datastore.NewKey(name), value); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	for prefix, want := range map[string]int{
		"": 3, "/": 3, "providers": 3, "/providers/": 3, "/providers/" + encodeName("a"): 2, "/providers/" + encodeName("ab") + "/": 1,
		"/providers/" + encodeName("a") + "/" + encodeName(string(providerID(1))): 0, "/providers/other": 0, "/other": 0, "/providersx": 0,
	} {
		if n := len(f.names(prefix)); n != want {
			t.Errorf("%d records have the prefix %q, want %d", n, prefix, want)
		}
	}
	res, err := s.Query(t.Context(), query.Query{Prefix: "/providers", Orders: []query.Order{query.OrderByKey{}}, Offset: 1, Limit: 1})
	if err != nil {
		t.Fatal(err)
	}
	if all, err := res.Rest(); err != nil || len(all) != 1 {
		t.Errorf("got %d records, %v; want one", len(all), err)
	}
	none := datastore.NewKey("/providers/none/none")
	if _, err := s.Get(t.Context(), none); err != datastore.ErrNotFound {
		t.Errorf("an unknown record: got %v, want ErrNotFound", err)
	}
	if n, err := s.GetSize(t.Context(), none); n != -1 || err != datastore.ErrNotFound {
		t.Errorf("size of an unknown record: got %d, %v", n, err)
	}
	if err := s.Delete(t.Context(), none); err != nil {
		t.Errorf("deleting an unknown record: %v", err)
	}
	for name := range f.names("/providers") {
		if err := s.Delete(t.Context(), datastore.RawKey(name)); err != nil {
			t.Fatal(err)
		}
	}
	if len(s.byName)+len(s.keys)+len(s.order)+len(s.shares)+s.all.count+len(s.all.parts) != 0 {
		t.Errorf("an empty store keeps %+v", s)
	}
}

// A query for all records gives each that is there from beginning to end, whatever is added and deleted meanwhile.
func TestProviderStoreWalk(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		f := newFleet(t, New(idOf(0), time.Hour, DefaultBounds))
		keys := rapid.IntRange(1, 20).Draw(t, "keys")
		stays := map[string]bool{}
		for i := range keys {
			f.put(fmt.Sprint(i), providerID(1))
			stays[providerName(fmt.Sprint(i), providerID(1)).String()] = true
		}
		res, err := f.Query(context.Background(), query.Query{Prefix: "/providers/"})
		if err != nil {
			t.Fatal(err)
		}
		for {
			e, ok := res.NextSync()
			if !ok {
				break
			}
			delete(stays, e.Key)
			if i := rapid.IntRange(0, 40).Draw(t, "key"); i < keys {
				name := providerName(fmt.Sprint(i), providerID(1))
				delete(stays, name.String())
				if err := f.Delete(context.Background(), name); err != nil {
					t.Fatal(err)
				}
			} else if i < 25 {
				f.put(fmt.Sprint("new", i), providerID(1))
			}
		}
		if len(stays) > 0 {
			t.Fatalf("%d records were left out", len(stays))
		}
	})
}

// The DHT's library finds its records in the store, and deletes those that have expired.
func TestProvidersExpire(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := New(idOf(0), time.Minute, DefaultBounds)
		h := p2ptest.NewNet(t, 1, time.Millisecond).Hosts[0]
		m, err := records.NewProviderManager(h.ID(), h.Peerstore(), s, s.Options()...)
		if err != nil {
			t.Fatal(err)
		}
		defer m.Close()
		const keys, each = 64, 16
		for i := range keys * each {
			if err := m.AddProvider(t.Context(), []byte{byte(i % keys)}, peer.AddrInfo{ID: providerID(i / keys)}); err != nil {
				t.Fatal(err)
			}
		}
		count := func() (n int) {
			for i := range keys {
				got, err := m.GetProviders(t.Context(), []byte{byte(i)})
				if err != nil {
					t.Fatal(err)
				}
				n += len(got)
			}
			return n
		}
		if n := count(); n != keys*each || s.all.count != n {
			t.Errorf("%d providers are found and %d stored, want %d", n, s.all.count, keys*each)
		}
		time.Sleep(2*time.Minute + time.Second)
		synctest.Wait()
		if n := s.all.count; n != 0 {
			t.Errorf("%d records that have expired are stored", n)
		}
		if n := count(); n != 0 {
			t.Errorf("%d providers are found that have expired", n)
		}
	})
}

func TestOrigin(t *testing.T) {
	t.Parallel()
	for from, want := range map[string]string{
		"/ip4/20.1.2.3/tcp/4001":                                       "20.1.2.0/24 20.1.2.3/32",
		"/ip6/2a01:4f8:1:2ff:3::4/udp/1/quic-v1":                       "2a01:4f8:1:200::/56 2a01:4f8:1:2ff::/64",
		"/ip6/::ffff:20.1.2.3/tcp/4001":                                "20.1.2.0/24 20.1.2.3/32",
		"/ip4/127.0.0.1/tcp/4001":                                      "invalid Prefix invalid Prefix",
		"/ip4/20.1.2.3/tcp/1/p2p/" + idOf(1).String() + "/p2p-circuit": "invalid Prefix invalid Prefix",
		"/dns4/example.com/tcp/1":                                      "invalid Prefix invalid Prefix",
	} {
		o := originOf(ma.StringCast(from))
		if got := fmt.Sprint(o.network, " ", o.address); got != want {
			t.Errorf("%s: got %s, want %s", from, got, want)
		}
	}
}

// Peers that sent ADD_PROVIDER are remembered up to a bound.
func TestCallersBounded(t *testing.T) {
	t.Parallel()
	s := New(idOf(0), time.Hour, DefaultBounds)
	for i := range 3 * maxCallers {
		s.Allow(providerID(i), at(0, 1))
	}
	if len(s.callers) != maxCallers || len(s.called) != maxCallers {
		t.Errorf("%d peers are remembered in the order of %d, want %d", len(s.callers), len(s.called), maxCallers)
	}
}

// modelled is a record as the model of TestProviderStoreModel has it.
type modelled struct {
	key      string
	provider int
	value    []byte
}

// Whatever is stored: no bound is exceeded, each Put costs at most one record that has not expired, that is one of the provider
// itself or of a larger share, and all else is found as it was put.
func TestProviderStoreModel(t *testing.T) {
	t.Parallel()
	most := Bounds{all: 24, key: 8, keyNetwork: 4, provider: 5, address: 8, network: 12}
	rapid.Check(t, func(t *rapid.T) {
		const providers = 16 // 0 is this peer itself
		s := New(providerID(0), time.Hour, most)
		f := newFleet(t, s)
		origins := make([]origin, providers)
		for i := range providers {
			if i%5 == 1 {
				continue // nothing is known of it
			}
			a := at(rapid.IntRange(0, 3).Draw(t, "network"), rapid.IntRange(1, 2).Draw(t, "host"))
			s.Allow(providerID(i), a)
			origins[i] = originOf(a)
		}
		model := map[string]modelled{}
		count := func(of map[string]modelled, which func(m modelled) bool) (n int) {
			for _, m := range of {
				if which(m) {
					n++
				}
			}
			return n
		}
		others := func(m modelled) bool { return m.provider != 0 }
		network := func(i int) func(modelled) bool {
			return func(m modelled) bool { return others(m) && origins[m.provider].network == origins[i].network }
		}
		address := func(i int) func(modelled) bool {
			return func(m modelled) bool { return others(m) && origins[m.provider] == origins[i] }
		}
		provider := func(i int) func(modelled) bool {
			return func(m modelled) bool { return m.provider == i }
		}
		under := func(key string, which func(modelled) bool) func(modelled) bool {
			return func(m modelled) bool { return m.key == key && which(m) }
		}
		for range rapid.IntRange(1, 120).Draw(t, "steps") {
			p, key := rapid.IntRange(0, providers-1).Draw(t, "provider"), fmt.Sprint(rapid.IntRange(0, 8).Draw(t, "key"))
			name := providerName(key, providerID(p))
			if rapid.IntRange(0, 9).Draw(t, "delete") == 0 {
				if err := f.Delete(context.Background(), name); err != nil {
					t.Fatal(err)
				}
				delete(model, name.String())
			} else {
				at := f.now.Add(time.Millisecond)
				f.now = at
				if rapid.IntRange(0, 9).Draw(t, "expired") == 0 {
					at = at.Add(-2 * time.Hour)
				}
				value := binary.AppendVarint(nil, at.UnixNano())
				f.putAt(key, providerID(p), at)
				_, renewed := model[name.String()]
				with := maps.Clone(model) // if nothing had been lost
				with[name.String()] = modelled{key, p, value}
				now := f.names("/providers")
				model = map[string]modelled{}
				lost := 0
				for n, m := range with {
					if _, ok := now[n]; ok {
						model[n] = m
						continue
					}
					received, _ := binary.Varint(m.value)
					switch old := received < time.Now().Add(-time.Hour).UnixNano(); {
					case old && m.key == key && n != name.String():
						continue
					case m.provider == 0:
						t.Fatalf("safety: record %q of this peer itself is gone", m.key)
					case renewed:
						t.Fatalf("safety: renewing a record cost one")
					}
					lost++
					if n == name.String() {
						continue
					}
					larger := m.provider == p
					for _, share := range []func(int) func(modelled) bool{network, address, provider} {
						larger = larger || count(with, share(m.provider)) > count(with, share(p))
					}
					larger = larger || count(with, under(key, network(m.provider))) > count(with, under(key, network(p)))
					if !larger {
						t.Fatalf("safety: provider %d lost a record to %d, which has no fewer", m.provider, p)
					}
				}
				if lost > 2 { // one for the key, one for the shares
					t.Fatalf("safety: one record cost %d", lost)
				}
				if _, ok := model[name.String()]; !ok && count(with, others) <= most.all && count(with, network(p)) <= most.network &&
					count(with, address(p)) <= most.address && count(with, provider(p)) <= most.provider &&
					count(with, under(key, others)) <= most.key && count(with, under(key, network(p))) <= most.keyNetwork {
					t.Fatalf("liveness: record %q of provider %d was refused, though no share is full", key, p)
				}
			}
			want := map[string][]byte{}
			for n, m := range model {
				want[n] = m.value
			}
			if got := f.names("/"); !maps.EqualFunc(got, want, bytes.Equal) {
				t.Fatalf("the store has %d records, want %d: %v, want %v", len(got), len(want), slices.Collect(maps.Keys(got)), slices.Collect(maps.Keys(want)))
			}
			maps.DeleteFunc(want, func(n string, _ []byte) bool { return model[n].key != key })
			if got := f.names("/providers/" + encodeName(key)); !maps.EqualFunc(got, want, bytes.Equal) {
				t.Fatalf("key %q has %d records, want %d", key, len(got), len(want))
			}
			if n := count(model, others); n > most.all || n != s.all.count {
				t.Fatalf("%d records of others, counted as %d, at most %d", n, s.all.count, most.all)
			}
			if n := count(model, under(key, others)); n > most.key {
				t.Fatalf("%d records of others under a key, at most %d", n, most.key)
			}
			for i := 1; i < providers; i++ {
				known := origins[i] != origin{}
				if n := count(model, provider(i)); n > most.provider {
					t.Fatalf("%d records of a provider, at most %d", n, most.provider)
				}
				if n := count(model, address(i)); known && n > most.address {
					t.Fatalf("%d records at an address, at most %d", n, most.address)
				}
				if n := count(model, network(i)); known && n > most.network {
					t.Fatalf("%d records in a network, at most %d", n, most.network)
				}
				if n := count(model, under(key, network(i))); known && n > most.keyNetwork {
					t.Fatalf("%d records of a network under a key, at most %d", n, most.keyNetwork)
				}
			}
			if n := len(s.keys); n != len(s.order) || s.order != nil && slices.ContainsFunc(s.order, func(k *dhtKey) bool { return len(k.records) == 0 }) {
				t.Fatalf("%d keys, %d in order", n, len(s.order))
			}
			for key, of := range s.shares {
				if of.count == 0 || of.parent.parts[of.place] != of || of.count > of.parent.parts[0].count {
					t.Fatalf("share %v of %d records is out of place", key, of.count)
				}
			}
		}
	})
}

// BenchmarkProviders looks up a key with 20 providers among 65,536 records, in this store and in the DHT library's own, and a key
// that is full.
func BenchmarkProviders(b *testing.B) {
	fill := func(s datastore.Batching) datastore.Batching {
		f := newFleet(b, s)
		for i := range 65536 - 20 - 2048 {
			f.put(fmt.Sprint("other ", i), providerID(100_000+i/128))
		}
		for i := range 20 {
			f.put("topic", providerID(i))
		}
		for i := range 2048 {
			f.put("full", providerID(i))
		}
		return s
	}
	h := p2ptest.Loopback(b, 1)[0]
	for _, store := range []struct {
		name string
		ds   datastore.Batching
	}{
		{"ours", fill(New(idOf(0), time.Hour, DefaultBounds))},
		{"map", fill(dssync.MutexWrap(datastore.NewMapDatastore()))},
	} {
		for _, key := range []string{"topic", "full"} {
			b.Run("query/"+store.name+"/"+key, func(b *testing.B) {
				b.ReportAllocs()
				for b.Loop() {
					res, err := store.ds.Query(b.Context(), query.Query{Prefix: "/providers/" + encodeName(key)})
					if err != nil {
						b.Fatal(err)
					}
					if all, err := res.Rest(); err != nil || len(all) < 20 {
						b.Fatal(len(all), err)
					}
				}
			})
			for name, cache := range map[string][]records.Option{"cached": nil, "uncached": {records.Cache(noCache{})}} {
				b.Run("lookup/"+store.name+"/"+key+"/"+name, func(b *testing.B) {
					m, err := records.NewProviderManager(h.ID(), h.Peerstore(), store.ds, cache...)
					if err != nil {
						b.Fatal(err)
					}
					defer m.Close()
					b.ReportAllocs()
					for b.Loop() {
						if got, err := m.GetProviders(b.Context(), []byte(key)); err != nil || len(got) < 20 {
							b.Fatal(len(got), err)
						}
					}
				})
			}
		}
	}
}
