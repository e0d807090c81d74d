package audits

import (
	"math"

	"github.com/starling-network/starling/node/device/sim"
	"github.com/starling-network/starling/verify/audit"
)

// Shortfall is the part of its dataset that a class can lack without being late: computed again when it is read, or
// read from the host's memory.
type Shortfall struct {
	Class    string  `json:"class"`
	Made     float64 `json:"made"`     // part computed again
	Host     float64 `json:"host"`     // part in the host's memory
	Products float64 `json:"products"` // duration of the products, seconds
	Walk     float64 `json:"walk"`     // duration of the walk, seconds
	Overhead float64 `json:"overhead"` // share of both in the hour between audits, and of a day's fill of the dataset
	Slowest  float64 `json:"slowest"`  // lowest share of its class's speed with which a card passes
	Dataset  uint64  `json:"dataset"`  // bytes
	// number of identities that one card can answer for at a window's instant; 0 if its memory is no bound
	InOne int `json:"in_one"`
}

// Shortfalls returns the shortfalls of every class: d = T·B/(reads·w) and T·H/reads, for a time T of the deadline and
// the allowance, B generator blocks and H reads of the host's memory a second, w blocks in a cell. All three run at
// once, so each has the time T.
func Shortfalls() []Shortfall {
	var out []Shortfall
	for _, c := range append(append([]sim.Class{}, sim.GPUs...), sim.CPU16) {
		u := (&unit{}).claims(c)
		product, walk := u.floor.Deadlines(u.shape, u.walk)
		reads := float64(u.walk.Reads())
		seconds := float64(walk+audit.Allowance+audit.MaxTrip) / 1e6
		s := Shortfall{
			Class: c.Name, Made: min(seconds*c.Blocks/(reads*float64(u.walk.Work)), 1),
			Host: min(seconds*c.HostReads/reads, 1), Products: c.Multiplies(u.shape).Seconds(),
			Walk: c.Walks(u.walk, sim.Whole).Seconds(), Dataset: u.walk.Bytes(),
		}
		if c.Market.Family() == "gpu" {
			s.InOne = inOne(c)
		}
		s.Slowest = s.Products / (float64(product+audit.Allowance) / 1e6)
		s.Overhead = (s.Products + s.Walk + c.Fills(u.walk.Cells,
			u.walk.Work).Seconds()/audit.EraAudits) / hour.Seconds()
		out = append(out, s)
	}
	return out
}

// CaptureRow is the probability that colluding members decide a provider's reported speed in one audit, for their share
// of the weight, by committee. Chosen is with a provider that selects them as far as Slack allows.
type CaptureRow struct {
	Share        float64 `json:"share"`
	First        float64 `json:"first"`         // 5 of 7
	FirstChosen  float64 `json:"first_chosen"`  // 5 of 9
	Appeal       float64 `json:"appeal"`        // 8 of 11
	AppealChosen float64 `json:"appeal_chosen"` // 8 of 13
	Block        float64 `json:"block"`         // 3 of 7 can keep a first audit undecided
	BlockAppeal  float64 `json:"block_appeal"`  // 4 of 11
}

// Captures returns the rows for 10, 20 and 30 %.
func Captures() []CaptureRow {
	var out []CaptureRow
	for _, share := range []float64{0.10, 0.20, 0.30} {
		first, appeal := audit.Certify(audit.Committee), audit.Certify(audit.Appeal)
		out = append(out, CaptureRow{
			Share: share, First: atLeast(audit.Committee, first, share),
			FirstChosen:  atLeast(audit.Committee+audit.Slack, first, share),
			Appeal:       atLeast(audit.Appeal, appeal, share),
			AppealChosen: atLeast(audit.Appeal+audit.Slack, appeal, share),
			Block:        atLeast(audit.Committee, audit.Committee-first+1, share),
			BlockAppeal:  atLeast(audit.Appeal, audit.Appeal-appeal+1, share),
		})
	}
	return out
}

// atLeast is the probability that at least k of n members collude, for a roster much larger than a committee.
func atLeast(n, k int, share float64) float64 {
	sum := 0.0
	for i := k; i <= n; i++ {
		a, _ := math.Lgamma(float64(n + 1))
		b, _ := math.Lgamma(float64(i + 1))
		c, _ := math.Lgamma(float64(n - i + 1))
		sum += math.Exp(a - b - c + float64(i)*math.Log(share) + float64(n-i)*math.Log(1-share))
	}
	return sum
}
