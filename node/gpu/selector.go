package gpu

import (
	"encoding/csv"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// Bounds of a selector.
const (
	// MaxCount is the largest device count of a selector.
	MaxCount = 1024
	// MaxSelector is the longest --gpus text.
	MaxSelector = 4096
	// maxSelected is the most devices that device= can name.
	maxSelected = 64
	// maxVRAMMiB is the most memory of one device, in selectors and in inventories.
	maxVRAMMiB = 4 << 20
)

// Selector is the value of --gpus. Missing parts are zero; at least one of All, Count and Devices is set.
type Selector struct {
	All     bool     `json:"all,omitempty"`
	Count   uint32   `json:"count,omitempty"`
	Devices []string `json:"devices,omitempty"` // indices or UUIDs, in the order given
	// Model is a class as ModelClass makes it: "h100".
	Model string `json:"model,omitempty"`
	// MinVRAMMiB is the least memory of a device.
	MinVRAMMiB uint64 `json:"minVRAMMiB,omitempty"`
	// MinCapability is NVIDIA's compute capability at least: "8.0".
	MinCapability string `json:"minCapability,omitempty"`
}

// nominalPercent of a card's nominal memory are there at least: ECC and the driver take the rest. A card sold with 24
// GB shows 22.5 to 24 GiB.
const nominalPercent = 93

// ParseSelector parses --gpus. It accepts docker's forms:
//
//	all   2   count=2   count=all   device=0,1   "device=GPU-…,GPU-…"   driver=nvidia   capabilities=compute
//
// (of drivers only nvidia; of capabilities gpu, compute and utility, which every job gets anyway) and
//
//	h100   h100:8   h100:all   vram>=24   vram>=24GiB   vram>=23028MiB   cap>=8.0
//
// joined by commas: "h100:8,vram>=80". The default count is one. Memory without a unit is the size that cards are sold
// under: "vram>=24" takes every card sold with 24 GB, though it shows less; with a unit it is exact.
func ParseSelector(text string) (Selector, error) {
	if len(text) > MaxSelector {
		return Selector{}, fmt.Errorf("%w: %d characters, at most %d are read", ErrSelector, len(text), MaxSelector)
	}
	fields, err := csv.NewReader(strings.NewReader(text)).Read()
	if err != nil || strings.ContainsAny(text, "\r\n") {
		return Selector{}, fmt.Errorf("%w: %.80q is not a list with commas; try all, 2, h100:8 or vram>=24",
			ErrSelector, text)
	}
	p := selectorParser{seen: map[string]bool{}}
	for _, f := range fields {
		if err := p.field(strings.TrimSpace(f)); err != nil {
			return Selector{}, fmt.Errorf("%w: %w", ErrSelector, err)
		}
	}
	s := p.Selector
	if s.Devices != nil && (s.All || s.Count > 0 || s.Model != "" || s.MinVRAMMiB > 0 || s.MinCapability != "") {
		return Selector{}, fmt.Errorf("%w: device= names the devices; "+
			"a count, a model or a minimum is not allowed with device=", ErrSelector)
	}
	if s.Devices == nil && !s.All && s.Count == 0 {
		s.Count = 1
	}
	return s, nil
}

// selectorParser is a selector half read.
type selectorParser struct {
	Selector
	seen map[string]bool
	// key whose list may continue in the next field: docker requires quotes around it, but users omit them
	list string
}

func (p *selectorParser) once(key string) error {
	if p.seen[key] {
		return fmt.Errorf("%s: given twice", key)
	}
	p.seen[key] = true
	return nil
}

func (p *selectorParser) field(f string) error {
	if key, value, ok := strings.Cut(f, ">="); ok {
		p.list = ""
		return p.minimum(strings.TrimSpace(key), strings.TrimSpace(value))
	}
	if key, value, ok := strings.Cut(f, "="); ok {
		p.list = key
		if err := p.once(key); err != nil {
			return err
		}
		return p.key(key, value)
	}
	if strings.ContainsAny(f, "<>") {
		return fmt.Errorf("%.40q: only >= is understood, as in vram>=24 and cap>=8.0", f)
	}
	switch {
	case p.list == "device" && isDeviceID(f):
		return p.device(f)
	case p.list == "capabilities" && slices.Contains(given, f):
		return nil
	}
	p.list = ""
	if model, count, ok := strings.Cut(f, ":"); ok {
		if err := p.model(model); err != nil {
			return err
		}
		return p.count(count)
	}
	if strings.EqualFold(f, "all") || f == "-1" || isNumber(f) {
		return p.count(f)
	}
	return p.model(f)
}

// given are the capabilities of a container that every job gets.
var given = []string{"gpu", "nvidia", "compute", "utility"}

func (p *selectorParser) key(key, value string) error {
	switch key {
	case "count":
		return p.count(value)
	case "device":
		for id := range strings.SplitSeq(value, ",") {
			if err := p.device(strings.TrimSpace(id)); err != nil {
				return err
			}
		}
		return nil
	case "driver":
		if value != "nvidia" {
			return fmt.Errorf("driver %.40q: only nvidia is sold", value)
		}
		return nil
	case "capabilities":
		for c := range strings.SplitSeq(value, ",") {
			if !slices.Contains(given, strings.TrimSpace(c)) {
				return fmt.Errorf("capability %.40q: jobs get compute and utility, nothing else is offered", c)
			}
		}
		return nil
	case "vram", "cap":
		return fmt.Errorf("%s is a minimum: write %s>=%.40s", key, key, value)
	}
	return fmt.Errorf("unknown key %.40q; known are count, device, driver, capabilities, vram>= and cap>=", key)
}

func (p *selectorParser) count(text string) error {
	if p.All || p.Count > 0 {
		return fmt.Errorf("the count: given twice")
	}
	if strings.EqualFold(text, "all") || text == "-1" { // docker's -1
		p.All = true
		return nil
	}
	n, err := strconv.ParseUint(text, 10, 32)
	if err != nil || n == 0 || n > MaxCount {
		return fmt.Errorf("count %.40q is not all or a number from 1 to %d", text, MaxCount)
	}
	p.Count = uint32(n)
	return nil
}

func (p *selectorParser) device(id string) error {
	switch {
	case !isDeviceID(id):
		return fmt.Errorf("device %.80q is not an index like 0 or a UUID like GPU-…", id)
	case slices.Contains(p.Devices, id):
		return fmt.Errorf("device %s: given twice", id)
	case len(p.Devices) == maxSelected:
		return fmt.Errorf("more than %d devices", maxSelected)
	}
	p.Devices = append(p.Devices, id)
	return nil
}

func (p *selectorParser) model(text string) error {
	if err := p.once("the model"); err != nil {
		return err
	}
	for _, r := range strings.ToLower(text) {
		if (r < 'a' || r > 'z') && (r < '0' || r > '9') && !strings.ContainsRune("-_. +", r) {
			return fmt.Errorf("%.40q is not a model, a count or all", text)
		}
	}
	class := ModelClass(text)
	if class == unknownModel || class == "all" || !strings.ContainsAny(class, "abcdefghijklmnopqrstuvwxyz") {
		return fmt.Errorf("%.40q is not a model, a count or all; models are written like h100, a100 or rtx-4090", text)
	}
	p.Model = class
	return nil
}

func (p *selectorParser) minimum(key, value string) error {
	if err := p.once(key); err != nil {
		return err
	}
	switch key {
	case "vram":
		mib, ok := parseMemory(value)
		if !ok {
			return fmt.Errorf("vram>=%.40s: want a size like 24, 24GiB or 23028MiB, at most %d GiB",
				value, maxVRAMMiB/1024)
		}
		p.MinVRAMMiB = mib
		return nil
	case "cap":
		c, ok := parseCapability(value)
		if !ok {
			return fmt.Errorf("cap>=%.40s: want a compute capability like 8.0", value)
		}
		p.MinCapability = c.String()
		return nil
	}
	return fmt.Errorf("%.40q has no minimum; those of vram and cap are understood", key)
}

// parseMemory reads a size: nominal gigabytes, GiB or MiB.
func parseMemory(text string) (mib uint64, ok bool) {
	number := strings.TrimRight(text, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ ")
	if !isNumber(number) {
		return 0, false
	}
	n, err := strconv.ParseUint(number, 10, 64)
	if err != nil || n > maxVRAMMiB {
		return 0, false
	}
	switch strings.ToLower(strings.TrimSpace(text[len(number):])) {
	case "", "g", "gb":
		n = nominal(n)
	case "gi", "gib":
		n *= 1024
	case "mi", "mib":
	default:
		return 0, false
	}
	return n, n > 0 && n <= maxVRAMMiB
}

// nominal returns the least memory in MiB of a card sold with gb gigabytes.
func nominal(gb uint64) uint64 { return gb * 1024 * nominalPercent / 100 }

// isNumber reports whether text is digits only.
func isNumber(text string) bool {
	return text != "" && strings.Trim(text, "0123456789") == ""
}

// isDeviceID reports whether text can name a device: an index, or a UUID of NVIDIA.
func isDeviceID(text string) bool {
	return isNumber(text) && len(text) <= 4 || validUUID(text)
}

// String is the selector in the form that ParseSelector reads back to the same selector.
func (s Selector) String() string {
	if s.Devices != nil {
		return "device=" + strings.Join(s.Devices, ",")
	}
	var parts []string
	count := strconv.FormatUint(uint64(s.Count), 10)
	if s.All {
		count = "all"
	}
	switch {
	case s.Model == "":
		parts = append(parts, count)
	case count == "1":
		parts = append(parts, s.Model)
	default:
		parts = append(parts, s.Model+":"+count)
	}
	if s.MinVRAMMiB > 0 {
		parts = append(parts, "vram>="+formatMemory(s.MinVRAMMiB))
	}
	if s.MinCapability != "" {
		parts = append(parts, "cap>="+s.MinCapability)
	}
	return strings.Join(parts, ",")
}

func formatMemory(mib uint64) string {
	if gb := (mib*100/nominalPercent + 1023) / 1024; nominal(gb) == mib {
		return strconv.FormatUint(gb, 10)
	}
	if mib%1024 == 0 {
		return strconv.FormatUint(mib/1024, 10) + "GiB"
	}
	return strconv.FormatUint(mib, 10) + "MiB"
}

// ForOrder returns the reason why the selector cannot be sent to the network, nil when it can. There, indices and UUIDs
// name nothing, because the provider is not known yet, and "all" has no end.
func (s Selector) ForOrder() error {
	switch {
	case s.Devices != nil:
		return fmt.Errorf("%w: device= names devices of one machine and an order goes to all providers; "+
			"use properties of devices, such as h100:2 or 2,vram>=24", ErrSelector)
	case s.All:
		return fmt.Errorf("%w: all: an order needs a number of devices, such as 2 or h100:8",
			ErrSelector)
	}
	return nil
}
