package deposit_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/starling-network/starling/chain/chaintest/escrowtest"
	"github.com/starling-network/starling/chain/escrow"
	"github.com/starling-network/starling/chain/escrow/claims"
	"github.com/starling-network/starling/chain/escrow/deposit"
	"github.com/starling-network/starling/chain/program/account"
	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/verify"
)

var errCrash = errors.New("crash")

// actor drives a machine, and dies at a write when it is told to.
type actor[M escrow.Machine[M]] struct {
	t       escrowtest.T
	m       M
	wallet  *escrowtest.Wallet
	others  []sign.Signer
	journal []byte
	restore func([]byte) (M, error)
	hear    func(escrow.Effect)
	next    func(M) time.Time
	tick    bool // at once, after a restart
	crash   int  // at which write from now; 0: never. Negative: after it

	waits  []escrow.Effect // for the chain, one after the other
	answer escrow.Event    // of a slow chain, on its way
}

func (a *actor[M]) save(_ M, state []byte) error {
	if a.crash == 1 || a.crash == -1 {
		if a.crash < 0 {
			a.journal = state
		}
		a.crash = 0
		return errCrash
	}
	a.journal = state
	switch {
	case a.crash > 0:
		a.crash--
	case a.crash < 0:
		a.crash++
	}
	return nil
}

// tell drives the machine with an event; when it dies on the way it is restored, and told again.
func (a *actor[M]) tell(now time.Time, ev escrow.Event) error {
	for {
		err := a.step(now, ev)
		if err == nil && !a.wallet.Slow {
			err = a.carry(now)
		}
		if !errors.Is(err, errCrash) {
			return err
		}
		if a.m, err = a.restore(a.journal); err != nil {
			a.t.Fatalf("restoring: %v", err)
		}
		a.tick, a.waits, a.answer = true, nil, nil
	}
}

// step takes the machine through one event. What it is going to do waits then.
func (a *actor[M]) step(now time.Time, ev escrow.Event) error {
	before := a.state()
	next, effects, err := a.m.Step(now, ev)
	if !bytes.Equal(before, a.state()) {
		a.t.Fatalf("a step with %T changed the state before it", ev)
	}
	if err != nil {
		return err
	}
	for _, f := range effects {
		switch f := f.(type) {
		case escrow.Persist:
			if err := a.save(next, f.State); err != nil {
				return err
			}
		case escrow.Push:
			if i := slices.IndexFunc(a.waits, func(x escrow.Effect) bool { p, ok := x.(escrow.Push); return ok && p.No == f.No }); i >= 0 {
				a.waits[i] = f
				continue
			}
			a.waits = append(a.waits, f)
		case escrow.Sign, escrow.Look:
			a.waits = append(a.waits, f)
		default:
			a.hear(f)
		}
	}
	a.m = next
	return nil
}

func (a *actor[M]) state() []byte { return any(a.m).(interface{ Marshal() []byte }).Marshal() }

// carry asks the chain until there is nothing more to ask.
func (a *actor[M]) carry(now time.Time) error {
	for a.ask(); a.answer != nil; a.ask() {
		if err := a.hand(now); err != nil {
			return err
		}
	}
	return nil
}

// ask does the first that waits; its answer is on its way then.
func (a *actor[M]) ask() {
	if a.answer == nil && len(a.waits) > 0 {
		a.answer = escrow.Do(context.Background(), a.wallet, a.waits[0], a.others...)
		a.waits = a.waits[1:]
	}
}

// hand gives the machine the answer on its way.
func (a *actor[M]) hand(now time.Time) error {
	ev := a.answer
	a.answer = nil
	return a.step(now, ev)
}

func (a *actor[M]) live(now time.Time) {
	if at := a.next(a.m); a.tick || !at.IsZero() && !now.Before(at) {
		a.tick = false
		if err := a.tell(now, escrow.Ticked{}); err != nil {
			a.t.Fatalf("tick: %v", err)
		}
	}
	if ev := a.answer; ev != nil { // a slow chain has one answer at a time, and other events come before it
		a.answer = nil
		if err := a.tell(now, ev); err != nil {
			a.t.Fatalf("an answer: %v", err)
		}
	}
	a.ask()
	if !a.wallet.Slow && a.answer != nil {
		ev := a.answer
		a.answer = nil
		if err := a.tell(now, ev); err != nil {
			a.t.Fatalf("an answer: %v", err)
		}
	}
}

// world is a chain, a buyer, and the providers of its leases.
type world struct {
	t      escrowtest.T
	s      *escrowtest.Chain
	now    time.Time
	keys   market.KeySet
	names  sign.Key // as the buyer in leases
	voters []sign.Signer
	buyer  *actor[deposit.Deposit]
	// supervisors hire standbys while the buyer is away: guardians, each by itself.
	supervisors []*supervisor
	leases      []*rental
	log         []escrow.Effect // of the buyer
	closed      bool
	ended       bool
}

// rental is one lease, with both its sides.
type rental struct {
	core    market.LeaseCore
	by      string      // whose key the provider's is
	hirer   *supervisor // who hired it; nil: the buyer
	funding *escrow.Funding
	tranche sign.Key // that of the funding
	claims  *actor[claims.Claims]
	log     []escrow.Effect
	void    bool
	moved   bool // forked away, and its number went to another: its provider looks for it where it was
	lazy    bool // never claims
	best    verify.SignedVoucher
	told    market.Amount // of that, how much its claims were told is earned
	closing *verify.SignedVoucher
	receipt *verify.Receipt
	retired bool // without a final receipt
	begun   bool // its leaf was seen being retired, perhaps in a block that was forked away: then it is claimed with the best voucher
	until   market.Slot
	over    bool
	owed    market.Amount
	settled *escrow.Settled
	lost    *escrow.Lost
	early   bool // lost before it was retired
}

func newWorld(t escrowtest.T, net escrow.Net, keys market.KeySet, voters ...string) *world {
	w := &world{t: t, s: escrowtest.New(net), now: time.Unix(1000, 0), keys: keys, names: escrowtest.Key("buyer")}
	for _, v := range voters {
		w.voters = append(w.voters, escrowtest.Private(v))
	}
	deal := deposit.Deal{Order: market.OrderID{9}, Buyer: escrowtest.Key("buyer"), Source: escrowtest.Key("source"), RefundOwner: escrowtest.Key("owner"), Referrer: escrowtest.Key("referrer"), Keys: keys}
	if len(keys.Keys) > 1 { // guardians
		w.names = escrowtest.Key("job")
		deal.LeaseBuyer = w.names
		deal.Standbys = standbys()
		if len(keys.Keys) == account.MaxVoucherKeys { // with so many signatures no more fit into the opening
			deal.Standbys = deal.Standbys[:1]
		}
	}
	d, err := deposit.New(net, deal, escrowtest.Timing())
	if err != nil {
		t.Fatalf("%v", err)
	}
	w.buyer = &actor[deposit.Deposit]{t: t, m: d, wallet: &escrowtest.Wallet{Chain: w.s, By: escrowtest.Private("buyer")}, others: w.voters, journal: d.Marshal(), hear: func(e escrow.Effect) {
		w.heard(e)
		if _, ok := e.(escrow.Closed); ok {
			w.closed = true
		}
	},
		restore: func(b []byte) (deposit.Deposit, error) { return deposit.Restore(b, net, escrowtest.Timing()) },
		next:    deposit.Deposit.Next}
	return w
}

// heard is what the buyer's machine tells.
func (w *world) heard(e escrow.Effect) {
	if _, ok := e.(escrow.Waiting); !ok {
		w.log = append(w.log, e)
	}
	switch e := e.(type) {
	case escrow.Funded:
		for _, l := range e.Leases {
			r := w.rental(l.Lease)
			if r.void {
				w.t.Fatalf("lease %s is funded and was void", l.Lease.Short())
			}
			r.moved = r.moved || r.claims != nil && l.Funding.Tranche != r.funding.Tranche
			r.funding = &l.Funding
			if at := w.s.Net.EscrowOf(r.core, l.Funding); at != e.Escrow {
				w.t.Fatalf("funded by %s, not %s", e.Escrow, at)
			}
			r.tranche = account.TrancheAddress(w.s.Net.Program, e.Escrow, r.funding.Tranche) // finding an address takes longer than a slot's other work
		}
	case escrow.Void:
		for _, l := range e.Leases {
			w.rental(l).void = true
		}
	}
}

func (w *world) rental(id market.LeaseID) *rental {
	for _, r := range w.leases {
		if r.core.ID() == id {
			return r
		}
	}
	w.t.Fatalf("no lease %s", id.Short())
	return nil
}

// lease makes one that starts now.
func (w *world) lease(before, length uint64) market.LeaseCore {
	start := market.Slot(w.s.Slot)
	core := escrowtest.Lease(len(w.leases), w.keys, start, start+market.Slot(before), start+market.Slot(length))
	core.Rank, core.Nonce[0], core.Buyer = uint32(len(w.leases)), byte(len(w.leases)), w.names
	w.leases = append(w.leases, &rental{core: core, by: "provider" + string(rune('a'+len(w.leases)))})
	return core
}

func (w *world) fund(deadline market.Slot, deposit market.Amount, cores ...market.LeaseCore) error {
	return w.buyer.tell(w.now, escrow.Fund{Leases: cores, Deadline: deadline, Deposit: deposit})
}

// accept lets a provider see for itself that its lease is funded.
func (w *world) accept(r *rental) {
	if r.funding == nil || r.claims != nil || r.void {
		return
	}
	l := &escrowtest.Wallet{Chain: w.s, By: escrowtest.Private(r.by)}
	view, err := l.Look(context.Background(), w.s.Net.EscrowOf(r.core, *r.funding), []uint16{r.funding.Tranche}, escrow.Confirmed)
	if err != nil {
		w.t.Fatalf("%v", err)
	}
	if _, err := escrow.CheckFunding(w.s.Net, view, r.core, w.keys, *r.funding); err != nil {
		return
	}
	when := escrow.When{Amount: 300, Slots: 60}
	c, err := claims.New(w.s.Net, r.core, w.keys, *r.funding, when, escrowtest.Timing())
	if err != nil {
		w.t.Fatalf("%v", err)
	}
	r.claims = &actor[claims.Claims]{t: w.t, m: c, wallet: l, journal: c.Marshal(), tick: true, next: claims.Claims.Next,
		restore: func(b []byte) (claims.Claims, error) { return claims.Restore(b, w.s.Net, when, escrowtest.Timing()) },
		hear: func(e escrow.Effect) {
			switch e := e.(type) {
			case escrow.Settled:
				r.settled = &e
			case escrow.Lost:
				r.lost, r.early = &e, !r.retired
			case escrow.Waiting:
				return
			}
			r.log = append(r.log, e)
		}}
}

// voucher pays a lease for so many slots more. Whose money is being taken back, by whomever, works no more: Claims.Retired.
func (w *world) voucher(r *rental, slots uint64) {
	if !r.open() || r.void || r.retired || w.retires(r) {
		return
	}
	horizon := min(max(r.best.Horizon, r.core.Start)+market.Slot(slots), r.core.End)
	if horizon <= r.best.Horizon {
		return
	}
	r.best = w.sign(r, verify.Voucher{Seq: r.best.Seq + 1, Cumulative: market.Amount(10 * uint64(horizon-r.core.Start)), Horizon: horizon})
	w.keep(r, r.best)
}

func (w *world) sign(r *rental, v verify.Voucher) verify.SignedVoucher {
	v.Version, v.Lease, v.Escrow = verify.VoucherVersion, r.core.ID(), w.s.Net.EscrowOf(r.core, *r.funding)
	s, err := verify.SignVoucher(w.s.Net.Domain(), v, w.keys, w.signers()...)
	if err != nil {
		w.t.Fatalf("%v", err)
	}
	return s
}

func (w *world) signers() []sign.Signer {
	var out []sign.Signer
	for _, s := range append([]sign.Signer{escrowtest.Private("buyer")}, w.voters...) {
		for _, k := range w.keys.Keys {
			if s.Key() == k {
				out = append(out, s)
			}
		}
	}
	return out
}

func (w *world) keep(r *rental, v verify.SignedVoucher) {
	r.told = max(r.told, market.Amount(10*w.metered(r)))
	if err := r.claims.tell(w.now, escrow.VoucherKept{Voucher: v, Earned: r.told}); err != nil {
		w.t.Fatalf("keeping a voucher: %v", err)
	}
}

// finish ends a lease with a final receipt, for the slots that passed and were paid.
func (w *world) finish(r *rental) {
	if !r.open() {
		return
	}
	to := w.worked(r)
	core := verify.ReceiptCore{Version: verify.ReceiptVersion, Flags: verify.ReceiptFinal, Units: 1, Lease: r.core.ID(), Seq: 1, Provider: r.core.Provider,
		Buyer: r.core.Buyer, From: r.core.Start, To: to, Cumulative: market.Amount(10 * uint64(to-r.core.Start))}
	sig, err := core.Sign(w.s.Net.Domain(), r.claims.wallet.By)
	if err != nil {
		w.t.Fatalf("%v", err)
	}
	r.receipt = &verify.Receipt{ReceiptCore: core, ProviderSig: sig}
	closing := w.sign(r, verify.Voucher{Flags: verify.VoucherFinal, Seq: r.best.Seq + 1, Cumulative: core.Cumulative, Horizon: to})
	r.closing, r.owed = &closing, core.Cumulative
	w.keep(r, closing)
	w.retire(r)
}

func (w *world) retire(r *rental) {
	w.stops(r)
	ev, err := escrow.Retire{Leases: []escrow.Retired{{Lease: r.core.ID(), Final: r.receipt}}}, error(nil)
	if r.hirer != nil {
		err = r.hirer.tell(w.now, ev)
	} else {
		err = w.buyer.tell(w.now, ev)
	}
	if err != nil {
		w.t.Fatalf("retiring: %v", err)
	}
}

// worked is the slot up to which a provider worked and was promised to be paid.
func (w *world) worked(r *rental) market.Slot {
	to := min(market.Slot(w.s.Slot), r.best.Horizon)
	if r.retired { // it stopped then
		to = min(to, r.until)
	}
	return max(r.core.Start, to)
}

// stops notes that a lease is retired without a final receipt.
func (w *world) stops(r *rental) {
	if !r.retired && r.receipt == nil {
		r.retired, r.until = true, market.Slot(w.s.Slot)
	}
}

// open reports whether a lease runs, as far as its provider knows.
func (r *rental) open() bool {
	if r.claims == nil || r.closing != nil || r.over {
		return false
	}
	over, _ := r.claims.m.Over()
	return !over
}

// stop is a lease whose buyer is heard of no more.
func (w *world) stop(r *rental) {
	if !r.open() {
		return
	}
	r.over, r.owed = true, 10*market.Amount(w.worked(r)-r.core.Start)
	if err := r.claims.tell(w.now, escrow.LeaseOver{Owed: r.owed}); err != nil {
		w.t.Fatalf("over: %v", err)
	}
}

func (w *world) end() {
	w.ended = true
	for _, r := range w.leases {
		w.stops(r)
	}
	for _, s := range w.supervisors { // what the buyer takes back is theirs no more
		s.ended = true
	}
	if err := w.buyer.tell(w.now, escrow.End{}); err != nil {
		w.t.Fatalf("ending: %v", err)
	}
}

// pass lets slots pass, one by one; what was sent lands when land says so.
func (w *world) pass(slots int, land func() bool) {
	for range slots {
		w.s.Advance(1)
		w.now = w.now.Add(escrowtest.SlotTime)
		for i := len(w.s.Pool) - 1; i >= 0; i-- {
			if land() {
				w.s.Land(i)
			}
		}
		w.buyer.live(w.now)
		for _, s := range w.supervisors {
			s.live(w.now)
		}
		for _, r := range w.leases {
			w.accept(r)
			r.begun = r.begun || w.retires(r)
			if n := market.Amount(10 * w.metered(r)); n > r.told && n%(10*interval) == 0 { // both have signed a receipt
				w.keep(r, r.best)
			}
			if r.claims != nil && !r.lazy {
				r.claims.live(w.now)
			}
		}
		w.safe()
	}
}

// interval is after how many slots both sides of a lease sign a receipt.
const interval = 10

// metered is how many slots of a lease that runs were worked and paid.
func (w *world) metered(r *rental) uint64 {
	if !r.open() || r.best.Seq == 0 {
		return 0
	}
	return uint64(w.worked(r) - r.core.Start)
}

// retires reports whether a lease's leaf is being retired.
func (w *world) retires(r *rental) bool {
	if r.funding == nil {
		return false
	}
	t, ok := w.s.Tip.Tranches[r.tranche]
	return ok && int(r.funding.Index) < len(t.Leaves) && t.Leaves[r.funding.Index].Window != 0
}

func always() bool { return true }

// until lets slots pass until it is so.
func (w *world) until(what string, most int, so func() bool) {
	w.t.Helper()
	for range most {
		if so() {
			return
		}
		w.pass(1, always)
	}
	w.t.Fatalf("%s: not within %d slots; slot %d, buyer waits: %s\n%s", what, most, w.s.Slot, w.buyer.m.Reason(), w.describe())
}

func (w *world) describe() (out string) {
	for _, e := range w.s.Tip.Escrows {
		out += fmt.Sprintf("escrow state %d outstanding %d fee %d tranches %d closed %d vault %d\n", e.State, e.Outstanding, e.Fee, e.Tranches, e.Closed,
			w.s.Tip.Tokens[e.Vault].Amount)
	}
	for _, r := range w.leases {
		out += fmt.Sprintf("lease %d void %v lazy %v owed %d", r.core.Rank, r.void, r.lazy, r.owed)
		if r.claims != nil {
			out += fmt.Sprintf(" paid %d waits %s", r.claims.m.Paid(), r.claims.m.Reason())
		}
		out += "\n"
	}
	return out
}

// safe is what holds at every moment.
func (w *world) safe() {
	if w.s.Wrong != "" {
		w.t.Fatalf("%s", w.s.Wrong)
	}
	if len(w.s.Tip.Escrows) > 1 || w.s.Opens > 1 {
		w.t.Fatalf("%d escrows, %d opened", len(w.s.Tip.Escrows), w.s.Opens)
	}
	if w.s.Tokens() != w.s.Tip.Mints[w.s.Net.Mint].Supply {
		w.t.Fatalf("%d tokens of a supply of %d", w.s.Tokens(), w.s.Tip.Mints[w.s.Net.Mint].Supply)
	}
}

// paid is what the chain paid for a lease for ever, over all.
func (w *world) paid(r *rental) market.Amount {
	if r.funding == nil {
		return 0
	}
	return w.s.Paid[escrowtest.Place{Tranche: r.tranche, Lease: r.core.ID()}]
}

// tidy reports whether nothing of the providers is left on chain, but for those that are lazy.
func (w *world) tidy() bool {
	lazy := map[sign.Key]bool{}
	for _, r := range w.leases {
		lazy[r.core.Provider] = lazy[r.core.Provider] || r.lazy
		if r.claims != nil && !r.lazy && !r.claims.m.Done() {
			return false
		}
	}
	for _, table := range w.s.Final.Tables {
		if !lazy[table.Authority] {
			w.t.Fatalf("a lookup table of %s is left", table.Authority)
		}
	}
	for provider := range lazy {
		if rent := w.s.Final.Rent[provider]; rent != 0 && !lazy[provider] {
			w.t.Fatalf("%d lamports of rent of %s are left", rent, provider)
		}
	}
	return true
}

// accounts compares everybody's tokens at the end.
func (w *world) accounts() {
	w.t.Helper()
	var paid market.Amount
	wallets := map[sign.Key]uint64{}
	for _, r := range w.leases {
		got := w.paid(r)
		paid += got
		wallets[r.core.Payout] += uint64(got) - (uint64(got)*250+9999)/10000
		switch {
		case r.settled != nil && (got < r.owed || r.closing != nil && !r.retired && !r.begun && got != r.owed):
			w.t.Fatalf("lease %d is settled: paid %d, owed %d: %+v", r.core.Rank, got, r.owed, r.log)
		case r.settled != nil && r.claims.m.Paid() > got, r.lost != nil && r.claims.m.Paid() != got:
			w.t.Fatalf("lease %d says it was paid %d, it was %d: %+v", r.core.Rank, r.claims.m.Paid(), got, r.log)
		case got > r.owed && r.closing != nil && !r.retired && !r.begun, got > r.best.Cumulative && got > r.owed:
			w.t.Fatalf("lease %d was paid %d, owed were %d", r.core.Rank, got, r.owed)
		}
	}
	for wallet, want := range wallets {
		if got := w.s.Balance(wallet); got != want {
			w.t.Fatalf("a provider has %d, want %d\n%s", got, want, w.describe())
		}
	}
	back := w.s.Balance(escrowtest.Key("owner")) + w.s.Tip.Tokens[escrowtest.Key("source")].Amount
	if back != escrowtest.Wealth-uint64(paid) {
		w.t.Fatalf("the buyer has %d, want all %d but %d", back, escrowtest.Wealth, paid)
	}
	for _, s := range w.supervisors {
		if rent := w.s.Tip.Rent[s.wallet.By.Key()]; rent != 0 {
			w.t.Fatalf("%d lamports of a supervisor's rent are left", rent)
		}
	}
	if rent := w.s.Tip.Rent[escrowtest.Key("buyer")]; rent != 0 || len(w.s.Tip.Escrows)+len(w.s.Tip.Tranches) > 0 {
		w.t.Fatalf("%d lamports of rent are left, %d escrows, %d tranches", rent, len(w.s.Tip.Escrows), len(w.s.Tip.Tranches))
	}
}
