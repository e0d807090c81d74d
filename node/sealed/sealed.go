// Package sealed encrypts a few bytes to a peer's key, so that only that peer reads them: registry credentials and
// secrets on their way to the chosen provider, and at rest in the buyer's own journal.
//
//	box = 0x01 ‖ HPKE enc[32] ‖ ciphertext (plaintext ‖ tag[16])
//
// It is HPKE base mode (RFC 9180) with DHKEM(X25519, HKDF-SHA256), HKDF-SHA256 and ChaCha20-Poly1305. A peer's Ed25519
// key is turned into its X25519 key by the birational map (RFC 7748 §4.1), the seed into the scalar that Ed25519 signs
// with (RFC 8032 §5.1.5), as age does for ssh-ed25519 keys. HPKE's info is an ASCII tag, the network and the box's
// purpose, so that a box opens only for that purpose. A [Reply] is a separate key, for the answers to one order.
package sealed

import (
	"crypto/ecdh"
	"crypto/hpke"
	"crypto/sha512"
	"errors"
	"fmt"

	"filippo.io/edwards25519"

	"github.com/starling-network/starling/market/sign"
)

var (
	// ErrSealed means that a box was not sealed to this key for this purpose, or was changed on the way.
	ErrSealed = errors.New("cannot be unsealed")
	// ErrTooLarge is returned for a plain text over MaxPlain.
	ErrTooLarge = errors.New("too much to seal")
)

const (
	// MaxPlain bounds the content of one box, bytes.
	MaxPlain = 192 << 10
	// Overhead is how much longer a box is than its content, bytes.
	Overhead = 1 + 32 + 16
	// MaxBox bounds a box, bytes.
	MaxBox = MaxPlain + Overhead

	version = 1
	tag     = "starling:sealed/v1"
)

// Purpose is the use of a box. It must be the same when the box is opened.
type Purpose struct {
	Network string // market.Genesis.Tag
	What    string // "job", "lease", "quote"
	ID      string // of the job, lease or order
}

func (p Purpose) info() []byte {
	b := []byte(tag)
	for _, s := range []string{p.Network, p.What, p.ID} {
		b = append(b, byte(len(s)>>8), byte(len(s)))
		b = append(b, s...)
	}
	return b
}

// Seal encrypts plain to the key. ErrTooLarge, or an error for a key that is no sound Ed25519 key.
func Seal(to sign.Key, p Purpose, plain []byte) ([]byte, error) {
	if len(plain) > MaxPlain {
		return nil, fmt.Errorf("%w: %d bytes, at most %d", ErrTooLarge, len(plain), MaxPlain)
	}
	if err := to.Check(); err != nil {
		return nil, fmt.Errorf("sealing to %s: %w", to.Short(), err)
	}
	point, err := new(edwards25519.Point).SetBytes(to[:])
	if err != nil {
		return nil, fmt.Errorf("sealing to %s: %w", to.Short(), err)
	}
	box, err := seal(point.BytesMontgomery(), p, plain)
	if err != nil {
		return nil, fmt.Errorf("sealing to %s: %w", to.Short(), err)
	}
	return box, nil
}

// Boxes seals for one network, and opens boxes that were sealed to one key.
type Boxes struct {
	Key     sign.Private
	Network string // market.Genesis.Tag
}

// Seal is Seal for the use of a box and an id in the network.
func (b Boxes) Seal(to sign.Key, what, id string, plain []byte) ([]byte, error) {
	return Seal(to, Purpose{b.Network, what, id}, plain)
}

// Open is Open for the use of a box and an id in the network.
func (b Boxes) Open(what, id string, box []byte) ([]byte, error) {
	return Open(b.Key, Purpose{b.Network, what, id}, box)
}

// SealReply encrypts plain to a Reply. ErrTooLarge, or an error for bytes that are no sound X25519 key.
func SealReply(to [32]byte, p Purpose, plain []byte) ([]byte, error) {
	if len(plain) > MaxPlain {
		return nil, fmt.Errorf("%w: %d bytes, at most %d", ErrTooLarge, len(plain), MaxPlain)
	}
	box, err := seal(to[:], p, plain)
	if err != nil {
		return nil, fmt.Errorf("sealing a reply: %w", err)
	}
	return box, nil
}

// seal makes a box for an X25519 public key.
func seal(to []byte, p Purpose, plain []byte) ([]byte, error) {
	pub, err := ecdh.X25519().NewPublicKey(to)
	if err != nil {
		return nil, err
	}
	kem, err := hpke.NewDHKEMPublicKey(pub)
	if err != nil {
		return nil, err
	}
	box, err := hpke.Seal(kem, hpke.HKDFSHA256(), hpke.ChaCha20Poly1305(), p.info(), plain)
	if err != nil {
		return nil, err
	}
	return append([]byte{version}, box...), nil
}

// Open decrypts a box that was sealed to key for the purpose. Every failure is ErrSealed: which one would only help a
// forger.
func Open(key sign.Private, p Purpose, box []byte) ([]byte, error) {
	seed := key.Seed()
	h := sha512.Sum512(seed[:])
	return open(h[:32], p, box) // X25519 clamps as Ed25519 does
}

// Reply is an X25519 private key.
type Reply [32]byte

// Public returns the key that is sealed to.
func (r Reply) Public() [32]byte {
	priv, err := ecdh.X25519().NewPrivateKey(r[:])
	if err != nil {
		panic(err) // 32 bytes are one
	}
	return [32]byte(priv.PublicKey().Bytes())
}

// Open decrypts a box that was sealed to the key for the purpose. Every failure is ErrSealed.
func (r Reply) Open(p Purpose, box []byte) ([]byte, error) { return open(r[:], p, box) }

func open(key []byte, p Purpose, box []byte) ([]byte, error) {
	if len(box) < Overhead || len(box) > MaxBox || box[0] != version {
		return nil, ErrSealed
	}
	priv, err := ecdh.X25519().NewPrivateKey(key)
	if err != nil {
		return nil, ErrSealed
	}
	kem, err := hpke.NewDHKEMPrivateKey(priv)
	if err != nil {
		return nil, ErrSealed
	}
	plain, err := hpke.Open(kem, hpke.HKDFSHA256(), hpke.ChaCha20Poly1305(), p.info(), box[1:])
	if err != nil {
		return nil, ErrSealed
	}
	return plain, nil
}
