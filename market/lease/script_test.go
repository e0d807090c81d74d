package lease_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"
	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/lease"
	"github.com/starling-network/starling/market/sign"
)

// TestScripts plays the scenarios in testdata/*.txt; -rewrite writes what happened as what is expected.
//
//	reserve hold=1 order=1 buyer=a rank=0 price=45 count=2 units=1    sign hold=1 buyer=a nonce=1 price=45
//	promise hold=1 escrow=1 by=1010    wrong hold=1    fund hold=1 landed=1001    release hold=1 buyer=a    ended hold=1    lost hold=1    tick seconds=1 slots=2
//	reserve … overlay    sign … key=2: the nonce commits to the key of that hold    restart    book
func TestScripts(t *testing.T) {
	t.Parallel()
	datadriven.Walk(t, "testdata", func(t *testing.T, path string) {
		if !strings.HasSuffix(path, ".txt") {
			t.Skip("not a script")
		}
		p := &player{units: testUnits(t, 4), now: lease.Now{Time: epoch, Slot: 1000}, journal: map[market.HoldID][]byte{}, orders: map[market.HoldID]market.Order{}}
		p.book = lease.NewBook(p.units, testLimits())
		datadriven.RunTest(t, path, p.run)
	})
}

type player struct {
	units   []market.Unit
	book    lease.Book
	now     lease.Now
	journal map[market.HoldID][]byte
	orders  map[market.HoldID]market.Order
}

func (p *player) run(t *testing.T, d *datadriven.TestData) string {
	arg := func(key string, def int) int {
		if d.HasArg(key) {
			d.ScanArgs(t, key, &def)
		}
		return def
	}
	buyer := buyers[0]
	if d.HasArg("buyer") {
		var name string
		d.ScanArgs(t, "buyer", &name)
		buyer = buyers[name[0]-'a']
	}
	hold := market.HoldID{byte(arg("hold", 0))}
	record, _ := p.book.Hold(hold)
	var ev lease.Event
	switch d.Cmd {
	case "reserve":
		o := testOrder(buyer, byte(arg("order", 1)), uint32(arg("count", 2)), uint32(arg("units", 1)))
		if _, known := p.orders[hold]; !known {
			p.orders[hold] = o
		}
		ev = lease.ReserveRequested{Hold: hold, Order: o, Price: market.Price(arg("price", 45)), Rank: uint32(arg("rank", 0)), Overlay: d.HasArg("overlay")}
	case "sign":
		dr := draft(p.orders[hold], record.Units, record.Rank, market.Price(arg("price", 45)), p.now, byte(arg("nonce", 1)))
		if len(record.Units) == 0 {
			dr.Units = []market.UnitID{p.units[0].ID}
		}
		if d.HasArg("key") {
			dr.Nonce = market.OverlayNonce(hold, overlayKey(market.HoldID{byte(arg("key", 0))}))
		}
		ev = signRequest(hold, buyer, dr)
	case "promise":
		ev = lease.FundingPromised{Lease: record.Lease, Escrow: sign.Key{byte(arg("escrow", 1))}, Funding: []byte{1}, By: market.Slot(arg("by", int(p.now.Slot)+10))}
	case "wrong":
		ev = lease.FundingWrong{Lease: record.Lease, Reason: "its escrow is in another token"}
	case "fund":
		ev = lease.FundingSeen{Lease: record.Lease, Landed: market.Slot(arg("landed", int(p.now.Slot)))}
	case "release":
		ev = lease.ReleaseRequested{Hold: hold, By: buyer.Key()}
	case "ended":
		ev = lease.LeaseEnded{Lease: record.Lease, Reason: "exit code 0"}
	case "lost":
		ev = lease.ExecutionLost{Lease: record.Lease, Reason: "killed by signal 9"}
	case "tick":
		p.now.Time = p.now.Time.Add(time.Duration(arg("seconds", 0)) * time.Second)
		p.now.Slot += market.Slot(arg("slots", 0))
		ev = lease.Ticked{}
	case "restart":
		p.book = restoreForScript(t, p.units, p.journal)
		return p.show(p.book.Resume(), nil)
	case "book":
		var b strings.Builder
		fmt.Fprintf(&b, "free %d of %d\n", p.book.Free("cpu"), p.book.Total("cpu"))
		for r := range p.book.Records() {
			fmt.Fprintf(&b, "hold %d rank %d %s units %v %s\n", r.ID[0], r.Rank, r.State, p.names(r.Units), r.EndReason)
		}
		return b.String()
	default:
		t.Fatalf("unknown command %s", d.Cmd)
	}
	next, effects, err := p.book.Step(p.now, ev)
	p.book = next
	return p.show(effects, err)
}

func restoreForScript(t *testing.T, units []market.Unit, journal map[market.HoldID][]byte) lease.Book {
	var recs []lease.Record
	for _, b := range journal {
		r, err := lease.UnmarshalRecord(b)
		if err != nil {
			t.Fatal(err)
		}
		recs = append(recs, r)
	}
	book, err := lease.NewBook(units, testLimits()).Restore(recs)
	if err != nil {
		t.Fatal(err)
	}
	return book
}

func (p *player) names(ids []market.UnitID) []int {
	out := []int{}
	for i, u := range p.units {
		for _, id := range ids {
			if id == u.ID {
				out = append(out, i)
			}
		}
	}
	return out
}

func (p *player) show(effects []lease.Effect, err error) string {
	var b strings.Builder
	for _, e := range effects {
		switch e := e.(type) {
		case lease.Persist:
			p.journal[e.Record.ID], _ = e.Record.Marshal()
			fmt.Fprintf(&b, "persist hold %d %s\n", e.Record.ID[0], e.Record.State)
		case lease.Forget:
			delete(p.journal, e.Hold)
			fmt.Fprintf(&b, "forget hold %d\n", e.Hold[0])
		case lease.AnswerHeld:
			fmt.Fprintf(&b, "answer held: units %v for %s", p.names(e.Units), e.Expires.Sub(p.now.Time))
			if !e.Overlay.IsZero() {
				fmt.Fprintf(&b, ", overlay key of hold %d", e.Overlay[0])
			}
			b.WriteByte('\n')
		case lease.AnswerSigned:
			fmt.Fprintf(&b, "answer signed: rate %d cap %d slots %d to %d nonce %d\n", e.Core.Rate, e.Core.Cap, e.Core.Start, e.Core.End, e.Core.Nonce[0])
		case lease.AnswerActivated:
			fmt.Fprintf(&b, "answer activated: hold %d\n", e.Hold[0])
		case lease.AnswerReleased:
			fmt.Fprintf(&b, "answer released: hold %d\n", e.Hold[0])
		case lease.AnswerRefused:
			fmt.Fprintf(&b, "answer refused: %s: %s\n", e.Refusal.Reason, e.Refusal)
		case lease.Activate:
			fmt.Fprintf(&b, "activate hold %d\n", e.Record.ID[0])
		case lease.EndLease:
			fmt.Fprintf(&b, "end lease: %s\n", e.Reason)
		case lease.UnitsFreed:
			fmt.Fprintf(&b, "units freed: %v\n", p.names(e.Units))
		}
	}
	if err != nil {
		fmt.Fprintf(&b, "error: %v\n", err)
	}
	return b.String()
}
