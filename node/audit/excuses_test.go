package audit

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/starling-network/starling/chain/chaintest"
	"github.com/starling-network/starling/chain/escrow"
	"github.com/starling-network/starling/chain/program"
	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/node/nodepb"
	"github.com/starling-network/starling/node/settle"
	"github.com/starling-network/starling/node/store"
	"github.com/starling-network/starling/verify"
	"github.com/starling-network/starling/verify/audit"
	"github.com/starling-network/starling/verify/audit/audittest"
	"github.com/starling-network/starling/verify/tranche"
)

// till is a chain on which leases are paid, of 10 % of which all burns, and what it says of them.
type till struct {
	*testing.T
	chain    *chaintest.Chain
	programs *chaintest.Programs
	net      escrow.Net
	ledger   *chaintest.ProgramLedger // the buyer's
	now      time.Time
	slot     uint64
	OnChain
}

func newTill(t *testing.T) *till {
	t.Helper()
	mint, at := sign.Key{7}, sign.Key{8}
	terms := program.DefaultTerms(mint, 6)
	terms.FeeBps, terms.BurnBps, terms.PoolBps, terms.TreasuryBps, terms.ReferrerBps = 1000, 10_000, 0, 0, 0
	p := program.Params{Network: "test", ResponseSlots: 100, Mints: []program.MintTerms{terms}}
	x := &till{T: t, chain: chaintest.NewChain(chaintest.Config{}), now: time.Unix(1_700_000_000, 0), slot: chaintest.FinalBlocks}
	var err error
	if x.net, err = escrow.NewNet(at, program.NewNetwork(p), mint); err != nil {
		t.Fatal(err)
	}
	x.programs = chaintest.NewPrograms(x.chain, x.net)
	x.ledger = x.programs.Ledger(audittest.Key("buyer").Key())
	x.programs.Mint(audittest.Key("buyer").Key(), 1_000_000)
	x.programs.Mint(sign.Key{7}, 1) // the payout's account
	g := market.Genesis{Network: "test", Program: at, Mint: mint, Escrow: x.net.Address()}
	network := settle.NewNetwork(g, x.ledger, store.NewMemory())
	x.OnChain = OnChain{Network: network, Payments: settle.NewPayments(x.ledger, network, func() time.Time { return x.now })}
	return x
}

// until makes blocks until a slot.
func (x *till) until(slot market.Slot) {
	for ; x.slot < uint64(slot); x.slot++ {
		x.chain.Advance(1)
		x.programs.Advance()
	}
}

// do lands a transaction.
func (x *till) do(in ...program.Instruction) {
	x.Helper()
	tx, err := x.ledger.Sign(x.Context(), in, nil)
	if err == nil {
		err = x.ledger.Send(x.Context(), tx)
	}
	if err != nil {
		x.Fatal(err)
	}
	x.until(market.Slot(x.slot + 1))
	if s, err := x.ledger.Status(x.Context(), tx); err != nil || s.Err != "" {
		x.Fatalf("%+v, %v", s, err)
	}
}

// at is where the lease of a worked stretch has its money.
func (x *till) at(w audit.Worked) sign.Key {
	return x.net.Escrow(w.Funded.Buyer, w.Funded.Order, w.Funded.Opened)
}

// fund puts a lease's money on chain, in the slot after it began.
func (x *till) fund(w audit.Worked) {
	x.Helper()
	x.until(w.Lease.Core.Start + 1)
	buyer, at := w.Lease.Core.Buyer, x.at(w)
	keys, err := market.NewKeySet(1, buyer)
	if err != nil {
		x.Fatal(err)
	}
	tree, err := tranche.Build([]tranche.Leaf{tranche.LeafOf(w.Lease.Core, 0)})
	if err != nil {
		x.Fatal(err)
	}
	vault := program.VaultAddress(x.net.Program, at)
	x.do(program.OpenEscrow{
		Payer: buyer, Buyer: buyer, Source: program.TokenAccount(buyer, x.net.Mint), Authority: buyer, Escrow: at, Vault: vault, Mint: x.net.Mint,
		Network: x.net.Address(), Order: w.Funded.Order, Opened: w.Funded.Opened, Deadline: 10_000, Deposit: uint64(w.Lease.Core.Cap),
		RefundOwner: buyer, Keys: keys,
	}.Instruction(x.net.Program), program.AddTranche{
		Payer: buyer, Buyer: buyer, Escrow: at, Vault: vault, Tranche: program.TrancheAddress(x.net.Program, at, 0), Root: tree.Root(),
	}.Instruction(x.net.Program))
}

// pay claims so much of a lease, for ever.
func (x *till) pay(w audit.Worked, amount market.Amount) {
	x.Helper()
	keys, err := market.NewKeySet(1, w.Lease.Core.Buyer)
	if err != nil {
		x.Fatal(err)
	}
	c, at := w.Lease.Core, x.at(w)
	v, err := verify.SignVoucher(x.net.Domain(), verify.Voucher{
		Version: verify.VoucherVersion, Lease: c.ID(), Escrow: at, Seq: 1, Cumulative: amount, Horizon: c.End,
	}, keys, audittest.Key("buyer"))
	if err != nil {
		x.Fatal(err)
	}
	x.do(program.VoucherSigned(x.net.Domain(), v).Instruction(), program.Claim{
		Escrow: at, Tranche: program.TrancheAddress(x.net.Program, at, 0), Vault: program.VaultAddress(x.net.Program, at),
		Destination: program.TokenAccount(c.Payout, x.net.Mint), Mint: x.net.Mint, Network: x.net.Address(), Leaf: tranche.LeafOf(c, 0), Proof: w.Funded.Proof,
	}.Instruction(x.net.Program))
	x.until(market.Slot(x.slot + chaintest.FinalBlocks))
	x.now = x.now.Add(time.Hour)
}

// worked is a lease of a unit and another.
func worked(t *testing.T, provider string, unit market.UnitID, from, to market.Slot) (audit.Worked, []market.UnitID) {
	t.Helper()
	units := []market.UnitID{unit, {1}}
	w, err := audittest.Worked(audittest.Key(provider), audittest.Key("buyer"), units, unit, from, to)
	if err != nil {
		t.Fatal(err)
	}
	return w, units
}

// A unit that is leased over the beginnings of two windows is excused as far as its lease was paid, and no further: it is offered
// as proven, and those who buy find it so, from the day on that enough has burned. A restart forgets nothing; the next pass all of it.
func TestBusyUnitsAreExcused(t *testing.T) {
	t.Parallel()
	x := newTill(t)
	record := passing()[0] // of window 7
	unit := record.Answer.Unit
	st := store.NewMemory()
	shelf, err := OpenShelf(t.Context(), st)
	if err != nil {
		t.Fatal(err)
	}
	passed := Result{Unit: Claim{ID: unit, Class: "cpu", Resources: sold}, Record: record}
	if err := shelf.Put(t.Context(), passed, 7, x.now, nil); err != nil {
		t.Fatal(err)
	}
	b := bazaarOf(t, passing()[:1], nil)
	b.offer.Price = 1
	price := b.offer.Price
	offered := false
	w, units := worked(t, "provider", unit, 750, 950)
	d := audittest.Domain()
	g := market.Genesis{Network: d.Network, Chain: d.Chain, Program: d.Program, AuditSlots: 100, SlotMillis: 400}
	s := NewService(Config{
		Genesis: g, Sight: b.facts, Shelf: shelf, Burns: x, Log: slog.New(slog.DiscardHandler), Key: audittest.Key("provider"),
		Funded: func(id market.LeaseID) (audit.Funded, bool) { return w.Funded, id == w.Lease.Core.ID() },
		Price:  func(market.Class) market.Price { return price },
		Proven: func(record func(u market.Unit) (sign.Hash, bool)) {
			_, offered = record(market.Unit{ID: unit, Class: "cpu", Resources: sold})
		},
	})
	b.Proofs = NewProofs(ProofsConfig{
		Domain: audittest.Domain(), WindowSlots: 100, SlotMillis: 400, Sight: b.facts, Burns: x, Now: func() time.Time { return x.now },
		Until: func(market.Slot) time.Duration { return 0 }, Log: slog.New(slog.DiscardHandler),
		Ask: func(ctx context.Context, from sign.Key, req *nodepb.RecordRequest) (*nodepb.RecordReply, error) {
			if len(req.Proof) > 0 {
				return b.answer(ctx, from, req)
			}
			return s.show(req)
		},
	})
	says := func(when string, want bool, why string) {
		t.Helper()
		s.offer(t.Context())
		b.Check(t.Context(), b.offer, 1)
		shown := b.Shown(b.offer)
		err := b.CheckUnits(t.Context(), b.offer, []market.UnitID{unit})
		if offered != want || shown.Units == 1 != want || (err == nil) != want || !strings.Contains(shown.Doubt, why) {
			t.Errorf("%s: offered %t, shown %+v, %v; want %t, %q", when, offered, shown, err, want, why)
		}
		x.now = x.now.Add(time.Hour)
	}
	says("in its window", true, "")
	x.fund(w)
	other, others := worked(t, "provider", unit, 750, 951) // whose money is nowhere
	s.Worked(other.Lease, others, other.Receipt)
	s.Worked(w.Lease, units, w.Receipt)
	s.Worked(w.Lease, units, w.Receipt)
	if s.excuse(t.Context()); len(shelf.Excuses(unit)) != 2 {
		t.Fatalf("%d excuses for windows 8 and 9", len(shelf.Excuses(unit)))
	}
	b.facts.window = 10
	x.until(1000)
	says("nothing is paid", false, "rule excuse")
	x.pay(w, 15) // of which one burns, shared by two
	says("too little is paid", false, "rule excuse")
	x.pay(w, 200)
	says("all is paid", true, "")
	price, b.offer.Price = 1<<40, 1<<40
	says("it could be sold for more than that", false, "rule fresh")
	price, b.offer.Price = 1, 1
	says("again", true, "")
	b.facts.window = 11
	says("nothing excuses it in window 10", false, "window 10")
	b.facts.window = 10

	if shelf, err = OpenShelf(t.Context(), st); err != nil || len(shelf.Excuses(unit)) != 2 {
		t.Fatalf("after a restart: %d excuses, %v", len(shelf.Excuses(unit)), err)
	}
	s.cfg.Shelf = shelf
	says("after a restart", true, "")
	reports := s.reports(t.Context(), passed.Unit)
	if want := (audit.Report{Result: audit.Excused}); len(reports) != 2 || reports[8] != want || reports[9] != want {
		t.Errorf("its standing is told %v", reports)
	}
	// It does not answer in window 10, and is suspended for that alone.
	if err := shelf.Put(t.Context(), Result{Unit: passed.Unit, Err: errors.New("no committee")}, 10, x.now, reports); err != nil {
		t.Fatal(err)
	}
	want := audit.Standing{}.Step(audit.Report{Result: audit.Passed}).Step(reports[8]).Step(reports[9]).Step(audit.Report{Result: audit.Absent})
	if got := shelf.Standing(unit); got != want {
		t.Errorf("its standing is %+v, want %+v", got, want)
	}
	if err := shelf.Put(t.Context(), passed, 11, x.now, nil); err != nil || len(shelf.Excuses(unit)) != 0 || shelf.busy() {
		t.Errorf("it passed, and has %d excuses: %v", len(shelf.Excuses(unit)), err)
	}
	if shelf, err = OpenShelf(t.Context(), st); err != nil || shelf.busy() {
		t.Errorf("and after a restart: %v", err)
	}
}

// TestExcusesRefuse has a provider give with an old record what does not excuse its unit.
func TestExcusesRefuse(t *testing.T) {
	t.Parallel()
	record := passing()[0]
	unit := record.Answer.Unit
	for name, c := range map[string]struct {
		change func(e *audit.Excuse)
		raw    func([][]byte) [][]byte
		burns  func(x *till) Burns
		want   string
	}{
		"good":                          {nil, nil, nil, ""},
		"twice":                         {nil, func(b [][]byte) [][]byte { return append(b, b[0]) }, nil, ""},
		"none":                          {nil, func([][]byte) [][]byte { return nil }, nil, "rule fresh"},
		"noise":                         {nil, func([][]byte) [][]byte { return [][]byte{{1, 2, 3}} }, nil, "malformed"},
		"too many":                      {nil, func(b [][]byte) [][]byte { return make([][]byte, audit.MaxExcused+1) }, nil, "25 excuses"},
		"another unit's":                {func(e *audit.Excuse) { e.Unit[0]++ }, nil, nil, "rule unit"},
		"another provider's":            {func(e *audit.Excuse) { e.Provider[0]++ }, nil, nil, "rule unit"},
		"another provider's lease":      {func(e *audit.Excuse) { e.Leases[0], _ = worked(t, "somebody else", unit, 750, 850) }, nil, nil, "rule unit"},
		"a lease of other units":        {func(e *audit.Excuse) { e.Leases[0], _ = worked(t, "provider", market.UnitID{9}, 750, 850) }, nil, nil, "rule unit"},
		"a receipt that ends before":    {func(e *audit.Excuse) { e.Leases[0], _ = worked(t, "provider", unit, 750, 800) }, nil, nil, "rule excuse"},
		"a receipt of another lease":    {func(e *audit.Excuse) { o, _ := worked(t, "provider", unit, 751, 850); e.Leases[0].Receipt = o.Receipt }, nil, nil, "rule excuse"},
		"a receipt that is not signed":  {func(e *audit.Excuse) { e.Leases[0].Receipt.BuyerSig[0] ^= 1 }, nil, nil, "rule provider"},
		"work from before it passed":    {func(e *audit.Excuse) { e.Since = 1 }, nil, nil, "rule excuse"},
		"no such escrow":                {func(e *audit.Excuse) { e.Leases[0].Funded.Opened++ }, nil, nil, "not on chain"},
		"no such tranche":               {func(e *audit.Excuse) { e.Leases[0].Funded.Tranche++ }, nil, nil, "tranche"},
		"another's escrow":              {func(e *audit.Excuse) { e.Leases[0].Funded.Buyer[0]++ }, nil, nil, "not on chain"},
		"no such leaf":                  {func(e *audit.Excuse) { e.Leases[0].Funded.Index++ }, nil, nil, "leaf"},
		"another path":                  {func(e *audit.Excuse) { e.Leases[0].Funded.Proof = tranche.Proof{{}} }, nil, nil, "not in the tranche"},
		"a chain that is down":          {nil, nil, func(x *till) Burns { x.chain.SetDown(true); return x }, "cannot be reached"},
		"a network where nothing burns": {nil, nil, func(*till) Burns { return nil }, "rule fresh"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			x := newTill(t)
			w, _ := worked(t, "provider", unit, 750, 850)
			x.fund(w)
			x.until(900)
			x.pay(w, 100)
			e := audit.Excuse{Provider: record.Answer.Provider, Unit: unit, Window: 8, WindowSlots: 100, Since: passedIn(record), Leases: []audit.Worked{w}}
			if c.change != nil {
				c.change(&e)
			}
			raw := [][]byte{e.Marshal()}
			if c.raw != nil {
				raw = c.raw(raw)
			}
			b := bazaarOf(t, passing()[:1], nil)
			b.facts.window, b.offer.Price = 9, 1
			b.Proofs.cfg.SlotMillis, b.Proofs.cfg.Burns = 400, x
			if _, err := x.Network.Get(t.Context()); err != nil { // as a peer knows it that saw the chain once
				t.Fatal(err)
			}
			if c.burns != nil {
				b.Proofs.cfg.Burns = c.burns(x)
			}
			b.Proofs.cfg.Ask = func(ctx context.Context, from sign.Key, req *nodepb.RecordRequest) (*nodepb.RecordReply, error) {
				r, err := b.answer(ctx, from, req)
				if err == nil && len(req.Hash) > 0 {
					r.Excuses = raw
				}
				return r, err
			}
			units, doubt := b.check(t, 1)
			if (units == 1) != (c.want == "") || !strings.Contains(doubt, c.want) {
				t.Errorf("%d units, %q; want %q", units, doubt, c.want)
			}
			b.requests()
			if b.check(t, 1); b.requests() != 0 {
				t.Error("it was asked again at once")
			}
		})
	}
}

// The leases that excused a unit before count with the one that does now, at most eight, and none that overlaps.
func TestExcusesAddUp(t *testing.T) {
	t.Parallel()
	record := passing()[0]
	unit := record.Answer.Unit
	shelf, err := OpenShelf(t.Context(), store.NewMemory())
	if err != nil {
		t.Fatal(err)
	}
	excuse := func(w audit.Window, from, to market.Slot) int {
		t.Helper()
		l, _ := worked(t, "provider", unit, from, to)
		if err := shelf.Worked(t.Context(), audittest.Domain(), unit, l); err != nil {
			t.Fatal(err)
		}
		for _, e := range shelf.Excuses(unit) {
			if e.Window == w {
				return len(e.Leases)
			}
		}
		return 0
	}
	if n := excuse(8, 790, 810); n != 0 {
		t.Errorf("a unit that never passed has an excuse of %d leases", n)
	}
	if err := shelf.Put(t.Context(), Result{Unit: Claim{ID: unit, Class: "cpu", Resources: sold}, Record: record}, 7, time.Now(), nil); err != nil {
		t.Fatal(err)
	}
	for i := range 10 {
		first := market.Slot(800 + 100*i)
		if n, want := excuse(audit.Window(8+i), first-10, first+10), min(i+1, audit.MaxLeases); n != want {
			t.Errorf("window %d: %d leases, want %d", 8+i, n, want)
		}
	}
	if n := excuse(18, 1705, 1810); n != audit.MaxLeases { // instead of it
		t.Errorf("one that overlaps the last: %d leases", n)
	}
	for name, n := range map[string]int{
		"of the window in which it passed": excuse(7, 705, 720), "from before it passed": excuse(19, 600, 1910),
		"too late": excuse(7+audit.MaxExcused+1, 3190, 3210),
	} {
		if n != 0 {
			t.Errorf("%s: %d leases", name, n)
		}
	}
	if n := len(covered(verify.ReceiptCore{From: 0, To: 1 << 62}, 1)); n != audit.MaxExcused {
		t.Errorf("a receipt of all time covers %d windows", n)
	}
}

// until says what a unit's newest excuse shows: of how many leases, until which slot.
func until(s *Shelf, u market.UnitID) (leases int, to market.Slot) {
	all := s.Excuses(u)
	if len(all) == 0 {
		return 0, 0
	}
	for _, l := range audit.Newest(all[len(all)-1].Leases) {
		leases, to = leases+1, l.Receipt.To
	}
	return leases, to
}

// What a unit did after its window began is in its newest excuse as well: the end of that lease, and leases that cover no window's beginning.
func TestExcuseGoesOn(t *testing.T) {
	t.Parallel()
	record := passing()[0]
	unit := record.Answer.Unit
	shelf, err := OpenShelf(t.Context(), store.NewMemory())
	if err != nil {
		t.Fatal(err)
	}
	if err := shelf.Put(t.Context(), Result{Unit: Claim{ID: unit, Class: "cpu", Resources: sold}, Record: record}, 7, time.Now(), nil); err != nil {
		t.Fatal(err)
	}
	hears := func(w audit.Worked, leases int, to market.Slot) {
		t.Helper()
		if err := shelf.Worked(t.Context(), audittest.Domain(), unit, w); err != nil {
			t.Fatal(err)
		}
		if n, at := until(shelf, unit); n != leases || at != to {
			t.Errorf("%d leases until slot %d, want %d until %d", n, at, leases, to)
		}
		for _, e := range shelf.Excuses(unit) {
			if err := e.Check(audittest.Domain()); err != nil {
				t.Errorf("window %d: %v", e.Window, err)
			}
		}
	}
	lease := func(from, to market.Slot) audit.Worked {
		w, _ := worked(t, "provider", unit, from, to)
		return w
	}
	part := func(w audit.Worked, from, to market.Slot) audit.Worked {
		w, err := audittest.Later(w, audittest.Key("provider"), audittest.Key("buyer"), from, to, market.Amount(to-w.Lease.Core.Start))
		if err != nil {
			t.Fatal(err)
		}
		return w
	}
	hears(lease(760, 780), 0, 0)
	first := lease(790, 890)
	hears(part(first, 790, 795), 0, 0)
	hears(part(first, 795, 805), 2, 805) // with the one before
	hears(part(first, 805, 850), 2, 850)
	hears(part(first, 850, 890), 2, 890)
	hears(part(first, 805, 850), 2, 890) // again
	hears(lease(885, 888), 2, 890)       // a unit is leased once at a time
	for i := range 7 {
		from := market.Slot(892 + i)
		hears(lease(from, from+1), min(3+i, audit.MaxLeases-1), min(from+1, 898)) // one of them comes twice
	}
}

// dying is a store whose process ends at a write: it says that nothing is written, and nothing is.
type dying struct {
	store.Store
	left int
}

func (d *dying) Write(ctx context.Context, puts ...store.Put) error {
	if d.left--; d.left < 0 {
		return store.ErrClosed
	}
	return d.Store.Write(ctx, puts...)
}

// Whenever the process ends, the next one has the same excuses, of the receipts that its journal has.
func TestExcusesSurviveAnyEnd(t *testing.T) {
	t.Parallel()
	record := passing()[0]
	unit := record.Answer.Unit
	var leases []audit.Worked
	var units []market.UnitID
	for _, span := range [][2]market.Slot{{750, 760}, {790, 910}, {990, 1010}, {1050, 1060}} {
		var w audit.Worked
		w, units = worked(t, "provider", unit, span[0], span[1])
		leases = append(leases, w)
	}
	// start is a process: it hears of the receipts that the journal has, and of those that come.
	start := func(st store.Store, journal int) (*Service, error) {
		shelf, err := OpenShelf(t.Context(), st)
		if err != nil {
			t.Fatal(err)
		}
		d := audittest.Domain()
		s := NewService(Config{
			Genesis: market.Genesis{Network: d.Network, Chain: d.Chain, Program: d.Program, AuditSlots: 100, SlotMillis: 400}, Shelf: shelf, Burns: OnChain{},
			Sight: bazaarOf(t, passing()[:1], nil).facts, Log: slog.New(slog.DiscardHandler), Key: audittest.Key("provider"),
			Funded: func(id market.LeaseID) (audit.Funded, bool) {
				i := slices.IndexFunc(leases, func(w audit.Worked) bool { return w.Lease.Core.ID() == id })
				return leases[i].Funded, true
			},
			Sold: func(_ context.Context, since market.Slot, fn func(market.Lease, []market.UnitID, verify.Receipt) error) error {
				for _, w := range leases[:journal] {
					if err := fn(w.Lease, units, w.Receipt); err != nil || w.Lease.Core.Start < since {
						return err
					}
				}
				return nil
			},
		})
		return s, s.remind(t.Context())
	}
	put := func(st store.Store) {
		shelf, err := OpenShelf(t.Context(), st)
		if err == nil {
			err = shelf.Put(t.Context(), Result{Unit: Claim{ID: unit, Class: "cpu", Resources: sold}, Record: record}, 7, time.Now(), nil)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	names := func(s *Service) (out []sign.Hash) {
		for _, e := range s.cfg.Shelf.Excuses(unit) {
			out = append(out, e.Hash())
		}
		return out
	}
	run := func(st store.Store) (*Service, int) {
		s, err := start(st, 0)
		if err != nil {
			t.Fatal(err)
		}
		for i, w := range leases {
			s.Worked(w.Lease, units, w.Receipt)
			if s.excuse(t.Context()); st.(*dying).left < 0 {
				return s, i + 1 // the receipt was in the journal before it was told of
			}
		}
		return s, len(leases)
	}
	whole := &dying{store.NewMemory(), 1 << 30}
	put(whole)
	s, _ := run(whole)
	want := names(s)
	if len(want) != 3 {
		t.Fatalf("%d excuses", len(want))
	}
	for left := range 4 {
		st := &dying{store.NewMemory(), 1}
		put(st)
		st.left = left
		_, journal := run(st)
		for ; ; st.left++ { // and so may the next ones
			next := &dying{st.Store, st.left}
			if s, err := start(next, journal); err == nil {
				for _, w := range leases[journal:] {
					s.Worked(w.Lease, units, w.Receipt)
				}
				next.left = 1 << 30
				if s.excuse(t.Context()); !slices.Equal(names(s), want) {
					t.Errorf("after an end at write %d: %d excuses, want %d", left, len(names(s)), len(want))
				}
				break
			}
		}
		if again, err := start(st.Store, len(leases)); err != nil || !slices.Equal(names(again), want) {
			t.Errorf("after one more: %d excuses, %v", len(names(again)), err)
		}
	}
}
