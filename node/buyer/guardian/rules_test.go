package guardian

import (
	"encoding/json"
	"errors"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/starling-network/starling/chain/program"
	"github.com/starling-network/starling/chain/solana/transaction"
	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/p2p/stream"
	"github.com/starling-network/starling/verify"
	"github.com/starling-network/starling/verify/meter"
)

func wardOf(t interface{ Fatal(...any) }, n int, threshold uint8) Ward {
	c, members := charterOf(t, n, threshold)
	return Ward{Charter: c, Members: members, Epoch: 1, Ready: true, Until: time.Now().Add(time.Hour)}
}

func TestCharter(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		n         int
		threshold uint8
		change    func(*Charter)
		g         market.Genesis
		ok        bool
	}{
		"2 of 3":             {3, 2, nil, network, true},
		"1 of 1":             {1, 1, nil, network, true},
		"4 of 7":             {7, 4, nil, network, true},
		"3 of 7":             {7, 3, nil, network, false},
		"1 of 2":             {2, 1, nil, network, false},
		"5 of 8":             {8, 5, nil, network, false},
		"4 of 7, escrows":    {7, 4, nil, escrowed(), false},
		"3 of 5, escrows":    {5, 3, nil, escrowed(), true},
		"owner guards":       {3, 2, func(c *Charter) { c.Owner = c.Keys.Keys[1] }, network, false},
		"job's key guards":   {3, 2, func(c *Charter) { c.Buyer = c.Keys.Keys[1] }, network, false},
		"job's key is owner": {3, 2, func(c *Charter) { c.Buyer = c.Owner }, network, false},
		"no guardian":        {3, 2, func(c *Charter) { c.Keys.Keys = nil }, network, false},
	} {
		c, _ := charterOf(t, tc.n, tc.threshold)
		if tc.change != nil {
			tc.change(&c)
		}
		if err := c.Check(tc.g); (err == nil) != tc.ok || err != nil && !errors.Is(err, ErrCharter) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// Each epoch is one peer's, each peer has one in every round, and those that may ask go in the order of their next epochs.
func TestEpochsBelongToOnePeer(t *testing.T) {
	t.Parallel()
	for n := 1; n <= MaxGuardians; n++ {
		c, _ := charterOf(t, n, uint8(n))
		for epoch := uint64(1); epoch < 40; epoch++ {
			s := c.Supervisor(epoch)
			if got := c.NextEpoch(s, epoch-1); got != epoch {
				t.Fatalf("%d guardians: epoch %d is found as %d", n, epoch, got)
			}
			if got := c.NextEpoch(s, epoch); got != epoch+uint64(n)+1 {
				t.Fatalf("%d guardians: after epoch %d comes %d", n, epoch, got)
			}
			turns := map[int]bool{}
			for _, k := range c.Keys.Keys {
				turns[c.turn(k, epoch)] = true
			}
			if len(turns) != n || s != c.Owner && c.turn(s, epoch) != n-1 {
				t.Fatalf("%d guardians: after epoch %d the turns are %v", n, epoch, turns)
			}
		}
		if c.Supervisor(1) != c.Owner || c.NextEpoch(sign.Key{1}, 5) != 0 {
			t.Fatal("the first is not the owner's, or a stranger has one")
		}
	}
}

// Safety: however grants are asked for, given, lost, learnt and forgotten in crashes, and however fewer than m guardians lie, no
// two peers hold a grant for one epoch, and a guardian obeys one peer, never one of a lower epoch again.
func TestNeverTwoSupervisorsOfOneEpoch(t *testing.T) {
	t.Parallel()
	d := network.Domain()
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
			key := peerKey(hostOf(start.Keys.Keys[i]))
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
		"owner, another's epoch":    {w.Owner, 7, true, nil, CodeGrant},
		"owner, known epoch":        {w.Owner, 5, true, nil, CodeSuperseded},
		"owner, dismissed":          {w.Owner, 9, true, func(w *Ward) { w.Dismissed = true }, CodeOver},
		"guardian":                  {second, 7, true, nil, ""},
		"guardian, not its epoch":   {second, 8, true, nil, CodeGrant},
		"guardian, later":           {second, 11, true, nil, ""},
		"guardian, much later":      {second, 7 + 4*400, true, nil, CodeGrant},
		"guardian, supervisor well": {second, 7, false, nil, CodeAlive},
		"guardian, over":            {second, 7, true, func(w *Ward) { w.Over = true }, CodeOver},
		"supervisor itself":         {first, 10, false, nil, CodeAlive},
		"stranger":                  {sign.Key{5}, 7, true, nil, CodeGrant},
	} {
		x := w
		if tc.change != nil {
			tc.change(&x)
		}
		err := x.MayGrant(tc.from, tc.epoch, tc.failed)
		if tc.code == "" && err != nil || tc.code != "" && !refused(err, tc.code) {
			t.Errorf("%s: %v, want %q", name, err, tc.code)
		}
	}
}

// payerJSON is a payer's state, to be forged.
type payerJSON struct {
	Lease     market.LeaseID      `json:"lease"`
	State     meter.PayerState    `json:"state"`
	Started   market.Slot         `json:"started"`
	First     market.Slot         `json:"first"`
	Last      *verify.ReceiptCore `json:"last,omitempty"`
	LastSig   sign.Signature      `json:"last_sig"`
	Voucher   *verify.Voucher     `json:"voucher,omitempty"`
	StoppedAt market.Slot         `json:"stopped_at,omitempty"`
	Reason    meter.Reason        `json:"reason,omitempty"`
	Detail    string              `json:"detail,omitempty"`
	Settled   market.Amount       `json:"settled"`
	Agreed    bool                `json:"agreed"`
}

func (p payerJSON) bytes(t interface{ Fatal(...any) }) []byte {
	b, err := json.Marshal(p)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func parsed(t testing.TB, l Lease) payerJSON {
	t.Helper()
	var p payerJSON
	must(t, json.Unmarshal(l.Payer, &p))
	return p
}

// earned asks for a voucher as a guardian does.
func earned(w Ward, now market.Slot, l Lease) (verify.Voucher, error) {
	k, err := w.readLease(network, l, Word{Epoch: w.Epoch}, nil)
	if err != nil {
		return verify.Voucher{}, err
	}
	return w.checkVoucher(network, now, k)
}

// Only a voucher that is earned is signed.
func TestVoucherRules(t *testing.T) {
	t.Parallel()
	w := wardOf(t, 3, 2)
	fresh := func(receipts int) (*paying, market.Slot) {
		p, now := startPaying(t, w.Charter, 1, firstSlot, 1), market.Slot(firstSlot)
		for range receipts {
			now += 10
			p.receipt(now, now, false)
		}
		return p, now
	}
	for receipts := range 3 {
		p, now := fresh(receipts)
		if v, err := earned(w, now, p.handed()); err != nil || v != *p.payer.Voucher() {
			t.Fatalf("after %d receipts: %v", receipts, err)
		}
		p.step(now, meter.Stopped{})
		if _, err := earned(w, now, p.handed()); err != nil {
			t.Fatalf("stopped after %d receipts: %v", receipts, err)
		}
		p.receipt(now+5, now+5, true)
		if v, err := earned(w, now+5, p.handed()); err != nil || !v.Final() {
			t.Fatalf("final after %d receipts: %v", receipts, err)
		}
	}
	resigned := func(l *Lease, change func(*market.LeaseCore)) {
		change(&l.Signed.Core)
		l.Signed.ProviderSig, _ = l.Signed.Core.Sign(network.Domain(), provider)
		l.Signed.BuyerSig, _ = l.Signed.Core.Sign(network.Domain(), jobKey)
	}
	for name, change := range map[string]func(l *Lease, p *payerJSON, now *market.Slot){
		"another job": func(l *Lease, _ *payerJSON, _ *market.Slot) { resigned(l, func(c *market.LeaseCore) { c.Terms[0]++ }) },
		"other guardians": func(l *Lease, _ *payerJSON, _ *market.Slot) {
			resigned(l, func(c *market.LeaseCore) { c.VoucherKeys[0]++ })
		},
		"another buyer": func(l *Lease, _ *payerJSON, _ *market.Slot) {
			resigned(l, func(c *market.LeaseCore) { c.Buyer = w.Owner })
		},
		"not signed by provider": func(l *Lease, _ *payerJSON, _ *market.Slot) { l.Signed.ProviderSig[3]++ },
		"not signed by buyer":    func(l *Lease, _ *payerJSON, _ *market.Slot) { l.Signed.BuyerSig[3]++ },
		"an escrow":              func(l *Lease, _ *payerJSON, _ *market.Slot) { l.Escrow = sign.Key{1} },
		"payer of another lease": func(_ *Lease, p *payerJSON, _ *market.Slot) { p.Lease[0]++ },
		"no voucher":             func(_ *Lease, p *payerJSON, _ *market.Slot) { p.Voucher, p.Last, p.State = nil, nil, meter.PayerIdle },
		"voucher elsewhere":      func(_ *Lease, p *payerJSON, _ *market.Slot) { p.Voucher.Escrow[0]++ },
		"one more":               func(_ *Lease, p *payerJSON, _ *market.Slot) { p.Voucher.Cumulative++ },
		"over the cap":           func(_ *Lease, p *payerJSON, _ *market.Slot) { p.Voucher.Cumulative = 5001 },
		"far horizon":            func(_ *Lease, p *payerJSON, _ *market.Slot) { p.Voucher.Horizon += 100 },
		"number 0":               func(_ *Lease, p *payerJSON, _ *market.Slot) { p.Voucher.Seq = 0 },
		"epoch to come":          func(_ *Lease, p *payerJSON, _ *market.Slot) { p.Voucher.Supervision = 2 },
		"final before the end": func(_ *Lease, p *payerJSON, _ *market.Slot) {
			p.Voucher.Flags, p.Voucher.Cumulative = 1, p.Last.Cumulative
		},
		"in the future":      func(_ *Lease, _ *payerJSON, now *market.Slot) { *now -= 31 },
		"receipt not signed": func(_ *Lease, p *payerJSON, _ *market.Slot) { p.LastSig[3]++ },
		"receipt of more time": func(_ *Lease, p *payerJSON, _ *market.Slot) {
			p.Last.To += 10
			p.Last.Cumulative += 25
		},
		"began earlier": func(_ *Lease, p *payerJSON, _ *market.Slot) { p.First -= 10 },
		"began too late": func(_ *Lease, p *payerJSON, _ *market.Slot) {
			p.Last, p.Started, p.Voucher.Cumulative = nil, firstSlot+21, 25
		},
		"nothing received": func(_ *Lease, p *payerJSON, _ *market.Slot) { p.Last = nil },
	} {
		p, now := fresh(2)
		l := p.handed()
		state := parsed(t, l)
		change(&l, &state, &now)
		l.Payer = state.bytes(t)
		var refusal *stream.Refused
		var bad *stream.Malformed
		if _, err := earned(w, now, l); !errors.As(err, &refusal) && !errors.As(err, &bad) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// Safety: whatever a supervisor that lies makes up, together with a provider that signs whatever it likes, what is signed is
// within the cap and the rate for the time that passed, an interval more and twice the skew.
func TestNeverMoreThanTimeAllows(t *testing.T) {
	t.Parallel()
	w := wardOf(t, 3, 2)
	lease := newLease(w.Charter, 1, firstSlot)
	terms := w.terms(network, Lease{Signed: lease, MilliCPU: 1000}, 1)
	signed := 0
	rapid.Check(t, func(t *rapid.T) {
		off := func(label string) market.Slot { // most of it is right, so that some is signed
			if rapid.IntRange(0, 7).Draw(t, label+" is wrong") > 0 {
				return 0
			}
			return market.Slot(rapid.OneOf(rapid.Uint64Range(1, 60), rapid.Just(^uint64(0)), rapid.Just(^uint64(30)), rapid.Uint64()).Draw(t, label))
		}
		c := lease.Core
		began := firstSlot + market.Slot(rapid.Uint64Range(0, 20).Draw(t, "began")) + off("began")
		until := began
		p := payerJSON{Lease: c.ID(), State: rapid.SampledFrom([]meter.PayerState{meter.PayerPaying, meter.PayerStopping, meter.PayerSettled}).Draw(t, "state"), Started: began}
		v := &verify.Voucher{Version: 1, Lease: p.Lease, Seq: rapid.Uint64Range(0, 5).Draw(t, "seq"), Supervision: rapid.Uint64Range(0, 2).Draw(t, "epoch")}
		p.Voucher = v
		if rapid.Bool().Draw(t, "receipt") {
			until = began + market.Slot(rapid.Uint64Range(0, 1000).Draw(t, "billed")) + off("to")
			p.First = began
			owed, _ := c.Rate.Owed(uint64(until - began))
			p.Last = &verify.ReceiptCore{Version: 1, Units: 1, Lease: p.Lease, Seq: rapid.Uint64Range(1, 5).Draw(t, "number"), Provider: c.Provider, Buyer: c.Buyer,
				UnitsRoot: c.UnitsRoot, From: max(began, until-10), To: until, Cumulative: owed + market.Amount(off("owed"))}
			p.LastSig, _ = p.Last.Sign(network.Domain(), provider)
		}
		now := until + off("now")
		most, _ := c.Rate.Owed(uint64(min(until+10, c.End)-began) + uint64(off("ahead")))
		v.Cumulative, v.Horizon = min(most, c.Cap)+market.Amount(off("amount")), min(until+10, c.End)+off("further")
		_, err := earned(w, now, Lease{Signed: lease, Payer: p.bytes(t), MilliCPU: 1000})
		if err != nil {
			return
		}
		signed++
		passed := uint64(0)
		if now > lease.Core.Start {
			passed = uint64(now - lease.Core.Start)
		}
		allowed, err := lease.Core.Rate.Owed(passed + terms.IntervalSlots + 2*terms.SkewSlots)
		if err != nil {
			allowed = lease.Core.Cap
		}
		if v.Cumulative > min(allowed, lease.Core.Cap) || v.Horizon > lease.Core.End {
			t.Fatalf("safety: signed %d in slot %d, allowed are %d", v.Cumulative, now, min(allowed, lease.Core.Cap))
		}
	})
	if signed == 0 {
		t.Error("nothing was signed, so that nothing was tested")
	}
}

// Of one lease, nothing goes back, and no number is two vouchers.
func TestLeaseNeverGoesBack(t *testing.T) {
	t.Parallel()
	w := wardOf(t, 3, 2)
	at := func(receipts int, epoch uint64, change func(*payerJSON)) *kept {
		p, now := startPaying(t, w.Charter, 1, firstSlot, epoch), market.Slot(firstSlot)
		for range receipts {
			now += 10
			p.receipt(now, now, false)
		}
		l := p.handed()
		if change != nil {
			state := parsed(t, l)
			change(&state)
			l.Payer = state.bytes(t)
		}
		k, err := w.readLease(network, l, Word{Epoch: epoch}, nil)
		must(t, err)
		return &k
	}
	if err := at(2, 1, nil).follows(at(2, 1, nil)); err != nil {
		t.Errorf("the same again: %v", err)
	}
	if err := at(3, 1, nil).follows(at(2, 1, nil)); err != nil {
		t.Errorf("the next: %v", err)
	}
	if err := at(2, 1, func(p *payerJSON) { p.State = meter.PayerStopping }).follows(at(2, 1, nil)); err != nil {
		t.Errorf("stopped: %v", err)
	}
	for name, k := range map[string]*kept{
		"an earlier receipt": at(1, 1, nil),
		"another voucher":    at(2, 1, func(p *payerJSON) { p.Voucher.Cumulative-- }),
		"an earlier voucher": at(2, 1, func(p *payerJSON) { p.Voucher.Seq-- }),
	} {
		if err := k.follows(at(2, 1, nil)); !refused(err, CodeVoucher) {
			t.Errorf("%s: %v", name, err)
		}
	}
	final := at(2, 1, nil)
	p := resume(t, w.Charter, final.Lease, 1)
	p.receipt(firstSlot+25, firstSlot+25, true)
	done, err := w.readLease(network, p.handed(), Word{Epoch: 1}, nil)
	must(t, err)
	if err := done.follows(final); err != nil {
		t.Errorf("the final one: %v", err)
	}
	if err := final.follows(&done); !refused(err, CodeVoucher) {
		t.Errorf("after the final one: %v", err)
	}
	if later := at(2, 4, nil); !later.newer(at(2, 1, nil)) || !at(3, 1, nil).newer(later) {
		t.Error("the order is receipt, epoch")
	}
}

// A guardian earns by the slot, until the job was over, under its own wage.
func TestWageRules(t *testing.T) {
	t.Parallel()
	w := wardOf(t, 3, 2)
	core := newLease(w.Charter, 9, firstSlot).Core
	core.Provider = w.Keys.Keys[1]
	w.Members[1].Wage = &core
	from := core.Provider
	good := verify.Voucher{Version: 1, Lease: core.ID(), Seq: 1, Cumulative: 250, Horizon: firstSlot + 100, Supervision: 1}
	must(t, w.checkWages())
	must(t, w.Wage(network, firstSlot+100, from, good))
	over := w
	over.Over, over.OverAt = true, firstSlot+100
	must(t, over.Wage(network, firstSlot+500, from, good))
	for name, tc := range map[string]struct {
		w    Ward
		now  market.Slot
		from sign.Key
		v    verify.Voucher
	}{
		"a base unit more":    {w, firstSlot + 100, from, with(good, func(v *verify.Voucher) { v.Cumulative++ })},
		"a slot early":        {w, firstSlot + 99, from, good},
		"before it began":     {w, 1, from, good},
		"after it was over":   {over, firstSlot + 500, from, with(good, func(v *verify.Voucher) { v.Cumulative = 500 })},
		"another's":           {w, firstSlot + 100, w.Keys.Keys[0], good},
		"the owner's":         {w, firstSlot + 100, w.Owner, good},
		"paid ahead":          {w, firstSlot + 100, from, with(good, func(v *verify.Voucher) { v.Horizon++ })},
		"of another lease":    {w, firstSlot + 100, from, with(good, func(v *verify.Voucher) { v.Lease[0]++ })},
		"final":               {w, firstSlot + 100, from, with(good, func(v *verify.Voucher) { v.Flags = 1 })},
		"from an escrow":      {w, firstSlot + 100, from, with(good, func(v *verify.Voucher) { v.Escrow[0] = 1 })},
		"of an epoch to come": {w, firstSlot + 100, from, with(good, func(v *verify.Voucher) { v.Supervision = 2 })},
	} {
		if err := tc.w.Wage(network, tc.now, tc.from, tc.v); !refused(err, CodeVoucher) {
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
func messageOf(t testing.TB, payer sign.Key, in ...program.Instruction) (message []byte) {
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
	must(t, err)
	return message
}

// A guardian signs the opening of its job's escrow and the hiring of standbys from it, as nothing but a voucher key.
func TestWitnessRules(t *testing.T) {
	t.Parallel()
	g, at := escrowed(), escrowed().Program
	w := wardOf(t, 3, 2)
	self, payer := w.Keys.Keys[0], w.Owner
	open, hire := calls(w)
	witness := func(w Ward, message []byte) ([]sign.Key, error) {
		by, in, err := transaction.ParseMessage(message)
		must(t, err)
		return w.Witness(g, self, by, in)
	}
	message := func(in ...program.Instruction) []byte { return messageOf(t, payer, in...) }
	opened, err := witness(w, message(open.Instruction(at)))
	if err != nil || !slices.Equal(opened, []sign.Key{open.Escrow}) {
		t.Fatalf("opening: %v, %v", opened, err)
	}
	beside := program.Instruction{Program: program.SystemProgram, Data: []byte{2}, Accounts: []program.Meta{{Key: payer, Signer: true, Writable: true}}}
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
	others, err := market.NewKeySet(1, self, named("x").Key())
	must(t, err)
	drain := program.Instruction{Program: program.TokenProgram, Data: []byte{3}, Accounts: []program.Meta{{Key: self, Signer: true}}}
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
		"another program":      message(open.Instruction(named("other").Key())),
		"it is a program":      message(open.Instruction(at), program.Instruction{Program: self}),
		"it may be written to": message(open.Instruction(at), program.Instruction{Program: program.SystemProgram, Accounts: []program.Meta{{Key: self, Writable: true}}}),
	} {
		if _, err := witness(known, b); name == "escrow not known" && err != nil || name != "escrow not known" && !refused(err, CodeWitness) {
			t.Errorf("%s: %v", name, err)
		}
		if _, err := witness(w, b); !refused(err, CodeWitness) {
			t.Errorf("%s: %v", name, err)
		}
	}
	by, in, err := transaction.ParseMessage(message(open.Instruction(at)))
	must(t, err)
	if _, err := w.Witness(network, self, by, in); !refused(err, CodeWitness) {
		t.Errorf("on a network without escrows: %v", err)
	}
}

// escrowed is a network with escrows.
func escrowed() market.Genesis {
	g := network
	g.Simulated, g.Program, g.Escrow, g.Mint = false, named("program").Key(), named("network").Key(), named("mint").Key()
	return g
}

// calls that a guardian of the ward signs, on that network.
func calls(w Ward) (open program.OpenEscrow, hire program.AddStandbyTranche) {
	g, order := escrowed(), market.OrderID{3}
	at := program.EscrowAddress(g.Program, g.Escrow, w.Owner, sign.Hash(order), 900)
	open = program.OpenEscrow{Payer: w.Owner, Buyer: w.Owner, Source: named("source").Key(), Authority: w.Owner, Escrow: at, Vault: program.VaultAddress(g.Program, at),
		Mint: g.Mint, Network: g.Escrow, Order: order, Opened: 900, Deadline: 9000, Deposit: 5, RefundOwner: w.Owner, Keys: w.Keys}
	hire = program.AddStandbyTranche{Payer: w.Owner, Escrow: at, Vault: open.Vault, Tranche: named("tranche").Key(), Signers: w.Keys.Keys[:2],
		Leaves: []program.StandbyLeaf{{Rate: 1, Cap: 1, Start: 1, End: 2}}}
	return open, hire
}
