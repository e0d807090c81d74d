//go:build cgo && nvml

package nvml

import (
	"fmt"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/starling-network/starling/node/gpu"
)

// driver is NVML after an Init that succeeded. There is no other way to have one than open.
type driver struct {
	lib  nvml.Interface
	xids *xids // nil: Xid events are not listened for
}

// open initialises NVML. After an error the library must not be used, and lib is not kept.
func open(lib nvml.Interface) (*driver, error) {
	switch ret := lib.Init(); ret {
	case nvml.SUCCESS:
		return &driver{lib: lib}, nil
	case nvml.ERROR_LIBRARY_NOT_FOUND:
		return nil, gpu.NoLibrary(fmt.Errorf("libnvidia-ml.so.1 was not found"))
	default:
		return nil, fmt.Errorf("initialising: %s", text(ret))
	}
}

// versions are the functions for which go-nvml calls the newest version in the library.
var versions = map[string][]string{
	"nvmlDeviceGetCount":         {"nvmlDeviceGetCount_v2"},
	"nvmlDeviceGetHandleByIndex": {"nvmlDeviceGetHandleByIndex_v2"},
	"nvmlDeviceGetPciInfo":       {"nvmlDeviceGetPciInfo_v3", "nvmlDeviceGetPciInfo_v2"},
	"nvmlDeviceGetAttributes":    {"nvmlDeviceGetAttributes_v2"},
	"nvmlEventSetWait":           {"nvmlEventSetWait_v2"},
}

// has reports whether the driver's library has a function.
func (d *driver) has(symbol string) bool {
	for _, s := range append(versions[symbol], symbol) {
		if d.lib.Extensions().LookupSymbol(s) == nil {
			return true
		}
	}
	return false
}

// ask calls one function of NVML, if the driver's library has its symbol. ok is false without the symbol, or if the
// function failed: most functions fail on devices without the feature.
func ask[T any](d *driver, symbol string, call func() (T, nvml.Return)) (v T, ok bool) {
	v, err := must(d, symbol, call)
	return v, err == nil
}

// must is ask for functions that all drivers and devices have; its error has the reason.
func must[T any](d *driver, symbol string, call func() (T, nvml.Return)) (v T, err error) {
	if !d.has(symbol) {
		return v, fmt.Errorf("the driver has no %s", symbol)
	}
	v, ret := call()
	if ret != nvml.SUCCESS {
		var none T
		return none, fmt.Errorf("%s: %s", symbol, text(ret))
	}
	return v, nil
}

// text returns the meaning of a return code. It does not call NVML, whose function for that is not always allowed.
func text(ret nvml.Return) string {
	switch ret {
	case nvml.ERROR_UNINITIALIZED:
		return "not initialised"
	case nvml.ERROR_NOT_SUPPORTED:
		return "not supported"
	case nvml.ERROR_NO_PERMISSION:
		return "not permitted to this user"
	case nvml.ERROR_NOT_FOUND:
		return "not found"
	case nvml.ERROR_DRIVER_NOT_LOADED:
		return "the kernel driver is not loaded"
	case nvml.ERROR_TIMEOUT:
		return "timed out"
	case nvml.ERROR_IRQ_ISSUE:
		return "the kernel has a problem with the device's interrupts"
	case nvml.ERROR_FUNCTION_NOT_FOUND:
		return "the library lacks the function"
	case nvml.ERROR_CORRUPTED_INFOROM:
		return "the device's infoROM is corrupted"
	case nvml.ERROR_GPU_IS_LOST:
		return "the device fell off the bus, or cannot be reached"
	case nvml.ERROR_RESET_REQUIRED:
		return "the device must be reset"
	case nvml.ERROR_OPERATING_SYSTEM:
		return "not permitted by the operating system"
	case nvml.ERROR_LIB_RM_VERSION_MISMATCH:
		return "library and kernel driver are of different versions: restart the machine after a driver update"
	case nvml.ERROR_IN_USE:
		return "in use"
	case nvml.ERROR_INSUFFICIENT_POWER:
		return "the device's power cables are not attached properly"
	}
	return fmt.Sprintf("error %d", int32(ret))
}
