// Package guardiantest has a guarded job for tests: a charter, leases with both sides of their meters, and grants.
package guardiantest

import (
	"context"
	"crypto/sha256"
	"testing"
	"time"

	"github.com/ipfs/go-cid"
	"github.com/multiformats/go-multihash"

	"github.com/starling-network/starling/chain"
	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/node/buyer/guardian"
	"github.com/starling-network/starling/p2p"
	"github.com/starling-network/starling/p2p/p2ptest"
	"github.com/starling-network/starling/verify"
)

// Network has no program: 10 slots of 100 ms in an interval, so that a supervisor is silent after 1.5 s.
var Network = market.Genesis{
	Network: "test", Chain: sign.Sum([]byte("chain")), Symbol: "STAR", SlotMillis: 100, IntervalSlots: 10,
	Simulated: true,
}

// FirstSlot is the slot in which a Clock begins.
const FirstSlot = 1000

// PeerKey is the key of host i.
func PeerKey(i int) sign.Private {
	seed, err := p2p.SeedOf(p2ptest.Key(i))
	if err != nil {
		panic(err)
	}
	return sign.NewPrivate(seed)
}

// Named is the key of a name.
func Named(name string) sign.Private { return sign.NewPrivate(sha256.Sum256([]byte(name))) }

// The parts of the guarded job.
var (
	JobKey   = Named("job")
	Provider = Named("provider")
	JobTerms = sign.Sum([]byte("terms"))
)

// FileOf is a file with that content.
func FileOf(content string) guardian.File {
	mh, err := multihash.Sum([]byte(content), multihash.SHA2_256, -1)
	if err != nil {
		panic(err)
	}
	return guardian.File{CID: cid.NewCidV1(cid.Raw, mh), Size: int64(len(content))}
}

// CharterOf is the charter of a job of host 0, guarded by the hosts 1 to n. The members are in the order of their keys.
func CharterOf(t interface{ Fatal(...any) }, n int, threshold uint8) (guardian.Charter, []guardian.Member) {
	var keys []sign.Key
	for i := range n {
		keys = append(keys, PeerKey(i+1).Key())
	}
	ks, err := market.NewKeySet(threshold, keys...)
	if err != nil {
		t.Fatal(err)
	}
	var members []guardian.Member
	for _, k := range ks.Keys {
		members = append(members, guardian.Member{Key: k})
	}
	return guardian.Charter{Job: JobTerms, Owner: PeerKey(0).Key(), Buyer: JobKey.Key(), Keys: ks}, members
}

// HostOf is the host with that key, or -1.
func HostOf(k sign.Key) int {
	for i := range 16 {
		if PeerKey(i).Key() == k {
			return i
		}
	}
	return -1
}

// NewLease is a lease of the job; n makes it different from others.
func NewLease(c guardian.Charter, n byte, start market.Slot) market.Lease {
	core := market.LeaseCore{
		Version: market.LeaseVersion, Units: 1, Order: market.OrderID{1}, Buyer: c.Buyer, Provider: Provider.Key(),
		Payout:    sign.Key{7},
		UnitsRoot: market.UnitsRoot([]market.UnitID{{9}}), Terms: c.Job, VoucherKeys: c.Keys.Hash(),
		Rate: 2_500_000, Cap: 5000, Start: start, ActivateBefore: start + 20, End: start + 1000, Nonce: market.Nonce{n},
	}
	l := market.Lease{Core: core}
	l.ProviderSig, _ = core.Sign(Network.Domain(), Provider)
	l.BuyerSig, _ = core.Sign(Network.Domain(), JobKey)
	return l
}

// Clock derives the slot from the time since it began.
type Clock struct{ Began time.Time }

// Tip implements slots.Source.
func (c Clock) Tip(context.Context) (chain.Tip, error) {
	now := FirstSlot + market.Slot(time.Since(c.Began)/(100*time.Millisecond))
	return chain.Tip{Confirmed: now, Final: now}, nil
}

// Escrowed is a network with escrows.
func Escrowed() market.Genesis {
	g := Network
	g.Simulated = false
	g.Program, g.Escrow, g.Mint = Named("program").Key(), Named("network").Key(), Named("mint").Key()
	return g
}

// Must fails the test on an error.
func Must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// Granting is a proof that an epoch was granted to its supervisor.
func Granting(t testing.TB, c guardian.Charter, epoch uint64) []byte {
	t.Helper()
	g := verify.SignedSupervisionGrant{
		SupervisionGrant: verify.SupervisionGrant{
			Version: 1, Job: c.Job, Epoch: epoch, Supervisor: c.Supervisor(epoch), Guardians: c.Keys.Hash(),
		},
		Signatures: verify.Signatures{Set: c.Keys},
	}
	for _, k := range c.Keys.Keys[:c.Keys.Threshold] {
		var err error
		g, err = g.With(Network.Domain(), PeerKey(HostOf(k)))
		Must(t, err)
	}
	return g.Marshal()
}

// Pay gives each guardian of a charter a wage.
func Pay(c guardian.Charter, members []guardian.Member) {
	for i := range members {
		members[i].Wage = &market.LeaseCore{
			Version: market.LeaseVersion, Units: 1, Order: market.OrderID{2}, Buyer: c.Buyer, Provider: members[i].Key,
			Payout:    sign.Key{7},
			UnitsRoot: market.UnitsRoot([]market.UnitID{{8}}), Terms: c.Job, VoucherKeys: c.Keys.Hash(),
			Rate: 1, Cap: 1, Start: FirstSlot,
			ActivateBefore: FirstSlot + 999, End: FirstSlot + 1000,
		}
	}
}
