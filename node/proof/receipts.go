package proof

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/starling-network/starling/chain"
	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/node/jsonfile"
	"github.com/starling-network/starling/verify"
)

// MaxReceipts bounds the receipts of a job, bytes of JSON.
const MaxReceipts = MaxFile

// Receipts proves the cost of a job: the leases that both sides signed, their receipts and vouchers, and the
// transactions with anchors that commit to exactly these receipts.
type Receipts struct {
	Job          string       `json:"job"`
	Owner        sign.Key     `json:"owner,omitzero"` // where the leases name the job's own key as the buyer
	Leases       []Lease      `json:"leases"`         // by rank, epoch, id: the order of the anchor
	Transactions []chain.TxID `json:"transactions"`   // that anchor the receipts
}

// Lease is one lease with everything that was signed under it.
type Lease struct {
	Lease    market.Lease          `json:"lease"`
	Keys     market.KeySet         `json:"keys"`
	Voucher  *verify.SignedVoucher `json:"voucher,omitempty"` // the last one
	Receipts []verify.Receipt      `json:"receipts"`
}

// NewReceipts sorts the leases into the order of the anchor.
func NewReceipts(job string, owner sign.Key, leases []Lease, txs []chain.TxID) Receipts {
	p := Receipts{Job: job, Owner: owner, Leases: append([]Lease{}, leases...),
		Transactions: append([]chain.TxID{}, txs...)}
	for i := range p.Leases {
		p.Leases[i].Receipts = append([]verify.Receipt{}, p.Leases[i].Receipts...)
	}
	slices.SortFunc(p.Leases, byRank)
	return p
}

func decodeReceipts(b []byte) (Receipts, error) { return strict[Receipts](b, MaxReceipts) }

// strict decodes one JSON object without unknown fields.
func strict[T any](b []byte, most int) (T, error) {
	v, err := jsonfile.Parse(b, most, "", func(T) string { return "" })
	if err != nil {
		err = fmt.Errorf("%w: %w", market.ErrMalformed, err)
	}
	return v, err
}

// Kind implements Content.
func (Receipts) Kind() Kind { return KindReceipts }

// Encode implements Content.
func (p Receipts) Encode() ([]byte, error) { return json.Marshal(p) }

// Hash implements Content.
func (p Receipts) Hash() sign.Hash { return hashOf("starling/proof/receipts/v1", p) }

// hashOf is the hash of a proof that is encoded as JSON.
func hashOf(tag string, c Content) sign.Hash {
	b, err := c.Encode()
	if err != nil { // no value of its fields fails
		return sign.Hash{}
	}
	return sign.Sum([]byte(tag), b)
}

// Subjects implements Content: the buyer and the providers.
func (p Receipts) Subjects() []sign.Key {
	var out []sign.Key
	for _, l := range p.Leases {
		for _, k := range []sign.Key{l.Lease.Core.Buyer, l.Lease.Core.Provider} {
			if !slices.Contains(out, k) {
				out = append(out, k)
			}
		}
	}
	return out
}

// Summary implements Content.
func (p Receipts) Summary() string {
	return fmt.Sprintf("job %.40s has %d receipts of %d leases", p.Job, p.count(), len(p.Leases))
}

func (p Receipts) count() (n int) {
	for _, l := range p.Leases {
		n += len(l.Receipts)
	}
	return n
}

// Hashes names all receipts in the order in which an anchor commits to them.
func (p Receipts) Hashes() []sign.Hash {
	var out []sign.Hash
	for _, l := range p.Leases {
		for _, r := range l.Receipts {
			out = append(out, r.SignedHash())
		}
	}
	return out
}

// Receipts opens a proof of a job's cost. It returns the errors of Open, and ErrKind for another kind.
func (p Proof) Receipts() (Receipts, error) {
	c, err := p.Open()
	if err != nil {
		return Receipts{}, err
	}
	r, ok := c.(Receipts)
	if !ok {
		err = fmt.Errorf("%w: %s, want %s", ErrKind, p.Kind, KindReceipts)
	}
	return r, err
}

// byRank is the order of leases under an anchor.
func byRank(x, y Lease) int {
	a, b := x.Lease.Core, y.Lease.Core
	idX, idY := a.ID(), b.ID()
	return cmp.Or(cmp.Compare(a.Rank, b.Rank), cmp.Compare(a.RankEpoch, b.RankEpoch), bytes.Compare(idX[:], idY[:]))
}

// Verdict is the result of checking the receipts of a job.
type Verdict struct {
	Job          string         `json:"job"`
	Buyer        sign.Key       `json:"buyer,omitzero"`
	Owner        sign.Key       `json:"owner,omitzero"` // of the job, where Buyer is the job's own key
	Leases       []LeaseVerdict `json:"leases"`
	Receipts     int            `json:"receipts"`
	Root         sign.Hash      `json:"root"` // over all receipts
	Owed         market.Amount  `json:"owed"`
	Transactions []TxVerdict    `json:"transactions"`
	Anchors      []Anchored     `json:"anchors,omitempty"` // in accounts of the network's program
	Chain        string         `json:"-"`                 // "checked", or why it was not

	Genesis market.Genesis `json:"-"`
}

// LeaseVerdict is one lease that keeps every rule.
type LeaseVerdict struct {
	Lease    market.LeaseID `json:"lease"`
	Rank     uint32         `json:"rank"`
	Epoch    uint32         `json:"epoch"`
	Provider sign.Key       `json:"provider"`
	Payout   sign.Key       `json:"payout"`
	Receipts int            `json:"receipts"`
	Slots    uint64         `json:"slots"` // that the receipts account for
	Earned   market.Amount  `json:"earned"`
	Owed     market.Amount  `json:"owed"` // by the last voucher: an interval ahead of the receipts without a final one
	Final    bool           `json:"final"`
}

// TxVerdict is one anchoring transaction.
type TxVerdict struct {
	ID     chain.TxID  `json:"id"`
	Slot   market.Slot `json:"slot,omitempty"` // of its block
	Anchor string      `json:"anchor"`         // "matches", or "not checked"
}

// Verify checks every rule that needs no chain. The error is a *BrokenRule.
func (p Receipts) Verify(g market.Genesis) (Verdict, error) {
	v := Verdict{
		Job: p.Job, Owner: p.Owner, Leases: []LeaseVerdict{}, Transactions: []TxVerdict{}, Chain: "not asked",
		Genesis: g,
	}
	if err := g.Validate(); err != nil {
		return v, broken(RuleGenesis, "", err)
	}
	for i, l := range p.Leases {
		where := "lease " + l.Lease.Core.ID().Short()
		if i > 0 && byRank(p.Leases[i-1], l) >= 0 {
			return v, broken(RuleOrder, where, errors.New("leases are not in order, or one is there twice"))
		}
		if i > 0 && l.Lease.Core.Buyer != v.Buyer {
			return v, broken(RuleBuyer, where, fmt.Errorf("buyer %s, the other leases have %s",
				l.Lease.Core.Buyer, v.Buyer))
		}
		v.Buyer = l.Lease.Core.Buyer
		lv, err := l.verify(g.Domain(), where)
		if err != nil {
			return v, err
		}
		if v.Owed, err = v.Owed.Add(lv.Owed); err != nil {
			return v, broken(RuleSum, where, err)
		}
		v.Leases = append(v.Leases, lv)
	}
	hashes := p.Hashes()
	v.Receipts, v.Root = len(hashes), chain.RootOf(hashes)
	for _, tx := range p.Transactions {
		v.Transactions = append(v.Transactions, TxVerdict{ID: tx, Anchor: "not checked"})
	}
	return v, nil
}

// verify checks one lease, its receipts and its voucher.
func (l Lease) verify(d sign.Domain, where string) (LeaseVerdict, error) {
	core := l.Lease.Core
	v := LeaseVerdict{
		Lease: core.ID(), Rank: core.Rank, Epoch: core.RankEpoch, Provider: core.Provider, Payout: core.Payout,
		Receipts: len(l.Receipts),
	}
	if err := l.Lease.Check(d); err != nil {
		return v, broken(RuleSigned, where, err)
	}
	if err := l.Keys.Validate(); err != nil {
		return v, broken(verify.RuleKeySet, where, err)
	}
	if l.Keys.Hash() != core.VoucherKeys {
		return v, broken(verify.RuleKeySet, where, errors.New("the key set differs from the lease's"))
	}
	final := false
	if n := len(l.Receipts); n > 0 {
		if err := verify.CheckChain(d, core, l.Receipts); err != nil {
			return v, broken(RuleSigned, where, err)
		}
		last := l.Receipts[n-1]
		v.Slots, v.Earned, final = uint64(last.To-l.Receipts[0].From), last.Cumulative, last.Final()
	}
	if l.Voucher != nil {
		if err := l.Voucher.Check(d, core); err != nil {
			return v, broken(verify.RuleSignature, where, err)
		}
		v.Owed, v.Final = l.Voucher.Cumulative, l.Voucher.Final()
	}
	var err error
	switch {
	case v.Final != final:
		err = errors.New("a final receipt and a final voucher require each other")
	case v.Final && v.Owed != v.Earned:
		err = fmt.Errorf("the final voucher is for %d base units, the final receipt for %d", v.Owed, v.Earned)
	case v.Owed < v.Earned:
		err = fmt.Errorf("the voucher is for %d base units, the receipts for %d", v.Owed, v.Earned)
	}
	if err != nil {
		return v, broken(RuleOwed, where, err)
	}
	return v, nil
}

// Check implements Content. The detail is a *Verdict.
func (p Receipts) Check(g market.Genesis) (Finding, error) {
	v, err := p.Verify(g)
	if err != nil {
		return Finding{}, err
	}
	return Finding{Detail: &v, Chain: v.Chain, rows: v.rows}, nil
}

func (p Receipts) checkChain(ctx context.Context, c Chain, f *Finding) error {
	v := f.Detail.(*Verdict)
	err := v.CheckAnchors(ctx, c)
	f.Chain = v.Chain
	return err
}

func (v *Verdict) rows(row func(...any)) {
	g := v.Genesis
	row("job", v.Job)
	if !v.Buyer.IsZero() {
		row("buyer", v.Buyer)
	}
	row()
	row("LEASE", "RANK", "PROVIDER", "PAYOUT", "RECEIPTS", "SLOTS", "EARNED", "OWED", "RESULT")
	for _, l := range v.Leases {
		result := "ok"
		if !l.Final {
			result = "ok, no final receipt"
		}
		row(l.Lease.Short(), l.Rank, l.Provider.Short(), l.Payout.Short(), l.Receipts, l.Slots,
			g.FormatAmount(l.Earned),
			g.FormatAmount(l.Owed), result)
	}
	row()
	for _, tx := range v.Transactions {
		where := ""
		if tx.Slot > 0 {
			where = fmt.Sprintf("slot %d", tx.Slot)
		}
		row("transaction", tx.ID, where, "anchor "+tx.Anchor)
	}
	for _, anchor := range v.Anchors {
		row("anchored", "by "+anchor.By.String(), fmt.Sprintf("slot %d", anchor.Slot))
	}
	row("root", v.Root)
	row("owed", fmt.Sprintf("%s by %d receipts of %d leases", g.FormatAmount(v.Owed), v.Receipts, len(v.Leases)))
}
