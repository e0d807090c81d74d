package exclusive_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/verify/challenge"
	"github.com/starling-network/starling/verify/exclusive"
	"pgregory.net/rapid"
)

// put returns a change that writes little-endian bytes at an offset.
func put(at int, v ...byte) func([]byte) []byte {
	return func(b []byte) []byte {
		copy(b[at:], v)
		return b
	}
}

func put64(at int, v uint64) func([]byte) []byte {
	return put(at, binary.LittleEndian.AppendUint64(nil, v)...)
}

func cut(n int) func([]byte) []byte { return func(b []byte) []byte { return b[:len(b)-n] } }
func longer(n int) func([]byte) []byte {
	return func(b []byte) []byte { return append(b, make([]byte, n)...) }
}

// refused runs a decoder over changed copies of a good layout. Each must fail with one of the errors.
func refused(
	t *testing.T, good []byte, decode func([]byte) error, want []error, changes map[string]func([]byte) []byte,
) {
	t.Helper()
	if err := decode(bytes.Clone(good)); err != nil {
		t.Fatalf("the good layout: %v", err)
	}
	for what, change := range changes {
		err := decode(change(bytes.Clone(good)))
		ok := false
		for _, w := range want {
			ok = ok || errors.Is(err, w)
		}
		if !ok {
			t.Errorf("%s: %v, want one of %v", what, err, want)
		}
	}
}

func TestQuestionLayoutRefused(t *testing.T) {
	t.Parallel()
	good := question(1).Marshal()
	decode := func(b []byte) error {
		_, err := exclusive.UnmarshalQuestion(b)
		return err
	}
	changes := map[string]func([]byte) []byte{
		"empty": cut(len(good)), "a byte less": cut(1), "a byte more": longer(1),
		"version 0": put(0, 0), "version 2": put(0, 2),
		"execution 0": put64(40, 0), "number 0": put64(48, 0),
		"no rows": put(72, 0, 0, 0, 0),
	}
	for i := 2; i < 8; i++ {
		changes["reserved byte "+string(rune('0'+i))] = put(i, 1)
	}
	refused(t, good[:], decode, []error{market.ErrMalformed}, changes)
	// Shapes with a layout that no probe has: one step away from both kinds in each side.
	for _, k := range []exclusive.Kind{exclusive.CPU, exclusive.GPU} {
		for what, change := range map[string]func(*challenge.Shape){
			"rows":          func(s *challenge.Shape) { s.Rows += challenge.TileSide },
			"columns":       func(s *challenge.Shape) { s.Columns += challenge.TileSide },
			"depth":         func(s *challenge.Shape) { s.Depth -= challenge.BlockSize },
			"most products": func(s *challenge.Shape) { s.Products = exclusive.MaxProducts + 1 },
		} {
			q := question(1)
			q.Shape = exclusive.Fit(k, 0)
			change(&q.Shape)
			b := q.Marshal()
			if err := decode(b[:]); !errors.Is(err, exclusive.ErrSize) && !errors.Is(err, market.ErrMalformed) {
				t.Errorf("kind %d, %s: %v", k, what, err)
			}
		}
	}
}

// TestQuestionCodec: the layout holds every field, and no two questions share a seed.
func TestQuestionCodec(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		draw := func(label string) exclusive.Question {
			q := exclusive.Question{
				Unit:      rapid.Byte().Draw(t, label+" unit"),
				Execution: rapid.Uint64Min(1).Draw(t, label+" execution"),
				Number:    rapid.Uint64Min(1).Draw(t, label+" number"),
				Shape: exclusive.Fit(exclusive.Kind(rapid.IntRange(0, 1).Draw(t, label+" kind")),
					rapid.Uint64().Draw(t, label+" rate")),
				At: market.Slot(rapid.Uint64().Draw(t, label+" slot")),
			}
			copy(q.Lease[:], rapid.SliceOfN(rapid.Byte(), 32, 32).Draw(t, label+" lease"))
			copy(q.Nonce[:], rapid.SliceOfN(rapid.Byte(), 16, 16).Draw(t, label+" nonce"))
			return q
		}
		q, other := draw("one"), draw("other")
		b := q.Marshal()
		if back, err := exclusive.UnmarshalQuestion(b[:]); err != nil || back != q {
			t.Fatalf("%+v comes back as %+v, %v", q, back, err)
		}
		if (q == other) != (q.Seed() == other.Seed()) {
			t.Fatalf("seeds of %+v and %+v", q, other)
		}
	})
}

func TestRecordLayoutRefused(t *testing.T) {
	t.Parallel()
	good := probe(16).Marshal()
	decode := func(b []byte) error {
		_, err := exclusive.UnmarshalRecord(b)
		return err
	}
	const size = 856 // of the openings' length
	changes := map[string]func([]byte) []byte{
		"empty": cut(len(good)), "the head alone, cut": cut(len(good) - 859),
		"a byte less": cut(1), "a byte more": longer(1),
		"version 0": put(0, 0), "version 2": put(0, 2),
		"no lease version":            put(8, 0),
		"question of execution 0":     put64(432+40, 0),
		"question's version":          put(432, 9),
		"an answer after 2⁶³ ns":      put64(768, 1<<63),
		"a round trip of 2⁶³ ns":      put64(776, 1<<63),
		"openings shorter than it is": put(size, 0, 0),
		"openings of 4 GiB":           put(size, 255, 255, 255, 255),
		"longer than any record": func(b []byte) []byte {
			b = append(b, make([]byte, exclusive.MaxRecord+1-len(b))...)
			binary.LittleEndian.PutUint32(b[size:], uint32(len(b)-size-4))
			return b
		},
	}
	for i := 1; i < 8; i++ {
		changes["reserved byte "+string(rune('0'+i))] = put(i, 1)
	}
	refused(t, good, decode, []error{market.ErrMalformed}, changes)
	// No part of a record is a record.
	for n := range len(good) {
		if decode(good[:n]) == nil {
			t.Fatalf("the first %d bytes of %d are taken", n, len(good))
		}
	}
}

// TestRecordRefused: everything is signed by the right keys, and still the record proves nothing.
func TestRecordRefused(t *testing.T) {
	t.Parallel()
	for what, change := range map[string]func(r *exclusive.Record){
		"a question of no execution": func(r *exclusive.Record) { r.Question.Execution = 0 },
		"a question without number":  func(r *exclusive.Record) { r.Question.Number = 0 },
		"a product of no probe":      func(r *exclusive.Record) { r.Question.Shape.Depth *= 2 },
		"a question of another lease": func(r *exclusive.Record) {
			r.Question.Lease[0]++
		},
		"a unit that the lease has not": func(r *exclusive.Record) { r.Question.Unit = 1 },
		"the highest unit":              func(r *exclusive.Record) { r.Question.Unit = 255 },
		"an answer at once":             func(r *exclusive.Record) { r.Elapsed = 0 },
		"an answer before the question": func(r *exclusive.Record) { r.Elapsed = -time.Second },
		"a negative round trip":         func(r *exclusive.Record) { r.Trip = -1 },
	} {
		r := probe(16)
		change(&r)
		if err := signed(r).Check(domain); !errors.Is(err, exclusive.ErrRecord) || exclusive.Wrong(err) {
			t.Errorf("%s: %v", what, err)
		}
	}
	r := probe(16)
	r.Trip = 0
	if err := signed(r).Check(domain); err != nil {
		t.Errorf("a round trip that is not measurable: %v", err)
	}
}

// TestRecordSignatures: each signature is of its own party and statement. Any two exchanged prove nothing.
func TestRecordSignatures(t *testing.T) {
	t.Parallel()
	fields := map[string]func(*exclusive.Record) *sign.Signature{
		"question": func(r *exclusive.Record) *sign.Signature { return &r.QuestionSig },
		"answer":   func(r *exclusive.Record) *sign.Signature { return &r.AnswerSig },
		"opened":   func(r *exclusive.Record) *sign.Signature { return &r.OpenedSig },
		"measure":  func(r *exclusive.Record) *sign.Signature { return &r.MeasuredSig },
	}
	good := probe(16)
	for one, a := range fields {
		for other, b := range fields {
			r := good
			*a(&r) = *b(&good)
			if err := r.Check(domain); (err == nil) != (one == other) ||
				err != nil && !errors.Is(err, exclusive.ErrRecord) {
				t.Errorf("the signature of %s in the place of %s: %v", other, one, err)
			}
		}
		r := good
		*a(&r) = sign.Signature{}
		if err := r.Check(domain); !errors.Is(err, exclusive.ErrRecord) {
			t.Errorf("no signature of %s: %v", one, err)
		}
	}
}

func TestSnapshotRefused(t *testing.T) {
	t.Parallel()
	for what, change := range map[string]func(s *exclusive.Snapshot){
		"a third end":  func(s *exclusive.Snapshot) { s.When = exclusive.After + 1 },
		"no execution": func(s *exclusive.Snapshot) { s.Execution = 0 },
		"a line break": func(s *exclusive.Snapshot) { s.CPUModel = "EPYC\n7B13" },
		"an escape":    func(s *exclusive.Snapshot) { s.Devices[0].Model = "\x1b[31mH100" },
		"a deletion":   func(s *exclusive.Snapshot) { s.Devices[0].Throttle = "heat\x7f" },
		"no UTF-8":     func(s *exclusive.Snapshot) { s.Devices[1].Model = "H\xff" },
		"a text that is too long": func(s *exclusive.Snapshot) {
			s.CPUModel = strings.Repeat("x", exclusive.MaxText+1)
		},
		"a device without UUID": func(s *exclusive.Snapshot) { s.Devices[0].UUID = "" },
		"units in another order": func(s *exclusive.Snapshot) {
			s.Devices[0], s.Devices[1] = s.Devices[1], s.Devices[0]
		},
		"a unit twice":              func(s *exclusive.Snapshot) { s.Devices[1].Unit = s.Devices[0].Unit },
		"a figure of no name":       func(s *exclusive.Snapshot) { s.Devices[0].Tells |= 1 << 4 },
		"the highest figure":        func(s *exclusive.Snapshot) { s.Devices[0].Tells |= 1 << 15 },
		"a temperature not told":    func(s *exclusive.Snapshot) { s.Devices[1].TemperatureC = 1 },
		"a clock not told":          func(s *exclusive.Snapshot) { s.Devices[0].ClockMHz = 1 },
		"correctable, not told":     func(s *exclusive.Snapshot) { s.Devices[1].Correctable = 1 },
		"uncorrectable, not told":   func(s *exclusive.Snapshot) { s.Devices[1].Uncorrectable = 1 },
		"Xid errors, not told":      func(s *exclusive.Snapshot) { s.Devices[1].Xids = 1 },
		"the last Xid, not told":    func(s *exclusive.Snapshot) { s.Devices[1].LastXid = 1 },
		"the fault's Xid, not told": func(s *exclusive.Snapshot) { s.Devices[1].FaultXid = 1 },
		"more devices than fit":     func(s *exclusive.Snapshot) { s.Devices = crowd(exclusive.MaxDevices+1, 1) },
		"more bytes than fit": func(s *exclusive.Snapshot) {
			s.Devices = crowd(exclusive.MaxDevices, exclusive.MaxText)
		},
	} {
		s := snapshot(exclusive.Before)
		change(&s)
		if err := s.Check(); !errors.Is(err, market.ErrMalformed) {
			t.Errorf("%s: %v", what, err)
		}
		if len(s.CPUModel) > exclusive.MaxText {
			continue // its length does not fit in the layout's byte in every case
		}
		if _, err := exclusive.UnmarshalSnapshot(s.Marshal()); !errors.Is(err, market.ErrMalformed) {
			t.Errorf("%s, decoded: %v", what, err)
		}
	}
}

// crowd is n devices with three texts of size bytes each.
func crowd(n, size int) []exclusive.Device {
	text := strings.Repeat("x", size)
	out := make([]exclusive.Device, n)
	for i := range out {
		out[i] = exclusive.Device{Unit: market.UnitID{byte(i + 1)}, UUID: text, Model: text, Throttle: text}
	}
	return out
}

func TestSnapshotLayoutRefused(t *testing.T) {
	t.Parallel()
	good := snapshot(exclusive.After).Marshal()
	decode := func(b []byte) error {
		_, err := exclusive.UnmarshalSnapshot(b)
		return err
	}
	changes := map[string]func([]byte) []byte{
		"empty": cut(len(good)), "a byte more": longer(1), "a device more than it says": longer(32 + 3 + 40),
		"version 0": put(0, 0), "version 2": put(0, 2), "end 2": put(1, 2),
		"a device less than it has": put(2, 1), "a device more than it has": put(2, 3),
		"33 devices": put(2, exclusive.MaxDevices+1), "execution 0": put64(40, 0),
		"a text to beyond the end": put(64, 255),
		"longer than any snapshot": longer(exclusive.MaxSnapshot),
	}
	for i := 3; i < 8; i++ {
		changes["reserved byte "+string(rune('0'+i))] = put(i, 1)
	}
	refused(t, good, decode, []error{market.ErrMalformed}, changes)
	for n := range len(good) {
		if decode(good[:n]) == nil {
			t.Fatalf("the first %d bytes of %d are taken", n, len(good))
		}
	}
}

// TestStatementsAreBoundToTheirPlace: each statement verifies for its signer, its network and its own bytes alone.
func TestStatementsAreBoundToTheirPlace(t *testing.T) {
	t.Parallel()
	type statement interface {
		Sign(sign.Domain, sign.Signer) (sign.Signature, error)
		Verify(sign.Domain, sign.Key, sign.Signature) error
	}
	r := probe(16)
	before, after := snapshot(exclusive.Before), snapshot(exclusive.After)
	question, answer, opened, measured := r.Question, r.Answer(), r.Opened(), r.Measured()
	question.Number++
	answer.Root[0]++
	opened.Nonce[0]++
	measured.Known++
	others := []sign.Domain{
		{Network: "other", Chain: domain.Chain},
		{Network: domain.Network, Chain: sign.Hash{2}},
		{Network: domain.Network, Chain: domain.Chain, Program: sign.Key{1}},
	}
	all := map[string][2]statement{
		"question": {r.Question, question}, "answer": {r.Answer(), answer}, "opened": {r.Opened(), opened},
		"measured": {r.Measured(), measured}, "snapshot": {before, after},
	}
	for name, s := range all {
		sig := must(s[0].Sign(domain, provider))
		if err := s[0].Verify(domain, provider.Key(), sig); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if s[0].Verify(domain, buyer.Key(), sig) == nil {
			t.Errorf("%s verifies for another key", name)
		}
		if s[1].Verify(domain, provider.Key(), sig) == nil {
			t.Errorf("%s verifies with another content", name)
		}
		for _, d := range others {
			if s[0].Verify(d, provider.Key(), sig) == nil {
				t.Errorf("%s verifies in %+v", name, d)
			}
		}
		for other, o := range all {
			if other != name && o[0].Verify(domain, provider.Key(), sig) == nil {
				t.Errorf("the signature of %s verifies for %s", name, other)
			}
		}
	}
}
