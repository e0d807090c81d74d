package evidence

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/node/store"
	"github.com/starling-network/starling/verify"
	"github.com/starling-network/starling/verify/replica"
)

const (
	kindDissent = "dissent" // dissentRecord by id
	kindJudged  = "judged"  // judged by the same
	// maxDissents bounds the proofs that results differ: this peer's own purchases, and those that others told of.
	maxDissents       = 1024
	maxDissentsOthers = 128
	// maxDissentsOf bounds those that others told of about one provider and of which something may still come.
	maxDissentsOf = 4
)

// ChargeState is what became of a result in a dissent.
type ChargeState string

// The states: open ⟶ submitting ⟶ taken, or to another end from each of the two.
const (
	ChargeOpen       ChargeState = "open"       // nobody's stake was taken for it yet, or it is not known to be false
	ChargeSubmitting ChargeState = "submitting" // that was begun; what is on chain says how far it came
	ChargeRight      ChargeState = "right"      // this peer computed the same
	ChargeTaken      ChargeState = "taken"      // this peer had the stake taken
	ChargeSlashed    ChargeState = "slashed"    // somebody had, for this or for what came later
	ChargeExpired    ChargeState = "expired"    // its receipt is older than the network lets evidence be
)

// Over says whether nothing more comes of it.
func (s ChargeState) Over() bool { return s != ChargeOpen && s != ChargeSubmitting }

// Charge is what became of one of the results.
type Charge struct {
	Provider sign.Key    `json:"provider"`
	State    ChargeState `json:"state"`
	Ballot   sign.Key    `json:"ballot,omitzero"` // that this peer opened, at Opened
	Opened   uint64      `json:"opened,omitempty"`
	Shown    bool        `json:"shown,omitempty"` // the account of its receipt may wait for being closed
	Outcome  *Outcome    `json:"outcome,omitempty"`
}

// Dissent is a proof that providers signed different results of one deterministic work, and what became of it.
type Dissent struct {
	ID        string     `json:"id"` // 16 hexadecimal digits, of the work and the leases
	Found     time.Time  `json:"found"`
	Own       bool       `json:"own"`            // this peer bought them
	Told      bool       `json:"told,omitempty"` // a light client did, for which this peer tells of it
	Work      sign.Hash  `json:"work"`
	Providers []sign.Key `json:"providers"`
	Wrong     []sign.Key `json:"wrong,omitempty"` // those that a majority differs from
	Computed  bool       `json:"computed"`        // this peer ran the work again: charges say who is right
	Charges   []Charge   `json:"charges"`         // in the order of the providers
	Why       string     `json:"why,omitempty"`   // nothing comes of it now
	Proof     []byte     `json:"proof"`           // replica.Dissent
}

// Over says whether nothing more comes of it.
func (d Dissent) Over() bool {
	return !slices.ContainsFunc(d.Charges, func(c Charge) bool { return !c.State.Over() })
}

type dissentRecord struct {
	Found  time.Time `json:"found"`
	Others bool      `json:"others,omitempty"` // somebody else found it
	Holder sign.Key  `json:"holder,omitzero"`  // who told of it, and has program and inputs; zero: they are here
	Told   bool      `json:"told,omitempty"`   // this peer tells of it for a light client
	Proof  []byte    `json:"proof"`
}

// judged is what the journal has of what became of a dissent.
type judged struct {
	Tries   int        `json:"tries,omitempty"` // how often running the work again was begun
	Output  sign.Hash  `json:"output,omitzero"` // that of the work, as this peer computed it
	Charges []Charge   `json:"charges"`
	Votes   []voteNote `json:"votes,omitempty"` // of this peer, whose rent comes back
}

// voteNote is where a vote is noted on chain.
type voteNote struct {
	Ballot sign.Key `json:"ballot"`
	Note   sign.Key `json:"note"`
	Ends   uint64   `json:"ends"`
}

// finished says whether nothing is left to be done.
func (j judged) finished() bool {
	return len(j.Votes) == 0 && !slices.ContainsFunc(j.Charges, func(c Charge) bool { return !c.State.Over() || c.Shown || !c.Ballot.IsZero() })
}

// clone shares nothing that is changed in place.
func (j judged) clone() judged {
	j.Charges, j.Votes = slices.Clone(j.Charges), slices.Clone(j.Votes)
	return j
}

// keptDissent is a dissent as it is remembered; its proof is in the journal.
type keptDissent struct {
	judged
	found    time.Time
	others   bool
	holder   sign.Key
	receipts []verify.Receipt
	wanted   bool        // this peer votes, and has to know who is right
	carried  time.Time   // since when it is seen that enough voted
	ready    market.Slot // in which this peer was first seen to know
	why      string
	due      time.Time // when running it again is tried next
	wait     time.Duration
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
		rec, d, err := readDissent(key, value)
		if err != nil {
			return err
		}
		x := newDissent(rec, d)
		b, err := k.cfg.Store.Get(ctx, kindJudged, key)
		if err == nil {
			if err = json.Unmarshal(b, &x.judged); err == nil && len(x.Charges) != len(d.Results) {
				err = errors.New("not as many charges as results")
			}
		}
		if err != nil && !errors.Is(err, store.ErrNotFound) {
			return fmt.Errorf("reading what became of evidence %s: %w", key, err)
		}
		k.dissents[key] = x
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

func newDissent(rec dissentRecord, d replica.Dissent) *keptDissent {
	x := &keptDissent{found: rec.Found, others: rec.Others, holder: rec.Holder}
	for _, r := range d.Results {
		x.receipts = append(x.receipts, r.Receipt)
		x.Charges = append(x.Charges, Charge{Provider: r.Receipt.Provider, State: ChargeOpen})
	}
	return x
}

// KeepDissent journals a proof that this peer found, once, and returns its id. Where there is no room it is only logged.
func (k *Keeper) KeepDissent(ctx context.Context, d replica.Dissent) (string, error) {
	id, _, err := k.keepDissent(ctx, d, dissentRecord{})
	return id, err
}

// HearDissent journals a proof that somebody else told of, who has the program and the inputs of its work, if there is room, and
// says whether it is new here.
func (k *Keeper) HearDissent(ctx context.Context, d replica.Dissent, holder sign.Key) (fresh bool, err error) {
	_, fresh, err = k.keepDissent(ctx, d, dissentRecord{Others: true, Holder: holder})
	return fresh, err
}

// TellDissent is HearDissent for a light client's, of which this peer tells the network; it has the program and the inputs.
func (k *Keeper) TellDissent(ctx context.Context, d replica.Dissent) (fresh bool, err error) {
	_, fresh, err = k.keepDissent(ctx, d, dissentRecord{Others: true, Told: true})
	return fresh, err
}

func (k *Keeper) keepDissent(ctx context.Context, d replica.Dissent, rec dissentRecord) (id string, fresh bool, err error) {
	if err := replica.CheckDissent(k.domain, d); err != nil {
		return "", false, err
	}
	id = dissentID(d)
	k.judging.Lock()
	defer k.judging.Unlock()
	was := k.dissents[id]
	if was != nil && (rec.Others || !was.others) {
		return id, false, nil
	}
	room, out := was != nil, ""
	if !room {
		room, out = k.roomForDissent(d, rec.Others)
	}
	if !room {
		k.cfg.Log.Error("a proof that results differ is not kept: there are too many", "id", id)
		return "", false, nil
	}
	rec.Found, rec.Proof = time.Now().UTC(), d.Marshal()
	b, err := json.Marshal(rec)
	if err != nil {
		return "", false, err
	}
	puts := []store.Put{{Kind: kindDissent, Key: id, Value: b}}
	if out != "" {
		puts = append(puts, store.Put{Kind: kindDissent, Key: out}, store.Put{Kind: kindJudged, Key: out})
	}
	if err := k.cfg.Store.Write(ctx, puts...); err != nil {
		return "", false, fmt.Errorf("keeping the proof that results differ: %w", err)
	}
	delete(k.dissents, out)
	x := newDissent(rec, d)
	if was != nil { // others told of it first
		x.judged = was.judged
	}
	k.dissents[id] = x
	k.cfg.Log.Warn("providers signed different results of one work; see starling evidence ls", "id", id, "results", len(d.Results))
	poke(k.judge)
	return id, was == nil, nil
}

// roomForDissent says whether there is room for another proof, and which one makes it, if one must: one of which nothing comes any
// more, for what this peer found also one that others told of. k.judging is held.
func (k *Keeper) roomForDissent(d replica.Dissent, others bool) (room bool, out string) {
	all, told, of := len(k.dissents), 0, map[sign.Key]int{}
	var oldest *keptDissent
	for id, x := range k.dissents {
		over := x.finished()
		if x.others {
			told++
			if !over {
				for _, r := range x.receipts {
					of[r.Provider]++
				}
			}
		}
		if (over || !others && x.others && !x.begun()) && (!others || x.others) && (oldest == nil || x.found.Before(oldest.found)) {
			oldest, out = x, id
		}
	}
	for _, r := range d.Results {
		if others && of[r.Receipt.Provider] >= maxDissentsOf {
			return false, ""
		}
	}
	if all < maxDissents && (!others || told < maxDissentsOthers) {
		return true, ""
	}
	return oldest != nil, out
}

// begun says whether there is something of it on chain that this peer paid for.
func (x *keptDissent) begun() bool {
	return len(x.Votes) > 0 || slices.ContainsFunc(x.Charges, func(c Charge) bool { return c.Shown || !c.Ballot.IsZero() })
}

// poke puts the one token into a channel that holds it.
func poke(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// KnowsDissent says whether a dissent with these receipts is kept, or there is no room for it now.
func (k *Keeper) KnowsDissent(a replica.Announcement) bool {
	k.judging.Lock()
	defer k.judging.Unlock()
	of := map[sign.Key]int{}
	for _, x := range k.dissents {
		if slices.Equal(x.receipts, a.Receipts) {
			return true
		}
		if x.others && !x.finished() {
			for _, r := range x.receipts {
				of[r.Provider]++
			}
		}
	}
	return slices.ContainsFunc(a.Receipts, func(r verify.Receipt) bool { return of[r.Provider] >= maxDissentsOf })
}

// Dissents lists the proofs that results differ, by id.
func (k *Keeper) Dissents(ctx context.Context) ([]Dissent, error) {
	out := []Dissent{}
	err := k.cfg.Store.List(ctx, kindDissent, "", func(key string, value []byte) error {
		rec, d, err := readDissent(key, value)
		if err != nil {
			return err
		}
		x := Dissent{ID: key, Found: rec.Found, Own: !rec.Others, Told: rec.Told, Work: d.Work.Hash(), Proof: rec.Proof}
		for _, r := range d.Results {
			x.Providers = append(x.Providers, r.Receipt.Provider)
		}
		_, wrong := d.Majority()
		for _, w := range wrong {
			x.Wrong = append(x.Wrong, d.Results[w].Receipt.Provider)
		}
		k.judging.Lock()
		if kept := k.dissents[key]; kept != nil {
			x.Charges, x.Computed, x.Why = slices.Clone(kept.Charges), !kept.Output.IsZero(), kept.why
		}
		k.judging.Unlock()
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
	Wrong       []int          `json:"wrong,omitempty"`   // of them: those that a majority differs from; who is wrong running the work again tells
	Again       *Again         `json:"again,omitempty"`   // set by whoever did
	Charges     []Charge       `json:"charges,omitempty"` // set by the peer that keeps it: what became of each
	Why         string         `json:"why,omitempty"`     // likewise: nothing comes of it now

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
