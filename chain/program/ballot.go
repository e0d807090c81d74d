package program

import (
	"encoding/binary"
	"math"

	"github.com/starling-network/starling/market/sign"
)

// Subject is the subject of a ballot.
type Subject uint8

// The subjects.
const (
	SubjectRules   Subject = 1
	SubjectRewards Subject = 2
)

// Rewards are the rewards of an epoch in a ballot.
type Rewards struct {
	Source uint8     `json:"source"` // 0: the emission; i: the pool of mint number i − 1
	Count  uint32    `json:"count"`  // of payees
	Epoch  uint64    `json:"epoch"`
	Sum    uint64    `json:"sum"`  // base units
	Root   sign.Hash `json:"root"` // merkle, over RewardLeaf
	// Table is SHA-256 of the table from which it was counted, so that any peer can pass it on. The program does not
	// look at it.
	Table sign.Hash `json:"table"`
}

// MaxPayees is the most payees of an epoch's rewards.
const MaxPayees = 1 << 16

const (
	rewardsSize = 88
	aboutSize   = rulesHead + feesSize*MaxMints
)

// RewardLeaf is a leaf under a root of rewards: payee[32] ‖ amount u64.
func RewardLeaf(payee sign.Key, amount uint64) []byte { return data{}.key(payee).u64(amount) }

// Marshal returns the layout (PROTOCOL.md).
func (w Rewards) Marshal() []byte {
	return data{w.Source, 0, 0, 0}.u32(w.Count).u64(w.Epoch).u64(w.Sum).hash(w.Root).hash(w.Table)
}

func (r *reader) rewards() Rewards {
	w := Rewards{Source: r.u8()}
	r.zeros(3)
	w.Count, w.Epoch, w.Sum, w.Root, w.Table = r.u32(), r.u64(), r.u64(), r.hash(), r.hash()
	return w
}

// Ballot is something that is voted on.
type Ballot struct {
	Bump      uint8
	Subject   Subject
	Done      bool // it has taken effect
	Network   sign.Key
	Proposer  sign.Key // a provider
	RentPayer sign.Key
	Opened    uint64  // slot in the address; stake bonded in it or later does not vote
	Ends      uint64  // last slot to vote in
	Ripe      uint64  // first slot in which rules can take effect
	Dead      uint64  // last slot in which they can
	Total     uint64  // bonded in the network at opening
	For       uint64  //
	Against   uint64  //
	Sequence  uint64  // of the network's rules at opening
	Rules     Rules   // when it is about rules
	Rewards   Rewards // when it is about rewards
}

// BallotSize is the length of a ballot's account.
const BallotSize = 256

// Carried reports whether the votes are enough: of rules more than half of all bonded stake and more than twice the
// votes against; of rewards more than two thirds of all bonded stake.
func (b Ballot) Carried() bool {
	if b.Subject != SubjectRules {
		return outweighs(b.For, b.Total-b.For)
	}
	return outweighs(b.For, b.Against) && b.For > b.Total-b.For
}

// outweighs reports whether one is more than twice the other.
func outweighs(one, other uint64) bool { return other <= math.MaxUint64/2 && one > 2*other }

// Topic is the topic on which a provider votes once: the ballot at an address, but of rewards the source and the epoch.
func (b Ballot) Topic(at sign.Key) sign.Hash {
	if b.Subject != SubjectRewards {
		return sign.Hash(at)
	}
	return sign.Sum([]byte("starling/rewards/v1"), data{}.key(b.Network).u8(b.Rewards.Source).u64(b.Rewards.Epoch))
}

// Marshal returns the account's bytes (PROTOCOL.md).
func (b Ballot) Marshal() []byte {
	d := head(kindBallot, b.Bump, uint8(b.Subject), flag(b.Done)).key(b.Network).key(b.Proposer).key(b.RentPayer)
	for _, v := range []uint64{b.Opened, b.Ends, b.Ripe, b.Dead, b.Total, b.For, b.Against, b.Sequence} {
		d = d.u64(v)
	}
	if b.Subject == SubjectRules {
		d = d.bytes(b.Rules.Marshal()...)
	} else {
		d = d.bytes(b.Rewards.Marshal()...)
	}
	return append(d, make([]byte, BallotSize-len(d))...)
}

// UnmarshalBallot reads a ballot's account. ErrAccount.
func UnmarshalBallot(raw []byte) (Ballot, error) {
	r := &reader{b: raw}
	bump, subject, done := r.head(kindBallot)
	b := Ballot{Bump: bump, Subject: Subject(subject), Done: done == 1, Network: r.key(), Proposer: r.key(),
		RentPayer: r.key(), Opened: r.u64(), Ends: r.u64(), Ripe: r.u64(), Dead: r.u64(), Total: r.u64(), For: r.u64(),
		Against: r.u64(), Sequence: r.u64()}
	about := r.bytes(aboutSize)
	if !r.done() || done > 1 || !b.about(about) {
		return Ballot{}, notOne("ballot", raw)
	}
	return b, nil
}

// about reads the subject's data of a ballot. The number of mints in rules is not stored: the terms of a mint are never
// all zeros.
func (b *Ballot) about(raw []byte) bool {
	r := &reader{b: raw}
	switch b.Subject {
	case SubjectRewards:
		b.Rewards = r.rewards()
	case SubjectRules:
		mints := 0
		for mints < MaxMints && binary.LittleEndian.Uint16(raw[rulesHead+feesSize*mints:]) != 0 {
			mints++
		}
		b.Rules = r.rules(mints)
	default:
		return false
	}
	r.zeros(len(r.b))
	return r.done()
}

// Vote is the note that a provider voted.
type Vote struct {
	Bump      uint8
	For       bool
	Ballot    sign.Key
	Provider  sign.Key
	RentPayer sign.Key
	Ends      uint64 // last slot to vote in
	Weight    uint64 // its bonded stake
}

// VoteSize is the length of a vote's account.
const VoteSize = 120

// Marshal returns the account's bytes (PROTOCOL.md).
func (v Vote) Marshal() []byte {
	return head(kindVote, v.Bump, flag(v.For), 0).key(v.Ballot).key(v.Provider).key(v.RentPayer).u64(v.Ends).
		u64(v.Weight)
}

// UnmarshalVote reads a vote's account. ErrAccount.
func UnmarshalVote(b []byte) (Vote, error) {
	r := &reader{b: b}
	bump, choice, more := r.head(kindVote)
	v := Vote{Bump: bump, For: choice == 1, Ballot: r.key(), Provider: r.key(), RentPayer: r.key(), Ends: r.u64(),
		Weight: r.u64()}
	if !r.done() || choice > 1 || more != 0 {
		return Vote{}, notOne("vote", b)
	}
	return v, nil
}

// Payout is an epoch's accepted rewards.
type Payout struct {
	Bump, VaultBump uint8
	Source          uint8
	Network         sign.Key
	RentPayer       sign.Key
	Root            sign.Hash
	Epoch           uint64
	Sum             uint64
	Paid            uint64 // of it
	Stays           uint64 // last slot that it stays at least
	Count           uint32 // of payees
	Claims          uint32 // how many were paid
	Claimed         []byte // a bit for each payee, lowest first
}

const payoutHead = 144

// PayoutSize is the length of the account of rewards for so many payees.
func PayoutSize(count uint32) int { return payoutHead + int(count+7)/8 }

// WasPaid reports whether payee number i was.
func (p Payout) WasPaid(i uint32) bool { return i < p.Count && p.Claimed[i/8]>>(i%8)&1 == 1 }

// Marshal returns the account's bytes (PROTOCOL.md).
func (p Payout) Marshal() []byte {
	d := head(kindPayout, p.Bump, p.Source, p.VaultBump).key(p.Network).key(p.RentPayer).hash(p.Root)
	return d.u64(p.Epoch).u64(p.Sum).u64(p.Paid).u64(p.Stays).u32(p.Count).u32(p.Claims).bytes(p.Claimed...)
}

// UnmarshalPayout reads the account of accepted rewards. ErrAccount.
func UnmarshalPayout(b []byte) (Payout, error) {
	r := &reader{b: b}
	bump, source, vault := r.head(kindPayout)
	p := Payout{Bump: bump, VaultBump: vault, Source: source, Network: r.key(), RentPayer: r.key(), Root: r.hash(),
		Epoch: r.u64(), Sum: r.u64(), Paid: r.u64(), Stays: r.u64(), Count: r.u32(), Claims: r.u32()}
	if p.Count == 0 || p.Count > MaxPayees {
		return Payout{}, notOne("payout", b)
	}
	p.Claimed = r.bytes(int(p.Count+7) / 8)
	if !r.done() {
		return Payout{}, notOne("payout", b)
	}
	p.Claimed = append([]byte{}, p.Claimed...)
	return p, nil
}
