package marketcmd

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/starling-network/starling/cmd/internal/cli"
	"github.com/starling-network/starling/node/config"
	"github.com/starling-network/starling/node/gpu"
)

func newGpus(a *cli.App) *cobra.Command {
	var mock, only string
	c := &cobra.Command{
		Use:   "gpus",
		Short: "List this machine's GPUs and their health",
		Long: `Lists the GPUs of this machine with their health, and MIG slices as separate devices. It compares the
reports of NVIDIA's library and of the kernel. A device on which they disagree, or with a fault, is listed with the
reason why it is not sold. AMD devices are listed and not sold. The peer need not run.

The program starling-nvml beside starling queries NVIDIA's GPUs; make build builds both. Another program beside them,
starling-cuda, answers audits with a GPU; starling-cuda --self-test compares the GPU with the processor and measures
it.

--select lists only the devices that a selector matches: docker's forms (all, 2, device=0,1, device=GPU-...) and
models, memory and compute capability (h100:8, vram>=24, cap>=8.0), joined by commas. Memory without a unit is the
nominal size of a card: vram>=24 matches all cards sold with 24 GB.

--mock lists the simulated devices of one of NVIDIA's mocks instead: ` + strings.Join(gpu.Mocks, ", ") +
			`, each with
` + gpu.MockMIG + ` behind it for slices. It needs a home directory on a network with a genesis that ` +
			`allows simulated units.`,
		Example: `  starling provider gpus
  starling provider gpus --select 'h100:2,vram>=80'
  starling provider gpus -o json | jq '.devices[] | select(.refused == null) | .uuid'`,
		Args: cli.ExactArgs(0),
		RunE: func(c *cobra.Command, _ []string) error {
			var selector gpu.Selector
			if c.Flags().Changed("select") {
				var err error
				if selector, err = gpu.ParseSelector(only); err != nil {
					return &cli.Error{Code: cli.ExitUsage, Err: err, Hint: "starling provider gpus --help"}
				}
			}
			cfg, err := gpuConfig(a, mock)
			if err != nil {
				return err
			}
			source, err := gpu.Open(cfg)
			if errors.Is(err, gpu.ErrMock) {
				return &cli.Error{Code: cli.ExitUsage, Err: err}
			}
			if err != nil {
				return err
			}
			defer source.Close()
			inv, err := source.Inventory(c.Context())
			if err != nil {
				return err
			}
			if c.Flags().Changed("select") {
				if inv.Devices, err = selector.Select(inv); err != nil {
					return cli.WithHint(err, "starling provider gpus lists all devices")
				}
			}
			return a.Show(inv, func(t *cli.Table) { gpusTable(t, inv) })
		},
	}
	c.Flags().StringVar(&mock, "mock", "", "list the devices of one of NVIDIA's mocks instead")
	c.Flags().StringVar(&only, "select", "", "list only devices of a selector, as h100:2 or vram>=24")
	return c
}

// gpuConfig returns the configuration of the device search. Only simulated devices need the home directory: the
// network's permission, and the peer's key.
func gpuConfig(a *cli.App, mock string) (gpu.Config, error) {
	if mock == "" {
		return gpu.Config{}, nil
	}
	home, err := a.PeerHome()
	if err != nil {
		return gpu.Config{}, err
	}
	cfg := gpu.Config{Mock: mock}
	genesis, err := config.LoadGenesis(home)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return cfg, cli.WithHint(&cli.Error{Code: cli.ExitUsage,
			Err: fmt.Errorf("simulated devices need a peer on a simulated network, and no peer was set up in %s",
				home)},
			"starling init, or name another directory with --home")
	case err != nil:
		return cfg, err
	}
	cfg.Simulated = genesis.Simulated
	if key, err := cli.KeyOf(filepath.Join(home, config.FileIdentity)); err == nil {
		cfg.MockSeed = key.String()
	}
	return cfg, nil
}

func gpusTable(t *cli.Table, inv gpu.Inventory) {
	if len(inv.Devices) == 0 {
		if len(inv.Problems) == 0 {
			t.Row("no GPU was found: this machine has neither NVIDIA's driver nor AMD's")
		}
		problemRows(t, inv)
		return
	}
	for _, d := range inv.Devices {
		h := d.Health
		t.Row(gpuNumber(d), d.Model, d.Class(), mib(d.VRAMMiB), cli.Dash(d.Capability),
			reading(h.TemperatureC, "%d °C"),
			reading(h.UtilisationPercent, "%d %%"), watts(h.PowerMilliwatts), d.UUID, gpuState(d))
	}
	t.Head("GPU", "MODEL", "CLASS", "VRAM", "CAP", "TEMP", "USE", "POWER", "UUID", "SOLD")
	t.Row()
	driver := ""
	if inv.Driver != "" {
		driver = ", driver " + inv.Driver
	}
	t.Row(fmt.Sprintf("%d of %d can be sold; listed by %s%s", len(inv.Sellable()), len(inv.Devices), inv.Source,
		driver))
	problemRows(t, inv)
}

func problemRows(t *cli.Table, inv gpu.Inventory) {
	for _, p := range inv.Problems {
		t.Row("problem: " + p)
	}
}

// gpuNumber is the driver's number of a GPU, or that of a slice's GPU and the slice's own.
func gpuNumber(d gpu.Device) string {
	if d.MIG == nil {
		return strconv.Itoa(d.Index)
	}
	return fmt.Sprintf("%d/%d.%d", d.Index, d.MIG.GPUInstance, d.MIG.ComputeInstance)
}

// gpuState reports whether a device can be sold and, if not, why; and warnings about a device that can.
func gpuState(d gpu.Device) string {
	state := "yes"
	if d.Refused != "" {
		state = "no: " + d.Refused
	}
	h := d.Health
	if h.Xid != nil && h.Xid.Count > 0 {
		state += fmt.Sprintf("; %d Xid errors, the last %d", h.Xid.Count, h.Xid.Last)
	}
	if h.ECC != nil && h.ECC.Correctable > 0 {
		state += fmt.Sprintf("; %d corrected memory errors", h.ECC.Correctable)
	}
	if len(h.Throttle) > 0 {
		state += "; slowed: " + strings.Join(h.Throttle, ", ")
	}
	return state
}

func mib(n uint64) string {
	if n == 0 {
		return "-"
	}
	return strconv.FormatUint(n, 10) + " MiB"
}

func reading(n *uint32, format string) string {
	if n == nil {
		return "-"
	}
	return fmt.Sprintf(format, *n)
}

func watts(milli *uint32) string {
	if milli == nil {
		return "-"
	}
	return fmt.Sprintf("%d W", (*milli+500)/1000)
}
