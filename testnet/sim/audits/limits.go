package audits

import (
	"math"

	"github.com/starling-network/starling/node/device/sim"
	"github.com/starling-network/starling/verify/audit"
)

// Shortfall is how much of its dataset a class can lack without being late: made again when it is read, or read from
// the host's memory.
type Shortfall struct {
	Class    string  `json:"class"`
	Made     float64 `json:"made"`     // made again
	Host     float64 `json:"host"`     // from the host
	Products float64 `json:"products"` // seconds that the products take
	Walk     float64 `json:"walk"`     // and the walk
	Overhead float64 `json:"overhead"` // both, of the hour between audits, and a day's fill of the dataset
	Slowest  float64 `json:"slowest"`  // share of its class's speed with which a card still passes
	Dataset  uint64  `json:"dataset"`  // bytes
	// identities that one card can answer for at a window's instant; 0: not bounded by its memory
	InOne int `json:"in_one"`
}

// Shortfalls gives those of every class: d = T·B/(reads·w) and T·H/reads, for a time T of the deadline and the
// allowance, B generator blocks and H reads of the host's memory a second, w blocks in a cell. All three go on at once,
// so T is there for each.
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

// CaptureRow is how likely colluding members can say for a provider how fast it is, in one audit: their share of the
// weight, by committee. Chosen is with a provider that asks its friends where Slack lets it.
type CaptureRow struct {
	Share        float64 `json:"share"`
	First        float64 `json:"first"`         // 5 of 7
	FirstChosen  float64 `json:"first_chosen"`  // 5 of 9
	Appeal       float64 `json:"appeal"`        // 8 of 11
	AppealChosen float64 `json:"appeal_chosen"` // 8 of 13
	Block        float64 `json:"block"`         // 3 of 7 can keep a first audit undecided
	BlockAppeal  float64 `json:"block_appeal"`  // 4 of 11
}

// Captures gives the rows for 10, 20 and 30 %.
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

// atLeast is the chance that k or more of n are of a share: a roster is large beside a committee.
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
