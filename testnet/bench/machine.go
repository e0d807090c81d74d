package bench

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"runtime"
	"strconv"
	"strings"
	"time"
)

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
	return IdleReport{Peers: len(after), Seconds: took.Round(time.Millisecond).Seconds(), RSS: SpreadOf(rss),
		Anonymous: SpreadOf(anon), CPUPercent: SpreadOf(cpu), Threads: SpreadOf(threads)}
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
	info, _ := os.ReadFile("/proc/cpuinfo") // only for the name of the processor
	for line := range strings.Lines(string(info)) {
		if name, ok := strings.CutPrefix(line, "model name"); ok {
			m.CPU = strings.TrimSpace(strings.TrimLeft(name, "\t :"))
			break
		}
	}
	return m, nil
}
