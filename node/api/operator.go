package api

import (
	"time"

	"github.com/starling-network/starling/market"
)

// OwnOffers is the offers of this peer and their state.
type OwnOffers struct {
	State     string          `json:"state"`            // selling, paused, draining, drained, closed or no fees
	Reason    string          `json:"reason,omitempty"` // of "no fees"
	Until     time.Time       `json:"until,omitzero"`   // when the hours begin or end; never when not set
	Hours     string          `json:"hours"`
	Leases    int             `json:"leases"` // live ones and holds
	Offers    []OwnOffer      `json:"offers"`
	Withdrawn []WithdrawnUnit `json:"withdrawn,omitempty"`
}

// OwnOffer is the offer of one class.
type OwnOffer struct {
	Class      market.Class      `json:"class"`
	Model      string            `json:"model,omitempty"`
	Capability market.Capability `json:"capability,omitempty"`
	Simulated  bool              `json:"simulated,omitempty"`
	Seq        uint64            `json:"seq"` // of the last offer published; 0: none yet
	Units      int               `json:"units"`
	Free       int               `json:"free"`
	Proven     int               `json:"proven,omitempty"` // of those, with a fresh audit record
	Leased     int               `json:"leased"`
	Withdrawn  int               `json:"withdrawn"`
	PerUnit    market.Resources  `json:"perUnit"`
	Price      market.Price      `json:"price"`
	Floor      market.Price      `json:"floor"`
	Runtimes   []string          `json:"runtimes"`
}

// WithdrawnUnit is a unit that is not sold because something is wrong with it.
type WithdrawnUnit struct {
	Class  market.Class `json:"class"`
	Serial string       `json:"serial"`
	Model  string       `json:"model"`
	Reason string       `json:"reason"`
	Leased bool         `json:"leased"` // it is still leased
}

// ImageInfo is a container image that was brought for an execution and stays, or was pushed for jobs of this peer.
type ImageInfo struct {
	ID     string    `json:"id"`
	Digest string    `json:"digest"` // by which jobs named it
	Size   int64     `json:"size"`   // unpacked, bytes; images share layers; of a pushed one, its files
	Used   time.Time `json:"used"`   // last
	InUse  bool      `json:"inUse"`  // a container is made of it, or a job needs the pushed one
	Public bool      `json:"public"` // its registry gave it without credentials; offers name it if it was used lately
	// Names are those of an image that was pushed for jobs of this peer, NAME[:TAG]; others have none.
	Names []string `json:"names,omitempty"`
	// Incomplete means that the peer needed the room of some files of a pushed image.
	Incomplete bool `json:"incomplete,omitempty"`
}

// PriceRequest is a new price of a class, in base units per unit-hour.
type PriceRequest struct {
	Class market.Class `json:"class"`
	Price market.Price `json:"price"`
}

// ResumeRequest names withdrawn devices to sell again. Without devices, it resumes all selling.
type ResumeRequest struct {
	Devices []string `json:"devices,omitempty"`
}
