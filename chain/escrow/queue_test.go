package escrow_test

import (
	"bytes"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/starling-network/starling/chain"
	"github.com/starling-network/starling/chain/chaintest/escrowtest"
	"github.com/starling-network/starling/chain/escrow"
	"github.com/starling-network/starling/market"
)

var start = time.Unix(1000, 0)

func wanted(escrow.Task) bool { return true }

func any1(escrow.Task) bool { return true }

// queued is a queue with one signed transaction for a task, number 1.
func queued(t *testing.T, task escrow.Task) *escrow.Queue {
	t.Helper()
	q := escrow.NewQueue()
	if _, ok := q.May(start, task); !ok {
		t.Fatal("an empty queue refuses a task")
	}
	o := q.Ask(start, task, 10)
	effects, change, tooLong := q.Signed(start, escrowtest.Timing(), signed(o.No), wanted)
	if want := []escrow.Effect{escrow.Push{No: o.No, Tx: prepared(o.No), Send: true}}; o.No != 1 || !change || len(tooLong) > 0 ||
		len(effects) != 1 || fmt.Sprint(effects) != fmt.Sprint(want) {
		t.Fatalf("order %+v, effects %+v, too long %v", o, effects, tooLong)
	}
	return &q
}

func prepared(no uint32) chain.Prepared {
	return chain.Prepared{ID: chain.TxID(fmt.Sprintf("tx%d", no)), Raw: []byte{byte(no), 1}, LastValid: 100, Since: 7}
}

func signed(no uint32) escrow.Signed {
	return escrow.Signed{Results: []escrow.SignResult{{No: no, Tx: prepared(no)}}}
}

func state(no uint32, s chain.TxState) escrow.Pushed {
	return escrow.Pushed{No: no, Status: chain.TxStatus{State: s, Slot: 9}}
}

// A task is under way at most once, from the order to a certain outcome.
func TestQueueOutcomes(t *testing.T) {
	t.Parallel()
	task := escrow.Task{Kind: escrow.TaskClaim, Amount: 5}
	gone := escrow.Pushed{No: 1, Err: "pruned", Gone: true}
	for name, c := range map[string]struct {
		answer      escrow.Pushed
		known, over bool
		fails       uint8 // counted afterwards
		retries     uint8 // of the next order
	}{
		"unknown":   {state(1, chain.TxStatus{}.State), false, false, 0, 0},
		"pending":   {state(1, chain.Pending), false, false, 0, 0},
		"confirmed": {state(1, chain.Confirmed), true, false, 0, 0},
		"finalized": {state(1, chain.Finalized), true, true, 0, 0},
		"failed":    {state(1, chain.Failed), true, true, 1, 0},
		"expired":   {state(1, chain.Expired), true, true, 0, 1},
		"no answer": {escrow.Pushed{No: 1, Err: "down"}, false, false, 0, 0},
		"forgotten": {gone, false, true, 1, 0},
		"another's": {state(2, chain.Finalized), false, false, 0, 0},
	} {
		q := queued(t, task)
		if _, ok := q.May(start, task); ok {
			t.Errorf("%s: a second transaction for a task", name)
		}
		o := q.Pushed(start, escrowtest.Timing(), c.answer)
		if o.Known != c.known || o.Over != c.over || (q.Len() == 0) != c.over {
			t.Errorf("%s: %+v, %d under way", name, o, q.Len())
			continue
		}
		later := start.Add(time.Minute)
		fails, ok := q.May(later, task)
		if !c.over {
			continue
		}
		if !ok || fails != c.fails {
			t.Errorf("%s: %d failures, may %v", name, fails, ok)
		}
		if again := q.Ask(later, task, 1); again.Retries != c.retries || again.No != 2 {
			t.Errorf("%s: order %+v", name, again)
		}
	}
}

// After each failure in a row a task waits twice as long, up to 32 times the first; a success ends that.
func TestQueueBacksOff(t *testing.T) {
	t.Parallel()
	p, now, task := escrowtest.Timing(), start, escrow.Task{Kind: escrow.TaskSweep}
	q := escrow.NewQueue()
	for n := range 10 {
		o := q.Ask(now, task, 0)
		effects, change, _ := q.Signed(now, p, escrow.Signed{Results: []escrow.SignResult{{No: o.No, Err: "no fee"}}}, wanted)
		wait := p.RetryAfter << min(n, 5)
		if change || len(effects) != 1 || effects[0] != (escrow.Waiting{Reason: "no fee", Until: now.Add(wait)}) {
			t.Fatalf("failure %d: %+v", n, effects)
		}
		if _, ok := q.May(now.Add(wait-1), task); ok {
			t.Fatalf("failure %d: tried again at once", n)
		}
		now = now.Add(wait)
		if fails, ok := q.May(now, task); !ok || int(fails) != n+1 {
			t.Fatalf("failure %d: may %v, %d failures", n, ok, fails)
		}
	}
	if q.Reason != "no fee" {
		t.Errorf("reason %q", q.Reason)
	}
	q.Succeeded(task)
	if fails, ok := q.May(now, task); !ok || fails != 0 || q.Reason != "" {
		t.Errorf("may %v after %d failures, %q", ok, fails, q.Reason)
	}
}

// Bids rise with each transaction for the same leaf that expired, whatever the amount, and begin anew when the last one
// is long ago or one landed.
func TestQueueBidsMore(t *testing.T) {
	t.Parallel()
	p, now, q := escrowtest.Timing(), start, escrow.NewQueue()
	ask := func(amount market.Amount, leaf uint16, end chain.TxState) uint8 {
		o := q.Ask(now, escrow.Task{Kind: escrow.TaskClaim, Leaf: leaf, Amount: amount}, 0)
		q.Signed(now, p, signed(o.No), wanted)
		q.Pushed(now, p, state(o.No, end))
		return o.Retries
	}
	for i, want := range []uint8{0, 1, 2} {
		now = now.Add(time.Minute)
		if got := ask(market.Amount(i+1), 0, chain.Expired); got != want {
			t.Errorf("transaction %d bids as if %d had been lost", i, got)
		}
	}
	if got := ask(1, 1, chain.Expired); got != 0 {
		t.Errorf("another leaf's bids as if %d had been lost", got)
	}
	if got := ask(9, 0, chain.Finalized); got != 3 {
		t.Errorf("the fourth bids as if %d had been lost", got)
	}
	if got := ask(10, 0, chain.Expired); got != 0 {
		t.Errorf("after a success: %d", got)
	}
	now = now.Add(11 * time.Minute)
	if got := ask(11, 0, chain.Expired); got != 0 {
		t.Errorf("after a long time: %d", got)
	}
}

// A transaction that endpoints reject is given up for another only if both could land without harm: not a claim, and
// not the opening of an escrow.
func TestQueueRejected(t *testing.T) {
	t.Parallel()
	p := escrowtest.Timing()
	for kind, again := range map[escrow.TaskKind]bool{escrow.TaskOpen: false, escrow.TaskAdd: false, escrow.TaskBegin: true,
		escrow.TaskFinish: true, escrow.TaskFinal: true, escrow.TaskRefund: true, escrow.TaskSweep: true, escrow.TaskCloseTranche: true,
		escrow.TaskCloseEscrow: true, escrow.TaskClaim: false, escrow.TaskOpenToken: false, escrow.TaskMakeTable: false,
		escrow.TaskDisableTable: false, escrow.TaskCloseTable: false} {
		q, now := queued(t, escrow.Task{Kind: kind}), start
		var o escrow.Outcome
		for n := 1; n <= escrow.MaxRejects; n++ {
			if q.Len() == 0 {
				t.Fatalf("kind %d: given up after %d refusals", kind, n-1)
			}
			now = now.Add(time.Minute)
			o = q.Pushed(now, p, escrow.Pushed{No: 1, Rejected: "refused"})
		}
		if o.Over != again || (q.Len() == 0) != again || q.Reason != "refused" {
			t.Errorf("kind %d: over %v, %d under way, %q", kind, o.Over, q.Len(), q.Reason)
		}
	}
}

// Ticks send what is due and unseen, poll what is confirmed, and leave alone what is being signed.
func TestQueueTicks(t *testing.T) {
	t.Parallel()
	p, q := escrowtest.Timing(), queued(t, escrow.Task{Kind: escrow.TaskBegin})
	q.Ask(start, escrow.Task{Kind: escrow.TaskSweep}, 0)
	if effects := q.Tick(start, p, wanted); len(effects) > 0 {
		t.Errorf("sent again at once: %+v", effects)
	}
	due := q.Soonest(time.Time{})
	if !due.Equal(start.Add(p.PollEvery)) || !q.Soonest(start).Equal(start) {
		t.Errorf("due at %s", due)
	}
	send := func() (sends []bool) {
		for _, e := range q.Tick(due, p, func(t escrow.Task) bool { return t.Kind == escrow.TaskBegin }) {
			sends = append(sends, e.(escrow.Push).Send)
		}
		due = due.Add(p.PollEvery)
		return sends
	}
	if got := send(); !slices.Equal(got, []bool{true}) {
		t.Errorf("unseen: %v", got)
	}
	q.Pushed(due, p, state(1, chain.Confirmed))
	due = due.Add(p.PollEvery)
	if got := send(); !slices.Equal(got, []bool{false}) {
		t.Errorf("confirmed: %v", got)
	}
	if !q.UnderState(escrow.TaskBegin, chain.Confirmed) || q.Unseen(func(t escrow.Task) bool { return t.Kind == escrow.TaskBegin }) ||
		!q.UnderSigned(escrow.TaskBegin) || q.UnderSigned(escrow.TaskSweep) || !q.UnderKind(escrow.TaskSweep) {
		t.Error("states of the transactions under way")
	}
	q.Drop(func(t escrow.Task) bool { return t.Kind == escrow.TaskSweep })
	if q.UnderKind(escrow.TaskSweep) || q.Len() != 1 {
		t.Errorf("%d under way", q.Len())
	}
	q.Note(strings.Repeat("x", 2*escrow.MaxReason))
	if len(q.Reason) != escrow.MaxReason {
		t.Errorf("a reason of %d bytes", len(q.Reason))
	}
	if q.Clear(); q.Len() != 0 || q.Reason != "" {
		t.Error("cleared and not empty")
	}
}

// Through random asks and answers a queue has at most MaxTxs transactions and none twice, its journal holds exactly the
// signed ones, and a clone changes nothing in it.
func TestQueueProperty(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		q, now, p := escrow.NewQueue(), start, escrowtest.Timing()
		live := map[uint32]bool{} // by number: signed
		for range rapid.IntRange(1, 60).Draw(t, "events") {
			now = now.Add(time.Duration(rapid.IntRange(0, 5000).Draw(t, "ms")) * time.Millisecond)
			before, copied := escrow.MarshalRecord(q.Record()), q.Clone()
			no := uint32(rapid.IntRange(0, 20).Draw(t, "no"))
			switch rapid.IntRange(0, 3).Draw(t, "event") {
			case 0, 1:
				task := escrow.Task{Kind: escrow.TaskKind(rapid.IntRange(1, 14).Draw(t, "kind")), Leaf: uint16(rapid.IntRange(0, 2).Draw(t, "leaf"))}
				if _, ok := q.May(now, task); ok {
					if q.Under(func(x escrow.Task) bool { return x == task }) {
						t.Fatalf("%+v may be signed twice", task)
					}
					live[q.Ask(now, task, 1).No] = false
				}
			case 2:
				bad := rapid.Bool().Draw(t, "fails")
				r := escrow.SignResult{No: no, Tx: prepared(no)}
				if bad {
					r = escrow.SignResult{No: no, Err: "x"}
				}
				_, change, _ := q.Signed(now, p, escrow.Signed{Results: []escrow.SignResult{r}}, wanted)
				done, there := live[no]
				if want := there && !done && !bad; change != want {
					t.Fatalf("number %d signed: change %v, want %v", no, change, want)
				}
				if there && !done && bad {
					delete(live, no)
				} else if there {
					live[no] = true
				}
			case 3:
				s := rapid.SampledFrom([]chain.TxState{0, chain.Pending, chain.Confirmed, chain.Finalized, chain.Failed, chain.Expired}).Draw(t, "state")
				o := q.Pushed(now, p, state(no, s))
				if want := live[no] && s.Final(); o.Over != want {
					t.Fatalf("number %d in state %s: over %v, want %v", no, s, o.Over, want)
				}
				if o.Over {
					delete(live, no)
				}
			}
			if !bytes.Equal(escrow.MarshalRecord(copied.Record()), before) {
				t.Fatal("a copy changed")
			}
			check(t, q, live)
		}
	})
}

func check(t *rapid.T, q escrow.Queue, live map[uint32]bool) {
	if q.Len() != len(live) || q.Len() > escrow.MaxTxs {
		t.Fatalf("%d under way, want %d", q.Len(), len(live))
	}
	var r escrow.QueueRecord
	if err := escrow.UnmarshalRecord(escrow.MarshalRecord(q.Record()), &r); err != nil {
		t.Fatal(err)
	}
	again, ok := r.Restore(any1)
	n := 0
	for _, signed := range live {
		if signed {
			n++
		}
	}
	if !ok || again.Len() != n || !reflect.DeepEqual(again.Record(), q.Record()) {
		t.Fatalf("%d are journalled of %d signed, ok %v", again.Len(), n, ok)
	}
}

// A record with a task that is not the machine's, a final state, or one task twice is refused.
func TestQueueRecordRefusals(t *testing.T) {
	t.Parallel()
	q := queued(t, escrow.Task{Kind: escrow.TaskBegin, Leaf: 1})
	restore := func(change func(r *escrow.QueueRecord, x *escrow.TxRecord)) bool {
		r := q.Record()
		change(&r, &r.Txs[0])
		_, ok := r.Restore(func(t escrow.Task) bool { return t.Kind == escrow.TaskBegin })
		return ok
	}
	if !restore(func(*escrow.QueueRecord, *escrow.TxRecord) {}) {
		t.Fatal("a good record is refused")
	}
	for name, change := range map[string]func(*escrow.QueueRecord, *escrow.TxRecord){
		"no kind":        func(_ *escrow.QueueRecord, x *escrow.TxRecord) { x.Kind = 0 },
		"other kind":     func(_ *escrow.QueueRecord, x *escrow.TxRecord) { x.Kind = escrow.TaskClaim },
		"final":          func(_ *escrow.QueueRecord, x *escrow.TxRecord) { x.State = chain.Finalized },
		"number to come": func(r *escrow.QueueRecord, x *escrow.TxRecord) { x.No = r.Next },
		"no id":          func(_ *escrow.QueueRecord, x *escrow.TxRecord) { x.ID = "" },
		"long id":        func(_ *escrow.QueueRecord, x *escrow.TxRecord) { x.ID = chain.TxID(strings.Repeat("1", 89)) },
		"no bytes":       func(_ *escrow.QueueRecord, x *escrow.TxRecord) { x.Raw = nil },
		"long":           func(_ *escrow.QueueRecord, x *escrow.TxRecord) { x.Raw = make([]byte, chain.MaxRaw+1) },
		"twice":          func(r *escrow.QueueRecord, x *escrow.TxRecord) { r.Txs = append(r.Txs, *x) },
		"too many": func(r *escrow.QueueRecord, x *escrow.TxRecord) {
			for i := range uint16(escrow.MaxTxs) {
				y := *x
				y.Leaf, y.No = 2+i, 100+uint32(i)
				r.Txs, r.Next = append(r.Txs, y), 1000
			}
		},
	} {
		if restore(change) {
			t.Errorf("%s: accepted", name)
		}
	}
}

// A record has one form: other texts are refused, also those of the same meaning.
func TestRecordHasOneForm(t *testing.T) {
	t.Parallel()
	good := string(escrow.MarshalRecord(queued(t, escrow.Task{Kind: escrow.TaskBegin, Leaf: 1}).Record()))
	for name, text := range map[string]string{
		"nothing": "", "a space": " " + good, "more": good + "{}", "cut off": good[:len(good)-1], "null": "null",
		"a field":       strings.Replace(good, `{"next"`, `{"more":1,"next"`, 1),
		"other case":    strings.Replace(good, `"next"`, `"Next"`, 1),
		"no such kind":  strings.Replace(good, `"retire begin"`, `"dance"`, 1),
		"no such state": strings.Replace(good, `"unknown"`, `"lost"`, 1),
		"zero field":    strings.Replace(good, `"leaf":1`, `"tranche":0,"leaf":1`, 1),
	} {
		var r escrow.QueueRecord
		if err := escrow.UnmarshalRecord([]byte(text), &r); text == good || !errors.Is(err, market.ErrMalformed) {
			t.Errorf("%s: %v", name, err)
		}
	}
	var r escrow.QueueRecord
	if err := escrow.UnmarshalRecord([]byte(good), &r); err != nil {
		t.Error(err)
	}
}
