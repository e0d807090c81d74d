package program_test

import (
	"fmt"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/starling-network/starling/chain/program"
	"github.com/starling-network/starling/chain/program/account"
	"github.com/starling-network/starling/chain/program/model"
	"github.com/starling-network/starling/chain/program/modeltest"
	"github.com/starling-network/starling/chain/program/sbpf"
	"github.com/starling-network/starling/chain/svm"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/testnet/programtest"
)

// forwarder is a program that calls another with what it was given (testdata/forward).
type forwarder struct {
	id  sign.Private
	elf []byte
}

func newForwarder(t *testing.T) forwarder {
	t.Helper()
	elf, err := compiler(t).Build(t.Context(), filepath.Join("testdata", "forward"), sbpf.V0)
	if err != nil {
		t.Fatal(err)
	}
	return forwarder{sign.NewPrivate(sign.Sum([]byte("forwarder"))), elf}
}

// own is the address that the forwarder signs for, and its bump.
func (f forwarder) own() (sign.Key, uint8) { return svm.FindAddress(f.id.Key(), []byte("forward")) }

// call has the forwarder make a call, as the owner of its address when that is in it and bump is not 0.
func (f forwarder) call(in svm.Instruction, bump uint8) svm.Instruction {
	out := svm.Instruction{Program: f.id.Key(), Data: append([]byte{bump}, in.Data...), Accounts: []svm.Meta{{Key: in.Program}}}
	return svm.Instruction{Program: out.Program, Data: out.Data, Accounts: append(out.Accounts, in.Accounts...)}
}

// bundle is a transaction of several calls in one slot, some of them made by the forwarder, and what the model says of it: refused is
// of the last call, and undoes them all.
type bundle struct {
	steps   []modeltest.Step
	through []bool // the forwarder makes it
	refused error
	after   *model.State
}

func (b bundle) instructions(f forwarder) (out []svm.Instruction) {
	for i, s := range b.steps {
		in := s.Instructions(programID)
		if last := len(in) - 1; b.through[i] {
			in[last] = svm.Instruction(f.call(in[last], 0))
		}
		out = append(out, in...)
	}
	return out
}

// mustBeFirst reports whether a call names its signatures by their number in the transaction.
func mustBeFirst(s modeltest.Step) bool { return reflect.ValueOf(s.Call).FieldByName("Ed").IsValid() }

// draw makes a transaction of the world, applied to it wholly or not at all.
func (f forwarder) draw(r *rapid.T, w *modeltest.World) bundle {
	var b bundle
	before := w.State.Clone()
	w.Together = false
	for n := rapid.IntRange(1, 4).Draw(r, "calls"); len(b.steps) < n; w.Together = true {
		made := w.State.Clone()
		s, err := w.Next()
		next := bundle{append(b.steps[:len(b.steps):len(b.steps)], s), append(b.through[:len(b.through):len(b.through)], rapid.Bool().Draw(r, "through")), err, nil}
		if len(b.steps) > 0 && (mustBeFirst(s) || modeltest.Size(next.instructions(f)) > modeltest.MaxTransaction) {
			w.State = made // it does not fit
			break
		}
		if len(b.steps) == 0 && modeltest.Size(next.instructions(f)) > modeltest.MaxTransaction {
			next.through[0] = false
		}
		b = next
		if err != nil {
			w.State = before
			break
		}
	}
	w.Together = false
	b.after = w.State.Clone()
	return b
}

// TestBundlesAreTheModel: several calls in one transaction, and calls made by another program, do what the model does when it makes
// the same calls one after the other; where one is refused none was made.
func TestBundlesAreTheModel(t *testing.T) {
	t.Parallel()
	e, ok := programtest.LiteSVM(t).(programtest.Sequencer)
	if !ok {
		t.Fatal("LiteSVM runs no sequences")
	}
	f := newForwarder(t)
	several, through, undone := 0, map[string]int{}, 0
	rapid.Check(t, func(r *rapid.T) {
		w := modeltest.New(r, programID)
		payer := sign.NewPrivate(sign.Sum([]byte("pays fees")))
		if err := e.Begin(t.Context(), genesisOf(w, payer.Key())); err != nil {
			t.Fatal(err)
		}
		for _, p := range []forwarder{{sign.NewPrivate(sign.Sum([]byte("program"))), program.ELF}, f} {
			if err := e.Deploy(t.Context(), p.id, p.elf); err != nil {
				t.Fatal(err)
			}
		}
		var all []bundle
		w.Begin(func(_ *model.State, s modeltest.Step) {
			all = append(all, bundle{[]modeltest.Step{s}, []bool{false}, nil, w.State.Clone()})
		})
		for range modelSteps / 2 {
			all = append(all, f.draw(r, w))
		}
		run := make([]programtest.Step, len(all))
		for i, b := range all {
			run[i] = programtest.Step{Slot: b.steps[0].Slot, Instructions: b.instructions(f), Signers: []sign.Signer{payer}}
			for _, p := range w.People() {
				run[i].Signers = append(run[i].Signers, p)
			}
		}
		outcomes, err := e.Sequence(t.Context(), run)
		if err != nil {
			t.Fatal(err)
		}
		for i, b := range all {
			for k, s := range b.steps {
				if what := difference(expectation{s, b.refused, b.after}, outcomes[i]); what != "" {
					r.Fatalf("transaction %d, call %d of %d, by another program: %v: %s\n%s\n%s", i, k, len(b.steps), b.through, what, b.describe(), strings.Join(outcomes[i].Logs, "\n"))
				}
				if b.through[k] && b.refused == nil {
					through[reflect.TypeOf(s.Call).Name()]++
				}
			}
			if len(b.steps) > 1 && b.refused == nil {
				several++
			} else if len(b.steps) > 1 {
				undone++
			}
		}
	})
	t.Logf("%d of several calls, %d undone; made by another program: %v", several, undone, through)
	if several == 0 || undone == 0 {
		t.Errorf("%d transactions of several calls, %d undone: this shows nothing", several, undone)
	}
	for _, c := range []program.Call{program.Claim{}, program.Attest{}, program.State{}, program.AddTranche{}, program.Bond{}, program.Stake{}} {
		if name := reflect.TypeOf(c).Name(); through[name] == 0 {
			t.Errorf("no other program made a call of %s that succeeded", name)
		}
	}
}

func (b bundle) describe() string {
	var out []string
	for _, s := range b.steps {
		out = append(out, s.Describe())
	}
	return fmt.Sprintf("%v\n%s", b.refused, strings.Join(out, "\n"))
}

// TestAnotherProgramsAddress: a program may be a buyer, a provider's owner or an author of anchors by an address of its own; it signs for
// that, and for nobody who did not sign for it.
func TestAnotherProgramsAddress(t *testing.T) {
	t.Parallel()
	f := newForwarder(t)
	programtest.Each(t, program.ELF, func(t *testing.T, e programtest.Engine, id sign.Key) {
		d := newDesk(t, e, id)
		if err := e.Deploy(t.Context(), f.id, f.elf); err != nil {
			t.Fatal(err)
		}
		own, bump := f.own()
		d.must("fund the program's address", []svm.Instruction{{Program: svm.SystemProgram, Data: u64([]byte{2, 0, 0, 0}, sol),
			Accounts: []svm.Meta{{Key: d.wallet.Key(), Signer: true, Writable: true}, {Key: own, Writable: true}}}})
		root := sign.Sum([]byte("anchored by a program"))
		anchor := program.Anchor{Authority: own, Anchor: account.AnchorAddress(id, own, root), Root: root, Count: 1}.Instruction(id)
		unsigned := f.call(anchor, 0)
		unsigned.Accounts[1].Signer = false
		d.deny("anchor for the program's address, unsigned", program.ErrNotSigner, unsigned)
		signed := f.call(anchor, bump)
		signed.Accounts[1].Signer = false // the program signs for it
		d.must("anchor for the program's address", []svm.Instruction{signed})
		a, err := d.Account(t.Context(), account.AnchorAddress(id, own, root))
		if err != nil || a == nil {
			t.Fatalf("%+v, %v", a, err)
		}
		if anchored, err := account.UnmarshalAnchored(a.Data); err != nil || anchored.Authority != own || anchored.Root != root {
			t.Errorf("%+v, %v", anchored, err)
		}
	})
}
