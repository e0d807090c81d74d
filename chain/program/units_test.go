package program_test

import (
	"testing"

	"github.com/starling-network/starling/chain/program"
	"github.com/starling-network/starling/chain/svm"
	"github.com/starling-network/starling/market/sign"
)

// Of every call it is known what it may compute: what is not known gets 200,000 units, which ranks it last in a full block.
func TestUnitsOfEveryCall(t *testing.T) {
	t.Parallel()
	at := sign.Key{1}
	n := 0
	for tag := range 256 {
		in := svm.Instruction{Program: at, Data: []byte{byte(tag)}}
		name := program.CallName(at, in)
		if name == "" {
			continue
		}
		n++
		if units := program.Units(at, []svm.Instruction{in}); units > 90_000 && name != "SlashAudit" && name != "Slash" {
			t.Errorf("%s may take %d units", name, units)
		}
	}
	if n < 30 {
		t.Errorf("%d calls", n)
	}
}
