// Package accounttest has an example of each kind of account, in which the fields differ from each other. Their bytes
// are in ../../testdata/vectors.json.
package accounttest

import (
	"bytes"

	"github.com/starling-network/starling/chain/program/account"
	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
)

// Key is a key of one byte, repeated.
func Key(b byte) sign.Key { return sign.Key(bytes.Repeat([]byte{b}, sign.KeySize)) }

// Hash is a hash of one byte, repeated.
func Hash(b byte) sign.Hash { return sign.Hash(bytes.Repeat([]byte{b}, sign.HashSize)) }

// Params are valid parameters with two mints, votes and audits.
func Params() account.Params {
	return account.Params{
		Network: "test", Chain: Hash(2), Treasury: Key(3), Authority: Key(4), StakeMint: Key(5), MarginSlots: 300,
		ResponseSlots: 200, UnbondingSlots: 1000, EvidenceSlots: 999, MinStake: 77, AuditSlots: 9,
		Votes: account.Votes{VotingSlots: 20, LockSlots: 10, LeastBonded: 5000, LeastBond: 500, Emission: 900_000,
			FirstSlot: 400, EpochSlots: 50, EpochsOfMonth: 30},
		Mints: []account.MintTerms{
			{Mint: Key(7), FeeBps: 50, BurnBps: 5000, PoolBps: 2500, TreasuryBps: 1500, ReferrerBps: 1000, Decimals: 6},
			{Mint: Key(8), FeeBps: 1000, BurnBps: 2000, TreasuryBps: 8000, Decimals: 9},
		},
	}
}

// Rules are rules that Params allow.
func Rules() account.Rules {
	return account.Rules{ResponseSlots: 201, UnbondingSlots: 1002, MinStake: 78, Fees: []account.Fees{
		{FeeBps: 51, BurnBps: 5001, PoolBps: 2499, TreasuryBps: 1501, ReferrerBps: 999},
		{FeeBps: 999, BurnBps: 10_000}}}
}

// Network is a network with Params and Rules.
func Network() account.Network {
	n := account.NewNetwork(Params())
	n.Bump, n.Authority, n.Sequence, n.Bonded, n.Emitted = 250, Key(9), 10, 11, 12
	n.Rules = Rules()
	return n
}

// Escrow is an escrow with three keys and two standbys.
func Escrow() account.Escrow {
	return account.Escrow{
		Bump: 247, VaultBump: 248, State: account.EscrowRefunded, MintIndex: 1, Network: Key(1), Buyer: Key(2),
		Order: market.OrderID(Hash(3)), Mint: Key(4), Vault: Key(5), RefundOwner: Key(6), Referrer: Key(7),
		RentPayer: Key(8), Opened: 9, Deadline: 10, Deposited: 11, Outstanding: 12, Paid: 13, Fee: 14, Swept: 15,
		Refunded: 16, Tranches: 17, Closed: 18,
		Keys: market.KeySet{Threshold: 2, Keys: []sign.Key{Key(19), Key(20), Key(21)}},
		Standbys: []account.Standby{{Provider: Key(22), Payout: Key(23), MaxRate: 24, Budget: 25},
			{Provider: Key(26), Payout: Key(27), MaxRate: 28, Budget: 29}},
	}
}

// Tranche is a tranche with two leaves.
func Tranche() account.Tranche {
	return account.Tranche{Bump: 249, By: account.ByKeys, Escrow: Key(1), Index: 258, Opened: 3, Sum: 4, Root: Hash(5),
		Outstanding: 6, RentPayer: Key(7),
		Leaves: []account.LeafState{{Paid: 8, Freed: 9, Window: 10}, {Paid: 11, Freed: 12}}}
}

// Provider is a provider that was slashed.
func Provider() account.Provider {
	return account.Provider{Bump: 251, VaultBump: 252, WasSlashed: true, Network: Key(1), Peer: Key(2), Owner: Key(5),
		Payout: Key(6), Inventory: Hash(7), Stake: 9, Unbonding: 10, Ready: 11, Slashed: 12, Registered: 13,
		Sequence: 14, Bonded: 15, Raised: 16, Frozen: 17}
}

// Rewards are an epoch's rewards.
func Rewards() account.Rewards {
	return account.Rewards{Source: 2, Count: 3, Epoch: 4, Sum: 5, Root: Hash(6), Table: Hash(7)}
}

// Ballot is a ballot on Rules or Rewards.
func Ballot(s account.Subject) account.Ballot {
	b := account.Ballot{Bump: 249, Subject: s, Done: true, Network: Key(1), Proposer: Key(2), RentPayer: Key(3),
		Opened: 4, Ends: 5, Ripe: 6, Dead: 7, Total: 8, For: 9, Against: 10, Sequence: 11}
	switch s {
	case account.SubjectRules:
		b.Rules = Rules()
	case account.SubjectRewards:
		b.Rewards = Rewards()
	}
	return b
}

// Payout is the payout of nine payees, of which eight were paid.
func Payout() account.Payout {
	return account.Payout{Bump: 250, VaultBump: 251, Source: 2, Network: Key(1), RentPayer: Key(2), Root: Hash(3),
		Epoch: 4, Sum: 5, Paid: 6, Stays: 7, Count: 9, Claims: 8, Claimed: []byte{0xfe, 1}}
}

// Account is an account of any kind.
type Account interface{ Marshal() []byte }

// Example is an account of one kind with its length, and the reader of its kind.
type Example struct {
	Name string
	Of   Account
	Size int
	Read func([]byte) (Account, error)
}

// Examples returns one of each kind, and of ballots one on each subject.
func Examples() []Example {
	vote := account.Vote{Bump: 250, For: true, Ballot: Key(1), Provider: Key(2), RentPayer: Key(3), Ends: 4, Weight: 5}
	anchor := account.Anchored{Authority: Key(1), Root: Hash(2), Count: 3, Slot: 4}
	return []Example{
		{"network", Network(), account.NetworkSize(2), reader(account.UnmarshalNetwork)},
		{"escrow", Escrow(), account.EscrowSize(3, 2), reader(account.UnmarshalEscrow)},
		{"tranche", Tranche(), account.TrancheSize(2), reader(account.UnmarshalTranche)},
		{"provider", Provider(), account.ProviderSize, reader(account.UnmarshalProvider)},
		{"anchor", anchor, account.AnchorSize, reader(account.UnmarshalAnchored)},
		{"ballot", Ballot(account.SubjectRules), account.BallotSize, reader(account.UnmarshalBallot)},
		{"ballot on rewards", Ballot(account.SubjectRewards), account.BallotSize, reader(account.UnmarshalBallot)},
		{"vote", vote, account.VoteSize, reader(account.UnmarshalVote)},
		{"payout", Payout(), account.PayoutSize(9), reader(account.UnmarshalPayout)},
	}
}

func reader[A Account](read func([]byte) (A, error)) func([]byte) (Account, error) {
	return func(b []byte) (Account, error) { return read(b) }
}
