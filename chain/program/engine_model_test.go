package program_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/starling-network/starling/chain/program"
	"github.com/starling-network/starling/chain/program/model"
	"github.com/starling-network/starling/chain/program/modeltest"
	"github.com/starling-network/starling/chain/svm"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/testnet/programtest"
)

const (
	modelSteps = 100
	richly     = 1000 * sol // of everybody
)

// TestProgramIsTheModel drives the program and its model through the same random calls and compares, after each, whether and why
// it was refused, and every account that it named.
func TestProgramIsTheModel(t *testing.T) {
	t.Parallel()
	e, ok := programtest.LiteSVM(t).(programtest.Sequencer)
	if !ok {
		t.Fatal("LiteSVM runs no sequences")
	}
	done, refused, total := map[string][]uint64{}, map[error]int{}, 0
	rapid.Check(t, func(r *rapid.T) {
		w := modeltest.New(r, programID)
		steps := compareSequence(r, t, e, w, done, refused)
		total += steps
	})
	t.Logf("%d steps; %d ways to be refused; succeeded, with the compute units of PROTOCOL.md's table:", total, len(refused))
	for _, name := range slices.Sorted(maps.Keys(done)) {
		units := slices.Sorted(slices.Values(done[name]))
		t.Logf("%5d  | %s | %d | %d | %d |", len(units), name, units[0], units[len(units)/2], units[len(units)-1])
	}
	for name := range callNames() {
		if len(done[name]) == 0 {
			t.Errorf("%s never succeeded: this test shows nothing about it", name)
		}
	}
	if len(refused) < 25 {
		t.Errorf("only %d ways to be refused were seen", len(refused))
	}
}

func callNames() map[string]bool {
	names := map[string]bool{}
	for _, c := range calls() {
		names[reflect.TypeOf(c).Name()] = true
	}
	return names
}

// liveSteps are drawn on a chain that makes its own slots, and seeds the sequences: each has other calls.
const (
	liveSteps = 60
	liveSeed  = 3
)

// TestProgramIsTheModelByRPC is a shorter one of the same sequences on a chain with blocks, by RPC: the calls are drawn as its slots
// pass, and each is compared with the model in the slot in which it landed.
func TestProgramIsTheModelByRPC(t *testing.T) {
	t.Parallel()
	e := programtest.Surfpool(t)
	programtest.Deploy(t, e, program.ELF)
	payer := programtest.Wallet(t, e, "payer", 10*sol)
	done, refused := map[string]int{}, 0
	rapid.Custom(func(r *rapid.T) int {
		w := modeltest.New(r, programID)
		for i := range w.Mints {
			if err := e.(programtest.Minter).Mint(t.Context(), modeltest.MintKey(i), modeltest.Decimals, modeltest.Wealth, uint64(1-i)*richly, w.Wallets()...); err != nil {
				t.Fatal(err)
			}
		}
		l := live{t: t, e: e, w: w, signers: []sign.Signer{payer}}
		for _, p := range w.People() {
			l.signers = append(l.signers, p)
		}
		w.Slot, w.Land = l.slot(modeltest.Past), l.land
		w.Begin(func(_ *model.State, s modeltest.Step) { l.compare(s, nil) })
		for range liveSteps {
			s, err := w.Next()
			l.compare(s, err)
			if err != nil {
				refused++
			} else {
				done[reflect.TypeOf(s.Call).Name()]++
			}
		}
		return 0
	}).Example(liveSeed)
	t.Logf("%d refused; succeeded after the beginning: %v", refused, done)
	if len(done) < 8 || refused < 8 {
		t.Errorf("this shows little: %d refused, %v succeeded", refused, done)
	}
}

// live is a world on a chain that makes its own slots.
type live struct {
	t       *testing.T
	e       programtest.Engine
	w       *modeltest.World
	signers []sign.Signer
	outcome programtest.Outcome // of the last step
}

// slot waits for a slot and says which there is then.
func (l *live) slot(first uint64) uint64 {
	l.t.Helper()
	for {
		now, err := l.e.Slot(l.t.Context())
		switch {
		case err != nil:
			l.t.Fatal(err)
		case now >= first:
			return now
		}
		time.Sleep(10 * time.Millisecond) // a chain's slots pass by themselves
	}
}

// land runs a step once its slot is there.
func (l *live) land(s modeltest.Step) uint64 {
	l.t.Helper()
	l.slot(s.Slot)
	in := s.Instructions(programID)
	r, err := l.e.Run(l.t.Context(), in, l.signers...)
	if err != nil {
		l.t.Fatal(err)
	}
	l.outcome = programtest.Outcome{Result: r, Accounts: map[sign.Key]programtest.Account{}}
	for _, i := range in {
		for _, m := range i.Accounts {
			a, err := l.e.Account(l.t.Context(), m.Key)
			if err != nil {
				l.t.Fatal(err)
			}
			if a != nil {
				l.outcome.Accounts[m.Key] = *a
			}
		}
	}
	return r.Slot
}

func (l *live) compare(s modeltest.Step, refused error) {
	l.t.Helper()
	if what := difference(expectation{s, refused, l.w.State}, l.outcome); what != "" {
		l.t.Fatalf("%s\n%s\n%s", what, s.Describe(), strings.Join(l.outcome.Logs, "\n"))
	}
}

// expectation is what the model says of one step.
type expectation struct {
	step    modeltest.Step
	refused error
	after   *model.State
}

func compareSequence(r *rapid.T, t *testing.T, e programtest.Sequencer, w *modeltest.World, done map[string][]uint64, refused map[error]int) int {
	payer := sign.NewPrivate(sign.Sum([]byte("pays fees")))
	if err := e.Begin(t.Context(), genesisOf(w, payer.Key())); err != nil {
		t.Fatal(err)
	}
	if err := e.Deploy(t.Context(), sign.NewPrivate(sign.Sum([]byte("program"))), program.ELF); err != nil {
		t.Fatal(err)
	}
	var expected []expectation
	w.Begin(func(_ *model.State, s modeltest.Step) {
		expected = append(expected, expectation{step: s, after: w.State.Clone()})
	})
	for range modelSteps {
		s, err := w.Next()
		expected = append(expected, expectation{s, err, w.State.Clone()})
	}
	run := make([]programtest.Step, len(expected))
	for i, x := range expected {
		run[i] = programtest.Step{Slot: x.step.Slot, Instructions: x.step.Instructions(programID), Signers: []sign.Signer{payer}}
		for _, p := range w.People() {
			run[i].Signers = append(run[i].Signers, p)
		}
	}
	outcomes, err := e.Sequence(t.Context(), run)
	if err != nil {
		t.Fatal(err)
	}
	for i, x := range expected {
		if what := difference(x, outcomes[i]); what != "" {
			r.Fatalf("step %d: %s\n%s\n%s", i, what, x.step.Describe(), strings.Join(outcomes[i].Logs, "\n"))
		}
		if x.refused == nil {
			name := reflect.TypeOf(x.step.Call).Name()
			done[name] = append(done[name], outcomes[i].Units)
			if most := program.Units(programID, run[i].Instructions); outcomes[i].Units > uint64(most) {
				r.Fatalf("%s took %d compute units, a transaction with it asks for %d", name, outcomes[i].Units, most)
			}
		} else {
			refused[reason(outcomes[i])]++
		}
	}
	return len(expected)
}

// reason is the error that the program gave.
func reason(o programtest.Outcome) error {
	if o.Err == "" {
		return nil
	}
	c, by, ours := program.Refusal(programID, o.Logs)
	switch {
	case ours:
		return c
	case by == svm.TokenProgram.String(), strings.Contains(strings.Join(o.Logs, "\n"), svm.TokenProgram.String()+" failed"):
		return model.ErrToken
	}
	return errors.New(o.Err)
}

// difference says where the program did something else than the model; "" when nowhere.
func difference(x expectation, o programtest.Outcome) string {
	got := reason(o)
	if (got == nil) != (x.refused == nil) || got != nil && !errors.Is(x.refused, got) {
		return fmt.Sprintf("the program says %v, the model %v", got, x.refused)
	}
	for _, m := range x.step.Call.Instruction(programID).Accounts {
		if what := differs(x.after, m.Key, o.Accounts); what != "" {
			return fmt.Sprintf("%s: %s", m.Key, what)
		}
	}
	return ""
}

func differs(s *model.State, at sign.Key, accounts map[sign.Key]programtest.Account) string {
	got, there := accounts[at]
	want, size := stored(s, at)
	switch {
	case want != nil:
		if !there || got.Owner != programID || got.Lamports != svm.Rent(size) || !bytes.Equal(got.Data, want) {
			return fmt.Sprintf("%d lamports, %x, want %d, %x", got.Lamports, got.Data, svm.Rent(size), want)
		}
	case has(s.Tokens, at):
		token, err := svm.UnmarshalToken(got.Data)
		if err != nil || token != s.Tokens[at] || got.Owner != svm.TokenProgram {
			return fmt.Sprintf("%+v, want %+v: %v", token, s.Tokens[at], err)
		}
	case has(s.Mints, at):
		if supply := binary.LittleEndian.Uint64(got.Data[36:]); supply != s.Mints[at].Supply {
			return fmt.Sprintf("supply of %d, want %d", supply, s.Mints[at].Supply)
		}
	case there && got.Owner == svm.SystemProgram && len(got.Data) == 0:
		if paid := int64(richly) - int64(got.Lamports); paid != s.Rent[at] {
			return fmt.Sprintf("paid %d lamports, want %d", paid, s.Rent[at])
		}
	case there && got.Owner == programID:
		return fmt.Sprintf("an account of %d bytes that should not be there", len(got.Data))
	}
	return ""
}

func has[V any](m map[sign.Key]V, k sign.Key) bool {
	_, ok := m[k]
	return ok
}

// stored is the program's account at an address.
func stored(s *model.State, at sign.Key) ([]byte, int) {
	var b []byte
	for _, find := range []func() (marshaler, bool){
		func() (marshaler, bool) { v, ok := s.Networks[at]; return v, ok }, func() (marshaler, bool) { v, ok := s.Escrows[at]; return v, ok },
		func() (marshaler, bool) { v, ok := s.Tranches[at]; return v, ok }, func() (marshaler, bool) { v, ok := s.Providers[at]; return v, ok },
		func() (marshaler, bool) { v, ok := s.Attested[at]; return v, ok }, func() (marshaler, bool) { v, ok := s.Anchors[at]; return v, ok },
		func() (marshaler, bool) { v, ok := s.Ballots[at]; return v, ok }, func() (marshaler, bool) { v, ok := s.Votes[at]; return v, ok },
		func() (marshaler, bool) { v, ok := s.Payouts[at]; return v, ok }, func() (marshaler, bool) { v, ok := s.Stated[at]; return v, ok },
	} {
		if v, ok := find(); ok {
			b = v.Marshal()
		}
	}
	return b, len(b)
}

// genesisOf puts people, mints and token accounts in place.
func genesisOf(w *modeltest.World, payer sign.Key) map[sign.Key]programtest.Account {
	accounts := map[sign.Key]programtest.Account{payer: {Lamports: 1 << 50}}
	for _, k := range w.Wallets() {
		accounts[k] = programtest.Account{Lamports: richly}
	}
	for at, m := range w.State.Mints {
		b := make([]byte, 82)
		binary.LittleEndian.PutUint64(b[36:], m.Supply)
		b[44], b[45] = m.Decimals, 1
		accounts[at] = programtest.Account{Lamports: svm.Rent(len(b)), Owner: svm.TokenProgram, Data: b}
	}
	for at, a := range w.Tokens {
		b := append(append(make([]byte, 0, svm.TokenSize), a.Mint[:]...), a.Owner[:]...)
		b = binary.LittleEndian.AppendUint64(b, a.Amount)[:svm.TokenSize]
		b[108] = 1
		accounts[at] = programtest.Account{Lamports: svm.Rent(len(b)), Owner: svm.TokenProgram, Data: b}
	}
	return accounts
}
