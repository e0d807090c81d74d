package claims_test

import (
	"bytes"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"time"

	"github.com/starling-network/starling/chain"
	"github.com/starling-network/starling/chain/chaintest/escrowtest"
	"github.com/starling-network/starling/chain/escrow"
	"github.com/starling-network/starling/chain/escrow/claims"
	"github.com/starling-network/starling/chain/program"
	"github.com/starling-network/starling/chain/program/account"
	"github.com/starling-network/starling/chain/svm"
	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/verify"
)

// life is the claims of one lease on a chain, and the buyer that it depends on. It is the first of the leases of a
// tranche.
type life struct {
	t       escrowtest.T
	chain   *escrowtest.Chain
	wallet  *escrowtest.Wallet
	now     time.Time
	core    market.LeaseCore
	keys    market.KeySet
	signers []string
	funding escrow.Funding
	at      sign.Key // of the escrow

	m       claims.Claims
	journal []byte
	log     []escrow.Effect // all but waits
	waits   int
	claimed []verify.Voucher // that claims were signed for, in order
	opened  int              // transactions that open the payout's account and do nothing else
	kept    []verify.SignedVoucher
	earned  market.Amount
	tick    bool // at once, after a restart
	crash   int  // at which write from now: positive before it, negative after it
	sent    int  // number of the buyer's last transaction
}

var when = escrow.When{Amount: 300, Slots: 60}

var errCrash = errors.New("crash")

// begin is a lease of so many slots that is funded, in a tranche of so many leaves, with vouchers by all of these keys.
func begin(t escrowtest.T, leaves int, length market.Slot, signers ...string) *life {
	l := &life{t: t, chain: escrowtest.New(escrowtest.Net(t, escrowtest.Params())), now: time.Unix(1000, 0),
		signers: signers, keys: escrowtest.KeySet(t, uint8(len(signers)), signers...)}
	start := market.Slot(l.chain.Root)
	cores := make([]market.LeaseCore, leaves)
	for i := range cores {
		cores[i] = escrowtest.Lease(0, l.keys, start, start+60, start+length)
		cores[i].Rank = uint32(i)
	}
	l.core = cores[0]
	l.funding = l.chain.Lock(t, l.keys, start+length+200, cores...)[0]
	l.at = l.chain.Net.EscrowOf(l.core, l.funding)
	l.wallet = &escrowtest.Wallet{Chain: l.chain, By: escrowtest.Private("providera")}
	var err error
	if l.m, err = claims.New(l.chain.Net, l.core, l.keys, l.funding, when, escrowtest.Timing()); err != nil {
		t.Fatalf("%v", err)
	}
	l.journal, l.tick = l.m.Marshal(), true
	return l
}

func (l *life) restore() claims.Claims {
	m, err := claims.Restore(l.journal, l.chain.Net, when, escrowtest.Timing())
	if err != nil {
		l.t.Fatalf("restoring: %v", err)
	}
	return m
}

// event drives the machine with an event and all answers that follow. After a crash it begins anew with the journal.
func (l *life) event(ev escrow.Event) error {
	for {
		events := []escrow.Event{ev}
		var err error
		for len(events) > 0 && err == nil {
			var answers []escrow.Event
			answers, err = l.step(events[0])
			events = append(events[1:], answers...)
		}
		if !errors.Is(err, errCrash) {
			return err
		}
		l.m, l.tick = l.restore(), true
	}
}

// step takes the machine through one event, and checks the rules that hold for every step.
func (l *life) step(ev escrow.Event) (answers []escrow.Event, err error) {
	before, paid := l.m.Marshal(), l.m.Paid()
	next, effects, err := l.m.Step(l.now, ev)
	if !bytes.Equal(before, l.m.Marshal()) {
		l.t.Fatalf("a step with %T changed the state before it", ev)
	}
	if err != nil {
		return nil, err
	}
	if next.Paid() < paid {
		l.t.Fatalf("%T: paid %d, and before %d", ev, next.Paid(), paid)
	}
	for _, e := range effects {
		switch e := e.(type) {
		case escrow.Persist:
			if err := l.save(e.State); err != nil {
				return nil, err
			}
		case escrow.Waiting:
			l.waits++
		case escrow.Sign, escrow.Push, escrow.Look:
			l.check(e)
			answers = append(answers, escrow.Do(context.Background(), l.wallet, e))
		default:
			l.log = append(l.log, e)
		}
	}
	l.m = next
	return answers, nil
}

func (l *life) save(state []byte) error {
	switch l.crash {
	case 1:
		l.crash = 0
		return errCrash
	case -1:
		l.journal, l.crash = state, 0
		return errCrash
	}
	l.journal = state
	if l.crash > 0 {
		l.crash--
	} else if l.crash < 0 {
		l.crash++
	}
	return nil
}

// check holds for the effects that reach the chain: a transaction is in the journal before it is sent, and a claim is
// made with a voucher that was kept.
func (l *life) check(e escrow.Effect) {
	switch e := e.(type) {
	case escrow.Push:
		if !bytes.Contains(l.journal, []byte(base64.StdEncoding.EncodeToString(e.Tx.Raw))) {
			l.t.Fatalf("transaction %s is sent and not in the journal", e.Tx.ID)
		}
	case escrow.Sign:
		for _, o := range e.Orders {
			if o.Stake > l.core.Cap {
				l.t.Fatalf("%d at stake, with a cap of %d", o.Stake, l.core.Cap)
			}
			l.signs(o)
		}
	}
}

// signs notes the voucher of a claim.
func (l *life) signs(o escrow.SignOrder) {
	v, ok := escrowtest.Transaction{In: o.Instructions}.Voucher()
	if !ok {
		if _, opens := o.Instructions[0].Opens(); opens {
			l.opened++
		}
		return
	}
	for _, k := range l.kept {
		if k.Voucher == v {
			l.claimed = append(l.claimed, v)
			return
		}
	}
	l.t.Fatalf("a claim with a voucher for %d that was never kept", v.Cumulative)
}

// pass lets slots pass, one by one; sent transactions land when land says so.
func (l *life) pass(slots int, land func() bool) {
	for range slots {
		l.chain.Advance(1)
		l.now = l.now.Add(escrowtest.SlotTime)
		for i := len(l.chain.Pool) - 1; i >= 0; i-- {
			if land() {
				l.chain.Land(i)
			}
		}
		l.live()
	}
}

// live ticks if that is due.
func (l *life) live() {
	if at := l.m.Next(); l.tick || !at.IsZero() && !l.now.Before(at) {
		l.tick = false
		if err := l.event(escrow.Ticked{}); err != nil {
			l.t.Fatalf("tick: %v", err)
		}
	}
}

// until lets slots pass until something is so.
func (l *life) until(event string, most int, so func() bool) {
	l.t.Helper()
	for range most {
		if so() {
			return
		}
		l.pass(1, always)
	}
	l.t.Fatalf("%s: not within %d slots; slot %d, paid %d, waits for %q", event, most, l.chain.Slot, l.m.Paid(), l.m.Reason())
}

func always() bool { return true }
func never() bool  { return false }

// voucher pays the lease up to a number of slots.
func (l *life) voucher(seq uint64, slots market.Slot, flags uint8) verify.SignedVoucher {
	v := verify.Voucher{Flags: flags, Seq: seq, Cumulative: 10 * market.Amount(slots), Horizon: l.core.Start + slots}
	return escrowtest.Voucher(l.t, l.chain.Net, l.core, l.funding, v, l.keys, l.signers...)
}

// keep hands a voucher to the machine, and the amount that receipts cover.
func (l *life) keep(v verify.SignedVoucher, earned market.Amount) {
	l.t.Helper()
	l.kept, l.earned = append(l.kept, v), max(l.earned, earned)
	if err := l.event(escrow.VoucherKept{Voucher: v, Earned: earned}); err != nil {
		l.t.Fatalf("keeping a voucher: %v", err)
	}
}

func (l *life) over(owed market.Amount) {
	l.t.Helper()
	if err := l.event(escrow.LeaseOver{Owed: owed}); err != nil {
		l.t.Fatalf("over: %v", err)
	}
}

// buyer sends a call of the buyer's.
func (l *life) buyer(call program.Call) {
	l.sent++
	l.chain.Pool = append(l.chain.Pool, escrowtest.Transaction{In: []svm.Instruction{call.Instruction(l.chain.Net.Program)},
		Tx: chain.Prepared{ID: chain.TxID(fmt.Sprintf("buyer's %d", l.sent)), LastValid: l.chain.Slot + 40}})
}

// retire has the buyer begin to retire the leaf.
func (l *life) retire() {
	l.buyer(program.RetireBegin{Escrow: l.at, Tranche: l.tranche(), Network: l.chain.Net.Address(),
		Signers: []sign.Key{escrowtest.Key("buyer")}, Index: l.funding.Index})
}

func (l *life) tranche() sign.Key {
	return account.TrancheAddress(l.chain.Net.Program, l.at, l.funding.Tranche)
}

// paid is the amount that the chain paid for ever.
func (l *life) paid() market.Amount {
	return market.Amount(l.chain.Final.Tranches[l.tranche()].Leaves[l.funding.Index].Paid)
}

// ended returns the final events.
func (l *life) ended() (settled []escrow.Settled, lost []escrow.Lost) {
	for _, e := range l.log {
		switch e := e.(type) {
		case escrow.Settled:
			settled = append(settled, e)
		case escrow.Lost:
			lost = append(lost, e)
		}
	}
	return settled, lost
}
