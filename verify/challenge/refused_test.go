package challenge

import (
	"bytes"
	"encoding/binary"
	"errors"
	"math"
	"testing"
)

// What does not have the layout is refused where it is read: lengths, counts, order, and numbers out of bounds.
func TestLayoutsRefused(t *testing.T) {
	t.Parallel()
	s, w := Shape{Rows: 64, Columns: 128, Depth: 128, Products: 2}, Walk{Cells: 512, Work: 2, Walkers: 300, Steps: 6}
	commit, err := Commit(s, tiles(s, seed(3)))
	if err != nil {
		t.Fatal(err)
	}
	o, err := commit.Open(seed(3), Draw(seed(4), s.Leaves(), Openings))
	if err != nil {
		t.Fatal(err)
	}
	arrivals, again := arrive(t, w, make([]uint64, w.Walkers))
	walked, err := arrivals.Open([]uint32{3, 70, 71, 299}, again)
	if err != nil {
		t.Fatal(err)
	}
	all := func(read func([]byte) ([]byte, error)) func([]byte) error {
		return func(b []byte) error {
			rest, err := read(b)
			if err == nil && len(rest) > 0 {
				return ErrMalformed // whoever reads it goes on with what comes after
			}
			return err
		}
	}
	shape, walk := s.Marshal(), w.Marshal()
	u16, u32 := binary.LittleEndian.PutUint16, binary.LittleEndian.PutUint32
	for name, c := range map[string]struct {
		good []byte
		read func(b []byte) error
		want error
		bad  map[string]func(b []byte)
	}{
		"shape": {shape[:], func(b []byte) error { _, err := UnmarshalShape(b); return err }, ErrShape, map[string]func(b []byte){
			"no rows": func(b []byte) { u32(b, 0) }, "columns of no tile": func(b []byte) { u32(b[4:], 65) },
			"deeper than int32 sums": func(b []byte) { u32(b[8:], MaxDepth+64) }, "no products": func(b []byte) { u32(b[12:], 0) },
			"more leaves than there may be": func(b []byte) { u32(b[12:], math.MaxUint32) },
		}},
		"walk": {walk[:], func(b []byte) error { _, err := UnmarshalWalk(b); return err }, ErrShape, map[string]func(b []byte){
			"no cells": func(b []byte) { clear(b[:8]) }, "cells without end": func(b []byte) { binary.LittleEndian.PutUint64(b, math.MaxUint64) },
			"no work": func(b []byte) { u32(b[8:], 0) }, "no walkers": func(b []byte) { u32(b[12:], 0) }, "no steps": func(b []byte) { u32(b[16:], 0) },
			"work and steps that overflow": func(b []byte) { u32(b[8:], 1<<16); u32(b[16:], 1<<16) },
			"more work than a verifier does": func(b []byte) {
				u32(b[8:], MaxWork)
				u32(b[16:], MaxRegeneration/MaxWork+1)
			},
		}},
		"opened": {o.Marshal(), all(func(b []byte) ([]byte, error) { _, rest, err := UnmarshalOpened(b); return rest, err }), ErrMalformed, map[string]func(b []byte){
			"none": func(b []byte) { u16(b, 0) }, "more than are drawn": func(b []byte) { u16(b, Openings+1) }, "one less than there are": func(b []byte) { u16(b, Openings-1) },
			"a leaf twice": func(b []byte) { copy(b[2+4+LeafSize:][:4], b[2:6]) }, "not in order": func(b []byte) { u32(b[2:], math.MaxUint32) },
			"more nodes than there are": func(b []byte) { u16(b[2+Openings*(4+LeafSize):], maxNodes) },
			"nodes without end":         func(b []byte) { u16(b[2+Openings*(4+LeafSize):], math.MaxUint16) },
		}},
		"walked": {walked.Marshal(), all(func(b []byte) ([]byte, error) { _, rest, err := UnmarshalWalked(b); return rest, err }), ErrMalformed, map[string]func(b []byte){
			"none": func(b []byte) { u16(b, 0) }, "more than are drawn": func(b []byte) { u16(b, Ends+1) }, "one less than there are": func(b []byte) { u16(b, Ends-1) },
			"a group of nobody": func(b []byte) { b[6] = 0 }, "a group too large": func(b []byte) { b[6] = Group + 1 }, "a group without its walker": func(b []byte) { b[6] = 3 },
			"not in order": func(b []byte) { u32(b[2:], 64*math.MaxUint16) }, "a walker twice": func(b []byte) { u32(b[7+8*Group:], 3) },
		}},
	} {
		if err := c.read(c.good); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		for n := range len(c.good) {
			if err := c.read(c.good[:n]); !errors.Is(err, ErrMalformed) {
				t.Fatalf("%s of %d bytes: %v", name, n, err)
			}
		}
		if err := c.read(append(bytes.Clone(c.good), 0)); !errors.Is(err, ErrMalformed) {
			t.Errorf("%s and a byte: %v", name, err)
		}
		for what, change := range c.bad {
			b := bytes.Clone(c.good)
			change(b)
			if err := c.read(b); !errors.Is(err, c.want) {
				t.Errorf("%s, %s: %v, want %v", name, what, err, c.want)
			}
		}
	}
}
