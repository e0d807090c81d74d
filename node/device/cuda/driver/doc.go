// Package driver is NVIDIA's driver, called without cgo: libcuda.so.1 is opened at run time and its functions are
// called by the C calling convention. Only the helper program starling-cuda links it, since an error in here can end
// the process.
//
// A GPU is the first that the process can see; CUDA_VISIBLE_DEVICES says which that is. Its primary context is used,
// and one stream, so launches and copies follow each other. All calls must come from the thread that opened it.
//
// Source: CUDA driver API 11 and later, cuda.h.
package driver
