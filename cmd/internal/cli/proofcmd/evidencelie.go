package proofcmd

import (
	"fmt"
	"time"

	"github.com/starling-network/starling/cmd/internal/cli"
	"github.com/starling-network/starling/node/evidence"
)

func lieTable(t *cli.Table, lies []evidence.KeptLie) {
	t.Head("ID", "AGE", "LIAR", "LIE", "UNIT", "WINDOW", "FOUND BY", "STAKE")
	for _, l := range lies {
		by := "others"
		if l.Own {
			by = "this peer"
		}
		t.Row(l.ID, cli.Ago(time.Now(), l.Found), l.Liar.Short(), l.Kind, l.Unit.Short(),
			fmt.Sprint(uint64(l.Window)), by, cli.Clip(lieFate(l), 120))
	}
	t.Row()
}

// lieFate describes the state of a lie.
func lieFate(l evidence.KeptLie) string {
	switch l.State {
	case evidence.LieTaken:
		return "taken by this peer"
	case evidence.LieSlashed:
		return "taken, by somebody else or for another proof"
	case evidence.LieExpired:
		return "the proof is too old to count"
	case evidence.LieSubmitting:
		return "is being taken"
	}
	if l.Why != "" {
		return "not taken yet: " + l.Why
	}
	return "not taken yet"
}

// shownLie is a proof of a lie as it is shown.
type shownLie struct {
	evidence.LieFinding
	State   evidence.LieState `json:"state,omitempty"`
	Why     string            `json:"why,omitempty"`
	Outcome *evidence.Outcome `json:"outcome,omitempty"`
}

// showLie checks the proof of a lie and shows its content, and its state if the peer keeps it.
func showLie(a *cli.App, p evidence.Proof, kept *evidence.KeptLie) error {
	f, err := found(p.CheckLie())
	if err != nil {
		return err
	}
	s := shownLie{LieFinding: f}
	if kept != nil {
		s.State, s.Why, s.Outcome = kept.State, kept.Why, kept.Outcome
	}
	return a.Show(s, func(t *cli.Table) {
		t.Row("proven", f.Kind+" by "+f.Liar.String())
		t.Row("says", f.Says)
		t.Row("unit", f.Unit, "of "+f.Provider.String())
		t.Row("when", fmt.Sprintf("window %d, slots %d to %d", uint64(f.Window), f.From, f.To))
		t.Row("network", f.Network, "genesis "+f.GenesisHash.String(), whose(a, f.GenesisHash))
		t.Row("checked", "what the liar signed; what is said to be wrong was computed again")
		if kept == nil {
			t.Row("not checked", "whether the liar has anything at stake: evidence submit asks the chain")
			return
		}
		t.Row("stake", lieFate(*kept))
		if o := kept.Outcome; o != nil {
			for _, id := range o.Transactions {
				t.Row("transaction", id)
			}
		}
	})
}
