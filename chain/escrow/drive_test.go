package escrow_test

import (
	"context"
	"fmt"
	"reflect"
	"slices"
	"testing"

	"github.com/starling-network/starling/chain"
	"github.com/starling-network/starling/chain/chaintest/escrowtest"
	"github.com/starling-network/starling/chain/escrow"
	"github.com/starling-network/starling/chain/svm"
	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
)

// scripted is a Ledger that answers as a test says, and writes the calls down.
type scripted struct {
	calls                 []string
	bid, sign, send, look error
	status                chain.TxStatus
	statusErr             error
	looksBad              escrow.Level // the level at which look fails
	signers               []sign.Signer
}

func (s *scripted) note(format string, args ...any) {
	s.calls = append(s.calls, fmt.Sprintf(format, args...))
}

func (s *scripted) Look(
	_ context.Context, at sign.Key, tranches []uint16, level escrow.Level,
) (escrow.View, error) {
	s.note("look %d", level)
	if level == s.looksBad {
		return escrow.View{}, s.look
	}
	return escrow.View{Slot: market.Slot(level) * 10, Vault: market.Amount(len(tranches))}, nil
}

func (s *scripted) Bid(
	_ context.Context, in []svm.Instruction, stake market.Amount, retries uint8,
) ([]svm.Instruction, error) {
	s.note("bid %d %d", stake, retries)
	return slices.Concat(in, svm.Budget(1, uint64(stake))), s.bid
}

func (s *scripted) Sign(
	_ context.Context, in []svm.Instruction, tables []svm.Table, others ...sign.Signer,
) (chain.Prepared, error) {
	s.note("sign %d %d", len(in), len(tables))
	s.signers = others
	if s.sign != nil {
		return chain.Prepared{}, s.sign
	}
	return chain.Prepared{ID: chain.TxID(fmt.Sprint(len(s.calls))), Raw: []byte{1}}, nil
}

func (s *scripted) Send(_ context.Context, tx chain.Prepared) error {
	s.note("send %s", tx.ID)
	return s.send
}

func (s *scripted) Status(_ context.Context, tx chain.Prepared) (chain.TxStatus, error) {
	s.note("status %s", tx.ID)
	return s.status, s.statusErr
}

// Every order of Sign has one result, in order; a transaction without room has no bid, and one that does not fit is
// told apart from other failures.
func TestDoSign(t *testing.T) {
	t.Parallel()
	one := []svm.Instruction{{Program: escrowtest.Key("program")}}
	orders := escrow.Sign{Orders: []escrow.SignOrder{
		{No: 7, Instructions: one, Stake: 30, Retries: 2, Tables: make([]svm.Table, 1)},
		{No: 9, Instructions: one, Full: true},
	}}
	for name, c := range map[string]struct {
		ledger  scripted
		calls   []string
		err     string
		tooLong bool
	}{
		"good":      {scripted{}, []string{"bid 30 2", "sign 3 1", "sign 1 0"}, "", false},
		"too long":  {scripted{sign: fmt.Errorf("x: %w", chain.ErrPayment)}, []string{"bid 30 2", "sign 3 1", "sign 1 0"}, "x: " + chain.ErrPayment.Error(), true},
		"no fees":   {scripted{sign: chain.ErrFees}, []string{"bid 30 2", "sign 3 1", "sign 1 0"}, chain.ErrFees.Error(), false},
		"no prices": {scripted{bid: chain.ErrDown}, []string{"bid 30 2", "sign 1 0"}, chain.ErrDown.Error(), false},
	} {
		signer := escrowtest.Private("guardian")
		ev, ok := escrow.Do(t.Context(), &c.ledger, orders, signer).(escrow.Signed)
		if !ok || !slices.Equal(c.ledger.calls, c.calls) || len(ev.Results) != 2 || ev.Results[0].No != 7 || ev.Results[1].No != 9 {
			t.Errorf("%s: %v, calls %q", name, ev, c.ledger.calls)
			continue
		}
		r := ev.Results[0]
		if r.Err != c.err || r.TooLong != c.tooLong || (r.Tx.ID == "") != (c.err != "") {
			t.Errorf("%s: %+v", name, r)
		}
		if len(c.ledger.signers) != 1 || c.ledger.signers[0].Key() != signer.Key() {
			t.Errorf("%s: signed by %v too", name, c.ledger.signers)
		}
	}
}

// A push that is not to be sent only asks for the status. A refusal by an endpoint is reported with the status; when
// nobody took the transaction nothing is known of it.
func TestDoPush(t *testing.T) {
	t.Parallel()
	landed := chain.TxStatus{State: chain.Confirmed, Slot: 5}
	rejected := fmt.Errorf("%w: too late", chain.ErrRejected)
	for name, c := range map[string]struct {
		send   bool
		ledger scripted
		calls  []string
		want   escrow.Pushed
	}{
		"sent":     {true, scripted{status: landed}, []string{"send a", "status a"}, escrow.Pushed{No: 3, Status: landed}},
		"polled":   {false, scripted{status: landed, send: rejected}, []string{"status a"}, escrow.Pushed{No: 3, Status: landed}},
		"rejected": {true, scripted{status: landed, send: rejected}, []string{"send a", "status a"}, escrow.Pushed{No: 3, Rejected: rejected.Error(), Status: landed}},
		"away":     {true, scripted{status: landed, send: chain.ErrDown}, []string{"send a"}, escrow.Pushed{No: 3, Err: chain.ErrDown.Error()}},
		"unknown":  {true, scripted{statusErr: chain.ErrDown}, []string{"send a", "status a"}, escrow.Pushed{No: 3, Err: chain.ErrDown.Error()}},
		"long ago": {false, scripted{statusErr: chain.ErrHistory}, []string{"status a"}, escrow.Pushed{No: 3, Err: chain.ErrHistory.Error(), Gone: true}},
	} {
		got := escrow.Do(t.Context(), &c.ledger, escrow.Push{No: 3, Tx: chain.Prepared{ID: "a"}, Send: c.send})
		if !reflect.DeepEqual(got, c.want) || !slices.Equal(c.ledger.calls, c.calls) {
			t.Errorf("%s: %+v, want %+v; calls %q", name, got, c.want, c.ledger.calls)
		}
	}
}

// A look has both views or none: the final one is asked for first, so that it is never newer.
func TestDoLook(t *testing.T) {
	t.Parallel()
	at := escrowtest.Key("escrow")
	ask := escrow.Look{Escrow: at, Tranches: []uint16{0, 1, 2}}
	good := &scripted{}
	got, _ := escrow.Do(t.Context(), good, ask).(escrow.Looked)
	if got.Err != "" || got.Escrow != at || got.Confirmed.Slot != 10 || got.Final.Slot != 20 || got.Final.Vault != 3 ||
		!slices.Equal(good.calls, []string{"look 2", "look 1"}) {
		t.Errorf("%+v, calls %q", got, good.calls)
	}
	for _, level := range []escrow.Level{escrow.Confirmed, escrow.Finalized} {
		bad := &scripted{look: chain.ErrDown, looksBad: level}
		want := escrow.Looked{Escrow: at, Err: chain.ErrDown.Error()}
		if got := escrow.Do(t.Context(), bad, ask); !reflect.DeepEqual(got, want) {
			t.Errorf("level %d fails: %+v", level, got)
		}
	}
}

// Effects for the machine's owner are none of the ledger's.
func TestDoNothing(t *testing.T) {
	t.Parallel()
	l := &scripted{}
	for _, e := range []escrow.Effect{escrow.Persist{}, escrow.Opening{}, escrow.Funded{}, escrow.Void{}, escrow.Refunded{},
		escrow.Closed{}, escrow.Paid{}, escrow.Settled{}, escrow.Lost{}, escrow.Waiting{}} {
		if ev := escrow.Do(t.Context(), l, e); ev != nil || len(l.calls) > 0 {
			t.Errorf("%T: %v, calls %q", e, ev, l.calls)
		}
	}
	if p := escrow.DefaultParams(); p.PollEvery <= 0 || p.RetryAfter < p.PollEvery || p.LookEvery < p.RetryAfter {
		t.Errorf("intervals %+v", p)
	}
}
