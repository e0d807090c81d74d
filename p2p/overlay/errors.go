package overlay

import (
	"errors"

	"github.com/starling-network/starling/p2p/overlay/tun"
)

var (
	// ErrConfig: the device's configuration or its list of members cannot work.
	ErrConfig = errors.New("bad overlay configuration")
	// ErrUnsupported: this system has no TUN devices that the overlay can use; it needs Linux.
	ErrUnsupported = tun.ErrUnsupported
	// ErrClosed: the device has left its overlay.
	ErrClosed = errors.New("overlay device is closed")
	// ErrFull: this host is at its limit of overlays, or a list has more members than an overlay may have.
	ErrFull = errors.New("too many overlays or members")
)
