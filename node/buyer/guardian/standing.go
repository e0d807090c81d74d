package guardian

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/node/nodepb"
	"github.com/starling-network/starling/verify"
)

// Standing is a job's standing merged from the guardians' answers: the newest of each supervisor statement.
type Standing struct {
	Epoch   uint64 // newest that was granted
	Grant   []byte // of it; nil under the owner's first
	State   *State // optional
	Leases  []Lease
	Answers int // guardians

	state  *SignedState
	leases map[market.LeaseID]*SignedLease
}

// SignedState is State with its supervisor's signature; nil if there is none.
func (s *Standing) SignedState() *SignedState { return s.state }

// SignedLeases are Leases with the signatures of their supervisors.
func (s *Standing) SignedLeases() map[market.LeaseID]*SignedLease { return s.leases }

// Read requests the job's standing from all guardians. If fewer than the threshold answered, it returns the standing
// found and ErrMinority.
func (p *Panel) Read(ctx context.Context) (Standing, error) {
	return p.collect(ctx, everyone(ctx, p, func(ctx context.Context, _ int, m Member) (*view, error) {
		return p.read(ctx, m, &nodepb.GuardRequest{Op: &nodepb.GuardRequest_Read_{Read: &nodepb.GuardRequest_Read{}}})
	}), nil)
}

// view is one guardian's report of a job's standing, limited to data that a supervisor signed.
type view struct {
	signature []byte
	epoch     uint64
	grant     []byte
	state     *SignedState
	leases    map[market.LeaseID]*SignedLease
	last      market.LeaseID // of leases, which come in the order of their ids
}

// read requests the whole standing from one guardian. The first request is first.
func (p *Panel) read(ctx context.Context, m Member, first *nodepb.GuardRequest) (*view, error) {
	v := &view{leases: map[market.LeaseID]*SignedLease{}}
	for req := first; ; {
		reply, err := p.ask(ctx, m, req)
		if err != nil {
			return nil, err
		}
		st := reply.GetStanding()
		if req == first {
			err = v.takeHead(p.cfg.Charter, p.domain, st)
		}
		if err != nil {
			return nil, err
		}
		if err := v.takeLeases(p.cfg.Charter, p.cfg.Genesis, st); err != nil {
			return nil, err
		}
		if !st.GetMore() || len(st.Leases) == 0 || len(v.leases) > MaxLeases {
			return v, nil
		}
		req = &nodepb.GuardRequest{Op: &nodepb.GuardRequest_Read_{Read: &nodepb.GuardRequest_Read{After: v.last[:]}}}
	}
}

// takeHead reads the supervisor and the state.
func (v *view) takeHead(c Charter, d sign.Domain, st *nodepb.GuardReply_Standing) error {
	v.signature, v.epoch, v.grant = st.GetSignature(), st.GetEpoch(), st.GetGrant()
	if err := c.CheckGrant(d, v.epoch, v.grant); err != nil {
		return err
	}
	if pb := st.GetState(); pb != nil {
		signed, err := c.ReadState(d, pb)
		if err != nil {
			return err
		}
		v.state = &signed
	}
	return nil
}

// takeLeases reads a page of leases.
func (v *view) takeLeases(c Charter, g market.Genesis, st *nodepb.GuardReply_Standing) error {
	for _, pb := range st.GetLeases() {
		k, err := ParseLease(pb)
		if err == nil {
			err = c.VerifyLease(g.Domain(), k)
		}
		if err == nil {
			k, err = c.CheckLease(g, k, nil)
		}
		if err == nil && k.payer.Voucher() == nil {
			err = fmt.Errorf("lease %s without a voucher", k.ID().Short())
		}
		if id := k.ID(); err == nil && len(v.leases) > 0 && slices.Compare(id[:], v.last[:]) <= 0 {
			err = fmt.Errorf("lease %s comes out of order", id.Short())
		}
		if err != nil {
			return err
		}
		v.last = k.ID()
		v.leases[v.last] = &k
	}
	return nil
}

// collect merges the guardians' answers until all answered, or enough of them and a moment passed. each is called with
// every answer.
func (p *Panel) collect(
	ctx context.Context, answers <-chan answer[*view], each func(m Member, v *view) error,
) (Standing, error) {
	out := Standing{Epoch: 1, leases: map[market.LeaseID]*SignedLease{}}
	failed := map[int]error{}
	var late <-chan time.Time
	for waiting := len(p.cfg.Members); waiting > 0; waiting-- {
		var a answer[*view]
		select {
		case a = <-answers:
		case <-late:
			return p.merged(out), nil
		case <-ctx.Done():
			if out.Answers >= int(p.cfg.Charter.Keys.Threshold) {
				return p.merged(out), nil
			}
			return p.merged(out), errors.Join(p.minority(out.Answers, failed), ctx.Err())
		}
		if a.err == nil && each != nil {
			a.err = each(p.cfg.Members[a.from], a.value)
		}
		if a.err != nil {
			failed[a.from] = a.err
			continue
		}
		out.add(a.value)
		if out.Answers == int(p.cfg.Charter.Keys.Threshold) {
			late = time.After(settleTime)
		}
	}
	if out.Answers < int(p.cfg.Charter.Keys.Threshold) {
		return p.merged(out), p.minority(out.Answers, failed)
	}
	return p.merged(out), nil
}

func (s *Standing) add(v *view) {
	s.Answers++
	if v.epoch > s.Epoch {
		s.Epoch, s.Grant = v.epoch, v.grant
	}
	if v.state != nil && v.state.Newer(s.state) {
		s.state = v.state
	}
	for id, k := range v.leases {
		if k.Newer(s.leases[id]) {
			s.leases[id] = k
		}
	}
}

func (p *Panel) merged(s Standing) Standing {
	_ = p.command.learn(s.Epoch, s.Grant) // it was checked
	if s.state != nil {
		st := s.state.State
		s.State = &st
	}
	for _, k := range s.leases {
		s.Leases = append(s.Leases, k.Lease)
	}
	return s
}

// grantTries is the number of requests for a grant under a higher epoch, after guardians report one.
const grantTries = 3

// Grant makes this peer the job's supervisor by the guardians, under the next epoch that is its own, and returns the
// job's standing by their data. An owner always gets the grant; a guardian only if the present supervisor failed. After
// an error Standing has the supervisor if that is another one than was known; its Epoch is 0 otherwise.
func (p *Panel) Grant(ctx context.Context) (Standing, error) {
	for try := 1; ; try++ {
		before, _ := p.Epoch()
		standing, err := p.grantOnce(ctx, p.cfg.Charter.NextEpoch(p.cfg.Key.Key(), before))
		if err == nil {
			// until they receive it, they obey the previous one
			if err = p.Beat(ctx, nil); !errors.Is(err, ErrSuperseded) {
				return standing, nil
			}
		}
		now, grant := p.Epoch()
		if now == before {
			return Standing{}, err
		}
		if try == grantTries || p.cfg.Key.Key() != p.cfg.Charter.Owner {
			return Standing{Epoch: now, Grant: grant}, errors.Join(&Superseded{Epoch: now, Grant: grant}, err)
		}
	}
}

func (p *Panel) grantOnce(ctx context.Context, epoch uint64) (Standing, error) {
	if epoch == 0 {
		return Standing{}, fmt.Errorf("%w: this peer has no part in the job", ErrCharter)
	}
	g := verify.SignedSupervisionGrant{SupervisionGrant: verify.SupervisionGrant{
		Version: verify.GrantVersion, Job: p.cfg.Charter.Job, Epoch: epoch, Supervisor: p.cfg.Key.Key(),
		Guardians: p.cfg.Charter.Keys.Hash(),
	}, Signatures: verify.Signatures{Set: p.cfg.Charter.Keys}}
	if p.cfg.Slots != nil {
		g.Slot, _ = p.cfg.Slots() // informative only
	}
	b := g.SupervisionGrant.Marshal()
	preimage := p.domain.Preimage(sign.TagSupervision, b[:])
	grant := &nodepb.GuardRequest_Grant{Epoch: epoch, Slot: uint64(g.Slot)}
	first := &nodepb.GuardRequest{Op: &nodepb.GuardRequest_GrantTo{GrantTo: grant}}
	standing, err := p.collect(ctx, everyone(ctx, p, func(ctx context.Context, _ int, m Member) (*view, error) {
		v, err := p.read(ctx, m, first)
		if Refused(err, CodeSuperseded) {
			p.inquire(ctx, m)
		}
		return v, err
	}), func(m Member, v *view) error {
		sig, err := signatureOf(m, v.signature, preimage)
		if err == nil {
			g, err = g.With(p.domain, given{m.Key, sig})
		}
		return err
	})
	if err != nil {
		return Standing{}, err
	}
	signed := g.Marshal()
	if err := p.command.learn(epoch, signed); err != nil {
		return Standing{}, err
	}
	standing.Epoch, standing.Grant = p.Epoch()
	if standing.Epoch > epoch {
		return Standing{}, &Superseded{Epoch: standing.Epoch, Grant: standing.Grant}
	}
	return standing, nil
}

// Receipts returns the receipts of a lease that the guardians have, in order, each signed by both. If fewer than the
// threshold answered, it returns those found and ErrMinority.
func (p *Panel) Receipts(ctx context.Context, core market.LeaseCore) ([]verify.Receipt, error) {
	answers := everyone(ctx, p, func(ctx context.Context, _ int, m Member) ([]verify.Receipt, error) {
		return p.receipts(ctx, m, core)
	})
	found, failed, got := map[uint64]verify.Receipt{}, map[int]error{}, 0
	var ended error
	for range p.cfg.Members {
		a, err := next(ctx, answers)
		if err != nil {
			ended = err
			break
		}
		if a.err != nil {
			failed[a.from] = a.err
			continue
		}
		got++
		for _, r := range a.value {
			found[r.Seq] = r
		}
	}
	var out []verify.Receipt
	for _, seq := range slices.Sorted(maps.Keys(found)) {
		out = append(out, found[seq])
	}
	if got < int(p.cfg.Charter.Keys.Threshold) {
		return out, errors.Join(p.minority(got, failed), ended)
	}
	return out, nil
}

func (p *Panel) receipts(ctx context.Context, m Member, core market.LeaseCore) ([]verify.Receipt, error) {
	var out []verify.Receipt
	id := core.ID()
	for last := uint64(0); ; {
		after := &nodepb.GuardRequest_Receipts{Lease: id[:], After: last}
		reply, err := p.ask(ctx, m, &nodepb.GuardRequest{Op: &nodepb.GuardRequest_Receipts_{Receipts: after}})
		if err != nil {
			return nil, err
		}
		list := reply.GetReceipts()
		for _, b := range list.GetReceipts() {
			r, err := verify.UnmarshalReceipt(b)
			switch {
			case err != nil:
				return nil, err
			case r.Lease != id || r.Provider != core.Provider || r.Buyer != core.Buyer || r.Seq <= last:
				return nil, fmt.Errorf("receipt %d is of another lease, or out of order", r.Seq)
			}
			if err := r.CheckSignatures(p.domain); err != nil {
				return nil, err
			}
			last = r.Seq
			out = append(out, r)
		}
		if !list.GetMore() || len(list.Receipts) == 0 || len(out) > MaxReceipts {
			return out, nil
		}
	}
}
