package wards

import (
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/starling-network/starling/chain/program"
	"github.com/starling-network/starling/chain/program/account"
	"github.com/starling-network/starling/chain/solana/transaction"
	"github.com/starling-network/starling/chain/svm"
	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/node/buyer/guardian"
	"github.com/starling-network/starling/node/buyer/guardian/guardiantest"
	"github.com/starling-network/starling/verify"
)

func wardOf(t interface{ Fatal(...any) }, n int, threshold uint8) Ward {
	c, members := guardiantest.CharterOf(t, n, threshold)
	return Ward{Charter: c, Members: members, Epoch: 1, Ready: true, Until: time.Now().Add(time.Hour)}
}

// Safety: however grants are asked for, given, lost, learnt and forgotten in crashes, and however fewer than m guardians lie, no
// two peers hold a grant for one epoch, and a guardian obeys one peer, never one of a lower epoch again.
func TestNeverTwoSupervisorsOfOneEpoch(t *testing.T) {
	t.Parallel()
	d := guardiantest.Network.Domain()
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(1, 5).Draw(t, "n")
		m := rapid.IntRange(n/2+1, n).Draw(t, "m")
		evil := rapid.IntRange(0, m-1).Draw(t, "evil") // the first ones
		start := wardOf(t, n, uint8(m))
		disks := make([]Ward, n)
		for i := range disks {
			disks[i] = start
		}
		type ask struct {
			epoch uint64
			who   sign.Key
		}
		signed := map[ask]verify.Signatures{}
		granted := map[uint64][]byte{}
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			i := rapid.IntRange(0, n-1).Draw(t, "guardian")
			who := append(slices.Clone(start.Keys.Keys), start.Owner)[rapid.IntRange(0, n).Draw(t, "who")]
			if rapid.Bool().Draw(t, "learn") && len(granted) > 0 {
				epochs := make([]uint64, 0, len(granted))
				for e := range granted {
					epochs = append(epochs, e)
				}
				slices.Sort(epochs)
				e := rapid.SampledFrom(epochs).Draw(t, "epoch")
				before := disks[i]
				next, changed, err := before.Learn(d, e, granted[e])
				if err != nil || changed != (e > before.Epoch) || next.Epoch < before.Epoch {
					t.Fatalf("learnt epoch %d after %d: %v, %v", e, before.Epoch, next.Epoch, err)
				}
				if !rapid.Bool().Draw(t, "crash before the write") {
					disks[i] = next
				}
				continue
			}
			epoch := rapid.Uint64Range(0, 12).Draw(t, "asked")
			if i >= evil {
				// A supervisor may have failed, or seem to, as the guardian sees it.
				if disks[i].MayGrant(who, epoch, rapid.Bool().Draw(t, "failed")) != nil {
					continue
				}
			}
			a := ask{epoch, who}
			g := verify.SignedSupervisionGrant{SupervisionGrant: verify.SupervisionGrant{Version: 1, Job: start.Job, Epoch: epoch, Supervisor: who,
				Guardians: start.Keys.Hash()}, Signatures: signed[a]}
			g.Set = start.Keys
			key := guardiantest.PeerKey(guardiantest.HostOf(start.Keys.Keys[i]))
			g, err := g.With(d, key)
			if err != nil {
				t.Fatal(err)
			}
			signed[a] = g.Signatures
			if len(g.Sigs) < m || epoch == 0 {
				continue
			}
			if err := g.Check(d, start.Job, start.Keys.Hash()); err != nil {
				t.Fatal(err)
			}
			if other, there := granted[epoch]; there {
				if o, _ := verify.UnmarshalSignedSupervisionGrant(other); o.Supervisor != who {
					t.Fatalf("safety: epoch %d is granted to two", epoch)
				}
			}
			granted[epoch] = g.Marshal()
		}
		for i := evil; i < n; i++ {
			obeyed := 0
			for _, k := range append(slices.Clone(start.Keys.Keys), start.Owner) {
				for e := uint64(0); e < 14; e++ {
					if disks[i].Commands(k, e) == nil {
						obeyed++
						if e != disks[i].Epoch {
							t.Fatalf("safety: epoch %d is obeyed, %d is known", e, disks[i].Epoch)
						}
					}
				}
			}
			if obeyed != 1 {
				t.Fatalf("safety: %d are obeyed", obeyed)
			}
		}
	})
}

func TestGrantRules(t *testing.T) {
	t.Parallel()
	w := wardOf(t, 3, 2)
	w.Epoch = 6 // of the first guardian
	first, second := w.Keys.Keys[0], w.Keys.Keys[1]
	for name, tc := range map[string]struct {
		from   sign.Key
		epoch  uint64
		failed bool
		change func(*Ward)
		code   string
	}{
		"owner":                     {w.Owner, 9, false, nil, ""},
		"owner, over":               {w.Owner, 9, false, func(w *Ward) { w.Over = true }, ""},
		"owner, another's epoch":    {w.Owner, 7, true, nil, guardian.CodeGrant},
		"owner, known epoch":        {w.Owner, 5, true, nil, guardian.CodeSuperseded},
		"owner, dismissed":          {w.Owner, 9, true, func(w *Ward) { w.Dismissed = true }, guardian.CodeOver},
		"guardian":                  {second, 7, true, nil, ""},
		"guardian, not its epoch":   {second, 8, true, nil, guardian.CodeGrant},
		"guardian, later":           {second, 11, true, nil, ""},
		"guardian, much later":      {second, 7 + 4*400, true, nil, guardian.CodeGrant},
		"guardian, supervisor well": {second, 7, false, nil, guardian.CodeAlive},
		"guardian, over":            {second, 7, true, func(w *Ward) { w.Over = true }, guardian.CodeOver},
		"supervisor itself":         {first, 10, false, nil, guardian.CodeAlive},
		"stranger":                  {sign.Key{5}, 7, true, nil, guardian.CodeGrant},
	} {
		x := w
		if tc.change != nil {
			tc.change(&x)
		}
		err := x.MayGrant(tc.from, tc.epoch, tc.failed)
		if tc.code == "" && err != nil || tc.code != "" && !guardian.Refused(err, tc.code) {
			t.Errorf("%s: %v, want %q", name, err, tc.code)
		}
	}
}

// A guardian earns by the slot, until the job was over, under its own wage.
func TestWageRules(t *testing.T) {
	t.Parallel()
	w := wardOf(t, 3, 2)
	core := guardiantest.NewLease(w.Charter, 9, guardiantest.FirstSlot).Core
	core.Provider = w.Keys.Keys[1]
	w.Members[1].Wage = &core
	from := core.Provider
	good := verify.Voucher{Version: 1, Lease: core.ID(), Seq: 1, Cumulative: 250, Horizon: guardiantest.FirstSlot + 100, Supervision: 1}
	guardiantest.Must(t, w.checkWages())
	guardiantest.Must(t, w.Wage(guardiantest.Network, guardiantest.FirstSlot+100, from, good))
	over := w
	over.Over, over.OverAt = true, guardiantest.FirstSlot+100
	guardiantest.Must(t, over.Wage(guardiantest.Network, guardiantest.FirstSlot+500, from, good))
	for name, tc := range map[string]struct {
		w    Ward
		now  market.Slot
		from sign.Key
		v    verify.Voucher
	}{
		"a base unit more":    {w, guardiantest.FirstSlot + 100, from, with(good, func(v *verify.Voucher) { v.Cumulative++ })},
		"a slot early":        {w, guardiantest.FirstSlot + 99, from, good},
		"before it began":     {w, 1, from, good},
		"after it was over":   {over, guardiantest.FirstSlot + 500, from, with(good, func(v *verify.Voucher) { v.Cumulative = 500 })},
		"another's":           {w, guardiantest.FirstSlot + 100, w.Keys.Keys[0], good},
		"the owner's":         {w, guardiantest.FirstSlot + 100, w.Owner, good},
		"paid ahead":          {w, guardiantest.FirstSlot + 100, from, with(good, func(v *verify.Voucher) { v.Horizon++ })},
		"of another lease":    {w, guardiantest.FirstSlot + 100, from, with(good, func(v *verify.Voucher) { v.Lease[0]++ })},
		"final":               {w, guardiantest.FirstSlot + 100, from, with(good, func(v *verify.Voucher) { v.Flags = 1 })},
		"from an escrow":      {w, guardiantest.FirstSlot + 100, from, with(good, func(v *verify.Voucher) { v.Escrow[0] = 1 })},
		"of an epoch to come": {w, guardiantest.FirstSlot + 100, from, with(good, func(v *verify.Voucher) { v.Supervision = 2 })},
	} {
		if err := tc.w.Wage(guardiantest.Network, tc.now, tc.from, tc.v); !guardian.Refused(err, guardian.CodeVoucher) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func with(v verify.Voucher, change func(*verify.Voucher)) verify.Voucher {
	change(&v)
	return v
}

// tap is a signer that keeps what it is asked to sign.
type tap struct {
	key     sign.Key
	message *[]byte
}

func (s tap) Key() sign.Key { return s.key }

func (s tap) Sign(message []byte) (sign.Signature, error) {
	*s.message = message
	return sign.Signature{}, nil
}

// messageOf is what the signers of a transaction are asked to sign.
func messageOf(t testing.TB, payer sign.Key, in ...svm.Instruction) (message []byte) {
	t.Helper()
	signers := []sign.Signer{tap{payer, &message}}
	for _, x := range in {
		for _, m := range x.Accounts {
			if m.Signer {
				signers = append(signers, tap{m.Key, &message})
			}
		}
	}
	_, _, err := transaction.Sign(in, nil, sign.Hash{1}, signers...)
	guardiantest.Must(t, err)
	return message
}

// A guardian signs the opening of its job's escrow and the hiring of standbys from it, as nothing but a voucher key.
func TestWitnessRules(t *testing.T) {
	t.Parallel()
	g, at := guardiantest.Escrowed(), guardiantest.Escrowed().Program
	w := wardOf(t, 3, 2)
	self, payer := w.Keys.Keys[0], w.Owner
	open, hire := calls(w)
	witness := func(w Ward, message []byte) ([]sign.Key, error) {
		next, changed, err := w.Witness(g, self, message)
		if changed != (len(next.Escrows) > len(w.Escrows)) {
			t.Fatalf("changed is %v: %d escrows after %d", changed, len(next.Escrows), len(w.Escrows))
		}
		return next.Escrows[len(w.Escrows):], err
	}
	message := func(in ...svm.Instruction) []byte { return messageOf(t, payer, in...) }
	opened, err := witness(w, message(open.Instruction(at)))
	if err != nil || !slices.Equal(opened, []sign.Key{open.Escrow}) {
		t.Fatalf("opening: %v, %v", opened, err)
	}
	beside := svm.Instruction{Program: svm.SystemProgram, Data: []byte{2}, Accounts: []svm.Meta{{Key: payer, Signer: true, Writable: true}}}
	if _, err := witness(w, message(beside, open.Instruction(at), hire.Instruction(at))); err != nil {
		t.Fatalf("opening and hiring beside another: %v", err)
	}
	known := w
	known.Escrows = opened
	if more, err := witness(known, message(hire.Instruction(at))); err != nil || len(more) > 0 {
		t.Fatalf("hiring: %v, %v", more, err)
	}
	changed := func(change func(*program.OpenEscrow)) []byte {
		c := open
		change(&c)
		return message(c.Instruction(at))
	}
	others, err := market.NewKeySet(1, self, guardiantest.Named("x").Key())
	guardiantest.Must(t, err)
	drain := svm.Instruction{Program: svm.TokenProgram, Data: []byte{3}, Accounts: []svm.Meta{{Key: self, Signer: true}}}
	retire := program.RetireBegin{Escrow: open.Escrow, Tranche: hire.Tranche, Network: g.Escrow, Signers: hire.Signers}
	for name, b := range map[string][]byte{
		"nothing for it":       message(beside),
		"transfer of its own":  message(open.Instruction(at), drain),
		"escrow not known":     message(hire.Instruction(at)),
		"retire":               message(retire.Instruction(at)),
		"it pays":              messageOf(t, self, open.Instruction(at)),
		"it pays the rent":     changed(func(c *program.OpenEscrow) { c.Payer = self }),
		"its tokens":           changed(func(c *program.OpenEscrow) { c.Authority = self }),
		"it is the buyer":      changed(func(c *program.OpenEscrow) { c.Buyer = self }),
		"another's escrow":     changed(func(c *program.OpenEscrow) { c.Buyer = w.Buyer }),
		"other keys":           changed(func(c *program.OpenEscrow) { c.Keys = others }),
		"lower threshold":      changed(func(c *program.OpenEscrow) { c.Keys.Threshold = 1 }),
		"another network":      changed(func(c *program.OpenEscrow) { c.Network = payer }),
		"another token":        changed(func(c *program.OpenEscrow) { c.Mint = payer }),
		"another address":      changed(func(c *program.OpenEscrow) { c.Opened++ }),
		"another program":      message(open.Instruction(guardiantest.Named("other").Key())),
		"it is a program":      message(open.Instruction(at), svm.Instruction{Program: self}),
		"it may be written to": message(open.Instruction(at), svm.Instruction{Program: svm.SystemProgram, Accounts: []svm.Meta{{Key: self, Writable: true}}}),
	} {
		if _, err := witness(known, b); name == "escrow not known" && err != nil || name != "escrow not known" && !guardian.Refused(err, guardian.CodeWitness) {
			t.Errorf("%s: %v", name, err)
		}
		if _, err := witness(w, b); !guardian.Refused(err, guardian.CodeWitness) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, _, err := w.Witness(guardiantest.Network, self, message(open.Instruction(at))); !guardian.Refused(err, guardian.CodeWitness) {
		t.Errorf("on a network without escrows: %v", err)
	}
}

// calls that a guardian of the ward signs, on that network.
func calls(w Ward) (open program.OpenEscrow, hire program.AddStandbyTranche) {
	g, order := guardiantest.Escrowed(), market.OrderID{3}
	at := account.EscrowAddress(g.Program, g.Escrow, w.Owner, sign.Hash(order), 900)
	open = program.OpenEscrow{Payer: w.Owner, Buyer: w.Owner, Source: guardiantest.Named("source").Key(), Authority: w.Owner, Escrow: at, Vault: account.VaultAddress(g.Program, at),
		Mint: g.Mint, Network: g.Escrow, Order: order, Opened: 900, Deadline: 9000, Deposit: 5, RefundOwner: w.Owner, Keys: w.Keys}
	hire = program.AddStandbyTranche{Payer: w.Owner, Escrow: at, Vault: open.Vault, Tranche: guardiantest.Named("tranche").Key(), Signers: w.Keys.Keys[:2],
		Leaves: []program.StandbyLeaf{{Rate: 1, Cap: 1, Start: 1, End: 2}}}
	return open, hire
}
