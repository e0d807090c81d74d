package images

import (
	"encoding/hex"
	"fmt"
	"slices"
	"strings"
)

// Prefix is the first eight bytes of an image's digest. Zero means none.
type Prefix [8]byte

// PrefixOf returns the prefix of the digest in an image's name. It is zero for a name without a digest, and for an
// image that a buyer pushed, which offers never name.
func PrefixOf(ref string) (p Prefix) {
	_, digest, _ := strings.Cut(ref, "@")
	if IsPushed(ref) || !digestForm(digest) {
		return p
	}
	_, _ = hex.Decode(p[:], []byte(digest[len("sha256:"):][:2*len(p)])) // as checked
	return p
}

// String returns the hexadecimal form.
func (p Prefix) String() string { return hex.EncodeToString(p[:]) }

// MarshalText returns the hexadecimal form.
func (p Prefix) MarshalText() ([]byte, error) { return hex.AppendEncode(nil, p[:]), nil }

// UnmarshalText reads the hexadecimal form.
func (p *Prefix) UnmarshalText(text []byte) error {
	if len(text) != 2*len(p) {
		return fmt.Errorf("image prefix: got %d characters, want %d", len(text), 2*len(p))
	}
	var parsed Prefix
	if _, err := hex.Decode(parsed[:], text); err != nil {
		return fmt.Errorf("image prefix: %w", err)
	}
	*p = parsed
	return nil
}

// MaxReady is the maximum number of images in a Ready.
const MaxReady = 16

// Ready names the images that a provider has, at most MaxReady, in ascending order and each once.
type Ready []Prefix

// NewReady returns the first of some images, at most most and at most MaxReady. Their order is lost.
func NewReady(all []Prefix, most int) Ready {
	seen := Ready{}
	for _, p := range all {
		if len(seen) >= min(most, MaxReady) {
			break
		}
		if p != (Prefix{}) && !slices.Contains(seen, p) {
			seen = append(seen, p)
		}
	}
	slices.SortFunc(seen, compare)
	return slices.Clip(seen)
}

// ParseReady reads the prefixes one after the other, as Bytes returns them.
func ParseReady(b []byte) (Ready, error) {
	const size = len(Prefix{})
	if len(b)%size != 0 || len(b) > MaxReady*size {
		return nil, fmt.Errorf("got %d bytes, want at most %d prefixes of %d", len(b), MaxReady, size)
	}
	var r Ready
	for ; len(b) > 0; b = b[size:] {
		r = append(r, Prefix(b[:size]))
	}
	return r, r.Check()
}

// Check refuses more than MaxReady images, a zero prefix, and any order but the ascending one.
func (r Ready) Check() error {
	if len(r) > MaxReady {
		return fmt.Errorf("got %d, want at most %d", len(r), MaxReady)
	}
	var last Prefix
	for _, p := range r {
		if compare(p, last) <= 0 {
			return fmt.Errorf("%s: not above the prefix before it", p)
		}
		last = p
	}
	return nil
}

// Bytes returns the prefixes one after the other.
func (r Ready) Bytes() (b []byte) {
	for _, p := range r {
		b = append(b, p[:]...)
	}
	return b
}

// Has reports whether an image is named. None is the zero one.
func (r Ready) Has(p Prefix) bool {
	_, ok := slices.BinarySearchFunc(r, p, compare)
	return ok && p != (Prefix{})
}

// Size is the maximum size of a Ready of n images in an offer, in bytes.
func Size(n int) int { return n*len(Prefix{}) + 4 }

func compare(a, b Prefix) int { return slices.Compare(a[:], b[:]) }
