package program

import (
	"github.com/starling-network/starling/market/sign"
)

// Register enters a provider, with an empty vault.
type Register struct {
	Payer    sign.Key
	Owner    sign.Key
	Peer     sign.Key
	Network  sign.Key
	Provider sign.Key // ProviderAddress
	Vault    sign.Key // StakeAddress
	Mint     sign.Key // the network's stake mint

	Payout    sign.Key // a wallet
	Inventory sign.Hash
}

// Instruction implements Call.
func (c Register) Instruction(program sign.Key) Instruction {
	return Instruction{Program: program, Data: data{tagRegister}.key(c.Payout).hash(c.Inventory), Accounts: []Meta{
		pays(c.Payer), signs(c.Owner), signs(c.Peer), reads(c.Network), writes(c.Provider), writes(c.Vault),
		reads(c.Mint), reads(TokenProgram), reads(SystemProgram)}}
}

// Update changes the fields that the owner may change; the peer key may change the inventory alone. Nil fields stay as
// they are; one must be set.
type Update struct {
	Signer   sign.Key // owner or peer key
	Provider sign.Key

	Payout    *sign.Key
	Inventory *sign.Hash
	Owner     *sign.Key
}

// Instruction implements Call.
func (c Update) Instruction(program sign.Key) Instruction {
	d := data{tagUpdate, 0}
	if c.Payout != nil {
		d = d.key(*c.Payout)
		d[1] |= 1
	}
	if c.Inventory != nil {
		d = d.hash(*c.Inventory)
		d[1] |= 2
	}
	if c.Owner != nil {
		d = d.key(*c.Owner)
		d[1] |= 4
	}
	return Instruction{Program: program, Data: d, Accounts: []Meta{signs(c.Signer), writes(c.Provider)}}
}

// Stake adds to a provider's stake. Anybody may.
type Stake struct {
	Authority sign.Key // owns the source or is its delegate
	Source    sign.Key
	Provider  sign.Key
	Vault     sign.Key
	Mint      sign.Key

	Amount uint64
}

// Instruction implements Call.
func (c Stake) Instruction(program sign.Key) Instruction {
	return Instruction{Program: program, Data: data{tagStake}.u64(c.Amount), Accounts: []Meta{
		signs(c.Authority), writes(c.Source), writes(c.Provider), writes(c.Vault), reads(c.Mint), reads(TokenProgram)}}
}

// RequestUnstake takes an amount out of the stake, to be withdrawn after the network's unbonding slots.
type RequestUnstake struct {
	Owner    sign.Key
	Network  sign.Key
	Provider sign.Key

	Amount uint64
}

// Instruction implements Call.
func (c RequestUnstake) Instruction(program sign.Key) Instruction {
	return Instruction{Program: program, Data: data{tagRequestUnstake}.u64(c.Amount), Accounts: []Meta{
		signs(c.Owner), reads(c.Network), writes(c.Provider)}}
}

// Withdraw pays out all that is unbonding.
type Withdraw struct {
	Owner       sign.Key
	Provider    sign.Key
	Vault       sign.Key
	Destination sign.Key
	Mint        sign.Key
}

// Instruction implements Call.
func (c Withdraw) Instruction(program sign.Key) Instruction {
	return Instruction{Program: program, Data: data{tagWithdraw}, Accounts: []Meta{
		signs(c.Owner), writes(c.Provider), writes(c.Vault), writes(c.Destination), reads(c.Mint), reads(TokenProgram)}}
}
