package harness

import (
	"cmp"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/ipfs/go-cid"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/lease"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/node/buyer"
	"github.com/starling-network/starling/node/proof"
	"github.com/starling-network/starling/verify"
)

// check fails the test unless the job of b ended as wanted and the money is right:
// every lease is paid once and for exactly what its voucher says, nothing else was
// paid, no token was made or lost, and a stranger finds the job's proof right, offline
// and against the chain.
func (n *Net) check(t *testing.T, b *Peer, j buyer.Job, want buyer.State) []buyer.LeaseAccount {
	t.Helper()
	if j.State != want {
		t.Fatalf("job ended as %s\n%s", j.Summary(), b.Why(j.ID))
	}
	if j.Paid != j.Owed {
		t.Errorf("job owes %d and paid %d", j.Owed, j.Paid)
	}
	if err := n.Chain.Check(); err != nil {
		t.Errorf("ledger: %v", err)
	}
	var sum market.Amount
	accounts, err := b.Node.Buyer().Receipts(t.Context(), j.ID)
	if err != nil {
		t.Fatal(err)
	}
	for _, a := range accounts {
		if got := n.Chain.Paid(a.Lease); got != a.Owed {
			t.Errorf("lease %s was paid %d, its vouchers say %d", a.Lease.Short(), got, a.Owed)
		}
		sum += a.Owed
	}
	if sum != j.Owed {
		t.Errorf("leases add up to %d, the job owes %d", sum, j.Owed)
	}
	p, err := proof.New(n.Genesis, j, accounts)
	if err != nil {
		t.Fatal(err)
	}
	verdict, err := p.Check()
	if err == nil {
		err = verdict.CheckAnchors(t.Context(), n.Chain.Ledger(b.Key.Key()))
	}
	if err != nil || verdict.Owed != j.Owed || verdict.Receipts != j.Receipts {
		t.Errorf("the job's proof: %d owed by %d receipts (%v), the job says %d by %d", verdict.Owed, verdict.Receipts, err, j.Owed, j.Receipts)
	}
	return accounts
}

// checkPayer fails the test unless the wallet of b paid for its ended jobs and nothing else.
func (n *Net) checkPayer(t *testing.T, b *Peer) {
	t.Helper()
	left := market.Amount(funds)
	for _, j := range b.Node.Buyer().Jobs() {
		left -= j.Owed
	}
	have, err := n.Chain.Ledger(b.Key.Key()).Balance(t.Context(), b.Key.Key())
	if err != nil || have != left {
		t.Errorf("the buyer's wallet holds %d, %d after its jobs (%v)", have, left, err)
	}
}

// span is one receipt under one unit.
type span struct {
	unit     market.UnitID
	from, to market.Slot
	lease    market.LeaseID
}

// checkQuiet fails the test unless provider p holds nothing any more, runs nothing,
// its journal can be restored, and no two of its receipts, by its own journal or by
// a buyer's, are for one unit in one slot.
func (n *Net) checkQuiet(t *testing.T, p *Peer, buyers ...*Peer) {
	t.Helper()
	if total, free := p.Node.Provider().Units(); free != total {
		t.Errorf("%s: %d of %d units are free in the end", name(p.i), free, total)
	}
	if r := p.Fake.Running(); r != 0 {
		t.Errorf("%s: %d programs run in the end", name(p.i), r)
	}
	units := map[market.LeaseID][]market.UnitID{}
	var recs []lease.Record
	p.list(t, kindHold, func(value []byte) {
		r, err := lease.UnmarshalRecord(value)
		if err != nil {
			t.Fatal(err)
		}
		recs = append(recs, r)
		units[r.Lease] = r.Units
		if r.State.Live() {
			t.Errorf("%s: hold %s is %s in the end", name(p.i), r.ID.Short(), r.State)
		}
	})
	book := lease.NewBook([]market.Unit{{}}, lease.Limits{
		Provider: p.Key.Key(), Payout: p.Key.Key(), Domain: n.Genesis.Domain(), SlotMillis: slotMillis, MinSlots: 1, MaxSlots: 1,
		HoldTTL: 1, MaxHolds: 1, MaxHoldsPerBuyer: 1, ActivateWithin: 1,
	})
	if _, err := book.Restore(recs); err != nil {
		t.Errorf("%s: its journal cannot be restored: %v", name(p.i), err)
	}
	var spans []span
	seen := map[sign.Hash]bool{}
	add := func(value []byte) {
		r, err := verify.UnmarshalReceipt(value)
		if err != nil {
			t.Fatal(err)
		}
		if r.Provider != p.Key.Key() || seen[r.Hash()] {
			return
		}
		seen[r.Hash()] = true
		for _, u := range units[r.Lease] {
			spans = append(spans, span{u, r.From, r.To, r.Lease})
		}
	}
	p.list(t, "sold", add)
	for _, b := range buyers {
		b.list(t, "receipt", add)
	}
	slices.SortFunc(spans, func(x, y span) int {
		return cmp.Or(slices.Compare(x.unit[:], y.unit[:]), cmp.Compare(x.from, y.from), cmp.Compare(x.to, y.to))
	})
	for i := 1; i < len(spans); i++ {
		if a, b := spans[i-1], spans[i]; a.unit == b.unit && b.from < a.to {
			t.Errorf("%s: unit %s is billed for slots %d–%d by lease %s and for %d–%d by %s", name(p.i), a.unit.Short(),
				a.from, a.to, a.lease.Short(), b.from, b.to, b.lease.Short())
		}
	}
}

func (p *Peer) list(t *testing.T, kind string, fn func(value []byte)) {
	t.Helper()
	if err := p.Journal.List(t.Context(), kind, "", func(_ string, value []byte) error {
		fn(value)
		return nil
	}); err != nil {
		t.Fatal(err)
	}
}

// file reads a file of a directory that the peer has as a blob.
func (p *Peer) file(t *testing.T, bl buyer.Blob, name string) string {
	t.Helper()
	c, err := cid.Parse(bl.CID)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	if err := p.Blobs.Unpack(c, dir, 1<<30); err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(filepath.Join(dir, name))
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}
