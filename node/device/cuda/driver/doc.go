// Package driver is NVIDIA's driver, called without cgo: libcuda.so.1 is opened at run time and its functions are
// called by the C calling convention. Only the helper program starling-cuda links it, since an error in this package
// can end the process.
//
// A GPU is the first that the process can see, as set by CUDA_VISIBLE_DEVICES. It uses the primary context and one
// stream, so launches and copies run in order. All calls must come from the thread that opened it.
//
// Source: CUDA driver API 11 and later, cuda.h.
package driver
