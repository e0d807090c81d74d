package guardian

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/node/nodepb"
	"github.com/starling-network/starling/verify"
)

// SignVoucher collects the guardians' signatures on the voucher of the lease's payer, and sends them the lease. Call it
// also for a stopped or settled payer: otherwise its voucher seems overdue. It returns at the threshold; the other
// guardians receive the request later.
func (p *Panel) SignVoucher(ctx context.Context, l Lease) (verify.SignedVoucher, error) {
	epoch, grant := p.Epoch()
	signed, err := p.cfg.Charter.SignLease(p.cfg.Genesis, p.cfg.Key, epoch, grant, l)
	if err != nil {
		return verify.SignedVoucher{}, err
	}
	v := signed.payer.Voucher()
	if v == nil {
		return verify.SignedVoucher{}, fmt.Errorf("lease %s has no voucher to sign", l.ID().Short())
	}
	op := &nodepb.GuardRequest_Voucher{Lease: signed.PB()}
	for _, to := range p.links {
		to.asking(l.ID(), op)
	}
	heard := func(i int, err error) { p.links[i].heard(op, !unheard(err)) }
	return p.vouch(ctx, *v, &nodepb.GuardRequest{Op: &nodepb.GuardRequest_Voucher_{Voucher: op}}, heard)
}

// Wage collects the other guardians' signatures on this one's earnings.
func (p *Panel) Wage(ctx context.Context, v verify.Voucher) (verify.SignedVoucher, error) {
	b := v.Marshal()
	wage := &nodepb.GuardRequest_Wage_{Wage: &nodepb.GuardRequest_Wage{Voucher: b[:]}}
	return p.vouch(ctx, v, &nodepb.GuardRequest{Op: wage}, func(int, error) {})
}

// vouch collects signatures under a voucher. each is called with every answer, from many goroutines.
func (p *Panel) vouch(
	ctx context.Context, v verify.Voucher, req *nodepb.GuardRequest, each func(i int, err error),
) (verify.SignedVoucher, error) {
	b := v.Marshal()
	preimage := p.domain.Preimage(sign.TagVoucher, b[:])
	answers := everyone(ctx, p, func(ctx context.Context, i int, m Member) (sign.Signature, error) {
		reply, err := p.ask(ctx, m, req)
		each(i, err)
		if err != nil {
			return sign.Signature{}, p.superseded(ctx, m, err)
		}
		return signatureOf(m, reply.GetSigned().GetSignature(), preimage)
	})
	out := verify.SignedVoucher{Voucher: v, Signatures: verify.Signatures{Set: p.cfg.Charter.Keys}}
	failed := map[int]error{}
	for range p.cfg.Members {
		a, err := next(ctx, answers)
		switch {
		case err != nil:
			return out, errors.Join(p.minority(len(out.Sigs), failed), err)
		case errors.Is(a.err, ErrSuperseded):
			return out, a.err
		case a.err != nil:
			failed[a.from] = a.err
			continue
		}
		if out, err = out.With(p.domain, given{p.cfg.Members[a.from].Key, a.value}); err != nil {
			return out, err
		}
		if len(out.Sigs) >= int(out.Set.Threshold) {
			return out, nil
		}
	}
	return out, p.minority(len(out.Sigs), failed)
}

// signatureOf is a guardian's signature, if it is one.
func signatureOf(m Member, b, preimage []byte) (sign.Signature, error) {
	if len(b) != sign.SignatureSize {
		return sign.Signature{}, fmt.Errorf("a signature of %d bytes", len(b))
	}
	sig := sign.Signature(b)
	return sig, sign.Verify(m.Key, preimage, sig)
}

// given is a signer that returns a signature made elsewhere.
type given struct {
	key sign.Key
	sig sign.Signature
}

func (g given) Key() sign.Key                       { return g.key }
func (g given) Sign([]byte) (sign.Signature, error) { return g.sig, nil }

// remote is a guardian as a signer of transactions.
type remote struct {
	ctx  context.Context // of the panel
	p    *Panel
	m    Member
	link *link
}

func (r *remote) Key() sign.Key { return r.m.Key }

// signTime bounds a guardian's time to sign a transaction: afterwards the sender requests the signature of another.
const signTime = 2 * time.Second

func (r *remote) Sign(message []byte) (sign.Signature, error) {
	if r.link.isDeaf() {
		return sign.Signature{}, fmt.Errorf("guardian %s did not receive the last beat", r.m.Key.Short())
	}
	ctx, cancel := context.WithTimeout(r.ctx, signTime)
	defer cancel()
	witness := &nodepb.GuardRequest_Witness_{Witness: &nodepb.GuardRequest_Witness{Message: message}}
	reply, err := r.p.ask(ctx, r.m, &nodepb.GuardRequest{Op: witness})
	if err != nil {
		return sign.Signature{}, r.p.superseded(ctx, r.m, err)
	}
	return signatureOf(r.m, reply.GetSigned().GetSignature(), message)
}

// Members are the guardians, in the order of their keys.
func (p *Panel) Members() []Member { return slices.Clone(p.cfg.Members) }

// Witnesses returns the other guardians as signers of transactions. It sends no request. They live as long as the
// panel.
func (p *Panel) Witnesses() []sign.Signer {
	var out []sign.Signer
	for i, m := range p.cfg.Members {
		if m.Key == p.cfg.Key.Key() { // the sender signs it with that key anyway
			continue
		}
		out = append(out, &remote{ctx: p.ctx, p: p, m: m, link: p.links[i]})
	}
	return out
}
