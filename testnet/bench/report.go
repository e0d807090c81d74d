package bench

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/node/buyer"
	"github.com/starling-network/starling/testnet"
)

// Report is the result of a benchmark, as bench.json. Times are milliseconds unless their name says otherwise.
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
	// Sync is how long the disk takes to make 4 KiB durable, the median in ms. From
	// order to lease the journals of both sides are written several times, one after the other.
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

// SpreadOf sums values up. A percentile is the smallest value that at least so
// many per cent of the values do not exceed: always one that was measured.
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
	Again  int `json:"again"`  // orders beside these that a provider refused at first
	// ToLease is from the decision to order to all leases signed by both sides,
	// prepaid, active and in the buyer's journal.
	ToLease Spread `json:"to_lease"`
	Publish Spread `json:"publish"` // the order is signed and journalled
	Quote   Spread `json:"quote"`   // from there to the first quote
	Choose  Spread `json:"choose"`  // from there to the choice: more quotes may come
	Hold    Spread `json:"hold"`    // from there until the last of the units is held
	Sign    Spread `json:"sign"`    // from there until all leases are signed
	Fund    Spread `json:"fund"`    // from there, with the chain, until all are funded, prepaid and journalled
	// Signed is ToLease without Fund: what the peers take.
	Signed Spread `json:"signed"`
	// CPU is the processor time of all peers for each order, from its submission
	// to the end of its work, without that of the programs.
	CPU float64 `json:"cpu"`
	// All are all ToLease in the order in which they were measured.
	All []float64 `json:"all"`
}

// orderTimes is how long the parts of one order took.
type orderTimes struct {
	leases                                          int
	total, publish, quote, choose, hold, sign, fund time.Duration
}

var errNotAtOnce = errors.New("an order did not go through at once")

// timesOf reads the times of an order out of its job's trace.
func timesOf(steps []buyer.Step) (t orderTimes, err error) {
	var ordered, quoted, chosen, held, signed, leased time.Time
	for _, s := range steps {
		switch s.Kind {
		case buyer.StepOrdered:
			if ordered.IsZero() {
				ordered = s.At
			}
		case buyer.StepQuoted:
			if quoted.IsZero() {
				quoted = s.At
			}
		case buyer.StepChosen:
			chosen = s.At
			t.leases++
		case buyer.StepHeld:
			held = s.At
		case buyer.StepSigned:
			signed = s.At
		case buyer.StepLeased:
			leased, t.total = s.At, s.Took
		case buyer.StepLost, buyer.StepRefused:
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

// PaymentReport says that the orders were real: each job was run, metered and paid. Amounts are base units.
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

// IdleReport is what peers cost that have nothing to do.
type IdleReport struct {
	Peers      int     `json:"peers"`
	Seconds    float64 `json:"seconds"`
	RSS        Spread  `json:"rss_mb"`      // resident memory, 10^6 bytes, at the end
	Anonymous  Spread  `json:"rss_anon_mb"` // of that, memory that the processes do not share
	CPUPercent Spread  `json:"cpu_percent"` // of one core
	Threads    Spread  `json:"threads"`
}

// usage is the kernel's counters of a process.
type usage struct {
	cpu       time.Duration // user and system
	rss, anon uint64        // bytes
	threads   uint64
}

// tick is the unit of the times in /proc/PID/stat: USER_HZ, which is 100 on every Linux that Go runs on.
const tick = time.Second / 100

func usageOf(pid int) (usage, error) {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return usage{}, err
	}
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return usage{}, err
	}
	return parseUsage(stat, status)
}

// parseUsage reads fields 14 and 15 of /proc/PID/stat and the memory lines of /proc/PID/status.
func parseUsage(stat, status []byte) (u usage, err error) {
	fields := bytes.Fields(stat[bytes.LastIndexByte(stat, ')')+1:])
	if len(fields) < 13 {
		return u, errors.New("/proc/PID/stat is too short")
	}
	for _, f := range fields[11:13] {
		n, err := strconv.ParseUint(string(f), 10, 64)
		if err != nil {
			return u, fmt.Errorf("reading /proc/PID/stat: %w", err)
		}
		u.cpu += time.Duration(n) * tick
	}
	for line := range strings.Lines(string(status)) {
		f := strings.Fields(line)
		if len(f) < 2 {
			continue
		}
		n, _ := strconv.ParseUint(f[1], 10, 64)
		switch f[0] {
		case "VmRSS:":
			u.rss = n << 10
		case "RssAnon:":
			u.anon = n << 10
		case "Threads:":
			u.threads = n
		}
	}
	if u.rss == 0 {
		return u, errors.New("/proc/PID/status has no VmRSS")
	}
	return u, nil
}

func idleReport(before, after []usage, took time.Duration) IdleReport {
	var rss, anon, cpu, threads []float64
	for i := range after {
		rss = append(rss, float64(after[i].rss)/1e6)
		anon = append(anon, float64(after[i].anon)/1e6)
		cpu = append(cpu, 100*float64(after[i].cpu-before[i].cpu)/float64(took))
		threads = append(threads, float64(after[i].threads))
	}
	return IdleReport{Peers: len(after), Seconds: testnet.Seconds(took), RSS: SpreadOf(rss), Anonymous: SpreadOf(anon),
		CPUPercent: SpreadOf(cpu), Threads: SpreadOf(threads)}
}

// syncTime is the median time of an append of 4 KiB and its fsync in dir, in ms.
func syncTime(dir string) (float64, error) {
	f, err := os.CreateTemp(dir, "sync-")
	if err != nil {
		return 0, err
	}
	defer os.Remove(f.Name())
	defer f.Close()
	var all []float64
	for range 50 {
		began := time.Now()
		if _, err := f.Write(make([]byte, 4<<10)); err != nil {
			return 0, err
		}
		if err := f.Sync(); err != nil {
			return 0, err
		}
		all = append(all, millis(time.Since(began)))
	}
	return SpreadOf(all).P50, nil
}

func thisMachine(dir string) (m Machine, err error) {
	m = Machine{OS: runtime.GOOS, Arch: runtime.GOARCH, CPUs: runtime.NumCPU(), Go: runtime.Version()}
	if m.Sync, err = syncTime(dir); err != nil {
		return m, fmt.Errorf("measuring the disk: %w", err)
	}
	info, _ := os.ReadFile("/proc/cpuinfo") // only a name for the reader
	for line := range strings.Lines(string(info)) {
		if name, ok := strings.CutPrefix(line, "model name"); ok {
			m.CPU = strings.TrimSpace(strings.TrimLeft(name, "\t :"))
			break
		}
	}
	return m, nil
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

// figure prints three digits that count.
func figure(v float64) string {
	switch {
	case v == math.Trunc(v) || v >= 100:
		return strconv.FormatFloat(v, 'f', 0, 64)
	case v >= 10:
		return strconv.FormatFloat(v, 'f', 1, 64)
	}
	return strconv.FormatFloat(v, 'f', 2, 64)
}
