// Package escrowtest is a chain with one network of Starling's program, for tests of the machines below chain/escrow: a
// test can make it lose transactions, fork, halt and answer late. Keys are made from names.
package escrowtest

import (
	"time"

	"github.com/starling-network/starling/chain/escrow"
	"github.com/starling-network/starling/chain/program/account"
	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
)

// Slots of the network.
const (
	Margin   = 40 // in which claims are paid after a deadline
	Response = 30 // in which claims are paid after a leaf is retired
)

// SlotTime is the time from a slot to the next.
const SlotTime = 400 * time.Millisecond

// T is a test, or one run of a property.
type T interface {
	Helper()
	Fatalf(format string, args ...any)
	Logf(format string, args ...any)
}

// Timing are the intervals of machines here.
func Timing() escrow.Params {
	return escrow.Params{PollEvery: SlotTime, LookEvery: 4 * SlotTime, RetryAfter: 2 * SlotTime}
}

// Private returns the private key of a name.
func Private(name string) sign.Private { return sign.NewPrivate(sign.Sum([]byte(name))) }

// Key returns the public key of a name.
func Key(name string) sign.Key { return Private(name).Key() }

// Params are the network's: it takes two mints, and its leases are paid in the second.
func Params() account.Params {
	return account.Params{Network: "test", Chain: sign.Hash{1}, Treasury: Key("treasury"), Authority: Key("authority"),
		StakeMint: Key("mint"), MarginSlots: Margin, ResponseSlots: Response, UnbondingSlots: 80, EvidenceSlots: 60,
		MinStake: 1, Mints: []account.MintTerms{
			{Mint: Key("other mint"), FeeBps: 10, BurnBps: 10000},
			{Mint: Key("mint"), FeeBps: 250, BurnBps: 4000, PoolBps: 3000, TreasuryBps: 2000, ReferrerBps: 1000,
				Decimals: 6}}}
}

// Net is the network with these parameters.
func Net(t T, p account.Params) escrow.Net {
	t.Helper()
	n, err := escrow.NewNet(Key("program"), account.NewNetwork(p), Key("mint"))
	if err != nil {
		t.Fatalf("%v", err)
	}
	return n
}

// KeySet is the voucher keys of names.
func KeySet(t T, threshold uint8, names ...string) market.KeySet {
	t.Helper()
	var keys []sign.Key
	for _, n := range names {
		keys = append(keys, Key(n))
	}
	ks, err := market.NewKeySet(threshold, keys...)
	if err != nil {
		t.Fatalf("%v", err)
	}
	return ks
}

// Lease is the lease of a provider by number: 10 base units a slot.
func Lease(n int, keys market.KeySet, start, before, end market.Slot) market.LeaseCore {
	return market.LeaseCore{Version: market.LeaseVersion, Units: 1, Rank: uint32(n), Order: market.OrderID{9},
		Buyer: Key("buyer"), Provider: Key("provider" + string(rune('a'+n))),
		Payout: Key("payout" + string(rune('a'+n))), VoucherKeys: keys.Hash(), Rate: 10 * market.RateScale,
		Cap: 10 * market.Amount(end-start), Start: start,
		ActivateBefore: before, End: end}
}
