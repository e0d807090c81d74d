package program

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"

	"github.com/starling-network/starling/market/sign"
)

// Code is the number with which the program refuses something: "custom program error" of a transaction. Codes are errors and
// compare with errors.Is; what each means stands in src/error.rs and PROTOCOL.md, by the same names.
type Code uint32

// Error says what was refused.
func (c Code) Error() string {
	if m, ok := meanings[c]; ok {
		return "program: " + m
	}
	return fmt.Sprintf("program: error %d, which this version does not know", uint32(c))
}

// ParseError reads a transaction's error in the JSON form of RPC servers. Instruction is the number of the instruction that
// failed and c its custom error, if it is one: which program's, the log tells (Refusal).
func ParseError(raw []byte) (instruction int, c Code, ok bool) {
	var e struct{ InstructionError []json.RawMessage }
	var custom struct{ Custom *uint32 }
	if json.Unmarshal(raw, &e) != nil || len(e.InstructionError) != 2 || json.Unmarshal(e.InstructionError[0], &instruction) != nil ||
		json.Unmarshal(e.InstructionError[1], &custom) != nil || custom.Custom == nil {
		return 0, 0, false
	}
	return instruction, Code(*custom.Custom), true
}

const customError = " failed: custom program error: 0x"

// Refusal finds in a transaction's log why the program refused it. A program that it called may have refused too, whose
// numbers mean other things: by then ok is false, and by names the one that did.
func Refusal(program sign.Key, logs []string) (c Code, by string, ok bool) {
	for _, line := range logs {
		rest, isProgram := strings.CutPrefix(line, "Program ")
		id, number, isCustom := strings.Cut(rest, customError)
		if !isProgram || !isCustom {
			continue
		}
		n, err := strconv.ParseUint(number, 16, 32)
		return Code(n), id, err == nil && id == program.String()
	}
	return 0, "", false
}
