package audit

import (
	"encoding/binary"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
)

// Outcome is a member's finding.
type Outcome uint8

// The outcomes.
const (
	Pass  Outcome = 1 // everything shown is right
	Late  Outcome = 2 // right, and later than the class allows
	Wrong Outcome = 3 // an opening is wrong
)

// String names the outcome.
func (o Outcome) String() string {
	switch o {
	case Pass:
		return "pass"
	case Late:
		return "late"
	case Wrong:
		return "wrong"
	}
	return "unknown"
}

// Verdict is a member's signed statement of its observations. Tag "starling:verdict"; layout, little-endian:
//
//	offset  size  field
//	     0     1  version = 1
//	     1     1  outcome: 1 pass, 2 late, 3 wrong
//	     2     6  reserved: 0
//	     8    32  member, the signer
//	    40    32  hash of the answer
//	    72    32  openings root, as in Shown
//	   104    48  first, second and third nonce (Chain)
//	   152     8  microseconds from first nonce to product root
//	   160     8  microseconds from second nonce to walk root
//	   168     8  reserved: 0
//	   176     8  slot in which the first nonce was given
type Verdict struct {
	Outcome  Outcome     `json:"outcome"`
	Member   sign.Key    `json:"member"`
	Answer   sign.Hash   `json:"answer"`
	Openings sign.Hash   `json:"openings"`
	Nonces   [3]Nonce    `json:"nonces"`
	Product  uint64      `json:"product_us"`
	Walk     uint64      `json:"walk_us"`
	Slot     market.Slot `json:"slot"`
}

// Marshal returns the layout.
func (v Verdict) Marshal() [VerdictSize]byte {
	var b [VerdictSize]byte
	b[0], b[1] = version, byte(v.Outcome)
	copy(b[8:], v.Member[:])
	copy(b[40:], v.Answer[:])
	copy(b[72:], v.Openings[:])
	for i, n := range v.Nonces {
		copy(b[104+i*NonceSize:], n[:])
	}
	binary.LittleEndian.PutUint64(b[152:], v.Product)
	binary.LittleEndian.PutUint64(b[160:], v.Walk)
	binary.LittleEndian.PutUint64(b[176:], uint64(v.Slot))
	return b
}

// UnmarshalVerdict decodes the layout without trailing bytes.
func UnmarshalVerdict(b []byte) (Verdict, error) {
	if len(b) != VerdictSize || b[0] != version || !zero(b[2:8]) || !zero(b[168:176]) {
		return Verdict{}, malformed("verdict", "%d bytes, or unknown version or reserved bytes", len(b))
	}
	if b[1] < byte(Pass) || b[1] > byte(Wrong) {
		return Verdict{}, malformed("verdict", "outcome %d", b[1])
	}
	v := Verdict{
		Outcome: Outcome(b[1]), Member: sign.Key(b[8:40]),
		Answer: sign.Hash(b[40:72]), Openings: sign.Hash(b[72:104]),
		Product: binary.LittleEndian.Uint64(b[152:]), Walk: binary.LittleEndian.Uint64(b[160:]),
		Slot: market.Slot(binary.LittleEndian.Uint64(b[176:])),
	}
	for i := range v.Nonces {
		v.Nonces[i] = Nonce(b[104+i*NonceSize:])
	}
	return v, nil
}

// CheckTimes verifies that the times are possible: the member began in the window and not before the block that drew
// it, and no answer has a time of 0. It returns RuleTime otherwise.
func (v Verdict) CheckTimes(b Beacon, w Window, slots uint64) error {
	switch {
	case WindowOf(v.Slot, slots) != w:
		return broken(RuleTime, "%s began in slot %d, which is not in window %d", v.Member.Short(), v.Slot, w)
	case v.Slot < b.Slot:
		return broken(RuleTime, "%s began in slot %d, before the block of slot %d that drew it",
			v.Member.Short(), v.Slot, b.Slot)
	case v.Product == 0 || v.Walk == 0:
		return broken(RuleTime, "%s saw an answer that took no time", v.Member.Short())
	}
	return nil
}

// checkNonces verifies that each nonce is made of the next. RuleNonce.
func (v Verdict) checkNonces() error {
	if v.Nonces != Chain(v.Nonces[2]) {
		return broken(RuleNonce, "nonce of %s: not its committed one", v.Member.Short())
	}
	return nil
}

// Sign signs the verdict.
func (v Verdict) Sign(d sign.Domain, s sign.Signer) (sign.Signature, error) {
	b := v.Marshal()
	return s.Sign(d.Preimage(sign.TagVerdict, b[:]))
}

// Verify checks the member's signature.
func (v Verdict) Verify(d sign.Domain, sig sign.Signature) error {
	b := v.Marshal()
	return sign.Verify(v.Member, d.Preimage(sign.TagVerdict, b[:]), sig)
}

// Signed is a verdict and its member's signature.
type Signed struct {
	Verdict
	Signature sign.Signature `json:"signature"`
}
