package audit

import (
	"encoding/binary"
	"math/bits"

	"github.com/starling-network/starling/market/merkle"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/verify/challenge"
)

// perSecond is count · 10⁶ / microseconds, at most the greatest number.
func perSecond(count, microseconds uint64) uint64 {
	hi, lo := bits.Mul64(count, 1_000_000)
	if hi >= microseconds {
		return 1<<64 - 1
	}
	q, _ := bits.Div64(hi, lo, microseconds)
	return q
}

// Kind is a sort of lie.
type Kind uint8

// The kinds.
const (
	// FalseOpening: a provider signed openings of which one is wrong.
	FalseOpening Kind = 1
	// TwoAnswers: a provider signed two answers to one question.
	TwoAnswers Kind = 2
	// FalsePass: a member passed openings of which one is wrong.
	FalsePass Kind = 3
)

// String names the kind.
func (k Kind) String() string {
	switch k {
	case FalseOpening:
		return "false opening"
	case TwoAnswers:
		return "two answers"
	case FalsePass:
		return "false pass"
	}
	return "unknown"
}

// MaxLie bounds the layout of a lie, bytes.
const MaxLie = lieHead + AnswerSize + VerdictSize + sign.SignatureSize + openingProof + 1 + 6*sign.HashSize

const (
	lieHead      = 4
	openingProof = 4 + 4 + challenge.LeafSize // index u16 ‖ openings u16 ‖ opening
)

// Lie is the proof that a peer signed a false statement. It can be checked offline, and only the liar's key can make
// one. Layout, little-endian:
//
//	offset  size  field
//	     0     1  version = 1
//	     1     1  kind: 1 false opening, 2 two answers, 3 false pass
//	     2     1  the wrong value of the opening, below 32; of a false pass Pick selects it;
//	              0 for two answers
//	     3     1  reserved: 0
//	     4   280  answer
//
// then, of two answers:
//
//	284    64  signature over it
//	348   280  the other answer, higher as bytes
//	628    64  signature over it
//
// of the others: the statement (Shown 72 or Verdict 184) ‖ signature[64] ‖ index of the opening u16 ‖ openings u16 ‖
// opening[132] ‖ merkle proof that it is under the statement's openings root.
type Lie struct {
	Kind      Kind           `json:"kind"`
	Answer    Answer         `json:"answer"`
	Signature sign.Signature `json:"signature"` // over the statement, or the first answer

	Other    Answer         `json:"other"` // of two answers
	OtherSig sign.Signature `json:"other_signature"`

	Shown   Shown             `json:"shown"`   // of a false opening
	Verdict Verdict           `json:"verdict"` // of a false pass
	Value   uint8             `json:"value"`   // which of the opening's values is wrong
	Index   uint16            `json:"index"`   // of the opening
	Count   uint16            `json:"count"`   // of all openings
	Opening challenge.Opening `json:"opening"`
	Path    merkle.Proof      `json:"path"`
}

// Liar is the signer of the false statement.
func (l Lie) Liar() sign.Key {
	if l.Kind == FalsePass {
		return l.Verdict.Member
	}
	return l.Answer.Provider
}

// FindLie searches a wrong entry among openings that a provider signed. It returns the proof against the provider, and
// one against each member that passed them; none if every value is right. Values that members had to compute are first;
// with all, it also computes every other value, which is 32 times the work. A member is blamed only for a value that it
// had to compute.
func FindLie(
	a Answer, shown Shown, shownSig sign.Signature, verdicts []Signed, os []challenge.Opening, all bool,
) []Lie {
	pick := Pick(a.WalkSeed)
	picked := func(i, k int) bool { return k == pick(i) }
	if out := findLie(a, shown, shownSig, verdicts, os, picked); len(out) > 0 || !all {
		return out
	}
	return findLie(a, shown, shownSig, nil, os, func(i, k int) bool { return k != pick(i) })
}

func findLie(
	a Answer, shown Shown, shownSig sign.Signature, verdicts []Signed, os []challenge.Opening, look func(i, k int) bool,
) []Lie {
	for i, o := range os[:min(len(os), challenge.Openings)] {
		for k := range challenge.LeafWords {
			if !look(i, k) {
				continue
			}
			if challenge.CheckEntry(a.ProductSeed, a.Shape, o, k) == nil {
				continue
			}
			path := merkle.Prove(openingLeaves(os), i)
			lie := Lie{
				Kind: FalseOpening, Answer: a, Signature: shownSig, Shown: shown,
				Value: uint8(k), Index: uint16(i), Count: uint16(len(os)), Opening: o, Path: path,
			}
			out := []Lie{lie}
			for _, v := range verdicts {
				if v.Outcome == Pass && v.Answer == shown.Answer && v.Openings == shown.Openings {
					lie.Kind, lie.Shown, lie.Verdict, lie.Signature = FalsePass, Shown{}, v.Verdict, v.Signature
					out = append(out, lie)
				}
			}
			return out
		}
	}
	return nil
}

// NewTwoAnswers is the proof of two answers to one question, the lower first.
func NewTwoAnswers(a Answer, aSig sign.Signature, b Answer, bSig sign.Signature) Lie {
	x, y := a.Marshal(), b.Marshal()
	if string(x[:]) > string(y[:]) {
		a, aSig, b, bSig = b, bSig, a, aSig
	}
	return Lie{Kind: TwoAnswers, Answer: a, Signature: aSig, Other: b, OtherSig: bSig}
}

// Check verifies that the statement is false and that the accused peer signed it. The on-chain program and `starling
// proof check` make the same checks.
func (l Lie) Check(d sign.Domain) error {
	switch l.Kind {
	case TwoAnswers:
		return l.checkTwo(d)
	case FalseOpening:
		if l.Shown.Answer != l.Answer.Hash() {
			return broken(RuleOpenings, "shown of another answer")
		}
		if err := l.checkOpening(l.Shown.Openings); err != nil {
			return err
		}
		if err := l.Shown.Verify(d, l.Answer.Provider, l.Signature); err != nil {
			return because(RuleProvider, err)
		}
		return nil
	case FalsePass:
		if l.Verdict.Answer != l.Answer.Hash() || l.Verdict.Outcome != Pass {
			return broken(RuleVerdict, "the verdict is of another answer, or passes nothing")
		}
		if err := l.checkOpening(l.Verdict.Openings); err != nil {
			return err
		}
		if want := Pick(l.Answer.WalkSeed)(int(l.Index)); int(l.Value) != want {
			return broken(RuleTruth, "a member had to compute value %d of opening %d, not %d", want, l.Index, l.Value)
		}
		if err := l.Verdict.Verify(d, l.Signature); err != nil {
			return because(RuleVerdict, err)
		}
		return nil
	}
	return malformed("lie", "kind %d", l.Kind)
}

func (l Lie) checkTwo(d sign.Domain) error {
	a, b := l.Answer, l.Other
	x, y := a.Marshal(), b.Marshal()
	switch {
	case a.Target != b.Target || a.ProductSeed != b.ProductSeed || a.Shape != b.Shape:
		return broken(RuleUnit, "the answers are to different questions")
	case a.ProductRoot == b.ProductRoot:
		return broken(RuleDifferent, "both answers have product root %s", a.ProductRoot.Short())
	case string(x[:]) >= string(y[:]):
		return malformed("lie", "answers: not in ascending order")
	}
	for _, s := range []struct {
		a   Answer
		sig sign.Signature
	}{{a, l.Signature}, {b, l.OtherSig}} {
		if err := s.a.Verify(d, s.sig); err != nil {
			return because(RuleProvider, err)
		}
	}
	return nil
}

func (l Lie) checkOpening(root sign.Hash) error {
	if l.Count < 1 || l.Count > challenge.Openings {
		return malformed("lie", "one of %d openings", l.Count)
	}
	if err := l.Path.Verify(root, OpeningLeaf(l.Opening), int(l.Index), int(l.Count)); err != nil {
		return because(RuleOpenings, err)
	}
	if err := l.Answer.Shape.Check(); err != nil {
		return because(RuleShape, err)
	}
	if int(l.Opening.Leaf) >= l.Answer.Shape.Leaves() || int(l.Value) >= challenge.LeafWords {
		return malformed("lie", "value %d of leaf %d", l.Value, l.Opening.Leaf)
	}
	if challenge.CheckEntry(l.Answer.ProductSeed, l.Answer.Shape, l.Opening, int(l.Value)) == nil {
		return broken(RuleTruth, "value %d of leaf %d is right", l.Value, l.Opening.Leaf)
	}
	return nil
}

// Marshal returns the layout.
func (l Lie) Marshal() []byte {
	answer := l.Answer.Marshal()
	b := append(make([]byte, 0, MaxLie), version, byte(l.Kind), l.Value, 0)
	b = append(b, answer[:]...)
	switch l.Kind {
	case TwoAnswers:
		other := l.Other.Marshal()
		b = append(b, l.Signature[:]...)
		b = append(b, other[:]...)
		return append(b, l.OtherSig[:]...)
	case FalsePass:
		v := l.Verdict.Marshal()
		b = append(b, v[:]...)
	default:
		s := l.Shown.Marshal()
		b = append(b, s[:]...)
	}
	b = append(b, l.Signature[:]...)
	b = binary.LittleEndian.AppendUint16(b, l.Index)
	b = binary.LittleEndian.AppendUint16(b, l.Count)
	b = append(b, OpeningLeaf(l.Opening)...)
	return append(b, l.Path.Marshal()...)
}

// UnmarshalLie decodes the layout without trailing bytes. It does not verify; Check does.
func UnmarshalLie(b []byte) (Lie, error) {
	const statement = lieHead + AnswerSize
	if len(b) < statement || len(b) > MaxLie || b[0] != version || b[3] != 0 {
		return Lie{}, malformed("lie", "%d bytes, or unknown version or reserved bytes", len(b))
	}
	l := Lie{Kind: Kind(b[1]), Value: b[2]}
	var err error
	if l.Answer, err = UnmarshalAnswer(b[lieHead:statement]); err != nil {
		return Lie{}, err
	}
	rest, size := b[statement:], ShownSize
	switch l.Kind {
	case TwoAnswers:
		const two = sign.SignatureSize + AnswerSize + sign.SignatureSize
		if len(rest) != two || l.Value != 0 {
			return Lie{}, malformed("lie", "%d bytes of two answers", len(b))
		}
		l.Signature, l.OtherSig = sign.Signature(rest), sign.Signature(rest[sign.SignatureSize+AnswerSize:])
		l.Other, err = UnmarshalAnswer(rest[sign.SignatureSize : sign.SignatureSize+AnswerSize])
		return l, err
	case FalsePass:
		size = VerdictSize
	case FalseOpening:
	default:
		return Lie{}, malformed("lie", "kind %d", l.Kind)
	}
	if len(rest) < size+sign.SignatureSize+openingProof {
		return Lie{}, malformed("lie", "%d bytes", len(b))
	}
	if l.Kind == FalsePass {
		l.Verdict, err = UnmarshalVerdict(rest[:size])
	} else {
		l.Shown, err = UnmarshalShown(rest[:size])
	}
	if err != nil {
		return Lie{}, err
	}
	l.Signature, rest = sign.Signature(rest[size:]), rest[size+sign.SignatureSize:]
	l.Index, l.Count = binary.LittleEndian.Uint16(rest), binary.LittleEndian.Uint16(rest[2:])
	l.Opening.Leaf = binary.LittleEndian.Uint32(rest[4:])
	for i := range l.Opening.Values {
		l.Opening.Values[i] = int32(binary.LittleEndian.Uint32(rest[8+4*i:]))
	}
	if l.Path, err = merkle.UnmarshalProof(rest[openingProof:]); err != nil {
		return Lie{}, malformed("lie", "%v", err)
	}
	return l, nil
}
