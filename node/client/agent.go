package client

import (
	"context"
	"time"
)

// idleLook is the interval of an agent's checks for idleness.
const idleLook = time.Second

// UntilIdle returns when the client has been unused for the given time: no job that has not ended, and no request to
// its API. It also returns when ctx ends or the client did; then used reports that it was needed to the end.
func (c *Client) UntilIdle(ctx context.Context, idle time.Duration) (used bool) {
	t := time.NewTicker(idleLook)
	defer t.Stop()
	busy := time.Now() // when a job was seen last
	for {
		select {
		case <-ctx.Done():
			return true
		case <-c.Done():
			return true
		case now := <-t.C:
			if len(c.Buyer().Open()) > 0 {
				busy = now
			}
			if now.Sub(busy) >= idle && c.node.Idle() >= idle {
				return false
			}
		}
	}
}
