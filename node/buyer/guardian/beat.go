package guardian

import (
	"context"
	"errors"

	"github.com/ipfs/go-cid"

	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/node/nodepb"
	"github.com/starling-network/starling/p2p/stream"
)

// Beat sends a heartbeat to the guardians, with the job's state if it changed; nil means unchanged. It returns
// ErrMinority if fewer guardians than the threshold received it, and ErrSuperseded if another peer supervises.
func (p *Panel) Beat(ctx context.Context, state *State) error {
	req, err := p.beat(state)
	if err != nil {
		return err
	}
	if state != nil {
		p.sent.set(*state)
	}
	answers := everyone(ctx, p, func(ctx context.Context, i int, m Member) (struct{}, error) {
		l := p.links[i]
		defer l.end()
		if !l.begin() && state == nil {
			return struct{}{}, errLagging
		}
		reply, err := p.ask(ctx, m, req)
		if err == nil {
			if files, ok := p.sent.files(reply.GetDone().GetVersion()); ok {
				l.keeps(SpareOf(files, reply.GetDone().GetSpare()))
			}
			p.catchUp(ctx, l, m)
		}
		l.reached(err == nil)
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
				return nil // slow guardians receive it too
			}
		}
	}
	return p.minority(heard, failed)
}

var errLagging = errors.New("the guardian has not answered earlier beats")

// catchUp sends a returned guardian the vouchers that it missed: it would take them for overdue.
func (p *Panel) catchUp(ctx context.Context, l *link, m Member) {
	for _, v := range l.missed() {
		_, err := p.ask(ctx, m, &nodepb.GuardRequest{Op: &nodepb.GuardRequest_Voucher_{Voucher: v}})
		l.heard(v, !unheard(err))
	}
}

// unheard reports whether a guardian may not have processed a request.
func unheard(err error) bool {
	var r *stream.Refused
	return err != nil && (!errors.As(err, &r) ||
		r.Code == stream.CodeBusy || r.Code == stream.CodeClosing || r.Code == CodeClock)
}

func (p *Panel) beat(state *State) (*nodepb.GuardRequest, error) {
	op := &nodepb.GuardRequest_Beat{}
	if state != nil {
		epoch, grant := p.Epoch()
		signed, err := p.cfg.Charter.SignState(p.domain, p.cfg.Key, epoch, grant, *state)
		if err != nil {
			return nil, err
		}
		op.State = signed.PB()
	}
	return &nodepb.GuardRequest{Op: &nodepb.GuardRequest_Beat_{Beat: op}}, nil
}

// Keepers returns the guardians whose last answer to this peer said that they store a spare file of the job's state.
// Nothing proves it.
func (p *Panel) Keepers(c cid.Cid) (out []sign.Key) {
	for i, m := range p.cfg.Members {
		if p.links[i].has(c) {
			out = append(out, m.Key)
		}
	}
	return out
}
