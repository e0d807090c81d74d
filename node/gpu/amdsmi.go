package gpu

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os/exec"
	"regexp"
	"time"

	"github.com/starling-network/starling/node/child"
)

const (
	smiName    = "amd-smi"
	smiTimeout = 10 * time.Second
	maxSMI     = 1 << 20
)

var gfxTarget = regexp.MustCompile(`^gfx[0-9a-f]{3,6}$`)

// smiDevice is the data of AMD's program that the kernel may lack.
type smiDevice struct{ model, target string }

func findSMI(configured string) string {
	if configured == "" {
		configured = smiName
	}
	path, err := exec.LookPath(configured)
	if err != nil {
		return "" // names are then the kernel's
	}
	return path
}

// askSMI requests names by PCI address from AMD's program, if it is installed.
func (a *amd) askSMI(ctx context.Context) (map[string]smiDevice, error) {
	if a.smi == "" {
		return nil, nil
	}
	ctx, cancel := context.WithTimeout(ctx, smiTimeout)
	defer cancel()
	cmd := exec.CommandContext(ctx, a.smi, "static", "--asic", "--bus", "--json")
	cmd.WaitDelay = time.Second
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, fmt.Errorf("%s: %w", smiName, err)
	}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("%s: %w", smiName, err)
	}
	b, readErr := io.ReadAll(io.LimitReader(out, maxSMI))
	if len(b) == maxSMI {
		cancel()
	}
	err = cmd.Wait()
	switch {
	case readErr != nil:
		return nil, fmt.Errorf("%s: %w", smiName, readErr)
	case err != nil:
		return nil, fmt.Errorf("%s: %w; AMD devices are named as the kernel does", smiName, err)
	}
	devices, err := parseSMI(b)
	if err != nil {
		return nil, fmt.Errorf("%s: %w; AMD devices are named as the kernel does", smiName, err)
	}
	return devices, nil
}

// parseSMI reads `amd-smi static --asic --bus --json`: a list of devices, since ROCm 6.4 under "gpu_data".
func parseSMI(b []byte) (map[string]smiDevice, error) {
	type entry struct {
		ASIC struct {
			Name   string `json:"market_name"`
			Target string `json:"target_graphics_version"`
		} `json:"asic"`
		Bus struct {
			BDF string `json:"bdf"`
		} `json:"bus"`
	}
	var list []entry
	if b = bytes.TrimSpace(b); bytes.HasPrefix(b, []byte("{")) {
		var wrapped struct {
			Devices []entry `json:"gpu_data"`
		}
		if err := json.Unmarshal(b, &wrapped); err != nil {
			return nil, err
		}
		list = wrapped.Devices
	} else if err := json.Unmarshal(b, &list); err != nil {
		return nil, err
	}
	if len(list) > MaxDevices {
		return nil, fmt.Errorf("%d devices, at most %d are read", len(list), MaxDevices)
	}
	devices := map[string]smiDevice{}
	for _, e := range list {
		pci := normalPCI(e.Bus.BDF)
		if !pciAddress.MatchString(pci) {
			continue
		}
		d := smiDevice{model: child.Tidy(e.ASIC.Name, maxText)}
		if d.model == "N/A" {
			d.model = ""
		}
		if gfxTarget.MatchString(e.ASIC.Target) {
			d.target = e.ASIC.Target
		}
		devices[pci] = d
	}
	return devices, nil
}
