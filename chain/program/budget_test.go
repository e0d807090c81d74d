package program_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/testnet/programtest"
)

// budgetFile holds what every transaction of the tests that the program takes may cost, in compute units: by test, by name.
// -rewrite writes it anew, from the tests that are run.
var budgetFile = filepath.Join("testdata", "cu.json")

// overBudget is by how many hundredths a transaction may exceed its budget.
const overBudget = 5

var budgets sync.Mutex // of the file

// newBench puts the program's address, an engine and a wallet together. On LiteSVM, whose clock and so whose addresses are the
// same each time, what the test spends has to stay within its budget.
func newBench(t testing.TB, e programtest.Engine, id sign.Key, wallet string, lamports uint64) *bench {
	b := &bench{TB: t, Engine: e, program: id, wallet: programtest.Wallet(t, e, wallet, lamports), units: map[string]uint64{}, spent: map[string]uint64{}}
	if e.Name() == "LiteSVM" {
		t.Cleanup(func() {
			if !t.Failed() {
				checkBudget(t, b.spent)
			}
		})
	}
	return b
}

func checkBudget(t testing.TB, spent map[string]uint64) {
	budgets.Lock()
	defer budgets.Unlock()
	all := map[string]map[string]uint64{}
	text, err := os.ReadFile(budgetFile)
	if err == nil {
		err = json.Unmarshal(text, &all)
	}
	if err != nil && !*rewrite {
		t.Fatal(err)
	}
	test, _, _ := strings.Cut(t.Name(), "/")
	if *rewrite {
		all[test] = spent
		text, err := json.MarshalIndent(all, "", "\t")
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(budgetFile, append(text, '\n'), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	for name, units := range spent {
		switch most, ok := all[test][name]; {
		case !ok:
			t.Errorf("%s: %d CU, and %s has no budget for it; write one with -rewrite", name, units, budgetFile)
		case units*100 > most*(100+overBudget):
			t.Errorf("%s: %d CU, more than %d %% over its budget of %d; if that has to be: -rewrite, and say why", name, units, overBudget, most)
		}
	}
	for name := range all[test] {
		if _, ok := spent[name]; !ok {
			t.Errorf("%s has a budget for %q, which is not run; write it anew with -rewrite", budgetFile, name)
		}
	}
}
