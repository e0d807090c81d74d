package market

import (
	"encoding/hex"
	"fmt"

	"github.com/starling-network/starling/market/sign"
)

// Beacon is where a network takes from what nobody could know before: by it a window's audits are drawn.
type Beacon string

// The beacons.
const (
	// SlotHash is the hash of the window's first block: of networks on a chain that has any.
	SlotHash Beacon = "slothash"
	// ByDrand is a round of a drand network, whose signature anyone can verify for ever.
	ByDrand Beacon = "drand"
	// CommitReveal is made by the peers that judge: of private networks, which need nobody else.
	CommitReveal Beacon = "commit-reveal"
)

// Beacons are all there are.
var Beacons = []Beacon{SlotHash, ByDrand, CommitReveal}

// number is the beacon in the genesis hash: none is SlotHash.
func (b Beacon) number() byte {
	for i, x := range Beacons {
		if b == x {
			return byte(i + 1)
		}
	}
	return 1
}

// DrandKeySize is the size of a drand network's public key on G2 of BLS12-381, compressed.
const DrandKeySize = 96

// DrandKey is a drand network's public key.
type DrandKey [DrandKeySize]byte

// MarshalText returns the hexadecimal form.
func (k DrandKey) MarshalText() ([]byte, error) { return hex.AppendEncode(nil, k[:]), nil }

// UnmarshalText reads the hexadecimal form.
func (k *DrandKey) UnmarshalText(text []byte) error {
	if len(text) != 2*DrandKeySize {
		return malformed("drand key", "%d digits, want %d", len(text), 2*DrandKeySize)
	}
	if _, err := hex.Decode(k[:], text); err != nil {
		return fmt.Errorf("%w: drand key: %w", ErrMalformed, err)
	}
	return nil
}

// Drand is a drand network of the scheme bls-unchained-g1-rfc9380.
type Drand struct {
	Chain       sign.Hash `json:"chain"`        // its name, by which relays are asked
	Key         DrandKey  `json:"public_key"`   // which signs every round
	GenesisTime uint64    `json:"genesis_time"` // of round 1, seconds since 1970
	Period      uint32    `json:"period"`       // seconds between two rounds
}

// Quicknet is the League of Entropy's, with a round every three seconds.
func Quicknet() Drand {
	d := Drand{GenesisTime: 1692803367, Period: 3}
	for _, x := range []struct {
		to   []byte
		text string
	}{
		{d.Chain[:], "52db9ba70e0cc0f6eaf7803dd07447a1f5477735fd3f661792ba94600c84e971"},
		{d.Key[:], "83cf0f2896adee7eb8b5f01fcad3912212c437e0073e911fb90022d3e760183c8c4b450b6a0a6c3ac6a5776a2d1064510d1fec758c921cc22b0e17e63aaf4bcb5ed66304de9cf809bd274ca73bab4af5a6e9c76a4bc09e76eae8991ef5ece45a"},
	} {
		if n, err := hex.Decode(x.to, []byte(x.text)); err != nil || n != len(x.to) {
			panic("market: quicknet's own parameters are broken")
		}
	}
	return d
}

// Bounds of a drand network.
const (
	maxDrandPeriod = 3600
	maxDrandTime   = 1 << 40
)

// checkBeacon reports a beacon that is none, or drand's parameters where they do not belong.
func (g Genesis) checkBeacon() error {
	switch g.AuditBeacon {
	case "", SlotHash, CommitReveal:
		if g.Drand != (Drand{}) {
			return malformed("genesis drand", "set, and audit_beacon is %q", string(g.AuditBeacon))
		}
		return nil
	case ByDrand:
	default:
		return malformed("genesis audit_beacon", "%.20q, want one of %q", string(g.AuditBeacon), Beacons)
	}
	d := g.Drand
	switch {
	case d.Period < 1 || d.Period > maxDrandPeriod:
		return malformed("genesis drand period", "%d seconds, want 1 to %d", d.Period, maxDrandPeriod)
	case d.GenesisTime < 1 || d.GenesisTime > maxDrandTime:
		return malformed("genesis drand genesis_time", "%d, want 1 to %d", d.GenesisTime, uint64(maxDrandTime))
	case d.Chain.IsZero() || d.Key == DrandKey{}:
		return malformed("genesis drand", "chain and public_key are needed")
	case g.AuditSlots != 0 && g.AuditSlots*g.SlotMillis < 2000*uint64(d.Period):
		return malformed("genesis audit_slots", "windows of %d ms, two rounds of drand take %d", g.AuditSlots*g.SlotMillis, 2000*uint64(d.Period))
	}
	return nil
}
