package bench

import (
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"text/tabwriter"
	"time"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/node/buyer/record"
)

// Report is the result of a benchmark, as bench.json. Times are milliseconds unless their name has another unit.
type Report struct {
	Machine    Machine         `json:"machine"`
	Targets    []Target        `json:"targets"` // the table
	Direct     RouteReport     `json:"direct"`
	Gossip     RouteReport     `json:"gossip"`
	GangDirect RouteReport     `json:"gang_direct"`
	GangGossip RouteReport     `json:"gang_gossip"`
	Simulated  []Simulated     `json:"simulated"`
	Cores      []CoreResult    `json:"cores"`
	Starts     []StartReport   `json:"starts"`
	Clusters   []ClusterReport `json:"clusters"`
	Idle       IdleReport      `json:"idle"`
	Payment    PaymentReport   `json:"payment"`
	Chain      ChainReport     `json:"chain"`
	// Ratios within this run, which compare better between machines than times do.
	Ratios map[string]float64 `json:"ratios"`
	// Seconds of wall time by stage.
	Seconds map[string]float64 `json:"seconds"`
}

// Machine is where the benchmark ran.
type Machine struct {
	OS   string `json:"os"`
	Arch string `json:"arch"`
	CPU  string `json:"cpu,omitempty"`
	CPUs int    `json:"cpus"`
	Go   string `json:"go"`
	// Sync is the median time in ms in which the disk makes 4 KiB durable. Both sides write their journals several
	// times in sequence from order to lease.
	Sync float64 `json:"sync"`
}

// Target is one line of the table.
type Target struct {
	Name     string  `json:"name"`
	Unit     string  `json:"unit"`
	Measured float64 `json:"measured"`
	// Limit is the target; nil for a figure without one.
	Limit   *float64 `json:"limit,omitempty"`
	AtLeast bool     `json:"at_least,omitempty"` // the limit is a lower one
	Pass    *bool    `json:"pass,omitempty"`
}

// Spread sums up measurements.
type Spread struct {
	Min  float64 `json:"min"`
	Mean float64 `json:"mean"`
	P50  float64 `json:"p50"`
	P90  float64 `json:"p90"`
	P99  float64 `json:"p99"`
	Max  float64 `json:"max"`
}

func (s Spread) String() string {
	return fmt.Sprintf("p50 %.1f, p90 %.1f, p99 %.1f, max %.1f ms", s.P50, s.P90, s.P99, s.Max)
}

// SpreadOf summarizes values. A percentile p is the smallest measured value that at least p per cent of the values do
// not exceed.
func SpreadOf(values []float64) Spread {
	if len(values) == 0 {
		return Spread{}
	}
	v := slices.Sorted(slices.Values(values))
	at := func(p float64) float64 { return v[max(int(math.Ceil(p/100*float64(len(v))))-1, 0)] }
	s := Spread{Min: v[0], P50: at(50), P90: at(90), P99: at(99), Max: v[len(v)-1]}
	for _, x := range v {
		s.Mean += x / float64(len(v))
	}
	return s
}

// RouteReport is the times of orders of one kind. The stages add up to ToLease in each order, their percentiles do not.
type RouteReport struct {
	Orders int `json:"orders"`
	Leases int `json:"leases"` // of each order
	Again  int `json:"again"`  // further orders that a provider refused at first
	// ToLease is the time from the decision to order until all leases are signed by both sides, prepaid, active and in
	// the buyer's journal.
	ToLease Spread `json:"to_lease"`
	Publish Spread `json:"publish"` // until the order is signed and journalled
	Quote   Spread `json:"quote"`   // then until the first quote
	Choose  Spread `json:"choose"`  // then until the choice: more quotes may arrive
	Hold    Spread `json:"hold"`    // then until the last of the units is held
	Sign    Spread `json:"sign"`    // then until all leases are signed
	Fund    Spread `json:"fund"`    // then, on the chain, until all are funded, prepaid and journalled
	// Signed is ToLease without Fund: the peers' share.
	Signed Spread `json:"signed"`
	// CPU is the processor time of all peers for each order, from its submission to the end of its work, without the
	// time of the programs.
	CPU float64 `json:"cpu"`
	// All are the values of ToLease in the order of their measurement.
	All []float64 `json:"all"`
}

// orderTimes are the durations of the parts of one order.
type orderTimes struct {
	leases                                          int
	total, publish, quote, choose, hold, sign, fund time.Duration
}

var errNotAtOnce = errors.New("an order did not go through at once")

// timesOf reads the times of an order out of its job's trace.
func timesOf(steps []record.Step) (t orderTimes, err error) {
	var ordered, quoted, chosen, held, signed, leased time.Time
	for _, s := range steps {
		switch s.Kind {
		case record.StepOrdered:
			if ordered.IsZero() {
				ordered = s.At
			}
		case record.StepQuoted:
			if quoted.IsZero() {
				quoted = s.At
			}
		case record.StepChosen:
			chosen = s.At
			t.leases++
		case record.StepHeld:
			held = s.At
		case record.StepSigned:
			signed = s.At
		case record.StepLeased:
			leased, t.total = s.At, s.Took
		case record.StepLost, record.StepRefused:
			return t, fmt.Errorf("%w: %s", errNotAtOnce, s)
		}
	}
	if ordered.IsZero() || quoted.IsZero() || chosen.IsZero() || held.IsZero() || signed.IsZero() || leased.IsZero() {
		return t, errors.New("a trace without all of ordered, quoted, chosen, held, signed and leased")
	}
	t.quote, t.choose, t.hold = quoted.Sub(ordered), chosen.Sub(quoted), held.Sub(chosen)
	t.sign, t.fund = signed.Sub(held), leased.Sub(signed)
	t.publish = t.total - leased.Sub(ordered)
	return t, nil
}

func routeReport(samples []orderTimes) RouteReport {
	spread := func(of func(orderTimes) time.Duration) (Spread, []float64) {
		var all []float64
		for _, s := range samples {
			all = append(all, millis(of(s)))
		}
		return SpreadOf(all), all
	}
	r := RouteReport{Orders: len(samples), Leases: samples[0].leases}
	r.ToLease, r.All = spread(func(t orderTimes) time.Duration { return t.total })
	r.Publish, _ = spread(func(t orderTimes) time.Duration { return t.publish })
	r.Quote, _ = spread(func(t orderTimes) time.Duration { return t.quote })
	r.Choose, _ = spread(func(t orderTimes) time.Duration { return t.choose })
	r.Hold, _ = spread(func(t orderTimes) time.Duration { return t.hold })
	r.Sign, _ = spread(func(t orderTimes) time.Duration { return t.sign })
	r.Fund, _ = spread(func(t orderTimes) time.Duration { return t.fund })
	r.Signed, _ = spread(func(t orderTimes) time.Duration { return t.total - t.fund })
	return r
}

func millis(d time.Duration) float64 {
	return float64(d.Round(10*time.Microsecond)) / float64(time.Millisecond)
}

// PaymentReport shows that the orders were real: each job was run, metered and paid. Amounts are base units.
type PaymentReport struct {
	Jobs     int           `json:"jobs"`
	Settled  int           `json:"settled"`
	Receipts int           `json:"receipts"`
	Owed     market.Amount `json:"owed"`
	Paid     market.Amount `json:"paid"`
}

func (p *PaymentReport) add(q PaymentReport) {
	p.Jobs, p.Settled, p.Receipts = p.Jobs+q.Jobs, p.Settled+q.Settled, p.Receipts+q.Receipts
	p.Owed, p.Paid = p.Owed+q.Owed, p.Paid+q.Paid
}

// IdleReport is the cost of idle peers.
type IdleReport struct {
	Peers      int     `json:"peers"`
	Seconds    float64 `json:"seconds"`
	RSS        Spread  `json:"rss_mb"`      // resident memory, 10^6 bytes, at the end
	Anonymous  Spread  `json:"rss_anon_mb"` // part of RSS that the processes do not share
	CPUPercent Spread  `json:"cpu_percent"` // of one core
	Threads    Spread  `json:"threads"`
}

// judgeOrders adds the lines of orders to the table.
func (r *Report) judgeOrders(
	line func(name, unit string, measured float64), held func(name, unit string, measured, limit float64, atLeast bool),
) {
	if r.Direct.Orders > 0 {
		held("order to signed lease, direct, p50", "ms", r.Direct.Signed.P50, 50, false)
		held("order to signed lease, direct, p99", "ms", r.Direct.Signed.P99, 200, false)
	}
	if r.Gossip.Orders > 0 {
		line("order to signed lease, gossip only, p50", "ms", r.Gossip.Signed.P50)
		held("order to signed lease, gossip only, p99", "ms", r.Gossip.Signed.P99, 1000, false)
	}
	for _, o := range []struct {
		name string
		of   RouteReport
	}{{"direct", r.Direct}, {"gossip only", r.Gossip}} {
		if o.of.Orders == 0 {
			continue
		}
		line(fmt.Sprintf("order to funded lease, %s, p50", o.name), "ms", o.of.ToLease.P50)
		line(fmt.Sprintf("order to funded lease, %s, p99", o.name), "ms", o.of.ToLease.P99)
	}
	for _, g := range []struct {
		name string
		of   RouteReport
	}{{"direct", r.GangDirect}, {"gossip only", r.GangGossip}} {
		if g.of.Orders == 0 {
			continue
		}
		line(fmt.Sprintf("order to %d leases, %s, p50", g.of.Leases, g.name), "ms", g.of.ToLease.P50)
		line(fmt.Sprintf("order to %d leases, %s, p99", g.of.Leases, g.name), "ms", g.of.ToLease.P99)
	}
}

// judge makes the table and the ratios and counts the missed targets.
func (r *Report) judge() (missed int) {
	line := func(name, unit string, measured float64) {
		r.Targets = append(r.Targets, Target{Name: name, Unit: unit, Measured: measured})
	}
	held := func(name, unit string, measured, limit float64, atLeast bool) {
		pass := measured <= limit
		if atLeast {
			pass = measured >= limit
		}
		if !pass {
			missed++
		}
		r.Targets = append(r.Targets, Target{Name: name, Unit: unit, Measured: measured, Limit: &limit,
			AtLeast: atLeast, Pass: &pass})
	}
	r.judgeOrders(line, held)
	for _, s := range r.Simulated {
		what := fmt.Sprintf("order to lease, simulated, %s", s.Name)
		line(what+", p50", "ms", s.P50)
		line(what+", p99", "ms", s.P99)
	}
	for _, s := range r.Starts {
		line(fmt.Sprintf("submit to running, %s, p50", s.Runtime), "ms", s.Submitted.P50)
		if s.First.P50 > 0 {
			line(fmt.Sprintf("the same, %s, with a provider not paid before", s.Runtime), "ms", s.First.P50)
		}
		held(fmt.Sprintf("of that over the bare runtime, %s", s.Runtime), "ms", s.Overhead, 60, false)
	}
	for _, c := range r.Clusters {
		what := fmt.Sprintf("%d members with %s", c.Members, c.Engine)
		line(what+", order to all of them seen, p50", "s", c.Submitted.P50/1000)
		line("of that, until all programs run, p50", "s", c.Running.P50/1000)
		line("as many plain containers with the same commands, p50", "s", c.Bare.P50/1000)
		held(what+", more than plain containers need", "s", c.Overhead/1000, 3, false)
	}
	for _, c := range r.Cores {
		if c.Limit == 0 {
			line(c.What, c.Unit, c.Measured)
		} else {
			held(c.What, c.Unit, c.Measured, c.Limit, c.AtLeast)
		}
	}
	if c := r.Chain; c.Leases > 0 {
		line(fmt.Sprintf("escrow of %d leases, transactions", c.Leases), "", float64(c.Open.Transactions))
		line("of these, bytes", "", float64(c.Open.Bytes))
		line("fees of opening and closing it", "lamports", float64(c.Open.Fees+c.Close.Fees))
		line("rent while it is open", "lamports", float64(c.Open.Rent))
		held("of that, refunded", "", c.Recovered, 1, true)
		line("fee of a claim", "lamports", ratio(float64(c.Claims.Fees), float64(c.Claims.Transactions)))
		line("claims on the local chain", "1/s", c.ClaimsPerSec)
		line("processor time for each, claiming peer", "ms", c.ClaimCPU)
		line("processor time for each, local chain", "ms", c.ClaimChain)
		for _, a := range c.Anchors {
			line(fmt.Sprintf("anchored receipt, %d to an anchor, all fees", a.Receipts), "lamports", a.PerReceipt)
			line(fmt.Sprintf("rent for it while the anchor of %d stays", a.Receipts), "lamports", a.Rent)
		}
	}
	if r.Idle.Peers > 0 {
		held("idle peer, resident memory, median", "MB", r.Idle.RSS.P50, 70, false)
		held("idle peer, resident memory, largest", "MB", r.Idle.RSS.Max, 80, false)
		line("idle peer, processor, median", "% of a core", r.Idle.CPUPercent.P50)
		held("idle peer, processor, largest", "% of a core", r.Idle.CPUPercent.Max, 1, false)
	}
	r.Ratios = map[string]float64{
		"gossip_p50_over_direct_p50":      ratio(r.Gossip.ToLease.P50, r.Direct.ToLease.P50),
		"direct_p99_over_p50":             ratio(r.Direct.ToLease.P99, r.Direct.ToLease.P50),
		"gossip_p99_over_p50":             ratio(r.Gossip.ToLease.P99, r.Gossip.ToLease.P50),
		"five_leases_p50_over_one_direct": ratio(r.GangDirect.ToLease.P50, r.Direct.ToLease.P50),
		"five_leases_p50_over_one_gossip": ratio(r.GangGossip.ToLease.P50, r.Gossip.ToLease.P50),
	}
	return missed
}

func ratio(a, b float64) float64 {
	if b == 0 {
		return 0
	}
	return math.Round(1000*a/b) / 1000
}

// print writes the table.
func (r *Report) print(w io.Writer) {
	m := r.Machine
	fmt.Fprintf(w, "\n%s, %d CPUs, %s/%s, %s, fsync %.2f ms\n\n", m.CPU, m.CPUs, m.OS, m.Arch, m.Go, m.Sync)
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintf(t, "\ttarget\tmeasured\t\t\t\n")
	for _, l := range r.Targets {
		target, verdict := "", ""
		if l.Limit != nil {
			target = "≤ " + figure(*l.Limit)
			if l.AtLeast {
				target = "≥ " + figure(*l.Limit)
			}
			verdict = "FAIL"
			if *l.Pass {
				verdict = "PASS"
			}
		}
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\t\n", l.Name, target, figure(l.Measured), l.Unit, verdict)
	}
	_ = t.Flush()
}

// figure formats three significant digits.
func figure(v float64) string {
	switch {
	case v == math.Trunc(v) || v >= 100:
		return strconv.FormatFloat(v, 'f', 0, 64)
	case v >= 10:
		return strconv.FormatFloat(v, 'f', 1, 64)
	}
	return strconv.FormatFloat(v, 'f', 2, 64)
}
