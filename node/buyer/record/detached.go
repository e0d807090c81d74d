package record

import (
	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
)

// Detached is the part of a job that its guardians need. It is journalled with the job and sent to them.
type Detached struct {
	Owner     sign.Key   `json:"owner"`         // the peer that submitted it, whose escrow pays
	Key       sign.Key   `json:"key"`           // signs its orders and leases
	Terms     sign.Hash  `json:"terms"`         // its name in leases and for its guardians
	Box       []byte     `json:"box,omitempty"` // the secret of Key, sealed to this peer
	Guardians []Guardian `json:"guardians,omitempty"`
	Engaged   bool       `json:"engaged,omitempty"` // all of them have it
	Epoch     uint64     `json:"epoch,omitempty"`   // the latest known epoch of its supervision
	Grant     []byte     `json:"grant,omitempty"`   // proof of that; empty: the first
	Escrow    *Place     `json:"escrow,omitempty"`
	Standbys  []Standby  `json:"standbys,omitempty"`
	// Wages has the place of each guardian's wage (escrow.Funding), by guardian.
	Wages map[string][]byte `json:"wages,omitempty"`
	// Held is set once the guardians have all leases: the owner may leave.
	Held bool `json:"held,omitempty"`
}

// Standby is a provider that may be hired for a rank that was lost.
type Standby struct {
	Quote  market.Quote  `json:"quote"` // of the job's first order
	Addrs  []string      `json:"addrs,omitempty"`
	Budget market.Amount `json:"budget"` // for all that it is hired for
}

// Clone returns a deep copy of d, or nil.
func (d *Detached) Clone() *Detached {
	if d == nil {
		return nil
	}
	out := *d
	return &out // the value is replaced, never changed
}

// Guardian is a peer that guards a job.
type Guardian struct {
	Key   sign.Key          `json:"key"`
	Addrs []string          `json:"addrs"`
	Wage  *market.LeaseCore `json:"wage,omitempty"` // between the job's key and the guardian; nil: nothing
}
