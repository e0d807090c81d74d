package exclusive_test

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"reflect"
	"testing"
	"time"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/verify/challenge"
	"github.com/starling-network/starling/verify/exclusive"
	"pgregory.net/rapid"
)

var rewrite = flag.Bool("rewrite", false, "write the test vectors instead of checking them")

var domain = sign.Domain{Network: "test", Chain: sign.Hash{1}}

var provider, buyer = sign.NewPrivate([32]byte{1}), sign.NewPrivate([32]byte{2})

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

func lease() market.Lease {
	core := market.LeaseCore{Version: market.LeaseVersion, Units: 1, Order: market.OrderID{1}, Buyer: buyer.Key(), Provider: provider.Key(),
		Payout: provider.Key(), Rate: 1_000_000, Cap: 9000, Start: 10, ActivateBefore: 20, End: 9010}
	return market.Lease{Core: core, ProviderSig: must(core.Sign(domain, provider)), BuyerSig: must(core.Sign(domain, buyer))}
}

func question(n uint64) exclusive.Question {
	return exclusive.Question{Lease: lease().Core.ID(), Execution: 1, Number: n, Nonce: exclusive.Nonce{7}, Shape: exclusive.Fit(exclusive.CPU, 0), At: 500}
}

// answer computes a question, with every tile from cheat on left out.
func answer(q exclusive.Question, cheat int) *challenge.Commitment {
	g := challenge.ProductGenerator(q.Seed())
	tiles := make([]sign.Hash, q.Shape.Tiles())
	for i := range tiles {
		if i < cheat {
			tiles[i] = challenge.NewTile(&g, q.Shape, q.Shape.Place(i)).Hash()
		} else {
			tiles[i] = (&challenge.Tile{}).Hash()
		}
	}
	return must(challenge.Commit(q.Shape, tiles))
}

// probe is a record whose provider computes the first tiles only, and opens zeros for the rest.
func probe(honest int) exclusive.Record {
	q := question(1)
	c := answer(q, honest)
	a := exclusive.Answer{Seed: q.Seed(), Root: c.Root()}
	r := exclusive.Record{Lease: lease(), Question: q, Root: a.Root, Draw: exclusive.Nonce{9}, Elapsed: 25 * time.Millisecond, Trip: 5 * time.Millisecond, Known: 7e9}
	leaves, _ := exclusive.Draw(a, r.Draw, q.Shape)
	g := challenge.ProductGenerator(q.Seed())
	o := must(c.OpenTiles(leaves, func(i int) *challenge.Tile {
		if i < honest {
			return challenge.NewTile(&g, q.Shape, q.Shape.Place(i))
		}
		return &challenge.Tile{}
	}))
	r.Openings = o.Marshal()
	return signed(r)
}

func signed(r exclusive.Record) exclusive.Record {
	r.QuestionSig = must(r.Question.Sign(domain, buyer))
	r.AnswerSig = must(r.Answer().Sign(domain, provider))
	r.OpenedSig = must(r.Opened().Sign(domain, provider))
	r.MeasuredSig = must(r.Measured().Sign(domain, buyer))
	return r
}

func TestRecord(t *testing.T) {
	t.Parallel()
	r := probe(16)
	if err := r.Check(domain); err != nil {
		t.Fatal(err)
	}
	again, err := exclusive.UnmarshalRecord(r.Marshal())
	if err != nil || again.Hash() != r.Hash() {
		t.Fatal(err)
	}
	if size := len(r.Marshal()); size > exclusive.MaxRecord {
		t.Errorf("%d bytes", size)
	}
	if err := probe(8).Check(domain); !exclusive.Wrong(err) {
		t.Errorf("half of it computed: %v", err)
	}
	other := question(2)
	for what, change := range map[string]func(r *exclusive.Record){
		"another question":  func(r *exclusive.Record) { r.Question = other },
		"another root":      func(r *exclusive.Record) { r.Root[0]++ },
		"another draw":      func(r *exclusive.Record) { r.Draw[0]++ },
		"another time":      func(r *exclusive.Record) { r.Elapsed++ },
		"another trip":      func(r *exclusive.Record) { r.Trip++ },
		"more known":        func(r *exclusive.Record) { r.Known++ },
		"other openings":    func(r *exclusive.Record) { r.Openings[10]++ },
		"no lease":          func(r *exclusive.Record) { r.Lease.BuyerSig[3]++ },
		"the wrong parties": func(r *exclusive.Record) { r.AnswerSig, r.QuestionSig = r.QuestionSig, r.AnswerSig },
	} {
		bad := must(exclusive.UnmarshalRecord(r.Marshal()))
		change(&bad)
		if err := bad.Check(domain); !errors.Is(err, exclusive.ErrRecord) {
			t.Errorf("%s: %v", what, err)
		}
	}
	// What the provider signed for and is not the product stands against it, whatever it is.
	for what, change := range map[string]func(r *exclusive.Record){
		"an entry":    func(r *exclusive.Record) { r.Openings[7]++ },
		"none at all": func(r *exclusive.Record) { r.Openings = nil },
		"more":        func(r *exclusive.Record) { r.Openings = append(r.Openings, 0) },
	} {
		bad := must(exclusive.UnmarshalRecord(r.Marshal()))
		change(&bad)
		if err := signed(bad).Check(domain); !exclusive.Wrong(err) {
			t.Errorf("%s: %v", what, err)
		}
	}
	if err := r.Check(sign.Domain{Network: "other", Chain: sign.Hash{1}}); !errors.Is(err, exclusive.ErrRecord) {
		t.Errorf("on another network: %v", err)
	}
}

func TestFit(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		k := exclusive.Kind(rapid.IntRange(0, 1).Draw(t, "kind"))
		rate := rapid.Uint64().Draw(t, "rate")
		q := question(1)
		q.Shape = exclusive.Fit(k, rate)
		if err := q.Check(); err != nil || q.Kind() != k || q.Shape.Leaves() > 1<<25 {
			t.Fatalf("%s: %v", q.Shape, err)
		}
		took := float64(q.Shape.Operations()) / float64(max(rate, 1))
		if one := float64(exclusive.Fit(k, 0).Operations()); q.Shape.Products > 1 && q.Shape.Products < exclusive.MaxProducts && (took < 0.013 || took > 0.027) && one < 0.01*float64(rate) {
			t.Fatalf("%s takes %.3f s", q.Shape, took)
		}
	})
	q := question(1)
	for _, s := range []challenge.Shape{{Rows: 64, Columns: 64, Depth: 64, Products: 1}, {Rows: 256, Columns: 256, Depth: 512, Products: 257},
		{Rows: 8192, Columns: 8192, Depth: 32768, Products: 8}} {
		if q.Shape = s; !errors.Is(q.Check(), exclusive.ErrSize) {
			t.Errorf("%s was taken", s)
		}
	}
}

// TestBudget: however probes come and whatever they cost, all together they take at most a thousandth of the lease.
func TestBudget(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		b := exclusive.Budget{Lease: time.Duration(rapid.Int64Range(0, int64(1000*time.Hour)).Draw(t, "lease"))}
		for range rapid.IntRange(0, 50).Draw(t, "probes") {
			cost := time.Duration(rapid.Int64Range(-5, int64(2*time.Second)).Draw(t, "cost"))
			if gap := b.Gap(cost, rapid.Bool().Draw(t, "soon"), rapid.Uint64().Draw(t, "random")); gap < 0 {
				t.Fatalf("a gap of %v", gap)
			}
			if b.Allows(cost) {
				b.Spent += cost
			}
		}
		if b.Spent > b.Lease/exclusive.Share {
			t.Fatalf("%v of %v", b.Spent, b.Lease)
		}
	})
	b, r := exclusive.Budget{Lease: 24 * time.Hour}, rand.New(rand.NewPCG(1, 2))
	var sum, soon time.Duration
	const n = 20_000
	for range n {
		sum += b.Gap(100*time.Millisecond, false, r.Uint64())
		soon += b.Gap(100*time.Millisecond, true, r.Uint64())
	}
	if mean := sum / n; mean < 195*time.Second || mean > 205*time.Second {
		t.Errorf("mean gap %v, half of the budget is one in 200 s", mean)
	}
	if mean := soon / n; mean < 24*time.Second || mean > 26*time.Second {
		t.Errorf("mean gap after a slow one %v", mean)
	}
}

// TestWatch: the rule says contended exactly when the last two judged are at three fifths or less, and what is known only grows.
func TestWatch(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		w := exclusive.Watch{Proven: rapid.SampledFrom([]uint64{0, 0, 10e9}).Draw(t, "proven")}
		slow := 0
		for i := range rapid.IntRange(0, 40).Draw(t, "probes") {
			o := exclusive.Observe(exclusive.Fit(exclusive.CPU, 10e9), time.Duration(rapid.Int64Range(1, int64(time.Second)).Draw(t, "elapsed")),
				time.Duration(rapid.Int64Range(0, int64(time.Second)).Draw(t, "trip")))
			known := w.Known()
			next, verdict := w.See(o)
			want := exclusive.Learning
			switch {
			case known == 0:
			case o.Rate() > known*3/5:
				want, slow = exclusive.Fine, 0
			default:
				if want, slow = exclusive.Slow, slow+1; slow > 1 {
					want = exclusive.Contended
				}
			}
			if verdict != want || next.Probes != i+1 || next.InARow != slow {
				t.Fatalf("probe %d: %s, want %s: %+v", i, verdict, want, next)
			}
			if len(w.Fastest) >= 5 && next.Known() < known {
				t.Fatalf("known went from %d to %d", known, next.Known())
			}
			w = next
		}
		raw := must(json.Marshal(w))
		var back exclusive.Watch
		if err := json.Unmarshal(raw, &back); err != nil || fmt.Sprint(back) != fmt.Sprint(w) {
			t.Fatalf("%+v after %+v", back, w)
		}
	})
	var w exclusive.Watch
	for _, ms := range []int{20, 20, 21, 20, 19, 45, 20, 45, 46, 20} {
		w, _ = w.See(exclusive.Observe(exclusive.Fit(exclusive.CPU, 0), time.Duration(ms)*time.Millisecond, 0))
	}
	if want := "10 probes, slowest 0.43 of the fastest; contended 1 times: two in a row at three fifths of the speed or less"; w.Text() != want {
		t.Errorf("%q", w.Text())
	}
}

func snapshot(when exclusive.When) exclusive.Snapshot {
	return exclusive.Snapshot{When: when, Lease: lease().Core.ID(), Execution: 1, At: 100, CPUs: 16, MemoryMiB: 65536, CPUModel: "EPYC 7B13", Devices: []exclusive.Device{
		{Unit: market.UnitID{1}, UUID: "GPU-1", Model: "H100", Tells: exclusive.TellsECC | exclusive.TellsXid | exclusive.TellsTemperature, TemperatureC: 41, Correctable: 3},
		{Unit: market.UnitID{2}, UUID: "GPU-2", Model: "H100", Throttle: "power cap", Tells: exclusive.TellsClock, ClockMHz: 1980},
	}}
}

func TestSnapshots(t *testing.T) {
	t.Parallel()
	s := snapshot(exclusive.Before)
	for _, by := range []sign.Private{provider, buyer} {
		if err := s.Verify(domain, by.Key(), must(s.Sign(domain, by))); err != nil {
			t.Error(err)
		}
	}
	if err := s.Verify(domain, provider.Key(), must(s.Sign(domain, buyer))); err == nil {
		t.Error("the buyer's signature is taken for the provider's")
	}
	for what, c := range map[string]struct {
		change func(s *exclusive.Snapshot)
		fault  bool
		text   string
	}{
		"ECC":         {func(s *exclusive.Snapshot) { s.Devices[0].Uncorrectable = 2 }, true, "2 uncorrectable memory errors"},
		"corrected":   {func(s *exclusive.Snapshot) { s.Devices[0].Correctable = 5 }, false, "2 correctable memory errors"},
		"reloaded":    {func(s *exclusive.Snapshot) { s.Devices[0].Correctable = 0 }, false, "memory error counters reset: driver reloaded"},
		"fault":       {func(s *exclusive.Snapshot) { d := &s.Devices[0]; d.Xids, d.LastXid, d.FaultXid = 1, 79, 79 }, true, "1 Xid errors, of which 79 is a fault of the device"},
		"the program": {func(s *exclusive.Snapshot) { d := &s.Devices[0]; d.Xids, d.LastXid = 1, 13 }, false, "1 Xid errors, the last 13"},
		"another":     {func(s *exclusive.Snapshot) { s.Devices[1].UUID = "GPU-3" }, false, "was H100 GPU-2, is H100 GPU-3"},
		"gone":        {func(s *exclusive.Snapshot) { s.Devices = s.Devices[:1] }, true, "H100 is gone"},
		"silent": {func(s *exclusive.Snapshot) {
			s.Devices[0].Tells, s.Devices[0].Correctable, s.Devices[0].TemperatureC = 0, 0, 0
		}, false, "driver no longer reports errors"},
		"machine": {func(s *exclusive.Snapshot) { s.CPUs = 8 }, false, "the machine had 16 × EPYC 7B13 with 65536 MiB, and has 8 × EPYC 7B13 with 65536 MiB"},
	} {
		after := snapshot(exclusive.After)
		c.change(&after)
		if got := exclusive.Changes(s, after); len(got) != 1 || got[0].Text != c.text || got[0].Fault != c.fault {
			t.Errorf("%s: %+v", what, got)
		}
	}
	if got := exclusive.Changes(s, snapshot(exclusive.After)); len(got) != 0 {
		t.Errorf("nothing changed: %+v", got)
	}
	many := snapshot(exclusive.Before)
	many.Devices = nil
	long := string(bytes.Repeat([]byte("x"), exclusive.MaxText))
	for i := range exclusive.MaxDevices {
		many.Devices = append(many.Devices, exclusive.Device{Unit: market.UnitID{byte(i)}, UUID: "GPU-6f9dd3b5-8b6c-4a5e-a3c2-b0b6a7f2d5b1", Model: long})
	}
	if _, err := exclusive.UnmarshalSnapshot(many.Marshal()); err != nil {
		t.Error(err)
	}
}

type vectors struct {
	Provider string `json:"providerSeed"`
	Buyer    string `json:"buyerSeed"`
	Domain   sign.Domain
	Records  []struct {
		Record string `json:"record"`
		Says   string `json:"says"`
	} `json:"records"`
	Snapshot  string         `json:"snapshot"`
	Signature sign.Signature `json:"snapshotSignature"`
}

func TestVectors(t *testing.T) {
	t.Parallel()
	var v vectors
	seed := func(s sign.Private) string { b := s.Seed(); return hex.EncodeToString(b[:]) }
	v.Provider, v.Buyer, v.Domain = seed(provider), seed(buyer), domain
	unsigned := probe(16)
	unsigned.AnswerSig[0]++
	for _, r := range []exclusive.Record{probe(16), probe(8), unsigned} {
		says := "right"
		if err := r.Check(domain); exclusive.Wrong(err) {
			says = "wrong"
		} else if err != nil {
			says = "nothing"
		}
		v.Records = append(v.Records, struct {
			Record string `json:"record"`
			Says   string `json:"says"`
		}{hex.EncodeToString(r.Marshal()), says})
	}
	v.Snapshot, v.Signature = hex.EncodeToString(snapshot(exclusive.After).Marshal()), must(snapshot(exclusive.After).Sign(domain, provider))
	path := filepath.Join("testdata", "vectors.json")
	got := append(must(json.MarshalIndent(v, "", "\t")), '\n')
	if *rewrite {
		if err := os.WriteFile(path, got, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if want := must(os.ReadFile(path)); !bytes.Equal(want, got) {
		t.Error("the vectors differ; run with -rewrite if that is meant")
	}
	for i, says := range []string{"right", "wrong", "nothing"} {
		if v.Records[i].Says != says {
			t.Errorf("record %d is %s", i, v.Records[i].Says)
		}
	}
}

func FuzzRecord(f *testing.F) {
	f.Add(probe(16).Marshal())
	f.Add(probe(4).Marshal())
	f.Fuzz(func(t *testing.T, b []byte) {
		r, err := exclusive.UnmarshalRecord(b)
		if err != nil {
			return
		}
		if !bytes.Equal(r.Marshal(), b) {
			t.Fatal("decoded and encoded again it differs")
		}
		_ = r.Check(domain)
		_ = exclusive.CheckOpened(r.Question, r.Answer(), r.Draw, r.Openings)
	})
}

func FuzzQuestion(f *testing.F) {
	q := question(1).Marshal()
	f.Add(q[:])
	f.Fuzz(func(t *testing.T, b []byte) {
		q, err := exclusive.UnmarshalQuestion(b)
		if err != nil {
			return
		}
		if got := q.Marshal(); !bytes.Equal(got[:], b) {
			t.Fatal("decoded and encoded again it differs")
		}
	})
}

func FuzzSnapshot(f *testing.F) {
	f.Add(snapshot(exclusive.After).Marshal())
	f.Fuzz(func(t *testing.T, b []byte) {
		s, err := exclusive.UnmarshalSnapshot(b)
		if err != nil {
			return
		}
		if !bytes.Equal(s.Marshal(), b) {
			t.Fatal("decoded and encoded again it differs")
		}
		other := snapshot(exclusive.Before)
		_, _ = exclusive.Changes(other, s), exclusive.Changes(s, other)
		if len(exclusive.Changes(s, s)) != 0 {
			t.Fatalf("it differs from itself: %+v", exclusive.Changes(s, s))
		}
	})
}

// Snapshots of every form come back as they were.
func TestSnapshotCodec(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.StringMatching(`[ -~]{1,40}`)
		s := exclusive.Snapshot{When: exclusive.When(rapid.IntRange(0, 1).Draw(t, "when")), Execution: rapid.Uint64Min(1).Draw(t, "execution"),
			At: market.Slot(rapid.Uint64().Draw(t, "at")), CPUs: rapid.Uint32().Draw(t, "cpus"), MemoryMiB: rapid.Uint32().Draw(t, "memory"), CPUModel: text.Draw(t, "cpu")}
		for i := range rapid.IntRange(0, exclusive.MaxDevices).Draw(t, "devices") {
			d := exclusive.Device{UUID: text.Draw(t, "uuid"), Model: text.Draw(t, "model"), Tells: exclusive.TellsClock | exclusive.TellsXid, ClockMHz: rapid.Uint32().Draw(t, "clock"),
				Xids: rapid.Uint64().Draw(t, "xids"), LastXid: rapid.Uint32().Draw(t, "last")}
			binary.BigEndian.PutUint32(d.Unit[:], uint32(i))
			s.Devices = append(s.Devices, d)
		}
		got, err := exclusive.UnmarshalSnapshot(s.Marshal())
		if err != nil || !reflect.DeepEqual(got, s) {
			t.Fatalf("%v: %+v after %+v", err, got, s)
		}
	})
}

// What a buyer pays for a probe: everything but the waiting.
func BenchmarkCheck(b *testing.B) {
	r := probe(16)
	b.ReportAllocs()
	for b.Loop() {
		if err := exclusive.CheckOpened(r.Question, r.Answer(), r.Draw, r.Openings); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkRecordCheck(b *testing.B) {
	r := probe(16)
	b.ReportAllocs()
	for b.Loop() {
		if err := r.Check(domain); err != nil {
			b.Fatal(err)
		}
	}
}
