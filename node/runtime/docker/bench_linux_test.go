package docker

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/docker/docker/api/types/container"

	"github.com/starling-network/starling/node/runtime"
	"github.com/starling-network/starling/node/runtime/docker/images"
	"github.com/starling-network/starling/node/runtime/runtimetest"
	"github.com/starling-network/starling/node/runtime/volume"
)

// BenchmarkStart compares the time until a program runs with that of the bare engine, in turns: its create and start of
// the same image with the same sandbox and nothing else. Ours has a volume of the usual size and a user of its own.
// over-ms is the difference of the medians.
func BenchmarkStart(b *testing.B) {
	needEngine(b)
	r := newRuntime(b, shared, nil)
	ref := pulled(b, r, "plain", nil)
	img, err := r.images.Config(b.Context(), ref)
	if err != nil {
		b.Fatal(err)
	}
	dir := b.TempDir()
	ctx := context.Background()
	var ours, bare []time.Duration
	for i := 0; b.Loop(); i++ {
		s := runtime.Spec{ID: "b", Image: ref, Args: []string{"spin"}, Dir: filepath.Join(dir, fmt.Sprint(i)), Limits: runtime.Limits{MemoryMiB: 64}}
		began := time.Now()
		if r.volumes.None() == nil {
			disk := filepath.Join(dir, fmt.Sprint("disk", i))
			if err := r.MakeVolume(ctx, disk, runtime.DefaultDiskMiB<<20); err != nil {
				b.Fatal(err)
			}
			s.User, s.Mounts = 1, []runtime.Mount{{Host: disk, Guest: "/out"}}
		}
		h, err := r.Start(ctx, s)
		if err != nil {
			b.Fatal(err)
		}
		ours = append(ours, time.Since(began))
		if err := errors.Join(r.Destroy(ctx, h), volume.Release(dir)); err != nil {
			b.Fatal(err)
		}

		host := r.sandbox.Host(runtime.Spec{Limits: runtime.Limits{MemoryMiB: 64}}, images.Config{}, nil)
		host.Mounts = nil
		began = time.Now()
		made, err := r.engine.ContainerCreate(ctx, &container.Config{Image: img.ID, Cmd: []string{"spin"}}, host, nil, nil, "")
		if err == nil {
			err = r.engine.ContainerStart(ctx, made.ID, container.StartOptions{})
		}
		if err != nil {
			b.Fatal(err)
		}
		bare = append(bare, time.Since(began))
		if err := r.engine.Remove(ctx, made.ID); err != nil {
			b.Fatal(err)
		}
	}
	slices.Sort(ours)
	slices.Sort(bare)
	o, n := ours[len(ours)/2], bare[len(bare)/2]
	b.ReportMetric(float64(o.Microseconds())/1000, "ours-ms")
	b.ReportMetric(float64(n.Microseconds())/1000, "bare-ms")
	b.ReportMetric(float64((o-n).Microseconds())/1000, "over-ms")
	b.ReportMetric(0, "ns/op")
}

// BenchmarkStartLayers compares the time until a program runs, its volume made too, with a layer and without, in turns.
// over-ms is the difference of the medians, ratio their ratio, and over-least-ms the difference of the fastest starts, which other work
// on the machine changes least.
func BenchmarkStartLayers(b *testing.B) {
	needEngine(b)
	config, err := layersConfig(b.TempDir(), guardBin)
	if err != nil {
		b.Fatal(err)
	}
	r := newRuntime(b, ownEngine(b, "--config-file", config), nil)
	if !r.KeepsLayers() {
		b.Skip("containers have no layers here")
	}
	ref := pulled(b, r, "plain", nil)
	dir := b.TempDir()
	ctx := context.Background()
	took := map[bool][]time.Duration{}
	for i := 0; b.Loop(); i++ {
		for _, layer := range []bool{i%2 == 0, i%2 != 0} {
			disk := filepath.Join(dir, fmt.Sprint("disk", i, layer))
			s := runtime.Spec{ID: "b", Image: ref, Args: []string{"spin"}, Dir: filepath.Join(dir, fmt.Sprint(i, layer)), User: 1,
				Mounts: []runtime.Mount{{Host: filepath.Join(disk, "out"), Guest: "/out"}}, Limits: runtime.Limits{MemoryMiB: 64}}
			began := time.Now()
			if err := r.MakeVolume(ctx, disk, runtime.DefaultDiskMiB<<20); err != nil {
				b.Fatal(err)
			}
			if err := os.Mkdir(s.Mounts[0].Host, 0o755); err != nil {
				b.Fatal(err)
			}
			if layer {
				s.Layer = filepath.Join(disk, "layer")
			}
			h, err := r.Start(ctx, s)
			if err != nil {
				b.Fatal(err)
			}
			took[layer] = append(took[layer], time.Since(began))
			if err := errors.Join(r.Destroy(ctx, h), volume.Release(dir)); err != nil {
				b.Fatal(err)
			}
		}
	}
	median := func(layer bool) float64 {
		slices.Sort(took[layer])
		return float64(took[layer][len(took[layer])/2].Microseconds()) / 1000
	}
	b.ReportMetric(median(true), "layer-ms")
	b.ReportMetric(median(false), "plain-ms")
	b.ReportMetric(median(true)-median(false), "over-ms")
	b.ReportMetric(median(true)/median(false), "ratio")
	b.ReportMetric(float64((took[true][0]-took[false][0]).Microseconds())/1000, "over-least-ms")
	b.ReportMetric(float64(took[false][0].Microseconds())/1000, "plain-least-ms")
	b.ReportMetric(0, "ns/op")
}

// BenchmarkStartOverlay compares the time until a program with an overlay runs, its device given too, as a member of a cluster and alone,
// with that of one without, in turns. ratio is that of the medians of member and plain.
func BenchmarkStartOverlay(b *testing.B) {
	needEngine(b)
	r := newRuntime(b, shared, nil)
	ref := pulled(b, r, "plain", nil)
	if err := r.CanOverlay(b.Context()); err != nil { // which makes the image, as a peer does before it sells any
		b.Skip(err)
	}
	dir := b.TempDir()
	ctx := context.Background()
	begin := func(name string, s runtime.Spec) time.Duration {
		s.Dir, s.Limits.MemoryMiB = filepath.Join(dir, name), 64
		began := time.Now()
		h, err := r.Start(ctx, s)
		if err == nil && s.Overlay != nil {
			var f *os.File
			if f, err = r.Tun(ctx, h); err == nil {
				_ = f.Close()
			}
		}
		took := time.Since(began)
		if err == nil {
			err = r.Destroy(ctx, h)
		}
		if err != nil {
			b.Fatal(err)
		}
		return took
	}
	took := map[string][]time.Duration{}
	for i := 0; b.Loop(); i++ {
		for kind, s := range map[string]runtime.Spec{"overlay": node(b, ref, 0, "sleep"), "alone": lone(b, ref, "sleep"), "plain": probe(b, ref, "sleep")} {
			took[kind] = append(took[kind], begin(fmt.Sprint(kind, i), s))
		}
	}
	median := map[string]float64{}
	for kind, d := range took {
		slices.Sort(d)
		median[kind] = float64(d[len(d)/2].Microseconds()) / 1000
		b.ReportMetric(median[kind], kind+"-ms")
	}
	b.ReportMetric(median["overlay"]/median["plain"], "ratio")
	b.ReportMetric(0, "ns/op")
}

// BenchmarkContainerWayOut is the throughput of one TCP connection of a container to a server outside, each way.
func BenchmarkContainerWayOut(b *testing.B) {
	const mib = 1024
	e := ownEngine(b)
	outside(b, e)
	r := newRuntime(b, e, nil)
	ref := pulled(b, r, "plain", nil)
	for _, what := range []string{"down", "up"} {
		b.Run(what, func(b *testing.B) {
			var took time.Duration
			for b.Loop() {
				h := start(b, r, lone(b, ref, what, "11.22.33.44:"+bulkPorts[what], strconv.Itoa(mib)))
				wayOut(b, r, e, h)
				wait(b, r, h)
				millis, err := strconv.Atoi(strings.TrimSpace(output(b, h, runtime.Stdout)))
				if err != nil {
					b.Fatal(err)
				}
				took += time.Duration(millis) * time.Millisecond
			}
			b.ReportMetric(float64(b.N*mib<<20*8)/1e6/took.Seconds(), "Mbit/s")
			b.ReportMetric(0, "ns/op")
		})
	}
}

// BenchmarkAttach and BenchmarkDial need no engine.
func BenchmarkAttach(b *testing.B) {
	r := newRuntime(b, shared, nil)
	h := start(b, r, probe(b, pulled(b, r, "plain", nil), "sleep"))
	for b.Loop() {
		if code, err := r.Attach(context.Background(), h, runtime.Process{Args: []string{"/guest", "exit", "0"}}); err != nil || code != 0 {
			b.Fatal(code, err)
		}
	}
}

func BenchmarkDial(b *testing.B) {
	r := newRuntime(b, shared, nil)
	h := start(b, r, spec(b, pulled(b, r, "plain", nil), "serve", "80"))
	for b.Loop() {
		_ = runtimetest.Dial(b, r, h, 80).Close()
	}
}
