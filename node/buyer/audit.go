package buyer

import (
	"fmt"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/verify"
)

// Check verifies a lease's account offline: that both signed the lease, that its
// receipts form a chain that both signed, that the voucher is good for the lease
// and says what is owed, and that the final receipt, if there is one, says so too.
func (a LeaseAccount) Check(d sign.Domain) error {
	l, err := market.UnmarshalLease(a.Signed)
	if err != nil {
		return err
	}
	if err := l.Check(d); err != nil {
		return err
	}
	if l.Core.ID() != a.Lease || l.Core.Provider != a.Provider || l.Core.Payout != a.Payout || l.Core.Rank != a.Rank || l.Core.RankEpoch != a.Epoch {
		return fmt.Errorf("%w: the account is not the signed lease's", market.ErrMalformed)
	}
	if len(a.Voucher) == 0 {
		if a.Owed != 0 || len(a.Receipts) > 0 {
			return fmt.Errorf("%w: %d is owed without a voucher", market.ErrMalformed, a.Owed)
		}
		return nil
	}
	v, err := verify.UnmarshalSignedVoucher(a.Voucher)
	if err != nil {
		return err
	}
	if err := v.Check(d, l.Core); err != nil {
		return fmt.Errorf("voucher: %w", err)
	}
	if v.Cumulative != a.Owed {
		return fmt.Errorf("%w: %d is owed, the voucher says %d", market.ErrMalformed, a.Owed, v.Cumulative)
	}
	if len(a.Receipts) == 0 {
		return nil
	}
	if err := verify.CheckChain(d, l.Core, a.Receipts); err != nil {
		return err
	}
	if last := a.Receipts[len(a.Receipts)-1]; last.Cumulative > v.Cumulative || last.Final() && last.Cumulative != v.Cumulative {
		return fmt.Errorf("%w: the receipts say %d, the voucher %d", market.ErrMalformed, last.Cumulative, v.Cumulative)
	}
	return nil
}
