package sign

import (
	"crypto/sha512"
	"fmt"
	"sync"

	"filippo.io/edwards25519"
)

// Verifier checks many signatures of one key. Its results equal [Verify]'s, since it evaluates the same equation for
// each signature: R = S·B − k·A with k = SHA-512(R ‖ A ‖ M) mod L, encoded and compared byte for byte. Multiples of A
// that are computed once take the place of the 256 doublings that make up most of a single verification. It is not for
// several goroutines at once.
type Verifier struct {
	key   Key
	seen  int
	table *multiples // nil until the key has been seen often enough, and for a key that is not on the curve
}

// verifierAfter is how many signatures are checked one by one before the table is made, which takes as long as two.
const verifierAfter = 4

// NewVerifier returns a Verifier of signatures by k. An invalid k is reported by Verify.
func NewVerifier(k Key) *Verifier { return &Verifier{key: k} }

// Verify checks the signature over the preimage by the strict rules of the package comment.
func (v *Verifier) Verify(preimage []byte, s Signature) error {
	if v.seen < verifierAfter {
		if v.seen++; v.seen == verifierAfter {
			v.table = multiplesOfKey(v.key)
		}
	}
	if v.table == nil {
		return Verify(v.key, preimage, s)
	}
	if err := CheckSignature(s); err != nil {
		return err
	}
	scalar, err := new(edwards25519.Scalar).SetCanonicalBytes(s[32:])
	if err != nil { // CheckSignature has looked
		return fmt.Errorf("signature S: %w", ErrNotCanonical)
	}
	h := sha512.New()
	h.Write(s[:32])
	h.Write(v.key[:])
	h.Write(preimage)
	var sum [sha512.Size]byte
	k, err := new(edwards25519.Scalar).SetUniformBytes(h.Sum(sum[:0]))
	if err != nil {
		return fmt.Errorf("by %s: %w", v.key, err)
	}
	r := difference(ofB(), scalar, v.table, k)
	if [32]byte(r.Bytes()) != [32]byte(s[:32]) {
		return fmt.Errorf("by %s: %w", v.key, ErrBadSignature)
	}
	return nil
}

// multiples are for i from 0 to 31 those of 256^i·A.
type multiples [32]row

// row[j] is j+1 times a point.
type row [8]edwards25519.Point

// add adds digit times the row's point to sum.
func (r *row) add(sum *edwards25519.Point, digit int8) {
	switch {
	case digit > 0:
		sum.Add(sum, &r[digit-1])
	case digit < 0:
		sum.Subtract(sum, &r[-digit-1])
	}
}

// ofB are the multiples of the generator.
var ofB = sync.OnceValue(func() *multiples { return multiplesOf(edwards25519.NewGeneratorPoint()) })

// radix16 writes a number below 2^253, little-endian, as the sum of digits[i]·16^i, each from -8 to 8.
func radix16(b [32]byte) (digits [64]int8) {
	carry := int8(0)
	for i := range digits {
		d := int8(b[i/2]>>(4*(i%2))&15) + carry
		carry = (d + 8) >> 4
		digits[i] = d - carry<<4
	}
	return digits // below 2^253 the last digit is at most 2 and carries nothing
}

// multiplesOfKey is nil for a key that Verify refuses whatever it signed.
func multiplesOfKey(k Key) *multiples {
	if k.Check() != nil {
		return nil
	}
	a, err := new(edwards25519.Point).SetBytes(k[:])
	if err != nil { // Check has looked
		return nil
	}
	return multiplesOf(a)
}

func multiplesOf(a *edwards25519.Point) *multiples {
	p := new(edwards25519.Point).Set(a)
	m := new(multiples)
	for i := range m {
		of := &m[i]
		of[0].Set(p)
		for j := 1; j < len(of); j++ {
			of[j].Add(&of[j-1], p)
		}
		p.Add(&of[7], &of[7]) // 16·256^i·A
		for range 4 {
			p.Add(p, p)
		}
	}
	return m
}

// difference is s·B − k·A, of s and k as the numbers that they are and not modulo the order of A: the sums of their 64
// digits of −8 to 8 times 16^i·B and 16^i·A (Bernstein et al., High-speed high-security signatures, section 4), the odd
// ones first and then times 16. The time that it takes depends on s and k, which are public.
func difference(b *multiples, s *edwards25519.Scalar, a *multiples, k *edwards25519.Scalar) *edwards25519.Point {
	ofB, ofA := radix16([32]byte(s.Bytes())), radix16([32]byte(k.Bytes()))
	sum := edwards25519.NewIdentityPoint()
	add := func(first int) {
		for i := first; i < len(ofA); i += 2 {
			b[i/2].add(sum, ofB[i])
			a[i/2].add(sum, -ofA[i])
		}
	}
	add(1)
	for range 4 {
		sum.Add(sum, sum)
	}
	add(0)
	return sum
}
