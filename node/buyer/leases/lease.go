package leases

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/libp2p/go-libp2p/core/peer"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/marketpb"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/node/journal"
	"github.com/starling-network/starling/node/metering"
	"github.com/starling-network/starling/node/store"
	"github.com/starling-network/starling/verify"
	"github.com/starling-network/starling/verify/meter"
)

// Record is the journalled state of a lease, beside its payer's.
type Record struct {
	Job   string          `json:"job"`
	Lease []byte          `json:"lease"`           // market.Lease
	Keys  []byte          `json:"keys"`            // market.KeySet
	Units []market.UnitID `json:"units,omitempty"` // ascending
	// Proven is the number of operations a second that audits before the lease proved of each unit; 0 means unknown.
	Proven  uint64           `json:"proven,omitempty"`
	PerUnit market.Resources `json:"perUnit"`
	Addrs   []string         `json:"addrs"`
	Route   string           `json:"route"`            // by which its quote came
	At      time.Time        `json:"at,omitzero"`      // of its signatures
	Active  bool             `json:"active,omitempty"` // the provider took the first payment
	Reason  string           `json:"reason,omitempty"`
	Root    market.LeaseID   `json:"root,omitzero"`     // of a successor: the first lease of its chain
	Escrow  sign.Key         `json:"escrow,omitzero"`   // that it is paid from; zero on a free network
	Hired   bool             `json:"hired,omitempty"`   // its provider was a standby, hired by the guardians
	Voucher []byte           `json:"voucher,omitempty"` // the last one by guardians; nil if this peer signs itself
	Void    bool             `json:"void,omitempty"`    // its money was not on chain in time: it costs nothing
	Funding []byte           `json:"funding,omitempty"` // its place in the escrow, for the provider
	Member  *Member          `json:"member,omitempty"`  // of a cluster's overlay; nil for a lease of no cluster
}

// Member proves to others that a lease's provider is a member of a cluster, and under which key: market.CheckMember.
type Member struct {
	Lease []byte            `json:"lease"` // market.Lease, the first of its chain
	Hold  market.HoldID     `json:"hold"`
	Key   market.OverlayKey `json:"key"`
}

// Principal is the identity that buys a lease: this peer itself, or a job with guardians.
type Principal interface {
	// Key signs orders, leases and receipts, which name it as the buyer.
	Key() sign.Signer
	// Epoch is the number under which the job is supervised; 0 without guardians.
	Epoch() uint64
	// Alone reports whether this peer signs vouchers without guardians. Guardians sign for at most one interval.
	Alone() bool
	// Voucher returns a voucher that the lease's payer issued, signed by enough of the voucher keys.
	Voucher(ctx context.Context, l *Lease, v verify.Voucher) (verify.SignedVoucher, error)
	// Changed reports a lease that is not paid on. It must not wait.
	Changed(ctx context.Context, l *Lease)
}

// Lease is one lease of this buyer. Its exported fields never change.
type Lease struct {
	ID     market.LeaseID
	Core   market.LeaseCore
	Signed market.Lease
	Keys   market.KeySet // of its vouchers
	Peer   peer.ID       // its provider
	Job    string
	As     Principal
	// Settled closes when the lease costs nothing more, Left when another peer commands it.
	Settled, Left <-chan struct{}

	*chain
	book         *Book
	gone, inTime bool // of chain.over; under chain.guard
	back         bool // it ended before it began; likewise

	// Of a lease of an earlier process: the slots up to which this peer knew of it, and had paid for it.
	seenAt, paidAt market.Slot

	mu            sync.Mutex
	rec           Record
	voiding       bool        // the journal gets that the lease is void with the record's next write
	payer         meter.Payer // after the last step of its machine
	added         bool        // it has had a machine
	retired       bool        // its deposit had its end in this process
	settled, left chan struct{}
}

const (
	// ReleaseTimeout bounds a release. A provider that misses it frees the units at its own deadline.
	ReleaseTimeout = 2 * time.Second
	// journalRetry is how often a journal that fails is tried again.
	journalRetry = time.Second
	// maxReason bounds the reason for the end of a lease, in bytes.
	maxReason = 800
)

// ErrUnpayable is returned for a lease whose payer can no longer issue a first voucher.
var ErrUnpayable = errors.New("the lease can no longer be paid for")

// open returns a lease without a payer.
func (b *Book) open(l market.Lease, keys market.KeySet, rec Record, as Principal) (*Lease, error) {
	id, err := b.cfg.Host.Remember(l.Core.Provider, rec.Addrs)
	if err != nil {
		return nil, err
	}
	n := &Lease{
		ID: l.Core.ID(), Core: l.Core, Signed: l, Keys: keys, Peer: id, Job: rec.Job, As: as, book: b, rec: rec,
		settled: make(chan struct{}), left: make(chan struct{}),
	}
	n.Settled, n.Left, n.chain = n.settled, n.left, newChain(n)
	return n, nil
}

// Open returns a lease that both sides have signed. The journal has it from its first voucher on. rec has its units,
// the resources of each and its route; the rest of it is set here.
func (b *Book) Open(l market.Lease, keys market.KeySet, rec Record, as Principal) (*Lease, error) {
	rec.Lease, rec.Keys, rec.At = l.Marshal(), keys.Marshal(), time.Now()
	return b.open(l, keys, rec, as)
}

// Successor is Open for a lease that makes another longer.
func (b *Book) Successor(l market.Lease, before *Lease) (*Lease, error) {
	rec := before.Record()
	rec.Lease, rec.At, rec.Active, rec.Reason, rec.Root = l.Marshal(), time.Now(), false, "", before.First
	n, err := b.open(l, before.Keys, rec, before.As)
	if err != nil {
		return nil, err
	}
	n.cancel()
	n.chain = before.chain
	return n, nil
}

// Restore returns a lease of an earlier process. Link joins it with its chain.
func (b *Book) Restore(rec Record, payer []byte, as Principal) (*Lease, error) {
	keys, err := market.UnmarshalKeySet(rec.Keys)
	if err != nil {
		return nil, err
	}
	l, err := b.rebuild(rec, payer, keys, as)
	if err != nil {
		return nil, err
	}
	if l.payer.State() == meter.PayerSettled {
		close(l.settled)
	}
	l.seenAt, l.paidAt = max(l.payer.Began(), l.payer.Last().To), l.payer.PaidUntil()
	return l, nil
}

// rebuild returns a lease with a payer in a state.
func (b *Book) rebuild(rec Record, payer []byte, keys market.KeySet, as Principal) (*Lease, error) {
	signed, err := market.UnmarshalLease(rec.Lease)
	if err != nil {
		return nil, err
	}
	l, err := b.open(signed, keys, rec, as)
	if err != nil {
		return nil, err
	}
	if l.payer, err = meter.RestorePayer(l.terms(), payer); err != nil {
		return nil, fmt.Errorf("its payer: %w", err)
	}
	return l, nil
}

func (l *Lease) terms() meter.Terms {
	g := l.book.cfg.Genesis
	t := metering.Terms(g, l.Core, l.Keys, l.rec.Escrow, l.rec.PerUnit, l.As.Epoch())
	if l.As.Alone() {
		t.AheadSlots = metering.AheadSlots(g)
	}
	return t
}

// Record returns the lease's record.
func (l *Lease) Record() Record {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.rec
}

// Payer returns the payer after its last step.
func (l *Lease) Payer() meter.Payer {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.payer
}

// State returns the state of the payer.
func (l *Lease) State() meter.PayerState { return l.Payer().State() }

// Done reports whether the lease is settled: it costs nothing more.
func (l *Lease) Done() bool { return l.State() == meter.PayerSettled }

// Usable reports whether the lease is active and paid for, and its chain in force.
func (l *Lease) Usable() bool {
	l.mu.Lock()
	held := l.rec.Active && l.rec.Reason == "" && l.payer.State() == meter.PayerPaying
	l.mu.Unlock()
	return held && l.Alive()
}

// Disk returns the disk of the lease in bytes.
func (l *Lease) Disk() int64 { return int64(l.Core.Units) * int64(l.Record().PerUnit.DiskMiB) << 20 }

// Put changes the record, and returns its write for the journal.
func (l *Lease) Put(change func(*Record)) (store.Put, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	change(&l.rec)
	return l.put()
}

// Save changes the record, and journals it.
func (l *Lease) Save(ctx context.Context, change func(*Record)) error {
	p, err := l.Put(change)
	if err != nil {
		return err
	}
	var b journal.Batch
	b.Add(p)
	return b.Commit(ctx, l.book.cfg.Store)
}

// put returns the write of the record. l.mu is held.
func (l *Lease) put() (store.Put, error) {
	rec := l.rec
	rec.Void = rec.Void || l.voiding
	return Records.Encode(l.ID, rec)
}

// Marshal returns the record and the payer as the journal has them.
func (l *Lease) Marshal() (record, payer []byte, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if record, err = json.Marshal(l.rec); err != nil {
		return nil, nil, fmt.Errorf("encoding lease %s: %w", l.ID.Short(), err)
	}
	payer, err = l.payer.Marshal()
	return record, payer, err
}

// Ready makes a lease ready to be paid for. Its money is in an escrow, and funding shows the provider where. Both are
// zero on a free network.
func (l *Lease) Ready(escrow sign.Key, funding []byte) (err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.rec.Escrow, l.rec.Funding = escrow, funding
	l.payer, err = meter.NewPayer(l.terms())
	return err
}

// Prepay issues the voucher for the first interval, once, and returns the request to the provider. A repeated call
// returns the same. It returns ErrUnpayable for an ended lease.
func (l *Lease) Prepay(ctx context.Context) (*marketpb.Activate, error) {
	l.mu.Lock()
	rec, err := l.put()
	funding := l.rec.Funding
	l.mu.Unlock()
	if err != nil {
		return nil, err
	}
	effects, err := metered{l}.step(ctx, meter.Started{}, rec)
	if err != nil {
		return nil, err
	}
	for _, e := range effects {
		if v, ok := e.(meter.IssueVoucher); ok {
			voucher, err := signed(ctx, l, v.Voucher)
			return &marketpb.Activate{Lease: l.ID[:], Voucher: voucher, Funding: funding}, err
		}
	}
	return nil, ErrUnpayable
}

// signed returns a voucher with the signatures of the lease's voucher keys.
func signed(ctx context.Context, l *Lease, v verify.Voucher) ([]byte, error) {
	s, err := l.As.Voucher(ctx, l, v)
	if err != nil {
		return nil, err
	}
	return s.Marshal(), nil
}

// Accept adds a receipt that both parties signed under an earlier supervisor.
func (l *Lease) Accept(ctx context.Context, r verify.Receipt) error {
	_, err := metered{l}.step(ctx, meter.Signed{Receipt: r})
	return err
}

// Stop stops paying for the lease and notes the reason. It returns, and logs, the error of a journal that fails.
func (l *Lease) Stop(ctx context.Context, reason string) error {
	reason = market.Clean(reason, maxReason)
	rec, err := l.Put(func(r *Record) {
		if r.Reason == "" {
			r.Reason = reason
		}
	})
	if err == nil {
		_, err = metered{l}.step(ctx, meter.Stopped{Reason: reason}, rec)
	}
	if err != nil && ctx.Err() == nil {
		l.book.cfg.Log.Error("stopping a lease", "lease", l.ID, "err", err)
	}
	return err
}

// Release notifies the provider that the lease is no longer wanted. A provider that misses it receives no next voucher.
func (l *Lease) Release(ctx context.Context, reason string) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), ReleaseTimeout)
	defer cancel()
	_, err := l.book.Call(ctx, l.Peer, &marketpb.LeaseRequest{
		Step: &marketpb.LeaseRequest_Release{Release: &marketpb.Release{
			Of: &marketpb.Release_Lease{Lease: l.ID[:]}, Reason: market.Clean(reason, maxReason),
		}},
	})
	if err != nil {
		l.book.cfg.Log.Debug("a release was not confirmed", "lease", l.ID, "err", err)
	}
}

// Cancel ends the chain of a lease that its gang does not use.
func (l *Lease) Cancel() { l.cancel() }

// Leave ends this peer's work on a lease that another peer commands.
func (l *Lease) Leave() {
	l.book.payers.Drop(metered{l})
	l.guard.Lock()
	defer l.guard.Unlock()
	select {
	case <-l.left:
	default:
		close(l.left)
	}
	l.cancel()
}

type (
	// Receipt is a receipt of a lease.
	Receipt = verify.Receipt
	// Activate requests that the provider of a lease begins it.
	Activate = marketpb.Activate
)
