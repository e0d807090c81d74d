package audit

import (
	"crypto/sha256"
	"errors"
	"flag"
	"testing"
	"unsafe"

	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/verify/challenge"
)

var everyBit = flag.Bool("every-bit", false, "flip every bit of every opening and node, not of one and two of them")

// sealed is an honest answer, ready to be stated, small enough to be checked a hundred thousand times.
type sealed struct {
	signer sign.Private
	domain sign.Domain
	answer Answer
	opened challenge.Opened
	found  map[[2]sign.Hash][]Lie // by answer and openings: most flips lead to the same
}

func newSealed(t *testing.T) sealed {
	t.Helper()
	s := sealed{signer: sign.NewPrivate(sha256.Sum256([]byte("provider"))), domain: sign.Domain{Network: "seal"}}
	s.found = map[[2]sign.Hash][]Lie{}
	s.answer = Answer{
		Target: Target{Provider: s.signer.Key(), Window: 3, Attempt: 1}, ProductSeed: sign.Sum([]byte("seed")),
		WalkSeed: sign.Sum([]byte("walk")), Shape: challenge.Shape{Rows: 64, Columns: 128, Depth: 64, Products: 1},
		Walk: challenge.Walk{Cells: 9, Work: 1, Walkers: 9, Steps: 1},
	}
	commit := s.commit(t, func(int, *challenge.Tile) {}, func(int, *sign.Hash) {})
	s.answer.ProductRoot = commit.Root()
	var err error
	if s.opened, err = commit.Open(s.answer.ProductSeed, Drawn(s.answer.WalkSeed, s.answer.Shape)); err != nil {
		t.Fatal(err)
	}
	return s
}

// commit computes and commits as a device and its host do, with flips in the one's memory and in the other's.
func (s sealed) commit(
	t *testing.T, device func(i int, tile *challenge.Tile), host func(i int, h *sign.Hash),
) *challenge.Commitment {
	t.Helper()
	g := challenge.ProductGenerator(s.answer.ProductSeed)
	hashes := make([]sign.Hash, s.answer.Shape.Tiles())
	for i := range hashes {
		tile := challenge.NewTile(&g, s.answer.Shape, s.answer.Shape.Place(i))
		device(i, tile)
		hashes[i] = tile.Hash()
		host(i, &hashes[i])
	}
	commit, err := challenge.Commit(s.answer.Shape, hashes)
	if err != nil {
		t.Fatal(err)
	}
	return commit
}

func (s sealed) clone() (Answer, challenge.Opened) {
	o := s.opened
	o.Openings = append([]challenge.Opening(nil), o.Openings...)
	o.Nodes = append(o.Nodes[:0:0], o.Nodes...)
	return s.answer, o
}

// stride is how many bits apart flips are: every bit, or under -short each seventh, which no layout is a multiple of.
func stride() int {
	if testing.Short() {
		return 7
	}
	return 1
}

func bytesOf[T any](x *T) []byte { return unsafe.Slice((*byte)(unsafe.Pointer(x)), unsafe.Sizeof(*x)) }

// memory is all that the parties hold: every byte that may flip.
func (s sealed) memory(a *Answer, o *challenge.Opened) [][]byte {
	out := [][]byte{bytesOf(a)}
	for i := range o.Openings {
		if *everyBit || i == len(o.Openings)/2 {
			out = append(out, bytesOf(&o.Openings[i]))
		}
	}
	for i := range o.Nodes {
		if *everyBit || i == 0 || i == len(o.Nodes)-1 {
			out = append(out, bytesOf(&o.Nodes[i]))
		}
	}
	return out
}

// blamed looks for a lie that a rival could make of a statement: over the answer and the openings as they are and as they were
// meant, for a flip that nobody kept can be guessed.
func (s sealed) blamed(shown Shown, statement func(*Lie) error, a Answer, o challenge.Opened) error {
	for _, answer := range []Answer{a, s.answer} {
		if answer.Hash() != shown.Answer {
			continue
		}
		for _, opened := range []challenge.Opened{o, s.opened} {
			if Show(answer, opened.Openings) != shown {
				continue
			}
			key := [2]sign.Hash{shown.Answer, shown.Openings}
			lies, known := s.found[key]
			if !known {
				lies = FindLie(answer, shown, sign.Signature{}, nil, opened.Openings, true)
				s.found[key] = lies
			}
			for _, l := range lies {
				if err := statement(&l); err != nil {
					return err
				}
				if l.Check(s.domain) == nil {
					return errors.New("proven a liar: " + l.Kind.String())
				}
			}
		}
	}
	return nil
}

// A bit that flips anywhere in what a provider holds, before, between or after the steps of sealing, and that stays or goes, never
// makes it sign what could be held against it.
func TestFlipsMakeNoLiarOfAProvider(t *testing.T) {
	t.Parallel()
	s := newSealed(t)
	if _, err := Seal(s.answer, s.opened); err != nil {
		t.Fatal(err)
	}
	cases, withheld := 0, 0
	a, o := s.clone()
	for part, whole := range s.memory(&a, &o) {
		for bit := 0; bit < 8*len(whole); bit += stride() {
			for at := range 4 { // the flip comes before the step, or after all
				for _, stays := range []bool{true, false} {
					a, o := s.clone()
					memory := s.memory(&a, &o)[part]
					flip := func() { memory[bit/8] ^= 1 << (bit % 8) }
					if at == 0 {
						flip()
					}
					shown, err := seal(&a, &o, func(step int) {
						if step == at || step == at+1 && !stays {
							flip()
						}
					})
					cases++
					if err != nil {
						withheld++
						if !errors.Is(err, challenge.ErrFault) {
							t.Fatal(err)
						}
						continue
					}
					err = s.blamed(shown, func(l *Lie) (err error) {
						l.Signature, err = shown.Sign(s.domain, s.signer)
						return err
					}, a, o)
					if err != nil {
						t.Fatalf("part %d, bit %d, before step %d, stays %v: %v", part, bit, at+1, stays, err)
					}
				}
			}
		}
	}
	t.Logf("%d flips, %d statements withheld", cases, withheld)
	if withheld == 0 || withheld == cases {
		t.Errorf("%d of %d withheld: the flips do nothing", withheld, cases)
	}
}

// A flip in the device's memory or in the tile hashes is found by the second computation, or lies where nobody looks; one in
// the second computation withholds a right answer.
func TestFlipsOfHardwareAreWithheld(t *testing.T) {
	t.Parallel()
	s := newSealed(t)
	drawn := Drawn(s.answer.WalkSeed, s.answer.Shape)
	open := func(commit *challenge.Commitment, recomputed func(i int, tile *challenge.Tile)) error {
		g := challenge.ProductGenerator(s.answer.ProductSeed)
		a := s.answer
		a.ProductRoot = commit.Root()
		o, err := commit.OpenTiles(drawn, func(i int) *challenge.Tile {
			tile := challenge.NewTile(&g, a.Shape, a.Shape.Place(i))
			recomputed(i, tile)
			return tile
		})
		if err == nil {
			_, err = Seal(a, o)
		}
		return err
	}
	tile := func(at, value, bit int) func(int, *challenge.Tile) {
		return func(i int, tile *challenge.Tile) {
			if i == at {
				tile[value] ^= 1 << bit
			}
		}
	}
	none, noHash := func(int, *challenge.Tile) {}, func(int, *sign.Hash) {}
	if err := open(s.commit(t, none, noHash), none); err != nil {
		t.Fatal(err)
	}
	right := s.commit(t, none, noHash)
	for at := range s.answer.Shape.Tiles() {
		for value := 0; value < challenge.TileSide*challenge.TileSide; value += 509 {
			for bit := 0; bit < 32; bit += 7 {
				flip := tile(at, value, bit)
				if err := open(s.commit(t, flip, noHash), none); !errors.Is(err, challenge.ErrFault) {
					t.Fatalf("a value of tile %d on the device: %v", at, err)
				}
				if err := open(right, flip); !errors.Is(err, challenge.ErrFault) {
					t.Fatalf("a value of tile %d computed again: %v", at, err)
				}
			}
		}
		for bit := 0; bit < 8*sign.HashSize; bit += 5 {
			flip := func(i int, h *sign.Hash) {
				if i == at {
					h[bit/8] ^= 1 << (bit % 8)
				}
			}
			if err := open(s.commit(t, none, flip), none); !errors.Is(err, challenge.ErrFault) {
				t.Fatalf("the hash of tile %d: %v", at, err)
			}
		}
	}
}

// A bit that flips in what a member holds never makes it pass what could be held against it, as long as the provider is honest.
func TestFlipsMakeNoLiarOfAMember(t *testing.T) {
	t.Parallel()
	s := newSealed(t)
	honest, err := Seal(s.answer, s.opened)
	if err != nil {
		t.Fatal(err)
	}
	a, o := s.clone()
	shown := honest
	cases, refused := 0, 0
	for part, whole := range append(s.memory(&a, &o), bytesOf(&shown)) {
		for bit := 0; bit < 8*len(whole); bit += stride() {
			for at := range 3 {
				a, o := s.clone()
				shown := honest
				memory := append(s.memory(&a, &o), bytesOf(&shown))[part]
				flip := func(step int) {
					if step == at {
						memory[bit/8] ^= 1 << (bit % 8)
					}
				}
				flip(0)
				err := examine(&a, &shown, &o, flip)
				cases++
				if err != nil {
					refused++
					continue
				}
				v := Verdict{Outcome: Pass, Member: s.signer.Key(), Answer: shown.Answer, Openings: shown.Openings}
				err = s.blamed(shown, func(l *Lie) (err error) {
					l.Kind, l.Verdict = FalsePass, v
					l.Signature, err = v.Sign(s.domain, s.signer)
					return err
				}, a, o)
				if err != nil {
					t.Fatalf("part %d, bit %d, before step %d: %v", part, bit, at+1, err)
				}
			}
		}
	}
	t.Logf("%d flips, %d answers refused", cases, refused)
	if refused == 0 || refused == cases {
		t.Errorf("%d of %d refused: the flips do nothing", refused, cases)
	}
}

// What a peer restored from a backup signs again is the same, or of another seed: neither is two answers to one question. Only
// a member that gives one nonce twice lets hardware that failed once contradict itself.
func TestRestoredBackupContradictsNothing(t *testing.T) {
	t.Parallel()
	s := newSealed(t)
	two := func(a, b Answer) error {
		x, _ := a.Sign(s.domain, s.signer)
		y, _ := b.Sign(s.domain, s.signer)
		return NewTwoAnswers(a, x, b, y).Check(s.domain)
	}
	again := s.answer
	if two(s.answer, again) == nil {
		t.Error("the same answer twice is a lie")
	}
	again.WalkSeed[0]++ // other second nonces
	again.WalkRoot[0]++
	if two(s.answer, again) == nil {
		t.Error("another walk over the same products is a lie")
	}
	again = s.answer
	again.ProductSeed[0]++ // a first nonce is never given twice
	again.ProductRoot[0]++
	if two(s.answer, again) == nil {
		t.Error("another seed's root is a lie")
	}
	again = s.answer
	again.ProductRoot[0]++
	if err := two(s.answer, again); err != nil {
		t.Errorf("two roots of one seed: %v", err)
	}
}
