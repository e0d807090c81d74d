package cluster_test

import (
	"testing"
	"time"

	"github.com/starling-network/starling/node/cluster"
)

func TestClassOf(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		rtt  time.Duration
		mbit uint64
		want cluster.Class
		lan  string
	}{
		{200 * time.Microsecond, 25_000, cluster.LAN, ""},
		{999 * time.Microsecond, 500, cluster.LAN, ""},
		{time.Millisecond, 25_000, cluster.Metro, "1ms apart, a lan is under 1ms"},
		{200 * time.Microsecond, 499, cluster.Metro, "a probe between them carried 499 Mbit/s, that of a lan at least 500"},
		{15 * time.Millisecond, 25_000, cluster.WAN, "15ms apart, a lan is under 1ms"},
		{200 * time.Microsecond, 0, cluster.WAN, "a probe between them carried 0 Mbit/s, that of a lan at least 500"},
		{0, 49, cluster.WAN, "a probe between them carried 49 Mbit/s, that of a lan at least 500"},
	} {
		if got := cluster.ClassOf(c.rtt, c.mbit); got != c.want || cluster.LAN.Falls(c.rtt, c.mbit) != c.lan {
			t.Errorf("%v, %d Mbit/s: %s, %q", c.rtt, c.mbit, got, cluster.LAN.Falls(c.rtt, c.mbit))
		}
		if (cluster.Metro.Falls(c.rtt, c.mbit) == "") != cluster.Metro.Admits(c.want) || cluster.WAN.Falls(c.rtt, c.mbit) != "" {
			t.Errorf("%v, %d Mbit/s: refused where its class is admitted", c.rtt, c.mbit)
		}
	}
	if cluster.ClassByRTT(time.Microsecond) != cluster.LAN || cluster.ClassByRTT(41*time.Millisecond) != cluster.WAN || cluster.Metro.RTT() != 15*time.Millisecond || cluster.WAN.Mbit() != 0 {
		t.Error("the bounds are others")
	}
}
