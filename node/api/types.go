package api

import (
	"time"

	"github.com/starling-network/starling/chain"
	"github.com/starling-network/starling/chain/svm"
	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/node/api/route"
	"github.com/starling-network/starling/node/reputation"
)

// CodePayment is the code of errors that have to do with funds or with the chain.
const CodePayment = "payment"

// CodeUnreachable is the code of errors of a provider, or a stream to one, that cannot be reached or broke off.
const CodeUnreachable = "unreachable"

// CodeNeeded is the code of a removal of something that is still needed.
const CodeNeeded = "needed"

// CodeNoCopies is the code of a request for copies of a job without any.
const CodeNoCopies = "no_copies"

// CodeNoImage is the code of the refusal of a job whose image is not found under its name, CodeImageAuth of one whose
// image its registry does not give to the job's credentials.
const (
	CodeNoImage   = "no_image"
	CodeImageAuth = "image_credentials"
)

// CodeFull is the code of requests for which the peer's disk has no room, CodePeer of those in which its journal
// failed.
const (
	CodeFull = "full"
	CodePeer = "peer"
)

// Error is an answer without success.
type Error = route.Error

// EntriesService is the name of a light peer's service that connects it to its entry peers.
const EntriesService = "entries"

// NodeInfo is this peer as its user sees it.
type NodeInfo struct {
	Peer      string         `json:"peer"` // libp2p peer id
	Key       sign.Key       `json:"key"`  // the same key as a Solana address
	Owner     sign.Key       `json:"owner"`
	Version   string         `json:"version"`
	Addrs     []string       `json:"addrs"` // full multiaddrs, to be given to others as bootstrap
	Genesis   market.Genesis `json:"genesis"`
	Region    string         `json:"region"`
	Program   *svm.Deployed  `json:"program,omitempty"` // as the chain shows it; nil if not read yet
	Slot      market.Slot    `json:"slot"`
	ChainUp   bool           `json:"chainUp"`
	ChainErr  string         `json:"chainErr,omitempty"`
	Balance   market.Amount  `json:"balance"`         // of the owner
	Funds     *chain.Funds   `json:"funds,omitempty"` // tokens and SOL of the peer's key; nil if not known
	Reach     Reach          `json:"reach"`
	Peers     int            `json:"peers"`
	Units     int            `json:"units"`
	FreeUnits int            `json:"freeUnits"`
	Inventory sign.Hash      `json:"inventory,omitzero"` // Merkle root over the ids of the units
	Earnings  *Earnings      `json:"earnings,omitempty"` // from escrows; nil if nothing is sold or guarded
	Jobs      int            `json:"jobs"`               // not ended
	Entries   []string       `json:"entries,omitempty"`  // of a light client, the one in use first
	Direct    bool           `json:"direct,omitempty"`   // of a light client that dials providers too
	Started   time.Time      `json:"started"`
	Problems  []Fault        `json:"problems"` // of its services; none if all are in order
}

// Health is the health of this peer: its services that run and are out of order.
type Health struct {
	Healthy  bool    `json:"healthy"`
	Problems []Fault `json:"problems"`
}

// RemovedJob is the room that the removal of a job made, in bytes. Outputs that another job needs stay.
type RemovedJob struct {
	LogBytes    int64 `json:"logBytes"`
	OutputBytes int64 `json:"outputBytes"`
}

// Fault is a problem of a service, with its remedy.
type Fault struct {
	Service string `json:"service"`
	Problem string `json:"problem"`
	Remedy  string `json:"remedy"`
}

// String returns problem and remedy in one line.
func (f Fault) String() string { return f.Service + ": " + f.Problem + "; " + f.Remedy }

// StoredBlob is a file that this peer stores.
type StoredBlob struct {
	CID     string    `json:"cid"`
	Size    int64     `json:"size"`
	Used    time.Time `json:"used"`    // the last time
	Holders []string  `json:"holders"` // who brought it: "peer ID", "key NAME", or "url" and a digest; none: this peer
	Needed  []string  `json:"needed"`  // what needs it: "job", "lease", "guarded job"
}

// PeerInfo is a peer that this one is connected to.
type PeerInfo struct {
	Peer  string     `json:"peer"`
	Key   sign.Key   `json:"key"`
	Conns []ConnInfo `json:"conns"`     // the connection for new streams first
	RTT   float64    `json:"rttMillis"` // 0: not measured
	Agent string     `json:"agent,omitempty"`

	Reputation Reputation `json:"reputation"`
}

// Reputation is this peer's opinion of another one in both roles.
type Reputation struct {
	Provider Rating `json:"provider"`
	Buyer    Rating `json:"buyer"`
}

// Rating is a score in short.
type Rating struct {
	Score    uint32 `json:"score"`              // millionths
	Newcomer bool   `json:"newcomer,omitempty"` // too little is known to judge by
	Shunned  bool   `json:"shunned,omitempty"`  // more speaks against it than for it
}

// PeerReputation is this peer's opinion of another one, term by term.
type PeerReputation struct {
	Peer string   `json:"peer"`
	Key  sign.Key `json:"key"`
	reputation.Opinion
}

// OfferInfo is an offer with this peer's knowledge of it.
type OfferInfo struct {
	Provider sign.Key         `json:"provider"`
	Class    string           `json:"class"`
	Region   string           `json:"region"`
	Free     uint32           `json:"free"`
	Total    uint32           `json:"total"`
	PerUnit  market.Resources `json:"perUnit"`
	Price    market.Price     `json:"price"`
	Runtimes []string         `json:"runtimes"`
	// Egress is the networks that containers reach, Images which of them run. Ready names images that need no download
	// there, by the first eight bytes of their digests.
	Egress  market.Egress      `json:"egress,omitempty"`
	Images  market.ImagePolicy `json:"images,omitzero"`
	Ready   market.ReadyImages `json:"ready,omitempty"`
	Expires time.Time          `json:"expires"`
	Model   string             `json:"model,omitempty"`

	Capability market.Capability `json:"capability,omitempty"`
	Simulated  bool              `json:"simulated,omitempty"` // the units are not hardware

	// Proven is the number of free units with a fresh audit record, as the offer states. Checked is the number that
	// this peer has verified, and Doubt the reason if it is lower. Operations and Reads are the lowest rates of these
	// units, per second. All are empty on a network without audits.
	Proven     uint32 `json:"proven,omitempty"`
	Checked    uint32 `json:"checked,omitempty"`
	Doubt      string `json:"doubt,omitempty"`
	Operations uint64 `json:"operationsPerSecond,omitempty"`
	Reads      uint64 `json:"readsPerSecond,omitempty"`

	Answered bool    `json:"answered"` // a probe was answered within the last two minutes
	RTT      float64 `json:"rttMillis,omitempty"`
}

// Earnings are the sums over all leases that were sold and all jobs that were guarded and paid from escrows,
// before the network's fee. Base units.
type Earnings struct {
	Earned    market.Amount `json:"earned"` // by the best vouchers
	Claimed   market.Amount `json:"claimed"`
	Unclaimed market.Amount `json:"unclaimed"` // it will be
	Lost      market.Amount `json:"lost"`
	Wages     market.Amount `json:"wages,omitempty"` // of the claimed sum, for guarding
}

// LeasePast is the state of a SoldLease that ended earlier: only its money is still known.
const LeasePast = "past"

// SoldLease is a lease that this peer sold.
type SoldLease struct {
	Lease     market.LeaseID `json:"lease,omitzero"`
	Hold      string         `json:"hold"`
	Buyer     sign.Key       `json:"buyer"`
	State     string         `json:"state"`
	Units     int            `json:"units"`
	Class     market.Class   `json:"class"`
	Model     string         `json:"model,omitempty"`
	Simulated bool           `json:"simulated,omitempty"` // the units are not hardware
	Rank      uint32         `json:"rank"`
	Receipts  uint64         `json:"receipts"`
	Earned    market.Amount  `json:"earned"`             // by the best voucher
	Escrow    sign.Key       `json:"escrow,omitzero"`    // that it is paid from
	Unfunded  bool           `json:"unfunded,omitempty"` // its money was not seen in the escrow yet
	Claimed   market.Amount  `json:"claimed,omitempty"`  // of Earned, paid and finalized; before the network's fee
	Lost      market.Amount  `json:"lost,omitempty"`     // of Earned, can never be claimed
	Reason    string         `json:"reason,omitempty"`
}

// GuardedJob is a job of another peer that this peer guards.
type GuardedJob struct {
	Job        sign.Hash  `json:"job"` // hash of its terms
	Owner      sign.Key   `json:"owner"`
	Guardians  []sign.Key `json:"guardians"` // this peer among them
	Epoch      uint64     `json:"epoch"`     // under which it is supervised
	Supervisor sign.Key   `json:"supervisor"`
	Mine       bool       `json:"mine"` // this peer supervises it
	Over       bool       `json:"over"` // needs no supervision; its owner has not fetched it yet
	Until      time.Time  `json:"until"`
}
