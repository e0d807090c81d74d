package admit

import (
	"errors"
	"time"

	"github.com/libp2p/go-libp2p/core/host"
	"github.com/libp2p/go-libp2p/core/network"
)

// Close closes a libp2p host after its connections and the handlers of their streams. libp2p's own Close stops its
// manager of observed addresses first, but leaves the manager's subscription open. Later identify messages fill the
// subscription, and Close would block forever.
func Close(h host.Host) error {
	err, handlers := h.Network().Close(), 1
	for end := time.Now().Add(5 * time.Second); handlers > 0 && time.Now().Before(end); time.Sleep(time.Millisecond) {
		_ = h.Network().ResourceManager().ViewSystem(func(s network.ResourceScope) error {
			handlers = s.Stat().NumStreamsInbound
			return nil
		})
	}
	return errors.Join(err, h.Close())
}
