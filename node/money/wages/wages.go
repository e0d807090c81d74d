// Package wages claims a peer's wages for guarding other people's jobs.
package wages

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/starling-network/starling/chain/escrow"
	"github.com/starling-network/starling/chain/escrow/claims"
	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/node/buyer/guardian/wards"
	"github.com/starling-network/starling/node/protocol"
	"github.com/starling-network/starling/node/settle"
	"github.com/starling-network/starling/node/slots"
	"github.com/starling-network/starling/node/store"
)

const (
	// wageTick is the interval of checks of each guarded job. Requests to its other guardians and to the chain are much
	// rarer.
	wageTick = time.Second
	// wageRetry is the delay after a failure.
	wageRetry = 5 * time.Second
	// wageEvery is the interval of signatures of a wage while a job runs. wageTime bounds one request, wagesAtOnce the
	// concurrent jobs.
	wageEvery   = 5 * time.Minute
	wageTime    = 10 * time.Second
	wagesAtOnce = 8
	// maxFundings bounds the escrows at a time that a wage is claimed from: there are several only if the first came
	// too late.
	maxFundings = 4
	// unfundedAfter is when a wage that was promised and is not on chain is complained of.
	unfundedAfter = 2 * time.Minute
)

// table has a claims.Claims by job and escrow.
var table = settle.Define("wage")

// Config is the configuration of Wages. All of it is required.
type Config struct {
	Guardian *wards.Service // this peer's
	Genesis  market.Genesis
	Self     sign.Key
	Chain    settle.Chain
	Network  *settle.Network
	Params   escrow.Params
	When     escrow.When // wages are claimed
	Slots    *slots.Clock
	Store    store.Store
	Log      *slog.Logger
}

// Wages has the other guardians of each job sign this guardian's wage, and claims it until all of it is paid and
// finalized. A wage's money is in the job's escrow, at the place that the owner states in the job's state.
type Wages struct {
	Config
	claims *settle.Keeper[claims.Claims]
	wg     sync.WaitGroup
	free   chan struct{} // a token for each job in progress

	mu   sync.Mutex
	jobs map[sign.Hash]*earner
}

// earner is the state of one wage in this process.
type earner struct {
	busy   bool
	next   time.Time // nothing is done before
	read   uint64    // version of the state with the funding that is claimed from
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
func (x *Wages) earner(job sign.Hash) *earner {
	if x.jobs[job] == nil {
		x.jobs[job] = &earner{drawn: map[string]drawn{}}
	}
	return x.jobs[job]
}

// New reads from the store which wages are being claimed. It claims nothing before Run.
func New(ctx context.Context, cfg Config) (*Wages, error) {
	x := &Wages{Config: cfg, free: make(chan struct{}, wagesAtOnce), jobs: map[sign.Hash]*earner{}}
	var err error
	x.claims, err = settle.NewKeeper(ctx, settle.KeeperConfig[claims.Claims]{
		Table: table, Program: cfg.Genesis.Program, Ledger: cfg.Chain, Store: cfg.Store, Owner: owner{x}, Log: cfg.Log,
	})
	return x, err
}

// Accounts returns the wages for guarding jobs, by job, also of jobs that ended long ago.
func (x *Wages) Accounts() map[sign.Hash]settle.Account {
	out := map[sign.Hash]settle.Account{}
	for _, name := range x.claims.Names() {
		m, _, err := x.claims.Get(name)
		if err != nil {
			continue
		}
		a, sum := settle.AccountOf(m), out[m.Lease().Terms]
		sum = settle.Account{Owed: sum.Owed + a.Owed, Claimed: sum.Claimed + a.Claimed, Lost: sum.Lost + a.Lost}
		out[m.Lease().Terms] = sum
	}
	return out
}

// Run claims wages until ctx ends.
func (x *Wages) Run(ctx context.Context) error {
	x.wg.Go(func() { x.claims.Run(ctx) })
	tick := time.NewTicker(wageTick)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			x.wg.Wait()
			return nil
		case <-tick.C:
			x.tick(ctx)
		}
	}
}

// tick attends to each wage that is due.
func (x *Wages) tick(ctx context.Context) {
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
	for _, w := range x.Guardian.Wards() {
		wards[w.Job] = true
		e := x.earner(w.Job)
		if core := w.WageOf(x.Self); core == nil || e.busy || time.Now().Before(e.next) {
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
				x.Log.Debug("a wage is not signed yet", "job", w.Job.Short(), "err", err)
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

// attend claims the wage at the place that the owner stated, and has more of it signed if that is due.
func (x *Wages) attend(ctx context.Context, w wards.Ward, e *earner, open []string) error {
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

// fundingIn reads the place of a guardian's wage from a job's state; nil if it has none. The state comes from the
// supervisor and is not trusted.
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

// find begins to claim the wage at the place in the job's state, once it is on chain.
func (x *Wages) find(ctx context.Context, w wards.Ward, e *earner, open int) error {
	st, ok := x.Guardian.State(w.Job)
	x.mu.Lock()
	known := st.Version == e.read
	x.mu.Unlock()
	if !ok || known || open >= maxFundings {
		return nil
	}
	b, err := fundingIn(st.Bytes, x.Self)
	if err != nil || len(b) == 0 {
		return err
	}
	core := *w.WageOf(x.Self)
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
		m, err := claims.New(net, core, w.Keys, f, x.When, x.Params)
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

// Backed returns nil if this peer's wage for a job that it guards is on chain, at the place in the job's state.
func (x *Wages) Backed(ctx context.Context, w wards.Ward, state []byte) error {
	where, err := fundingIn(state, x.Self)
	if err != nil {
		return err
	}
	f, err := escrow.UnmarshalFunding(where)
	if err != nil {
		return err
	}
	net, err := x.Network.Get(ctx)
	if err != nil {
		return err
	}
	return x.funded(ctx, net, *w.WageOf(x.Self), w.Keys, f)
}

// funded checks the chain for a wage. A wage that is being withdrawn can be claimed until the withdrawal ends.
func (x *Wages) funded(
	ctx context.Context, net escrow.Net, core market.LeaseCore, keys market.KeySet, f escrow.Funding,
) error {
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
func (x *Wages) missed(w wards.Ward, e *earner, at sign.Key, why error) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if e.since.IsZero() {
		e.since = time.Now()
	}
	if !e.warned && time.Since(e.since) > unfundedAfter {
		e.warned = true
		x.Log.Warn("the wage for guarding a job is not set aside", "job", w.Job.Short(), "owner", w.Owner.Short(),
			"escrow", at, "err", why)
	}
}

// owner implements settle.Owner with the claims of wages.
type owner struct{ *Wages }

// Restore implements settle.Owner.
func (x owner) Restore(ctx context.Context, state []byte) (claims.Claims, error) {
	net, err := x.Network.Get(ctx)
	if err != nil {
		return claims.Claims{}, err
	}
	return claims.Restore(state, net, x.When, x.Params)
}

// Over implements settle.Owner.
func (x owner) Over(m claims.Claims) bool { over, _ := m.Over(); return over }

// Landed implements settle.Observer.
func (owner) Landed(string, settle.Landed) {}

// Looked notes when it may soon be too late to claim: the owner withdraws the money, or the escrow expires.
func (x owner) Looked(name string, v escrow.View) {
	m, _, err := x.claims.Get(name)
	if err != nil {
		return
	}
	late := v.Escrow != nil && uint64(v.Slot)+x.Genesis.SlotsIn(wageEvery) >= v.Escrow.Deadline
	x.mu.Lock()
	e := x.earner(m.Lease().Terms)
	x.mu.Unlock()
	x.note(e, name, func(d *drawn) { d.hurry = late || m.Retired(v) })
}

// Notify logs the results of claims.
func (x owner) Notify(name string, e escrow.Effect) {
	log := x.Log.With("wage", name)
	money := x.Genesis.FormatAmount
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
