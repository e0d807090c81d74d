package market

import (
	"encoding/binary"

	"github.com/starling-network/starling/market/sign"
)

// TagOf is a unit's commitment to its serial: SHA-256 of "starling:uuid" ‖ len u8 ‖ serial. A GPU's UUID has too many
// random bits to be guessed. A tag proves nothing: anyone with the UUID or the tag can claim the unit as its own.
func TagOf(serial string) sign.Hash {
	return sign.Sum([]byte("starling:uuid"), []byte{byte(len(serial))}, []byte(serial))
}

// Card opens a unit's id: which card it claims to be, without the card's serial. Layout:
//
//	offset  size  field
//	     0     1  n, length of the class, 1 to 32
//	     1     n  class
//	   1+n    32  tag (TagOf)
//	  33+n     4  index of the slice, little-endian
type Card struct {
	Class Class     `json:"class"`
	Tag   sign.Hash `json:"tag"`
	Index uint32    `json:"index"`
}

// MaxCard is the greatest size of a card's layout, bytes.
const MaxCard = 1 + 32 + sign.HashSize + 4

// Marshal returns the layout.
func (c Card) Marshal() []byte {
	b := append([]byte{byte(len(c.Class))}, c.Class...)
	return binary.LittleEndian.AppendUint32(append(b, c.Tag[:]...), c.Index)
}

// UnmarshalCard decodes the layout without trailing bytes. It returns ErrMalformed otherwise.
func UnmarshalCard(b []byte) (Card, error) {
	if len(b) < 1 || len(b) > MaxCard || len(b) != int(b[0])+MaxCard-32 {
		return Card{}, malformed("card", "%d bytes", len(b))
	}
	n := 1 + int(b[0])
	c := Card{Class: Class(b[1:n]), Tag: sign.Hash(b[n : n+sign.HashSize]),
		Index: binary.LittleEndian.Uint32(b[n+sign.HashSize:])}
	return c, c.Class.Check()
}

// Unit is the id of a provider's unit on this card: SHA-256 of "starling/unit/v2" ‖ provider[32] ‖ layout.
func (c Card) Unit(provider sign.Key) UnitID {
	return UnitID(sign.Sum([]byte("starling/unit/v2"), provider[:], c.Marshal()))
}

// Alone reports whether a serial of the class belongs to at most one unit of the network. It is false for processors:
// machines are copied together with their names.
func (c Class) Alone() bool { return c.Family() != "cpu" }
