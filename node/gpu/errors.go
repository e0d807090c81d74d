package gpu

import "errors"

var (
	// ErrMock means that simulated devices were requested where they are not allowed, or that the mock is unknown.
	ErrMock = errors.New("simulated devices")
	// ErrNoHelper means that the helper program starling-nvml was not found.
	ErrNoHelper = errors.New("starling-nvml was not found")
	// ErrHelper means that the helper process crashed, hung or sent an invalid answer; its text has the cause.
	ErrHelper = errors.New("NVML helper")
	// ErrNVML means that the helper works and NVML does not: no library, no driver, or an error of NVML.
	ErrNVML = errors.New("NVML")
	// ErrSelector means that a --gpus text cannot be understood; its text names the part.
	ErrSelector = errors.New("gpus")
	// ErrNotHere means that the inventory lacks a sellable device for a selector.
	ErrNotHere = errors.New("no such device to sell")
)
