package slots

import (
	"errors"
	"fmt"
	"time"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/node/service"
)

const (
	// failed is the number of observations in a row that fail before the chain counts as out of reach.
	failed = 3
	// halted is the age of the newest final slot from which on the chain counts as halted. Solana has one every 0.4 s.
	halted = time.Minute
)

// Dated is a source that compares its answers' time with this machine's clock.
type Dated interface {
	// Ahead returns how far this machine's clock is ahead of the source's, or false if that is not known.
	Ahead() (time.Duration, bool)
}

// Health implements service.Health: it returns a problem if the slot is not known, soon will not be, or this machine's
// clock is wrong.
func (c *Clock) Health() *service.Problem {
	c.mu.Lock()
	fails, err, final, still := c.fails, c.err, c.seen.Final, time.Since(c.moved)
	seen := !c.at.IsZero()
	c.mu.Unlock()
	switch {
	case fails < failed:
	case errors.Is(err, ErrAhead):
		return &service.Problem{
			Problem: err.Error(), Remedy: "set this machine's clock, or name other endpoints under solana.rpc",
		}
	case errors.Is(err, ErrBehind):
		return &service.Problem{
			Problem: err.Error(), Remedy: "name endpoints that keep up with the chain under solana.rpc",
		}
	default:
		text := market.Clean(err.Error(), maxText)
		return &service.Problem{
			Problem: fmt.Sprintf("the chain did not answer %d times in a row: %s", fails, text),
			Remedy:  "check solana.rpc in config.yaml and this machine's network",
		}
	}
	if seen && fails == 0 && still >= halted {
		return &service.Problem{
			Problem: fmt.Sprintf("the chain stands still at final slot %d for %v", final, still.Round(time.Second)),
			Remedy:  "wait, if the whole chain has halted; else its endpoint lags: name another under solana.rpc",
		}
	}
	if d, ok := c.source.(Dated); ok {
		if ahead, known := d.Ahead(); known && ahead.Abs() > market.MaxClockSkew {
			return &service.Problem{
				Problem: fmt.Sprintf("this machine's clock is %v %s the chain's endpoints",
					ahead.Abs().Round(time.Second), side(ahead)),
				Remedy: "set the clock, for example by timedatectl set-ntp true: " +
					"other peers refuse records of a wrong time",
			}
		}
	}
	return nil
}

// maxText bounds the part of an endpoint's error that is quoted, bytes.
const maxText = 400

func side(ahead time.Duration) string {
	if ahead > 0 {
		return "ahead of"
	}
	return "behind"
}
