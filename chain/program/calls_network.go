package program

import (
	"github.com/starling-network/starling/chain/program/account"
	"github.com/starling-network/starling/chain/svm"
	"github.com/starling-network/starling/market/sign"
)

// InitNetwork creates a permanent network with the parameters. It is permissionless.
type InitNetwork struct {
	Payer   sign.Key
	Network sign.Key // NetworkAddress

	Params account.Params
}

// Instruction implements Call.
func (c InitNetwork) Instruction(program sign.Key) svm.Instruction {
	accounts := []svm.Meta{pays(c.Payer), writes(c.Network), systemProgram, reads(c.Params.StakeMint)}
	for _, m := range c.Params.Mints {
		accounts = append(accounts, reads(m.Mint))
	}
	return instruction(program, data{tagInitNetwork}.Bytes(c.Params.Marshal()...), accounts...)
}

// SetAuthority transfers a network's authority to another key. The zero key removes it permanently.
type SetAuthority struct {
	Authority sign.Key
	Network   sign.Key

	New sign.Key
}

// Instruction implements Call.
func (c SetAuthority) Instruction(program sign.Key) svm.Instruction {
	return instruction(program, data{tagSetAuthority}.Key(c.New), signs(c.Authority), writes(c.Network))
}

// InitPool creates the verifiers' pool of one mint. It is permissionless.
type InitPool struct {
	Payer   sign.Key
	Network sign.Key
	Mint    sign.Key
	Pool    sign.Key // PoolAddress

	Index uint8 // of the mint in the parameters
}

// Instruction implements Call.
func (c InitPool) Instruction(program sign.Key) svm.Instruction {
	return instruction(program, data{tagInitPool, c.Index},
		pays(c.Payer), reads(c.Network), reads(c.Mint), writes(c.Pool), tokenProgram, systemProgram)
}

// DrawPool pays a provider out of the verifiers' pool.
type DrawPool struct {
	Authority   sign.Key
	Network     sign.Key
	Pool        sign.Key
	Mint        sign.Key
	Provider    sign.Key
	Destination sign.Key // TokenAccount of the provider's payout wallet

	Amount uint64
}

// Instruction implements Call.
func (c DrawPool) Instruction(program sign.Key) svm.Instruction {
	return instruction(program, data{tagDrawPool}.U64(c.Amount),
		signs(c.Authority), reads(c.Network), writes(c.Pool), reads(c.Mint), reads(c.Provider), writes(c.Destination),
		tokenProgram)
}
