package cli

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/starling-network/starling/chain"
	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/merkle"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/node/buyer"
	"github.com/starling-network/starling/verify"
)

// Limits of a receipt file.
const (
	maxProof    = 256 << 20 // bytes
	proofFormat = "starling-receipts/1"
	proofTag    = "starling/receipts-file/v1"
)

// proof is everything that proves what a job cost, and nothing that does not follow from a signature: the content of a
// receipt file. Digest only tells an accident from a lie; what is signed is checked by its signatures.
type proof struct {
	Format       string         `json:"format"` // proofFormat
	Job          string         `json:"job"`
	Genesis      market.Genesis `json:"genesis"`
	Leases       []proofLease   `json:"leases"`       // by rank, epoch, id: the order of the anchor
	Transactions []chain.TxID   `json:"transactions"` // that settled the job, each with an anchor
	Digest       sign.Hash      `json:"digest"`       // of the file with this field zero, as compact JSON
}

// proofLease is one lease with all that was signed under it.
type proofLease struct {
	Lease    market.Lease          `json:"lease"`
	Keys     market.KeySet         `json:"keys"`
	Voucher  *verify.SignedVoucher `json:"voucher,omitempty"` // the last one
	Receipts []verify.Receipt      `json:"receipts"`
}

// newProof gathers a job's proof from what its peer has.
func newProof(g market.Genesis, j buyer.Job, accounts []buyer.LeaseAccount) (proof, error) {
	p := proof{Format: proofFormat, Job: j.ID, Genesis: g, Leases: []proofLease{}, Transactions: []chain.TxID{}}
	for _, a := range accounts {
		l := proofLease{Receipts: a.Receipts}
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
	p.Digest, err = p.digest()
	return p, err
}

// byRank is the order of leases under an anchor.
func byRank(x, y proofLease) int {
	idX, idY := x.Lease.Core.ID(), y.Lease.Core.ID()
	return cmp.Or(cmp.Compare(x.Lease.Core.Rank, y.Lease.Core.Rank), cmp.Compare(x.Lease.Core.RankEpoch, y.Lease.Core.RankEpoch),
		bytes.Compare(idX[:], idY[:]))
}

func (p proof) digest() (sign.Hash, error) {
	p.Digest = sign.Hash{}
	b, err := json.Marshal(p)
	return sign.Sum([]byte(proofTag), b), err
}

// parseProof reads a receipt file: one JSON object without unknown fields, unchanged since it was written.
func parseProof(b []byte) (proof, error) {
	var p proof
	dec := json.NewDecoder(bytes.NewReader(b))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&p); err != nil {
		return p, fmt.Errorf("not a receipt file: %w", err)
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return p, errors.New("not a receipt file: more than one JSON value")
	}
	if p.Format != proofFormat {
		return p, fmt.Errorf("not a receipt file: format %.40q, want %q", p.Format, proofFormat)
	}
	d, err := p.digest()
	if err != nil {
		return p, err
	}
	if d != p.Digest {
		return p, errors.New("the file was changed after it was written: its digest does not match")
	}
	return p, nil
}

// Rules of a whole proof, beside those of its parts.
const (
	ruleGenesis  verify.Rule = "genesis"          // The network's facts are well formed.
	ruleSigned   verify.Rule = "lease-signatures" // Both have signed the lease.
	ruleOrder    verify.Rule = "order"            // Leases are in the order of the anchor, each once.
	ruleBuyer    verify.Rule = "one-buyer"        // All leases have the same buyer.
	ruleOwed     verify.Rule = "owed"             // The voucher covers the receipts, and a final one exactly.
	ruleSum      verify.Rule = "sum"              // What is owed in all fits 64 bits.
	ruleAnchor   verify.Rule = "anchor"           // Every settling transaction commits to exactly these receipts.
	ruleUnlanded verify.Rule = "landed"           // Every settling transaction is final on chain.
)

// brokenRule says which rule a proof breaks, and where.
type brokenRule struct {
	Rule  verify.Rule
	Where string // "lease 1a2b3c4d", "transaction …", or empty
	Err   error
}

func (e *brokenRule) Error() string {
	text := fmt.Sprintf("rule %s is broken", e.Rule)
	if e.Where != "" {
		text += " by " + e.Where
	}
	return text + ": " + e.Err.Error()
}

func (e *brokenRule) Unwrap() error { return e.Err }

// broken names the rule of err where it has one of its own.
func broken(rule verify.Rule, where string, err error) error {
	if e, ok := errors.AsType[*verify.ChainError](err); ok {
		return &brokenRule{e.Rule, where, fmt.Errorf("receipt %d: %s", e.Seq, e.Detail)}
	}
	if e, ok := errors.AsType[*verify.RuleError](err); ok {
		return &brokenRule{e.Rule, where, errors.New(e.Detail)}
	}
	return &brokenRule{rule, where, err}
}

// verdict is what a checked proof says.
type verdict struct {
	Job          string         `json:"job"`
	Network      string         `json:"network"`
	GenesisHash  sign.Hash      `json:"genesisHash"`
	Buyer        sign.Key       `json:"buyer,omitzero"`
	Leases       []leaseVerdict `json:"leases"`
	Receipts     int            `json:"receipts"`
	Root         sign.Hash      `json:"root"` // over all receipts
	Owed         market.Amount  `json:"owed"`
	Transactions []txVerdict    `json:"transactions"`
	Chain        string         `json:"chain"` // "checked", or why it was not

	genesis market.Genesis
}

// leaseVerdict is one lease that was found right.
type leaseVerdict struct {
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

// txVerdict is one settling transaction.
type txVerdict struct {
	ID     chain.TxID  `json:"id"`
	Slot   market.Slot `json:"slot,omitempty"` // of its block
	Anchor string      `json:"anchor"`         // "matches", or "not checked"
}

// check holds a proof to every rule that needs no chain.
func (p proof) check() (verdict, error) {
	v := verdict{Job: p.Job, Network: p.Genesis.Tag(), GenesisHash: p.Genesis.Hash(), Leases: []leaseVerdict{}, Transactions: []txVerdict{},
		Chain: "not asked", genesis: p.Genesis}
	if err := p.Genesis.Validate(); err != nil {
		return v, broken(ruleGenesis, "", err)
	}
	var leaves [][]byte
	for i, l := range p.Leases {
		where := "lease " + l.Lease.Core.ID().Short()
		if i > 0 && byRank(p.Leases[i-1], l) >= 0 {
			return v, broken(ruleOrder, where, errors.New("leases are not in order, or one is there twice"))
		}
		if i > 0 && l.Lease.Core.Buyer != v.Buyer {
			return v, broken(ruleBuyer, where, fmt.Errorf("its buyer is %s, that of the others %s", l.Lease.Core.Buyer, v.Buyer))
		}
		v.Buyer = l.Lease.Core.Buyer
		lv, err := l.check(p.Genesis.Domain(), where)
		if err != nil {
			return v, err
		}
		if v.Owed, err = v.Owed.Add(lv.Owed); err != nil {
			return v, broken(ruleSum, where, err)
		}
		v.Leases = append(v.Leases, lv)
		for _, r := range l.Receipts {
			leaves = append(leaves, r.Marshal())
		}
	}
	v.Receipts, v.Root = len(leaves), merkle.Root(leaves)
	for _, tx := range p.Transactions {
		v.Transactions = append(v.Transactions, txVerdict{ID: tx, Anchor: "not checked"})
	}
	return v, nil
}

// check holds one lease, its receipts and its voucher to their rules.
func (l proofLease) check(d sign.Domain, where string) (leaseVerdict, error) {
	core := l.Lease.Core
	v := leaseVerdict{Lease: core.ID(), Rank: core.Rank, Epoch: core.RankEpoch, Provider: core.Provider, Payout: core.Payout, Receipts: len(l.Receipts)}
	if err := l.Lease.Check(d); err != nil {
		return v, broken(ruleSigned, where, err)
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
			return v, broken(ruleSigned, where, err)
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
		return v, broken(ruleOwed, where, errors.New("a final receipt and a final voucher come together"))
	case v.Final && v.Owed != v.Earned:
		return v, broken(ruleOwed, where, fmt.Errorf("the final voucher says %d base units, the final receipt %d", v.Owed, v.Earned))
	case v.Owed < v.Earned:
		return v, broken(ruleOwed, where, fmt.Errorf("the voucher says %d base units, the receipts %d", v.Owed, v.Earned))
	}
	return v, nil
}

// memos reads the memos of final transactions: the part of chain.Ledger that checking an anchor needs.
type memos interface {
	Memo(ctx context.Context, id chain.TxID) ([]byte, market.Slot, error)
}

// checkAnchors asks the chain whether every settling transaction commits to exactly the receipts of the verdict.
func (v *verdict) checkAnchors(ctx context.Context, l memos) error {
	if len(v.Transactions) == 0 && v.Owed > 0 {
		return broken(ruleAnchor, "", errors.New("something is owed and no transaction settles it yet"))
	}
	for i, tx := range v.Transactions {
		where := "transaction " + string(tx.ID)
		memo, slot, err := l.Memo(ctx, tx.ID)
		if errors.Is(err, chain.ErrNotFound) {
			return broken(ruleUnlanded, where, err)
		}
		if err != nil {
			return &Error{Code: ExitPayment, Err: err, Hint: "give another endpoint with --rpc, or check without the chain with --offline"}
		}
		a, err := chain.ParseAnchor(memo)
		if err != nil {
			return broken(ruleAnchor, where, err)
		}
		if a.Root != v.Root || a.Count != uint64(v.Receipts) {
			return broken(ruleAnchor, where, fmt.Errorf("it commits to %d receipts under root %s, these are %d under %s", a.Count, a.Root.Short(), v.Receipts, v.Root.Short()))
		}
		v.Transactions[i].Slot, v.Transactions[i].Anchor = slot, "matches"
	}
	v.Chain = "checked"
	return nil
}
