package inventory

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/node/gpu"
	"github.com/starling-network/starling/node/service"
)

const (
	// gpuEvery is the interval between checks of the sold devices.
	gpuEvery = time.Minute
	// gpuTimeout bounds one check.
	gpuTimeout = 30 * time.Second
	// healthFor is the time for which the health of devices is cached. healthTimeout bounds one health query.
	healthFor     = 10 * time.Second
	healthTimeout = 5 * time.Second
)

// Watch is the service that watches the GPUs that are sold.
type Watch struct {
	gpus     *GPUs
	withdraw func(map[market.UnitID]string)

	mu     sync.Mutex
	at     time.Time // of the last health query
	health map[string]gpu.Health
	err    error
}

// NewWatch returns a watch over GPUs, which calls withdraw with the GPUs that can no longer be sold, and the reasons.
func NewWatch(g *GPUs, withdraw func(map[market.UnitID]string)) *Watch {
	return &Watch{gpus: g, withdraw: withdraw}
}

// Name implements service.Service.
func (*Watch) Name() string { return "gpus" }

// Run checks the sold devices until ctx ends.
func (w *Watch) Run(ctx context.Context) error {
	every := time.NewTicker(gpuEvery)
	defer every.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-every.C:
		}
		lctx, cancel := context.WithTimeout(ctx, gpuTimeout)
		inv, err := w.gpus.source.Inventory(lctx)
		cancel()
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			inv = gpu.Inventory{Problems: []string{"the inventory does not answer: " + err.Error()}}
		}
		if bad := w.gpus.judge(inv); len(bad) > 0 {
			w.withdraw(bad)
		}
	}
}

// look returns the sold devices in the order of their UUIDs, and their health, at most healthFor old.
func (w *Watch) look() ([]gpu.Device, map[string]gpu.Health, error) {
	devices := w.gpus.devices()
	w.mu.Lock()
	defer w.mu.Unlock()
	if now := time.Now(); w.at.IsZero() || now.Sub(w.at) >= healthFor {
		uuids := make([]string, len(devices))
		for i, d := range devices {
			uuids[i] = d.UUID
		}
		ctx, cancel := context.WithTimeout(context.Background(), healthTimeout)
		defer cancel()
		w.health, w.err = w.gpus.source.Health(ctx, uuids)
		w.at = now
	}
	return devices, w.health, w.err
}

// devices returns the devices that are sold, in the order of their UUIDs.
func (g *GPUs) devices() []gpu.Device {
	g.mu.Lock()
	defer g.mu.Unlock()
	out := make([]gpu.Device, 0, len(g.sold))
	for _, d := range g.sold {
		out = append(out, d)
	}
	slices.SortFunc(out, func(x, y gpu.Device) int { return strings.Compare(x.UUID, y.UUID) })
	return out
}

// Health implements service.Health: it returns a problem while the driver does not answer or does not show a device, or
// while heat slows one down.
func (w *Watch) Health() *service.Problem {
	devices, health, err := w.look()
	if err != nil {
		return &service.Problem{
			Problem: fmt.Sprintf("the driver of the GPUs does not answer: %v", err),
			Remedy:  "run nvidia-smi and read the kernel's log (dmesg)",
		}
	}
	var gone, hot []string
	for _, d := range devices {
		h, ok := health[d.UUID]
		switch {
		case !ok:
			gone = append(gone, d.UUID)
		case slices.ContainsFunc(h.Throttle, func(reason string) bool { return strings.Contains(reason, "thermal") }):
			at := ""
			if h.TemperatureC != nil {
				at = fmt.Sprintf(" at %d °C", *h.TemperatureC)
			}
			hot = append(hot, d.UUID+at)
		}
	}
	switch {
	case len(gone) > 0:
		return &service.Problem{
			Problem: "no longer in this machine: " + strings.Join(gone, ", "),
			Remedy:  "read the kernel's log (dmesg), reset the GPU or restart the machine",
		}
	case len(hot) > 0:
		return &service.Problem{
			Problem: "slowed down by heat: " + strings.Join(hot, ", "),
			Remedy:  "check fans and airflow, or lower the power limit (nvidia-smi -pl)",
		}
	}
	return nil
}

func gpuDesc(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc("starling_gpu_"+name, help, append([]string{"gpu", "class"}, labels...), nil)
}

var (
	descUp       = gpuDesc("up", "1 while the driver shows the GPU, which is sold.")
	descTemp     = gpuDesc("temperature_celsius", "Temperature of the GPU.")
	descUse      = gpuDesc("utilization_ratio", "Part of the time in which a program ran on the GPU, 0 to 1.")
	descMemory   = gpuDesc("memory_used_bytes", "Memory of the GPU that is in use.")
	descPower    = gpuDesc("power_watts", "Power that the GPU draws.")
	descClock    = gpuDesc("clock_hertz", "Clock of the GPU's processors.")
	descECC      = gpuDesc("ecc_errors_total", "Memory errors of the GPU since its driver was loaded.", "kind")
	descXid      = gpuDesc("xid_errors_total", "Errors that the GPU's driver reported since the peer watches it.")
	descThrottle = gpuDesc("throttled", "1 while the GPU is slowed down, by reason.", "reason")
)

// throttles are the reasons that drivers give, and one for all others.
var throttles = []string{
	"power cap", "hardware slowdown", "sync boost", "software thermal slowdown", "hardware thermal slowdown",
	"power brake", "other",
}

// Describe implements prometheus.Collector.
func (*Watch) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{
		descUp, descTemp, descUse, descMemory, descPower, descClock, descECC, descXid, descThrottle,
	} {
		ch <- d
	}
}

// Collect implements prometheus.Collector.
func (w *Watch) Collect(ch chan<- prometheus.Metric) {
	devices, health, _ := w.look() // of a driver that does not answer all are down
	for _, d := range devices {
		send := func(desc *prometheus.Desc, kind prometheus.ValueType, v float64, more ...string) {
			labels := append([]string{d.UUID, string(d.Class())}, more...)
			ch <- prometheus.MustNewConstMetric(desc, kind, v, labels...)
		}
		h, ok := health[d.UUID]
		if !ok {
			send(descUp, prometheus.GaugeValue, 0)
			continue
		}
		send(descUp, prometheus.GaugeValue, 1)
		gauge(send, descTemp, h.TemperatureC, 1)
		gauge(send, descUse, h.UtilisationPercent, 0.01)
		gauge(send, descMemory, h.MemoryUsedMiB, 1<<20)
		gauge(send, descPower, h.PowerMilliwatts, 0.001)
		gauge(send, descClock, h.ClockMHz, 1e6)
		if h.ECC != nil {
			send(descECC, prometheus.CounterValue, float64(h.ECC.Correctable), "correctable")
			send(descECC, prometheus.CounterValue, float64(h.ECC.Uncorrectable), "uncorrectable")
		}
		if h.Xid != nil {
			send(descXid, prometheus.CounterValue, float64(h.Xid.Count))
		}
		active := map[string]float64{}
		for _, reason := range h.Throttle {
			if !slices.Contains(throttles, reason) {
				reason = "other"
			}
			active[reason] = 1
		}
		for _, reason := range throttles {
			send(descThrottle, prometheus.GaugeValue, active[reason], reason)
		}
	}
}

// gauge sends a value, if the driver reports it, in its base unit.
func gauge[T uint32 | uint64](
	send func(*prometheus.Desc, prometheus.ValueType, float64, ...string), d *prometheus.Desc, v *T, unit float64,
) {
	if v != nil {
		send(d, prometheus.GaugeValue, float64(*v)*unit)
	}
}
