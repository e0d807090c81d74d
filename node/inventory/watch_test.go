package inventory

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/node/gpu"
)

// Health is that of the devices, so far as they are there.
func (m *machineOf) Health(_ context.Context, uuids []string) (map[string]gpu.Health, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.looks++
	out := map[string]gpu.Health{}
	for _, d := range m.inv.Devices {
		for _, uuid := range uuids {
			if d.UUID == uuid {
				out[uuid] = d.Health
			}
		}
	}
	return out, m.err
}

func watched(t *testing.T, m *machineOf) *Watch {
	t.Helper()
	g := NewGPUs(m)
	if _, err := g.lots(t.Context(), sign.NewPrivate([32]byte{7}).Key(), gpuConfig(), 6); err != nil || !g.Sold() {
		t.Fatal(err)
	}
	return NewWatch(g, nil)
}

// A device that falls off the bus, one that is slowed down by heat and a driver that does not answer are problems, which
// show within the age of a look. Other reasons for a lower clock are none.
func TestGPUHealth(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m := testMachine()
		w := watched(t, m)
		want := func(problem, remedy string) {
			t.Helper()
			time.Sleep(healthFor)
			p := w.Health()
			if (p == nil) != (problem == "") || p != nil && (p.Problem != problem || !strings.Contains(p.Remedy, remedy)) {
				t.Errorf("%+v, want %q, %q", p, problem, remedy)
			}
		}
		want("", "")
		hot := uint32(93)
		m.change(func(d []gpu.Device) { d[0].Health.Throttle = []string{"power cap"} })
		want("", "")
		m.change(func(d []gpu.Device) {
			d[0].Health.Throttle = []string{"power cap", "hardware thermal slowdown"}
			d[0].Health.TemperatureC = &hot
			d[1].Health.Throttle = []string{"software thermal slowdown"}
		})
		want("slowed down by heat: GPU-aaaaaaaa at 93 °C, GPU-bbbbbbbb", "fans")
		m.change(func(d []gpu.Device) { d[2].UUID = "GPU-other" })
		want("no longer in this machine: GPU-cccccccc", "dmesg")
		m.change(func([]gpu.Device) { m.err = errors.New("starling-nvml ended") })
		want("the driver of the GPUs does not answer: starling-nvml ended", "nvidia-smi")
		m.change(func([]gpu.Device) { m.err = nil; m.inv = testMachine().inv })
		want("", "")
		looks := m.looks
		for range 5 {
			if w.Health() != nil || testutil.CollectAndCount(w) == 0 {
				t.Error("out of order")
			}
		}
		if m.looks != looks {
			t.Errorf("%d looks within %v", m.looks-looks, healthFor)
		}
	})
}

// Metrics are in base units, by device and class. A value that the driver does not give has no series, and a reason that
// is not known has no label of its own.
func TestGPUMetrics(t *testing.T) {
	t.Parallel()
	m := testMachine()
	m.inv.Devices = m.inv.Devices[:2]
	temp, use, power, clock, memory := uint32(61), uint32(97), uint32(350_500), uint32(1980), uint64(1024)
	m.inv.Devices[0].Health = gpu.Health{
		TemperatureC: &temp, UtilisationPercent: &use, PowerMilliwatts: &power, ClockMHz: &clock, MemoryUsedMiB: &memory,
		ECC: &gpu.ECC{Correctable: 3, Uncorrectable: 1}, Xid: &gpu.Xid{Count: 2}, Throttle: []string{"power cap", "\x1bnew"},
	}
	w := watched(t, m)
	m.change(func(d []gpu.Device) { d[1].UUID = "GPU-other" })
	const want = `
# HELP starling_gpu_clock_hertz Clock of the GPU's processors.
# TYPE starling_gpu_clock_hertz gauge
starling_gpu_clock_hertz{class="gpu/h100",gpu="GPU-aaaaaaaa"} 1.98e+09
# HELP starling_gpu_ecc_errors_total Memory errors of the GPU since its driver was loaded.
# TYPE starling_gpu_ecc_errors_total counter
starling_gpu_ecc_errors_total{class="gpu/h100",gpu="GPU-aaaaaaaa",kind="correctable"} 3
starling_gpu_ecc_errors_total{class="gpu/h100",gpu="GPU-aaaaaaaa",kind="uncorrectable"} 1
# HELP starling_gpu_memory_used_bytes Memory of the GPU that is in use.
# TYPE starling_gpu_memory_used_bytes gauge
starling_gpu_memory_used_bytes{class="gpu/h100",gpu="GPU-aaaaaaaa"} 1.073741824e+09
# HELP starling_gpu_power_watts Power that the GPU draws.
# TYPE starling_gpu_power_watts gauge
starling_gpu_power_watts{class="gpu/h100",gpu="GPU-aaaaaaaa"} 350.5
# HELP starling_gpu_temperature_celsius Temperature of the GPU.
# TYPE starling_gpu_temperature_celsius gauge
starling_gpu_temperature_celsius{class="gpu/h100",gpu="GPU-aaaaaaaa"} 61
# HELP starling_gpu_throttled 1 while the GPU is slowed down, by reason.
# TYPE starling_gpu_throttled gauge
starling_gpu_throttled{class="gpu/h100",gpu="GPU-aaaaaaaa",reason="hardware slowdown"} 0
starling_gpu_throttled{class="gpu/h100",gpu="GPU-aaaaaaaa",reason="hardware thermal slowdown"} 0
starling_gpu_throttled{class="gpu/h100",gpu="GPU-aaaaaaaa",reason="other"} 1
starling_gpu_throttled{class="gpu/h100",gpu="GPU-aaaaaaaa",reason="power brake"} 0
starling_gpu_throttled{class="gpu/h100",gpu="GPU-aaaaaaaa",reason="power cap"} 1
starling_gpu_throttled{class="gpu/h100",gpu="GPU-aaaaaaaa",reason="software thermal slowdown"} 0
starling_gpu_throttled{class="gpu/h100",gpu="GPU-aaaaaaaa",reason="sync boost"} 0
# HELP starling_gpu_up 1 while the driver shows the GPU, which is sold.
# TYPE starling_gpu_up gauge
starling_gpu_up{class="gpu/h100",gpu="GPU-aaaaaaaa"} 1
starling_gpu_up{class="gpu/h100",gpu="GPU-bbbbbbbb"} 0
# HELP starling_gpu_utilization_ratio Part of the time in which a program ran on the GPU, 0 to 1.
# TYPE starling_gpu_utilization_ratio gauge
starling_gpu_utilization_ratio{class="gpu/h100",gpu="GPU-aaaaaaaa"} 0.97
# HELP starling_gpu_xid_errors_total Errors that the GPU's driver reported since the peer watches it.
# TYPE starling_gpu_xid_errors_total counter
starling_gpu_xid_errors_total{class="gpu/h100",gpu="GPU-aaaaaaaa"} 2
`
	if err := testutil.CollectAndCompare(w, strings.NewReader(want)); err != nil {
		t.Error(err)
	}
	if problems, err := testutil.CollectAndLint(w); err != nil || len(problems) > 0 {
		t.Errorf("metrics: %v, %v", problems, err)
	}
}
