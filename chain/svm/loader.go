package svm

import (
	"bytes"
	"encoding/binary"
	"fmt"

	"github.com/starling-network/starling/market/sign"
)

// Deployed is a program as a cluster has it.
type Deployed struct {
	Code      sign.Hash `json:"code"`               // CodeHash of the deployed code
	Slot      uint64    `json:"slot"`               // in which it was deployed, or last upgraded
	Authority sign.Key  `json:"authority,omitzero"` // the key that may replace the code; zero: the code is final
}

// Final reports whether the code cannot be replaced.
func (d Deployed) Final() bool { return d.Authority.IsZero() }

// SingleKey reports whether one private key can replace the code. An address off the curve has none: it is a program's,
// such as the vault of a multisig.
func (d Deployed) SingleKey() bool { return !d.Final() && !offCurve(d.Authority) }

// CodeHash is the SHA-256 of a program without the zeros at its end, with which a cluster fills its account up.
// Solana's own tools (solana-verify get-program-hash) count the same.
func CodeHash(elf []byte) sign.Hash { return sign.Sum(bytes.TrimRight(elf, "\x00")) }

// Accounts of the upgradeable loader, bincode: number u32 ‖ fields.
const (
	loaderProgram     = 2 // ‖ address of the program's data
	loaderProgramData = 3 // ‖ slot u64 ‖ authority: u8, 1 when there is one ‖ key[32] ‖ the program
	loaderDataHead    = 45
)

// DataAddress is the address at which the upgradeable loader keeps a program's code.
func DataAddress(program sign.Key) sign.Key { return Address(LoaderProgram, program[:]) }

// ParseDeployed parses the two accounts of the upgradeable loader. It returns ErrAccount.
func ParseDeployed(program sign.Key, account, data []byte) (Deployed, error) {
	le, where := binary.LittleEndian, DataAddress(program)
	if len(account) != 4+sign.KeySize || le.Uint32(account) != loaderProgram || sign.Key(account[4:]) != where {
		return Deployed{}, fmt.Errorf("%w: %s is no program of the upgradeable loader", ErrAccount, program)
	}
	if len(data) < loaderDataHead || le.Uint32(data) != loaderProgramData || data[12] > 1 {
		return Deployed{}, fmt.Errorf("%w: %s is no program's data", ErrAccount, where)
	}
	d := Deployed{Code: CodeHash(data[loaderDataHead:]), Slot: le.Uint64(data[4:])}
	if data[12] == 1 {
		d.Authority = sign.Key(data[13:loaderDataHead])
	}
	return d, nil
}
