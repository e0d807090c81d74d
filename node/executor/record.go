package executor

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"

	"github.com/libp2p/go-libp2p/core/peer"
	"google.golang.org/protobuf/encoding/protojson"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/node/journal"
	"github.com/starling-network/starling/node/runtime"
)

// Key names an execution: the first lease of its line, and its number under it.
type Key struct {
	Lease market.LeaseID
	Seq   uint64
}

// MarshalText returns the key as text that sorts by lease and number.
func (k Key) MarshalText() ([]byte, error) { return fmt.Appendf(nil, "%s/%020d", k.Lease, k.Seq), nil }

// UnmarshalText parses the form of MarshalText.
func (k *Key) UnmarshalText(text []byte) error {
	lease, seq, ok := strings.Cut(string(text), "/")
	if !ok {
		return fmt.Errorf("execution %.100q: want a lease and a number", text)
	}
	if err := k.Lease.UnmarshalText([]byte(lease)); err != nil {
		return fmt.Errorf("execution %.100q: %w", text, err)
	}
	n, err := strconv.ParseUint(seq, 10, 64)
	if err != nil {
		return fmt.Errorf("execution %.100q: %w", text, err)
	}
	k.Seq = n
	return nil
}

// table has the executions that are not forgotten.
var table = journal.Define[Key, record]("execution")

// record is the journal's record of an execution.
type record struct {
	Buyer    peer.ID                    `json:"buyer"`              // the peer that commands it
	Job      sign.Hash                  `json:"job,omitzero"`       // hash of its job's terms
	Guardian sign.Hash                  `json:"guardians,omitzero"` // key set that may give the command to another peer
	Epoch    uint64                     `json:"epoch,omitempty"`    // supervision epoch under which Buyer commands
	User     uint32                     `json:"user"`               // of its program: the lease's own
	Units    []market.UnitID            `json:"unit_ids,omitempty"`
	Limits   runtime.Limits             `json:"limits"`
	Attempt  int                        `json:"attempt"`          // number of the start; each has its own directory
	Handle   json.RawMessage            `json:"handle,omitempty"` // set once the runtime has it
	Workload json.RawMessage            `json:"workload"`         // nodepb.Workload, with sealed secrets
	State    json.RawMessage            `json:"state"`            // nodepb.Execution
	Notes    map[string]json.RawMessage `json:"notes,omitempty"`  // of hooks, by their names
}

// encodeLocked returns the record of e as it stands. e.mu is held.
func (e *Execution) encodeLocked() (record, error) {
	rec := e.rec
	var err error
	if rec.State, err = protojson.Marshal(e.state); err != nil {
		return rec, fmt.Errorf("encoding the state of an execution: %w", err)
	}
	if e.handle != nil {
		if rec.Handle, err = e.handle.Marshal(); err != nil {
			return rec, fmt.Errorf("encoding the handle of an execution: %w", err)
		}
	}
	rec.Notes = make(map[string]json.RawMessage, len(e.rec.Notes))
	for name, note := range e.rec.Notes {
		rec.Notes[name] = note
	}
	return rec, nil
}
