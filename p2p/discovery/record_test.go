package discovery

import (
	"bytes"
	"encoding/hex"
	"errors"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/libp2p/go-libp2p/core/peer"
	"github.com/libp2p/go-libp2p/core/record"
	"pgregory.net/rapid"

	"github.com/starling-network/starling/p2p/p2ptest"
)

var epoch = time.UnixMilli(1_700_000_000_000)

func idOf(i int) peer.ID {
	id, err := peer.IDFromPrivateKey(p2ptest.Key(i))
	if err != nil {
		panic(err)
	}
	return id
}

func genRecord(t *rapid.T) Record {
	word := rapid.StringMatching(`[a-z0-9/-]{1,32}`)
	return Record{
		Seq:     uint64(epoch.UnixMilli()) - rapid.Uint64Range(0, 60_000).Draw(t, "age"),
		Expires: epoch.Add(time.Duration(rapid.IntRange(1, 3_000_000).Draw(t, "left")) * time.Millisecond),
		Topics: rapid.SliceOfN(rapid.Custom(func(t *rapid.T) Topic {
			return Topic{word.Draw(t, "class"), word.Draw(t, "region")}
		}), 0, MaxTopics).Draw(t, "topics"),
		Payload: rapid.SliceOfN(rapid.Byte(), 0, 2000).Draw(t, "payload"),
	}
}

func equal(a, b Record) bool {
	if a.Seq != b.Seq || !a.Expires.Equal(b.Expires) || len(a.Topics) != len(b.Topics) || !bytes.Equal(a.Payload, b.Payload) {
		return false
	}
	for i := range a.Topics {
		if a.Topics[i] != b.Topics[i] {
			return false
		}
	}
	return true
}

func TestRecordRoundTrip(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		r := genRecord(t)
		data, err := encode("test", p2ptest.Key(1), r, epoch)
		if err != nil {
			t.Fatal(err)
		}
		got, err := decode("test", idOf(1), data, epoch, nil)
		if err != nil || !equal(got, r) {
			t.Fatalf("%+v became %+v: %v", r, got, err)
		}
		i := rapid.IntRange(0, len(data)-1).Draw(t, "byte")
		data[i] ^= 1 << rapid.IntRange(0, 7).Draw(t, "bit")
		if got, err := decode("test", idOf(1), data, epoch, nil); err == nil && !equal(got, r) {
			t.Fatalf("with a flipped bit %+v became %+v", r, got)
		}
	})
}

func TestRecordRefused(t *testing.T) {
	t.Parallel()
	good := Record{Seq: uint64(epoch.UnixMilli()), Expires: epoch.Add(time.Minute), Topics: []Topic{{"cpu", "local"}}, Payload: []byte("x")}
	seal := func(network string, by int, change func(*Record)) []byte {
		r := good
		r.Topics = append([]Topic(nil), good.Topics...)
		if change != nil {
			change(&r)
		}
		env, err := record.Seal(&sealed{Record: r, network: network}, p2ptest.Key(by))
		if err != nil {
			t.Fatal(err)
		}
		data, err := env.Marshal()
		if err != nil {
			t.Fatal(err)
		}
		return data
	}
	otherType, err := record.Seal(&peer.PeerRecord{PeerID: idOf(1)}, p2ptest.Key(1))
	if err != nil {
		t.Fatal(err)
	}
	peerRecord, err := otherType.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	flipped := seal("test", 1, nil)
	flipped[len(flipped)-1] ^= 1
	for name, tc := range map[string]struct {
		data []byte
		want error
	}{
		"good":               {seal("test", 1, nil), nil},
		"empty":              {nil, ErrMalformed},
		"garbage":            {[]byte("garbage"), ErrMalformed},
		"oversized":          {seal("test", 1, func(r *Record) { r.Payload = make([]byte, MaxRecord) }), ErrMalformed},
		"another signer":     {seal("test", 2, nil), ErrBadSignature},
		"another network":    {seal("other", 1, nil), ErrBadSignature},
		"flipped bit":        {flipped, ErrBadSignature},
		"another type":       {peerRecord, ErrMalformed},
		"expired":            {seal("test", 1, func(r *Record) { r.Expires = epoch }), ErrExpired},
		"from the future":    {seal("test", 1, func(r *Record) { r.Seq += 121_000 }), ErrBadTime},
		"highest sequence":   {seal("test", 1, func(r *Record) { r.Seq = 1<<64 - 1 }), ErrBadTime},
		"valid for ever":     {seal("test", 1, func(r *Record) { r.Expires = epoch.Add(MaxValidity + time.Second) }), ErrBadTime},
		"old but long":       {seal("test", 1, func(r *Record) { r.Seq -= uint64(MaxValidity.Milliseconds()) }), ErrBadTime},
		"too many topics":    {seal("test", 1, func(r *Record) { r.Topics = make([]Topic, MaxTopics+1) }), ErrMalformed},
		"bad class":          {seal("test", 1, func(r *Record) { r.Topics[0].Class = "GPU" }), ErrMalformed},
		"no region":          {seal("test", 1, func(r *Record) { r.Topics[0].Region = "" }), ErrMalformed},
		"long class":         {seal("test", 1, func(r *Record) { r.Topics[0].Class = strings.Repeat("a", 33) }), ErrMalformed},
		"class not UTF-8 ok": {seal("test", 1, func(r *Record) { r.Topics[0].Class = "é" }), ErrMalformed},
	} {
		_, err := decode("test", idOf(1), tc.data, epoch, nil)
		if tc.want == nil && err != nil || !errors.Is(err, tc.want) {
			t.Errorf("%s: got %v, want %v", name, err, tc.want)
		}
	}
	// A peer ID over a key of small order, under which anybody can sign.
	raw, err := hex.DecodeString("002408011220" + "0100000000000000000000000000000000000000000000000000000000000000")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := decode("test", peer.ID(raw), seal("test", 1, nil), epoch, nil); !errors.Is(err, ErrBadSignature) {
		t.Errorf("small-order key: got %v, want ErrBadSignature", err)
	}
}

func TestSelect(t *testing.T) {
	t.Parallel()
	now := time.UnixMilli(time.Now().UnixMilli())
	v := validator{"test", &signed{}}
	at := func(age time.Duration, payload string) []byte {
		signed := now.Add(-age)
		data, err := encode("test", p2ptest.Key(1), Record{Seq: uint64(signed.UnixMilli()), Expires: signed.Add(MaxValidity), Payload: []byte(payload)}, now)
		if err != nil {
			t.Fatal(err)
		}
		return data
	}
	k := key(idOf(1))
	values := [][]byte{at(2*time.Second, "old"), []byte("garbage"), at(0, "new"), at(time.Second, "middle")}
	if i, err := v.Select(k, values); i != 2 || err != nil {
		t.Errorf("selected %d, %v; want 2", i, err)
	}
	a, b := at(0, "a"), at(0, "b")
	first, err1 := v.Select(k, [][]byte{a, b})
	second, err2 := v.Select(k, [][]byte{b, a})
	if first == second || err1 != nil || err2 != nil {
		t.Error("the choice between equal sequences depends on their order")
	}
	if _, err := v.Select(k, [][]byte{nil}); !errors.Is(err, ErrNotFound) {
		t.Errorf("nothing to select: %v", err)
	}
	for _, k := range []string{"", "/pk/x", "/" + namespace, "/" + namespace + "/", "/" + namespace + "/x", key(idOf(2))} {
		if err := v.Validate(k, a); err == nil {
			t.Errorf("key %q was accepted", k)
		}
	}
	if err := v.Validate(k, a); err != nil {
		t.Error(err)
	}
}

func TestShardsSpread(t *testing.T) {
	t.Parallel()
	counts := make([]int, DefaultShards)
	for i := range 400 {
		counts[shardOf(idOf(i), DefaultShards)]++
	}
	for shard, n := range counts {
		if n < 50 {
			t.Errorf("shard %d got %d of 400 peers", shard, n)
		}
	}
}

func FuzzRecord(f *testing.F) {
	signed, err := encode("test", p2ptest.Key(1), Record{Seq: uint64(epoch.UnixMilli()), Expires: epoch.Add(time.Minute), Topics: []Topic{{"cpu", "local"}}}, epoch)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(signed)
	f.Add(signed[:50])
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, data []byte) {
		// The payload is fuzzed behind the signature too, where only its own decoder stands.
		var s sealed
		if s.UnmarshalRecord(data) == nil && s.check(epoch) == nil {
			again := sealed{}
			text, err := s.MarshalRecord()
			if err != nil || again.UnmarshalRecord(text) != nil || !equal(again.Record, s.Record) {
				t.Fatalf("%+v became %+v: %v", s.Record, again.Record, err)
			}
		}
		r, err := decode("test", idOf(1), data, epoch, nil)
		if err != nil {
			return
		}
		out, err := encode("test", p2ptest.Key(1), r, epoch)
		if err != nil {
			t.Fatal(err)
		}
		if again, err := decode("test", idOf(1), out, epoch, nil); err != nil || !equal(again, r) {
			t.Fatalf("%+v became %+v: %v", r, again, err)
		}
	})
}

// A signature is looked at once while it is among the last that were good; what else is wrong with a record is seen each time.
func TestSignaturesAreRemembered(t *testing.T) {
	t.Parallel()
	now := time.UnixMilli(time.Now().UnixMilli())
	data, err := encode("test", p2ptest.Key(1), Record{Seq: uint64(now.UnixMilli()), Expires: now.Add(MaxValidity)}, now)
	if err != nil {
		t.Fatal(err)
	}
	known := &signed{}
	for range 2 {
		if _, err := decode("test", idOf(1), data, now, known); err != nil {
			t.Error(err)
		}
		if _, err := decode("test", idOf(2), data, now, known); !errors.Is(err, ErrBadSignature) {
			t.Errorf("as another's record: %v", err)
		}
		if _, err := decode("test", idOf(1), data, now.Add(2*MaxValidity), known); !errors.Is(err, ErrExpired) {
			t.Errorf("when it is over: %v", err)
		}
		bad := bytes.Clone(data)
		bad[len(bad)-1] ^= 1
		if _, err := decode("test", idOf(1), bad, now, known); err == nil {
			t.Error("with another signature it is taken")
		}
	}
	looked := 0
	for i := range maxSigned + 1 {
		for range 2 {
			_ = known.once([]byte(strconv.Itoa(i)), func() error { looked++; return nil })
		}
	}
	_ = known.once([]byte("0"), func() error { looked++; return nil })
	if looked != maxSigned+2 || len(known.good) != maxSigned {
		t.Errorf("looked %d times, %d are remembered", looked, len(known.good))
	}
	if err := known.once([]byte("bad"), func() error { return ErrMalformed }); !errors.Is(err, ErrMalformed) {
		t.Errorf("what is bad: %v", err)
	}
}

// BenchmarkPut is what the DHT asks when a record that it holds is offered anew: to judge it, and to choose.
func BenchmarkPut(b *testing.B) {
	now := time.UnixMilli(time.Now().UnixMilli())
	data, err := encode("test", p2ptest.Key(1), Record{Seq: uint64(now.UnixMilli()), Expires: now.Add(MaxValidity)}, now)
	if err != nil {
		b.Fatal(err)
	}
	for name, known := range map[string]*signed{"anew": nil, "known": {}} {
		b.Run(name, func(b *testing.B) {
			v := validator{"test", known}
			b.ReportAllocs()
			for b.Loop() {
				if err := v.Validate(key(idOf(1)), data); err != nil {
					b.Fatal(err)
				}
				if _, err := v.Select(key(idOf(1)), [][]byte{data, data}); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
