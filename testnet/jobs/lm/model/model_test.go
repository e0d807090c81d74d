package model

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

const testBits = 14

// sample is text with something to learn in it.
func sample(n int) []byte {
	var b strings.Builder
	for i := 0; b.Len() < n; i++ {
		fmt.Fprintf(&b, "if err := step%d(ctx, %d); err != nil {\n\treturn fmt.Errorf(\"step %d: %%w\", err)\n}\n", i%7, i*i%100, i%7)
	}
	return []byte(b.String()[:n])
}

func trained(seed, n int) *Model {
	m := New(testBits)
	m.Base = New(testBits).Sum()
	text := sample(n + seed)
	m.Train(text, seed, len(text), nil)
	return m
}

func TestLearns(t *testing.T) {
	t.Parallel()
	text := sample(60_000)
	m := New(testBits)
	before := m.Evaluate(text[50_000:])
	if math.Abs(before-8) > 1e-6 {
		t.Errorf("untrained: %f bits per byte, want 8", before)
	}
	var calls int
	m.Train(text, 0, 50_000, func(done int, bits float64) { calls++ })
	if after := m.Evaluate(text[50_000:]); after > 1 {
		t.Errorf("trained on a repetitive text: %f bits per byte", after)
	}
	if m.Bytes != 50_000 || calls != 1 || !m.Finite() {
		t.Errorf("%d bytes, %d calls", m.Bytes, calls)
	}
}

// goldenSum is the sum of a small model after a fixed training, made on linux/amd64.
const goldenSum = 0x35907384595f8aab

// The same training gives the same bytes on every machine. That WASI is no other machine, cmd/train's test shows.
func TestSameBitsEverywhere(t *testing.T) {
	t.Parallel()
	if got := trained(3, 30_000).Sum(); got != goldenSum {
		t.Errorf("sum %#x, want %#x", got, uint64(goldenSum))
	}
}

func TestTrainingInPartsIsTrainingAtOnce(t *testing.T) {
	t.Parallel()
	text := sample(20_000)
	a, b := New(testBits), New(testBits)
	a.Train(text, 0, len(text), nil)
	for from := 0; from < len(text); from += 777 {
		b.Train(text, from, min(from+777, len(text)), nil)
	}
	if a.Sum() != b.Sum() {
		t.Error("they differ")
	}
}

func TestFileRoundTrip(t *testing.T) {
	t.Parallel()
	m := trained(0, 30_000)
	m.Round = 4
	var file bytes.Buffer
	sum, err := m.Write(&file)
	if err != nil || file.Len() != FileSize(testBits) {
		t.Fatalf("%v, %d bytes", err, file.Len())
	}
	got, gotSum, err := Read(bytes.NewReader(file.Bytes()))
	if err != nil || gotSum != sum || got.Round != 4 || got.Bytes != m.Bytes || got.Base != m.Base {
		t.Fatalf("%v, %+v", err, got)
	}
	var again bytes.Buffer
	if _, err := got.Write(&again); err != nil || !bytes.Equal(file.Bytes(), again.Bytes()) {
		t.Error("what was read is written differently")
	}
	for i, s := range m.Rounded().slots {
		if s != got.slots[i] {
			t.Fatal("Rounded is not what Read gives")
		}
		if d := math.Abs(float64(s.w - m.slots[i].w)); d > 1.0/weightUnit {
			t.Fatalf("weight %f became %f", m.slots[i].w, s.w)
		}
	}
}

func TestReadRefuses(t *testing.T) {
	t.Parallel()
	var file bytes.Buffer
	if _, err := trained(0, 1000).Write(&file); err != nil {
		t.Fatal(err)
	}
	good := file.Bytes()
	edit := func(at int, b byte) []byte {
		c := bytes.Clone(good)
		c[at] = b
		return c
	}
	for name, b := range map[string][]byte{
		"empty": nil, "short": good[:len(good)-1], "long": append(bytes.Clone(good), 0), "header only": good[:headerSize],
		"magic": edit(0, 'X'), "version": edit(4, 2), "tiny table": edit(5, MinBits-1), "huge table": edit(5, 60),
		"reserved": edit(6, 1), "flipped": edit(100, good[100]^1), "sum": edit(len(good)-1, good[len(good)-1]^1),
	} {
		if _, _, err := Read(bytes.NewReader(b)); !errors.Is(err, ErrMalformed) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func FuzzRead(f *testing.F) {
	var file bytes.Buffer
	m := New(MinBits)
	m.Train(sample(300), 0, 300, nil)
	if _, err := m.Write(&file); err != nil {
		f.Fatal(err)
	}
	f.Add(file.Bytes())
	f.Add(file.Bytes()[:headerSize])
	f.Add([]byte("STLM\x01\x16"))
	f.Fuzz(func(t *testing.T, b []byte) {
		m, sum, err := Read(bytes.NewReader(b))
		if err != nil {
			return
		}
		var again bytes.Buffer
		if s, err := m.Write(&again); err != nil || s != sum || !bytes.Equal(b, again.Bytes()) {
			t.Fatal("what was read is written differently")
		}
		if !m.Finite() {
			t.Fatal("a weight is no number")
		}
	})
}

func TestAverageOfOneIsThatOne(t *testing.T) {
	t.Parallel()
	base := New(testBits)
	w := trained(0, 20_000).Rounded()
	out, err := Average(base, base.Sum(), []*Model{w})
	if err != nil {
		t.Fatal(err)
	}
	for i := range out.slots {
		if math.Abs(float64(out.slots[i].w-w.slots[i].w)) > 1e-5 || out.slots[i].g != w.slots[i].g {
			t.Fatalf("weight %d: %v, want %v", i, out.slots[i], w.slots[i])
		}
	}
	if out.Round != 1 || out.Bytes != w.Bytes {
		t.Errorf("round %d, %d bytes", out.Round, out.Bytes)
	}
}

func TestAverageKeepsWhatOneWorkerAloneLearnt(t *testing.T) {
	t.Parallel()
	base := New(testBits)
	w, idle := trained(0, 20_000).Rounded(), New(testBits)
	idle.Base = base.Sum()
	out, err := Average(base, base.Sum(), []*Model{idle, w, idle})
	if err != nil {
		t.Fatal(err)
	}
	text := sample(30_000)
	if a, b := out.Evaluate(text), w.Evaluate(text); math.Abs(a-b) > 1e-3 {
		t.Errorf("%f bits per byte, alone %f", a, b)
	}
}

func TestAverageRefuses(t *testing.T) {
	t.Parallel()
	base := New(testBits)
	ok := trained(0, 100)
	other, late, small := *ok, *ok, *New(testBits - 1)
	other.Base++
	late.Round++
	for name, w := range map[string][]*Model{"none": nil, "other base": {ok, &other}, "other round": {&late}, "other table": {ok, &small}} {
		if _, err := Average(base, base.Sum(), w); !errors.Is(err, ErrMismatch) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// The join of one weight: between nothing and the sum of the changes, whatever the order of the workers.
func TestJoin(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		b := slot{w: rapid.Float32Range(-4, 4).Draw(t, "w"), g: rapid.Float32Range(0, 1e5).Draw(t, "g")}
		var workers []*Model
		var sum, most float32
		for range rapid.IntRange(1, 6).Draw(t, "workers") {
			s := slot{w: b.w + rapid.Float32Range(0, 2).Draw(t, "change"), g: b.g + rapid.Float32Range(0, 1e4).Draw(t, "d")}
			sum += s.w - b.w
			most = max(most, s.w-b.w)
			workers = append(workers, &Model{slots: []slot{s}})
		}
		out := join(b, 0, workers)
		if change := out.w - b.w; change < -1e-3 || change > sum+1e-2 || math.IsNaN(float64(change)) {
			t.Fatalf("changes of %f in all became %f", sum, change)
		}
		for i, j := 0, len(workers)-1; i < j; i, j = i+1, j-1 {
			workers[i], workers[j] = workers[j], workers[i]
		}
		if back := join(b, 0, workers); math.Abs(float64(back.w-out.w)) > 1e-3 {
			t.Fatalf("the order of workers matters: %f, %f", out.w, back.w)
		}
	})
}

func TestLogistic(t *testing.T) {
	t.Parallel()
	for x := -17.0; x <= 17; x += 0.01 {
		want := 1 / (1 + math.Exp(-min(max(x, -maxLogit), maxLogit)))
		if got := float64(logistic(float32(x))); math.Abs(got-want) > 1e-5*max(want, 1e-2) || got <= 0 || got >= 1 {
			t.Fatalf("logistic(%f) = %g, want %g", x, got, want)
		}
	}
	for _, x := range []float64{-16, -1, 0, 0.5, 16} {
		if got := exp(x); math.Abs(got/math.Exp(x)-1) > 1e-12 {
			t.Errorf("exp(%f) = %g", x, got)
		}
	}
}

func BenchmarkTrain(b *testing.B) {
	text := sample(1 << 16)
	m := New(DefaultBits)
	b.SetBytes(int64(len(text)))
	b.ReportAllocs()
	for b.Loop() {
		m.Train(text, 0, len(text), nil)
	}
}
