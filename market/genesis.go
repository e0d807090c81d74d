package market

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/starling-network/starling/market/sign"
)

// Genesis holds the constants of a network. Peers with a genesis that differs in any field cannot exchange messages:
// its Tag is part of every protocol id, topic and DHT prefix.
type Genesis struct {
	Network string    `json:"network"` // 1 to 16 of a-z, 0-9, '-'
	Chain   sign.Hash `json:"chain"`   // genesis hash of the Solana cluster; of a free network, a random number
	Program sign.Key  `json:"program"` // Starling's program; zero on a free network, and in a draft
	// the program's account of this network; its address commits to its fees and windows; zero when Program is
	Escrow sign.Key `json:"escrow"`
	// SHA-256 of the program's code, without the zeros at its end; zero: peers check none
	Code          sign.Hash `json:"code,omitzero"`
	Mint          sign.Key  `json:"mint"`           // the token leases are paid in; zero on a free network
	Symbol        string    `json:"symbol"`         // 1 to 10 of A-Z, 0-9
	Decimals      uint8     `json:"decimals"`       // of the mint
	SlotMillis    uint64    `json:"slot_millis"`    // nominal length of a slot
	IntervalSlots uint64    `json:"interval_slots"` // length of a metering interval
	// length of a window, which begins with a draw for an audit of all units; 0: no audits
	AuditSlots uint64 `json:"audit_slots"`
	// one window in this number has an audit, on average; 1: every window; 0 if and only if audit_slots is 0
	AuditOneIn uint64 `json:"audit_one_in"`
	Simulated  bool   `json:"simulated"` // a virtual ledger replaces the chain
	// Free means that the network has no chain and no money: every price is 0, slots are those of wall time, and
	// nothing is staked, deposited or audited. Both sides still sign receipts.
	Free bool `json:"free,omitempty"`
}

const (
	maxGenesisJSON   = 4096
	maxSymbol        = 10
	maxIntervalSlots = 1 << 20
	minAuditSlots    = 10
	maxAuditSlots    = 1 << 24
	maxAuditOneIn    = 1 << 10
)

// ParseGenesis reads and validates a genesis.json of at most 4 KiB. Unknown fields are refused: they would mean a rule
// that this peer does not keep.
func ParseGenesis(text []byte) (Genesis, error) {
	if len(text) > maxGenesisJSON {
		return Genesis{}, malformed("genesis", "%d bytes, at most %d allowed", len(text), maxGenesisJSON)
	}
	dec := json.NewDecoder(bytes.NewReader(text))
	dec.DisallowUnknownFields()
	var g Genesis
	if err := dec.Decode(&g); err != nil {
		return Genesis{}, fmt.Errorf("%w: genesis: %w", ErrMalformed, err)
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return Genesis{}, malformed("genesis", "more than one JSON value")
	}
	return g, g.Validate()
}

// Validate reports the first field out of range.
func (g Genesis) Validate() error {
	if err := g.Domain().Check(); err != nil {
		return fmt.Errorf("%w: genesis: %w", ErrMalformed, err)
	}
	if g.Escrow.IsZero() != g.Program.IsZero() {
		return malformed("genesis escrow", "%s beside program %s: both are set, or neither is", g.Escrow, g.Program)
	}
	if !g.Code.IsZero() && g.Program.IsZero() {
		return malformed("genesis code", "%s without a program", g.Code)
	}
	if g.Mint.IsZero() && !g.Simulated && !g.Free {
		return malformed("genesis mint", "not set")
	}
	if g.Free && (!g.Mint.IsZero() || !g.Program.IsZero()) {
		return malformed("genesis free", "mint %s and program %s: a free network has no money", g.Mint, g.Program)
	}
	if g.Free && g.AuditSlots != 0 {
		return malformed("genesis audit_slots", "%d: a free network has no audits", g.AuditSlots)
	}
	if !word(g.Symbol, maxSymbol, func(c byte) bool { return c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' }) {
		return malformed("genesis symbol", "%.20q, want 1 to %d of A-Z, 0-9", g.Symbol, maxSymbol)
	}
	if g.Decimals > MaxDecimals {
		return malformed("genesis decimals", "%d, at most %d", g.Decimals, MaxDecimals)
	}
	if g.SlotMillis < 1 || g.SlotMillis > MaxSlotMillis {
		return malformed("genesis slot_millis", "%d, want 1 to %d", g.SlotMillis, MaxSlotMillis)
	}
	if g.IntervalSlots < 1 || g.IntervalSlots > maxIntervalSlots {
		return malformed("genesis interval_slots", "%d, want 1 to %d", g.IntervalSlots, maxIntervalSlots)
	}
	if g.AuditSlots != 0 && (g.AuditSlots < minAuditSlots || g.AuditSlots > maxAuditSlots) {
		return malformed("genesis audit_slots", "%d, want 0 or %d to %d", g.AuditSlots, minAuditSlots, maxAuditSlots)
	}
	if (g.AuditOneIn == 0) != (g.AuditSlots == 0) || g.AuditOneIn > maxAuditOneIn {
		return malformed("genesis audit_one_in", "%d with audit_slots %d, want 1 to %d, or both 0",
			g.AuditOneIn, g.AuditSlots, maxAuditOneIn)
	}
	return nil
}

// FreeGenesis is a free network with a number that random gives, so that two of the same name never talk. Its slots
// last 100 ms and its metering intervals a second. It fails only as random does.
func FreeGenesis(name string, random io.Reader) (Genesis, error) {
	g := Genesis{Network: name, Symbol: "FREE", SlotMillis: 100, IntervalSlots: 10, Free: true}
	if _, err := io.ReadFull(random, g.Chain[:]); err != nil {
		return g, fmt.Errorf("making the number of a free network: %w", err)
	}
	return g, nil
}

// Draft reports whether the network has a token and no program yet, so that no provider can be paid. starling network
// genesis init-escrow completes it.
func (g Genesis) Draft() bool { return g.Program.IsZero() && !g.Free }

// CheckPrice reports a price that is not 0 on a free network.
func (g Genesis) CheckPrice(p Price) error {
	if g.Free && p != 0 {
		return Refuse(ReasonPrice, "price on free network %s: got %s, want 0",
			g.Network, Decimal(uint64(p), g.Decimals))
	}
	return nil
}

// Domain is where signatures made on this network are good.
func (g Genesis) Domain() sign.Domain {
	return sign.Domain{Network: g.Network, Chain: g.Chain, Program: g.Program}
}

// Hash commits to every field: SHA-256 of "starling/genesis/v7" ‖ network[16] ‖ chain[32] ‖ program[32] ‖ escrow[32] ‖
// code[32] ‖ mint[32] ‖ symbol[16] ‖ decimals u8 ‖ simulated, 1, and free, 2, u8 ‖ slot_millis u64 ‖ interval_slots u64
// ‖ audit_slots u64 ‖ audit_one_in u64, text padded with zeros.
func (g Genesis) Hash() sign.Hash {
	var network, symbol [16]byte
	copy(network[:], g.Network)
	copy(symbol[:], g.Symbol)
	tail := []byte{g.Decimals, 0}
	if g.Simulated {
		tail[1] = 1
	}
	if g.Free {
		tail[1] |= 2
	}
	tail = binary.LittleEndian.AppendUint64(tail, g.SlotMillis)
	tail = binary.LittleEndian.AppendUint64(tail, g.IntervalSlots)
	tail = binary.LittleEndian.AppendUint64(tail, g.AuditSlots)
	tail = binary.LittleEndian.AppendUint64(tail, g.AuditOneIn)
	return sign.Sum([]byte("starling/genesis/v7"), network[:], g.Chain[:], g.Program[:], g.Escrow[:], g.Code[:],
		g.Mint[:], symbol[:], tail)
}

// Tag is the <network> part of protocol ids, topics and DHT prefixes: the network id, '-', and the first eight
// hexadecimal digits of Hash.
func (g Genesis) Tag() string { return g.Network + "-" + g.Hash().Short() }

// FormatAmount writes an amount with its symbol, as "1.25 STAR".
func (g Genesis) FormatAmount(a Amount) string {
	return Decimal(uint64(a), g.Decimals) + " " + g.Symbol
}

// SlotsIn is the number of whole slots that cover d, rounded up; 0 for d ≤ 0.
func (g Genesis) SlotsIn(d time.Duration) uint64 {
	if d <= 0 {
		return 0
	}
	slot := time.Duration(g.SlotMillis) * time.Millisecond
	n := uint64(d / slot)
	if d%slot != 0 {
		n++
	}
	return n
}

// word reports whether s has 1 to most bytes, all allowed.
func word(s string, most int, allowed func(byte) bool) bool {
	if len(s) == 0 || len(s) > most {
		return false
	}
	for i := range len(s) {
		if !allowed(s[i]) {
			return false
		}
	}
	return true
}
