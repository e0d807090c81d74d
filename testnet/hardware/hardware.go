// Package hardware compares a GPU with the definition of the audits' challenges, and measures it, through the
// components of a peer: device, helper process and kernels. testnet/scenarios/gpu.sh runs it on a machine with a GPU,
// within ten minutes:
//
//	identity     the card by NVML and nvidia-smi; the time in which a helper opens it
//	self-test    starling-cuda --self-test: kernels against the processor, registers, rates of each kernel
//	products     the products of an audit of the class, with the tree over them
//	curve        fills of more and more of the memory, and a walk over each
//	comparison   walkers over the fullest memory, random shapes and tiles of the largest shape, against the definition
//	two helpers  two processes on one card at once; a process that requests the other's memory
//	load         a program that computes on the card, before, beside and after an audit
//	probes       a buyer's probes of a leased card
//	faults       a killed helper, a cancelled fill, another card's UUID, a dataset that is too large; the next call
//	             works
//	job          a CUDA program in a container by `starling run --gpus 1`, if an engine has NVIDIA's hook
//
// The report names the card. The tests run the same steps in small over the PTX interpreter, and mark their report as
// one without a GPU.
package hardware

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/node/device"
	"github.com/starling-network/starling/node/device/cuda"
	"github.com/starling-network/starling/node/gpu"
	"github.com/starling-network/starling/testnet/scenarios"
	"github.com/starling-network/starling/verify/audit"
	"github.com/starling-network/starling/verify/challenge"
)

// Config sets the measurements and the places of the results.
type Config struct {
	Starling   string // the peer's program, with starling-cuda and starling-nvml beside it
	UUID       string // of the GPU; "" selects the first sellable one
	Small      bool   // use sizes that the PTX interpreter runs in seconds
	Dir        string // directory of the job's files
	Out        string // JSON file of the report
	Benchmarks string // file with the table of measured cards, to add a row; optional
	Say        func(format string, args ...any)
}

// stepTime bounds one step.
const stepTime = 5 * time.Minute

// bench is a measured card.
type bench struct {
	Config
	report *Report
	helper string
	sizes  sizes
	device *cuda.Device // shared by most steps
}

// sizes are the sizes of the challenges.
type sizes struct {
	shape    challenge.Shape // as in an audit
	walk     challenge.Walk  // as in an audit, over the fullest dataset
	steps    []uint64        // bytes of the datasets of the curve, ascending; the last is the size of an audit
	repeat   int             // number of measurements of the products
	shapes   int             // number of random shapes, compared in full
	most     uint64          // highest number of operations of a random shape
	tiles    int             // number of compared tiles of an audit's products
	load     challenge.Shape // work of the concurrent program
	loadTime time.Duration   // time in which it is measured alone
}

// Run measures a card, and writes the report even after a failure. It returns an error if a step failed or nothing was
// measured.
func Run(ctx context.Context, cfg Config) ([]scenarios.Row, error) {
	b := &bench{Config: cfg, report: &Report{At: time.Now().UTC().Truncate(time.Second)}}
	b.helper = filepath.Join(filepath.Dir(cfg.Starling), cuda.HelperName)
	o := scenarios.Options{Say: cfg.Say}
	rows, err := scenarios.Play(ctx,
		o, stepTime, []scenarios.Step{{What: "identity of the card, opened by a helper", Run: b.identify}})
	if err == nil && rows[0].Err == nil {
		more, playErr := scenarios.Play(ctx, o, stepTime, []scenarios.Step{
			{What: "starling-cuda compares the kernels with the processor", Run: b.selfTest},
			{What: "an audit's products and their tree", Run: b.products},
			{What: "fills and walks of more and more of the memory", Run: b.curve},
			{What: "walkers over the fullest memory, by the definition", Run: b.compareWalk},
			{What: "products of many shapes, by the definition", Run: b.compareProducts},
			{What: "two helpers on one card", Run: b.two},
			{What: "an audit beside a computing program", Run: b.beside},
			{What: "probes of a leased card", Run: b.probes},
			{What: "killed, cancelled and refused helpers", Run: b.faults},
			{What: "a CUDA program, by starling run --gpus 1", Run: b.job},
		})
		rows, err = append(rows, more...), playErr
	}
	if b.device != nil {
		err = errors.Join(err, b.device.Close())
	}
	for _, r := range rows {
		if r.Err != nil {
			b.report.Failed = append(b.report.Failed, fmt.Sprintf("%s: %v", r.What, r.Err))
		}
	}
	if err == nil {
		err = b.report.measured()
	}
	err = errors.Join(err, b.report.write(cfg.Out))
	if err == nil && len(b.report.Failed) == 0 && cfg.Benchmarks != "" {
		err = b.report.note(cfg.Benchmarks)
	}
	return rows, err
}

// identify finds the card and opens it twice: without compiled kernels, and with the driver's cache.
func (b *bench) identify(ctx context.Context) (string, error) {
	r := b.report
	var found gpu.Device
	if out, err := exec.CommandContext(ctx, b.Starling, "provider", "gpus", "-o", "json").Output(); err == nil {
		var inv gpu.Inventory
		if err := json.Unmarshal(out, &inv); err != nil {
			return "", fmt.Errorf("starling provider gpus: %w", err)
		}
		r.Driver = inv.Driver
		for _, d := range inv.Devices {
			if d.Vendor == gpu.NVIDIA && (b.UUID == "" && d.Sellable() && found.UUID == "" || d.UUID == b.UUID) {
				found = d
			}
		}
	} else if b.UUID == "" {
		return "", fmt.Errorf("starling provider gpus: %w", err)
	}
	if b.UUID == "" {
		b.UUID = found.UUID
	}
	if b.UUID == "" {
		return "", errors.New("this machine has no sellable NVIDIA GPU (see starling provider gpus), " +
			"so nothing can be measured")
	}
	if smi, err := exec.LookPath("nvidia-smi"); err == nil {
		out, err := exec.CommandContext(ctx, smi, "-i", b.UUID, "--format=csv",
			"--query-gpu=name,driver_version,vbios_version,compute_mode,mig.mode.current,ecc.mode.current,power.limit,"+
				"clocks.max.sm,clocks.max.memory,memory.total,memory.used").CombinedOutput()
		r.NvidiaSMI = strings.Split(strings.TrimSpace(string(out)), "\n")
		if err != nil {
			r.NvidiaSMI = append(r.NvidiaSMI, err.Error())
		}
	}
	open := func(cache string) (float64, error) {
		if err := os.Setenv("CUDA_CACHE_DISABLE", cache); err != nil {
			return 0, err
		}
		began := time.Now()
		d, err := cuda.Open(ctx, cuda.Config{UUID: b.UUID, Helper: b.helper})
		if err != nil {
			return 0, err
		}
		if b.device != nil {
			err = b.device.Close()
		}
		b.device = d
		return time.Since(began).Seconds(), err
	}
	var err error
	if r.OpenCold, err = open("1"); err == nil {
		if _, err = open("0"); err == nil { // the first call fills the driver's cache
			r.OpenWarm, err = open("0")
		}
	}
	if err != nil {
		return "", err
	}
	info := b.device.Info()
	r.UUID, r.Model, r.Capability, r.FreeMiB = b.UUID, info.Model, info.Capability, info.Memory>>20
	r.Class, r.VRAMMiB = market.Class(gpu.ClassPrefix+gpu.ModelClass(info.Model)), uint32(info.Memory>>20)
	if found.UUID == b.UUID {
		r.Class, r.VRAMMiB = found.Class(), uint32(found.VRAMMiB)
		r.GPU = !found.Simulated
	}
	if !r.GPU {
		r.Note = "interpreter, not a GPU: unknown to NVML and the kernel's driver, " +
			"and the figures are not those of hardware"
	}
	if err := b.size(info); err != nil {
		return "", err
	}
	what := fmt.Sprintf("%s, %s, %d MiB free, class %s; opened in %.1f s, then in %.1f s",
		r.Model, r.UUID, r.FreeMiB, r.Class, r.OpenCold, r.OpenWarm)
	if r.Note != "" {
		what += "; " + r.Note
	}
	return what, nil
}

// size sets the sizes of the challenges to the card.
func (b *bench) size(info device.Info) error {
	if b.Small {
		b.sizes = sizes{
			shape: challenge.Shape{Rows: 128, Columns: 128, Depth: 128, Products: 1},
			walk:  challenge.Walk{Cells: 1 << 14, Work: 4, Walkers: 256, Steps: 64},
			steps: []uint64{1 << 14, 1 << 16, 1 << 17}, repeat: 2, shapes: 2, most: 1 << 22, tiles: 4,
			load: challenge.Shape{Rows: 64, Columns: 64, Depth: 128, Products: 1}, loadTime: time.Second,
		}
		return nil
	}
	res := market.Resources{VRAMMiB: b.report.VRAMMiB}
	shape, walk, err := audit.Plan(b.report.Class, res)
	if err != nil {
		return err
	}
	s := sizes{
		shape: shape, walk: walk, repeat: 5, shapes: 50, most: 1 << 33, tiles: 256,
		load: challenge.Shape{Rows: 8192, Columns: 8192, Depth: 8192, Products: 4}, loadTime: 5 * time.Second,
	}
	full := min(walk.Bytes(), info.Memory)
	for _, gib := range []uint64{8, 32, 48, 64, 80, 96, 112} {
		if at := gib << 30; at < full {
			s.steps = append(s.steps, at)
		}
	}
	s.steps = append(s.steps, full)
	b.sizes = s
	return nil
}
