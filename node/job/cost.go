package job

import (
	"fmt"
	"math/bits"
	"time"

	"github.com/starling-network/starling/market"
)

// Payment bounds the job in money.
type Payment struct {
	MaxPrice market.Price  `json:"maxPrice"`       // base units per unit-hour
	Budget   market.Amount `json:"budget"`         // base units, for everything
	Decimals uint8         `json:"decimals"`       // of the token that both were written in
	Free     bool          `json:"free,omitempty"` // the network has no money: MaxPrice and Budget are 0
}

// verifyCost is how often each rank of a checked job is computed at the most, unless providers keep differing: its
// result, one replica, and a third when the two differ.
const verifyCost = 3

// Units is how many units all ranks take together.
func (j Job) Units() uint64 { return uint64(j.Count) * uint64(j.Resources.Units) }

// MaxCost is the cost of the job if every unit runs for the whole time at the highest price, rounded up.
func (j Job) MaxCost() (market.Amount, error) {
	const hour = uint64(time.Hour / time.Millisecond)
	perHour, err := market.Amount(j.Payment.MaxPrice).Times(j.Units() + uint64(j.Standbys)*uint64(j.Resources.Units))
	if err != nil {
		return 0, fmt.Errorf("cost of the job: %w", err)
	}
	if j.Verify == VerifyReplicate {
		if perHour, err = perHour.Times(verifyCost); err != nil {
			return 0, fmt.Errorf("cost of the job: %w", err)
		}
	}
	hi, lo := bits.Mul64(uint64(perHour), uint64(j.Timeouts.Run.Milliseconds()))
	lo, carry := bits.Add64(lo, hour-1, 0)
	hi += carry
	if hi >= hour {
		return 0, fmt.Errorf("cost of the job: %w", market.ErrOverflow)
	}
	cost, _ := bits.Div64(hi, lo, hour)
	if j.Guardians == 0 {
		return market.Amount(cost), nil
	}
	return market.Amount(cost).Add(market.Amount(cost / WagePart))
}

// Guarded returns the job with a number of guardians, 0 for none, and their standbys. A budget that equals the job's
// maximum cost becomes that of the changed job.
func (j Job) Guarded(guardians uint32) Job {
	cost, err := j.MaxCost()
	all := err == nil && cost == j.Payment.Budget
	j.Guardians, j.Standbys = guardians, 0
	if guardians > 0 && j.Runtime != RuntimeVolume { // no other provider has its files
		j.Standbys = DefaultStandbys
	}
	if cost, err := j.MaxCost(); all && err == nil {
		j.Payment.Budget = cost
	}
	return j
}

// UnitsText is the units of every rank as a person reads them: "2 × cpu, at least 500m CPU, 256 MiB memory".
func (j Job) UnitsText() string {
	text, before, per := fmt.Sprintf("%d × %s", j.Resources.Units, j.Resources.Class), ", at least ", j.MinPerUnit()
	for _, part := range []struct {
		n    uint32
		unit string
	}{
		{per.MilliCPU, "m CPU"}, {per.MemoryMiB, " MiB memory"}, {per.VRAMMiB, " MiB GPU memory"},
		{per.DiskMiB, " MiB disk"},
	} {
		if part.n > 0 {
			text, before = fmt.Sprint(text, before, part.n, part.unit), ", "
		}
	}
	return text
}

// PriceText is the highest price as a person reads it: "0.05 per unit-hour".
func (p Payment) PriceText() string {
	return market.Decimal(uint64(p.MaxPrice), p.Decimals) + " per unit-hour"
}

// BudgetText is the budget in whole tokens: "0.25".
func (p Payment) BudgetText() string { return market.Decimal(uint64(p.Budget), p.Decimals) }

func checkPayment(j Job, ps *problems) {
	p := j.Payment
	if p.Decimals > market.MaxDecimals {
		ps.add("payment.decimals", "%d, at most %d", p.Decimals, market.MaxDecimals)
		return
	}
	switch {
	case p.Free && p.MaxPrice > 0:
		ps.add("spec.payment.maxPrice", "the only price on a free network is 0: leave it out")
	case p.Free && p.Budget > 0:
		ps.add("spec.payment.budget", "a free network has no payments: leave it out")
	case p.Free:
	case p.MaxPrice == 0:
		ps.add("spec.payment.maxPrice", "missing: give the highest price of a unit-hour")
	case p.Budget == 0:
		cost, err := j.MaxCost()
		switch {
		case err != nil:
			ps.add("spec.payment.maxPrice", "too high: the maximum cost exceeds 64 bits")
		case cost > 0: // otherwise ranks, units or time are wrong, which is reported already
			ps.add("spec.payment.budget", "must be greater than zero")
		}
	}
}
