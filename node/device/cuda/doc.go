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
// A driver can end or hang the process that calls it, so all its calls are in a helper program beside the peer's, which
// stays static. Each device has a helper process of its own, so all of a peer's devices work at once. The environment
// of a helper names its device alone (CUDA_VISIBLE_DEVICES, by UUID): this is how NVIDIA pins a process to a MIG slice,
// needs no code of ours to choose among devices, and a helper cannot touch another's. It then compares the UUID that
// the driver gives with the one that it was started for.
//
// A dataset is resident as long as its helper lives. One that crashed, hung or did not end a cancelled call in time is
// killed and later started again without it: a walk then says device.ErrNoDataset.
//
// No GPU has run the kernels yet. They are checked in the simulator ptxsim and assembled by NVIDIA's assembler; see
// verify/BENCHMARKS.md. `starling-cuda --self-test` compares a real GPU with the processor, bit for bit, and
// testnet/scenarios/gpu.sh does so through Device and helper, and measures it.
package cuda
