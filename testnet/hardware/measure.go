package hardware

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"math/big"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/node/device"
	"github.com/starling-network/starling/node/device/cpu"
	"github.com/starling-network/starling/node/device/cuda"
	"github.com/starling-network/starling/verify/audit"
	"github.com/starling-network/starling/verify/challenge"
)

// errDiffers means that the card's results differ from the definition.
var errDiffers = errors.New("the card differs from the definition")

// seed returns a new random seed.
func seed() (h sign.Hash) {
	_, _ = rand.Read(h[:]) // never fails
	return h
}

// below draws a number from 0 to n-1.
func below(n uint64) uint64 {
	x, err := rand.Int(rand.Reader, new(big.Int).SetUint64(n))
	if err != nil {
		panic(err) // crypto/rand never fails
	}
	return x.Uint64()
}

func median(xs []float64) float64 {
	xs = slices.Sorted(slices.Values(xs))
	return xs[len(xs)/2]
}

// timed returns the duration of a call in seconds.
func timed(f func() error) (float64, error) {
	began := time.Now()
	err := f()
	return time.Since(began).Seconds(), err
}

// selfTest runs the helper's own test: in full on a GPU, with small sizes elsewhere.
func (b *bench) selfTest(ctx context.Context) (string, error) {
	args := []string{"--self-test"}
	if b.Small {
		args = append(args, "--quick")
	}
	cmd := exec.CommandContext(ctx, b.helper, args...)
	cmd.Env = append(cmd.Environ(), "CUDA_VISIBLE_DEVICES="+b.UUID)
	out, err := cmd.CombinedOutput()
	b.report.SelfTest = strings.Split(strings.TrimSpace(string(out)), "\n")
	if err != nil {
		return "", fmt.Errorf("%w: %s", err, b.report.SelfTest[len(b.report.SelfTest)-1])
	}
	same := 0
	for _, l := range b.report.SelfTest {
		if strings.HasPrefix(l, "same ") {
			same++
		}
		if name, of, ok := strings.Cut(l, ": "); ok && strings.HasPrefix(name, "kernel ") &&
			!strings.HasSuffix(of, " 0 bytes beside them") {
			return "", fmt.Errorf("the driver's compiler spills registers: %s", l)
		}
	}
	if same == 0 {
		return "", errors.New("the self-test compared nothing")
	}
	return fmt.Sprintf("%d comparisons, all equal", same), nil
}

// allowed is the allowed time in seconds of a unit of the card's class for an audit's products and for a walk; 0 if
// audits have no limit.
func (b *bench) allowed(s challenge.Shape, w challenge.Walk) (products, walk float64) {
	floor, ok := audit.FloorOf(b.report.Class, market.Resources{VRAMMiB: b.report.VRAMMiB})
	if !ok || b.Small {
		return 0, 0
	}
	p, k := floor.Deadlines(s, w)
	const spare = audit.MaxTrip + audit.Allowance
	return float64(p+spare) / 1e6, float64(k+spare) / 1e6
}

// products measures the first timed part of an audit: products, hashes of their tiles, the transfer to this process and
// the tree.
func (b *bench) products(ctx context.Context) (string, error) {
	p := &Products{Shape: b.sizes.shape.String()}
	p.Allowed, _ = b.allowed(b.sizes.shape, b.sizes.walk)
	if _, err := b.device.Commit(ctx, seed(), b.sizes.shape); err != nil { // raises the clocks
		return "", err
	}
	for range b.sizes.repeat {
		took, err := timed(func() error {
			_, err := b.device.Commit(ctx, seed(), b.sizes.shape)
			return err
		})
		if err != nil {
			return "", err
		}
		p.Seconds = append(p.Seconds, took)
	}
	p.Operations = float64(b.sizes.shape.Operations()) / median(p.Seconds)
	b.report.Products = p
	text := fmt.Sprintf("%s: %.3f s in the middle of %d, %.3g operations/s",
		p.Shape, median(p.Seconds), len(p.Seconds), p.Operations)
	if p.Allowed > 0 {
		text += fmt.Sprintf("; %.3f s are allowed", p.Allowed)
	}
	return text, nil
}

// over returns the walk of an audit over a dataset of some bytes.
func (b *bench) over(bytes uint64) challenge.Walk {
	w := b.sizes.walk
	w.Cells = bytes / challenge.CellSize
	return w
}

// walks walks once and builds the tree over the ends, which is the timed part of an audit.
func walks(ctx context.Context, d device.Walker, of device.Dataset, w challenge.Walk) ([]sign.Hash, error) {
	hashes, err := d.Walk(ctx, challenge.WalkKey(of.Seed), of, w)
	if err != nil {
		return nil, err
	}
	a, err := challenge.NewArrivals(w, hashes, device.Split)
	if err == nil {
		a.Root()
	}
	return hashes, err
}

// curve fills increasing parts of the memory and walks over each.
func (b *bench) curve(ctx context.Context) (string, error) {
	var text []string
	for _, bytes := range b.sizes.steps {
		w := b.over(bytes)
		of := device.Of(seed(), w)
		p := Point{MiB: w.Bytes() >> 20}
		var err error
		if p.Fill, err = timed(func() error { return b.device.Fill(ctx, of) }); err != nil {
			return strings.Join(text, ", "), err
		}
		if p.Walk, err = timed(func() error { _, err := walks(ctx, b.device, of, w); return err }); err != nil {
			return strings.Join(text, ", "), err
		}
		p.Reads = float64(w.Reads()) / p.Walk
		_, p.Allowed = b.allowed(b.sizes.shape, w)
		b.report.Curve = append(b.report.Curve, p)
		text = append(text, fmt.Sprintf("%d MiB %.3g reads/s", p.MiB, p.Reads))
	}
	if b.report.Floors = b.report.floors(); b.report.GPU && b.report.Floors != nil && !b.report.Floors.Holds {
		return strings.Join(text, ", "), fmt.Errorf("below the floors of its %s", b.report.Floors.Source)
	}
	return strings.Join(text, ", "), nil
}

// checkGroups walks over the resident dataset, and compares random groups of walkers with the definition.
func checkGroups(
	ctx context.Context, d device.Walker, of device.Dataset, w challenge.Walk, groups int,
) (checked, differ int, err error) {
	hashes, err := walks(ctx, d, of, w)
	if err != nil {
		return 0, 0, err
	}
	key, set := challenge.WalkKey(of.Seed), challenge.NewDataset(of.Seed, of.Work)
	for _, group := range challenge.Draw(seed(), w.Groups(), min(groups, w.Groups())) {
		ends, err := d.Ends(ctx, key, of, w, group)
		if err != nil {
			return checked, differ, err
		}
		first, n := w.Members(group)
		want := make([]uint64, n)
		for i := range want {
			want[i] = challenge.Go(w, key, first+uint32(i), set.Cell)
			if checked++; want[i] != ends[i] {
				differ++
			}
		}
		if hashes[group] != challenge.GroupHash(want) {
			differ++
		}
	}
	return checked, differ, nil
}

// compareWalk compares walkers over the fullest dataset with the definition: their reads cover all of it.
func (b *bench) compareWalk(ctx context.Context) (string, error) {
	w := b.over(b.sizes.steps[len(b.sizes.steps)-1])
	of := device.Of(seed(), w)
	if err := b.device.Fill(ctx, of); err != nil {
		return "", err
	}
	checked, differ, err := checkGroups(ctx, b.device, of, w, 16)
	if err != nil {
		return "", err
	}
	return b.compared(fmt.Sprintf("walkers of %s", w), checked, differ)
}

func (b *bench) compared(what string, count, differ int) (string, error) {
	b.report.Compared = append(b.report.Compared, Compare{what, count, differ})
	text := fmt.Sprintf("%s: %d of %d differ", what, differ, count)
	if differ > 0 {
		return text, fmt.Errorf("%w: %s", errDiffers, text)
	}
	return text, nil
}

// compareProducts compares whole products of random shapes with those of the processor, and tiles of an audit's
// products with the definition.
func (b *bench) compareProducts(ctx context.Context) (string, error) {
	processor := cpu.New(cpu.Config{Memory: 1 << 20})
	tiles, differ := 0, 0
	side := func() uint32 { return challenge.TileSide * uint32(1+below(19)) }
	for range b.sizes.shapes {
		s := challenge.Shape{Rows: side(), Columns: side(), Depth: challenge.BlockSize << below(10), Products: 1}
		for s.Operations() > b.sizes.most && s.Depth > challenge.BlockSize {
			s.Depth /= 2
		}
		key := seed()
		got, err := b.device.Multiply(ctx, key, s)
		if err != nil {
			return "", fmt.Errorf("%s: %w", s, err)
		}
		want, err := processor.Multiply(ctx, key, s)
		if err != nil {
			return "", err
		}
		for i := range want {
			if tiles++; got[i] != want[i] {
				differ++
			}
		}
	}
	first, err := b.compared(fmt.Sprintf("tiles of %d shapes", b.sizes.shapes), tiles, differ)
	if err != nil {
		return "", err
	}
	s, key := b.sizes.shape, seed()
	s.Products = min(s.Products, 4)
	got, err := b.device.Multiply(ctx, key, s)
	if err != nil {
		return "", err
	}
	g := challenge.ProductGenerator(key)
	drawn := challenge.Draw(seed(), s.Tiles(), min(b.sizes.tiles, s.Tiles()))
	for _, i := range drawn {
		if challenge.NewTile(&g, s, s.Place(int(i))).Hash() != got[i] {
			differ++
		}
	}
	second, err := b.compared("tiles of "+s.String(), len(drawn), differ)
	return first + "; " + second, err
}

// open starts another helper on the card.
func (b *bench) open(ctx context.Context) (*cuda.Device, error) {
	return cuda.Open(ctx, cuda.Config{UUID: b.UUID, Helper: b.helper})
}

// two runs two helpers on one card at once, and has the second request the memory of the first.
func (b *bench) two(ctx context.Context) (_ string, err error) {
	other, err := b.open(ctx)
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, other.Close()) }()
	full := b.sizes.steps[len(b.sizes.steps)-1]
	w := b.over(full * 3 / 7)
	sets := []device.Dataset{device.Of(seed(), w), device.Of(seed(), w)}
	devices := []*cuda.Device{b.device, other}
	if err := b.device.Evict(ctx); err != nil {
		return "", err
	}
	for i, d := range devices {
		if err := d.Fill(ctx, sets[i]); err != nil {
			return "", fmt.Errorf("helper %d: %w", i+1, err)
		}
	}
	t := &Two{}
	each := func(n int, f func(i int, d *cuda.Device) error) (float64, error) {
		return timed(func() error {
			errs := make([]error, n)
			var wg sync.WaitGroup
			for i, d := range devices[:n] {
				wg.Go(func() { errs[i] = f(i, d) })
			}
			wg.Wait()
			return errors.Join(errs...)
		})
	}
	commit := func(_ int, d *cuda.Device) error { _, err := d.Commit(ctx, seed(), b.sizes.shape); return err }
	walk := func(i int, d *cuda.Device) error { _, err := walks(ctx, d, sets[i], w); return err }
	for _, m := range []struct {
		to *float64
		n  int
		f  func(int, *cuda.Device) error
	}{{&t.ProductsAlone, 1, commit}, {&t.ProductsTogether, 2, commit}, {&t.WalkAlone, 1, walk},
		{&t.WalkTogether, 2, walk}} {
		if *m.to, err = each(m.n, m.f); err != nil {
			return "", err
		}
	}
	b.report.Two = t
	whole := b.over(full)
	switch err := other.Fill(ctx, device.Of(seed(), whole)); {
	case errors.Is(err, device.ErrMemory):
		t.Refused = err.Error()
	case err != nil:
		return "", fmt.Errorf("all of the memory for the second: %w", err)
	case b.report.GPU:
		return "", errors.New("the second helper got memory of the first")
	default:
		t.Refused = "not shown: each interpreter has its own memory"
	}
	if checked, differ, err := checkGroups(ctx, b.device, sets[0], w, 2); err != nil || differ > 0 {
		return "", fmt.Errorf("the first helper afterwards: %d of %d walkers differ, %w", differ, checked, err)
	}
	return fmt.Sprintf("products %.3f s alone, %.3f s together; "+
		"walk %.3f s alone, %.3f s together; memory of the other: %s",
		t.ProductsAlone, t.ProductsTogether, t.WalkAlone, t.WalkTogether, t.Refused), nil
}
