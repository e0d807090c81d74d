package wasm

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"os/signal"
	"path/filepath"
	goruntime "runtime"
	"runtime/debug"
	"sync"
	"time"

	"github.com/starling-network/starling/node/runtime"
	"github.com/starling-network/starling/node/runtime/wasm/confine"
	"github.com/starling-network/starling/node/runtime/wasm/mount"
	"github.com/starling-network/starling/node/runtime/wasm/process"
	"golang.org/x/sys/unix"
)

// Subcommand is the hidden command of the peer's binary that is a child of this runtime.
const Subcommand = "wasm-exec"

// readyFD is the pipe on which the child reports that its guest runs, or an error.
const readyFD = 3

// kinds of failure in a readiness line.
const (
	failModule = "module"
	failMount  = "mount"
	failOther  = "other"
)

// childMemory is the memory of a child in bytes, in addition to its guest's, mainly for compiling.
const childMemory = 2 << 30

// readiness is the one line on the pipe.
type readiness struct {
	Kind  string `json:"kind,omitempty"` // empty: running
	Error string `json:"error,omitempty"`

	Confined confine.Confinement `json:"confined,omitzero"`
}

// ChildMain is the whole life of a child process: where the command line is `PROGRAM wasm-exec DIR` or `PROGRAM
// wasm-gauge MILLICPU` it does not return; otherwise it returns at once. A binary that uses this package calls it first
// thing in main, a test binary in TestMain.
func ChildMain() {
	if len(os.Args) != 3 || os.Args[1] != GaugeSubcommand && os.Args[1] != Subcommand {
		return
	}
	confined, box, err := confine.Enter()
	if os.Args[1] == GaugeSubcommand {
		gaugeMain(os.Args[2], err)
	}
	// See "The garbage collector of the child". Compiling is ordinary work: there the limit makes the collector run.
	goruntime.GOMAXPROCS(2)
	debug.SetGCPercent(-1)
	debug.SetMemoryLimit(384 << 20)
	var c *child
	if err == nil {
		c, err = newChild(os.Args[2])
	}
	if err != nil {
		report(readiness{Kind: failOther, Error: err.Error()})
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	c.confined, c.box = confined, box
	c.run()
}

// child is the process in which one guest runs.
type child struct {
	dir    string
	spec   childSpec
	limits runtime.Limits
	alive  *os.File // locked while this process lives
	owner  *os.File // locked while the peer lives
	logs   map[runtime.Stream]*os.File
	out    map[runtime.Stream]*runtime.LogWriter
	mem    *allocator
	mounts []*mount.FS
	quotas []*mount.Quota // the first is that of Limits.DiskMiB

	stopper  *process.Stopper
	confined confine.Confinement
	box      confine.Box

	mu      sync.Mutex // held permanently by the goroutine that ends the process
	phase   phase
	started time.Time
}

func newChild(dir string) (*child, error) {
	c := &child{
		dir: dir, phase: phaseStarting,
		logs: map[runtime.Stream]*os.File{}, out: map[runtime.Stream]*runtime.LogWriter{},
	}
	var err error
	if c.alive, err = os.OpenFile(filepath.Join(dir, aliveFile), os.O_RDWR|os.O_CREATE, 0o600); err != nil {
		return nil, fmt.Errorf("opening lock: %w", err)
	}
	if err := process.Lock(c.alive); err != nil {
		return nil, fmt.Errorf("taking lock: %w", err)
	}
	if c.owner, err = os.OpenFile(filepath.Join(dir, ownerFile), os.O_RDWR, 0); err != nil {
		return nil, fmt.Errorf("opening lock: %w", err)
	}
	if c.spec, err = readSpec(dir); err != nil {
		return nil, err
	}
	c.limits = c.spec.Spec.Limits.WithDefaults()
	c.mem = &allocator{limit: uint64(c.limits.MemoryMiB) << 20}
	c.started = time.Now()
	for _, s := range []runtime.Stream{runtime.Stdout, runtime.Stderr} {
		f, err := os.OpenFile(filepath.Join(dir, logFile(s)), os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
		if err != nil {
			return nil, fmt.Errorf("opening log: %w", err)
		}
		c.logs[s], c.out[s] = f, runtime.NewLogWriter(f, int64(c.limits.LogMiB)<<20)
	}
	return c, c.save(runtime.Exit{})
}

// run prepares the guest, reports the result to the peer, and runs the guest to its end.
func (c *child) run() {
	go c.watchOwner()
	go c.watchSignals()
	if err := c.openMounts(); err != nil {
		c.fail(failMount, err)
	}
	g, err := c.prepare()
	if err != nil {
		c.fail(failModule, err)
	}
	debug.SetMemoryLimit(math.MaxInt64)
	process.Yield()
	if c.stopper, err = process.NewStopper(); err != nil {
		c.fail(failOther, err)
	}
	woken := make(chan os.Signal, 1) // signals may be merged
	signal.Notify(woken, unix.SIGCONT)
	go c.watchUsage()
	go c.watchPause(woken)
	if c.limits.WallTime > 0 {
		go c.watchWallTime()
	}
	c.mu.Lock()
	c.phase, c.started = phaseRunning, time.Now()
	err = c.save(runtime.Exit{})
	c.mu.Unlock()
	if err != nil {
		c.fail(failOther, err)
	}
	c.limitTo(c.limits.MilliCPU) // a start section runs while it is instantiated
	if err := g.instantiate(); err != nil {
		c.fail(failModule, err)
	}
	report(readiness{Confined: c.confined})
	c.end(g.call())
}

// fail ends a child before its guest ran.
func (c *child) fail(kind string, err error) {
	report(readiness{Kind: kind, Error: err.Error()})
	fmt.Fprintln(os.Stderr, err)
	c.mu.Lock()
	os.Exit(1)
}

// end writes the last status and ends the process. The first caller wins; others wait here for the end.
func (c *child) end(e runtime.Exit) {
	c.mu.Lock()
	e.Ended = time.Now()
	c.phase = phaseEnded
	for s, l := range c.out {
		if err := l.Err(); err != nil {
			fmt.Fprintln(os.Stderr, s, err)
		}
	}
	if err := c.save(e); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}

// save writes the status. The caller holds mu, or is the only goroutine.
func (c *child) save(e runtime.Exit) error {
	e.Started = c.started
	return writeState(c.dir, statusFile, status{
		Phase: c.phase, Pid: os.Getpid(), CPUMillis: uint64(process.CPUTime().Milliseconds()),
		MemoryMiB: uint32((c.mem.size.Load() + 1<<20 - 1) >> 20), Exit: e,
	})
}

// report writes the readiness to the parent.
func report(r readiness) {
	pipe := os.NewFile(readyFD, "ready")
	if pipe == nil {
		return
	}
	b, _ := json.Marshal(r)
	_, _ = pipe.Write(append(b, '\n')) // the reader may be gone; the owner's lock will show that
	_ = pipe.Close()
}

// guestMounts are the directories that the guest sees. A seeded one has no control directory: its results must not
// depend on a request to stop and its time.
func (c *child) guestMounts() []runtime.Mount {
	if c.spec.Spec.Seed != 0 {
		return c.spec.Spec.Mounts
	}
	control := runtime.Mount{Host: filepath.Join(c.dir, controlDir), Guest: runtime.ControlDir, ReadOnly: true}
	return append([]runtime.Mount{control}, c.spec.Spec.Mounts...)
}

// openMounts opens the host directories and counts the content of the writable ones.
func (c *child) openMounts() error {
	shared := c.newQuota(c.limits.DiskMiB)
	for _, m := range c.guestMounts() {
		q := shared
		if m.RoomMiB > 0 {
			q = c.newQuota(m.RoomMiB)
		}
		fs, err := q.Open(m.Host, m.ReadOnly)
		if err != nil {
			return fmt.Errorf("opening %s: %w", m.Guest, err)
		}
		c.mounts = append(c.mounts, fs)
	}
	over, err := shared.Over()
	if err != nil {
		return err
	}
	if over > 0 {
		return fmt.Errorf("writable mounts are %d bytes over the limit of %d MiB already", over, c.limits.DiskMiB)
	}
	for _, q := range c.quotas[1:] {
		if _, err := q.Over(); err != nil { // a full volume can still be read and emptied
			return err
		}
	}
	return nil
}

// newQuota adds a quota for writable mounts.
func (c *child) newQuota(roomMiB uint32) *mount.Quota {
	q := mount.NewQuota(int64(roomMiB)<<20, func() {
		fmt.Fprintf(c.out[runtime.Stderr], "[starling: the limit of %d MiB on writable mounts is reached]\n", roomMiB)
	})
	if c.spec.Spec.Seed != 0 {
		q.Same(seededEpoch)
	}
	c.quotas = append(c.quotas, q)
	return q
}

// readModule reads the program, bounded.
func readModule(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	info, err := f.Stat()
	switch {
	case err != nil:
		return nil, err
	case !info.Mode().IsRegular():
		return nil, errors.New("not a file")
	case info.Size() > MaxModule:
		return nil, fmt.Errorf("%d bytes, at most %d", info.Size(), MaxModule)
	}
	b := make([]byte, info.Size())
	if _, err := io.ReadFull(f, b); err != nil {
		return nil, err
	}
	return b, nil
}
