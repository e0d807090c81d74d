package verify

import (
	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
)

// IndexedSignature is the signature of key number Index of a key set.
type IndexedSignature struct {
	Index     uint8          `json:"index"`
	Signature sign.Signature `json:"signature"`
}

// Signatures is a threshold signature: the whole key set, so that its hash can be compared, and its signers.
//
//	offset  size  field
//	     0     n  key set (market.KeySet): threshold u8 ‖ count u8 ‖ count × key[32]
//	     n     1  number of signatures, threshold to count
//	   n+1  65·m  m × ( index u8 ‖ signature[64] ), indices strictly ascending
type Signatures struct {
	Set  market.KeySet      `json:"set"`
	Sigs []IndexedSignature `json:"sigs"`
}

const indexedSize = 1 + sign.SignatureSize

// signBy adds the signature of s. Its key must be in the set. Signing twice with one key changes nothing.
func (g Signatures) signBy(d sign.Domain, tag sign.Tag, payload []byte, s sign.Signer) (Signatures, error) {
	for i, k := range g.Set.Keys {
		if k != s.Key() {
			continue
		}
		sig, err := s.Sign(d.Preimage(tag, payload))
		if err != nil {
			return g, err
		}
		return g.add(IndexedSignature{Index: uint8(i), Signature: sig}), nil
	}
	return g, broken(RuleKeySet, "key %s is not in the set", s.Key().Short())
}

func (g Signatures) add(sig IndexedSignature) Signatures {
	at := 0
	for at < len(g.Sigs) && g.Sigs[at].Index < sig.Index {
		at++
	}
	if at < len(g.Sigs) && g.Sigs[at].Index == sig.Index {
		return g
	}
	out := make([]IndexedSignature, 0, len(g.Sigs)+1)
	out = append(append(append(out, g.Sigs[:at]...), sig), g.Sigs[at:]...)
	g.Sigs = out
	return g
}

// check verifies that set is the expected one and that enough of its keys signed. Every present signature must verify,
// so that there is one accepted form.
func (g Signatures) check(d sign.Domain, tag sign.Tag, payload []byte, set sign.Hash) error {
	if err := g.Set.Validate(); err != nil {
		return &RuleError{Rule: RuleKeySet, Detail: err.Error(), Err: err}
	}
	if g.Set.Hash() != set {
		return broken(RuleKeySet, "signed under key set %s, not %s", g.Set.Hash().Short(), set.Short())
	}
	if len(g.Sigs) < int(g.Set.Threshold) {
		return broken(RuleThreshold, "%d signatures of %d needed", len(g.Sigs), g.Set.Threshold)
	}
	preimage := d.Preimage(tag, payload)
	for i, s := range g.Sigs {
		if int(s.Index) >= len(g.Set.Keys) || i > 0 && g.Sigs[i-1].Index >= s.Index {
			return broken(RuleThreshold, "signatures are not of different keys in order")
		}
		if err := sign.Verify(g.Set.Keys[s.Index], preimage, s.Signature); err != nil {
			return &RuleError{Rule: RuleSignature, Detail: err.Error(), Err: err}
		}
	}
	return nil
}

// appendTo writes the layout above. The set must be valid.
func (g Signatures) appendTo(b []byte) []byte {
	b = append(b, g.Set.Marshal()...)
	b = append(b, byte(len(g.Sigs)))
	for _, s := range g.Sigs {
		b = append(b, s.Index)
		b = append(b, s.Signature[:]...)
	}
	return b
}

// unmarshalSignatures decodes the layout above without trailing bytes.
func unmarshalSignatures(b []byte) (Signatures, error) {
	if len(b) < 2 || b[1] > market.MaxVoucherKeys || len(b) < 2+sign.KeySize*int(b[1])+1 {
		return Signatures{}, malformed("signatures", "%d bytes", len(b))
	}
	at := 2 + sign.KeySize*int(b[1])
	set, err := market.UnmarshalKeySet(b[:at])
	if err != nil {
		return Signatures{}, err
	}
	n := int(b[at])
	b = b[at+1:]
	if n < int(set.Threshold) || n > len(set.Keys) || len(b) != n*indexedSize {
		return Signatures{}, malformed("signatures", "%d signatures in %d bytes", n, len(b))
	}
	g := Signatures{Set: set, Sigs: make([]IndexedSignature, n)}
	for i := range g.Sigs {
		s := b[i*indexedSize:]
		g.Sigs[i] = IndexedSignature{Index: s[0], Signature: sign.Signature(s[1:indexedSize])}
		if int(s[0]) >= len(set.Keys) || i > 0 && g.Sigs[i-1].Index >= s[0] {
			return Signatures{}, malformed("signatures", "index %d at place %d", s[0], i)
		}
	}
	return g, nil
}
