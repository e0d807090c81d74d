package buyer

import (
	"context"
	"crypto/rand"
	"time"
)

// pause returns after d, or with the error of a context that ends before.
func pause(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-t.C:
		return nil
	}
}

// jitter spreads retries, so that two buyers that blocked each other do not meet again.
func jitter(d time.Duration) time.Duration {
	var b [2]byte
	_, _ = rand.Read(b[:]) // never fails
	return d/2 + d*time.Duration(uint16(b[0])<<8|uint16(b[1]))/(1<<16)
}
