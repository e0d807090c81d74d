// Package cuda answers challenges with NVIDIA GPUs, one Device for each GPU or MIG slice.
//
//	starling (static)                         starling-cuda (purego, libc), one for each device
//	┌───────────────────────────┐  questions  ┌──────────────────────────────────────────────┐
//	│ Device ── child.Program ──┼────────────▶│ engine: memory, launches, resident dataset   │
//	│   restart, time-outs,     │◀────────────┤ driver: libcuda.so.1 by dlopen, no cgo       │
//	│   cancel, then kill       │ wire frames │ ptx:    kernels as text, compiled by the     │
//	└───────────────────────────┘             │         driver for its GPU                   │
//	                                          └──────────────────────────────────────────────┘
//
// A driver can end or hang the process that calls it, so all calls are made in a helper program; the peer's binary
// stays static. Each device has its own helper process, so all devices of a peer work at once. The environment of a
// helper names only its device (CUDA_VISIBLE_DEVICES, by UUID). This is NVIDIA's way to pin a process to a MIG slice;
// it needs no selection in our code, and a helper cannot use another device. The helper then checks the UUID that the
// driver reports.
//
// A dataset is resident while its helper runs. A helper that crashed, hung or did not end a cancelled call in time is
// killed and later restarted without the dataset: a walk then returns device.ErrNoDataset.
//
// No GPU has run the kernels yet. They are checked in the simulator ptxsim and assembled by NVIDIA's assembler; see
// verify/BENCHMARKS.md. `starling-cuda --self-test` compares a real GPU with the processor, bit for bit, and
// testnet/scenarios/gpu.sh does so through Device and helper, and measures it.
package cuda
