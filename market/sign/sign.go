package sign

import (
	"crypto/ed25519"
	"encoding/json"
	"fmt"
	"strings"
)

// Tag names the kind of object a signature is for.
type Tag string

// The tags in use. A tag is never given a second meaning.
const (
	TagOffer       Tag = "starling:offer"
	TagOrder       Tag = "starling:order"
	TagQuote       Tag = "starling:quote"
	TagHold        Tag = "starling:hold"
	TagLease       Tag = "starling:lease"
	TagVoucher     Tag = "starling:voucher"
	TagReceipt     Tag = "starling:receipt"
	TagSupervision Tag = "starling:super"
	TagRelease     Tag = "starling:release"
	TagWard        Tag = "starling:ward"
	TagAnswer      Tag = "starling:answer"
	TagShown       Tag = "starling:shown"
	TagVerdict     Tag = "starling:verdict"
	TagProbe       Tag = "starling:probe"
	TagProbed      Tag = "starling:probed"
	TagOpened      Tag = "starling:opened"
	TagMeasured    Tag = "starling:measure"
	TagHealth      Tag = "starling:health"
	TagAgent       Tag = "starling:agent"
	TagTemplates   Tag = "starling:index"
)

// Layout of the preimage, in bytes.
const (
	TagSize     = 16
	NetworkSize = 16
	PrefixSize  = TagSize + HashSize + KeySize + NetworkSize
)

const tagPrefix = "starling:"

// Check reports whether the tag is printable ASCII, begins "starling:", names something and fits 16 bytes.
func (t Tag) Check() error {
	if len(t) > TagSize || len(t) <= len(tagPrefix) || !strings.HasPrefix(string(t), tagPrefix) {
		return fmt.Errorf("tag %q: %w", string(t), ErrTag)
	}
	for i := range len(t) {
		if t[i] <= ' ' || t[i] > '~' {
			return fmt.Errorf("tag %q: %w", string(t), ErrTag)
		}
	}
	return nil
}

// Domain is the place a signature is good for. Two networks never share one.
type Domain struct {
	Network string `json:"network"` // 1 to 16 of a-z, 0-9, '-'
	Chain   Hash   `json:"chain"`   // genesis hash of the Solana cluster
	Program Key    `json:"program"` // zero on a free network
}

// Check reports whether the network id is well formed.
func (d Domain) Check() error {
	if len(d.Network) == 0 || len(d.Network) > NetworkSize {
		return fmt.Errorf("network %q: %w", d.Network, ErrNetwork)
	}
	for _, c := range []byte(d.Network) {
		if (c < 'a' || c > 'z') && (c < '0' || c > '9') && c != '-' {
			return fmt.Errorf("network %q: %w", d.Network, ErrNetwork)
		}
	}
	return nil
}

// Preimage returns the bytes to sign: the 96-byte prefix drawn in the package comment, then the payload. Tag and domain
// must have passed Check; a value longer than its field is truncated.
func (d Domain) Preimage(tag Tag, payload []byte) []byte {
	out := make([]byte, PrefixSize, PrefixSize+len(payload))
	copy(out[0:TagSize], tag)
	copy(out[16:48], d.Chain[:])
	copy(out[48:80], d.Program[:])
	copy(out[80:96], d.Network)
	return append(out, payload...)
}

// Signer signs preimages with one key. Implementations may sit in another process; Sign may then block.
type Signer interface {
	Key() Key
	Sign(preimage []byte) (Signature, error)
}

// Private is an Ed25519 private key held in memory. Its text form hides it.
type Private struct {
	private ed25519.PrivateKey
}

// NewPrivate derives the key from its RFC 8032 seed.
func NewPrivate(seed [32]byte) Private {
	return Private{private: ed25519.NewKeyFromSeed(seed[:])}
}

// Key returns the public key.
func (p Private) Key() Key { return Key(p.private[32:]) }

// Seed returns the RFC 8032 seed, for conversion into other libraries' key types.
func (p Private) Seed() [32]byte { return [32]byte(p.private.Seed()) }

// Sign signs the preimage as it is.
func (p Private) Sign(preimage []byte) (Signature, error) {
	return Signature(ed25519.Sign(p.private, preimage)), nil
}

// String names the public key only, so that a private key never lands in a log.
func (p Private) String() string {
	if p.private == nil {
		return "private key (none)"
	}
	return "private key of " + p.Key().String()
}

// GoString is String.
func (p Private) GoString() string { return p.String() }

// maxKeypairText bounds a keypair file: 64 numbers of three digits with generous white space.
const maxKeypairText = 4096

// ParseKeypair reads the Solana CLI keypair format, a JSON array of 64 numbers: seed[32] ‖ public key[32].
// The public half must belong to the seed.
func ParseKeypair(text []byte) (Private, error) {
	if len(text) > maxKeypairText {
		return Private{}, ErrKeypair
	}
	var numbers []*uint16 // of bytes, encoding/json would also take base64, and for a number null
	if err := json.Unmarshal(text, &numbers); err != nil || len(numbers) != 64 {
		return Private{}, ErrKeypair
	}
	var raw [64]byte
	for i, n := range numbers {
		if n == nil || *n > 255 {
			return Private{}, ErrKeypair
		}
		raw[i] = byte(*n)
	}
	p := NewPrivate([32]byte(raw[:32]))
	if p.Key() != Key(raw[32:]) {
		return Private{}, fmt.Errorf("%w: its public half does not belong to its seed", ErrKeypair)
	}
	return p, nil
}

// MarshalKeypair writes the Solana CLI keypair format.
func MarshalKeypair(p Private) []byte {
	out := make([]byte, 0, 300)
	out = append(out, '[')
	for i, b := range p.private {
		if i > 0 {
			out = append(out, ',')
		}
		out = fmt.Appendf(out, "%d", b)
	}
	return append(out, ']')
}

// scalarOrder is the group order L, little-endian (RFC 8032, section 5.1).
var scalarOrder = [32]byte{
	0xed, 0xd3, 0xf5, 0x5c, 0x1a, 0x63, 0x12, 0x58, 0xd6, 0x9c, 0xf7, 0xa2, 0xde, 0xf9, 0xde, 0x14,
	16: 0, 31: 0x10,
}

// CheckSignature refuses signatures that no honest signer makes: R of small order or not canonical, S not below the
// group order. It does not verify; Verify calls it.
func CheckSignature(s Signature) error {
	r := [32]byte(s[:32])
	if err := checkPoint(&r); err != nil {
		return fmt.Errorf("signature R: %w", err)
	}
	for i := 31; i >= 0; i-- {
		if s[32+i] < scalarOrder[i] {
			return nil
		}
		if s[32+i] > scalarOrder[i] {
			break
		}
	}
	return fmt.Errorf("signature S: %w", ErrNotCanonical)
}

// Verify checks the signature over the preimage by the strict rules of the package comment.
func Verify(k Key, preimage []byte, s Signature) error {
	a := [32]byte(k)
	if err := checkPoint(&a); err != nil {
		return fmt.Errorf("key %s: %w", k, err)
	}
	if err := CheckSignature(s); err != nil {
		return err
	}
	// The standard library checks the cofactorless equation and compares R byte for byte, as verify_strict does.
	if !ed25519.Verify(k[:], preimage, s[:]) {
		return fmt.Errorf("by %s: %w", k, ErrBadSignature)
	}
	return nil
}
