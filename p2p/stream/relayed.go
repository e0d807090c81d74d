package stream

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/libp2p/go-libp2p/core/network"
	"github.com/libp2p/go-libp2p/core/peer"
	circuit "github.com/libp2p/go-libp2p/p2p/protocol/circuitv2/client"
	ma "github.com/multiformats/go-multiaddr"
)

// Relayed is a path over a relay, and the error of a broken stream on it.
type Relayed struct {
	Relay peer.ID
	Data  int64         // bytes after which the relay cuts a connection, both ways together; 0: it announced no limit
	Time  time.Duration // time after which it does; 0: it announced no limit
	Err   error         // the stream's error; nil if it is still open
}

func (r *Relayed) Error() string {
	return fmt.Sprintf("cut by relay %s, which %s", r.Relay, r.Limit())
}

func (r *Relayed) Unwrap() error { return r.Err }

// Limit describes when the relay cuts a connection.
func (r *Relayed) Limit() string {
	var after []string
	if r.Data > 0 {
		after = append(after, Size(r.Data))
	}
	if r.Time > 0 {
		after = append(after, r.Time.String())
	}
	if len(after) == 0 {
		return "has ended or reached a limit of its own"
	}
	return "ends a connection after " + strings.Join(after, " or ")
}

// connClosed is part of the error that yamux, which alone runs over circuits, returns to the streams of a broken
// connection. There is no other sign; the connection is marked as closed a moment later.
const connClosed = "connection closed"

// Size is a number of bytes for a person.
func Size(n int64) string {
	switch {
	case n >= 1<<30:
		return fmt.Sprintf("%.1f GiB", float64(n)/(1<<30))
	case n >= 1<<20:
		return fmt.Sprintf("%.1f MiB", float64(n)/(1<<20))
	}
	return fmt.Sprintf("%.1f KiB", float64(n)/(1<<10))
}

// RelayedBy returns the relayed path of a connection; nil if it is direct.
func RelayedBy(c network.Conn) *Relayed {
	a := c.RemoteMultiaddr()
	if _, err := a.ValueForProtocol(ma.P_CIRCUIT); err != nil {
		return nil
	}
	r := &Relayed{}
	if via, err := a.ValueForProtocol(ma.P_P2P); err == nil { // the first one: of the relay
		r.Relay, _ = peer.Decode(via)
	}
	told := c.Stat().Extra
	if n, ok := told[circuit.StatLimitData].(uint64); ok {
		r.Data = int64(min(n, 1<<62))
	}
	r.Time, _ = told[circuit.StatLimitDuration].(time.Duration)
	return r
}

// through marks an error of a relayed stream if its whole connection is gone. A reset of one stream is the peer's
// action, and a deadline is ours.
func through(s network.Stream, err error) error {
	if err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
		return err
	}
	r := RelayedBy(s.Conn())
	if r == nil || !s.Conn().IsClosed() && !strings.Contains(err.Error(), connClosed) {
		return err
	}
	r.Err = err
	return r
}
