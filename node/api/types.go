package api

import (
	"time"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
)

// CodePayment is the code of errors that have to do with funds or with the chain.
const CodePayment = "payment"

// Error is what the API answers when it cannot do what was asked.
type Error struct {
	Status  int    `json:"-"`
	Code    string `json:"code"`
	Message string `json:"message"`
	Hint    string `json:"hint,omitempty"`
}

func (e *Error) Error() string { return e.Message }

// NodeInfo is this peer as its user sees it.
type NodeInfo struct {
	Peer      string         `json:"peer"` // libp2p peer id
	Key       sign.Key       `json:"key"`  // the same key as a Solana address
	Owner     sign.Key       `json:"owner"`
	Version   string         `json:"version"`
	Addrs     []string       `json:"addrs"` // full multiaddrs, to be given to others as bootstrap
	Genesis   market.Genesis `json:"genesis"`
	Region    string         `json:"region"`
	Slot      market.Slot    `json:"slot"`
	ChainUp   bool           `json:"chainUp"`
	ChainErr  string         `json:"chainErr,omitempty"`
	Balance   market.Amount  `json:"balance"` // of the owner
	Peers     int            `json:"peers"`
	Units     int            `json:"units"`
	FreeUnits int            `json:"freeUnits"`
	Jobs      int            `json:"jobs"` // not ended
	Started   time.Time      `json:"started"`
}

// PeerInfo is a peer that this one is connected to.
type PeerInfo struct {
	Peer  string   `json:"peer"`
	Key   sign.Key `json:"key"`
	Addrs []string `json:"addrs"`
	RTT   float64  `json:"rttMillis"` // 0: not measured
	Agent string   `json:"agent,omitempty"`
}

// OfferInfo is an offer with what this peer knows of it.
type OfferInfo struct {
	Provider sign.Key         `json:"provider"`
	Class    string           `json:"class"`
	Region   string           `json:"region"`
	Free     uint32           `json:"free"`
	Total    uint32           `json:"total"`
	PerUnit  market.Resources `json:"perUnit"`
	Price    market.Price     `json:"price"`
	Runtimes []string         `json:"runtimes"`
	Expires  time.Time        `json:"expires"`
	Answered bool             `json:"answered"` // a probe was answered within the last two minutes
	RTT      float64          `json:"rttMillis,omitempty"`
}

// SoldLease is a lease that this peer sold.
type SoldLease struct {
	Lease    market.LeaseID `json:"lease,omitzero"`
	Hold     string         `json:"hold"`
	Buyer    sign.Key       `json:"buyer"`
	State    string         `json:"state"`
	Units    int            `json:"units"`
	Rank     uint32         `json:"rank"`
	Receipts uint64         `json:"receipts"`
	Earned   market.Amount  `json:"earned"` // what the best voucher says
	Reason   string         `json:"reason,omitempty"`
}
