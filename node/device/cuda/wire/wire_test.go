package wire

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"reflect"
	"strings"
	"testing"

	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/node/device"
	"github.com/starling-network/starling/verify/challenge"
)

var (
	set       = device.Dataset{Seed: sign.Hash{1, 2}, Cells: 1 << 33, Work: 64}
	questions = []Question{
		{ID: 1, Op: Describe},
		{ID: 2, Op: Multiply, Seed: sign.Hash{3}, Shape: challenge.Shape{Rows: 64, Columns: 128, Depth: 192, Products: 5}},
		{ID: 3, Op: Fill, Dataset: set, Reserve: 1 << 30},
		{ID: 4, Op: Evict},
		{ID: 5, Op: Walk, Key: 1 << 63, Dataset: set, Walk: challenge.Walk{Cells: set.Cells, Work: set.Work, Walkers: 7, Steps: 9}},
		{ID: 6, Op: Again, Key: 1 << 63, Dataset: set, Walk: challenge.Walk{Cells: set.Cells, Work: set.Work, Walkers: 70, Steps: 9}, Group: 1},
		{ID: 5, Op: Cancel},
	}
	answers = []Answer{
		{ID: 1, Form: Described, About: Description{Capability: 90, Driver: 12040, Free: 1, Total: 2, UUID: [16]byte{15: 1}, Name: "NVIDIA H100"}},
		{ID: 2, Form: Tiles, Raw: make([]byte, 64)},
		{ID: 2, Form: Part, Raw: make([]byte, 96)},
		{ID: 2, Form: Groups, Raw: make([]byte, 32)},
		{ID: 3, Form: Ends, Raw: []byte{1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 128}},
		{ID: 4, Form: Done, Free: 99},
		{ID: 5, Form: Failed, Code: CodeMemory, Text: "too much"},
	}
)

func frame(t testing.TB, a Answer) []byte {
	t.Helper()
	var b bytes.Buffer
	if n, err := a.WriteTo(&b); err != nil || n != int64(b.Len()) {
		t.Fatal(n, err)
	}
	return b.Bytes()
}

// Long frames are read in parts.
func TestLong(t *testing.T) {
	t.Parallel()
	raw := make([]byte, 1<<20)
	for i := range raw {
		raw[i] = byte(i * i >> 8)
	}
	b := frame(t, Answer{Form: Tiles, Raw: raw})
	got, err := Read(bufio.NewReader(bytes.NewReader(b)), MaxAnswer)
	if err != nil {
		t.Fatal(err)
	}
	if a, err := UnmarshalAnswer(got); err != nil || !bytes.Equal(a.Raw, raw) {
		t.Error(err)
	}
	if _, err := Read(bufio.NewReader(bytes.NewReader(b[:len(b)-1])), MaxAnswer); !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Error(err)
	}
	if h := Hashes(raw); len(h) != 1<<15 || h[1] != sign.Hash(raw[32:]) {
		t.Error("hashes")
	}
	if v := States(raw); len(v) != 1<<17 || v[3] != binary.LittleEndian.Uint64(raw[24:]) {
		t.Error("states")
	}
}

func TestRoundTrip(t *testing.T) {
	t.Parallel()
	var all []byte
	for _, q := range questions {
		all = append(all, q.Marshal()...)
	}
	r := bufio.NewReader(bytes.NewReader(all))
	for _, q := range questions {
		b, err := Read(r, MaxQuestion)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := UnmarshalQuestion(b); err != nil || got != q {
			t.Errorf("%+v, %v, want %+v", got, err, q)
		}
	}
	if _, err := Read(r, MaxQuestion); !errors.Is(err, io.EOF) {
		t.Error(err)
	}
	for _, a := range answers {
		b := frame(t, a)
		if got, err := UnmarshalAnswer(b[4:]); err != nil || !reflect.DeepEqual(got, a) {
			t.Errorf("%+v, %v, want %+v", got, err, a)
		}
		for n := range len(b) {
			if _, err := Read(bufio.NewReader(bytes.NewReader(b[:n])), MaxAnswer); err == nil {
				t.Errorf("%d of %d bytes are a frame", n, len(b))
			}
		}
	}
}

func TestRefuses(t *testing.T) {
	t.Parallel()
	change := func(b []byte, at int, v byte) []byte {
		b = bytes.Clone(b[4:])
		b[at] = v
		return b
	}
	for i, b := range [][]byte{
		nil, change(questions[0].Marshal(), 0, 1), change(questions[0].Marshal(), 1, 9), change(questions[0].Marshal(), 1, 2),
		change(questions[1].Marshal(), headSize+32, 65),              // rows
		change(questions[2].Marshal(), headSize+32+7, 1),             // cells
		change(questions[2].Marshal(), headSize+32+8, 0),             // work
		change(questions[4].Marshal(), headSize+8+datasetSize+20, 1), // reserved
		append(questions[3].Marshal()[4:], 0),
		change(questions[5].Marshal(), headSize+8+datasetSize+challenge.WalkSize, 2), // group
	} {
		if q, err := UnmarshalQuestion(b); !errors.Is(err, ErrMalformed) {
			t.Errorf("%d: %+v, %v", i, q, err)
		}
	}
	for i, b := range [][]byte{
		nil, change(frame(t, answers[0]), 0, 1), change(frame(t, answers[0]), 1, 9), change(frame(t, answers[0]), headSize+describedSize, '\n'),
		frame(t, answers[0])[4 : 4+headSize+describedSize-1], append(frame(t, answers[1])[4:], 0), append(frame(t, answers[2])[4:], 0),
		append(frame(t, answers[3])[4:], 0), append(frame(t, answers[4])[4:], 0), append(frame(t, answers[5])[4:], 0),
		change(frame(t, answers[6]), headSize, 0), change(frame(t, answers[6]), headSize, 7), frame(t, answers[6])[4 : 4+headSize],
		frame(t, Answer{Form: Failed, Code: CodeMemory, Text: strings.Repeat("x", maxText+1)})[4:],
		frame(t, Answer{Form: Tiles, Raw: make([]byte, (MaxTiles+1)*sign.HashSize)})[4:], frame(t, Answer{Form: Ends, Raw: make([]byte, 65*8)})[4:],
	} {
		if a, err := UnmarshalAnswer(b); !errors.Is(err, ErrMalformed) {
			t.Errorf("%d: %+v, %v", i, a, err)
		}
	}
	for _, n := range []uint32{0, headSize - 1, MaxQuestion + 1, 1<<32 - 1} {
		if _, err := Read(bufio.NewReader(bytes.NewReader(binary.LittleEndian.AppendUint32(nil, n))), MaxQuestion); !errors.Is(err, ErrMalformed) {
			t.Errorf("a frame of %d: %v", n, err)
		}
	}
}

// Whatever is read as a question or an answer is written as it was.
func FuzzQuestion(f *testing.F) {
	for _, q := range questions {
		f.Add(q.Marshal())
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		b, err := Read(bufio.NewReader(bytes.NewReader(data)), MaxQuestion)
		if err != nil {
			return
		}
		q, err := UnmarshalQuestion(b)
		if err != nil {
			return
		}
		if got := q.Marshal(); !bytes.Equal(got, data[:len(got)]) || !bytes.Equal(got[4:], b) {
			t.Fatalf("%x is %+v, which is %x", data, q, got)
		}
	})
}

func FuzzAnswer(f *testing.F) {
	for _, a := range answers {
		f.Add(frame(f, a))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		b, err := Read(bufio.NewReader(bytes.NewReader(data)), MaxAnswer)
		if err != nil {
			return
		}
		a, err := UnmarshalAnswer(b)
		if err != nil {
			return
		}
		if got := frame(t, a); !bytes.Equal(got, data[:len(got)]) || !bytes.Equal(got[4:], b) {
			t.Fatalf("%x is %+v, which is %x", data, a, got)
		}
	})
}
