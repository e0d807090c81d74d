package buyer

import (
	"context"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/node/buyer/leases"
	"github.com/starling-network/starling/node/buyer/record"
	"github.com/starling-network/starling/node/job"
	"github.com/starling-network/starling/verify"
)

// voice is the identity that buys a job's leases.
type voice interface {
	leases.Principal
	// keys sign the vouchers.
	keys() market.KeySet
	// terms is the name of the job in its leases. It is salted where it must not be guessed; guardians name the job
	// otherwise.
	terms(spec job.Job, salt []byte) (sign.Hash, error)
}

// own is the peer's own voice.
type own struct {
	b   *Buyer
	set market.KeySet
}

func newOwn(b *Buyer) (*own, error) {
	set, err := market.NewKeySet(1, b.self)
	return &own{b, set}, err
}

func (o *own) Key() sign.Signer    { return o.b.cfg.Key }
func (o *own) Alone() bool         { return true }
func (o *own) keys() market.KeySet { return o.set }
func (o *own) Epoch() uint64       { return 0 }

func (o *own) Changed(context.Context, *leases.Lease) {}

func (o *own) terms(spec job.Job, salt []byte) (sign.Hash, error) { return record.Terms(spec, salt) }

func (o *own) Voucher(_ context.Context, _ *leases.Lease, v verify.Voucher) (verify.SignedVoucher, error) {
	return verify.SignVoucher(o.b.domain, v, o.set, o.b.cfg.Key)
}
