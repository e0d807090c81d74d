package program_test

import (
	"testing"

	"github.com/starling-network/starling/chain/program"
	"github.com/starling-network/starling/market/sign"
)

// Of every call it is known what it may compute: what is not known gets 200,000 units, which ranks it last in a full block.
func TestUnitsOfEveryCall(t *testing.T) {
	t.Parallel()
	at := sign.Key{1}
	n := 0
	for tag := range 256 {
		in := program.Instruction{Program: at, Data: []byte{byte(tag)}}
		name := in.CallName(at)
		if name == "" {
			continue
		}
		n++
		if units := program.Units(at, []program.Instruction{in}); units > 90_000 && name != "SlashAudit" && name != "Slash" {
			t.Errorf("%s may take %d units", name, units)
		}
	}
	if n < 30 {
		t.Errorf("%d calls", n)
	}
}

// A budget is read in the one form in which it is written.
func TestBudget(t *testing.T) {
	t.Parallel()
	call := program.Instruction{Program: sign.Key{1}, Data: []byte{7}}
	in := append([]program.Instruction{call}, program.Budget(30_000, 12_345)...)
	rest, units, price, ok := program.SplitBudget(in)
	if !ok || len(rest) != 1 || units != 30_000 || price != 12_345 {
		t.Errorf("%d before it, %d units at %d, %v", len(rest), units, price, ok)
	}
	b := program.Budget(1, 2)
	named := b[0]
	named.Accounts = []program.Meta{{Key: sign.Key{3}}}
	for name, in := range map[string][]program.Instruction{
		"nothing": nil, "one": b[:1], "the price alone": b[1:], "turned": {b[1], b[0]}, "three": {b[0], b[0], b[1]}, "not last": {b[0], b[1], call}, "with an account": {named, b[1]},
	} {
		if _, _, _, ok := program.SplitBudget(in); ok {
			t.Errorf("%s passes for a budget", name)
		}
	}
}
