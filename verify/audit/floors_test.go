package audit_test

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/verify/audit"
	"github.com/starling-network/starling/verify/challenge"
)

// One H200 has room for fourteen datasets of 2 GiB at the same instant. A unit that says it is an RTX 3060 proves the memory of one, or nothing.
func TestAttackOneCardAsFourteen(t *testing.T) {
	t.Parallel()
	if _, _, err := audit.Plan("gpu/rtx-3060", market.Resources{VRAMMiB: 2048}); !errors.Is(err, challenge.ErrShape) {
		t.Errorf("an RTX 3060 of 2 GiB is asked something: %v", err)
	}
	for _, k := range audit.Floors() {
		if k.Class == "cpu" {
			continue
		}
		if k.VRAMMiB < 4096 {
			t.Errorf("%s has %d MiB at least", k.Class, k.VRAMMiB)
		}
		for _, class := range []market.Class{k.Class, k.Class.Family() + "/x"} {
			least, _ := audit.KnownAs(class)
			if _, _, err := audit.Plan(class, market.Resources{VRAMMiB: least.VRAMMiB - 1}); !errors.Is(err,
				challenge.ErrShape) {
				t.Errorf("%s with less than its least memory: %v", class, err)
			}
			_, walk, err := audit.Plan(class, market.Resources{VRAMMiB: least.VRAMMiB})
			if err != nil || walk.Bytes() < uint64(least.VRAMMiB)<<20*2/3 {
				t.Errorf("%s: %v, a walk over %d bytes", class, err, walk.Bytes())
			}
		}
	}
	if h, _ := audit.KnownAs("gpu/h200"); 143_771/11_520 > 12 || h.VRAMMiB < 11*11_520 {
		t.Error("an H200 has the memory of more than twelve RTX 3060")
	}
}

// PROTOCOL.md shows the floors as they are, and where each comes from.
func TestProtocolShowsFloors(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../PROTOCOL.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, k := range audit.Floors() {
		memory := "-"
		if k.VRAMMiB > 0 {
			memory = fmt.Sprint(k.VRAMMiB)
		}
		want := fmt.Sprintf("| `%s` | %.4g | %.4g | %s | %s |",
			k.Class, float64(k.Operations)/1e12, float64(k.Reads)/1e9, memory, k.Source)
		if !strings.Contains(string(text), want) {
			t.Errorf("it has not: %s", want)
		}
	}
}
