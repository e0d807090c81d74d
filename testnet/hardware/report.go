package hardware

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/verify/audit"
)

// Report is the measurements of one card. Times are seconds.
type Report struct {
	At         time.Time    `json:"at"`
	GPU        bool         `json:"gpu"` // NVML lists the card
	Note       string       `json:"note,omitempty"`
	Model      string       `json:"model"`
	UUID       string       `json:"uuid"`
	Class      market.Class `json:"class"`
	Capability uint32       `json:"capability"` // major · 10 + minor
	VRAMMiB    uint32       `json:"vram_mib"`   // according to NVML
	FreeMiB    uint64       `json:"free_mib"`   // according to CUDA, in a helper with loaded kernels
	Driver     string       `json:"driver,omitempty"`
	NvidiaSMI  []string     `json:"nvidia_smi,omitempty"`
	OpenCold   float64      `json:"open_cold_s"` // start of a helper that compiles its kernels
	OpenWarm   float64      `json:"open_warm_s"` // start with kernels from the driver's cache

	SelfTest []string  `json:"self_test,omitempty"` // output lines of the self-test
	Products *Products `json:"products,omitempty"`
	Curve    []Point   `json:"curve,omitempty"`
	Compared []Compare `json:"compared,omitempty"`
	Two      *Two      `json:"two_helpers,omitempty"`
	Beside   *Beside   `json:"beside_a_load,omitempty"`
	Probes   *Probes   `json:"probes,omitempty"`
	Faults   []Fault   `json:"faults,omitempty"`
	Job      *Job      `json:"job,omitempty"`
	Floors   *Floors   `json:"floors,omitempty"`
	Failed   []string  `json:"failed,omitempty"`
}

// Products is the duration of an audit's products and their tree.
type Products struct {
	Shape      string    `json:"shape"`
	Seconds    []float64 `json:"seconds"` // of each measurement
	Operations float64   `json:"operations_per_s"`
	Allowed    float64   `json:"allowed_s,omitempty"` // for the class, with the network's share
}

// Point is a dataset of one size: the times of its fill, and of a walk over it with the tree over its ends.
type Point struct {
	MiB     uint64  `json:"mib"`
	Fill    float64 `json:"fill_s"`
	Walk    float64 `json:"walk_s"`
	Reads   float64 `json:"reads_per_s"`
	Allowed float64 `json:"allowed_s,omitempty"` // of a walk
}

// Compare is one comparison with the definition.
type Compare struct {
	What   string `json:"what"`
	Count  int    `json:"count"`
	Differ int    `json:"differ"`
}

// Two is the effect of two helpers on one card.
type Two struct {
	ProductsAlone    float64 `json:"products_alone_s"`
	ProductsTogether float64 `json:"products_together_s"` // the slower one
	WalkAlone        float64 `json:"walk_alone_s"`
	WalkTogether     float64 `json:"walk_together_s"`
	Refused          string  `json:"refused,omitempty"` // error of the second helper for memory of the first
}

// Beside is the cost of an audit for a program that computes on the card.
type Beside struct {
	Before   float64 `json:"before_operations_per_s"`
	During   float64 `json:"during_operations_per_s"`
	After    float64 `json:"after_operations_per_s"`
	Audit    float64 `json:"audit_s"`
	PerHour  float64 `json:"lost_of_an_hour"` // part of the program's work, with one audit an hour
	Products float64 `json:"products_s"`
	Walk     float64 `json:"walk_s"`
}

// Probes are the durations of probes of leased cards, which aim at 20 ms.
type Probes struct {
	Shape  string  `json:"shape"`
	Count  int     `json:"count"`
	Median float64 `json:"median_s"`
	P99    float64 `json:"p99_s"`
}

// Fault is a fault of a helper, its error, and the result of the next call.
type Fault struct {
	What  string `json:"what"`
	Error string `json:"error"`
}

// Job is the program of `starling run --gpus 1`.
type Job struct {
	How  string `json:"how"` // place of the run, and the devices visible there
	Said string `json:"said,omitempty"`
}

// Floors are this card's results for its class's floors.
type Floors struct {
	Operations    uint64 `json:"operations"`     // two thirds of the measured rate
	Reads         uint64 `json:"reads"`          // four fifths of it
	OperationsNow uint64 `json:"operations_now"` // present floor of audits
	ReadsNow      uint64 `json:"reads_now"`
	Source        string `json:"source"` // of the present floors
	Holds         bool   `json:"holds"`  // the card is above both
}

// errNothing means that a report has no measurements.
var errNothing = errors.New("nothing was measured")

// measured returns errNothing for a report without any rate, or without comparisons.
func (r *Report) measured() error {
	switch {
	case r.Products == nil || len(r.Products.Seconds) == 0:
		return fmt.Errorf("%w: no products", errNothing)
	case len(r.Curve) == 0:
		return fmt.Errorf("%w: no walk", errNothing)
	case len(r.Compared) == 0:
		return fmt.Errorf("%w: nothing was compared", errNothing)
	}
	return nil
}

// write writes the report.
func (r *Report) write(path string) error {
	b, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	return os.WriteFile(path, append(b, '\n'), 0o644)
}

// floors compares the measurements with the class's floors.
func (r *Report) floors() *Floors {
	if r.Products == nil || len(r.Curve) == 0 {
		return nil
	}
	last := r.Curve[len(r.Curve)-1]
	f := &Floors{Operations: uint64(r.Products.Operations * 2 / 3), Reads: uint64(last.Reads * 4 / 5)}
	if known, ok := audit.KnownAs(r.Class); ok {
		f.OperationsNow, f.ReadsNow, f.Source = known.Operations, known.Reads,
			fmt.Sprintf("class %s: %s", known.Class, known.Source)
		f.Holds = r.Products.Operations >= float64(known.Operations) && last.Reads >= float64(known.Reads)
	}
	return f
}

// The lines between which a file has the table of measured cards.
const (
	tableBegin = "<!-- measured by testnet/scenarios/gpu.sh: a row for each card -->"
	tableEnd   = "<!-- end of what gpu.sh measured -->"
	tableNone  = "None yet.\n"
	tableHead  = "| card | driver | when | products, with their tree | walk over all of it | fill | " +
		"an audit's products, walk; allowed | differs |\n" +
		"| --- | --- | --- | --- | --- | --- | --- | --- |\n"
)

// row is the card's row of the table.
func (r *Report) row() string {
	last := r.Curve[len(r.Curve)-1]
	differ, of := 0, 0
	for _, c := range r.Compared {
		differ, of = differ+c.Differ, of+c.Count
	}
	return fmt.Sprintf("| %s, %d MiB | %s | %s | %.0f·10¹² operations/s | %.1f·10⁹ reads/s over %d MiB | %.1f GB/s | "+
		"%.3f s, %.3f s; %.3f s, %.3f s | %d of %d |\n",
		r.Model, r.VRAMMiB, r.Driver, r.At.Format(time.DateOnly), r.Products.Operations/1e12, last.Reads/1e9, last.MiB,
		float64(last.MiB<<20)/last.Fill/1e9, median(r.Products.Seconds), last.Walk, r.Products.Allowed, last.Allowed,
		differ, of)
}

// note writes the card's row into a file's table, in place of an earlier row of the same model. A report without a GPU
// has no row.
func (r *Report) note(path string) error {
	if !r.GPU {
		return nil
	}
	b, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	before, rest, ok := strings.Cut(string(b), tableBegin+"\n")
	table, after, ok2 := strings.Cut(rest, tableEnd)
	if !ok || !ok2 {
		return fmt.Errorf("%s has no table of measured cards", path)
	}
	rows := tableHead
	for line := range strings.Lines(strings.TrimPrefix(strings.TrimPrefix(table, tableNone), tableHead)) {
		if strings.HasPrefix(line, "| ") && !strings.HasPrefix(line, fmt.Sprintf("| %s, ", r.Model)) {
			rows += line
		}
	}
	return os.WriteFile(path, []byte(before+tableBegin+"\n"+rows+r.row()+tableEnd+after), 0o644)
}
