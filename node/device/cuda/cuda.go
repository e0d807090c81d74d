package cuda

import (
	"bufio"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"sync/atomic"
	"time"

	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/node/child"
	"github.com/starling-network/starling/node/device"
	"github.com/starling-network/starling/node/device/cuda/wire"
	"github.com/starling-network/starling/verify/challenge"
)

// HelperName is the name of the helper program. It lies beside the peer's own binary.
const HelperName = "starling-cuda"

var (
	// ErrNoHelper means that the helper program was not found.
	ErrNoHelper = errors.New("starling-cuda was not found")
	// ErrHelper means that the helper process crashed, hung or sent an invalid answer; its text has the cause.
	ErrHelper = errors.New("CUDA helper")
	// ErrCUDA means that the helper works and CUDA does not, with the driver's own words.
	ErrCUDA = errors.New("CUDA")
	// ErrNoLibrary means that libcuda.so.1 is not on the machine.
	ErrNoLibrary = errors.New("libcuda.so.1 is not there")
	// ErrUUID means that a device's UUID is not one, or that the driver shows another device.
	ErrUUID = errors.New("UUID of a CUDA device")
)

const (
	// describeTimeout is how long a helper may take to wake the driver up and to compile the kernels.
	describeTimeout = 2 * time.Minute
	// workTimeout is the longest computation. Real requests take less than minutes, and callers cancel earlier by their
	// context.
	workTimeout = 10 * time.Minute
	// grace is how long a cancelled call may take to end before the helper is killed and its dataset lost.
	grace = 5 * time.Second
)

// Config is the configuration of a device.
type Config struct {
	UUID    string // "GPU-…" or "MIG-…", as NVML and nvidia-smi name it
	Helper  string // path of starling-cuda; empty means beside the running program, or on the PATH
	Reserve uint64 // bytes that datasets leave free: for products, and for other users of the GPU

	env     []string                         // of the helper, beside the peer's
	backoff func(failures int) time.Duration // of its restarts
	grace   time.Duration
}

// Device is one GPU. See device.Device.
type Device struct {
	cfg    Config
	helper *child.Program
	about  wire.Description
	free   atomic.Uint64 // bytes that a dataset could take, and the reserve
	closed atomic.Bool
}

var _ device.Device = (*Device)(nil)

var uuidText = regexp.MustCompile(`^(GPU|MIG)-[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$`)

// Open starts a helper on a device and reads its description. It returns ErrNoHelper, ErrNoLibrary, ErrUUID, ErrHelper
// or ErrCUDA.
func Open(ctx context.Context, cfg Config) (*Device, error) {
	if !uuidText.MatchString(cfg.UUID) {
		return nil, fmt.Errorf("%w: %.60q", ErrUUID, cfg.UUID)
	}
	path, err := child.Find(cfg.Helper, HelperName, ErrNoHelper)
	if err != nil {
		return nil, err
	}
	if cfg.grace == 0 {
		cfg.grace = grace
	}
	d := &Device{cfg: cfg}
	d.helper = child.New(child.Config{
		Path: path, Env: append([]string{"CUDA_VISIBLE_DEVICES=" + cfg.UUID}, cfg.env...),
		Failed: ErrHelper, Backoff: cfg.backoff,
		Read: func(r *bufio.Reader) ([]byte, error) { return wire.Read(r, wire.MaxAnswer) },
	})
	if d.about, err = d.describe(ctx); err != nil {
		return nil, errors.Join(err, d.helper.Close())
	}
	d.free.Store(d.about.Free)
	return d, nil
}

// Refresh reads the amount of free memory from the driver again, for Info.
func (d *Device) Refresh(ctx context.Context) error {
	about, err := d.describe(ctx)
	if err == nil {
		d.free.Store(about.Free)
	}
	return err
}

func (d *Device) describe(ctx context.Context) (wire.Description, error) {
	a, err := d.call(ctx, wire.Question{Op: wire.Describe}, wire.Described, nil)
	if err != nil {
		return wire.Description{}, err
	}
	_, digits, _ := strings.Cut(d.cfg.UUID, "-")
	if got := hex.EncodeToString(a.About.UUID[:]); got != strings.ReplaceAll(digits, "-", "") {
		return wire.Description{}, fmt.Errorf("%w: driver: got %s, want %s", ErrUUID, got, d.cfg.UUID)
	}
	return a.About, nil
}

// Info describes the device, with the memory for a dataset at its last answer about memory.
func (d *Device) Info() device.Info {
	free := d.free.Load()
	return device.Info{
		Kind: device.CUDA, Model: d.about.Name, Serial: d.cfg.UUID,
		Memory: free - min(free, d.cfg.Reserve), Capability: d.about.Capability,
	}
}

// Multiply computes the products of a seed.
func (d *Device) Multiply(ctx context.Context, seed sign.Hash, s challenge.Shape) ([]sign.Hash, error) {
	if err := s.Check(); err != nil {
		return nil, err
	}
	tiles := make([]sign.Hash, 0, s.Tiles())
	err := d.multiply(ctx, seed, s, func(part []sign.Hash) error {
		tiles = append(tiles, part...)
		return nil
	})
	if err != nil {
		return nil, err
	}
	return tiles, nil
}

// Commit computes the products and commits to them.
func (d *Device) Commit(ctx context.Context, seed sign.Hash, s challenge.Shape) (*challenge.Commitment, error) {
	c, err := challenge.NewCommitter(s, device.Split)
	if err != nil {
		return nil, err
	}
	if err := d.multiply(ctx, seed, s, c.Add); err != nil {
		return nil, err
	}
	return c.Commit()
}

// multiply hands the hashes of tiles on as the helper sends them.
func (d *Device) multiply(ctx context.Context, seed sign.Hash, s challenge.Shape, take func([]sign.Hash) error) error {
	left := s.Tiles()
	q := wire.Question{Op: wire.Multiply, Seed: seed, Shape: s}
	_, err := d.call(ctx, q, wire.Tiles, func(a wire.Answer) error {
		n := len(a.Raw) / sign.HashSize
		if left -= n; n == 0 || left < 0 || (left == 0) != (a.Form == wire.Tiles) {
			return fmt.Errorf("hashes of %d tiles where %d are left", n, left+n)
		}
		return take(wire.Hashes(a.Raw))
	})
	return err
}

// Fill makes a dataset resident.
func (d *Device) Fill(ctx context.Context, of device.Dataset) error {
	if of.Cells < 1 || of.Cells > challenge.MaxCells || of.Work < 1 || of.Work > challenge.MaxWork {
		return fmt.Errorf("%w: a dataset of %d cells of work %d", challenge.ErrShape, of.Cells, of.Work)
	}
	a, err := d.call(ctx, wire.Question{Op: wire.Fill, Dataset: of, Reserve: d.cfg.Reserve}, wire.Done, nil)
	if err == nil {
		d.free.Store(a.Free)
	}
	return err
}

// Evict gives the dataset's memory back.
func (d *Device) Evict(ctx context.Context) error {
	a, err := d.call(ctx, wire.Question{Op: wire.Evict}, wire.Done, nil)
	if err == nil {
		d.free.Store(a.Free)
	}
	return err
}

// Walk walks all walkers.
func (d *Device) Walk(ctx context.Context, key uint64, of device.Dataset, w challenge.Walk) ([]sign.Hash, error) {
	if err := w.Check(); err != nil {
		return nil, err
	}
	q := wire.Question{Op: wire.Walk, Key: key, Dataset: of, Walk: w}
	a, err := d.call(ctx, q, wire.Groups, func(a wire.Answer) error {
		return long(a, w.Groups()*sign.HashSize)
	})
	if err != nil {
		return nil, err
	}
	return wire.Hashes(a.Raw), nil
}

// Ends walks the walkers of one group.
func (d *Device) Ends(
	ctx context.Context, key uint64, of device.Dataset, w challenge.Walk, group uint32,
) ([]uint64, error) {
	if err := w.Check(); err != nil {
		return nil, err
	}
	_, n := w.Members(group)
	if n == 0 {
		return nil, fmt.Errorf("%w: group %d of %d", challenge.ErrShape, group, w.Groups())
	}
	q := wire.Question{Op: wire.Again, Key: key, Dataset: of, Walk: w, Group: group}
	a, err := d.call(ctx, q, wire.Ends, func(a wire.Answer) error {
		return long(a, 8*int(n))
	})
	if err != nil {
		return nil, err
	}
	return wire.States(a.Raw), nil
}

// long refuses an answer of another length.
func long(a wire.Answer, want int) error {
	if len(a.Raw) != want {
		return fmt.Errorf("%d bytes, want %d", len(a.Raw), want)
	}
	return nil
}

// Close ends the helper, and with it the dataset. It waits for a call that works.
func (d *Device) Close() error {
	d.closed.Store(true)
	return d.helper.Close()
}

// call sends a request to the helper. take is optional; it gets the answer, and each part of it before the last.
func (d *Device) call(
	ctx context.Context, q wire.Question, want wire.Form, take func(wire.Answer) error,
) (wire.Answer, error) {
	if d.closed.Load() {
		return wire.Answer{}, device.ErrClosed
	}
	var a wire.Answer
	var told error // keeps the helper running
	timeout := workTimeout
	if q.Op == wire.Describe {
		timeout = describeTimeout
	}
	err := d.helper.Call(ctx, child.Question{
		Timeout: timeout, Grace: d.cfg.grace,
		Text: func(id uint64) ([]byte, error) {
			q.ID = id
			return q.Marshal(), nil
		},
		Cancel: func(id uint64) []byte { return wire.Question{ID: id, Op: wire.Cancel}.Marshal() },
		Answer: func(id uint64, b []byte) error {
			got, err := wire.UnmarshalAnswer(b)
			switch {
			case err != nil:
				return d.helper.Nonsense(err)
			case got.ID != id:
				return d.helper.Nonsense(fmt.Errorf("answer %d to question %d", got.ID, id))
			case got.Form == wire.Failed:
				told, err = failure(ctx, got)
				return err
			case got.Form != want && (got.Form != wire.Part || want != wire.Tiles):
				return d.helper.Nonsense(fmt.Errorf("an answer of form %d", got.Form))
			}
			if take != nil {
				if err := take(got); err != nil {
					return d.helper.Nonsense(err)
				}
			}
			if a = got; got.Form == wire.Part {
				return child.ErrMore
			}
			return nil
		},
	})
	switch {
	case err != nil && d.closed.Load():
		return wire.Answer{}, device.ErrClosed
	case err != nil:
		return wire.Answer{}, err
	}
	return a, told
}

// failure returns the error that a helper reported: told keeps the helper running, ends stops it.
func failure(ctx context.Context, a wire.Answer) (told, ends error) {
	switch a.Code {
	case wire.CodeMemory:
		return fmt.Errorf("%w: %s", device.ErrMemory, a.Text), nil
	case wire.CodeDataset:
		return fmt.Errorf("%w: %s", device.ErrNoDataset, a.Text), nil
	case wire.CodeCancelled:
		if ctx.Err() != nil {
			return ctx.Err(), nil
		}
	case wire.CodeLibrary:
		return nil, fmt.Errorf("%w: %s", ErrNoLibrary, a.Text)
	case wire.CodeDriver:
		return nil, fmt.Errorf("%w: %s", ErrCUDA, a.Text)
	}
	return nil, fmt.Errorf("%w: %s", ErrHelper, a.Text)
}
