package buyer

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/starling-network/starling/chain"
	"github.com/starling-network/starling/chain/escrow"
	"github.com/starling-network/starling/chain/program"
	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/node/settle"
	"github.com/starling-network/starling/verify"
	"github.com/starling-network/starling/verify/meter"
)

// Escrows is what a buyer needs that pays from escrows.
type Escrows struct {
	Chain   settle.Chain
	Network *settle.Network
	Params  escrow.Params
	Fees    chain.Fees  // what the chain bids; zero: chain.DefaultFees
	When    escrow.When // wages for guarding are claimed
}

// Escrow is where the money of one of a job's orders was set aside, as the chain showed it last. Amounts are base units.
type Escrow struct {
	Address   sign.Key      `json:"address"`
	Deposited market.Amount `json:"deposited"`
	Paid      market.Amount `json:"paid"` // to providers and guardians, with the network's fees
	Fees      market.Amount `json:"fees"` // of that
	Refunded  market.Amount `json:"refunded"`
	Opened    market.Slot   `json:"opened,omitempty"`
	Deadline  market.Slot   `json:"deadline,omitempty"` // after which, and the network's margin, all goes back whoever asks
	Closed    bool          `json:"closed,omitempty"`   // nothing is left on chain, and all rent is back
	Waiting   string        `json:"waiting,omitempty"`  // for what
	// Transactions are those that a supermajority voted for, in order.
	Transactions []settle.Landed `json:"transactions,omitempty"`
}

const (
	kindEscrow = "escrow" // Escrow by job and order

	fundsTimeout = 2 * time.Second
	// fundTime is how long the money of leases may take to be set aside: until its transaction is ready to be sent.
	fundTime = 10 * time.Second
	// spareTime is how much longer an escrow lasts than twice its leases, which may be extended.
	spareTime = time.Hour
)

// By job and order: an escrow.Deposit, and an escrow.Hire.
var (
	depositTable = settle.Define("deposit")
	hireTable    = settle.Define("hire")
)

// escrowed pays from escrows: one for each order, filled before its leases begin. Providers claim what vouchers say; what they
// cannot claim comes back.
type escrowed struct {
	Escrows
	b        *Buyer
	deposits *settle.Keeper[escrow.Deposit]
	hires    *settle.Keeper[escrow.Hire]

	depositing sync.Mutex

	mu    sync.Mutex
	shown map[string]map[string]Escrow // by job, by order
	turns map[string]turn              // by job: a hire that is not on chain yet
}

// turn is the time of one hire: its tranche has the next number of the escrow, which its provider is told.
type turn struct {
	name string
	over chan struct{}
}

func newEscrowed(ctx context.Context, b *Buyer, e Escrows) (*escrowed, error) {
	x := &escrowed{Escrows: e, b: b, shown: map[string]map[string]Escrow{}, turns: map[string]turn{}}
	err := b.cfg.Store.List(ctx, kindEscrow, "", func(name string, value []byte) error {
		var v Escrow
		if err := json.Unmarshal(value, &v); err != nil {
			return fmt.Errorf("reading escrow %s: %w", name, err)
		}
		job, order, _ := strings.Cut(name, "/")
		x.put(job, order, v)
		return nil
	})
	if err != nil {
		return nil, err
	}
	x.deposits, err = settle.NewKeeper(ctx, settle.KeeperConfig[escrow.Deposit]{
		Table: depositTable, Ledger: e.Chain, Store: b.cfg.Store, Over: escrow.Deposit.Closed, Notify: x.told, Log: b.cfg.Log,
		Observer: settle.Observer{Looked: x.looked, Landed: x.landed}, Program: b.cfg.Genesis.Program,
		Restore: func(ctx context.Context, state []byte) (escrow.Deposit, error) {
			net, err := e.Network.Get(ctx)
			if err != nil {
				return escrow.Deposit{}, err
			}
			return escrow.RestoreDeposit(state, net, e.Params)
		},
		Others: x.witnesses,
	})
	if err != nil {
		return nil, err
	}
	x.hires, err = settle.NewKeeper(ctx, settle.KeeperConfig[escrow.Hire]{
		Table: hireTable, Ledger: e.Chain, Store: b.cfg.Store, Over: escrow.Hire.Closed, Notify: x.toldHire, Log: b.cfg.Log, Program: b.cfg.Genesis.Program,
		Observer: settle.Observer{Looked: func(string, escrow.View) {}, Landed: func(string, settle.Landed) {}}, // its owner's deposit shows the escrow
		Restore: func(ctx context.Context, state []byte) (escrow.Hire, error) {
			net, err := e.Network.Get(ctx)
			if err != nil {
				return escrow.Hire{}, err
			}
			return escrow.RestoreHire(state, net, e.Params)
		},
		Others: x.witnesses,
	})
	return x, err
}

// witnesses sign a job's transactions beside this peer: its guardians, where it has some.
func (x *escrowed) witnesses(name string) []sign.Signer {
	s, err := x.b.get(jobOf(name))
	if err != nil || s.guard == nil {
		return nil
	}
	return s.guard.witnesses()
}

func (x *escrowed) run(ctx context.Context) {
	var wg sync.WaitGroup
	wg.Go(func() { x.deposits.Run(ctx) })
	wg.Go(func() { x.hires.Run(ctx) })
	wg.Wait()
}

// toldHire logs what comes of hiring.
func (x *escrowed) toldHire(name string, e escrow.Effect) {
	switch e := e.(type) {
	case escrow.Waiting:
		x.b.cfg.Log.Info("hiring a standby waits", "job", jobOf(name), "reason", e.Reason)
	case escrow.Funded:
		x.next(name)
	case escrow.Void:
		x.next(name)
		x.void(e.Leases, "its money was not on chain in time")
	}
}

// turn waits until the job's hire before this one is on chain, or never comes to be.
func (x *escrowed) turn(ctx context.Context, name string) error {
	for {
		x.mu.Lock()
		t, busy := x.turns[jobOf(name)]
		if !busy {
			x.turns[jobOf(name)] = turn{name, make(chan struct{})}
		}
		x.mu.Unlock()
		if !busy {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("waiting for another hire of the job: %w", ctx.Err())
		case <-t.over:
		}
	}
}

// next ends the turn of a hire, if it is its.
func (x *escrowed) next(name string) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if t := x.turns[jobOf(name)]; t.name == name {
		close(t.over)
		delete(x.turns, jobOf(name))
	}
}

// nameOf is the name of an order's deposit.
func nameOf(job string, o market.OrderID) string { return job + "/" + o.String() }

// jobOf is the job of a deposit.
func jobOf(name string) string {
	job, _, _ := strings.Cut(name, "/")
	return job
}

// of lists the deposits of a job.
func (x *escrowed) of(job string) []string {
	names := slices.DeleteFunc(x.deposits.Names(), func(n string) bool { return jobOf(n) != job })
	slices.Sort(names)
	return names
}

func (x *escrowed) afford(ctx context.Context, job string, need market.Amount, leases uint32) error {
	rent := anchorRent + tranchesRent(leases)
	there := false // an escrow to which leases that make others longer are added
	for _, e := range x.escrows(job) {
		need -= min(need, e.Deposited-min(e.Deposited, e.Refunded))
		there = there || !e.Closed
	}
	if !there {
		rent += program.EscrowRent(1, 0)
	}
	others, othersRent := x.waiting(job)
	ctx, cancel := context.WithTimeout(ctx, fundsTimeout)
	defer cancel()
	f, err := x.Chain.Funds(ctx)
	if err != nil {
		return nil
	}
	if x.b.cfg.Owner != x.b.self && f.Own == 0 {
		rent += program.Rent(program.TokenSize) // of the account that jobs are paid from
	}
	g, fees := x.b.cfg.Genesis, x.lamports(leases, need).Most
	all, err := need.Add(others)
	switch {
	case err != nil || f.Spendable < all:
		e := &fundsError{need: g.FormatAmount(need), have: g.FormatAmount(f.Balance), wallet: x.b.cfg.Owner}
		if x.b.cfg.Owner != x.b.self {
			e.peer, e.allowed, e.short = x.b.self, g.FormatAmount(f.Spendable), f.Balance+f.Own < all
		}
		if others > 0 {
			e.others = g.FormatAmount(others)
		}
		return e
	case f.Lamports < rent+fees+othersRent:
		e := &lamportsError{need: rent + fees, rent: rent, have: f.Lamports, key: x.b.self}
		if othersRent > 0 {
			e.others = fmt.Sprint(othersRent)
		}
		return e
	}
	return nil
}

// waiting is what the jobs beside this one can come to set aside that were taken and have not set anything aside yet.
func (x *escrowed) waiting(job string) (sum market.Amount, rent uint64) {
	x.b.mu.Lock()
	defer x.b.mu.Unlock()
	for id, s := range x.b.jobs {
		j := s.peek()
		if id == job || j.State != Queued && j.State != Matching || len(x.escrows(id)) > 0 {
			continue
		}
		j = s.snapshot()
		most := x.b.counts(j)
		sum = sum.Plus(most)
		rent += program.EscrowRent(1, 0) + anchorRent + tranchesRent(j.Spec.Count) + x.lamports(j.Spec.Count, most).Most
	}
	return sum, rent
}

func (x *escrowed) fund(ctx context.Context, job string, leases []*bought) ([]place, error) {
	ctx, cancel := context.WithTimeout(ctx, fundTime)
	defer cancel()
	net, err := x.Network.Get(ctx)
	if err != nil {
		return nil, err
	}
	s, err := x.b.get(job)
	if err != nil {
		return nil, err
	}
	if leases[0].hired() {
		return x.hire(ctx, net, s, leases)
	}
	first := leases[0]
	name := nameOf(job, first.core.Order)
	deal := escrow.Deal{Order: first.core.Order, Buyer: x.b.self, Keys: first.keys}
	deal.Source, deal.RefundOwner = x.purse()
	ev := escrow.Fund{}
	for _, l := range leases {
		ev.Leases = append(ev.Leases, l.core)
		lasts := market.Slot(2*l.core.Slots() + x.b.cfg.Genesis.SlotsIn(spareTime) + uint64(net.Account.Params.MarginSlots))
		ev.Deadline = max(ev.Deadline, l.core.Start+lasts)
	}
	if s.guard != nil && !first.core.Successor() {
		if err := s.backed(&deal, &ev, market.Slot(net.Account.Params.MarginSlots)); err != nil {
			return nil, err
		}
	}
	m, err := escrow.NewDeposit(net, deal, x.Params)
	if err != nil {
		return nil, err
	}
	if err := x.deposit(ctx, name, m, ev); err != nil {
		return nil, err
	}
	var out []place
	m, err = x.deposits.Until(ctx, name, func(m escrow.Deposit) bool {
		at, ok := m.Escrow()
		out = placed(at, ok, m.Funding, leases)
		return out != nil
	})
	if err != nil {
		return nil, fmt.Errorf("the escrow is not ready: %s: %w", m.Reason(), err)
	}
	if s.guard != nil {
		f, err := escrow.UnmarshalFunding(out[0].funding)
		if err == nil {
			err = s.placedAt(ctx, Place{Address: out[0].escrow, Order: deal.Order, Opened: f.Opened, Deadline: m.Deadline()}, m)
		}
		if err != nil {
			return nil, err
		}
	}
	return out, nil
}

// hire sets money of a detached job's escrow aside for standbys, on the word of its guardians.
func (x *escrowed) hire(ctx context.Context, net escrow.Net, s *supervisor, leases []*bought) ([]place, error) {
	leases = slices.Clone(leases)
	slices.SortFunc(leases, func(a, b *bought) int { return cmp.Compare(a.core.Rank, b.core.Rank) }) // as the owner's deposit is told of them
	d := s.snapshot().Detached
	if d == nil || d.Escrow == nil {
		return nil, errNoPlace
	}
	m, err := escrow.NewHire(net, escrow.Hiring{
		Order: d.Escrow.Order, Buyer: d.Owner, Opened: d.Escrow.Opened, Deadline: d.Escrow.Deadline, Keys: s.as.keys(), LeaseBuyer: d.Key, Hirer: x.b.self,
	}, x.Params)
	if err != nil {
		return nil, err
	}
	name := nameOf(s.trace.Job, leases[0].core.Order)
	if err := x.turn(ctx, name); err != nil {
		return nil, err
	}
	x.hires.Add(name, m)
	ev := escrow.Fund{}
	for _, l := range leases {
		ev.Leases = append(ev.Leases, l.core)
	}
	if err := x.hires.Ask(ctx, name, ev); err != nil {
		x.next(name)
		return nil, fmt.Errorf("hiring %d standbys: %w", len(leases), err)
	}
	var out []place
	m, err = x.hires.Until(ctx, name, func(m escrow.Hire) bool {
		out = placed(m.Escrow(), true, m.Funding, leases)
		return out != nil
	})
	if err != nil {
		x.next(name)
		return nil, fmt.Errorf("the standbys' money is not ready: %s: %w", m.Reason(), err)
	}
	return out, nil
}

// placed says where the leases' money is, once all of it is in a transaction that is journalled.
func placed(at sign.Key, ok bool, funding func(market.LeaseID) (escrow.Funding, bool), leases []*bought) []place {
	var out []place
	for _, l := range leases {
		f, funded := funding(l.id)
		if !ok || !funded {
			return nil
		}
		out = append(out, place{escrow: at, funding: f.Marshal()})
	}
	return out
}

func (x *escrowed) retire(l *bought) {
	if err := x.giveBack(l); err != nil {
		x.b.cfg.Log.Error("a lease's money cannot be taken back yet", "lease", l.id, "err", err)
	}
}

// giveBack tells a lease's deposit that it is retired, with its final receipt if there is one: nothing else of the order may end the deposit
// before, or its provider is asked to claim what that receipt gives back.
func (x *escrowed) giveBack(l *bought) error {
	r := escrow.Retired{Lease: l.id}
	err := x.b.cfg.Store.List(context.Background(), kindReceipt, l.id.String()+"/", func(_ string, value []byte) error {
		rec, err := verify.UnmarshalReceipt(value)
		if err == nil && rec.Final() {
			r.Final = &rec
		}
		return err
	})
	name := nameOf(l.job, l.core.Order)
	if s, no := x.b.get(l.job); no == nil && l.hired() { // it lies in the job's escrow, which its owner winds up
		name = ""
		if d := s.snapshot().Detached; s.mine && d != nil && d.Escrow != nil {
			name = nameOf(l.job, d.Escrow.Order)
			err = errors.Join(err, x.deposits.Post(name, escrow.Hired{Leases: s.together(l.core.Order)}))
		}
	}
	if err == nil && name != "" {
		err = x.deposits.Post(name, escrow.Retire{Leases: []escrow.Retired{r}})
	}
	if err != nil && !errors.Is(err, settle.ErrUnknown) {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.retired = true
	return nil
}

// standing reports whether standbys may still be hired from an escrow.
func (x *escrowed) standing(name string) bool {
	s, err := x.b.get(jobOf(name))
	if err != nil {
		return false
	}
	j := s.snapshot()
	return j.Detached != nil && j.Detached.Escrow != nil && nameOf(j.ID, j.Detached.Escrow.Order) == name && j.State == Running
}

func (x *escrowed) unused(job string, o market.OrderID) {
	name := nameOf(job, o)
	if x.standing(name) { // settle winds it up
		return
	}
	if err := x.deposits.Post(name, escrow.End{}); err != nil && !errors.Is(err, settle.ErrUnknown) {
		x.b.cfg.Log.Error("an escrow without leases is not wound up yet", "escrow", name, "err", err)
	}
}

func (x *escrowed) forsake(job string) {
	used := map[string]bool{}
	var over []*bought
	x.b.mu.Lock()
	for _, l := range x.b.leases {
		if l.job != job {
			continue
		}
		if name := nameOf(job, l.core.Order); l.state() != meter.PayerSettled {
			used[name] = true
		} else {
			over = append(over, l)
		}
	}
	x.b.mu.Unlock()
	for _, l := range over {
		if x.retire(l); !l.closed() {
			used[nameOf(job, l.core.Order)] = true
		}
	}
	for _, name := range x.of(job) {
		if used[name] || x.standing(name) {
			continue
		}
		if err := x.deposits.Post(name, escrow.End{}); err != nil {
			x.b.cfg.Log.Error("an escrow without leases is not wound up yet", "escrow", name, "err", err)
		}
	}
}

func (x *escrowed) settle(ctx context.Context, job string, leases []*bought, owed func(context.Context) (anchoring, error)) (market.Amount, []string, error) {
	if err := x.windUp(ctx, job, leases); err != nil {
		return 0, nil, err
	}
	var early anchoring
	var tx string
	eg, ectx := errgroup.WithContext(ctx)
	eg.Go(func() error { return x.back(ectx, job, leases) })
	eg.Go(func() error { // beside the refund, where only a fork could make a lease void
		there, err := x.there(ectx, job, leases)
		if err != nil || !there {
			return err
		}
		if early, err = owed(ectx); err == nil {
			tx, err = x.anchor(ectx, job, early)
		}
		return err
	})
	if err := eg.Wait(); err != nil {
		return 0, nil, err
	}
	of, err := owed(ctx) // leases that were void cost nothing
	if err != nil {
		return 0, nil, err
	}
	if of != early {
		if tx, err = x.anchor(ctx, job, of); err != nil {
			return 0, nil, err
		}
	}
	var paid market.Amount // providers claim what they are owed; it is theirs already
	for _, e := range x.escrows(job) {
		paid += e.Deposited - min(e.Deposited, e.Refunded)
	}
	if tx == "" {
		return paid, nil, nil
	}
	return paid, []string{tx}, nil
}

// windUp retires a job's leases, and says of its escrows that nothing more is wanted from them.
func (x *escrowed) windUp(ctx context.Context, job string, leases []*bought) error {
	for _, l := range leases {
		if err := x.giveBack(l); err != nil {
			return fmt.Errorf("winding up a lease: %w", err)
		}
	}
	for _, name := range x.hires.Names() {
		if jobOf(name) == job {
			if err := x.hires.Post(name, escrow.End{}); err != nil {
				return fmt.Errorf("winding up what was hired: %w", err)
			}
		}
	}
	for _, name := range x.of(job) {
		if err := x.deposits.Ask(ctx, name, escrow.End{}); err != nil {
			return fmt.Errorf("winding up an escrow: %w", err)
		}
	}
	return nil
}

// back waits until all that costs nothing is back, for ever, and every lease is void that was not on chain in time.
func (x *escrowed) back(ctx context.Context, job string, leases []*bought) error {
	for _, name := range x.of(job) {
		m, err := x.deposits.Until(ctx, name, escrow.Deposit.Back)
		if err == nil {
			err = x.voided(ctx, m, leases)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// there waits until the money of each of the leases was seen on chain in time, or is known not to be there.
func (x *escrowed) there(ctx context.Context, job string, leases []*bought) (bool, error) {
	seen := map[market.LeaseID]bool{}
	for _, name := range x.of(job) {
		_, err := x.deposits.Until(ctx, name, func(m escrow.Deposit) bool {
			all := true
			for _, l := range leases {
				if l.core.Order == m.Deal().Order {
					seen[l.id] = m.Landed(l.id)
					all = all && seen[l.id]
				}
			}
			return all || m.Back()
		})
		if err != nil {
			return false, err
		}
	}
	return !slices.ContainsFunc(leases, func(l *bought) bool { return !seen[l.id] }), nil
}
