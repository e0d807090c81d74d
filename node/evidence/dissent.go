package evidence

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"time"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/node/store"
	"github.com/starling-network/starling/verify/replica"
)

const (
	kindDissent = "dissent" // dissentRecord by id
	// maxDissents bounds the proofs that results differ, which are this peer's own purchases.
	maxDissents = 1024
)

// Dissent is a proof that providers signed different results of one deterministic work.
type Dissent struct {
	ID        string     `json:"id"` // 16 hexadecimal digits, of the work and the leases
	Found     time.Time  `json:"found"`
	Work      sign.Hash  `json:"work"`
	Providers []sign.Key `json:"providers"`
	Wrong     []sign.Key `json:"wrong,omitempty"` // those that a majority differs from
	Proof     []byte     `json:"proof"`           // replica.Dissent
}

type dissentRecord struct {
	Found time.Time `json:"found"`
	Proof []byte    `json:"proof"`
}

// dissentID names a proof: one for the same leases of the same work.
func dissentID(d replica.Dissent) string {
	parts := [][]byte{[]byte("starling/dissent/v1")}
	work := d.Work.Hash()
	parts = append(parts, work[:])
	for _, r := range d.Results {
		parts = append(parts, r.Receipt.Lease[:])
	}
	h := sign.Sum(parts...)
	return hex.EncodeToString(h[:8])
}

// KeepDissent journals a proof, once, and returns its id. Where there is no room it is only logged.
func (k *Keeper) KeepDissent(ctx context.Context, d replica.Dissent) (string, error) {
	if err := replica.CheckDissent(k.domain, d); err != nil {
		return "", err
	}
	id := dissentID(d)
	n, known := 0, false
	if err := k.cfg.Store.List(ctx, kindDissent, "", func(key string, _ []byte) error {
		n, known = n+1, known || key == id
		return nil
	}); err != nil || known {
		return id, err
	}
	if n >= maxDissents {
		k.cfg.Log.Error("a proof that results differ is not kept: there are too many", "id", id)
		return "", nil
	}
	b, err := json.Marshal(dissentRecord{time.Now().UTC(), d.Marshal()})
	if err == nil {
		err = k.cfg.Store.Write(ctx, store.Put{Kind: kindDissent, Key: id, Value: b})
	}
	if err != nil {
		return "", fmt.Errorf("keeping the proof that results differ: %w", err)
	}
	k.cfg.Log.Warn("providers signed different results of one work; see starling evidence ls", "id", id, "results", len(d.Results))
	return id, nil
}

// Dissents lists the proofs that results differ, by id.
func (k *Keeper) Dissents(ctx context.Context) ([]Dissent, error) {
	out := []Dissent{}
	err := k.cfg.Store.List(ctx, kindDissent, "", func(key string, value []byte) error {
		var rec dissentRecord
		if err := json.Unmarshal(value, &rec); err != nil {
			return fmt.Errorf("reading evidence %s: %w", key, err)
		}
		d, err := replica.UnmarshalDissent(rec.Proof)
		if err != nil {
			return fmt.Errorf("reading evidence %s: %w", key, err)
		}
		x := Dissent{ID: key, Found: rec.Found, Work: d.Work.Hash(), Proof: rec.Proof}
		for _, r := range d.Results {
			x.Providers = append(x.Providers, r.Receipt.Provider)
		}
		_, wrong := d.Majority()
		for _, w := range wrong {
			x.Wrong = append(x.Wrong, d.Results[w].Receipt.Provider)
		}
		out = append(out, x)
		return nil
	})
	return out, err
}

// NewDissentProof is the file of a dissent on a network.
func NewDissentProof(g market.Genesis, dissent []byte) Proof {
	return Proof{Format: format, Genesis: g, Dissent: dissent}
}

// DissentFinding is what a checked proof of a dissent shows.
type DissentFinding struct {
	ID          string         `json:"id"`
	Network     string         `json:"network"`
	GenesisHash sign.Hash      `json:"genesisHash"`
	WorkHash    sign.Hash      `json:"workHash"`
	Work        replica.Work   `json:"work"`
	Signed      []SignedResult `json:"signed"`
	Wrong       []int          `json:"wrong,omitempty"` // of them: those that a majority differs from; who is wrong running the work again tells
	Again       *Again         `json:"again,omitempty"` // set by whoever did

	Genesis market.Genesis  `json:"-"`
	Dissent replica.Dissent `json:"-"`
}

// SignedResult is one of the results.
type SignedResult struct {
	Provider sign.Key       `json:"provider"`
	Buyer    sign.Key       `json:"buyer"`
	Lease    market.LeaseID `json:"lease"`
	Slot     market.Slot    `json:"slot"` // in which its last receipt ends
	Result   replica.Result `json:"result"`
}

// Again is what running the work once more gave.
type Again struct {
	Result replica.Result `json:"result"`
	Wrong  []int          `json:"wrong"` // of the signed results: those that differ from it
}

// CheckDissent verifies everything in the file that nobody need run a program for. The error is a *verify.RuleError where a rule has a name.
func (p Proof) CheckDissent() (DissentFinding, error) {
	if err := p.Genesis.Validate(); err != nil {
		return DissentFinding{}, err
	}
	d, err := replica.UnmarshalDissent(p.Dissent)
	if err != nil {
		return DissentFinding{}, err
	}
	if err := replica.CheckDissent(p.Genesis.Domain(), d); err != nil {
		return DissentFinding{}, err
	}
	f := DissentFinding{
		ID: dissentID(d), Network: p.Genesis.Tag(), GenesisHash: p.Genesis.Hash(), WorkHash: d.Work.Hash(), Work: d.Work, Genesis: p.Genesis, Dissent: d,
	}
	for _, s := range d.Results {
		f.Signed = append(f.Signed, SignedResult{Provider: s.Receipt.Provider, Buyer: s.Receipt.Buyer, Lease: s.Receipt.Lease, Slot: s.Receipt.To, Result: s.Result})
	}
	_, f.Wrong = d.Majority()
	return f, nil
}
