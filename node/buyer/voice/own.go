package voice

import (
	"context"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/node/buyer/leases"
	"github.com/starling-network/starling/node/buyer/record"
	"github.com/starling-network/starling/node/job"
	"github.com/starling-network/starling/verify"
)

// Own is the peer's own voice.
type Own struct {
	key    sign.Signer
	domain sign.Domain
	set    market.KeySet
}

// NewOwn returns the voice of a peer's key.
func NewOwn(g market.Genesis, key sign.Signer) (*Own, error) {
	set, err := market.NewKeySet(1, key.Key())
	return &Own{key, g.Domain(), set}, err
}

// Key implements leases.Principal.
func (o *Own) Key() sign.Signer { return o.key }

// Alone implements leases.Principal.
func (o *Own) Alone() bool { return true }

// Epoch implements leases.Principal.
func (o *Own) Epoch() uint64 { return 0 }

// Changed implements leases.Principal.
func (o *Own) Changed(context.Context, *leases.Lease) {}

// Voucher implements leases.Principal.
func (o *Own) Voucher(_ context.Context, _ *leases.Lease, v verify.Voucher) (verify.SignedVoucher, error) {
	return verify.SignVoucher(o.domain, v, o.set, o.key)
}

// Keys returns the key that signs the vouchers.
func (o *Own) Keys() market.KeySet { return o.set }

// Terms returns the name of a job in its leases.
func (o *Own) Terms(spec job.Job, salt []byte) (sign.Hash, error) { return record.Terms(spec, salt) }
