package program

import "github.com/starling-network/starling/market/sign"

// InitNetwork creates a network of the parameters, for ever. Anybody may.
type InitNetwork struct {
	Payer   sign.Key
	Network sign.Key // NetworkAddress

	Params Params
}

// Instruction implements Call.
func (c InitNetwork) Instruction(program sign.Key) Instruction {
	accounts := []Meta{pays(c.Payer), writes(c.Network), reads(SystemProgram), reads(c.Params.StakeMint)}
	for _, m := range c.Params.Mints {
		accounts = append(accounts, reads(m.Mint))
	}
	return Instruction{Program: program, Data: data{tagInitNetwork}.bytes(c.Params.Marshal()...), Accounts: accounts}
}

// SetAuthority hands a network's authority on, or with the zero key gives it up for ever.
type SetAuthority struct {
	Authority sign.Key
	Network   sign.Key

	New sign.Key
}

// Instruction implements Call.
func (c SetAuthority) Instruction(program sign.Key) Instruction {
	return Instruction{Program: program, Data: data{tagSetAuthority}.key(c.New),
		Accounts: []Meta{signs(c.Authority), writes(c.Network)}}
}

// InitPool creates the verifiers' pool of one mint. Anybody may.
type InitPool struct {
	Payer   sign.Key
	Network sign.Key
	Mint    sign.Key
	Pool    sign.Key // PoolAddress

	Index uint8 // of the mint in the parameters
}

// Instruction implements Call.
func (c InitPool) Instruction(program sign.Key) Instruction {
	return Instruction{Program: program, Data: data{tagInitPool, c.Index}, Accounts: []Meta{
		pays(c.Payer), reads(c.Network), reads(c.Mint), writes(c.Pool), reads(TokenProgram), reads(SystemProgram)}}
}
