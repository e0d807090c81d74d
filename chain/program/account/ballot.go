package account

import (
	"encoding/binary"
	"math"

	"github.com/starling-network/starling/chain/internal/fields"
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
	// check it.
	Table sign.Hash `json:"table"`
}

// MaxPayees is the most payees of an epoch's rewards.
const MaxPayees = 1 << 16

const aboutSize = rulesHead + feesSize*MaxMints

// RewardLeaf is a leaf under a root of rewards: payee[32] ‖ amount u64.
func RewardLeaf(payee sign.Key, amount uint64) []byte { return fields.Data{}.Key(payee).U64(amount) }

// Marshal returns the layout (PROTOCOL.md).
func (w Rewards) Marshal() []byte {
	return fields.Data{w.Source, 0, 0, 0}.U32(w.Count).U64(w.Epoch).U64(w.Sum).Hash(w.Root).Hash(w.Table)
}

func (r *reader) rewards() Rewards {
	w := Rewards{Source: r.U8()}
	r.Zeros(3)
	w.Count, w.Epoch, w.Sum, w.Root, w.Table = r.U32(), r.U64(), r.U64(), r.Hash(), r.Hash()
	return w
}

// Ballot is a vote on rules or rewards.
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
	return sign.Sum([]byte("starling/rewards/v1"),
		fields.Data{}.Key(b.Network).U8(b.Rewards.Source).U64(b.Rewards.Epoch))
}

// Marshal returns the account's bytes (PROTOCOL.md).
func (b Ballot) Marshal() []byte {
	d := head(kindBallot, b.Bump, uint8(b.Subject), flag(b.Done)).Key(b.Network).Key(b.Proposer).Key(b.RentPayer)
	for _, v := range []uint64{b.Opened, b.Ends, b.Ripe, b.Dead, b.Total, b.For, b.Against, b.Sequence} {
		d = d.U64(v)
	}
	if b.Subject == SubjectRules {
		d = d.Bytes(b.Rules.Marshal()...)
	} else {
		d = d.Bytes(b.Rewards.Marshal()...)
	}
	return append(d, make([]byte, BallotSize-len(d))...)
}

// UnmarshalBallot reads a ballot's account. It returns ErrAccount.
func UnmarshalBallot(raw []byte) (Ballot, error) {
	r := read(raw)
	bump, subject, done := r.head(kindBallot)
	b := Ballot{Bump: bump, Subject: Subject(subject), Done: done == 1, Network: r.Key(), Proposer: r.Key(),
		RentPayer: r.Key(), Opened: r.U64(), Ends: r.U64(), Ripe: r.U64(), Dead: r.U64(), Total: r.U64(), For: r.U64(),
		Against: r.U64(), Sequence: r.U64()}
	about := r.Take(aboutSize)
	if !r.Done() || done > 1 || !b.about(about) {
		return Ballot{}, notOne("ballot", raw)
	}
	return b, nil
}

// about reads the subject's data of a ballot. The number of mints in rules is not stored: the terms of a mint are never
// all zeros.
func (b *Ballot) about(raw []byte) bool {
	r := read(raw)
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
	r.Zeros(len(r.Rest))
	return r.Done()
}
