package gpu

import (
	"context"
	"errors"
	"fmt"
	"slices"
)

// nvidia is NVIDIA's devices: NVML's list through the helper, compared with the kernel's.
type nvidia struct {
	helper  *helper // nil when the program was not found
	missing error   // why
	cfg     Config
}

func (n *nvidia) Name() string { return "nvml" }

func (n *nvidia) Inventory(ctx context.Context) (Inventory, error) {
	kernel, found, err := kernelGPUs(n.cfg.ProcRoot)
	inv := Inventory{Source: n.Name(), Driver: kernelDriver(n.cfg.ProcRoot)}
	if err != nil {
		inv.Problems = append(inv.Problems, err.Error())
	}
	told, err := n.ask(ctx)
	switch {
	case ctx.Err() != nil:
		return Inventory{}, ctx.Err()
	case err == nil:
		inv.Devices, inv.Problems = told.Devices, append(inv.Problems, told.Problems...)
		if told.Driver != "" {
			inv.Driver = told.Driver
		}
		compare(inv.Devices, kernel, found, n.cfg.SysRoot)
		missing := unlisted(inv.Devices, kernel, "in the kernel driver's list, but not in NVML's")
		inv.Devices = append(inv.Devices, missing...)
	case found:
		inv.Problems = append(inv.Problems, n.explain(err))
		inv.Devices = unlisted(nil, kernel, "only the kernel driver's list could be read: "+short(err))
	case errors.Is(err, ErrNoHelper), isNoLibrary(err):
		return Inventory{Source: n.Name(), Problems: inv.Problems}, nil // no driver, no GPU
	default:
		inv.Problems = append(inv.Problems, n.explain(err))
	}
	judge(inv.Devices)
	return inv, nil
}

func (n *nvidia) ask(ctx context.Context) (Inventory, error) {
	if n.helper == nil {
		return Inventory{}, n.missing
	}
	p, err := n.helper.call(ctx, opInventory, nil)
	if err != nil {
		return Inventory{}, err
	}
	if p.Inventory == nil {
		return Inventory{}, fmt.Errorf("%w: an answer without an inventory", ErrHelper)
	}
	return *p.Inventory, nil
}

// short is the reason of a failure in a few words, for a device's line.
func short(err error) string {
	switch {
	case errors.Is(err, ErrNoHelper):
		return ErrNoHelper.Error()
	case errors.Is(err, ErrHelper):
		return "the NVML helper failed"
	}
	return "NVML does not work"
}

// explain adds a remedy to a failure on a machine that has NVIDIA's driver.
func (n *nvidia) explain(err error) string {
	switch {
	case errors.Is(err, ErrNoHelper):
		return fmt.Sprintf("this machine has an NVIDIA driver, and %v: "+
			"build the helper with `make build` where a C compiler is, or with "+
			"`CGO_ENABLED=1 go install -tags nvml github.com/starling-network/starling/cmd/%s@latest`, "+
			"and put it into starling's folder", err, HelperName)
	case isNoLibrary(err):
		return fmt.Sprintf("%v: the kernel driver is loaded, but the library is missing; "+
			"install the driver's packages in full "+
			"(in a container: start the container with NVIDIA's container toolkit and the capability utility)", err)
	}
	return err.Error()
}

func isNoLibrary(err error) bool {
	e, ok := errors.AsType[*nvmlError](err)
	return ok && e.kind == failNoLibrary
}

func (n *nvidia) Health(ctx context.Context, uuids []string) (map[string]Health, error) {
	if n.helper == nil {
		return nil, n.missing
	}
	if len(uuids) > MaxDevices {
		return nil, fmt.Errorf("%w: health: got %d devices, want at most %d", ErrNVML, len(uuids), MaxDevices)
	}
	p, err := n.helper.call(ctx, opHealth, uuids)
	if err != nil {
		return nil, err
	}
	for uuid := range p.Health {
		if !slices.Contains(uuids, uuid) {
			delete(p.Health, uuid)
		}
	}
	return p.Health, nil
}

func (n *nvidia) Close() error {
	if n.helper == nil {
		return nil
	}
	return n.helper.Close()
}
