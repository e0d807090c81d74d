package wasm

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	goruntime "runtime"
	"runtime/metrics"
	"slices"
	"strings"

	"github.com/starling-network/starling/node/runtime"
	"github.com/starling-network/starling/node/runtime/wasm/canonical"
	"github.com/starling-network/starling/node/runtime/wasm/compilecache"
	"github.com/starling-network/starling/node/runtime/wasm/mount"
	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/api"
	"github.com/tetratelabs/wazero/experimental"
	"github.com/tetratelabs/wazero/experimental/sysfs"
	"github.com/tetratelabs/wazero/imports/wasi_snapshot_preview1"
	"github.com/tetratelabs/wazero/sys"
)

const (
	// MaxModule bounds a program, in bytes.
	MaxModule = 128 << 20

	wasiModule = wasi_snapshot_preview1.ModuleName

	// As WASI numbers them.
	wasiEIO    = 29
	wasiENOSPC = 51
)

// guest is the program within its child.
type guest struct {
	c        *child
	rt       wazero.Runtime
	compiled wazero.CompiledModule
	start    api.Function
}

// prepare compiles the program, from the cache if possible, and checks its requirements.
func (c *child) prepare() (*guest, error) {
	code, err := readModule(c.spec.Spec.Module)
	if err != nil {
		return nil, fmt.Errorf("reading program: %w", err)
	}
	if !bytes.HasPrefix(code, []byte(canonical.Magic)) {
		return nil, canonical.ErrNoModule
	}
	if c.spec.Spec.Seed != 0 {
		if code, err = canonical.Module(code, MaxModule); err != nil {
			return nil, fmt.Errorf("making NaNs canonical in at most %d bytes: %w", MaxModule, err)
		}
	}
	g := &guest{c: c}
	if err := g.compile(code); err != nil {
		return nil, err
	}
	// The compiled code is in memory: the guest's process has no use for the cache, whose other entries are the code of
	// other buyers' programs.
	if c.confined, err = c.box.Narrow(c.confined); err != nil {
		return nil, err
	}
	exports, err := g.provideWASI()
	if err != nil {
		return nil, err
	}
	for _, f := range g.compiled.ImportedFunctions() {
		module, name, _ := f.Import()
		if _, ok := exports[name]; module != wasiModule || !ok {
			return nil, fmt.Errorf("program imports %s.%s, which this runtime does not have", module, name)
		}
	}
	if _, ok := g.compiled.ExportedFunctions()["_start"]; !ok {
		return nil, errors.New("program exports no _start: it is a library, not a command")
	}
	return g, nil
}

// compile takes the program from the cache or puts it there. Of the children of all peers with this cache one compiles
// it. An entry that is damaged fails every compilation that finds it, and a full disk fails the adding of one: so the
// cache is emptied once, and then done without.
func (g *guest) compile(code []byte) (err error) {
	done := compilecache.TakeTurn(g.c.spec.CacheDir, code)
	defer func() { done(err == nil) }()
	ctx := context.Background()
	config := wazero.NewRuntimeConfig().WithDebugInfoEnabled(false)
	for range 2 {
		cache, cacheErr := wazero.NewCompilationCacheWithDir(g.c.spec.CacheDir)
		if cacheErr != nil {
			break
		}
		g.rt = wazero.NewRuntimeWithConfig(ctx, config.WithCompilationCache(cache))
		if g.compiled, err = g.rt.CompileModule(ctx, code); err == nil {
			return nil
		}
		if !strings.Contains(err.Error(), "compilationcache") {
			break
		}
		compilecache.Empty(g.c.spec.CacheDir)
	}
	g.rt = wazero.NewRuntimeWithConfig(ctx, config)
	if g.compiled, err = g.rt.CompileModule(ctx, code); err != nil {
		return fmt.Errorf("compiling program: %w", err)
	}
	return nil
}

// provideWASI instantiates the host functions with the hook around each call.
func (g *guest) provideWASI() (map[string]api.FunctionDefinition, error) {
	ctx := experimental.WithFunctionListenerFactory(context.Background(), &hostCalls{quotas: g.c.quotas,
		sample: []metrics.Sample{{Name: "/memory/classes/heap/objects:bytes"}}})
	if _, err := wasi_snapshot_preview1.Instantiate(ctx, g.rt); err != nil {
		return nil, fmt.Errorf("providing WASI: %w", err)
	}
	return g.rt.Module(wasiModule).ExportedFunctionDefinitions(), nil
}

// instantiate links the program and gives it memory. Code in the module's own start section runs here.
func (g *guest) instantiate() (err error) {
	defer func() {
		if r := recover(); r != nil {
			e, ok := r.(errTooLittleMemory)
			if !ok {
				panic(r)
			}
			err = fmt.Errorf("program memory: got %d MiB at the start, want at most %d", e.need>>20, e.limit>>20)
		}
	}()
	s := g.c.spec.Spec
	mounts := wazero.NewFSConfig()
	for i, m := range g.c.guestMounts() {
		mounts = mounts.(sysfs.FSConfig).WithSysFSMount(g.c.mounts[i], m.Guest)
	}
	config := clocked(wazero.NewModuleConfig(), s.Seed).WithStartFunctions().WithFSConfig(mounts).
		WithArgs(append([]string{"program"}, s.Args...)...).
		WithStdout(g.c.out[runtime.Stdout]).WithStderr(g.c.out[runtime.Stderr])
	for _, k := range slices.Sorted(maps.Keys(s.Env)) {
		config = config.WithEnv(k, s.Env[k])
	}
	ctx := experimental.WithMemoryAllocator(context.Background(), g.c.mem)
	mod, err := g.rt.InstantiateModule(ctx, g.compiled, config)
	if err != nil {
		return fmt.Errorf("instantiating program: %w", err)
	}
	g.start = mod.ExportedFunction("_start")
	return nil
}

// call runs the program to its end.
func (g *guest) call() runtime.Exit {
	_, err := g.start.Call(context.Background())
	var exit *sys.ExitError
	e := runtime.Exit{}
	switch {
	case err == nil:
	case errors.As(err, &exit):
		e.Code = int(min(exit.ExitCode(), 255)) // as a shell would see it, but never 0 for a code that was not 0
	default:
		fmt.Fprintf(g.c.out[runtime.Stderr], "[starling: %v]\n", err)
		e.Code, e.Reason = runtime.CodeTrap, runtime.ReasonTrap
	}
	if e.Code != 0 && g.c.mem.refused.Load() {
		e.Reason = runtime.ReasonOOM
	}
	return e
}

// hostCalls is around every call of the guest to the host. It collects garbage there, and returns ENOSPC where the
// quota of a mount was the cause of an I/O error.
type hostCalls struct {
	quotas []*mount.Quota
	calls  int
	live   uint64 // bytes that the last collection left
	sample []metrics.Sample
}

const (
	callsPerLook   = 256
	garbageAllowed = 64 << 20
)

func (h *hostCalls) NewFunctionListener(api.FunctionDefinition) experimental.FunctionListener {
	return h
}

func (h *hostCalls) Before(context.Context, api.Module, api.FunctionDefinition, []uint64, experimental.StackIterator) {
	for _, q := range h.quotas {
		q.Begin()
	}
	if h.calls++; h.calls%callsPerLook != 0 {
		return
	}
	metrics.Read(h.sample)
	if h.sample[0].Value.Uint64() > max(h.live*2, garbageAllowed) {
		goruntime.GC()
		metrics.Read(h.sample)
		h.live = h.sample[0].Value.Uint64()
	}
}

func (h *hostCalls) After(_ context.Context, _ api.Module, _ api.FunctionDefinition, results []uint64) {
	if slices.ContainsFunc(h.quotas, (*mount.Quota).Full) && len(results) > 0 && results[0] == wasiEIO {
		results[0] = wasiENOSPC
	}
}

func (h *hostCalls) Abort(context.Context, api.Module, api.FunctionDefinition, error) {}
