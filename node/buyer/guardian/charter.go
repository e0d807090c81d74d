package guardian

import (
	"fmt"
	"slices"

	"github.com/starling-network/starling/chain/program/account"
	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/node/sealed"
	"github.com/starling-network/starling/verify"
)

// Charter is a job's owner and guardians.
type Charter struct {
	Job   sign.Hash     `json:"job"` // hash of the job's terms: market.LeaseCore.Terms
	Owner sign.Key      `json:"owner"`
	Buyer sign.Key      `json:"buyer"` // the job's key: market.LeaseCore.Buyer
	Keys  market.KeySet `json:"keys"`  // of the guardians
}

// Check reports whether a network's job can have these guardians: ErrCharter.
func (c Charter) Check(g market.Genesis) error {
	if err := c.Keys.Validate(); err != nil {
		return fmt.Errorf("%w: %w", ErrCharter, err)
	}
	most := MaxGuardians
	if !g.Program.IsZero() {
		most = min(most, account.MaxVoucherKeys)
	}
	switch n := len(c.Keys.Keys); {
	case n > most:
		return fmt.Errorf("%w: %d, at most %d", ErrCharter, n, most)
	case 2*int(c.Keys.Threshold) <= n:
		return fmt.Errorf("%w: %d of %d are no majority", ErrCharter, c.Keys.Threshold, n)
	case slices.Contains(c.Keys.Keys, c.Owner):
		return fmt.Errorf("%w: the owner cannot guard its own job", ErrCharter)
	case slices.Contains(c.Keys.Keys, c.Buyer) || c.Buyer == c.Owner:
		return fmt.Errorf("%w: the job's key must differ from the owner's and the guardians' keys", ErrCharter)
	}
	return nil
}

// Supervisor is the one peer that can supervise the job under an epoch: the owner under the first, then each guardian
// in the order of their keys, then the owner again. So no two peers ever supervise under one epoch, regardless of the
// guardians' signatures.
func (c Charter) Supervisor(epoch uint64) sign.Key {
	if i := (epoch - 1) % uint64(len(c.Keys.Keys)+1); i > 0 {
		return c.Keys.Keys[i-1]
	}
	return c.Owner
}

// NextEpoch is the first epoch after one under which a peer can supervise; 0 if there is none.
func (c Charter) NextEpoch(k sign.Key, after uint64) uint64 {
	for e := after + 1; e <= after+uint64(len(c.Keys.Keys)+1); e++ {
		if c.Supervisor(e) == k {
			return e
		}
	}
	return 0
}

// Turn is the number of guardians before a peer when the supervisor under an epoch falls silent.
func (c Charter) Turn(k sign.Key, epoch uint64) int {
	n := 0
	for e := epoch + 1; c.Supervisor(e) != k && n < len(c.Keys.Keys); e++ {
		if c.Supervisor(e) != c.Owner {
			n++
		}
	}
	return n
}

// Has reports whether a peer has a part in the job.
func (c Charter) Has(k sign.Key) bool { return k == c.Owner || slices.Contains(c.Keys.Keys, k) }

// CheckGrant verifies that grant proves the supervision of the job under the epoch. The first epoch needs no grant.
func (c Charter) CheckGrant(d sign.Domain, epoch uint64, grant []byte) error {
	if epoch <= 1 {
		if epoch == 0 || len(grant) > 0 {
			return fmt.Errorf("%w: epoch %d with a grant of %d bytes", ErrCharter, epoch, len(grant))
		}
		return nil
	}
	g, err := verify.UnmarshalSignedSupervisionGrant(grant)
	if err != nil {
		return err
	}
	if g.Epoch != epoch || g.Supervisor != c.Supervisor(epoch) {
		return fmt.Errorf("%w: granted is epoch %d to %s", ErrCharter, g.Epoch, g.Supervisor.Short())
	}
	return g.Check(d, c.Job, c.Keys.Hash())
}

// SealedFor is the purpose under which the job's key is sealed to its guardians. network is the genesis tag.
func SealedFor(network string, job sign.Hash) sealed.Purpose {
	return sealed.Purpose{Network: network, What: "ward", ID: job.String()}
}
