package market

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"slices"
	"strings"

	"github.com/starling-network/starling/market/merkle"
	"github.com/starling-network/starling/market/sign"
)

// UnitID identifies one unit of one provider permanently. Proofs of a double sale compare it.
type UnitID sign.Hash

// NewUnitID is the id of a unit on a card (Card.Unit) with this serial: the GPU's UUID or the machine id, at most 128
// bytes; index counts the slices of one serial.
func NewUnitID(provider sign.Key, class Class, serial string, index uint32) UnitID {
	return Card{Class: class, Tag: TagOf(serial), Index: index}.Unit(provider)
}

// String returns the hexadecimal form.
func (u UnitID) String() string { return sign.Hash(u).String() }

// Short returns the first eight hexadecimal digits.
func (u UnitID) Short() string { return sign.Hash(u).Short() }

// MarshalText returns the hexadecimal form.
func (u UnitID) MarshalText() ([]byte, error) { return sign.Hash(u).MarshalText() }

// UnmarshalText reads the hexadecimal form.
func (u *UnitID) UnmarshalText(text []byte) error { return (*sign.Hash)(u).UnmarshalText(text) }

// Compare orders unit ids as bytes.
func (u UnitID) Compare(v UnitID) int { return bytes.Compare(u[:], v[:]) }

// Class is a kind of unit that trades together: "cpu", "gpu/h200". 1 to 32 of a-z, 0-9, '-', '/'.
type Class string

// Disk is the class of storage, which is sold to orders of runtime Volume alone. No audit proves such units.
const Disk Class = "disk"

const (
	// Volume is the runtime of executions that are directories.
	Volume = "volume"
	// DiskUnitMiB is the room of one unit of disk.
	DiskUnitMiB = 10 << 10
)

// Check reports whether the class is well formed.
func (c Class) Check() error {
	if !word(string(c), 32, func(b byte) bool { return isName(b) || b == '/' }) {
		return malformed("class", "%.40q, want 1 to 32 of a-z, 0-9, '-', '/'", string(c))
	}
	return nil
}

// Family is the part before the first '/': "gpu" of "gpu/h200". It is the class itself when there is none.
func (c Class) Family() Class {
	family, _, _ := strings.Cut(string(c), "/")
	return Class(family)
}

// Accepts reports whether units of the offered class fit an order for c: the same class, or any member of the family if
// c is a family name.
func (c Class) Accepts(offered Class) bool { return c == offered || c == offered.Family() }

// Capability is a GPU's compute capability as major·10 + minor: 90 is 9.0. 0 means not known or none.
type Capability uint32

// MaxCapability bounds a capability: 99.9.
const MaxCapability Capability = 999

// String returns "9.0", or "unknown".
func (c Capability) String() string {
	if c == 0 {
		return "unknown"
	}
	return fmt.Sprintf("%d.%d", c/10, c%10)
}

// MaxModel bounds the name of a model, bytes.
const MaxModel = 64

// CleanModel makes a model's name fit an offer: printable ASCII, at most MaxModel bytes.
func CleanModel(name string) string {
	clean := strings.Map(func(r rune) rune {
		if r < ' ' || r > '~' {
			return -1
		}
		return r
	}, name)
	return strings.TrimSpace(clean[:min(len(clean), MaxModel)])
}

// checkHardware checks the fields of offers and quotes about units, other than resources.
func checkHardware(what, model string, c Capability) error {
	if model != "" && !word(model, MaxModel, func(b byte) bool { return b >= ' ' && b <= '~' }) {
		return malformed(what+" model", "%.70q, want at most %d printable characters", model, MaxModel)
	}
	if c > MaxCapability {
		return malformed(what+" capability", "%d, want at most %d", uint32(c), MaxCapability)
	}
	return nil
}

// hardware names a model for a person: "NVIDIA H200 (simulated)", or "a unit".
func hardware(model string, simulated bool) string {
	if model == "" {
		model = "a unit"
	}
	if simulated {
		model += " (simulated)"
	}
	return model
}

// Region is a place in coarse words: "local", "eu-west". 1 to 32 of a-z, 0-9, '-'.
type Region string

// Check reports whether the region is well formed.
func (r Region) Check() error {
	if !word(string(r), 32, isName) {
		return malformed("region", "%.40q, want 1 to 32 of a-z, 0-9, '-'", string(r))
	}
	return nil
}

func isName(c byte) bool { return c >= 'a' && c <= 'z' || c >= '0' && c <= '9' || c == '-' }

// Resources is the capacity of one unit.
type Resources struct {
	MilliCPU  uint32 `json:"milli_cpu,omitempty"`
	MemoryMiB uint32 `json:"memory_mib,omitempty"`
	DiskMiB   uint32 `json:"disk_mib,omitempty"`
	VRAMMiB   uint32 `json:"vram_mib,omitempty"`
}

// Covers reports whether r has at least the resources of min.
func (r Resources) Covers(min Resources) bool {
	return r.MilliCPU >= min.MilliCPU && r.MemoryMiB >= min.MemoryMiB && r.DiskMiB >= min.DiskMiB &&
		r.VRAMMiB >= min.VRAMMiB
}

// Shortfall names the first resource of which r has less than min asks, as "memory 512 MiB, asked 1024 MiB"; "" if
// none.
func (r Resources) Shortfall(min Resources) string {
	switch {
	case r.MilliCPU < min.MilliCPU:
		return fmt.Sprintf("%d milli-CPU, asked %d", r.MilliCPU, min.MilliCPU)
	case r.MemoryMiB < min.MemoryMiB:
		return fmt.Sprintf("memory %d MiB, asked %d MiB", r.MemoryMiB, min.MemoryMiB)
	case r.DiskMiB < min.DiskMiB:
		return fmt.Sprintf("disk %d MiB, asked %d MiB", r.DiskMiB, min.DiskMiB)
	case r.VRAMMiB < min.VRAMMiB:
		return fmt.Sprintf("GPU memory %d MiB, asked %d MiB", r.VRAMMiB, min.VRAMMiB)
	}
	return ""
}

// Unit is one piece of a provider's inventory.
type Unit struct {
	ID     UnitID `json:"id"`
	Class  Class  `json:"class"`
	Model  string `json:"model"`  // "NVIDIA H200", a CPU's model name
	Serial string `json:"serial"` // GPU UUID or machine id
	Index  uint32 `json:"index"`  // slice of that serial

	Capability Capability `json:"capability,omitempty"`
	Simulated  bool       `json:"simulated,omitempty"` // not hardware; only on simulated networks
	Resources
}

// NewUnit names and describes a unit of provider. ErrMalformed for a bad class or a serial not of 1 to 128 bytes.
func NewUnit(provider sign.Key, class Class, model, serial string, index uint32, r Resources) (Unit, error) {
	if err := class.Check(); err != nil {
		return Unit{}, err
	}
	if len(serial) < 1 || len(serial) > maxSerial {
		return Unit{}, malformed("unit serial", "%d bytes, want 1 to %d", len(serial), maxSerial)
	}
	return Unit{ID: NewUnitID(provider, class, serial, index), Class: class, Model: model, Serial: serial, Index: index,
		Resources: r}, nil
}

// Card is the opening of the unit's id.
func (u Unit) Card() Card { return Card{Class: u.Class, Tag: TagOf(u.Serial), Index: u.Index} }

const maxSerial = 128

// SortUnits returns the ids in ascending order. ErrUnits if there is none, more than MaxUnitsPerLease, or one twice.
func SortUnits(ids []UnitID) ([]UnitID, error) {
	if len(ids) == 0 || len(ids) > MaxUnitsPerLease {
		return nil, fmt.Errorf("%w: %d units, want 1 to %d", ErrUnits, len(ids), MaxUnitsPerLease)
	}
	sorted := slices.Clone(ids)
	slices.SortFunc(sorted, UnitID.Compare)
	for i := 1; i < len(sorted); i++ {
		if sorted[i] == sorted[i-1] {
			return nil, fmt.Errorf("%w: unit %s is listed twice", ErrUnits, sorted[i].Short())
		}
	}
	return sorted, nil
}

func unitLeaves(ids []UnitID) [][]byte {
	sorted := slices.Clone(ids)
	slices.SortFunc(sorted, UnitID.Compare)
	leaves := make([][]byte, len(sorted))
	for i := range sorted {
		leaves[i] = sorted[i][:]
	}
	return leaves
}

// UnitsRoot is the Merkle root (market/merkle) over the ids in ascending order, whatever order they come in.
// Lists that break SortUnits have a root too; check them first.
func UnitsRoot(ids []UnitID) sign.Hash { return merkle.Root(unitLeaves(ids)) }

// UnitProof proves that a unit is one of a lease's units, given only the lease core:
//
//	offset  size  field
//	     0     2  index of the unit among the sorted ids
//	     2     2  number of units
//	     4     n  merkle proof: count u8 ‖ count × sibling[32]
type UnitProof struct {
	Index uint16
	Units uint16
	Path  merkle.Proof
}

// ProveUnit builds the proof for one of ids. ErrUnits if it is not among them or SortUnits refuses them.
func ProveUnit(ids []UnitID, id UnitID) (UnitProof, error) {
	sorted, err := SortUnits(ids)
	if err != nil {
		return UnitProof{}, err
	}
	i, found := slices.BinarySearchFunc(sorted, id, UnitID.Compare)
	if !found {
		return UnitProof{}, fmt.Errorf("%w: unit %s is not among them", ErrUnits, id.Short())
	}
	path, err := merkle.New(unitLeaves(sorted)).Prove(i)
	if err != nil {
		return UnitProof{}, fmt.Errorf("%w: %w", ErrUnits, err)
	}
	return UnitProof{Index: uint16(i), Units: uint16(len(sorted)), Path: path}, nil
}

// Verify checks that id is under root, in a list of exactly p.Units units.
func (p UnitProof) Verify(root sign.Hash, id UnitID) error {
	if err := p.Path.Verify(root, id[:], int(p.Index), int(p.Units)); err != nil {
		return fmt.Errorf("%w: unit %s: %w", ErrUnits, id.Short(), err)
	}
	return nil
}

// Marshal returns the layout above.
func (p UnitProof) Marshal() []byte {
	out := binary.LittleEndian.AppendUint16(nil, p.Index)
	out = binary.LittleEndian.AppendUint16(out, p.Units)
	return append(out, p.Path.Marshal()...)
}

// UnmarshalUnitProof reads the layout above and nothing after it.
func UnmarshalUnitProof(b []byte) (UnitProof, error) {
	if len(b) < 5 {
		return UnitProof{}, malformed("unit proof", "%d bytes", len(b))
	}
	path, err := merkle.UnmarshalProof(b[4:])
	if err != nil {
		return UnitProof{}, fmt.Errorf("%w: unit proof: %w", ErrMalformed, err)
	}
	return UnitProof{Index: binary.LittleEndian.Uint16(b), Units: binary.LittleEndian.Uint16(b[2:]), Path: path}, nil
}
