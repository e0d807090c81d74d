// Package proof is all that shows what a job cost, in one file that anybody can check: the leases both sides signed,
// their receipts and vouchers, and the transactions whose anchors commit to exactly these receipts.
package proof

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/starling-network/starling/chain"
	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/node/buyer"
	"github.com/starling-network/starling/node/jsonfile"
	"github.com/starling-network/starling/verify"
)

// Limits of a receipt file.
const (
	Max    = 256 << 20 // bytes
	format = "starling-receipts/1"
	tag    = "starling/receipts-file/v1"
)

// Proof is everything that proves what a job cost, and nothing that does not follow from a signature: the content of a
// receipt file. Digest only tells an accident from a lie; what is signed is checked by its signatures.
type Proof struct {
	Format       string         `json:"format"` // format
	Job          string         `json:"job"`
	Genesis      market.Genesis `json:"genesis"`
	Owner        sign.Key       `json:"owner,omitzero"` // whose job it is, where the leases name the job's own key as the buyer
	Leases       []Lease        `json:"leases"`         // by rank, epoch, id: the order of the anchor
	Transactions []chain.TxID   `json:"transactions"`   // that anchor the receipts, and settle the job where that is done directly
	Digest       sign.Hash      `json:"digest"`         // of the file with this field zero, as compact JSON
}

// Lease is one lease with all that was signed under it.
type Lease struct {
	Lease    market.Lease          `json:"lease"`
	Keys     market.KeySet         `json:"keys"`
	Voucher  *verify.SignedVoucher `json:"voucher,omitempty"` // the last one
	Receipts []verify.Receipt      `json:"receipts"`
}

// New gathers a job's proof from what its peer has.
func New(g market.Genesis, j buyer.Job, accounts []buyer.LeaseAccount) (Proof, error) {
	p := Proof{Format: format, Job: j.ID, Genesis: g, Leases: []Lease{}, Transactions: []chain.TxID{}}
	if j.Detached != nil {
		p.Owner = j.Detached.Owner
	}
	for _, a := range accounts {
		if a.Void {
			continue // it cost nothing
		}
		l := Lease{Receipts: a.Receipts}
		if l.Receipts == nil {
			l.Receipts = []verify.Receipt{}
		}
		var err error
		if l.Lease, err = market.UnmarshalLease(a.Signed); err != nil {
			return p, err
		}
		if l.Keys, err = market.UnmarshalKeySet(a.Keys); err != nil {
			return p, err
		}
		if len(a.Voucher) > 0 {
			v, err := verify.UnmarshalSignedVoucher(a.Voucher)
			if err != nil {
				return p, err
			}
			l.Voucher = &v
		}
		p.Leases = append(p.Leases, l)
	}
	slices.SortFunc(p.Leases, byRank)
	for _, tx := range j.Transactions {
		p.Transactions = append(p.Transactions, chain.TxID(tx))
	}
	var err error
	p.Digest, err = p.Hash()
	return p, err
}

// Receipts names all receipts in the order in which an anchor commits to them.
func (p Proof) Receipts() []sign.Hash {
	var out []sign.Hash
	for _, l := range p.Leases {
		for _, r := range l.Receipts {
			out = append(out, r.SignedHash())
		}
	}
	return out
}

// byRank is the order of leases under an anchor.
func byRank(x, y Lease) int {
	idX, idY := x.Lease.Core.ID(), y.Lease.Core.ID()
	return cmp.Or(cmp.Compare(x.Lease.Core.Rank, y.Lease.Core.Rank), cmp.Compare(x.Lease.Core.RankEpoch, y.Lease.Core.RankEpoch),
		bytes.Compare(idX[:], idY[:]))
}

// Hash is what Digest must be.
func (p Proof) Hash() (sign.Hash, error) {
	p.Digest = sign.Hash{}
	b, err := json.Marshal(p)
	return sign.Sum([]byte(tag), b), err
}

// Parse reads a receipt file: one JSON object without unknown fields, unchanged since it was written.
func Parse(b []byte) (Proof, error) {
	p, err := jsonfile.Parse(b, Max, format, func(p Proof) string { return p.Format })
	if err != nil {
		return p, fmt.Errorf("not a receipt file: %w", err)
	}
	d, err := p.Hash()
	if err != nil {
		return p, err
	}
	if d != p.Digest {
		return p, errors.New("the file was changed after it was written: its digest does not match")
	}
	return p, nil
}

// ErrChain says that the chain could not be asked, so that the anchors are neither right nor wrong.
var ErrChain = errors.New("asking the chain")

// Rules of a whole proof, beside those of its parts.
const (
	RuleGenesis verify.Rule = "genesis"          // The network's facts are well formed.
	RuleSigned  verify.Rule = "lease-signatures" // Both have signed the lease.
	RuleOrder   verify.Rule = "order"            // Leases are in the order of the anchor, each once.
	RuleBuyer   verify.Rule = "one-buyer"        // All leases have the same buyer.
	RuleOwed    verify.Rule = "owed"             // The voucher covers the receipts, and a final one exactly.
	RuleSum     verify.Rule = "sum"              // What is owed in all fits 64 bits.
	RuleAnchor  verify.Rule = "anchor"           // Every anchoring transaction commits to exactly these receipts.
	RuleLanded  verify.Rule = "landed"           // Every anchoring transaction is final on chain.
)

// BrokenRule says which rule a proof breaks, and where.
type BrokenRule struct {
	Rule  verify.Rule
	Where string // "lease 1a2b3c4d", "transaction …", or empty
	Err   error
}

func (e *BrokenRule) Error() string {
	text := fmt.Sprintf("rule %s is broken", e.Rule)
	if e.Where != "" {
		text += " by " + e.Where
	}
	return text + ": " + e.Err.Error()
}

func (e *BrokenRule) Unwrap() error { return e.Err }

// broken names the rule of err where it has one of its own.
func broken(rule verify.Rule, where string, err error) error {
	if e, ok := errors.AsType[*verify.ChainError](err); ok {
		return &BrokenRule{e.Rule, where, fmt.Errorf("receipt %d: %s", e.Seq, e.Detail)}
	}
	if e, ok := errors.AsType[*verify.RuleError](err); ok {
		return &BrokenRule{e.Rule, where, errors.New(e.Detail)}
	}
	return &BrokenRule{rule, where, err}
}

// Verdict is what a checked proof says.
type Verdict struct {
	Job          string         `json:"job"`
	Network      string         `json:"network"`
	GenesisHash  sign.Hash      `json:"genesisHash"`
	Buyer        sign.Key       `json:"buyer,omitzero"`
	Owner        sign.Key       `json:"owner,omitzero"` // whose job it is, where Buyer is the job's own key
	Leases       []LeaseVerdict `json:"leases"`
	Receipts     int            `json:"receipts"`
	Root         sign.Hash      `json:"root"` // over all receipts
	Owed         market.Amount  `json:"owed"`
	Transactions []TxVerdict    `json:"transactions"`
	Anchors      []Anchored     `json:"anchors,omitempty"` // in accounts of the network's program
	Chain        string         `json:"chain"`             // "checked", or why it was not

	Genesis market.Genesis `json:"-"`
}

// LeaseVerdict is one lease that was found right.
type LeaseVerdict struct {
	Lease    market.LeaseID `json:"lease"`
	Rank     uint32         `json:"rank"`
	Epoch    uint32         `json:"epoch"`
	Provider sign.Key       `json:"provider"`
	Payout   sign.Key       `json:"payout"`
	Receipts int            `json:"receipts"`
	Slots    uint64         `json:"slots"` // that the receipts account for
	Earned   market.Amount  `json:"earned"`
	Owed     market.Amount  `json:"owed"` // by the last voucher: an interval ahead of the receipts where no final one came
	Final    bool           `json:"final"`
}

// TxVerdict is one anchoring transaction.
type TxVerdict struct {
	ID     chain.TxID  `json:"id"`
	Slot   market.Slot `json:"slot,omitempty"` // of its block
	Anchor string      `json:"anchor"`         // "matches", or "not checked"
}

// Check holds a proof to every rule that needs no chain.
func (p Proof) Check() (Verdict, error) {
	v := Verdict{Job: p.Job, Owner: p.Owner, Network: p.Genesis.Tag(), GenesisHash: p.Genesis.Hash(), Leases: []LeaseVerdict{}, Transactions: []TxVerdict{},
		Chain: "not asked", Genesis: p.Genesis}
	if err := p.Genesis.Validate(); err != nil {
		return v, broken(RuleGenesis, "", err)
	}
	for i, l := range p.Leases {
		where := "lease " + l.Lease.Core.ID().Short()
		if i > 0 && byRank(p.Leases[i-1], l) >= 0 {
			return v, broken(RuleOrder, where, errors.New("leases are not in order, or one is there twice"))
		}
		if i > 0 && l.Lease.Core.Buyer != v.Buyer {
			return v, broken(RuleBuyer, where, fmt.Errorf("its buyer is %s, that of the others %s", l.Lease.Core.Buyer, v.Buyer))
		}
		v.Buyer = l.Lease.Core.Buyer
		lv, err := l.check(p.Genesis.Domain(), where)
		if err != nil {
			return v, err
		}
		if v.Owed, err = v.Owed.Add(lv.Owed); err != nil {
			return v, broken(RuleSum, where, err)
		}
		v.Leases = append(v.Leases, lv)
	}
	hashes := p.Receipts()
	v.Receipts, v.Root = len(hashes), chain.RootOf(hashes)
	for _, tx := range p.Transactions {
		v.Transactions = append(v.Transactions, TxVerdict{ID: tx, Anchor: "not checked"})
	}
	return v, nil
}

// check holds one lease, its receipts and its voucher to their rules.
func (l Lease) check(d sign.Domain, where string) (LeaseVerdict, error) {
	core := l.Lease.Core
	v := LeaseVerdict{Lease: core.ID(), Rank: core.Rank, Epoch: core.RankEpoch, Provider: core.Provider, Payout: core.Payout, Receipts: len(l.Receipts)}
	if err := l.Lease.Check(d); err != nil {
		return v, broken(RuleSigned, where, err)
	}
	if err := l.Keys.Validate(); err != nil {
		return v, broken(verify.RuleKeySet, where, err)
	}
	if l.Keys.Hash() != core.VoucherKeys {
		return v, broken(verify.RuleKeySet, where, errors.New("the key set is not the one that the lease names"))
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
	switch {
	case v.Final != final:
		return v, broken(RuleOwed, where, errors.New("a final receipt and a final voucher come together"))
	case v.Final && v.Owed != v.Earned:
		return v, broken(RuleOwed, where, fmt.Errorf("the final voucher says %d base units, the final receipt %d", v.Owed, v.Earned))
	case v.Owed < v.Earned:
		return v, broken(RuleOwed, where, fmt.Errorf("the voucher says %d base units, the receipts %d", v.Owed, v.Earned))
	}
	return v, nil
}
