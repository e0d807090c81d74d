package proof

import (
	"context"
	"fmt"
	"time"

	"github.com/starling-network/starling/chain"
	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
)

// Finding is the result of a check: the facts that a proof proves.
type Finding struct {
	Kind        Kind       `json:"kind"`
	Hash        sign.Hash  `json:"hash"`
	Network     string     `json:"network"`
	GenesisHash sign.Hash  `json:"genesisHash"`
	Subjects    []sign.Key `json:"subjects"`
	Proves      string     `json:"proves"`
	Detail      any        `json:"detail"`          // by kind
	Chain       string     `json:"chain,omitempty"` // "checked…", or the reason why not; empty: nothing to check

	// Fault is the reason why the proof counts against its owner although its rules hold; nil if it does not.
	Fault error `json:"-"`

	content Content
	genesis market.Genesis
	rows    func(row func(cells ...any))
}

// Check checks every rule of a proof that needs no chain. The error is a *BrokenRule where a rule has a name.
func Check(c Content, g market.Genesis) (Finding, error) {
	if err := g.Validate(); err != nil {
		return Finding{}, broken(RuleGenesis, "", err)
	}
	f, err := c.Check(g)
	if err != nil {
		return Finding{}, err
	}
	f.Kind, f.Hash, f.Subjects, f.Proves = c.Kind(), c.Hash(), c.Subjects(), c.Summary()
	f.Network, f.GenesisHash, f.content, f.genesis = g.Tag(), g.Hash(), c, g
	return f, nil
}

// Content returns the checked proof.
func (f Finding) Content() Content { return f.content }

// Genesis returns the genesis of the proof's network.
func (f Finding) Genesis() market.Genesis { return f.genesis }

// Rows calls row for each line of the finding as text, in columns. A call without cells is an empty line.
func (f Finding) Rows(row func(cells ...any)) {
	row("kind", f.Kind, f.Kind.Text())
	row("hash", f.Hash)
	row("proves", f.Proves)
	f.rows(row)
	if s, err := specOf(f.Kind); err == nil {
		row("checked", s.checked)
		if s.left != "" {
			row("not checked", s.left)
		}
	}
	if f.Chain != "" {
		row("chain", f.Chain)
	}
}

// onChain is a proof with something to check on chain.
type onChain interface {
	// checkChain reads the chain and completes the finding, including Chain. The errors are *BrokenRule and ErrChain.
	// With a nil chain it completes the parts that need none.
	checkChain(ctx context.Context, c Chain, f *Finding) error
}

// CheckChain checks the part of the proof that is on chain. It does nothing for a proof without one. On a free network
// c is nil. The errors are *BrokenRule and ErrChain.
func (f *Finding) CheckChain(ctx context.Context, c Chain) error {
	x, ok := f.content.(onChain)
	if !ok {
		return nil
	}
	return x.checkChain(ctx, c, f)
}

// State is the progress of taking an offender's stake.
type State string

// The states: kept ⟶ submitting ⟶ taken, or from each of the two to one of the other ends.
const (
	StateKept       State = "kept"       // it was not submitted
	StateSubmitting State = "submitting" // that was begun; the chain shows how far it came
	StateTaken      State = "taken"      // this peer had the stake taken
	StateSlashed    State = "slashed"    // the stake was taken for this or a later offence
	StateExpired    State = "expired"    // older than the network's limit for evidence
)

// Over reports whether the state is final. The zero State is not.
func (s State) Over() bool { return s != "" && s != StateKept && s != StateSubmitting }

// Outcome is the result of submitting a proof to the network's program.
type Outcome struct {
	Proof        string       `json:"proof"` // hash
	Provider     sign.Key     `json:"provider"`
	Already      bool         `json:"already"`          // slashed before, so that nothing was sent
	Slot         market.Slot  `json:"slot"`             // of the slash
	Mint         sign.Key     `json:"mint"`             // of the stake
	Taken        uint64       `json:"taken"`            // base units of it, all that was staked
	Paid         []Share      `json:"paid,omitempty"`   // to the victims, in the order of the proof
	Reward       *Share       `json:"reward,omitempty"` // to the submitter
	Burned       uint64       `json:"burned"`
	Transactions []chain.TxID `json:"transactions"`
}

// Share is the part of a stake that one wallet got.
type Share struct {
	Wallet sign.Key `json:"wallet"`
	Amount uint64   `json:"amount"`
}

// Entry is a proof in a list, without its body.
type Entry struct {
	Kind     Kind       `json:"kind"`
	Hash     sign.Hash  `json:"hash"`
	Subjects []sign.Key `json:"subjects"`
	Proves   string     `json:"proves"`
	Found    time.Time  `json:"found,omitzero"`
	Own      bool       `json:"own"` // this peer found it, or is a victim
	State    State      `json:"state,omitempty"`
	Why      string     `json:"why,omitempty"` // it was not submitted yet
	Outcome  *Outcome   `json:"outcome,omitempty"`
}

// EntryOf returns the entry of a proof.
func EntryOf(c Content) Entry {
	return Entry{Kind: c.Kind(), Hash: c.Hash(), Subjects: c.Subjects(), Proves: c.Summary()}
}

// StateText describes the state of an entry for users.
func (e Entry) StateText() string {
	switch e.State {
	case StateTaken:
		return "stake taken by this peer"
	case StateSlashed:
		return "stake taken, by another peer or for another proof"
	case StateExpired:
		return "the proof is too old to count"
	case StateSubmitting:
		return "the stake is being taken"
	case StateKept:
		if e.Why != "" {
			return "stake not taken yet: " + e.Why
		}
		return "stake not taken yet"
	}
	return ""
}

// slotsText formats a range of slots.
func slotsText(from, to market.Slot) string { return fmt.Sprintf("slots %d to %d", from, to) }
