// Package gpu is a peer's inventory of GPUs and their health: the devices of the machine, and for each the reason if it
// cannot be sold.
//
//	starling (static, no cgo)                                  starling-nvml (cgo), beside it
//	┌────────────────────────────────────────────┐  requests   ┌─────────────────────────────┐
//	│ Open ─ Source ┬ nvidia ─ helper (process) ─┼────────────▶│ Serve ─ node/gpu/nvml       │
//	│               │    │     restart, time-out │◀────────────┤   Init, then and only then  │
//	│               │    │                       │  JSON lines │   libnvidia-ml.so.1         │
//	│               │    ├ /proc/driver/nvidia   │             │   or NVIDIA's own mocks     │
//	│               │    └ /sys/bus/pci          │             └─────────────────────────────┘
//	│               └ amd ─ /sys/class/drm, amd-smi             (read only)
//	│        judge: Device.Refused is the reason why a device is not sold
//	└────────────────────────────────────────────┘
//
// NVML can be reached only through cgo, and a driver that misbehaves can end or hang the process that called it. All
// driver calls are therefore in a small helper process. The peer starts it, limits the time of each call, and restarts
// it after its death, with increasing delays. Without the helper, devices of the kernel's list stay listed, but are not
// sold.
//
// NVML's list is compared with the kernel driver's in /proc/driver/nvidia/gpus and with the PCI functions of the
// machine. If they disagree, a device is listed but not sold. This detects broken installations, wrappers around
// libnvidia-ml and mistakes; it is no proof for other peers. A GPU proves its class by its audits.
//
// MIG slices are separate devices, each one unit; a GPU in MIG mode is not sold whole. AMD devices are listed and not
// sold.
//
// NVIDIA's own mocks (Config.Mock) replace hardware on networks with a simulated genesis, and nowhere else. Each of
// their devices has Simulated set and a model that shows it.
//
// A Selector is the value of --gpus: docker's forms, and model, memory and compute capability. ModelClass returns the
// market class of a model: "NVIDIA H100 80GB HBM3" is sold as gpu/h100.
package gpu
