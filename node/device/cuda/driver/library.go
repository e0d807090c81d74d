//go:build linux && (amd64 || arm64)

package driver

import (
	"fmt"
	"unsafe"

	"github.com/ebitengine/purego"

	"github.com/starling-network/starling/node/child"
	"github.com/starling-network/starling/node/device"
	"github.com/starling-network/starling/node/device/cuda/engine"
)

// libraryName is the driver's library.
const libraryName = "libcuda.so.1"

// result is CUresult.
type result int32

const outOfMemory result = 2

// library is the used functions, with the types of cuda.h. A pointer is passed as a Go pointer, never as a number: the
// compiler then keeps its target on the heap, where nothing moves while C has the address.
type library struct {
	init               func(flags uint32) result
	driverGetVersion   func(version *int32) result
	deviceGetCount     func(count *int32) result
	deviceGet          func(device *int32, ordinal int32) result
	deviceGetName      func(name *byte, size int32, device int32) result
	deviceGetUUID      func(uuid *[16]byte, device int32) result
	deviceGetAttribute func(value *int32, attribute, device int32) result
	primaryCtxRetain   func(context *uintptr, device int32) result
	ctxSetCurrent      func(context uintptr) result
	streamCreate       func(stream *uintptr, flags uint32) result
	streamSynchronize  func(stream uintptr) result
	moduleLoadDataEx   func(module *uintptr, image *byte, options uint32, names *int32, values *jitValues) result
	moduleGetFunction  func(function *uintptr, module uintptr, name string) result
	funcGetAttribute   func(value *int32, attribute int32, function uintptr) result
	memGetInfo         func(free, total *uint64) result
	memAlloc           func(at *uint64, size uint64) result
	memFree            func(at uint64) result
	memcpyDtoHAsync    func(dst *byte, src, size uint64, stream uintptr) result
	launchKernel       func(
		f uintptr, gx, gy, gz, bx, by, bz, shared uint32, stream uintptr, params, extra *unsafe.Pointer,
	) result
	getErrorName        func(r result, text **byte) result
	getErrorDescription func(r result, text **byte) result
}

// load opens the library. The error is marked where it is not there.
func load() (*library, error) {
	handle, err := purego.Dlopen(libraryName, purego.RTLD_NOW|purego.RTLD_GLOBAL)
	if err != nil {
		return nil, engine.NoLibrary(err)
	}
	l := &library{}
	for _, f := range []struct {
		to    any
		names []string // the first that there is
	}{
		{&l.init, []string{"cuInit"}},
		{&l.driverGetVersion, []string{"cuDriverGetVersion"}},
		{&l.deviceGetCount, []string{"cuDeviceGetCount"}},
		{&l.deviceGet, []string{"cuDeviceGet"}},
		{&l.deviceGetName, []string{"cuDeviceGetName"}},
		// The second name is from before CUDA 11.4 and does not support slices.
		{&l.deviceGetUUID, []string{"cuDeviceGetUuid_v2", "cuDeviceGetUuid"}},
		{&l.deviceGetAttribute, []string{"cuDeviceGetAttribute"}},
		{&l.primaryCtxRetain, []string{"cuDevicePrimaryCtxRetain"}},
		{&l.ctxSetCurrent, []string{"cuCtxSetCurrent"}},
		{&l.streamCreate, []string{"cuStreamCreate"}},
		{&l.streamSynchronize, []string{"cuStreamSynchronize"}},
		{&l.moduleLoadDataEx, []string{"cuModuleLoadDataEx"}},
		{&l.moduleGetFunction, []string{"cuModuleGetFunction"}},
		{&l.funcGetAttribute, []string{"cuFuncGetAttribute"}},
		{&l.memGetInfo, []string{"cuMemGetInfo_v2"}},
		{&l.memAlloc, []string{"cuMemAlloc_v2"}},
		{&l.memFree, []string{"cuMemFree_v2"}},
		{&l.memcpyDtoHAsync, []string{"cuMemcpyDtoHAsync_v2"}},
		{&l.launchKernel, []string{"cuLaunchKernel"}},
		{&l.getErrorName, []string{"cuGetErrorName"}},
		{&l.getErrorDescription, []string{"cuGetErrorString"}},
	} {
		var at uintptr
		for _, name := range f.names {
			if at, err = purego.Dlsym(handle, name); err == nil {
				break
			}
		}
		if err != nil {
			return nil, fmt.Errorf("%s is of an old driver: %w", libraryName, err)
		}
		purego.RegisterFunc(f.to, at)
	}
	return l, nil
}

// check is the error of a call: nil, device.ErrMemory, or another; with the driver's own words.
func (l *library) check(r result, doing string) error {
	if r == 0 {
		return nil
	}
	var name, text *byte
	l.getErrorName(r, &name)
	l.getErrorDescription(r, &text)
	err := fmt.Errorf("%s: %s (%d): %s", doing, words(name), r, words(text))
	if r == outOfMemory {
		return fmt.Errorf("%w: %w", device.ErrMemory, err)
	}
	return err
}

// words is a C string of the driver, bounded.
func words(p *byte) string {
	const most = 512
	if p == nil {
		return "?"
	}
	n := 0
	for n < most && *(*byte)(unsafe.Add(unsafe.Pointer(p), n)) != 0 {
		n++
	}
	return child.Tidy(string(unsafe.Slice(p, n)), most)
}
