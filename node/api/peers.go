package api

import "time"

// MaxPings is how many round trips one request measures at most.
const MaxPings = 100

// ConnInfo is one connection to a peer.
type ConnInfo struct {
	Path      string    `json:"path"`          // direct, punched (direct through NATs) or relayed
	Via       string    `json:"via,omitempty"` // peer id of the relay
	Addr      string    `json:"addr"`
	Direction string    `json:"direction"` // in or out
	Limited   bool      `json:"limited,omitempty"`
	Opened    time.Time `json:"opened,omitzero"`
}

// Reach is this peer's estimate of its reachability.
type Reach struct {
	State   string      `json:"state"` // public, relayed, private, unknown or local
	Text    string      `json:"text"`  // a sentence
	Addrs   []ReachAddr `json:"addrs"`
	Relays  []string    `json:"relays,omitempty"`         // peer ids of the relays that have a place for it
	Serving *Serving    `json:"serving,omitempty"`        // its work as a relay
	Private bool        `json:"privateNetwork,omitempty"` // it has a pre-shared key
}

// ReachAddr is one address of this peer.
type ReachAddr struct {
	Addr   string `json:"addr"`
	Class  string `json:"class"` // public, private, loopback or relayed
	State  string `json:"state"` // public, private, unknown, local or relayed
	Mapped bool   `json:"mapped,omitempty"`
}

// Serving is the work of a relay.
type Serving struct {
	Circuits int    `json:"circuits"` // open now
	Opened   uint64 `json:"opened"`
	Refused  uint64 `json:"refused"`
	Bytes    uint64 `json:"bytes"` // carried by circuits that have ended
}

// PingRequest requests the connection to a peer: a full multiaddr, a peer id or a key.
type PingRequest struct {
	Peer  string `json:"peer"`
	Count int    `json:"count"` // 1 to MaxPings
}

// PingResult is the connection to a peer, or the reason for its absence.
type PingResult struct {
	Peer    string    `json:"peer"`
	Conn    ConnInfo  `json:"conn,omitzero"`
	RTTs    []float64 `json:"rttMillis,omitempty"`
	Problem *Problem  `json:"problem,omitempty"`
}

// Problem is why a peer cannot be talked to.
type Problem struct {
	Reason string    `json:"reason"` // one stable word: offline, blocked, behind-nat, …
	Text   string    `json:"text"`
	Advice string    `json:"advice"`
	Seen   time.Time `json:"lastSeen,omitzero"`
	Detail string    `json:"detail,omitempty"` // the answer of each address
}
