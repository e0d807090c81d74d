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
	// ErrFull: this host is in as many overlays as it may be, or a list has more members than one overlay holds.
	ErrFull = errors.New("too many overlays or members")
)
