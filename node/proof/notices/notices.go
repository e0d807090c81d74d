// Package notices publishes the leases that this peer buys and sells, and finds units that were sold twice.
//
//	co-signed receipts ─▶ File ─▶ own leases ───┐
//	                                            ├─ notice.Join ─▶ DHT, under (provider, unit, day, hour)
//	                       leases of others  ───┘       │
//	                                                    └─▶ a double sale ─▶ keep.Store
//
// Both parties publish, because a provider that sells twice will not show both leases. A peer finds double sales in
// three ways: it publishes beside others, it reads the units that it rents or watches, and it holds values for the DHT.
// As a holder it may see two leases that no reader has seen together yet.
//
// A value is held by twenty peers, and all verify it: publishing costs the network more than the order did. So new
// leases are collected first, the buyer publishes before the provider, and a peer that finds its leases published puts
// nothing.
package notices

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/node/journal"
	"github.com/starling-network/starling/node/proof"
	"github.com/starling-network/starling/node/proof/keep"
	"github.com/starling-network/starling/p2p/discovery"
	"github.com/starling-network/starling/verify"
	"github.com/starling-network/starling/verify/notice"
)

// Tables of the journal.
var (
	filedTable   = journal.Define[market.LeaseID, filedRecord]("filed") // published receipts, by lease
	watchedTable = journal.Define[string, Watched]("watch")             // by provider/unit
)

// Rhythm and bounds.
const (
	// values is the kind of the DHT's values.
	values = "starling-notice"
	// maxStored bounds the notices held for others, in bytes.
	maxStored = 32 << 20
	// freshHours is for how many hours after its own a notice is published again; staleHours until when peers take one.
	freshHours, staleHours = 6, 24
	// republish is the interval at which an unchanged notice is put again, well before the DHT forgets it.
	republish = discovery.MaxValidity / 3
	// settleDown is the delay of a lease's first and last receipt, to collect more data of their unit: short leases are
	// published once.
	settleDown = 30 * time.Second
	// settleMore is how long receipts between them wait.
	settleMore = 5 * time.Minute
	// patience is the factor of a provider's delay: its buyers have probably published the same by then.
	patience = 2
	// lookEvery is the interval of reads of a rented or watched unit.
	lookEvery = 10 * time.Minute
	// pass is the interval at which the peer visits the places that are due.
	pass = 5 * time.Second
	// mostPerPass bounds the visits of one pass, which are spread evenly over its time: a peer with many units must not
	// flood the network or delay its own orders.
	mostPerPass = 16
	// atOnce is how many notices are read and written at a time.
	atOnce = 4
	// askTimeout bounds reading and writing one.
	askTimeout = 30 * time.Second
	// maxFiled bounds the leases with receipts that are kept for publishing; the oldest go first.
	maxFiled = 1024
	// maxDue bounds the places that are remembered.
	maxDue = 1 << 14
	// maxHours bounds under how many hours one receipt is filed: those at its end.
	maxHours = 4
	// maxFound bounds the proofs seen and not yet kept; more are dropped and will be seen again.
	maxFound = 64
	// maxRead bounds the notices that are remembered after reading: the DHT checks one several times while storing it.
	maxRead = 256
	// maxGood bounds the leases and receipts remembered as good, so that their signatures are verified once.
	maxGood = 8192
)

// Table is the DHT; a *discovery.Discovery.
type Table interface {
	PutValue(ctx context.Context, name string, key, value []byte) error
	GetValue(ctx context.Context, name string, key []byte) ([]byte, error)
}

// Notice is a notice of the DHT.
type Notice = notice.Notice

// Config is the configuration of a Publisher. All of it is required.
type Config struct {
	Genesis market.Genesis
	Self    sign.Key
	Store   journal.Store
	// Slot is the chain's current slot; an error while it is not known.
	Slot func() (market.Slot, error)
	// Heard receives each valid notice, at least once. It must not block.
	Heard func(n notice.Notice)
	// Proofs keeps double sales.
	Proofs *keep.Store
	Log    *slog.Logger
}

// Publisher publishes leases, and reads those of others. Open starts nothing; Run does.
type Publisher struct {
	cfg      Config
	domain   sign.Domain
	calendar notice.Calendar
	found    chan verify.Conflict // proofs that the DHT's values show
	poke     chan struct{}        // holds one token when something is to be published soon

	mu      sync.Mutex
	filed   map[market.LeaseID]*filed
	watched map[Watched]bool
	places  map[notice.Place]*visit
	known   map[sign.Hash]notice.Notice // good notices, by place and bytes
	good    map[sign.Hash]bool          // leases and receipts of which both signatures were verified
}

// visit is the state of a place.
type visit struct {
	at   time.Time // time of the last visit
	put  time.Time // time of the last complete publication; zero if unknown
	say  time.Time // when new data is due; zero if there is none
	news time.Time // arrival of the first new data; zero if an earlier process may have published it
}

// Open reads the leases and watched units of an earlier process.
func Open(ctx context.Context, cfg Config) (*Publisher, error) {
	k := &Publisher{
		cfg: cfg, domain: cfg.Genesis.Domain(), calendar: notice.CalendarOf(cfg.Genesis),
		found: make(chan verify.Conflict, maxFound), poke: make(chan struct{}, 1),
		filed: map[market.LeaseID]*filed{}, watched: map[Watched]bool{},
		places: map[notice.Place]*visit{}, known: map[sign.Hash]notice.Notice{}, good: map[sign.Hash]bool{},
	}
	for _, load := range []func(context.Context) error{k.loadFiled, k.loadWatched} {
		if err := load(ctx); err != nil {
			return nil, err
		}
	}
	return k, nil
}

// Values returns the DHT's rules for notices: which to hold, and which of two. It stores proofs that it finds.
func (k *Publisher) Values() discovery.Values {
	return discovery.Values{
		Name: values, MaxKey: notice.PlaceSize, MaxValue: notice.MaxSize, MaxStored: maxStored,
		Check: func(key, value []byte) error {
			p, err := notice.UnmarshalPlace(key)
			if err == nil {
				err = k.timely(p)
			}
			if err != nil {
				return err
			}
			n, err := k.read(p, value)
			if err == nil {
				k.see(n.Conflicts(k.calendar, p))
			}
			return err
		},
		Better: func(key []byte, offered [][]byte) (int, error) {
			p, err := notice.UnmarshalPlace(key)
			if err != nil {
				return 0, err
			}
			read := func(b []byte) (notice.Notice, error) { return k.read(p, b) }
			best, joint, err := notice.Better(k.calendar, p, offered, read)
			if err == nil {
				k.see(joint.Conflicts(k.calendar, p))
			}
			return best, err
		},
	}
}

// timely refuses places of hours past their publication, or in the future.
func (k *Publisher) timely(p notice.Place) error {
	now, err := k.cfg.Slot()
	if err != nil {
		return err
	}
	from, to := k.calendar.Slots(p)
	hour := market.Slot(k.calendar.HourSlots())
	if to+staleHours*hour < now || from > now+hour {
		return ErrUntimely
	}
	return nil
}

// read is notice.Read that does everything once: with the same notice, and with the same part of several.
func (k *Publisher) read(p notice.Place, b []byte) (notice.Notice, error) {
	id := sign.Sum(p.Marshal(), b)
	k.mu.Lock()
	n, known := k.known[id]
	k.mu.Unlock()
	if known {
		return n, nil
	}
	n, err := notice.Read(k.domain, k.calendar, p, b, k.once)
	if err != nil {
		return n, err
	}
	k.cfg.Heard(n)
	k.mu.Lock()
	defer k.mu.Unlock()
	remember(k.known, maxRead, id, n)
	return n, nil
}

// once is notice.Once.
func (k *Publisher) once(part []byte, verify func() error) error {
	id := sign.Sum(part)
	k.mu.Lock()
	good := k.good[id]
	k.mu.Unlock()
	if good {
		return nil
	}
	if err := verify(); err != nil {
		return err
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	remember(k.good, maxGood, id, true)
	return nil
}

// remember makes room for a value and sets it.
func remember[V any](m map[sign.Hash]V, most int, id sign.Hash, v V) {
	for old := range m { // any, in Go's random order
		if len(m) < most {
			break
		}
		delete(m, old)
	}
	m[id] = v
}

// keep keeps a double sale, once, if it holds and there is room.
func (k *Publisher) keep(ctx context.Context, c verify.Conflict) {
	mine := c.A.Buyer == k.cfg.Self || c.B.Buyer == k.cfg.Self
	_, err := k.cfg.Proofs.Keep(ctx, proof.DoubleSale{Conflict: c}, mine)
	if errors.Is(err, proof.ErrFull) {
		k.cfg.Log.Debug("a double sale is not kept", "err", err)
	} else if err != nil && ctx.Err() == nil {
		k.cfg.Log.Error("a double sale is not kept", "provider", c.A.Provider, "unit", c.Unit, "err", err)
	}
}

// see queues double sales for storage. It does not block.
func (k *Publisher) see(cs []verify.Conflict) {
	for _, c := range cs {
		if k.cfg.Proofs.Has(proof.DoubleSale{Conflict: c}.Hash()) {
			continue
		}
		select {
		case k.found <- c:
		default:
		}
	}
}

// Run publishes notices, looks up others' and stores proofs until ctx ends.
func (k *Publisher) Run(ctx context.Context, t Table) error {
	every := time.NewTicker(pass)
	defer every.Stop()
	for {
		select {
		case <-ctx.Done():
			k.last(context.WithoutCancel(ctx))
			return nil
		case c := <-k.found:
			k.keep(ctx, c)
			continue
		case <-k.poke:
		case <-every.C:
		}
		if err := k.turn(ctx, t); err != nil && ctx.Err() == nil {
			k.cfg.Log.Error("leases are not published", "err", err)
		}
	}
}

// last writes the changes since the last turn.
func (k *Publisher) last(ctx context.Context) {
	slot, err := k.cfg.Slot()
	if err != nil {
		return
	}
	if err := k.journal(ctx, slot); err != nil {
		k.cfg.Log.Error("leases are not published", "err", err)
	}
}
