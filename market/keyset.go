package market

import (
	"bytes"
	"fmt"
	"slices"

	"github.com/starling-network/starling/market/sign"
)

// MaxVoucherKeys bounds a key set.
const MaxVoucherKeys = 16

// KeySet is the set of keys that sign vouchers: a voucher is valid with signatures of Threshold of Keys. The buyer
// alone is 1 of 1; guardians are m of n. Layout:
//
//	offset  size  field
//	     0     1  threshold, 1 to count
//	     1     1  count, 1 to 16
//	     2  32·n  keys, strictly ascending as bytes, each fit to sign
type KeySet struct {
	Threshold uint8      `json:"threshold"`
	Keys      []sign.Key `json:"keys"`
}

// NewKeySet sorts the keys and validates the set.
func NewKeySet(threshold uint8, keys ...sign.Key) (KeySet, error) {
	ks := KeySet{Threshold: threshold, Keys: slices.Clone(keys)}
	slices.SortFunc(ks.Keys, func(a, b sign.Key) int { return bytes.Compare(a[:], b[:]) })
	return ks, ks.Validate()
}

// Validate reports the first rule of the layout that is broken.
func (ks KeySet) Validate() error {
	if len(ks.Keys) < 1 || len(ks.Keys) > MaxVoucherKeys {
		return malformed("key set", "%d keys, want 1 to %d", len(ks.Keys), MaxVoucherKeys)
	}
	if ks.Threshold < 1 || int(ks.Threshold) > len(ks.Keys) {
		return malformed("key set", "threshold %d of %d keys", ks.Threshold, len(ks.Keys))
	}
	for i, k := range ks.Keys {
		if i > 0 && bytes.Compare(ks.Keys[i-1][:], k[:]) >= 0 {
			return malformed("key set", "keys are not strictly ascending at %d", i)
		}
		if err := k.Check(); err != nil {
			return fmt.Errorf("%w: key set: %w", ErrMalformed, err)
		}
	}
	return nil
}

// Marshal returns the layout. The set must be valid.
func (ks KeySet) Marshal() []byte {
	out := make([]byte, 2, 2+sign.KeySize*len(ks.Keys))
	out[0], out[1] = ks.Threshold, byte(len(ks.Keys))
	for _, k := range ks.Keys {
		out = append(out, k[:]...)
	}
	return out
}

// UnmarshalKeySet decodes the layout without trailing bytes, and validates.
func UnmarshalKeySet(b []byte) (KeySet, error) {
	if len(b) < 2 || b[1] > MaxVoucherKeys || len(b) != 2+sign.KeySize*int(b[1]) {
		return KeySet{}, malformed("key set", "%d bytes", len(b))
	}
	ks := KeySet{Threshold: b[0], Keys: make([]sign.Key, b[1])}
	for i := range ks.Keys {
		copy(ks.Keys[i][:], b[2+sign.KeySize*i:])
	}
	if err := ks.Validate(); err != nil {
		return KeySet{}, err
	}
	return ks, nil
}

// Hash is SHA-256 of "starling/keyset/v1" ‖ layout; the lease core carries it.
func (ks KeySet) Hash() sign.Hash { return sign.Sum([]byte("starling/keyset/v1"), ks.Marshal()) }
