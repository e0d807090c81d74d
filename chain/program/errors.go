package program

import (
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
