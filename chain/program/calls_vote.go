package program

import (
	"github.com/starling-network/starling/market/merkle"
	"github.com/starling-network/starling/market/sign"
)

// Bond bonds an amount more of a provider's stake: it votes, and cannot be asked back.
type Bond struct {
	Owner    sign.Key
	Network  sign.Key
	Provider sign.Key

	Amount uint64
}

// Instruction implements Call.
func (c Bond) Instruction(program sign.Key) Instruction {
	return Instruction{Program: program, Data: data{tagBond}.u64(c.Amount),
		Accounts: []Meta{signs(c.Owner), writes(c.Network), writes(c.Provider)}}
}

// Release releases an amount of bonded stake.
type Release struct {
	Owner    sign.Key
	Network  sign.Key
	Provider sign.Key

	Amount uint64
}

// Instruction implements Call.
func (c Release) Instruction(program sign.Key) Instruction {
	return Instruction{Program: program, Data: data{tagRelease}.u64(c.Amount),
		Accounts: []Meta{signs(c.Owner), writes(c.Network), writes(c.Provider)}}
}

// ProposeRules opens a ballot on new rules of the network.
type ProposeRules struct {
	Payer    sign.Key
	Owner    sign.Key
	Network  sign.Key
	Provider sign.Key // of which something is bonded
	Ballot   sign.Key // BallotAddress

	Opened uint64 // slot, one of the last 150
	Rules  Rules
}

// Instruction implements Call.
func (c ProposeRules) Instruction(program sign.Key) Instruction {
	return propose(program, SubjectRules, c.Rules.Marshal(), c.Opened, c.Payer, c.Owner, c.Network, c.Provider,
		c.Ballot)
}

// ProposeRewards opens a ballot on an epoch's rewards.
type ProposeRewards struct {
	Payer    sign.Key
	Signer   sign.Key // owner or peer key
	Network  sign.Key
	Provider sign.Key // of which something is bonded
	Ballot   sign.Key // BallotAddress

	Opened  uint64 // slot, one of the last 150
	Rewards Rewards
}

// Instruction implements Call.
func (c ProposeRewards) Instruction(program sign.Key) Instruction {
	return propose(program, SubjectRewards, c.Rewards.Marshal(), c.Opened, c.Payer, c.Signer, c.Network, c.Provider,
		c.Ballot)
}

func propose(
	program sign.Key, subject Subject, about []byte, opened uint64, payer, signer, network, provider, ballot sign.Key,
) Instruction {
	return Instruction{Program: program, Data: data{tagPropose}.u64(opened).u8(uint8(subject)).bytes(about...),
		Accounts: []Meta{
			pays(payer), signs(signer), reads(network), reads(provider), writes(ballot), reads(SystemProgram)}}
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
func (c CastVote) Instruction(program sign.Key) Instruction {
	return Instruction{Program: program, Data: data{tagVote, flag(c.For)}, Accounts: []Meta{
		pays(c.Payer), signs(c.Signer), writes(c.Provider), writes(c.Ballot), writes(c.Vote), reads(SystemProgram),
		optional(program, c.Former, writes)}}
}

// CloseVote ends the note of a vote that is over; the rent goes back. Anybody may.
type CloseVote struct {
	Vote      sign.Key
	RentPayer sign.Key
}

// Instruction implements Call.
func (c CloseVote) Instruction(program sign.Key) Instruction {
	return Instruction{Program: program, Data: data{tagCloseVote},
		Accounts: []Meta{writes(c.Vote), writes(c.RentPayer)}}
}

// Enact makes rules that were voted for those of the network. Anybody may.
type Enact struct {
	Network sign.Key
	Ballot  sign.Key
}

// Instruction implements Call.
func (c Enact) Instruction(program sign.Key) Instruction {
	return Instruction{Program: program, Data: data{tagEnact}, Accounts: []Meta{writes(c.Network), writes(c.Ballot)}}
}

// CloseBallot ends a ballot of which nothing can come any more; the rent goes back. Anybody may.
type CloseBallot struct {
	Ballot    sign.Key
	RentPayer sign.Key
}

// Instruction implements Call.
func (c CloseBallot) Instruction(program sign.Key) Instruction {
	return Instruction{Program: program, Data: data{tagCloseBallot},
		Accounts: []Meta{writes(c.Ballot), writes(c.RentPayer)}}
}

// InitEmission creates the token account that the emission is paid from. Anybody may.
type InitEmission struct {
	Payer    sign.Key
	Network  sign.Key
	Mint     sign.Key // the network's stake mint
	Emission sign.Key // EmissionAddress
}

// Instruction implements Call.
func (c InitEmission) Instruction(program sign.Key) Instruction {
	return Instruction{Program: program, Data: data{tagInitEmission}, Accounts: []Meta{
		pays(c.Payer), reads(c.Network), reads(c.Mint), writes(c.Emission), reads(TokenProgram), reads(SystemProgram)}}
}

// Accept accepts the rewards that more than two thirds confirmed, and sets their sum aside. Anybody may.
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
func (c Accept) Instruction(program sign.Key) Instruction {
	return Instruction{Program: program, Data: data{tagAccept}, Accounts: []Meta{
		pays(c.Payer), writes(c.Network), writes(c.Ballot), writes(c.Source), reads(c.Mint), writes(c.Payout),
		writes(c.Vault), reads(TokenProgram), reads(SystemProgram)}}
}

// ClaimReward pays one reward. Anybody may.
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
func (c ClaimReward) Instruction(program sign.Key) Instruction {
	return Instruction{Program: program,
		Data: data{tagClaimReward}.u32(c.Index).u64(c.Amount).bytes(c.Path.Marshal()...),
		Accounts: appendPayee([]Meta{writes(c.Payout), writes(c.Vault), writes(c.Destination), reads(c.Mint),
			reads(TokenProgram)}, c.Payee)}
}

// ClosePayout ends an epoch's payout; the unclaimed rest goes back to its source, the rent to its payer. Anybody may.
type ClosePayout struct {
	Payout    sign.Key
	Vault     sign.Key
	Source    sign.Key
	Mint      sign.Key
	Network   sign.Key
	RentPayer sign.Key
}

// Instruction implements Call.
func (c ClosePayout) Instruction(program sign.Key) Instruction {
	return Instruction{Program: program, Data: data{tagClosePayout}, Accounts: []Meta{
		writes(c.Payout), writes(c.Vault), writes(c.Source), reads(c.Mint), reads(c.Network), reads(TokenProgram),
		writes(c.RentPayer)}}
}
