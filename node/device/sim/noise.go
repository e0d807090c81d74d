package sim

import (
	"math"
	"math/rand/v2"
	"time"
)

// Noise delays honest hardware and honest networks, from a source that the caller seeds. The figures are assumptions,
// meant to be worse than a provider with a wired connection.
type Noise struct{ R *rand.Rand }

// Speed is how fast a card is now beside its class: 2 % of spread, and one time in 33 it is hot and runs at 70 to 95 %.
func (n Noise) Speed() float64 {
	s := 1 + 0.02*n.normal()
	if n.R.Float64() < 0.03 {
		s *= 0.7 + 0.25*n.R.Float64()
	}
	return max(s, 0.5)
}

// Card is the constant speed of one card beside its class: 2 % of spread.
func (n Noise) Card() float64 { return max(1+0.02*n.normal(), 0.9) }

// Trip is the least round trip between two peers drawn at random: half of them below 60 ms, at most 350.
func (n Noise) Trip() time.Duration {
	return min(max(seconds(0.060*math.Exp(0.6*n.normal())), 5*time.Millisecond), 350*time.Millisecond)
}

// Delay is the delay of one exchange above the least: 2 ms in the mean, and one time in 500 a lost packet or a busy
// host that costs 0.2 to 1 s.
func (n Noise) Delay() time.Duration {
	d := 0.002 * n.R.ExpFloat64()
	if n.R.Float64() < 0.002 {
		d += 0.2 + 0.8*n.R.Float64()
	}
	return seconds(d)
}

// Fastest returns the least delay of exchanges, a few of which may be lost.
func (n Noise) Fastest(exchanges int) time.Duration {
	return seconds(0.002 * n.R.ExpFloat64() / float64(exchanges))
}

// Sight is a peer's error about the beginning of a slot: 0.3 s, either way, and for one in a hundred, with a lagging
// chain endpoint, up to 4 s.
func (n Noise) Sight() time.Duration {
	if n.R.Float64() < 0.01 {
		return seconds(4 * (2*n.R.Float64() - 1))
	}
	return seconds(0.3 * n.normal())
}

// Clock is how wrong a peer measures a time: 50 parts in a million, either way.
func (n Noise) Clock() float64 { return 1 + 50e-6*(2*n.R.Float64()-1) }

// Outages models a peer that is away half a percent of the time, for half an hour on average.
type Outages struct {
	N          Noise
	away, till time.Duration // the next stretch, from and to
}

// Away reports whether the peer is away at some time between from and to. Times must not decrease between calls.
func (o *Outages) Away(from, to time.Duration) bool {
	const mean, share = 1800.0, 0.005
	for o.till <= from {
		o.away = o.till + seconds(mean/share*o.N.R.ExpFloat64())
		o.till = o.away + seconds(mean*o.N.R.ExpFloat64()) + 1
	}
	return o.away < to
}

// normal is N(0, 1), at most 4 either way.
func (n Noise) normal() float64 { return min(max(n.R.NormFloat64(), -4), 4) }
