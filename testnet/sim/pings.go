package sim

import "time"

// A provider that holds pings and rapid rounds is given time for a trip that there is not, and hides missing memory in it.
var pingKinds = []Kind{
	{Name: "held-pings", Threat: 19, What: "lacks 30 % of its dataset and holds pings for 150 ms", play: held(0.30)},
	{Name: "held-pings-10", Threat: 19, What: "lacks 10 % and holds pings for 150 ms", Limit: vramLimit + ", and it is sold as far away", play: held(0.10)},
}

func held(share float64) func(*world) player {
	return always(func(u *unit) {
		u.lacks(share)
		u.pings = 150 * time.Millisecond
	})
}
