//go:build linux && (amd64 || arm64)

package driver

import (
	"bytes"
	"errors"
	"fmt"
	"runtime"
	"unsafe"

	"github.com/starling-network/starling/node/child"
	"github.com/starling-network/starling/node/device/cuda/engine"
	"github.com/starling-network/starling/node/device/cuda/ptx"
	"github.com/starling-network/starling/node/device/cuda/wire"
)

// Attributes of a device, CUdevice_attribute.
const (
	computeMode     = 20
	capabilityMajor = 75
	capabilityMinor = 76
)

// Compute modes, CUcomputemode.
const (
	modeProhibited = 2
	modeExclusive  = 3 // one process
)

// Attributes of a kernel, CUfunction_attribute.
const (
	localBytes = 3 // of each thread: registers that did not fit
	registers  = 4 // of each thread
)

// jitNames are the options of cuModuleLoadDataEx, CUjit_option, with the values jitValues: the buffers for the
// compiler's information and errors, and their sizes.
var jitNames = [4]int32{3, 4, 5, 6}

// jitValues is an array of four pointers as C has it; sizes lie in the place of pointers.
type jitValues struct {
	info       *[jitLog]byte
	infoSize   uintptr
	failed     *[jitLog]byte
	failedSize uintptr
}

const jitLog = 8 << 10

// GPU is the first device that the process can see. It is an engine.GPU.
type GPU struct {
	lib     *library
	stream  uintptr
	kernels map[string]uintptr
}

var _ engine.GPU = (*GPU)(nil)

// Open wakes the driver up, takes the device and has the kernels compiled for it.
func Open() (*GPU, wire.Description, error) {
	var about wire.Description
	l, err := load()
	if err != nil {
		return nil, about, err
	}
	if err := l.check(l.init(0), "cuInit"); err != nil {
		return nil, about, err
	}
	var version, count, dev, mode, major, minor int32
	var name [128]byte
	err = errors.Join(
		l.check(l.driverGetVersion(&version), "cuDriverGetVersion"),
		l.check(l.deviceGetCount(&count), "cuDeviceGetCount"))
	if err != nil {
		return nil, about, err
	}
	if count < 1 {
		return nil, about, errors.New("the driver shows no device")
	}
	err = errors.Join(
		l.check(l.deviceGet(&dev, 0), "cuDeviceGet"),
		l.check(l.deviceGetName(&name[0], int32(len(name)), dev), "cuDeviceGetName"),
		l.check(l.deviceGetUUID(&about.UUID, dev), "cuDeviceGetUuid"),
		l.check(l.deviceGetAttribute(&mode, computeMode, dev), "cuDeviceGetAttribute"),
		l.check(l.deviceGetAttribute(&major, capabilityMajor, dev), "cuDeviceGetAttribute"),
		l.check(l.deviceGetAttribute(&minor, capabilityMinor, dev), "cuDeviceGetAttribute"))
	if err != nil {
		return nil, about, err
	}
	if err := shared(mode); err != nil {
		return nil, about, err
	}
	text, _, _ := bytes.Cut(name[:], []byte{0})
	about.Name = child.Tidy(string(text), len(name))
	about.Capability, about.Driver = uint32(major*10+minor), uint32(version)
	g := &GPU{lib: l, kernels: map[string]uintptr{}}
	var context uintptr
	for _, step := range []func() error{
		func() error { return l.check(l.primaryCtxRetain(&context, dev), "cuDevicePrimaryCtxRetain") },
		func() error { return l.check(l.ctxSetCurrent(context), "cuCtxSetCurrent") },
		// 1: does not wait for the default stream.
		func() error { return l.check(l.streamCreate(&g.stream, 1), "cuStreamCreate") },
		func() error { return g.compile(about.Capability) },
	} {
		if err := step(); err != nil {
			return nil, about, err
		}
	}
	return g, about, nil
}

// shared refuses the compute modes in which a second program cannot use the GPU: an audit's helper stays while a
// buyer's program starts, and a probe runs beside one.
func shared(mode int32) error {
	switch mode {
	case modeExclusive:
		return errors.New("the GPU is in compute mode EXCLUSIVE_PROCESS, where one program at a time can use it; " +
			"audits and a buyer's program need it together: sudo nvidia-smi -c DEFAULT")
	case modeProhibited:
		return errors.New("the GPU is in compute mode PROHIBITED, where no program may use it: " +
			"sudo nvidia-smi -c DEFAULT")
	}
	return nil
}

// compile compiles the module by the driver and finds its kernels. The error has the compiler's message.
func (g *GPU) compile(capability uint32) error {
	text, err := ptx.Module(capability)
	if err != nil {
		return err
	}
	image := append([]byte(text), 0)
	names := jitNames
	values := &jitValues{info: new([jitLog]byte), infoSize: jitLog, failed: new([jitLog]byte), failedSize: jitLog}
	var module uintptr
	loaded := g.lib.moduleLoadDataEx(&module, &image[0], uint32(len(names)), &names[0], values)
	err = g.lib.check(loaded, "cuModuleLoadDataEx")
	runtime.KeepAlive(values)
	if err != nil {
		said, _, _ := bytes.Cut(values.failed[:], []byte{0})
		return fmt.Errorf("compiling the kernels: %w; %s", err, child.Tidy(string(said), 600))
	}
	for _, k := range ptx.Kernels() {
		var f uintptr
		if err := g.lib.check(g.lib.moduleGetFunction(&f, module, k.Name), "cuModuleGetFunction "+k.Name); err != nil {
			return err
		}
		g.kernels[k.Name] = f
	}
	return nil
}

// Registers returns the number of registers of a kernel's thread, and the bytes of memory for values that did not fit
// into them.
func (g *GPU) Registers(k ptx.Kernel) (count, spilled int, err error) {
	var n, local int32
	f, ok := g.kernels[k.Name]
	if !ok {
		return 0, 0, fmt.Errorf("no kernel %s", k.Name)
	}
	err = errors.Join(
		g.lib.check(g.lib.funcGetAttribute(&n, registers, f), "cuFuncGetAttribute "+k.Name),
		g.lib.check(g.lib.funcGetAttribute(&local, localBytes, f), "cuFuncGetAttribute "+k.Name))
	return int(n), int(local), err
}

// Memory returns the free and all bytes of the device's memory.
func (g *GPU) Memory() (free, total uint64, err error) {
	err = g.lib.check(g.lib.memGetInfo(&free, &total), "cuMemGetInfo")
	return free, total, err
}

// Alloc allocates size bytes and returns their address.
func (g *GPU) Alloc(size uint64) (at uint64, err error) {
	err = g.lib.check(g.lib.memAlloc(&at, size), fmt.Sprintf("cuMemAlloc of %d MiB", size>>20))
	return at, err
}

// Free gives an allocation back.
func (g *GPU) Free(at uint64) error { return g.lib.check(g.lib.memFree(at), "cuMemFree") }

// Launch queues a kernel with this number of blocks.
func (g *GPU) Launch(k ptx.Kernel, blocks int, args ...uint64) error {
	f, ok := g.kernels[k.Name]
	if !ok || len(args) != len(k.Params) {
		return fmt.Errorf("no kernel %s of %d parameters", k.Name, len(args))
	}
	// Each pointer refers to a parameter of the kernel's size: a 32-bit parameter is in the lower bytes, which come
	// first.
	params := make([]unsafe.Pointer, len(args))
	for i := range args {
		params[i] = unsafe.Pointer(&args[i])
	}
	r := g.lib.launchKernel(f, uint32(blocks), 1, 1, uint32(k.Threads), 1, 1, 0, g.stream, &params[0], nil)
	runtime.KeepAlive(args)
	return g.lib.check(r, "cuLaunchKernel "+k.Name)
}

// Wait returns when all that was queued is done.
func (g *GPU) Wait() error {
	return g.lib.check(g.lib.streamSynchronize(g.stream), "cuStreamSynchronize")
}

// Read copies from the GPU, after the queued work.
func (g *GPU) Read(dst []byte, at uint64) error {
	if len(dst) == 0 {
		return nil
	}
	begun := g.lib.memcpyDtoHAsync(&dst[0], at, uint64(len(dst)), g.stream)
	if err := g.lib.check(begun, "cuMemcpyDtoHAsync"); err != nil {
		return err
	}
	err := g.Wait()
	runtime.KeepAlive(dst)
	return err
}
