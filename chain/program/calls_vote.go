package program

import (
	"github.com/starling-network/starling/chain/program/account"
	"github.com/starling-network/starling/chain/svm"
	"github.com/starling-network/starling/market/merkle"
	"github.com/starling-network/starling/market/sign"
)

// Bond bonds an additional amount of a provider's stake. Bonded stake votes, and cannot be withdrawn.
type Bond struct {
	Owner    sign.Key
	Network  sign.Key
	Provider sign.Key

	Amount uint64
}

// Instruction implements Call.
func (c Bond) Instruction(program sign.Key) svm.Instruction {
	return instruction(program, data{tagBond}.U64(c.Amount), signs(c.Owner), writes(c.Network), writes(c.Provider))
}

// Release releases an amount of bonded stake.
type Release struct {
	Owner    sign.Key
	Network  sign.Key
	Provider sign.Key

	Amount uint64
}

// Instruction implements Call.
func (c Release) Instruction(program sign.Key) svm.Instruction {
	return instruction(program, data{tagRelease}.U64(c.Amount), signs(c.Owner), writes(c.Network), writes(c.Provider))
}

// ProposeRules opens a ballot on new rules of the network.
type ProposeRules struct {
	Payer    sign.Key
	Owner    sign.Key
	Network  sign.Key
	Provider sign.Key // of which something is bonded
	Ballot   sign.Key // BallotAddress

	Opened uint64 // slot, one of the last 150
	Rules  account.Rules
}

// Instruction implements Call.
func (c ProposeRules) Instruction(program sign.Key) svm.Instruction {
	return instruction(program, propose(c.Opened, account.SubjectRules, c.Rules.Marshal()), pays(c.Payer),
		signs(c.Owner), reads(c.Network), reads(c.Provider), writes(c.Ballot), systemProgram)
}

// ProposeRewards opens a ballot on an epoch's rewards.
type ProposeRewards struct {
	Payer    sign.Key
	Signer   sign.Key // owner or peer key
	Network  sign.Key
	Provider sign.Key // of which something is bonded
	Ballot   sign.Key // BallotAddress

	Opened  uint64 // slot, one of the last 150
	Rewards account.Rewards
}

// Instruction implements Call.
func (c ProposeRewards) Instruction(program sign.Key) svm.Instruction {
	return instruction(program, propose(c.Opened, account.SubjectRewards, c.Rewards.Marshal()), pays(c.Payer),
		signs(c.Signer), reads(c.Network), reads(c.Provider), writes(c.Ballot), systemProgram)
}

func propose(opened uint64, subject account.Subject, about []byte) data {
	return data{tagPropose}.U64(opened).U8(uint8(subject)).Bytes(about...)
}

// CastVote votes with all that a provider has bonded.
type CastVote struct {
	Payer    sign.Key
	Signer   sign.Key // the owner; of rewards also the peer key
	Provider sign.Key
	Ballot   sign.Key
	Vote     sign.Key // VoteAddress
	Former   sign.Key // ballot on the same epoch's rewards from which the vote is moved; zero: none

	For bool
}

// Instruction implements Call.
func (c CastVote) Instruction(program sign.Key) svm.Instruction {
	return instruction(program, data{tagVote}.Bool(c.For),
		pays(c.Payer), signs(c.Signer), writes(c.Provider), writes(c.Ballot), writes(c.Vote), systemProgram,
		optional(program, c.Former, writes))
}

// CloseVote closes the account of a finished vote and returns its rent. It is permissionless.
type CloseVote struct {
	Vote      sign.Key
	RentPayer sign.Key
}

// Instruction implements Call.
func (c CloseVote) Instruction(program sign.Key) svm.Instruction {
	return instruction(program, data{tagCloseVote}, writes(c.Vote), writes(c.RentPayer))
}

// Enact replaces the network's rules with the rules of a carried ballot. It is permissionless.
type Enact struct {
	Network sign.Key
	Ballot  sign.Key
}

// Instruction implements Call.
func (c Enact) Instruction(program sign.Key) svm.Instruction {
	return instruction(program, data{tagEnact}, writes(c.Network), writes(c.Ballot))
}

// CloseBallot closes a ballot that can no longer take effect, and returns its rent. It is permissionless.
type CloseBallot struct {
	Ballot    sign.Key
	RentPayer sign.Key
}

// Instruction implements Call.
func (c CloseBallot) Instruction(program sign.Key) svm.Instruction {
	return instruction(program, data{tagCloseBallot}, writes(c.Ballot), writes(c.RentPayer))
}

// InitEmission creates the token account that the emission is paid from. It is permissionless.
type InitEmission struct {
	Payer    sign.Key
	Network  sign.Key
	Mint     sign.Key // the network's stake mint
	Emission sign.Key // EmissionAddress
}

// Instruction implements Call.
func (c InitEmission) Instruction(program sign.Key) svm.Instruction {
	return instruction(program, data{tagInitEmission},
		pays(c.Payer), reads(c.Network), reads(c.Mint), writes(c.Emission), tokenProgram, systemProgram)
}

// Accept accepts rewards with more than two thirds of the votes, and sets their sum aside. It is permissionless.
type Accept struct {
	Payer   sign.Key
	Network sign.Key
	Ballot  sign.Key
	Source  sign.Key // EmissionAddress or PoolAddress
	Mint    sign.Key
	Payout  sign.Key // PayoutAddress
	Vault   sign.Key // RewardsAddress
}

// Instruction implements Call.
func (c Accept) Instruction(program sign.Key) svm.Instruction {
	return instruction(program, data{tagAccept},
		pays(c.Payer), writes(c.Network), writes(c.Ballot), writes(c.Source), reads(c.Mint), writes(c.Payout),
		writes(c.Vault), tokenProgram, systemProgram)
}

// ClaimReward pays one reward. It is permissionless.
type ClaimReward struct {
	Payout      sign.Key
	Vault       sign.Key
	Destination sign.Key // TokenAccount of its payee; another of its if it signs
	Mint        sign.Key
	Payee       sign.Key // if it signs; zero: does not

	Index  uint32
	Amount uint64
	Path   merkle.Proof
}

// Instruction implements Call.
func (c ClaimReward) Instruction(program sign.Key) svm.Instruction {
	accounts := []svm.Meta{writes(c.Payout), writes(c.Vault), writes(c.Destination), reads(c.Mint), tokenProgram}
	d := data{tagClaimReward}.U32(c.Index).U64(c.Amount).Bytes(c.Path.Marshal()...)
	return instruction(program, d, appendPayee(accounts, c.Payee)...)
}

// ClosePayout closes an epoch's payout. The unclaimed rest returns to its source, the rent to its payer. It is
// permissionless.
type ClosePayout struct {
	Payout    sign.Key
	Vault     sign.Key
	Source    sign.Key
	Mint      sign.Key
	Network   sign.Key
	RentPayer sign.Key
}

// Instruction implements Call.
func (c ClosePayout) Instruction(program sign.Key) svm.Instruction {
	return instruction(program, data{tagClosePayout},
		writes(c.Payout), writes(c.Vault), writes(c.Source), reads(c.Mint), reads(c.Network), tokenProgram,
		writes(c.RentPayer))
}
