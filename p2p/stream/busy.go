package stream

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"
)

// The pauses of WhileBusy are about firstPause, then twice as long each time, up to about longestPause.
const firstPause, longestPause = 250 * time.Millisecond, 4 * time.Second

// WhileBusy calls ask, and repeats it after a pause while its peer is busy, until ctx ends. The pauses are random, so
// that callers that were refused together do not return together. It returns the last error of ask.
func WhileBusy(ctx context.Context, ask func() error) error {
	for pause := firstPause; ; pause = min(2*pause, longestPause) {
		err := ask()
		var no *Refused
		if !errors.As(err, &no) || no.Code != CodeBusy {
			return err
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(pause/2 + rand.N(pause)):
		}
	}
}
