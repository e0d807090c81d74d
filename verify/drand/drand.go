// Package drand checks rounds of a drand network: public randomness that more than half of its members sign together, and nobody
// knows before its time (https://docs.drand.love/docs/specification). The scheme is bls-unchained-g1-rfc9380, quicknet's: a round's
// signature is a point on G1 of BLS12-381 over
//
//	SHA-256( round u64, big-endian )
//
// under the network's key on G2, hashed to the curve as RFC 9380 says (BLS_SIG_BLS12381G1_XMD:SHA-256_SSWU_RO_NUL_); its randomness is
// SHA-256( signature ). There is one signature for each round, so nobody chooses.
//
// The package is pure: where rounds come from is somebody else's business, for anybody may hand one on.
package drand

import (
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/cloudflare/circl/sign/bls"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
)

// SignatureSize is the size of a round's signature, bytes.
const SignatureSize = 48

// Signature is the network's over one round: a compressed point.
type Signature [SignatureSize]byte

var (
	// ErrKey says that a network's key is no point of its group.
	ErrKey = errors.New("not the key of a drand network")
	// ErrSignature says that a round's signature is not the network's.
	ErrSignature = errors.New("the drand network did not sign that for this round")
)

// Network checks the rounds of one drand network.
type Network struct {
	of  market.Drand
	key bls.PublicKey[bls.KeyG2SigG1]
}

// New makes a network of its parameters. ErrKey.
func New(of market.Drand) (*Network, error) {
	n := &Network{of: of}
	if err := n.key.UnmarshalBinary(of.Key[:]); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrKey, err)
	}
	if !n.key.Validate() {
		return nil, ErrKey
	}
	return n, nil
}

// infinity is the bit of a compressed point that says that it is the point at infinity, which signs nothing. circl makes the points of a
// pairing affine together, and one at infinity makes them all so (v1.6.3): it would be taken for every round's signature.
const infinity = 0x40

// Verify checks a round's signature and gives its randomness. ErrSignature. It takes milliseconds.
func (n *Network) Verify(round uint64, sig Signature) (sign.Hash, error) {
	if round < 1 || sig[0]&infinity != 0 || !bls.Verify(&n.key, message(round), sig[:]) {
		return sign.Hash{}, fmt.Errorf("%w: round %d", ErrSignature, round)
	}
	return sha256.Sum256(sig[:]), nil
}

// message is what is signed for a round.
func message(round uint64) []byte {
	h := sha256.Sum256(binary.BigEndian.AppendUint64(nil, round))
	return h[:]
}
