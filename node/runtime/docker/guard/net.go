package guard

import (
	"errors"
	"fmt"
	"net/netip"
	"time"

	"github.com/starling-network/starling/node/runtime"
)

const (
	// NetSubcommand is the argument after Subcommand of a guard that holds a network and no program.
	NetSubcommand = "net"
	// NetPath is the path of the binary in its container, which has no other file.
	NetPath = "/guard"
)

// NetOp is the operation of a NetRequest.
type NetOp string

const (
	NetMake  NetOp = "make"  // make the device, once. Answered with ID 0
	NetAdopt NetOp = "adopt" // the device is made already. Answered with ID 0
	NetTun   NetOp = "tun"   // answered with the device
	NetMTU   NetOp = "mtu"   // change the device's. Answered
	NetEnd   NetOp = "end"   // the network is no longer needed; the answer is the guard's end
)

// NetRequest is a message of the peer to a guard that holds a network.
type NetRequest struct {
	Op      NetOp         `json:"op"`
	ID      uint32        `json:"id,omitempty"`     // repeated in the answer; not 0 but for make and adopt
	Address netip.Addr    `json:"address,omitzero"` // of make: the device's own
	Bits    int           `json:"bits,omitempty"`   // of make: length of the prefix that Address lies in
	MTU     int           `json:"mtu,omitempty"`    // of make and mtu
	Grace   time.Duration `json:"grace,omitempty"`  // of make: without a peer
	Token   string        `json:"token,omitempty"`  // of make: the first message to every later peer
}

// DecodeNetRequest reads a message of the peer to a guard that holds a network.
func DecodeNetRequest(b []byte) (NetRequest, error) {
	var r NetRequest
	if err := decode("network request", b, MaxPacket, &r); err != nil {
		return NetRequest{}, err
	}
	switch r.Op {
	case NetMake:
		o := runtime.Overlay{Address: r.Address, PrefixBits: r.Bits, MTU: r.MTU, Hostname: "x"}
		if err := o.Check(); err != nil {
			return NetRequest{}, fmt.Errorf("decoding network request: %w", err)
		}
		if r.Grace <= 0 || r.Token == "" {
			return NetRequest{}, errors.New("decoding network request: no grace or no token")
		}
	case NetMTU:
		if err := runtime.CheckMTU(r.MTU); err != nil {
			return NetRequest{}, fmt.Errorf("decoding network request: %w", err)
		}
	case NetAdopt, NetTun, NetEnd:
	default:
		return NetRequest{}, fmt.Errorf("decoding network request: unknown operation %.40q", r.Op)
	}
	return r, nil
}
