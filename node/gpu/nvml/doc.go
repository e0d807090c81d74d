// Package nvml implements the helper process starling-nvml with NVIDIA's management library (go-nvml, which needs cgo)
// and NVIDIA's own mocks of it. The peer does not link it; see package gpu.
//
// Two rules prevent crashes, and each is enforced in one place:
//
//   - After an Init that failed no function of NVML may be called. Only open makes a driver, and only after Init
//     succeeded; every other call is a method of it or is given one. The process ends when open fails.
//   - A function that the driver's library does not have ends the process that calls it. Every call goes through ask,
//     which looks the symbol up first.
//
// It is built with cgo and the tag nvml only: the tag keeps its C, and a C compiler's warnings about NVIDIA's header,
// out of a plain `go build ./...`. Without them the package has only a Main that reports this.
package nvml
