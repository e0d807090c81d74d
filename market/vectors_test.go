package market_test

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"testing"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/match"
	"github.com/starling-network/starling/market/sign"
)

var rewrite = flag.Bool("rewrite", false, "write testdata/*.json anew")

type list = []any
type object = map[string]any

// TestVectors holds testdata/*.json, which other implementations can run, to what this one does. -rewrite writes the files;
// a change in one of them is a change of the protocol.
func TestVectors(t *testing.T) {
	t.Parallel()
	for name, build := range map[string]func(*testing.T) any{
		"sign": signVectors, "ids": idVectors, "money": moneyVectors, "units": unitVectors, "proof": proofVectors, "keyset": keySetVectors, "lease": leaseVectors, "messages": messageVectors, "overlay": overlayVectors, "coordinate": coordinateVectors,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			want, err := json.MarshalIndent(build(t), "", "  ")
			if err != nil {
				t.Fatal(err)
			}
			want = append(want, '\n')
			path := filepath.Join("testdata", name+".json")
			if *rewrite {
				if err := os.WriteFile(path, want, 0o644); err != nil {
					t.Fatal(err)
				}
				return
			}
			got, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			if !bytes.Equal(got, want) {
				t.Errorf("%s is not what this implementation does; if that is meant, run with -rewrite", path)
			}
		})
	}
}

func toHex(b []byte) string { return hex.EncodeToString(b) }

func seedHex(p sign.Private) string {
	seed := p.Seed()
	return toHex(seed[:])
}

func keyHex(k sign.Key) string { return toHex(k[:]) }

func domainVector() object {
	return object{"network": domain.Network, "chain": domain.Chain, "program": keyHex(domain.Program)}
}

func signVectors(t *testing.T) any {
	payload := []byte("hello")
	e, err := sign.Seal(domain, sign.TagOffer, payload, provider)
	if err != nil {
		t.Fatal(err)
	}
	good := object{"tag": string(sign.TagOffer), "payload": toHex(payload), "preimage": toHex(domain.Preimage(sign.TagOffer, payload)),
		"seed": seedHex(provider), "key": keyHex(e.Key), "address": e.Key, "signature": toHex(e.Signature[:]), "envelope": toHex(e.Marshal())}
	var refused list
	refuse := func(name string, k sign.Key, message []byte, s sign.Signature) {
		if sign.Verify(k, message, s) == nil {
			t.Fatalf("%s is accepted", name)
		}
		refused = append(refused, object{"name": name, "key": keyHex(k), "message": toHex(message), "signature": toHex(s[:])})
	}
	message := domain.Preimage(sign.TagOffer, payload)
	refuse("the identity as key, S = 0: verifies in libraries that are not strict", sign.Key{1}, message, sign.Signature{1})
	for _, point := range []struct{ name, bytes string }{
		{"identity", "0100000000000000000000000000000000000000000000000000000000000000"},
		{"order 2", "ecffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f"},
		{"order 4", "0000000000000000000000000000000000000000000000000000000000000000"},
		{"order 4, other sign", "0000000000000000000000000000000000000000000000000000000000000080"},
		{"order 8", "c7176a703d4dd84fba3c0b760d10670f2a2053fa2c39ccc64ec7fd7792ac037a"},
		{"order 8, other sign", "c7176a703d4dd84fba3c0b760d10670f2a2053fa2c39ccc64ec7fd7792ac03fa"},
		{"order 8, second", "26e8958fc2b227b045c3f489f2ef98f0d5dfac05d3c63339b13802886d53fc05"},
		{"order 8, second, other sign", "26e8958fc2b227b045c3f489f2ef98f0d5dfac05d3c63339b13802886d53fc85"},
		{"identity, negative zero", "0100000000000000000000000000000000000000000000000000000000000080"},
		{"order 2, negative zero", "ecffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff"},
		{"y = p", "edffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f"},
		{"y = p, other sign", "edffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff"},
		{"y = p + 1", "eeffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f"},
		{"y = p + 1, other sign", "eeffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff"},
	} {
		raw, _ := hex.DecodeString(point.bytes)
		refuse(point.name+" as key", sign.Key(raw), message, e.Signature)
		s := e.Signature
		copy(s[:32], raw)
		refuse(point.name+" as R", e.Key, message, s)
	}
	high := e.Signature
	carry := 0
	order, _ := hex.DecodeString("edd3f55c1a631258d69cf7a2def9de1400000000000000000000000000000010")
	for i, b := range order {
		carry += int(high[32+i]) + int(b)
		high[32+i], carry = byte(carry), carry>>8
	}
	refuse("S + L", e.Key, message, high)
	refuse("another message", e.Key, append(message, 0), e.Signature)
	refuse("another tag", e.Key, domain.Preimage(sign.TagOrder, payload), e.Signature)
	return object{"domain": domainVector(), "good": list{good}, "refused": refused}
}

func idVectors(t *testing.T) any {
	order, _, err := market.SealOrder(domain, testOrder(), buyer)
	if err != nil {
		t.Fatal(err)
	}
	b, _ := testOrder().Encode(domain, buyer)
	g := testGenesis()
	escrow := g
	escrow.Program, escrow.Escrow = sign.Key{3}, sign.Key{4}
	secret := [32]byte{1, 2, 3}
	unit := func(class market.Class, serial string, index uint32) object {
		c := market.Card{Class: class, Tag: market.TagOf(serial), Index: index}
		return object{
			"provider": keyHex(provider.Key()), "class": class, "serial": serial, "index": index, "tag": c.Tag, "card": toHex(c.Marshal()), "id": c.Unit(provider.Key()),
		}
	}
	var draw list
	for i := range byte(3) {
		p := sign.NewPrivate([32]byte{'d', i}).Key()
		h := sign.Sum([]byte("starling/draw/v1"), order.ID[:], p[:])
		least := binary.BigEndian.Uint32(h[:4]) // the least draw of an order for which it quotes
		if !match.Drawn(market.Order{ID: order.ID, Draw: least}, p) || match.Drawn(market.Order{ID: order.ID, Draw: least - 1}, p) {
			t.Error("a provider is not drawn as PROTOCOL.md says")
		}
		shard := 1 + uint32(sign.Sum([]byte("starling/shard/v1"), p[:])[0])%16
		if !match.Drawn(market.Order{ID: order.ID, Draw: least / 16, Shard: shard}, p) || match.Drawn(market.Order{ID: order.ID, Draw: least/16 - 1, Shard: shard}, p) ||
			match.Drawn(market.Order{ID: order.ID, Draw: 1<<28 - 1, Shard: 1 + shard%16}, p) {
			t.Error("a provider of a shard is not drawn as PROTOCOL.md says")
		}
		draw = append(draw, object{"order": order.ID, "provider": keyHex(p), "least": least, "shard": shard})
	}
	return object{
		"unit":  list{unit("gpu/h200", "GPU-5a1b", 0), unit("cpu", "machine", 7)},
		"order": object{"buyer": keyHex(buyer.Key()), "payload": toHex(b[sign.EnvelopeOverhead:]), "id": order.ID},
		"draw":  draw,
		"hold":  object{"secret": toHex(secret[:]), "order": order.ID, "rank": 3, "attempt": 1, "id": market.NewHoldID(secret, order.ID, 3, 1)},
		"genesis": list{
			object{"genesis": g, "hash": g.Hash(), "tag": g.Tag()},
			object{"genesis": escrow, "hash": escrow.Hash(), "tag": escrow.Tag()},
		},
	}
}

func moneyVectors(t *testing.T) any {
	var out list
	for _, c := range []struct {
		price market.Price
		units int
		slot  uint64
		slots uint64
	}{{450_000, 2, 400, 9000}, {1, 1, 1, 1}, {1, 1, 400, 9000}, {2_600_000, 2, 400, 9000}, {999_999, 7, 397, 123_457}, {1 << 38, 1024, 60_000, 60}} {
		rate, err := market.RateOf(c.price, c.units, c.slot)
		if err != nil {
			t.Fatal(err)
		}
		owed, err := rate.Owed(c.slots)
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, object{"price": c.price, "units": c.units, "slot_millis": c.slot, "rate": rate, "slots": c.slots, "owed": owed})
	}
	return out
}

func unitVectors(t *testing.T) any {
	var out list
	for _, n := range []int{1, 2, 3, 5, 8} {
		ids := testUnits(n)
		var proofs list
		for _, id := range ids {
			p, err := market.ProveUnit(ids, id)
			if err != nil {
				t.Fatal(err)
			}
			proofs = append(proofs, object{"unit": id, "proof": toHex(p.Marshal())})
		}
		out = append(out, object{"root": market.UnitsRoot(ids), "units": ids, "proofs": proofs})
	}
	return out
}

func proofVectors(t *testing.T) any {
	var out list
	for _, n := range []int{1, 2, 3, 5, 8} {
		shown := testShown(n)
		root, err := market.ProofRoot(shown)
		if err != nil {
			t.Fatal(err)
		}
		b, err := market.MarshalShown(shown)
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, object{"shown": shown, "bytes": toHex(b), "root": root})
	}
	return out
}

func keySetVectors(*testing.T) any {
	var out list
	one, _ := market.NewKeySet(1, buyer.Key())
	for _, ks := range []market.KeySet{one, testKeys()} {
		out = append(out, object{"set": ks, "bytes": toHex(ks.Marshal()), "hash": ks.Hash()})
	}
	return out
}

func leaseVectors(t *testing.T) any {
	l := testLease()
	core := l.Core.Marshal()
	var refused list
	for _, bad := range badCores {
		c := testCore()
		bad.change(&c)
		b := c.Marshal()
		refused = append(refused, object{"name": bad.name, "core": toHex(b[:])})
	}
	next, err := l.Core.Follow(l.Core.End + 4500)
	if err != nil {
		t.Fatal(err)
	}
	follows := next.Marshal()
	reserved := core
	reserved[12] = 1
	refused = append(refused, object{"name": "reserved bytes", "core": toHex(reserved[:])})
	return object{
		"domain": domainVector(), "provider_seed": seedHex(provider), "buyer_seed": seedHex(buyer), "lease": l, "core": toHex(core[:]), "id": l.Core.ID(),
		"preimage": toHex(domain.Preimage(sign.TagLease, core[:])), "provider_sig": toHex(l.ProviderSig[:]), "buyer_sig": toHex(l.BuyerSig[:]),
		"bytes": toHex(l.Marshal()), "refused": refused,
		"successor": object{"core": toHex(follows[:]), "id": next.ID()},
	}
}

func messageVectors(t *testing.T) any {
	offer, err := testOffer().Encode(domain, provider)
	if err != nil {
		t.Fatal(err)
	}
	order, orderBytes, err := market.SealOrder(domain, testOrder(), buyer)
	if err != nil {
		t.Fatal(err)
	}
	quote := testQuote()
	quote.Order = order.ID
	quoteBytes, err := quote.Encode(domain, provider)
	if err != nil {
		t.Fatal(err)
	}
	return object{
		"domain": domainVector(), "now": now,
		"offer": object{"value": testOffer(), "bytes": toHex(offer)},
		"order": object{"value": order, "bytes": toHex(orderBytes)},
		"quote": object{"value": quote, "bytes": toHex(quoteBytes)},
	}
}

func overlayVectors(t *testing.T) any {
	l, hold, key := testMember(t)
	var refused list
	for _, bad := range badOverlayKeys {
		refused = append(refused, object{"name": bad.name, "key": bad.key})
	}
	return object{
		"domain": domainVector(), "hold": hold, "key": key, "nonce": market.OverlayNonce(hold, key), "lease": toHex(l.Marshal()),
		"refused": refused,
	}
}

func coordinateVectors(*testing.T) any {
	show := func(c market.Coordinate) object {
		return object{"vector": c.Vec, "height": c.Height, "error": c.Error, "bytes": toHex(c.Marshal())}
	}
	a := testCoordinate()
	b := market.Coordinate{Vec: [market.CoordinateDims]int32{-40_000, 8}, Height: 1, Error: market.MaxCoordinateError}
	var refused list
	for _, bad := range badCoordinates {
		c := testCoordinate()
		bad.change(&c)
		refused = append(refused, object{"name": bad.name, "bytes": toHex(c.Marshal())})
	}
	return object{"coordinates": list{show(a), show(b)}, "distance_micros": a.Distance(b).Microseconds(), "refused": refused}
}
