package buyer

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/starling-network/starling/chain/escrow"
	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/node/buyer/guardian"
	"github.com/starling-network/starling/node/protocol"
	"github.com/starling-network/starling/node/settle"
	"github.com/starling-network/starling/p2p/stream"
	"github.com/starling-network/starling/verify"
)

const (
	// wageTick is how often each job that is guarded is looked at: its other guardians are asked, and the chain, much less often.
	wageTick = time.Second
	// wageRetry is how long after a failure it is tried again.
	wageRetry = 5 * time.Second
	// wageEvery is how often a wage is signed while a job runs, wageTime bounds one asking, wagesAtOnce how many jobs are asked about.
	wageEvery   = 5 * time.Minute
	wageTime    = 10 * time.Second
	wagesAtOnce = 8
	// maxFundings bounds the escrows at a time that a wage is claimed from: there are several only if the first came too late.
	maxFundings = 4
	// unfundedAfter is when a wage that was promised and is not on chain is complained of.
	unfundedAfter = 2 * time.Minute
)

// wageTable has an escrow.Claims by job and escrow.
var wageTable = settle.Define("wage")

// wages claims what this peer is paid for guarding other people's jobs: it has the other guardians sign what it has earned, and goes on
// until all of it is paid for ever. A wage's money lies in the job's escrow, where the owner says in the job's state.
type wages struct {
	Escrows
	b      *Buyer
	claims *settle.Keeper[escrow.Claims]
	wg     sync.WaitGroup
	free   chan struct{} // a token for each job that may be asked about

	mu   sync.Mutex
	jobs map[sign.Hash]*earner
}

// earner is what is known of one wage in this process.
type earner struct {
	busy   bool
	next   time.Time // nothing is done before
	read   uint64    // version of the state whose funding is claimed from
	since  time.Time // when the funding was first missed on chain
	warned bool
	drawn  map[string]drawn // by the name of the claims
}

// drawn is how far a wage was claimed.
type drawn struct {
	until market.Slot // the newest voucher's horizon
	over  bool        // it is the last
	hurry bool        // it may soon be too late for another
}

// earner is that of a job. x.mu is held.
func (x *wages) earner(job sign.Hash) *earner {
	if x.jobs[job] == nil {
		x.jobs[job] = &earner{drawn: map[string]drawn{}}
	}
	return x.jobs[job]
}

func newWages(ctx context.Context, b *Buyer, e Escrows) (*wages, error) {
	x := &wages{Escrows: e, b: b, free: make(chan struct{}, wagesAtOnce), jobs: map[sign.Hash]*earner{}}
	var err error
	x.claims, err = settle.NewKeeper(ctx, settle.KeeperConfig[escrow.Claims]{
		Table: wageTable, Program: b.cfg.Genesis.Program,
		Over:     func(m escrow.Claims) bool { over, _ := m.Over(); return over },
		Observer: settle.Observer{Looked: x.looked, Landed: func(string, settle.Landed) {}}, Ledger: e.Chain, Store: b.cfg.Store, Notify: x.told, Log: b.cfg.Log,
		Restore: func(ctx context.Context, state []byte) (escrow.Claims, error) {
			net, err := e.Network.Get(ctx)
			if err != nil {
				return escrow.Claims{}, err
			}
			return escrow.RestoreClaims(state, net, e.When, e.Params)
		},
	})
	return x, err
}

// Wages are what guarding jobs has come to, by job, also of such as are long over.
func (b *Buyer) Wages() map[sign.Hash]settle.Account {
	out := map[sign.Hash]settle.Account{}
	if b.wages == nil {
		return out
	}
	for _, name := range b.wages.claims.Names() {
		m, _, err := b.wages.claims.Get(name)
		if err != nil {
			continue
		}
		a, sum := settle.AccountOf(m), out[m.Lease().Terms]
		out[m.Lease().Terms] = settle.Account{Owed: sum.Owed + a.Owed, Claimed: sum.Claimed + a.Claimed, Lost: sum.Lost + a.Lost}
	}
	return out
}

func (x *wages) run(ctx context.Context) {
	x.wg.Go(func() { x.claims.Run(ctx) })
	for pause(ctx, wageTick) == nil {
		x.tick(ctx)
	}
	x.wg.Wait()
}

// tick attends to each wage whose time has come.
func (x *wages) tick(ctx context.Context) {
	open := map[sign.Hash][]string{}
	for _, name := range x.claims.Names() {
		if m, _, err := x.claims.Get(name); err == nil {
			if over, _ := m.Over(); !over {
				open[m.Lease().Terms] = append(open[m.Lease().Terms], name)
			}
		}
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	wards := map[sign.Hash]bool{}
	for _, w := range x.b.cfg.Guardian.Wards() {
		wards[w.Job] = true
		e := x.earner(w.Job)
		if core := w.WageOf(x.b.self); core == nil || e.busy || time.Now().Before(e.next) {
			continue
		}
		e.busy = true
		x.wg.Go(func() {
			err := x.attend(ctx, w, e, open[w.Job])
			x.mu.Lock()
			defer x.mu.Unlock()
			if e.busy = false; err != nil {
				e.next = time.Now().Add(wageRetry)
				if declined(err) && !e.hurries() {
					e.next = time.Now().Add(wageEvery)
				}
				x.b.cfg.Log.Debug("a wage is not signed yet", "job", w.Job.Short(), "err", err)
			}
		})
	}
	for job := range x.jobs {
		if !wards[job] {
			delete(x.jobs, job)
		}
	}
}

func (e *earner) hurries() bool {
	for _, d := range e.drawn {
		if d.hurry {
			return true
		}
	}
	return false
}

// attend claims from where the owner says that the wage is, and has more of it signed where that is due.
func (x *wages) attend(ctx context.Context, w guardian.Ward, e *earner, open []string) error {
	select {
	case x.free <- struct{}{}:
		defer func() { <-x.free }()
	case <-ctx.Done():
		return ctx.Err()
	}
	ctx, cancel := context.WithTimeout(ctx, wageTime)
	defer cancel()
	err := x.find(ctx, w, e, len(open))
	for _, name := range open {
		err = errors.Join(err, x.draw(ctx, w, e, name))
	}
	return err
}

// fundingIn reads where a guardian's wage lies from a job's state; nil if that is not said. The supervisor wrote it: nothing in it is
// believed.
func fundingIn(state []byte, who sign.Key) ([]byte, error) {
	var j struct {
		Detached struct {
			Wages map[string][]byte `json:"wages"`
		} `json:"detached"`
	}
	if err := json.Unmarshal(state, &j); err != nil {
		return nil, fmt.Errorf("reading where a wage lies: %w", err)
	}
	return j.Detached.Wages[who.String()], nil
}

// find begins to claim from where the job's state says that the wage lies, once that is on chain.
func (x *wages) find(ctx context.Context, w guardian.Ward, e *earner, open int) error {
	st, ok := x.b.cfg.Guardian.State(w.Job)
	x.mu.Lock()
	known := st.Version == e.read
	x.mu.Unlock()
	if !ok || known || open >= maxFundings {
		return nil
	}
	b, err := fundingIn(st.Bytes, x.b.self)
	if err != nil || len(b) == 0 {
		return err
	}
	core := *w.WageOf(x.b.self)
	f, err := escrow.UnmarshalFunding(b)
	if err != nil {
		return err
	}
	net, err := x.Network.Get(ctx)
	if err != nil {
		return err
	}
	at := net.EscrowOf(core, f)
	name := w.Job.String() + "/" + at.String()
	if _, _, err := x.claims.Get(name); err != nil {
		m, err := escrow.NewClaims(net, core, w.Keys, f, x.When, x.Params)
		if err != nil {
			return fmt.Errorf("the wage cannot be claimed: %w", err)
		}
		if err := x.funded(ctx, net, core, w.Keys, f); err != nil {
			x.missed(w, e, at, err)
			return err
		}
		x.claims.Add(name, m)
	}
	x.mu.Lock()
	e.read = st.Version
	x.mu.Unlock()
	return nil
}

// Backed returns nil if this peer's wage for a job that it guards is on chain where the job's state says.
func (b *Buyer) Backed(ctx context.Context, w guardian.Ward, state []byte) error {
	where, err := fundingIn(state, b.self)
	if err != nil {
		return err
	}
	f, err := escrow.UnmarshalFunding(where)
	if err != nil {
		return err
	}
	net, err := b.wages.Network.Get(ctx)
	if err != nil {
		return err
	}
	return b.wages.funded(ctx, net, *w.WageOf(b.self), w.Keys, f)
}

// funded asks the chain whether a wage is there. One that is being taken back may be claimed as long as that takes.
func (x *wages) funded(ctx context.Context, net escrow.Net, core market.LeaseCore, keys market.KeySet, f escrow.Funding) error {
	ctx, cancel := context.WithTimeout(ctx, protocol.QuickAnswer)
	defer cancel()
	view, err := x.Chain.Look(ctx, net.EscrowOf(core, f), []uint16{f.Tranche}, escrow.Confirmed)
	if err != nil {
		return err
	}
	if _, err = escrow.CheckFunding(net, view, core, keys, f); errors.Is(err, escrow.ErrRetired) {
		return nil
	}
	return err
}

// missed complains, once, of a wage that is not on chain after a fair while.
func (x *wages) missed(w guardian.Ward, e *earner, at sign.Key, why error) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if e.since.IsZero() {
		e.since = time.Now()
	}
	if !e.warned && time.Since(e.since) > unfundedAfter {
		e.warned = true
		x.b.cfg.Log.Warn("the wage for guarding a job is not set aside", "job", w.Job.Short(), "owner", w.Owner.Short(), "escrow", at, "err", why)
	}
}

// draw has the other guardians sign what was earned since they last did, if that is due, and claims it. Both are journalled before
// anything is sent.
func (x *wages) draw(ctx context.Context, w guardian.Ward, e *earner, name string) error {
	m, _, err := x.claims.Get(name)
	if err != nil {
		return err
	}
	now, err := x.b.cfg.Slots.Now(time.Now())
	if err != nil {
		return err
	}
	g, core := x.b.cfg.Genesis, m.Lease()
	x.mu.Lock()
	d := e.drawn[name]
	x.mu.Unlock()
	if d.over {
		return nil
	}
	from, every := max(d.until, core.Start), max(g.IntervalSlots, min(x.When.Slots, g.SlotsIn(wageEvery)))
	if d.hurry {
		every = g.IntervalSlots
	}
	apart := market.Slot(g.SlotsIn(time.Second)) // other guardians' clocks may be behind
	over := w.OverAt > 0 || now > core.End+apart
	until := min(now-min(now, apart), core.End)
	if w.OverAt > 0 {
		until = min(w.OverAt, now, core.End)
	}
	if !over && until < from+market.Slot(every) {
		return nil
	}
	amount := m.Owed()
	if until > from {
		v, err := x.voucher(ctx, w, m, from, until)
		if err != nil {
			return err
		}
		if err := x.claims.Ask(ctx, name, escrow.VoucherKept{Voucher: v, Earned: v.Cumulative}); err != nil {
			return err
		}
		amount = v.Cumulative
		x.note(e, name, func(d *drawn) { d.until = v.Horizon })
		over = over && v.Horizon == until
	}
	if !over {
		return nil
	}
	if err := x.claims.Ask(ctx, name, escrow.LeaseOver{Owed: amount}); err != nil {
		return err
	}
	x.note(e, name, func(d *drawn) { d.over = true })
	return nil
}

func (x *wages) note(e *earner, name string, change func(*drawn)) {
	x.mu.Lock()
	defer x.mu.Unlock()
	d := e.drawn[name]
	change(&d)
	e.drawn[name] = d
}

// voucher is of the wage up to a slot, or as far as the other guardians will sign, who may have heard earlier that the job is over.
func (x *wages) voucher(ctx context.Context, w guardian.Ward, m escrow.Claims, from, until market.Slot) (verify.SignedVoucher, error) {
	_, panel, ok := x.b.cfg.Guardian.Guarded(w.Job)
	if !ok {
		return verify.SignedVoucher{}, fmt.Errorf("job %s is forgotten", w.Job.Short())
	}
	defer panel.Close()
	net, err := x.Network.Get(ctx)
	if err != nil {
		return verify.SignedVoucher{}, err
	}
	core := m.Lease()
	ask := func(until market.Slot) (verify.SignedVoucher, error) {
		owed, err := core.Rate.Owed(uint64(until - core.Start))
		if err != nil {
			return verify.SignedVoucher{}, err
		}
		return panel.Wage(ctx, verify.Voucher{
			Version: verify.VoucherVersion, Lease: core.ID(), Escrow: net.EscrowOf(core, m.Funding()), Seq: uint64(until - core.Start), // grows with time, after any crash
			Cumulative: min(owed, core.Cap), Horizon: until, Supervision: 1,
		})
	}
	best, err := ask(until)
	if err == nil || !declined(err) {
		return best, err
	}
	found := false
	for low, high := from, until; high-low > 1; {
		mid := low + (high-low)/2
		v, no := ask(mid)
		switch {
		case no == nil:
			best, low, found = v, mid, true
		case declined(no):
			high = mid
		default:
			return v, no
		}
	}
	if found {
		err = nil
	}
	return best, err
}

// declined reports whether a guardian says that so much is not earned.
func declined(err error) bool {
	var no *stream.Refused
	return errors.As(err, &no) && no.Code == guardian.CodeVoucher
}

// looked notes when it may soon be too late to claim: the owner takes the money back, or the escrow's time is over.
func (x *wages) looked(name string, v escrow.View) {
	m, _, err := x.claims.Get(name)
	if err != nil {
		return
	}
	late := v.Escrow != nil && uint64(v.Slot)+x.b.cfg.Genesis.SlotsIn(wageEvery) >= v.Escrow.Deadline
	x.mu.Lock()
	e := x.earner(m.Lease().Terms)
	x.mu.Unlock()
	x.note(e, name, func(d *drawn) { d.hurry = late || m.Retired(v) })
}

// told logs what comes of claims.
func (x *wages) told(name string, e escrow.Effect) {
	log := x.b.cfg.Log.With("wage", name)
	money := x.b.cfg.Genesis.FormatAmount
	switch e := e.(type) {
	case escrow.Paid:
		log.Info("a wage is paid", "in all", money(e.Cumulative))
	case escrow.Settled:
		log.Info("a wage is claimed", "amount", money(e.Paid))
	case escrow.Lost:
		log.Warn("a wage is lost", "paid", money(e.Paid), "owed", money(e.Owed), "reason", e.Reason)
	case escrow.Waiting:
		log.Debug("a wage's claim waits", "reason", e.Reason, "until", e.Until)
	}
}
