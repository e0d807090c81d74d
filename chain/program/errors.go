package program

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/starling-network/starling/market/sign"
)

// Code is the number of a refusal by the program: "custom program error" of a transaction. Codes are errors and compare
// with errors.Is; src/error.rs and PROTOCOL.md explain each by the same names.
type Code uint32

// Error describes the refusal.
func (c Code) Error() string {
	if m, ok := meanings[c]; ok {
		return "program: " + m
	}
	return fmt.Sprintf("program: unknown error %d", uint32(c))
}

const customError = " failed: custom program error: 0x"

// Refusal finds the program's reason for a refusal in a transaction's log. If another program that it called refused,
// with its own numbers, ok is false and by names that program.
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
