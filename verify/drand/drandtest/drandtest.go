// Package drandtest is a drand network of one key, which a test holds.
package drandtest

import (
	"crypto/sha256"
	"encoding/binary"

	"github.com/cloudflare/circl/sign/bls"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/verify/drand"
)

// Network signs rounds.
type Network struct {
	market.Drand
	key *bls.PrivateKey[bls.KeyG2SigG1]
}

// New makes the network of a name, with a round every period seconds from genesis on.
func New(name string, genesis uint64, period uint32) (*Network, error) {
	seed := sign.Sum([]byte(name))
	key, err := bls.KeyGen[bls.KeyG2SigG1](seed[:], nil, nil)
	if err != nil {
		return nil, err
	}
	public, err := key.PublicKey().MarshalBinary()
	if err != nil {
		return nil, err
	}
	return &Network{market.Drand{Chain: seed, Key: market.DrandKey(public), GenesisTime: genesis, Period: period}, key}, nil
}

// Sign is a round's signature.
func (n *Network) Sign(round uint64) drand.Signature {
	h := sha256.Sum256(binary.BigEndian.AppendUint64(nil, round))
	return drand.Signature(bls.Sign(n.key, h[:]))
}
