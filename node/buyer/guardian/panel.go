package guardian

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/libp2p/go-libp2p/core/host"
	"github.com/libp2p/go-libp2p/core/peer"
	"github.com/libp2p/go-libp2p/core/peerstore"
	ma "github.com/multiformats/go-multiaddr"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/node/nodepb"
	"github.com/starling-network/starling/node/protocol"
	"github.com/starling-network/starling/node/sealed"
	"github.com/starling-network/starling/p2p"
	"github.com/starling-network/starling/p2p/stream"
)

// PanelConfig is the configuration of a Panel.
type PanelConfig struct {
	Host    host.Host
	Genesis market.Genesis
	Key     sign.Signer // of this peer: the owner, or a guardian
	Charter Charter
	Members []Member // in the order of Charter.Keys
	Local   *Service // of this peer, which is asked directly if it is one of the guardians; nil: none
	Slots   func() (market.Slot, error)
	// Epoch and Grant are the newest that are known; zero: the owner's first.
	Epoch uint64
	Grant []byte
}

// Panel speaks to all guardians of a job, for its owner or for one of them. Its methods may be called at once.
type Panel struct {
	cfg    PanelConfig
	domain sign.Domain
	tag    string

	mu     sync.Mutex
	epoch  uint64
	grant  []byte
	told   []int                        // beats under way to each member
	unsure []map[market.LeaseID]*unsure // events of which each has not confirmed receipt
	deaf   map[sign.Key]bool            // the last beat did not reach it

	ctx    context.Context // of work that goes on after an answer
	cancel context.CancelFunc
	wg     sync.WaitGroup
}

// settleTime is how long after the threshold the other guardians are still waited for where all that they know counts,
// and lagTime how long those that are late are given to hear of something.
const (
	settleTime = 300 * time.Millisecond
	lagTime    = 10 * time.Second
)

// NewPanel speaks to the guardians of one job. Close it.
func NewPanel(cfg PanelConfig) *Panel {
	p := &Panel{
		cfg: cfg, domain: cfg.Genesis.Domain(), tag: cfg.Genesis.Tag(),
		epoch: max(cfg.Epoch, 1), grant: cfg.Grant, deaf: map[sign.Key]bool{},
	}
	p.told, p.unsure = make([]int, len(cfg.Members)), make([]map[market.LeaseID]*unsure, len(cfg.Members))
	for i := range p.unsure {
		p.unsure[i] = map[market.LeaseID]*unsure{}
	}
	p.ctx, p.cancel = context.WithCancel(context.Background())
	return p
}

// Close ends the remaining work and waits for it.
func (p *Panel) Close() {
	p.cancel()
	p.wg.Wait()
}

// Epoch is the newest that is known, and the grant that proves it; nil under the owner's first.
func (p *Panel) Epoch() (epoch uint64, grant []byte) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.epoch, p.grant
}

// Supervises reports whether that epoch is this peer's.
func (p *Panel) Supervises() bool {
	epoch, _ := p.Epoch()
	return p.cfg.Charter.Supervisor(epoch) == p.cfg.Key.Key()
}

// learn takes in a proof of a higher epoch.
func (p *Panel) learn(epoch uint64, grant []byte) error {
	if err := p.cfg.Charter.CheckGrant(p.domain, epoch, grant); err != nil {
		return err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if epoch > p.epoch {
		p.epoch, p.grant = epoch, grant
	}
	return nil
}

func remember(h host.Host, k sign.Key, addrs []string) (peer.ID, error) {
	id, err := p2p.PeerIDFromKey(k)
	if err != nil {
		return "", err
	}
	var out []ma.Multiaddr
	for _, s := range addrs {
		if a, err := ma.NewMultiaddr(s); err == nil {
			out = append(out, a)
		}
	}
	h.Peerstore().AddAddrs(id, out, peerstore.TempAddrTTL)
	return id, nil
}

func ask(ctx context.Context, h host.Host, tag string, m Member, req *nodepb.GuardRequest) (*nodepb.GuardReply, error) {
	id, err := remember(h, m.Key, m.Addrs)
	if err != nil {
		return nil, err
	}
	return protocol.Guard.Call(ctx, h, tag, id, req)
}

// ask asks one guardian, as of the newest epoch.
func (p *Panel) ask(ctx context.Context, m Member, req *nodepb.GuardRequest) (*nodepb.GuardReply, error) {
	epoch, grant := p.Epoch()
	full := &nodepb.GuardRequest{Job: p.cfg.Charter.Job[:], Epoch: epoch, Grant: grant, Op: req.Op}
	if s := p.cfg.Local; s != nil && m.Key == s.self {
		ctx, cancel := context.WithTimeout(ctx, protocol.QuickAnswer)
		defer cancel()
		return s.answer(ctx, p.cfg.Key.Key(), full)
	}
	for wait := 20 * time.Millisecond; ; wait *= 2 {
		reply, err := ask(ctx, p.cfg.Host, p.tag, m, full)
		if !refused(err, stream.CodeBusy) || wait > time.Second {
			return reply, err
		}
		select {
		case <-time.After(wait):
		case <-ctx.Done():
			return reply, err
		}
	}
}

// answer is the result of a request to one guardian.
type answer[T any] struct {
	from  int // of the members
	value T
	err   error
}

// everyone sends a request to all guardians at once. The channel has room for all their answers, so that nobody has to
// read them. Requests under way when ctx ends go on for lagTime, so that slow guardians receive them too.
func everyone[T any](
	ctx context.Context, p *Panel, f func(ctx context.Context, i int, m Member) (T, error),
) <-chan answer[T] {
	out := make(chan answer[T], len(p.cfg.Members))
	for i, m := range p.cfg.Members {
		p.wg.Go(func() {
			on, cancel := context.WithTimeout(p.ctx, lagTime)
			defer cancel()
			value, err := f(on, i, m)
			out <- answer[T]{i, value, err}
		})
	}
	return out
}

// next is the next answer, or ctx's error.
func next[T any](ctx context.Context, from <-chan answer[T]) (answer[T], error) {
	select {
	case a := <-from:
		return a, nil
	case <-ctx.Done():
		return answer[T]{}, ctx.Err()
	}
}

// minority is ErrMinority with the guardians' errors.
func (p *Panel) minority(got int, failed map[int]error) error {
	errs := []error{fmt.Errorf("%w: %d of %d, %d needed",
		ErrMinority, got, len(p.cfg.Members), p.cfg.Charter.Keys.Threshold)}
	for _, i := range slices.Sorted(maps.Keys(failed)) {
		errs = append(errs, fmt.Errorf("guardian %s: %w", p.cfg.Members[i].Key.Short(), failed[i]))
	}
	return errors.Join(errs...)
}

// superseded verifies a guardian's report of another supervisor: one that lies has no proof of it.
func (p *Panel) superseded(ctx context.Context, m Member, err error) error {
	if !refused(err, CodeSuperseded) && !refused(err, CodeNotYours) {
		return err
	}
	if p.Supervises() {
		p.inquire(ctx, m)
	}
	if epoch, grant := p.Epoch(); !p.Supervises() {
		return &Superseded{Epoch: epoch, Grant: grant}
	}
	return err
}

// inquire requests the supervisor's identity from a guardian. One that lies has no proof of it.
func (p *Panel) inquire(ctx context.Context, m Member) {
	read := &nodepb.GuardRequest_Read{After: lastLease[:]}
	reply, err := p.ask(ctx, m, &nodepb.GuardRequest{Op: &nodepb.GuardRequest_Read_{Read: read}})
	if st := reply.GetStanding(); err == nil {
		_ = p.learn(st.GetEpoch(), st.GetGrant())
	}
}

// lastLease is after all others: a guardian's answer to a read after it has only the supervisor.
var lastLease = [32]byte(slices.Repeat([]byte{0xff}, 32))

// Candidate is a peer that could guard a job.
type Candidate struct {
	Key   sign.Key
	Addrs []string
}

// Offered is a peer's price for guarding a job.
type Offered struct {
	Candidate
	ShareMillionths uint32 // of the largest cost of the job's leases
	Payout          sign.Key
	MaxBytes        int64         // of the files of one job
	Longest         time.Duration // a job may last
	RTT             time.Duration
}

// Offers asks peers whether they guard jobs. Those that do not, or do not answer before ctx ends, are left out.
func Offers(ctx context.Context, h host.Host, g market.Genesis, candidates []Candidate) []Offered {
	found := make([]*Offered, len(candidates))
	var wg sync.WaitGroup
	for i, c := range candidates {
		wg.Go(func() {
			start := time.Now()
			reply, err := ask(ctx, h, g.Tag(), Member{Key: c.Key, Addrs: c.Addrs}, &nodepb.GuardRequest{
				Op: &nodepb.GuardRequest_Offer_{Offer: &nodepb.GuardRequest_Offer{}},
			})
			o := reply.GetOffered()
			if err != nil || o == nil || len(o.Payout) != sign.KeySize ||
				o.MaxBytes > 1<<62 || o.LongestMillis > 1<<42 {
				return
			}
			found[i] = &Offered{
				Candidate: c, ShareMillionths: o.ShareMillionths, Payout: sign.Key(o.Payout),
				MaxBytes: int64(o.MaxBytes), Longest: time.Duration(o.LongestMillis) * time.Millisecond,
				RTT: time.Since(start),
			}
		})
	}
	wg.Wait()
	var out []Offered
	for _, o := range found {
		if o != nil {
			out = append(out, *o)
		}
	}
	return out
}

// Engagement is the data that the guardians receive. It never changes.
type Engagement struct {
	Key   sign.Private // the job's
	File  []byte
	Files []File // that this peer has, and lets the guardians read
	Addrs []string
	Until time.Time
	// Complete has guardians answer once they have the files, those too that do not fetch them before their wage is on
	// chain.
	Complete bool
}

// Engage hands the job to all guardians, and returns when all have taken it, and its files (see Engagement.Complete): a
// voucher must not depend on one that never had it. Guardians that still fetch are asked until ctx ends. It may be
// called again with the same.
func (p *Panel) Engage(ctx context.Context, e Engagement) error {
	if err := p.cfg.Charter.Check(p.cfg.Genesis); err != nil {
		return err
	}
	answers := everyone(ctx, p, func(_ context.Context, _ int, m Member) (struct{}, error) {
		return struct{}{}, p.engage(ctx, m, e)
	})
	failed := map[int]error{}
	for i := range p.cfg.Members {
		failed[i] = errSilent
	}
	for range p.cfg.Members {
		a, err := next(ctx, answers)
		if err != nil {
			break
		}
		if failed[a.from] = a.err; a.err == nil {
			delete(failed, a.from)
		}
	}
	if len(failed) == 0 {
		return nil
	}
	out := &NotEngaged{why: p.minority(len(p.cfg.Members)-len(failed), failed)}
	for i := range failed {
		out.By = append(out.By, p.cfg.Members[i].Key)
	}
	return out
}

var errSilent = errors.New("no answer in time")

// NotEngaged says which guardians did not take a job.
type NotEngaged struct {
	By  []sign.Key
	why error
}

func (e *NotEngaged) Error() string { return e.why.Error() }
func (e *NotEngaged) Unwrap() error { return e.why }

func (p *Panel) engage(ctx context.Context, m Member, e Engagement) error {
	seed := e.Key.Seed()
	box, err := sealed.Seal(m.Key, SealedFor(p.tag, p.cfg.Charter.Job), seed[:])
	if err != nil {
		return err
	}
	req := &nodepb.GuardRequest{Op: &nodepb.GuardRequest_Engage_{Engage: &nodepb.GuardRequest_Engage{
		Sealed: box, File: e.File, Files: pbFiles(e.Files),
		Threshold: uint32(p.cfg.Charter.Keys.Threshold), Guardians: pbMembers(p.cfg.Members),
		Addrs: e.Addrs, UntilMillis: uint64(e.Until.UnixMilli()), Complete: e.Complete,
	}}}
	for {
		_, err := p.ask(ctx, m, req)
		if !refused(err, CodeFetching) {
			return err
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(TimingOf(p.cfg.Genesis).Beat):
		}
	}
}

// Beat says that the supervisor is there, and how the job stands if that changed; nil says that it is as it was. That
// fewer than the threshold heard it is ErrMinority, that another peer supervises is ErrSuperseded.
func (p *Panel) Beat(ctx context.Context, state *State) error {
	req, err := p.beat(state)
	if err != nil {
		return err
	}
	answers := everyone(ctx, p, func(ctx context.Context, i int, m Member) (struct{}, error) {
		if !p.telling(i, 1) && state == nil {
			p.telling(i, -1)
			return struct{}{}, errLagging
		}
		defer p.telling(i, -1)
		_, err := p.ask(ctx, m, req)
		if err == nil {
			p.catchUp(ctx, i, m)
		}
		p.mu.Lock()
		p.deaf[m.Key] = err != nil
		p.mu.Unlock()
		return struct{}{}, p.superseded(ctx, m, err)
	})
	heard, failed := 0, map[int]error{}
	for range p.cfg.Members {
		a, err := next(ctx, answers)
		switch {
		case err != nil:
			return errors.Join(p.minority(heard, failed), err)
		case errors.Is(a.err, ErrSuperseded):
			return a.err
		case a.err != nil:
			failed[a.from] = a.err
		default:
			if heard++; heard >= int(p.cfg.Charter.Keys.Threshold) {
				return nil // those that are late hear it too
			}
		}
	}
	return p.minority(heard, failed)
}

// maxTold bounds the beats under way to one guardian: those that say nothing new wait for the others to be heard.
const maxTold = 2

var errLagging = errors.New("it has not answered the beats before")

// telling counts the beats under way to a guardian, and reports whether there may be so many.
func (p *Panel) telling(i, n int) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.told[i] += n
	return p.told[i] <= maxTold
}

// unsure is the newest voucher of a lease that a guardian was asked to sign and has not.
type unsure struct {
	ask    *nodepb.GuardRequest_Voucher
	failed bool // it is not under way any more
}

// catchUp sends a returned guardian the messages that it missed: it would take vouchers for overdue.
func (p *Panel) catchUp(ctx context.Context, i int, m Member) {
	var missed []*nodepb.GuardRequest_Voucher
	p.mu.Lock()
	for _, u := range p.unsure[i] {
		if u.failed {
			missed = append(missed, u.ask)
			u.failed = false
		}
	}
	p.mu.Unlock()
	for _, v := range missed {
		_, err := p.ask(ctx, m, &nodepb.GuardRequest{Op: &nodepb.GuardRequest_Voucher_{Voucher: v}})
		p.heard(i, v, !unheard(err))
	}
}

// unheard reports whether a guardian may not have processed a request.
func unheard(err error) bool {
	var r *stream.Refused
	return err != nil && (!errors.As(err, &r) ||
		r.Code == stream.CodeBusy || r.Code == stream.CodeClosing || r.Code == CodeClock)
}

// asking notes that all guardians are asked for a voucher, instead of those before.
func (p *Panel) asking(id market.LeaseID, v *nodepb.GuardRequest_Voucher) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for i := range p.unsure {
		p.unsure[i][id] = &unsure{ask: v}
	}
}

// heard notes whether a guardian heard of a lease as it was then.
func (p *Panel) heard(i int, v *nodepb.GuardRequest_Voucher, yes bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for id, u := range p.unsure[i] {
		switch {
		case u.ask != v:
		case yes:
			delete(p.unsure[i], id)
		default:
			u.failed = true
		}
	}
}

func (p *Panel) beat(state *State) (*nodepb.GuardRequest, error) {
	op := &nodepb.GuardRequest_Beat{}
	if state != nil {
		word, err := p.word(wordState, state.hash())
		if err != nil {
			return nil, err
		}
		op.State = said{*state, word}.pb()
	}
	return &nodepb.GuardRequest{Op: &nodepb.GuardRequest_Beat_{Beat: op}}, nil
}

// word signs this peer's statement as the supervisor.
func (p *Panel) word(kind byte, content sign.Hash) (Word, error) {
	epoch, grant := p.Epoch()
	sig, err := p.cfg.Key.Sign(preimage(p.domain, p.cfg.Charter.Job, epoch, kind, content))
	if err != nil {
		return Word{}, fmt.Errorf("signing for the guardians: %w", err)
	}
	return Word{Epoch: epoch, Grant: grant, Signature: sig}, nil
}

// Dismiss makes all guardians forget the job. Its error names those that it could not reach; they forget it by
// themselves when its time is over.
func (p *Panel) Dismiss(ctx context.Context) error {
	answers := everyone(ctx, p, func(ctx context.Context, _ int, m Member) (struct{}, error) {
		dismiss := &nodepb.GuardRequest_Dismiss_{Dismiss: &nodepb.GuardRequest_Dismiss{}}
		_, err := p.ask(ctx, m, &nodepb.GuardRequest{Op: dismiss})
		if refused(err, CodeUnknown) {
			err = nil
		}
		return struct{}{}, err
	})
	failed := map[int]error{}
	for range p.cfg.Members {
		a, err := next(ctx, answers)
		if err != nil {
			return errors.Join(p.minority(len(p.cfg.Members)-len(failed), failed), err)
		}
		if a.err != nil {
			failed[a.from] = a.err
		}
	}
	if len(failed) > 0 {
		return p.minority(len(p.cfg.Members)-len(failed), failed)
	}
	return nil
}
