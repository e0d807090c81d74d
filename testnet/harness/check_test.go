package harness

import (
	"cmp"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/ipfs/go-cid"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/lease"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/node/buyer"
	"github.com/starling-network/starling/node/proof/jobproof"
	"github.com/starling-network/starling/node/settle"
	"github.com/starling-network/starling/verify"
)

// check fails the test unless the job of b ended as wanted and the money is right: its providers claimed of each lease exactly what its
// vouchers say, the job paid that and nothing else, no token was made or lost, and a stranger finds the job's proof right, offline and against
// the chain.
func (n *Net) check(t *testing.T, b *Peer, j buyer.Job, want buyer.State) []buyer.LeaseAccount {
	t.Helper()
	if j.State != want {
		t.Fatalf("job ended as %s\n%s", j.Summary(), b.Why(j.ID))
	}
	accounts, err := b.Node.Buyer().Receipts(t.Context(), j.ID)
	if err != nil {
		t.Fatal(err)
	}
	var sum market.Amount
	for _, a := range accounts {
		sum += a.Owed
	}
	if sum != j.Owed || n.opts.Free && j.Owed+j.Paid > 0 {
		t.Errorf("leases add up to %d, the job owes %d and paid %d", sum, j.Owed, j.Paid)
	}
	var claimed market.Amount
	for range 120 { // claims are made, and come to be final, after the job
		j, claimed = n.job(t, b, j.ID), n.claimed(accounts, j.Paid)
		if j.Held == 0 && j.Paid == claimed && len(n.unclaimed(accounts)) == 0 {
			break
		}
		time.Sleep(500 * time.Millisecond)
	}
	if j.Paid != claimed || j.Held > 0 {
		t.Errorf("the job paid %d and %d are held, its providers claimed %d", j.Paid, j.Held, claimed)
	}
	for _, problem := range n.unclaimed(accounts) {
		t.Error(problem)
	}
	p, err := jobproof.Receipts(j, accounts)
	if err != nil {
		t.Fatal(err)
	}
	verdict, err := p.Verify(n.Genesis)
	if err == nil && n.opts.Free {
		err = verdict.CheckAnchors(t.Context(), nil)
	} else if err == nil {
		err = cmp.Or(verdict.CheckAnchors(t.Context(), n.Programs.Ledger(b.Key.Key())), n.Programs.Check())
	}
	if err != nil || verdict.Owed != j.Owed || verdict.Receipts != j.Receipts {
		t.Errorf("the job's proof: %d owed by %d receipts (%v), the job says %d by %d", verdict.Owed, verdict.Receipts, err, j.Owed, j.Receipts)
	}
	return accounts
}

// claimed is what providers know of the claims that were paid for leases; orDown where one of them is down, and cannot be asked.
func (n *Net) claimed(accounts []buyer.LeaseAccount, orDown market.Amount) (sum market.Amount) {
	for _, a := range accounts {
		switch p := n.seller(a); {
		case p == nil:
		case p.cancel == nil:
			return orDown
		default:
			sum += n.claims(a).Claimed
		}
	}
	return sum
}

// unclaimed lists the leases whose vouchers say more or less than their provider claimed and lost.
func (n *Net) unclaimed(accounts []buyer.LeaseAccount) (problems []string) {
	for _, a := range accounts {
		got := n.claims(a)
		if got == nil || got.Claimed+got.Lost == a.Owed || !a.Active && got.Claimed == 0 { // it never heard of its first voucher
			continue
		}
		problems = append(problems, fmt.Sprintf("of lease %s %d were claimed and %d lost, its vouchers say %d",
			a.Lease.Short(), got.Claimed, got.Lost, a.Owed))
	}
	return problems
}

// claims is what the provider of a lease knows of its money; nil if that is none of the network's own, which claim, or down.
func (n *Net) claims(a buyer.LeaseAccount) *settle.Account {
	p := n.seller(a)
	if p == nil || p.cancel == nil {
		return nil
	}
	of := p.Node.Provider().Accounts()[a.Lease]
	return &of
}

// seller is the peer of the network that a lease was bought of; nil if that is another.
func (n *Net) seller(a buyer.LeaseAccount) *Peer {
	at := slices.IndexFunc(n.Peers[:n.opts.Providers], func(p *Peer) bool { return p.Key.Key() == a.Provider })
	if at < 0 {
		return nil
	}
	return n.Peers[at]
}

// checkPayer fails the test unless the wallet of b paid for its ended jobs and nothing else.
func (n *Net) checkPayer(t *testing.T, b *Peer) {
	t.Helper()
	if n.opts.Free {
		return
	}
	for range 120 { // a job that still runs has its deposit in escrow
		left := market.Amount(funds)
		for _, j := range b.Node.Buyer().Jobs() {
			left -= j.Paid
		}
		have, err := n.Programs.Ledger(b.Key.Key()).Balance(t.Context(), b.Key.Key())
		if err == nil && have == left {
			return
		}
		time.Sleep(time.Second)
	}
	t.Errorf("the buyer's wallet does not come to hold what its jobs left")
}

// owed is what the vouchers of a lease say that b bought.
func (p *Peer) owed(t *testing.T, job string, l market.LeaseID) market.Amount {
	t.Helper()
	accounts, err := p.Node.Buyer().Receipts(t.Context(), job)
	if err != nil {
		t.Fatal(err)
	}
	for _, a := range accounts {
		if a.Lease == l {
			return a.Owed
		}
	}
	return 0
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
		HoldTTL: 1, SignTTL: 1, MaxHolds: 1, MaxHoldsPerBuyer: 1, ActivateWithin: 1,
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
	p.list(t, "sold", func(value []byte) {
		var rec struct{ Receipt []byte }
		if err := json.Unmarshal(value, &rec); err != nil {
			t.Fatal(err)
		}
		add(rec.Receipt)
	})
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
	if _, err := p.Blobs.Unpack(t.Context(), c, dir, 1<<30); err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(filepath.Join(dir, name))
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}
