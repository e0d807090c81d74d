package program

import (
	"encoding/binary"

	"github.com/starling-network/starling/market/sign"
)

// Instruction calls a program on chain. (Client libraries have their own form of it; chain/solana converts.)
type Instruction struct {
	Program  sign.Key
	Accounts []Meta
	Data     []byte
}

// Meta is an account of an instruction, and the program's permissions on it.
type Meta struct {
	Key              sign.Key
	Signer, Writable bool
}

// Call is one call of Starling's program, its accounts and arguments by name. Two calls that are equal field by field
// make the same bytes.
type Call interface {
	// Instruction is the call's wire form, for the program at that address.
	Instruction(program sign.Key) Instruction
}

// Addresses that instructions name.
var (
	SystemProgram      = address("11111111111111111111111111111111")
	TokenProgram       = address("TokenkegQfeZyiNwAJbNbGKPFXCWuBvf9Ss623VQ5DA")
	Ed25519Program     = address("Ed25519SigVerify111111111111111111111111111")
	InstructionsSysvar = address("Sysvar1nstructions1111111111111111111111111")
	ComputeBudget      = address("ComputeBudget111111111111111111111111111111")
	MemoProgram        = address("MemoSq4gqABAXKb96qnH8TysNcWxMyWCqXgDLGmfcHr")
	LoaderProgram      = address("BPFLoaderUpgradeab1e11111111111111111111111") // the upgradeable one
)

// ComputeLimit bounds the computation of its transaction, in units. Without it a call has 200,000.
func ComputeLimit(units uint32) Instruction {
	return Instruction{Program: ComputeBudget, Data: data{tagComputeLimit}.u32(units)}
}

// address reads a constant; a mistake in one shows when the package is first loaded.
func address(text string) sign.Key {
	k, err := sign.ParseKey(text)
	if err != nil {
		panic("address " + text + ": " + err.Error())
	}
	return k
}

func reads(k sign.Key) Meta  { return Meta{Key: k} }
func writes(k sign.Key) Meta { return Meta{Key: k, Writable: true} }
func signs(k sign.Key) Meta  { return Meta{Key: k, Signer: true} }
func pays(k sign.Key) Meta   { return Meta{Key: k, Signer: true, Writable: true} }

// data writes an instruction's layout.
type data []byte

func (d data) u8(v uint8) data       { return append(d, v) }
func (d data) u16(v uint16) data     { return binary.LittleEndian.AppendUint16(d, v) }
func (d data) u32(v uint32) data     { return binary.LittleEndian.AppendUint32(d, v) }
func (d data) u64(v uint64) data     { return binary.LittleEndian.AppendUint64(d, v) }
func (d data) bytes(v ...byte) data  { return append(d, v...) }
func (d data) key(v sign.Key) data   { return append(d, v[:]...) }
func (d data) hash(v sign.Hash) data { return append(d, v[:]...) }

// callNames are PROTOCOL.md's, by their number; "" for one that is retired.
var callNames = [...]string{"InitNetwork", "SetAuthority", "InitPool", "OpenEscrow", "AddTranche", "AddStandbyTranche",
	"TopUp", "Claim", "Retire", "Refund", "Sweep", "CloseTranche", "CloseEscrow", "Register", "Update", "", "Stake",
	"RequestUnstake", "Withdraw", "Attest", "CloseAttested", "Slash", "Anchor", "Prove", "CloseAnchor", "DrawPool",
	"InitEmission", "Bond", "Release", "Propose", "Vote", "CloseVote", "Enact", "CloseBallot", "Accept", "ClaimReward",
	"ClosePayout", "State", "CloseStated", "SlashAudit"}

// CallName names the call of the program that an instruction is; "" for one that is none.
func (in Instruction) CallName(program sign.Key) string {
	if in.Program != program || len(in.Data) == 0 || int(in.Data[0]) >= len(callNames) {
		return ""
	}
	return callNames[in.Data[0]]
}
