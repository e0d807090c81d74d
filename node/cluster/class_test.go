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
		{999 * time.Microsecond, 10_000, cluster.LAN, ""},
		{time.Millisecond, 25_000, cluster.Metro, "1ms apart, a lan is under 1ms"},
		{200 * time.Microsecond, 9_999, cluster.Metro, "9999 Mbit/s between them, a lan has at least 10000"},
		{15 * time.Millisecond, 25_000, cluster.WAN, "15ms apart, a lan is under 1ms"},
		{200 * time.Microsecond, 0, cluster.WAN, "0 Mbit/s between them, a lan has at least 10000"},
		{0, 999, cluster.WAN, "999 Mbit/s between them, a lan has at least 10000"},
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
