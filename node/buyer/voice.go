package buyer

import (
	"context"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/node/job"
	"github.com/starling-network/starling/verify"
)

// voice is in whose name a job's leases are bought, and by whose word they are paid.
type voice interface {
	// key signs orders, leases and receipts, which name it as the buyer.
	key() sign.Signer
	// agent is the peer that is to be talked to about them; zero: the one of that key.
	agent() sign.Key
	// keys sign the vouchers.
	keys() market.KeySet
	// epoch is the number under which the job is supervised; 0 where there are no guardians.
	epoch() uint64
	// terms is what leases name the job by, salted where nobody is to guess it; guardians' word names it otherwise.
	terms(spec job.Job, salt []byte) (sign.Hash, error)
	// voucher has enough of keys sign a voucher that the lease's payer has issued.
	voucher(ctx context.Context, l *bought, v verify.Voucher) (verify.SignedVoucher, error)
	// changed is told of a lease that is not paid on. It must not wait.
	changed(ctx context.Context, l *bought)
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

func (o *own) key() sign.Signer    { return o.b.cfg.Key }
func (o *own) agent() sign.Key     { return sign.Key{} }
func (o *own) keys() market.KeySet { return o.set }
func (o *own) epoch() uint64       { return 0 }

func (o *own) changed(context.Context, *bought) {}

func (o *own) terms(spec job.Job, salt []byte) (sign.Hash, error) { return termsOf(spec, salt) }

func (o *own) voucher(_ context.Context, _ *bought, v verify.Voucher) (verify.SignedVoucher, error) {
	return verify.SignVoucher(o.b.domain, v, o.set, o.b.cfg.Key)
}

// termsOf commits to a job, and to the key that sets a detached one apart from an equal one.
func termsOf(spec job.Job, apart ...[]byte) (sign.Hash, error) {
	b, err := job.Marshal(spec)
	if err != nil {
		return sign.Hash{}, err
	}
	return sign.Sum(append([][]byte{[]byte("starling/terms/v1"), b}, apart...)...), nil
}
