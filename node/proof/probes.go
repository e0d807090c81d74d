package proof

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/verify/exclusive"
)

// MaxProbes bounds the probes of a job, bytes of JSON.
const MaxProbes = 16 << 20

// ErrProbes reports probe records of which not every one has a right answer.
var ErrProbes = errors.New("not every probe has a right answer")

// Probes has the records of a job's probes.
type Probes struct {
	Job     string             `json:"job"`
	Records [][]byte           `json:"records"` // exclusive.Record
	open    []exclusive.Record // of Records
}

// NewProbes returns the probes of a job. It returns market.ErrMalformed.
func NewProbes(job string, records [][]byte) (Probes, error) {
	p := Probes{Job: job, Records: append([][]byte{}, records...)}
	return p, p.decode()
}

func (p *Probes) decode() error {
	for i, b := range p.Records {
		r, err := exclusive.UnmarshalRecord(b)
		if err != nil {
			return fmt.Errorf("probe record %d: %w", i+1, err)
		}
		p.open = append(p.open, r)
	}
	return nil
}

func decodeProbes(b []byte) (Probes, error) {
	p, err := strict[Probes](b, MaxProbes)
	if err == nil {
		err = p.decode()
	}
	return p, err
}

// Kind implements Content.
func (Probes) Kind() Kind { return KindProbes }

// Encode implements Content.
func (p Probes) Encode() ([]byte, error) { return json.Marshal(p) }

// Hash implements Content.
func (p Probes) Hash() sign.Hash {
	return hashOf("starling/proof/probes/v1", p)
}

// Subjects implements Content: the providers.
func (p Probes) Subjects() []sign.Key {
	var out []sign.Key
	for _, r := range p.open {
		if k := r.Lease.Core.Provider; !slices.Contains(out, k) {
			out = append(out, k)
		}
	}
	return out
}

// Summary implements Content.
func (p Probes) Summary() string {
	return fmt.Sprintf("job %.40s was probed %d times", p.Job, len(p.Records))
}

// Probe is one probe of a checked proof.
type Probe struct {
	Lease    market.LeaseID `json:"lease"`
	Provider sign.Key       `json:"provider"`
	Number   uint64         `json:"number"`
	Slot     market.Slot    `json:"slot"`
	Took     time.Duration  `json:"took"`
	Trip     time.Duration  `json:"trip"`
	Rate     uint64         `json:"rate"`            // operations a second
	Known    uint64         `json:"known,omitempty"` // the rate that the units had shown before
	Result   string         `json:"result"`          // "right", "WRONG: …" or "nothing: …"
}

// Check implements Content. The detail is a []Probe. A record that proves nothing breaks no other: the finding has a
// Fault unless every record has a right answer.
func (p Probes) Check(g market.Genesis) (Finding, error) {
	all := []Probe{}
	var fault error
	for _, r := range p.open {
		x := Probe{
			Lease: r.Question.Lease, Provider: r.Lease.Core.Provider, Number: r.Question.Number, Slot: r.Question.At,
			Took: r.Elapsed, Trip: r.Trip, Rate: r.Observation().Rate(), Known: r.Known, Result: "right",
		}
		if err := r.Check(g.Domain()); err != nil {
			fault, x.Result = ErrProbes, "nothing: "+err.Error()
			if exclusive.Wrong(err) {
				x.Result = "WRONG: " + err.Error()
			}
		}
		all = append(all, x)
	}
	return Finding{Detail: all, Fault: fault, rows: func(row func(...any)) {
		row()
		row("LEASE", "PROVIDER", "NUMBER", "SLOT", "TOOK", "TRIP", "RATE", "OF KNOWN", "SAYS")
		for _, x := range all {
			of := "-"
			if x.Known > 0 {
				of = fmt.Sprintf("%.2f", float64(x.Rate)/float64(x.Known))
			}
			row(x.Lease.Short(), x.Provider.Short(), x.Number, x.Slot, x.Took.Round(10*time.Microsecond),
				x.Trip.Round(10*time.Microsecond), fmt.Sprintf("%.1f GOPS", float64(x.Rate)/1e9), of, x.Result)
		}
		row()
	}}, nil
}
