package exclusive

import (
	"encoding/binary"
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
)

// Bounds of a snapshot.
const (
	MaxDevices  = 32
	MaxText     = 96 // bytes of a text
	MaxSnapshot = 8 << 10
)

// When is the end of an execution at which a snapshot was taken.
type When uint8

// The two ends.
const (
	Before When = iota // the program has not begun
	After              // it has ended
)

// String is the end in a word.
func (w When) String() string {
	if w == After {
		return "after"
	}
	return "before"
}

// Snapshot is a provider's statement about the hardware of an execution. It is not a proof, but it is signed before a
// later fault can be known. Tag "starling:health", signed by the lease's provider and countersigned by its buyer, both
// over the layout, little-endian; text is u8 length ‖ UTF-8:
//
//	offset  size  field
//	     0     1  version = 1
//	     1     1  0 before the program begins, 1 after it has ended
//	     2     1  n, devices, at most 32
//	     3     5  reserved: 0
//	     8    32  lease id: the first of its line
//	    40     8  execution under the lease, from 1
//	    48     8  slot
//	    56     4  processors of the machine
//	    60     4  memory of the machine, MiB
//	    64        model of the processor: text
//	              n devices
//
// A device:
//
//	size  field
//	  32  unit id; units strictly ascending
//	      UUID: text
//	      model: text
//	      reasons why the clock is lower than it could be, joined by ", ": text
//	   2  the figures that the driver reports: bit 0 temperature, 1 clock, 2 ECC, 3 Xid; unreported ones are 0
//	   2  temperature, °C
//	   4  clock, MHz
//	   8  memory errors since the driver was loaded: correctable
//	   8  the same: uncorrectable
//	   8  Xid errors since the peer's helper began
//	   4  number of the last Xid
//	   4  number of the last Xid that is a fault of the device and not of a program; 0: none
type Snapshot struct {
	When      When           `json:"when"`
	Lease     market.LeaseID `json:"lease"`
	Execution uint64         `json:"execution"`
	At        market.Slot    `json:"at"`
	CPUs      uint32         `json:"cpus"`
	MemoryMiB uint32         `json:"memoryMiB"`
	CPUModel  string         `json:"cpuModel,omitempty"`
	Devices   []Device       `json:"devices,omitempty"`
}

// Device is one GPU, or slice of one, in a snapshot.
type Device struct {
	Unit     market.UnitID `json:"unit"`
	UUID     string        `json:"uuid"`
	Model    string        `json:"model"`
	Throttle string        `json:"throttle,omitempty"`
	Tells    Tells         `json:"tells"`

	TemperatureC  uint16 `json:"temperatureC,omitempty"`
	ClockMHz      uint32 `json:"clockMHz,omitempty"`
	Correctable   uint64 `json:"eccCorrectable,omitempty"`
	Uncorrectable uint64 `json:"eccUncorrectable,omitempty"`
	Xids          uint64 `json:"xids,omitempty"`
	LastXid       uint32 `json:"lastXid,omitempty"`
	FaultXid      uint32 `json:"faultXid,omitempty"`
}

// Tells is the set of a device's figures that its driver reports.
type Tells uint16

// The bits.
const (
	TellsTemperature Tells = 1 << iota
	TellsClock
	TellsECC
	TellsXid
	tellsAll = 1<<iota - 1
)

// Check refuses snapshots without a layout.
func (s Snapshot) Check() error {
	switch {
	case s.When > After:
		return malformed("snapshot", "taken at end %d", s.When)
	case s.Execution < 1:
		return malformed("snapshot", "of execution 0")
	case len(s.Devices) > MaxDevices:
		return malformed("snapshot", "%d devices, at most %d", len(s.Devices), MaxDevices)
	case !plain(s.CPUModel):
		return malformed("snapshot", "processor %.40q", s.CPUModel)
	}
	for i, d := range s.Devices {
		if i > 0 && string(s.Devices[i-1].Unit[:]) >= string(d.Unit[:]) {
			return malformed("snapshot", "units are not in order")
		}
		if err := d.check(); err != nil {
			return err
		}
	}
	if n := len(s.Marshal()); n > MaxSnapshot {
		return malformed("snapshot", "%d bytes, at most %d", n, MaxSnapshot)
	}
	return nil
}

func (d Device) check() error {
	none := func(t Tells, values ...uint64) bool {
		for _, v := range values {
			if d.Tells&t == 0 && v != 0 {
				return false
			}
		}
		return true
	}
	switch {
	case !plain(d.UUID) || !plain(d.Model) || !plain(d.Throttle) || d.UUID == "":
		return malformed("snapshot", "device %.40q", d.UUID)
	case d.Tells&^tellsAll != 0:
		return malformed("snapshot", "bits %#x", uint16(d.Tells))
	case !none(TellsTemperature, uint64(d.TemperatureC)) || !none(TellsClock, uint64(d.ClockMHz)) ||
		!none(TellsECC, d.Correctable, d.Uncorrectable) ||
		!none(TellsXid, d.Xids, uint64(d.LastXid), uint64(d.FaultXid)):
		return malformed("snapshot", "a figure that the driver does not report")
	}
	return nil
}

// plain is text without control characters.
func plain(s string) bool {
	return len(s) <= MaxText && utf8.ValidString(s) && strings.IndexFunc(s, func(r rune) bool {
		return r < ' ' || r == 0x7f
	}) < 0
}

// Marshal returns the layout of a snapshot that has passed Check.
func (s Snapshot) Marshal() []byte {
	le := binary.LittleEndian
	b := []byte{version, byte(s.When), byte(len(s.Devices)), 0, 0, 0, 0, 0}
	b = append(b, s.Lease[:]...)
	b = le.AppendUint64(b, s.Execution)
	b = le.AppendUint64(b, uint64(s.At))
	b = le.AppendUint32(b, s.CPUs)
	b = le.AppendUint32(b, s.MemoryMiB)
	b = appendText(b, s.CPUModel)
	for _, d := range s.Devices {
		b = append(b, d.Unit[:]...)
		b = appendText(appendText(appendText(b, d.UUID), d.Model), d.Throttle)
		b = le.AppendUint16(b, uint16(d.Tells))
		b = le.AppendUint16(b, d.TemperatureC)
		b = le.AppendUint32(b, d.ClockMHz)
		b = le.AppendUint64(b, d.Correctable)
		b = le.AppendUint64(b, d.Uncorrectable)
		b = le.AppendUint64(b, d.Xids)
		b = le.AppendUint32(b, d.LastXid)
		b = le.AppendUint32(b, d.FaultXid)
	}
	return b
}

func appendText(b []byte, s string) []byte { return append(append(b, byte(len(s))), s...) }

const (
	snapshotHead = 64
	deviceTail   = 2 + 2 + 4 + 3*8 + 2*4
)

// UnmarshalSnapshot decodes the layout without trailing bytes, and checks it.
func UnmarshalSnapshot(b []byte) (Snapshot, error) {
	if len(b) <= snapshotHead || len(b) > MaxSnapshot || b[0] != version || !zero(b[3:8]) || b[2] > MaxDevices {
		return Snapshot{}, malformed("snapshot", "%d bytes, or unknown version or reserved bytes", len(b))
	}
	le := binary.LittleEndian
	s := Snapshot{When: When(b[1]), Lease: market.LeaseID(b[8:40]), Execution: le.Uint64(b[40:]),
		At: market.Slot(le.Uint64(b[48:])), CPUs: le.Uint32(b[56:]), MemoryMiB: le.Uint32(b[60:])}
	n := int(b[2])
	r := &texts{rest: b[snapshotHead:]}
	s.CPUModel = r.text()
	for range n {
		d := Device{Unit: market.UnitID(r.bytes(len(market.UnitID{})))}
		d.UUID, d.Model, d.Throttle = r.text(), r.text(), r.text()
		tail := r.bytes(deviceTail)
		d.Tells, d.TemperatureC, d.ClockMHz = Tells(le.Uint16(tail)), le.Uint16(tail[2:]), le.Uint32(tail[4:])
		d.Correctable, d.Uncorrectable, d.Xids = le.Uint64(tail[8:]), le.Uint64(tail[16:]), le.Uint64(tail[24:])
		d.LastXid, d.FaultXid = le.Uint32(tail[32:]), le.Uint32(tail[36:])
		s.Devices = append(s.Devices, d)
	}
	if r.short || len(r.rest) != 0 {
		return Snapshot{}, malformed("snapshot", "truncated, or data after the end")
	}
	return s, s.Check()
}

// texts reads the fields without a fixed place. Missing ones read as zeros and set short.
type texts struct {
	rest  []byte
	short bool
}

func (t *texts) bytes(n int) []byte {
	if n > len(t.rest) {
		t.short, t.rest = true, nil
		return make([]byte, n)
	}
	b := t.rest[:n]
	t.rest = t.rest[n:]
	return b
}

func (t *texts) text() string { return string(t.bytes(int(t.bytes(1)[0]))) }

// Sign signs the snapshot, as the lease's provider or its buyer.
func (s Snapshot) Sign(d sign.Domain, by sign.Signer) (sign.Signature, error) {
	return by.Sign(d.Preimage(sign.TagHealth, s.Marshal()))
}

// Verify checks the signature of either.
func (s Snapshot) Verify(d sign.Domain, by sign.Key, sig sign.Signature) error {
	return sign.Verify(by, d.Preimage(sign.TagHealth, s.Marshal()), sig)
}

// Change is a difference between the snapshots before and after an execution.
type Change struct {
	Unit market.UnitID `json:"unit,omitzero"` // zero: the machine
	Text string        `json:"text"`
	// Fault means that the device broke, and not a program on it: the leased hardware failed.
	Fault bool `json:"fault,omitempty"`
}

// Changes compares the two snapshots of an execution, in the order of the units.
func Changes(before, after Snapshot) []Change {
	var out []Change
	add := func(u market.UnitID, fault bool, format string, args ...any) {
		out = append(out, Change{u, fmt.Sprintf(format, args...), fault})
	}
	if before.CPUModel != after.CPUModel || before.CPUs != after.CPUs || before.MemoryMiB != after.MemoryMiB {
		add(market.UnitID{}, false, "the machine had %d × %s with %d MiB, and has %d × %s with %d MiB",
			before.CPUs, before.CPUModel, before.MemoryMiB, after.CPUs, after.CPUModel, after.MemoryMiB)
	}
	now := map[market.UnitID]Device{}
	for _, d := range after.Devices {
		now[d.Unit] = d
	}
	was := map[market.UnitID]bool{}
	for _, b := range before.Devices {
		was[b.Unit] = true
		a, there := now[b.Unit]
		if !there {
			add(b.Unit, true, "%s is gone", b.Model)
			continue
		}
		if a.UUID != b.UUID || a.Model != b.Model {
			add(b.Unit, false, "was %s %s, is %s %s", b.Model, b.UUID, a.Model, a.UUID)
		}
		b.compare(a, add)
	}
	for _, a := range after.Devices {
		if !was[a.Unit] {
			add(a.Unit, false, "%s was not present before", a.Model)
		}
	}
	return out
}

// compare adds the findings from the counters of one device.
func (d Device) compare(after Device, add func(u market.UnitID, fault bool, format string, args ...any)) {
	if d.Tells&after.Tells&TellsECC != 0 {
		switch {
		case after.Uncorrectable < d.Uncorrectable || after.Correctable < d.Correctable:
			add(d.Unit, false, "memory error counters reset: driver reloaded")
		default:
			if n := after.Uncorrectable - d.Uncorrectable; n > 0 {
				add(d.Unit, true, "%d uncorrectable memory errors", n)
			}
			if n := after.Correctable - d.Correctable; n > 0 {
				add(d.Unit, false, "%d correctable memory errors", n)
			}
		}
	}
	if d.Tells&after.Tells&TellsXid != 0 {
		switch n := after.Xids - d.Xids; {
		case after.Xids < d.Xids:
			add(d.Unit, false, "Xid error counters reset: peer restarted")
		case n > 0 && after.FaultXid != 0 && (after.LastXid == after.FaultXid || d.FaultXid != after.FaultXid):
			add(d.Unit, true, "%d Xid errors, of which %d is a fault of the device", n, after.FaultXid)
		case n > 0:
			add(d.Unit, false, "%d Xid errors, the last %d", n, after.LastXid)
		}
	}
	if gone := d.Tells &^ after.Tells; gone&(TellsECC|TellsXid) != 0 {
		add(d.Unit, false, "driver no longer reports errors")
	}
}
