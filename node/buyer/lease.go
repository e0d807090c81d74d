package buyer

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/libp2p/go-libp2p/core/peer"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/marketpb"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/node/buyer/exchange"
	"github.com/starling-network/starling/node/buyer/pay"
	"github.com/starling-network/starling/node/metering"
	"github.com/starling-network/starling/node/nodepb"
	"github.com/starling-network/starling/node/protocol"
	"github.com/starling-network/starling/node/store"
	"github.com/starling-network/starling/p2p/stream"
	"github.com/starling-network/starling/verify"
	"github.com/starling-network/starling/verify/meter"
)

// Kinds of the journal's records about bought leases.
const (
	kindLease   = "lease"   // leaseRecord by lease id
	kindPayer   = "payer"   // meter.Payer by lease id
	kindReceipt = "receipt" // a co-signed receipt by lease id and number
)

// leaseRecord is the journalled state of a bought lease, beside its payer's.
type leaseRecord struct {
	Job     string           `json:"job"`
	Lease   []byte           `json:"lease"`            // market.Lease
	Keys    []byte           `json:"keys"`             // market.KeySet
	Units   []market.UnitID  `json:"units,omitempty"`  // ascending
	Proven  uint64           `json:"proven,omitempty"` // operations a second that each of them was proven to compute, by audits before the lease; 0: not known
	PerUnit market.Resources `json:"perUnit"`
	Addrs   []string         `json:"addrs"`
	Route   string           `json:"route"`            // by which its quote came
	At      time.Time        `json:"at,omitzero"`      // when it was signed
	Active  bool             `json:"active,omitempty"` // the provider took the first payment
	Reason  string           `json:"reason,omitempty"`
	Root    market.LeaseID   `json:"root,omitzero"`     // of a successor: the first lease of its line
	Escrow  sign.Key         `json:"escrow,omitzero"`   // that it is paid from; zero on a free network
	Hired   bool             `json:"hired,omitempty"`   // its provider was a standby, whom the guardians hired
	Voucher []byte           `json:"voucher,omitempty"` // the last that the guardians signed; nil where this peer signs itself
	Void    bool             `json:"void,omitempty"`    // its money was not on chain in time: it costs nothing
	Funding []byte           `json:"funding,omitempty"` // where in it, as the provider is told
	Member  *member          `json:"member,omitempty"`  // in the overlay of its cluster; nil for a lease of none
}

// member is what shows others that a lease's provider is a member of a cluster, and under which key:
// market.CheckMember.
type member struct {
	Lease []byte            `json:"lease"` // market.Lease, the first of its line
	Hold  market.HoldID     `json:"hold"`
	Key   market.OverlayKey `json:"key"`
}

// bought is one lease of this buyer, from its signatures to its settlement.
type bought struct {
	b      *Buyer
	id     market.LeaseID
	core   market.LeaseCore
	signed market.Lease
	keys   market.KeySet
	peer   peer.ID
	job    string
	as     voice // of the job

	*line
	gone, inTime bool // of line.over; under line.guard
	back         bool // it was over before it began; likewise

	// Of a lease that was read from the journal: the slot up to which this peer had heard of it, and that to which it
	// had paid.
	seenAt, paidAt market.Slot

	mu      sync.Mutex
	rec     leaseRecord
	payer   meter.Payer   // after the last step of its machine
	added   bool          // it has had a machine
	retired bool          // its deposit was told in this process that it is settled
	settled chan struct{} // closed when the payer is settled
	left    chan struct{} // closed when somebody else commands the lease
}

func (b *Buyer) openLease(l market.Lease, keys market.KeySet, rec leaseRecord, as voice) (*bought, error) {
	id, err := exchange.Remember(b.cfg.Host, l.Core.Provider, rec.Addrs)
	if err != nil {
		return nil, err
	}
	n := &bought{b: b, id: l.Core.ID(), core: l.Core, signed: l, keys: keys, peer: id, job: rec.Job, as: as, rec: rec, settled: make(chan struct{}), left: make(chan struct{})}
	n.line = newLine(n)
	return n, nil
}

func (l *bought) terms() meter.Terms {
	t := protocol.MeterTerms(l.b.cfg.Genesis, l.core, l.keys, l.rec.Escrow, l.rec.PerUnit, l.as.epoch())
	if l.as == voice(l.b.own) { // guardians sign for no more than an interval, and go on without this peer
		t.AheadSlots = protocol.AheadSlots(l.b.cfg.Genesis)
	}
	return t
}

// newLease is a lease that both have signed. It is journalled with its first voucher.
func (b *Buyer) newLease(l market.Lease, keys market.KeySet, units []market.UnitID, s *supervisor, q exchange.Quoted, in *member) (*bought, error) {
	n, err := b.openLease(l, keys, leaseRecord{Job: s.trace.Job, Lease: l.Marshal(), Keys: keys.Marshal(), Units: units, Proven: b.exchange.ProvenRate(l.Core.Provider, units), PerUnit: q.Quote.PerUnit, Addrs: append(q.Quote.Addrs, q.Offer.Addrs...), Route: q.Route, At: time.Now(),
		Hired: q.Route == exchange.RouteStandby, Member: in}, s.as)
	if err != nil {
		return nil, err
	}
	return n, nil
}

// ready makes a lease that is funded ready to be paid for.
func (l *bought) ready(p pay.Source) (err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.rec.Escrow, l.rec.Funding = p.Escrow, p.Funding
	l.payer, err = meter.NewPayer(l.terms())
	return err
}

// newSuccessor is newLease for one that makes another longer.
func (b *Buyer) newSuccessor(l market.Lease, before *bought) (*bought, error) {
	before.mu.Lock()
	rec := before.rec
	before.mu.Unlock()
	rec.Lease, rec.At, rec.Active, rec.Reason, rec.Root = l.Marshal(), time.Now(), false, "", before.first
	n, err := b.openLease(l, before.keys, rec, before.as)
	if err != nil {
		return nil, err
	}
	n.cancel()
	n.line = before.line
	return n, nil
}

// put changes the record and returns its write for the journal.
func (l *bought) put(change func(*leaseRecord)) (store.Put, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	change(&l.rec)
	return l.record()
}

func (l *bought) record() (store.Put, error) {
	b, err := json.Marshal(l.rec)
	if err != nil {
		return store.Put{}, fmt.Errorf("encoding lease %s: %w", l.id.Short(), err)
	}
	return store.Put{Kind: kindLease, Key: l.id.String(), Value: b}, nil
}

// loadLeases takes up the leases of an earlier process.
func (b *Buyer) loadLeases(ctx context.Context) error {
	err := b.cfg.Store.List(ctx, kindLease, "", func(key string, value []byte) error {
		var rec leaseRecord
		if err := json.Unmarshal(value, &rec); err != nil {
			return fmt.Errorf("reading lease %s: %w", key, err)
		}
		s := b.jobs[rec.Job]
		if s == nil {
			return fmt.Errorf("reading lease %s: its job %s is not in the journal", key, rec.Job)
		}
		state, err := b.cfg.Store.Get(ctx, kindPayer, key)
		if err != nil {
			return fmt.Errorf("reading the payer of lease %s: %w", key, err)
		}
		l, err := b.restored(rec, state, s)
		if err != nil {
			return fmt.Errorf("reading lease %s: %w", key, err)
		}
		b.leases[l.id] = l
		s.paid = append(s.paid, l)
		return nil
	})
	if err == nil {
		err = b.link()
	}
	return err
}

// restored is a lease of an earlier process.
func (b *Buyer) restored(rec leaseRecord, payer []byte, s *supervisor) (*bought, error) {
	signed, err := market.UnmarshalLease(rec.Lease)
	if err != nil {
		return nil, err
	}
	keys, err := market.UnmarshalKeySet(rec.Keys)
	if err != nil {
		return nil, err
	}
	l, err := b.openLease(signed, keys, rec, s.as)
	if err != nil {
		return nil, err
	}
	if l.payer, err = meter.RestorePayer(l.terms(), payer); err != nil {
		return nil, fmt.Errorf("its payer: %w", err)
	}
	if l.payer.State() == meter.PayerSettled {
		close(l.settled)
	}
	l.seenAt, l.paidAt = max(l.payer.Began(), l.payer.Last().To), l.payer.PaidUntil()
	return l, nil
}

// prepay issues the voucher for the first interval, once, and is what the provider is told; asked again it is the same.
func (b *Buyer) prepay(ctx context.Context, l *bought) (*marketpb.Activate, error) {
	b.mu.Lock()
	_, known := b.leases[l.id]
	b.leases[l.id] = l
	s := b.jobs[l.job]
	b.mu.Unlock()
	if !known {
		l.join(l)
		s.mu.Lock()
		s.paid = append(s.paid, l)
		s.mu.Unlock()
		l.watch(b)
	}
	l.mu.Lock()
	rec, err := l.record()
	funding := l.rec.Funding
	l.mu.Unlock()
	if err != nil {
		return nil, err
	}
	effects, err := l.step(ctx, meter.Started{}, rec)
	if err != nil {
		return nil, err
	}
	for _, e := range effects {
		if v, ok := e.(meter.IssueVoucher); ok {
			voucher, err := l.voucher(ctx, v.Voucher)
			return &marketpb.Activate{Lease: l.id[:], Voucher: voucher, Funding: funding}, err
		}
	}
	return nil, errUnpayable
}

// errUnpayable says that a lease's payer issues no first voucher any more.
var errUnpayable = errors.New("the lease can no longer be paid for")

// voucher has a voucher signed by the lease's voucher keys.
func (l *bought) voucher(ctx context.Context, v verify.Voucher) ([]byte, error) {
	s, err := l.as.voucher(ctx, l, v)
	if err != nil {
		return nil, err
	}
	return s.Marshal(), nil
}

// step sends the payer an event, journals the step with more, and returns its effects.
func (l *bought) step(ctx context.Context, ev meter.Event, more ...store.Put) ([]meter.Effect, error) {
	l.add()
	return l.b.payers.Step(ctx, paidFor{l}, ev, more...)
}

// add adds the machine of the lease's payer, once: a dropped one does not come again.
func (l *bought) add() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.added {
		l.added = true
		l.b.payers.Add(paidFor{l}, l.payer)
	}
}

func receiptKey(l market.LeaseID, seq uint64) string { return fmt.Sprintf("%s/%020d", l, seq) }

// watch has the payer ticked until it is settled, somebody else commands the lease, or the peer stops. b.ctx is set.
func (l *bought) watch(b *Buyer) {
	b.cfg.Host.Protect(l.peer, "lease/"+l.id.Short())
	b.mu.Lock()
	run := b.ctx
	b.mu.Unlock()
	every := time.Duration(b.cfg.Genesis.IntervalSlots*b.cfg.Genesis.SlotMillis) * time.Millisecond / 2
	l.add()
	if err := b.payers.Watch(paidFor{l}, max(every, 50*time.Millisecond)); err != nil {
		b.cfg.Log.Debug("a lease is not watched", "lease", l.id, "err", err)
	}
	b.wg.Go(func() {
		defer b.cfg.Host.Unprotect(l.peer, "lease/"+l.id.Short())
		select {
		case <-run.Done():
		case <-l.left:
		case <-l.settled:
			b.pay.Retire(l.payable())
			b.used(l.job, l.core.Order)
			if s, err := b.get(l.job); err == nil {
				s.driver.chains.costs(l)
			}
		}
	})
}

// Reconnect opens a connection to the provider of every lease that is not settled. A peer whose addresses changed does
// it, so that providers that want their next voucher need not look for it.
func (b *Buyer) Reconnect(ctx context.Context) {
	b.mu.Lock()
	var peers []peer.ID
	for _, l := range b.leases {
		if l.state() != meter.PayerSettled && !slices.Contains(peers, l.peer) {
			peers = append(peers, l.peer)
		}
	}
	b.mu.Unlock()
	var wg sync.WaitGroup
	for _, id := range peers {
		wg.Go(func() {
			b.cfg.Host.Forgive(id)
			if err := b.cfg.Host.Connect(ctx, peer.AddrInfo{ID: id}); err != nil {
				b.cfg.Log.Debug("a provider was not reached", "peer", id, "err", err)
			}
		})
	}
	wg.Wait()
}

// handleMeter co-signs a receipt and pays on.
func (b *Buyer) handleMeter(ctx context.Context, from peer.ID, req *nodepb.MeterRequest) (*nodepb.MeterReply, error) {
	if len(req.Lease) != len(market.LeaseID{}) || len(req.ProviderSignature) != sign.SignatureSize {
		return nil, &stream.Malformed{Reason: "lease id or signature has a wrong size"}
	}
	core, err := verify.UnmarshalReceiptCore(req.Receipt)
	if err != nil {
		return nil, &stream.Malformed{Reason: err.Error()}
	}
	b.mu.Lock()
	l := b.leases[market.LeaseID(req.Lease)]
	b.mu.Unlock()
	if l == nil || l.peer != from {
		return nil, stream.Refuse("lease", "no such lease of yours here")
	}
	effects, err := l.step(ctx, meter.ReceiptProposed{Core: core, Sig: sign.Signature(req.ProviderSignature)})
	if err != nil {
		return nil, err
	}
	reply := &nodepb.MeterReply{}
	for _, e := range effects {
		switch e := e.(type) {
		case meter.Refuse:
			return nil, stream.Refuse(string(e.Reason.Rule), e.Reason.Error())
		case meter.Cosign:
			sig, err := e.Core.Sign(b.domain, l.as.key())
			if err != nil {
				return nil, err
			}
			reply.BuyerSignature = sig[:]
		case meter.IssueVoucher:
			if reply.Voucher, err = l.voucher(ctx, e.Voucher); err != nil {
				return nil, err
			}
		case meter.StopPaying, meter.Settled: // carried out by Stepped
		default:
			return nil, fmt.Errorf("unknown effect %T", e)
		}
	}
	return reply, nil
}

// releaseLease tells a provider that its lease is no longer wanted.
func (l *bought) releaseLease(ctx context.Context, reason string) error {
	ctx, cancel := context.WithTimeout(ctx, releaseTimeout)
	defer cancel()
	_, err := protocol.Lease.Call(ctx, l.b.cfg.Host, l.b.tag, l.peer, &marketpb.LeaseRequest{Step: &marketpb.LeaseRequest_Release{
		Release: &marketpb.Release{Of: &marketpb.Release_Lease{Lease: l.id[:]}, Reason: clip(reason)},
	}})
	return err
}

// over stops paying for a lease and notes why. It returns, and logs, the error of a journal that does not take it.
func (l *bought) over(ctx context.Context, reason string) error {
	l.mu.Lock()
	if l.rec.Reason == "" {
		l.rec.Reason = clip(reason)
	}
	rec, err := l.record()
	l.mu.Unlock()
	if err == nil {
		_, err = l.step(ctx, meter.Stopped{Reason: clip(reason)}, rec)
	}
	if err != nil && ctx.Err() == nil {
		l.b.cfg.Log.Error("stopping a lease", "lease", l.id, "err", err)
	}
	return err
}

// tell lets a provider know that its lease is no longer wanted. One that does not
// hear it finds out by the next voucher, which does not come.
func (b *Buyer) tell(ctx context.Context, l *bought, reason string) {
	if err := l.releaseLease(context.WithoutCancel(ctx), reason); err != nil {
		b.cfg.Log.Debug("a release was not confirmed", "lease", l.id, "err", err)
	}
}

// forgo ends a lease that its gang does not want after all.
func (b *Buyer) forgo(ctx context.Context, l *bought, reason string) {
	b.mu.Lock()
	_, prepaid := b.leases[l.id]
	b.mu.Unlock()
	if prepaid {
		_ = l.over(ctx, reason)
	} else {
		b.pay.Retire(l.payable())
	}
	l.cancel()
}

// paidFor is a lease for node/metering.
type paidFor struct{ *bought }

// String implements metering.Lease.
func (l paidFor) String() string { return l.id.String() }

// Complete implements metering.Lease.
func (l paidFor) Complete(s *metering.Step[meter.Payer]) error {
	var rest []meter.Effect
	for _, e := range s.Effects {
		switch e := e.(type) {
		case meter.Persist:
			s.Records = append(s.Records, store.Put{Kind: kindPayer, Key: l.id.String(), Value: e.State})
			continue
		case meter.Cosign:
			sig, err := e.Core.Sign(l.b.domain, l.as.key())
			if err != nil {
				return err
			}
			r := verify.Receipt{ReceiptCore: e.Core, ProviderSig: e.ProviderSig, BuyerSig: sig}
			s.Receipts = append(s.Receipts, r)
			s.Records = append(s.Records, store.Put{Kind: kindReceipt, Key: receiptKey(l.id, e.Core.Seq), Value: r.Marshal()})
		}
		rest = append(rest, e)
	}
	s.Effects = rest
	return nil
}

// Stepped implements metering.Lease.
func (l paidFor) Stepped(s metering.Step[meter.Payer]) (later func(context.Context)) {
	l.mu.Lock()
	l.payer = s.Meter
	used, units := l.usedUp(s.Now.Slot), l.rec.Units
	l.mu.Unlock()
	for _, r := range s.Receipts {
		l.b.cfg.Filed(l.signed, units, r)
	}
	for _, e := range s.Effects {
		switch e := e.(type) {
		case meter.StopPaying:
			why := string(e.Reason)
			if e.Detail != "" {
				why = e.Detail
			}
			l.line.over(l.bought, used, why)
		case meter.Settled:
			l.line.over(l.bought, used, "the provider ended the lease")
			select {
			case <-l.settled:
			default:
				close(l.settled)
			}
		}
	}
	if st := s.Meter.State(); len(s.Records) > 0 && (st == meter.PayerStopping || st == meter.PayerSettled) {
		return func(ctx context.Context) { l.as.changed(ctx, l.bought) }
	}
	return nil
}

// leave has nothing more be done for a lease that another peer commands.
func (l *bought) leave() {
	l.b.payers.Drop(paidFor{l})
	l.line.guard.Lock()
	defer l.line.guard.Unlock()
	select {
	case <-l.left:
	default:
		close(l.left)
	}
	l.line.cancel()
}
