package account

import (
	"github.com/starling-network/starling/market/sign"
)

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
	return head(kindVote, v.Bump, flag(v.For), 0).Key(v.Ballot).Key(v.Provider).Key(v.RentPayer).U64(v.Ends).
		U64(v.Weight)
}

// UnmarshalVote reads a vote's account. It returns ErrAccount.
func UnmarshalVote(b []byte) (Vote, error) {
	r := read(b)
	bump, choice, more := r.head(kindVote)
	v := Vote{Bump: bump, For: choice == 1, Ballot: r.Key(), Provider: r.Key(), RentPayer: r.Key(), Ends: r.U64(),
		Weight: r.U64()}
	if !r.Done() || choice > 1 || more != 0 {
		return Vote{}, notOne("vote", b)
	}
	return v, nil
}
