package gpu

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"

	"github.com/starling-network/starling/node/child"
)

// amdPrefix begins the UUID of an AMD device. The rest is its unique id, or its PCI address if the kernel has none.
const amdPrefix = "AMD-"

const vendorAMD = "0x1002"

var (
	cardName = regexp.MustCompile(`^card[0-9]{1,4}$`)
	uniqueID = regexp.MustCompile(`^[0-9a-f]{8,32}$`)
)

// amd reads AMD's devices from the kernel's amdgpu driver in /sys. It writes nothing, and its devices are not sold.
type amd struct {
	sys string
	smi string // amd-smi, "" when it is not there
}

func newAMD(cfg Config) *amd {
	return &amd{sys: cfg.SysRoot, smi: findSMI(cfg.AMDSMI)}
}

func (a *amd) Name() string { return "amd-sysfs" }

func (a *amd) Close() error { return nil }

func (a *amd) Inventory(ctx context.Context) (Inventory, error) {
	inv := Inventory{Source: a.Name()}
	cards, err := a.cards()
	if err != nil {
		inv.Problems = append(inv.Problems, "looking for AMD devices: "+err.Error())
	}
	if len(cards) == 0 {
		return inv, ctx.Err()
	}
	inv.Driver = a.text("module/amdgpu/version")
	targets := a.targets()
	named, err := a.askSMI(ctx)
	if err != nil {
		inv.Problems = append(inv.Problems, err.Error())
	}
	for i, card := range cards {
		d := a.device(i, card)
		d.Driver, d.Capability = inv.Driver, targets[d.PCI]
		if n, ok := named[d.PCI]; ok {
			d.Model = pick(n.model, d.Model)
			d.Capability = pick(n.target, d.Capability)
		}
		inv.Devices = append(inv.Devices, d)
	}
	judge(inv.Devices)
	return inv, ctx.Err()
}

func pick(first, second string) string {
	if first != "" {
		return first
	}
	return second
}

func (a *amd) Health(ctx context.Context, uuids []string) (map[string]Health, error) {
	wanted := map[string]bool{}
	for _, uuid := range uuids {
		wanted[uuid] = true
	}
	health := map[string]Health{}
	cards, err := a.cards()
	if err != nil {
		return nil, err
	}
	for i, card := range cards {
		if d := a.device(i, card); wanted[d.UUID] {
			health[d.UUID] = d.Health
		}
	}
	return health, ctx.Err()
}

// cards are the folders of AMD's devices, in the order of their PCI addresses.
func (a *amd) cards() ([]string, error) {
	root := filepath.Join(a.sys, "class", "drm")
	entries, err := os.ReadDir(root)
	if os.IsNotExist(err) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var cards []string
	for _, e := range entries {
		card := filepath.Join("class", "drm", e.Name(), "device")
		if cardName.MatchString(e.Name()) && a.text(card+"/vendor") == vendorAMD {
			cards = append(cards, card)
		}
		if len(cards) == MaxDevices {
			break
		}
	}
	return cards, nil
}

// device reads one device. Fields that its driver does not report are empty.
func (a *amd) device(index int, card string) Device {
	d := Device{Vendor: AMD, Index: index, PCI: a.address(card), Model: a.text(card + "/product_name")}
	if id := a.text(card + "/unique_id"); uniqueID.MatchString(id) {
		d.UUID = amdPrefix + id
	} else {
		d.UUID = amdPrefix + d.PCI
	}
	if d.Model == "" {
		d.Model = "AMD GPU " + strings.TrimPrefix(a.text(card+"/device"), "0x")
	}
	if total := a.number(card+"/mem_info_vram_total", 1<<20); total != nil {
		d.VRAMMiB = *total
	}
	d.Health = a.health(card)
	return d
}

func (a *amd) health(card string) Health {
	h := Health{
		UtilisationPercent: small(a.number(card+"/gpu_busy_percent", 1)),
		MemoryUsedMiB:      a.number(card+"/mem_info_vram_used", 1<<20),
	}
	sensors, err := filepath.Glob(filepath.Join(a.sys, card, "hwmon", "hwmon*"))
	if err != nil || len(sensors) == 0 {
		return h
	}
	sensor := filepath.Join(card, "hwmon", filepath.Base(sensors[0]))
	h.TemperatureC = small(a.number(sensor+"/temp1_input", 1000))       // millidegrees
	h.PowerMilliwatts = small(a.number(sensor+"/power1_average", 1000)) // microwatts
	if h.PowerMilliwatts == nil {
		h.PowerMilliwatts = small(a.number(sensor+"/power1_input", 1000))
	}
	h.ClockMHz = small(a.number(sensor+"/freq1_input", 1_000_000)) // Hz
	return h
}

// address is the PCI address that the kernel gives a card, or "".
func (a *amd) address(card string) string {
	b, err := readBounded(filepath.Join(a.sys, card, "uevent"))
	if err != nil {
		return ""
	}
	for l := range strings.Lines(string(b)) {
		if value, ok := strings.CutPrefix(strings.TrimSpace(l), "PCI_SLOT_NAME="); ok {
			if pci := normalPCI(value); pciAddress.MatchString(pci) {
				return pci
			}
		}
	}
	return ""
}

// targets are the gfx targets of the compute nodes, "gfx942", by PCI address.
func (a *amd) targets() map[string]string {
	targets := map[string]string{}
	files, err := filepath.Glob(filepath.Join(a.sys, "class", "kfd", "kfd", "topology", "nodes", "*", "properties"))
	if err != nil || len(files) > MaxDevices {
		return targets
	}
	for _, file := range files {
		b, err := readBounded(file)
		if err != nil {
			continue
		}
		if pci, target, ok := parseNode(b); ok {
			targets[pci] = target
		}
	}
	return targets
}

// parseNode parses a compute node's properties, lines of "name value": its address and its target. A node that is a CPU
// has no target.
func parseNode(b []byte) (pci, target string, ok bool) {
	values := map[string]uint64{}
	for l := range strings.Lines(string(b)) {
		name, value, _ := strings.Cut(strings.TrimSpace(l), " ")
		if n, err := strconv.ParseUint(value, 10, 64); err == nil {
			values[name] = n
		}
	}
	version, at := values["gfx_target_version"], values["location_id"]
	if version == 0 || version > 999_99_99 || at > 0xffff || values["domain"] > 0xffffffff {
		return "", "", false
	}
	pci = fmt.Sprintf("%04x:%02x:%02x.%d", values["domain"], at>>8, at>>3&0x1f, at&7)
	// 90402 is 9, 4, 2: the last two are written in hexadecimal.
	return pci, fmt.Sprintf("gfx%d%x%x", version/10000, version/100%100, version%100), true
}

// text is the content of a small file, tidied; "" when it is not there.
func (a *amd) text(path string) string {
	b, err := readBounded(filepath.Join(a.sys, path))
	if err != nil {
		return ""
	}
	return child.Tidy(string(b), maxText)
}

// number returns a file's number in a larger unit; nil if there is none.
func (a *amd) number(path string, unit uint64) *uint64 {
	n, err := strconv.ParseUint(a.text(path), 10, 64)
	if err != nil {
		return nil
	}
	n /= unit
	return &n
}

func small(n *uint64) *uint32 {
	if n == nil || *n > 1<<31 {
		return nil
	}
	v := uint32(*n)
	return &v
}
