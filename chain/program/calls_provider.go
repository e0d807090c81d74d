package program

import (
	"github.com/starling-network/starling/chain/svm"
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
func (c Register) Instruction(program sign.Key) svm.Instruction {
	return instruction(program, data{tagRegister}.Key(c.Payout).Hash(c.Inventory),
		pays(c.Payer), signs(c.Owner), signs(c.Peer), reads(c.Network), writes(c.Provider), writes(c.Vault),
		reads(c.Mint), tokenProgram, systemProgram)
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
func (c Update) Instruction(program sign.Key) svm.Instruction {
	d := data{tagUpdate, 0}
	if c.Payout != nil {
		d = d.Key(*c.Payout)
		d[1] |= 1
	}
	if c.Inventory != nil {
		d = d.Hash(*c.Inventory)
		d[1] |= 2
	}
	if c.Owner != nil {
		d = d.Key(*c.Owner)
		d[1] |= 4
	}
	return instruction(program, d, signs(c.Signer), writes(c.Provider))
}

// Stake adds to a provider's stake. It is permissionless.
type Stake struct {
	Authority sign.Key // owns the source or is its delegate
	Source    sign.Key
	Provider  sign.Key
	Vault     sign.Key
	Mint      sign.Key

	Amount uint64
}

// Instruction implements Call.
func (c Stake) Instruction(program sign.Key) svm.Instruction {
	return instruction(program, data{tagStake}.U64(c.Amount),
		signs(c.Authority), writes(c.Source), writes(c.Provider), writes(c.Vault), reads(c.Mint), tokenProgram)
}

// RequestUnstake takes an amount out of the stake, to be withdrawn after the network's unbonding slots.
type RequestUnstake struct {
	Owner    sign.Key
	Network  sign.Key
	Provider sign.Key

	Amount uint64
}

// Instruction implements Call.
func (c RequestUnstake) Instruction(program sign.Key) svm.Instruction {
	return instruction(program, data{tagRequestUnstake}.U64(c.Amount),
		signs(c.Owner), reads(c.Network), writes(c.Provider))
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
func (c Withdraw) Instruction(program sign.Key) svm.Instruction {
	return instruction(program, data{tagWithdraw},
		signs(c.Owner), writes(c.Provider), writes(c.Vault), writes(c.Destination), reads(c.Mint), tokenProgram)
}
