package sim

import "time"

// A provider that wants to be sold in a region where it is not puts something there that answers pings. Holding pings makes it
// look farther away than it is, never nearer.
var regionKinds = []Kind{{
	Name: "region", Threat: 19, What: "pings are answered in the region, challenges 60 to 200 ms away", play: away(60*time.Millisecond, 200*time.Millisecond),
}}
