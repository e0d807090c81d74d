package sim

import "time"

// away puts the hardware so far from the provider, there and back.
func away(from, to time.Duration) func(*world) player {
	return func(w *world) player {
		u := honest(w, anyGPU(w))
		u.relay = from + time.Duration(w.r.Int64N(int64(to-from)))
		return u.play
	}
}

// A broker answers with hardware that is elsewhere.
var relayKinds = []Kind{
	{Name: "relay", Threat: 11, What: "hardware is 20 to 120 ms away", play: away(20*time.Millisecond, 120*time.Millisecond)},
	{Name: "relay-near", Threat: 11, What: "hardware is 1 to 7 ms away", Limit: "relays closer than 8 ms deliver the hardware", play: away(time.Millisecond, 7*time.Millisecond)},
}
