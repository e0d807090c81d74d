package chaintest

import (
	"encoding/binary"
	"fmt"

	"github.com/starling-network/starling/chain"
	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
)

// note is a transaction of this chain:
//
//	author[32] ‖ last valid u64 ‖ since u64 ‖ memo
//
// little-endian. It is not signed: every holder of the Chain may write for any author.
type note struct {
	author    sign.Key
	lastValid uint64
	since     market.Slot
	memo      []byte
}

const noteHead = 32 + 8 + 8

func (n note) marshal() []byte {
	le := binary.LittleEndian
	b := append([]byte(nil), n.author[:]...)
	b = le.AppendUint64(b, n.lastValid)
	b = le.AppendUint64(b, uint64(n.since))
	return append(b, n.memo...)
}

func unmarshalNote(b []byte) (note, error) {
	le := binary.LittleEndian
	if len(b) < noteHead || len(b) > noteHead+chain.MaxMemo {
		return note{}, fmt.Errorf("chaintest: transaction of %d bytes: %w", len(b), chain.ErrMalformed)
	}
	n := note{author: sign.Key(b[:32]), lastValid: le.Uint64(b[32:]), since: market.Slot(le.Uint64(b[40:])),
		memo: b[noteHead:]}
	return n, chain.CheckMemo(n.memo)
}
