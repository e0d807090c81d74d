package guardian

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/libp2p/go-libp2p/core/peer"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/node/nodepb"
	"github.com/starling-network/starling/node/protocol"
	"github.com/starling-network/starling/p2p"
	"github.com/starling-network/starling/p2p/stream"
)

// PanelConfig is the configuration of a Panel.
type PanelConfig struct {
	Host    *p2p.Host
	Genesis market.Genesis
	Key     sign.Signer // of this peer: the owner, or a guardian
	Charter Charter
	Members []Member // in the order of Charter.Keys
	Local   Local    // this peer's service, called directly if it is one of the guardians; optional
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

	command command
	links   []*link // to the members
	sent    sent

	ctx    context.Context // of work that continues after an answer
	cancel context.CancelFunc
	wg     sync.WaitGroup
}

// settleTime is the wait for the remaining guardians after the threshold, for requests that need all of their data.
// lagTime is the time for slow guardians to receive a request.
const (
	settleTime = 300 * time.Millisecond
	lagTime    = 10 * time.Second
)

// NewPanel speaks to the guardians of one job. Close it.
func NewPanel(cfg PanelConfig) *Panel {
	p := &Panel{
		cfg: cfg, domain: cfg.Genesis.Domain(), tag: cfg.Genesis.Tag(),
	}
	p.command.charter, p.command.domain = cfg.Charter, p.domain
	p.command.epoch, p.command.grant = max(cfg.Epoch, 1), cfg.Grant
	for range cfg.Members {
		p.links = append(p.links, &link{unsure: map[market.LeaseID]*unsure{}})
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
func (p *Panel) Epoch() (epoch uint64, grant []byte) { return p.command.get() }

// Supervises reports whether that epoch is this peer's.
func (p *Panel) Supervises() bool {
	epoch, _ := p.Epoch()
	return p.cfg.Charter.Supervisor(epoch) == p.cfg.Key.Key()
}

// Remember adds the guardian's addresses to the host's address book, and returns its id.
func (m Member) Remember(h *p2p.Host) (peer.ID, error) { return h.Remember(m.Key, m.Addrs) }

func ask(ctx context.Context, h *p2p.Host, tag string, m Member, req *nodepb.GuardRequest) (*nodepb.GuardReply, error) {
	id, err := m.Remember(h)
	if err != nil {
		return nil, err
	}
	return protocol.Guard.Call(ctx, h, tag, id, req)
}

// ask sends a request to one guardian, under the newest epoch.
func (p *Panel) ask(ctx context.Context, m Member, req *nodepb.GuardRequest) (*nodepb.GuardReply, error) {
	epoch, grant := p.Epoch()
	full := &nodepb.GuardRequest{Job: p.cfg.Charter.Job[:], Epoch: epoch, Grant: grant, Op: req.Op}
	if p.cfg.Local != nil && m.Key == p.cfg.Key.Key() {
		ctx, cancel := context.WithTimeout(ctx, protocol.QuickAnswer)
		defer cancel()
		return p.cfg.Local.Answer(ctx, p.cfg.Key.Key(), full)
	}
	for wait := 20 * time.Millisecond; ; wait *= 2 {
		reply, err := ask(ctx, p.cfg.Host, p.tag, m, full)
		if !Refused(err, stream.CodeBusy) || wait > time.Second {
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

// everyone sends a request to all guardians at once. The channel has room for all answers, so reading them is optional.
// Requests under way when ctx ends continue for lagTime, so that slow guardians receive them too.
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

// superseded verifies a guardian's report of another supervisor. A false report has no proof.
func (p *Panel) superseded(ctx context.Context, m Member, err error) error {
	if !Refused(err, CodeSuperseded) && !Refused(err, CodeNotYours) {
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

// inquire requests the supervisor's identity from a guardian. A false answer has no proof.
func (p *Panel) inquire(ctx context.Context, m Member) {
	read := &nodepb.GuardRequest_Read{After: lastLease[:]}
	reply, err := p.ask(ctx, m, &nodepb.GuardRequest{Op: &nodepb.GuardRequest_Read_{Read: read}})
	if st := reply.GetStanding(); err == nil {
		_ = p.command.learn(st.GetEpoch(), st.GetGrant())
	}
}

// lastLease is after all others: a guardian's answer to a read after it has only the supervisor.
var lastLease = [32]byte(slices.Repeat([]byte{0xff}, 32))
