package market

import (
	"encoding/binary"
	"encoding/hex"

	"github.com/starling-network/starling/market/sign"
)

// OrderID names an order: SHA-256 of "starling/order/v1" ‖ buyer[32] ‖ payload as signed. The payload's nonce makes two
// equal orders differ.
type OrderID sign.Hash

// String returns the hexadecimal form.
func (o OrderID) String() string { return sign.Hash(o).String() }

// Short returns the first eight hexadecimal digits.
func (o OrderID) Short() string { return sign.Hash(o).Short() }

// IsZero reports whether the id is unset.
func (o OrderID) IsZero() bool { return o == OrderID{} }

// MarshalText returns the hexadecimal form.
func (o OrderID) MarshalText() ([]byte, error) { return sign.Hash(o).MarshalText() }

// UnmarshalText reads the hexadecimal form.
func (o *OrderID) UnmarshalText(text []byte) error { return (*sign.Hash)(o).UnmarshalText(text) }

// LeaseID names a lease: SHA-256 of "starling/lease/v1" ‖ LeaseCore.
type LeaseID sign.Hash

// String returns the hexadecimal form.
func (l LeaseID) String() string { return sign.Hash(l).String() }

// Short returns the first eight hexadecimal digits.
func (l LeaseID) Short() string { return sign.Hash(l).Short() }

// IsZero reports whether the id is unset.
func (l LeaseID) IsZero() bool { return l == LeaseID{} }

// MarshalText returns the hexadecimal form.
func (l LeaseID) MarshalText() ([]byte, error) { return sign.Hash(l).MarshalText() }

// UnmarshalText reads the hexadecimal form.
func (l *LeaseID) UnmarshalText(text []byte) error { return (*sign.Hash)(l).UnmarshalText(text) }

// HoldID identifies a hold. The buyer draws it before it sends the request, so it can release a hold after a lost
// answer. Other peers cannot guess it.
type HoldID [16]byte

// NewHoldID derives the hold id of one attempt at one rank from a secret of the buyer's: the first 16 bytes of SHA-256
// of "starling/hold/v1" ‖ secret[32] ‖ order[32] ‖ rank u32 ‖ attempt u32.
func NewHoldID(secret [32]byte, order OrderID, rank, attempt uint32) HoldID {
	b := append([]byte("starling/hold/v1"), secret[:]...)
	b = append(b, order[:]...)
	b = binary.LittleEndian.AppendUint32(b, rank)
	b = binary.LittleEndian.AppendUint32(b, attempt)
	h := sign.Sum(b)
	return HoldID(h[:16])
}

// String returns the hexadecimal form.
func (h HoldID) String() string { return hex.EncodeToString(h[:]) }

// Short returns the first eight hexadecimal digits.
func (h HoldID) Short() string { return hex.EncodeToString(h[:4]) }

// IsZero reports whether the id is unset.
func (h HoldID) IsZero() bool { return h == HoldID{} }

// MarshalText returns the hexadecimal form.
func (h HoldID) MarshalText() ([]byte, error) { return []byte(h.String()), nil }

// UnmarshalText reads the hexadecimal form.
func (h *HoldID) UnmarshalText(text []byte) error { return unhex16((*[16]byte)(h), "hold id", text) }

// Nonce is 16 random bytes that make two otherwise equal objects differ.
type Nonce [16]byte

// MarshalText returns the hexadecimal form.
func (n Nonce) MarshalText() ([]byte, error) { return hex.AppendEncode(nil, n[:]), nil }

// UnmarshalText reads the hexadecimal form.
func (n *Nonce) UnmarshalText(text []byte) error { return unhex16((*[16]byte)(n), "nonce", text) }

// ReplyKey is the X25519 public key of one order; its buyer alone has the private one.
type ReplyKey [32]byte

// MarshalText returns the hexadecimal form.
func (k ReplyKey) MarshalText() ([]byte, error) { return sign.Hash(k).MarshalText() }

// UnmarshalText reads the hexadecimal form.
func (k *ReplyKey) UnmarshalText(text []byte) error { return (*sign.Hash)(k).UnmarshalText(text) }

func unhex16(into *[16]byte, what string, text []byte) error {
	var parsed [16]byte
	if len(text) != 2*len(parsed) {
		return malformed(what, "want 32 hexadecimal digits")
	}
	if _, err := hex.Decode(parsed[:], text); err != nil {
		return malformed(what, "want 32 hexadecimal digits")
	}
	*into = parsed
	return nil
}
