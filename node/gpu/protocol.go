package gpu

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/starling-network/starling/node/child"
)

// HelperVersion is the version of the messages between peer and helper. Both are built from one tree; another number
// means that one of the two binaries is old.
const HelperVersion = 1

// Bounds of the lines between peer and helper.
const (
	maxRequest = 64 << 10
	maxReply   = 1 << 20
)

// A peer's requests to its helper.
const (
	opInventory = "inventory"
	opHealth    = "health"
)

// Kinds of failure that the helper itself reports.
const (
	failNoLibrary = "no-library" // libnvidia-ml.so.1 is not there
	failNVML      = "nvml"       // it is, and does not work
	failRequest   = "request"    // invalid request of the peer, or an outdated helper
)

// request is one line to the helper.
type request struct {
	Version int      `json:"version"`
	ID      uint64   `json:"id"`
	Op      string   `json:"op"`
	UUIDs   []string `json:"uuids,omitempty"`
}

// reply is one line from the helper.
type reply struct {
	Version   int               `json:"version"`
	ID        uint64            `json:"id"`
	Error     *replyError       `json:"error,omitempty"`
	Inventory *Inventory        `json:"inventory,omitempty"`
	Health    map[string]Health `json:"health,omitempty"`
}

type replyError struct {
	Kind string `json:"kind"`
	Text string `json:"text"`
}

// readLine reads a line of at most most bytes, without its end. It returns io.EOF if there is no further line.
func readLine(r *bufio.Reader, most int) ([]byte, error) {
	var line []byte
	for {
		part, err := r.ReadSlice('\n')
		if len(line)+len(part) > most {
			return nil, fmt.Errorf("a line of more than %d bytes", most)
		}
		line = append(line, part...)
		switch {
		case err == nil:
			return line[:len(line)-1], nil
		case errors.Is(err, bufio.ErrBufferFull):
		case errors.Is(err, io.EOF) && len(line) > 0:
			return nil, io.ErrUnexpectedEOF
		default:
			return nil, err
		}
	}
}

func decodeRequest(line []byte) (request, error) {
	var q request
	if err := json.Unmarshal(line, &q); err != nil {
		return request{}, err
	}
	switch {
	case q.Version != HelperVersion:
		return q, fmt.Errorf("the peer speaks version %d and starling-nvml version %d: "+
			"build both from one tree, with make build", q.Version, HelperVersion)
	case q.Op != opInventory && q.Op != opHealth:
		return q, fmt.Errorf("unknown operation %.40q", q.Op)
	case len(q.UUIDs) > MaxDevices || slices.ContainsFunc(q.UUIDs, func(u string) bool { return !printable(u) }):
		return q, errors.New("not a list of devices")
	}
	return q, nil
}

// decodeReply decodes the helper's reply and checks its bounds. It ignores fields that a driver does not decide: the
// peer decides whether a device is refused or simulated, and its vendor.
func decodeReply(line []byte) (reply, error) {
	var p reply
	if err := json.Unmarshal(line, &p); err != nil {
		return reply{}, fmt.Errorf("not a reply: %w", err)
	}
	if p.Version != HelperVersion {
		return reply{}, fmt.Errorf("protocol version: got %d, want %d: "+
			"build both from one tree, with make build", p.Version, HelperVersion)
	}
	if p.Error != nil {
		failure := &replyError{Kind: child.Tidy(p.Error.Kind, maxText), Text: child.Tidy(p.Error.Text, maxProblem)}
		return reply{Version: p.Version, ID: p.ID, Error: failure}, nil
	}
	if p.Inventory != nil {
		if err := checkInventory(p.Inventory); err != nil {
			return reply{}, err
		}
	}
	if len(p.Health) > MaxDevices {
		return reply{}, fmt.Errorf("the health of %d devices, at most %d are read", len(p.Health), MaxDevices)
	}
	for uuid, h := range p.Health {
		if !printable(uuid) {
			return reply{}, errors.New("health under a name that is no UUID")
		}
		if err := checkHealth(h); err != nil {
			return reply{}, err
		}
	}
	return p, nil
}

// checkInventory checks the bounds of a helper's inventory and removes the fields that the peer decides.
func checkInventory(inv *Inventory) error {
	if len(inv.Devices) > MaxDevices {
		return fmt.Errorf("%d devices, at most %d are read", len(inv.Devices), MaxDevices)
	}
	if !printable(inv.Driver) || !printable(inv.Source) {
		return errors.New("a driver's version that does not print")
	}
	if len(inv.Problems) > maxProblems {
		return fmt.Errorf("%d problems, at most %d are read", len(inv.Problems), maxProblems)
	}
	for i := range inv.Problems {
		inv.Problems[i] = child.Tidy(inv.Problems[i], maxProblem)
	}
	for i := range inv.Devices {
		d := &inv.Devices[i]
		texts := []string{d.UUID, d.Model, d.Capability, d.Architecture, d.Driver, d.CUDA, d.PCI, d.ComputeMode}
		if d.MIG != nil {
			texts = append(texts, d.MIG.Parent, d.MIG.Profile)
		}
		if slices.ContainsFunc(texts, func(s string) bool { return !printable(s) }) {
			return fmt.Errorf("device %d: a text that does not print, or longer than %d", i, maxText)
		}
		if d.Index < 0 || d.Index >= MaxDevices {
			return fmt.Errorf("device %d: index %d", i, d.Index)
		}
		if err := checkHealth(d.Health); err != nil {
			return fmt.Errorf("device %d: %w", i, err)
		}
		d.Vendor, d.Refused, d.Simulated = NVIDIA, "", false
		d.PCI = normalPCI(d.PCI)
	}
	return nil
}

func checkHealth(h Health) error {
	if len(h.Throttle) > 16 || slices.ContainsFunc(h.Throttle, func(s string) bool { return !printable(s) }) {
		return errors.New("reasons of throttling that do not print")
	}
	return nil
}
