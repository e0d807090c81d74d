package bench

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
)

// CoreResult is the result of a Go benchmark: cores run on one processor core, data transfers on all of them.
type CoreResult struct {
	Benchmark string  `json:"benchmark"` // its package and name
	What      string  `json:"what"`
	Unit      string  `json:"unit"`
	Measured  float64 `json:"measured"`
	Limit     float64 `json:"limit,omitempty"` // 0: only reported
	AtLeast   bool    `json:"at_least,omitempty"`
}

// coreBenchmark is one figure that a Go benchmark reports.
type coreBenchmark struct {
	CoreResult
	pkg, name string
	figure    string  // unit in the benchmark's output line
	scale     float64 // factor from that unit to Unit
	moves     bool    // transfers data: runs on all processor cores
	over      string  // benchmark with the divisor; "" for none
	less      string  // benchmark with the subtrahend; "" for none
}

func coreBenchmarks() []coreBenchmark {
	of := func(pkg, name, figure string, scale float64, r CoreResult) coreBenchmark {
		r.Benchmark = pkg + " " + name
		return coreBenchmark{CoreResult: r, pkg: pkg, name: name, figure: figure, scale: scale}
	}
	moves := func(pkg, name, figure string, r CoreResult) coreBenchmark {
		c := of(pkg, name, figure, 1, r)
		c.moves = true
		return c
	}
	return []coreBenchmark{
		of("./market/match", "BenchmarkMatch100k/usual", "ns/op", 1e-6,
			CoreResult{What: "match 100,000 offers of many classes", Unit: "ms", Limit: 10}),
		of("./market/match", "BenchmarkMatch100k/worst", "ns/op", 1e-6,
			CoreResult{What: "match 100,000 offers that all fit", Unit: "ms", Limit: 10}),
		of("./market/match", "BenchmarkMatch100k/nothing-fits", "ns/op", 1e-6,
			CoreResult{What: "match 100,000 offers, none of which fits", Unit: "ms", Limit: 10}),
		of("./verify", "BenchmarkReceiptBuildAndCosign", "receipts/s/core", 1,
			CoreResult{What: "receipts made: built, signed by both, chained", Unit: "1/s/core", Limit: 10_000,
				AtLeast: true}), of("./verify", "BenchmarkCheckChain", "receipts/s/core", 1,
			CoreResult{What: "receipts checked: both signatures, the chain", Unit: "1/s/core", Limit: 10_000,
				AtLeast: true}), moves("./cmd/internal/cli/rooms", "BenchmarkLogs", "lines/s",
			CoreResult{What: "log lines from a program to the command line", Unit: "1/s", Limit: 10_000,
				AtLeast: true}), moves("./p2p/blob", "BenchmarkFetch/link", "of-raw",
			CoreResult{What: "1 GiB input, hashed and on disk, to a bare stream over 5 Gbit/s", Unit: "of its rate",
				Limit: 0.8, AtLeast: true}),
		moves("./node/machine", "BenchmarkRunner/machines=1/callers=64", "×mutex",
			CoreResult{What: "64 callers of one machine that share writes, to a write each", Unit: "x as fast",
				Limit: 5, AtLeast: true}), moves("./node/machine", "BenchmarkRunner/machines=256/callers=256", "×mutex",
			CoreResult{What: "256 machines whose writes share syncs, to a write each", Unit: "x as fast", Limit: 5,
				AtLeast: true}),
		// Both ends run on this machine: on two cores, hashing alone limits it to 0.8 of a stream without hashing.
		moves("./p2p/blob", "BenchmarkFetch/loopback", "of-raw",
			CoreResult{What: "the same over the loopback, both ends on the same cores", Unit: "of its rate", Limit: 0.5,
				AtLeast: true}),
	}
}

// swarmBenchmarks send files to several peers, or many files. They take long, and run once.
func swarmBenchmarks() []coreBenchmark {
	const pkg = "./p2p/blob"
	row := func(name, figure string, r CoreResult) coreBenchmark {
		r.Benchmark = pkg + " " + name
		return coreBenchmark{CoreResult: r, pkg: pkg, name: name, figure: figure, scale: 1}
	}
	return []coreBenchmark{
		row("BenchmarkSwarm", "of-one", CoreResult{
			What: "100 MB image to 4 cold peers from one over an uplink of 25 MB/s, to one copy", Unit: "of its time",
			Limit: 1.6}),
		row("BenchmarkSwarm", "of-uplink", CoreResult{
			What: "the one copy, to the uplink", Unit: "of its rate", Limit: 0.9, AtLeast: true}),
		row("BenchmarkSwarm", "peak-MB", CoreResult{
			What: "memory of these five peers together", Unit: "MB", Limit: 200}),
		row("BenchmarkSmallFiles", "files/s", CoreResult{
			What: "99,000 small files: packed, sent, unpacked", Unit: "1/s", Limit: 2000, AtLeast: true}),
		row("BenchmarkSmallFiles", "peak-MB", CoreResult{
			What: "memory of these two peers together", Unit: "MB", Limit: 200}),
	}
}

// restartBenchmarks continue programs elsewhere, on a network of real peers.
func restartBenchmarks() []coreBenchmark {
	const pkg, name = "./testnet", "BenchmarkRestart"
	return []coreBenchmark{{pkg: pkg, name: name, figure: "of-copy-and-start", scale: 1, CoreResult: CoreResult{
		Benchmark: pkg + " " + name, Unit: "of their time", Limit: 1.3,
		What: "restart from a checkpoint of 1 GiB on another peer, to its copy and a start"}}}
}

// overlayBenchmarks compare the network of a cluster with a bare one, and with wireguard-go on a socket of its own, in
// one run.
func overlayBenchmarks() []coreBenchmark {
	const pkg = "./p2p/overlay"
	row := func(name, figure string, scale float64, r CoreResult) coreBenchmark {
		r.Benchmark = pkg + " " + name
		return coreBenchmark{CoreResult: r, pkg: pkg, name: name, figure: figure, scale: scale}
	}
	gigabits := row("BenchmarkTCP/flows=1/overlay", "MB/s", 8e-3,
		CoreResult{What: "TCP between two containers of a cluster", Unit: "Gbit/s", Limit: 1, AtLeast: true})
	ratio := row("BenchmarkTCP/flows=1/overlay", "MB/s", 1,
		CoreResult{What: "the same, to wireguard-go on a socket of its own", Unit: "of its rate", Limit: 0.6,
			AtLeast: true})
	ratio.over = "BenchmarkTCP/flows=1/wireguard"
	rtt := row("BenchmarkRPC/bulk=0/overlay", "p50-ms", 1,
		CoreResult{What: "round trip of a small call, more than without an overlay", Unit: "ms", Limit: 0.3})
	rtt.less = "BenchmarkRPC/bulk=0/raw"
	wan := row("BenchmarkWAN/overlay",
		"MB/s", 1, CoreResult{What: "TCP over 200 Mbit/s with 40 ms and 0.1 % loss, to the same without an overlay",
			Unit: "of its rate", Limit: 0.8, AtLeast: true})
	wan.over = "BenchmarkWAN/raw"
	// With eight flows, calls wait for the two cores, without an overlay too: these figures have no target.
	return []coreBenchmark{gigabits, ratio, wan, rtt,
		row("BenchmarkRPC/bulk=1/overlay", "p99-ms", 1,
			CoreResult{What: "a small call beside bulk, the slowest hundredth", Unit: "ms", Limit: 30}),
		row("BenchmarkRPC/bulk=8/overlay", "p99-ms", 1, CoreResult{What: "the same beside 8 flows", Unit: "ms"}),
		row("BenchmarkRPC/bulk=8/raw", "p99-ms", 1,
			CoreResult{What: "the same beside 8 flows without an overlay", Unit: "ms"})}
}

// overlay compares a cluster's network with others. It needs root and TUN devices.
func (b *bench) overlay(ctx context.Context) error {
	_, tun := os.Stat("/dev/net/tun")
	_, ip := exec.LookPath("ip")
	err := errors.Join(tun, ip)
	if os.Geteuid() != 0 {
		err = errors.New("it needs root")
	}
	if err != nil {
		b.say("the network of a cluster: skipped, %v", err)
		return nil
	}
	b.say("the network of a cluster, on all processor cores")
	return b.benchmarks(ctx, overlayBenchmarks(), []string{"STARLING_NETNS=1"}, "2s")
}

// cores runs the benchmarks of the cores on one processor core and the benchmarks of data transfers on all.
func (b *bench) cores(ctx context.Context) error {
	b.say("the cores, on one processor core; logs and files, on all")
	var alone, moving []coreBenchmark
	for _, c := range coreBenchmarks() {
		if c.moves {
			moving = append(moving, c)
		} else {
			alone = append(alone, c)
		}
	}
	return errors.Join(b.benchmarks(ctx, alone, []string{"GOMAXPROCS=1"}, "1s"), b.benchmarks(ctx, moving, nil, "5x"),
		b.benchmarks(ctx, swarmBenchmarks(), nil, "1x"), b.benchmarks(ctx, restartBenchmarks(), nil, "3x"))
}

// benchmarks runs Go benchmarks, each with -benchtime each, and records their figures.
func (b *bench) benchmarks(ctx context.Context, all []coreBenchmark, env []string, each string) error {
	var pkgs, names []string
	for _, c := range all {
		pkgs = add(pkgs, c.pkg)
		names = add(names, strings.SplitN(c.name, "/", 2)[0])
	}
	out, err := goTest(ctx, env, append([]string{"-run", "^$", "-bench", "^(" + strings.Join(names, "|") + ")$",
		"-benchtime", each, "-p", "1"}, pkgs...)...)
	if err != nil {
		return err
	}
	found, err := parseBenchmarks(out)
	if err != nil {
		return err
	}
	for _, c := range all {
		v, ok := found[c.name][c.figure]
		if !ok {
			return fmt.Errorf("%s reports no %s", c.Benchmark, c.figure)
		}
		if of, err := other(found, c.over, c.figure); err != nil {
			return err
		} else if c.over != "" {
			v /= of
		}
		off, err := other(found, c.less, c.figure)
		if err != nil {
			return err
		}
		c.Measured = (v - off) * c.scale
		b.report.Cores = append(b.report.Cores, c.CoreResult)
	}
	return nil
}

// other returns the figure of another benchmark for a comparison; 0 if name is "".
func other(found map[string]map[string]float64, name, figure string) (float64, error) {
	if name == "" {
		return 0, nil
	}
	v, ok := found[name][figure]
	if !ok || v <= 0 {
		return 0, fmt.Errorf("%s reports no %s to compare with", name, figure)
	}
	return v, nil
}

// add appends s unless it is the last one.
func add(list []string, s string) []string {
	if len(list) > 0 && list[len(list)-1] == s {
		return list
	}
	return append(list, s)
}

// Simulated is one run of whole peers on a simulated network, in which time passes only while all of them wait. The
// figures are the delays of the network and of timers, without computing time.
type Simulated struct {
	Name   string  `json:"name"`
	Orders int     `json:"orders"`
	P50    float64 `json:"p50"` // ms from order to lease
	P99    float64 `json:"p99"`
}

// simulated runs the peers of the test harness.
func (b *bench) simulated(ctx context.Context) error {
	b.say("the same network simulated")
	const test = "TestOrderToLease"
	out, err := goTest(ctx, nil, "-run", "^"+test+"$", "-v", "./testnet/harness", "-orders", "100")
	if err != nil {
		return err
	}
	b.report.Simulated, err = parseSimulated(out, test)
	return err
}

// goTest runs go test in the source checkout.
func goTest(ctx context.Context, env []string, args ...string) ([]byte, error) {
	cmd := exec.CommandContext(ctx, "go", append([]string{"test", "-count", "1"}, args...)...)
	cmd.Env = append(os.Environ(), env...)
	var errs bytes.Buffer
	cmd.Stderr = &errs
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("go %s (run this from a checkout of the source): %w\n%s%s",
			strings.Join(cmd.Args[1:], " "), err, out, errs.Bytes())
	}
	return out, nil
}

// parseBenchmarks reads the figures of every benchmark from the output of go test, by the benchmark's name without its
// number of processors:
//
//	BenchmarkCheckChain-2    63    18290354 ns/op    13996 receipts/s
func parseBenchmarks(out []byte) (map[string]map[string]float64, error) {
	all := map[string]map[string]float64{}
	sc := bufio.NewScanner(bytes.NewReader(out))
	for sc.Scan() {
		f := strings.Fields(sc.Text())
		if len(f) < 4 || !strings.HasPrefix(f[0], "Benchmark") || len(f)%2 != 0 {
			continue
		}
		name := f[0]
		if i := strings.LastIndexByte(name, '-'); i > 0 {
			if _, err := strconv.Atoi(name[i+1:]); err == nil {
				name = name[:i]
			}
		}
		figures := map[string]float64{}
		for i := 2; i < len(f); i += 2 {
			v, err := strconv.ParseFloat(f[i], 64)
			if err != nil {
				return nil, fmt.Errorf("reading the figures of %s: %w", name, err)
			}
			figures[f[i+1]] = v
		}
		all[name] = figures
	}
	return all, sc.Err()
}

// parseSimulated reads the attributes that the tests below a test print:
//
//	=== ATTR  TestOrderToLease/direct/RTT=50ms p99_ms 220.0
func parseSimulated(out []byte, test string) ([]Simulated, error) {
	var all []Simulated
	sc := bufio.NewScanner(bytes.NewReader(out))
	for sc.Scan() {
		f := strings.Fields(sc.Text())
		if len(f) != 5 || f[0] != "===" || f[1] != "ATTR" {
			continue
		}
		name, ok := strings.CutPrefix(f[2], test+"/")
		if !ok {
			continue
		}
		name = strings.NewReplacer("/", ", ", "=", " ").Replace(name)
		v, err := strconv.ParseFloat(f[4], 64)
		if err != nil {
			return nil, fmt.Errorf("reading the figures of %s: %w", name, err)
		}
		i := len(all) - 1
		if i < 0 || all[i].Name != name {
			all = append(all, Simulated{Name: name})
			i++
		}
		switch f[3] {
		case "orders":
			all[i].Orders = int(v)
		case "p50_ms":
			all[i].P50 = v
		case "p99_ms":
			all[i].P99 = v
		}
	}
	if len(all) == 0 {
		return nil, errors.New("the simulation reported nothing")
	}
	slices.SortFunc(all, func(a, b Simulated) int { return strings.Compare(a.Name, b.Name) }) // they ran in parallel
	return all, sc.Err()
}
