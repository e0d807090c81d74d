package gpu

import "errors"

var (
	// ErrMock means that simulated devices were asked for where they are not allowed, or that no such mock is known.
	ErrMock = errors.New("simulated devices")
	// ErrNoHelper means that the helper program starling-nvml was not found.
	ErrNoHelper = errors.New("starling-nvml was not found")
	// ErrHelper means that the helper process crashed, hung or answered nonsense; its text says which.
	ErrHelper = errors.New("NVML helper")
	// ErrNVML means that the helper works and NVML does not: no library, no driver, or an error of its own.
	ErrNVML = errors.New("NVML")
	// ErrSelector means that a --gpus text cannot be understood; its text names the part.
	ErrSelector = errors.New("gpus")
	// ErrNotHere means that the inventory has no sellable device that a selector asks for.
	ErrNotHere = errors.New("no such device to sell")
)
