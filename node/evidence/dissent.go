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
	// maxDissents bounds the proofs that results differ; beyond it the oldest makes room.
	maxDissents = 1024
)

// Dissent is a proof, bought by this peer, that providers signed different results of one deterministic work.
type Dissent struct {
	ID        string     `json:"id"` // 16 hexadecimal digits, of the work and the leases
	Found     time.Time  `json:"found"`
	Work      sign.Hash  `json:"work"`
	Providers []sign.Key `json:"providers"`
	Wrong     []sign.Key `json:"wrong,omitempty"` // the providers that a majority differs from
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

func (k *Keeper) loadDissents(ctx context.Context) error {
	return k.cfg.Store.List(ctx, kindDissent, "", func(key string, value []byte) error {
		rec, _, err := readDissent(key, value)
		if err != nil {
			return err
		}
		k.dissents[key] = rec.Found
		return nil
	})
}

func readDissent(key string, value []byte) (rec dissentRecord, d replica.Dissent, err error) {
	if err = json.Unmarshal(value, &rec); err == nil {
		d, err = replica.UnmarshalDissent(rec.Proof)
	}
	if err != nil {
		err = fmt.Errorf("reading evidence %s: %w", key, err)
	}
	return rec, d, err
}

// KeepDissent journals a proof that results differ, once, and returns its id. The error is that of replica.CheckDissent for a proof that
// does not hold, or the store's.
func (k *Keeper) KeepDissent(ctx context.Context, d replica.Dissent) (string, error) {
	if err := replica.CheckDissent(k.domain, d); err != nil {
		return "", err
	}
	id := dissentID(d)
	k.keeping.Lock()
	defer k.keeping.Unlock()
	if _, known := k.dissents[id]; known {
		return id, nil
	}
	rec := dissentRecord{Found: time.Now().UTC(), Proof: d.Marshal()}
	b, err := json.Marshal(rec)
	if err != nil {
		return "", err
	}
	puts := []store.Put{{Kind: kindDissent, Key: id, Value: b}}
	out := ""
	if len(k.dissents) >= maxDissents {
		for key, found := range k.dissents {
			if out == "" || found.Before(k.dissents[out]) {
				out = key
			}
		}
		puts = append(puts, store.Put{Kind: kindDissent, Key: out})
	}
	if err := k.cfg.Store.Write(ctx, puts...); err != nil {
		return "", fmt.Errorf("keeping the proof that results differ: %w", err)
	}
	delete(k.dissents, out)
	k.dissents[id] = rec.Found
	k.cfg.Log.Warn("providers signed different results of one work; see starling evidence ls", "id", id, "results", len(d.Results))
	return id, nil
}

// Dissents lists the proofs that results differ, by id.
func (k *Keeper) Dissents(ctx context.Context) ([]Dissent, error) {
	out := []Dissent{}
	err := k.cfg.Store.List(ctx, kindDissent, "", func(key string, value []byte) error {
		rec, d, err := readDissent(key, value)
		if err != nil {
			return err
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
	Wrong       []int          `json:"wrong,omitempty"` // indices into Signed that a majority differs from
	Again       *Again         `json:"again,omitempty"` // nil unless the work was run again

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

// Again is the result of running the work once more.
type Again struct {
	Result replica.Result `json:"result"`
	Wrong  []int          `json:"wrong"` // indices of the signed results that differ from it
}

// CheckDissent verifies everything in the file except who computed rightly, which running the work again tells. The error is a
// *verify.RuleError where a rule has a name.
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
