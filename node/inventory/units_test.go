package inventory

import (
	"errors"
	"strings"
	"testing"

	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/node/provider/policy"
	"github.com/starling-network/starling/node/service"
)

func TestCPUUnits(t *testing.T) {
	t.Parallel()
	key := sign.NewPrivate([32]byte{7}).Key()
	c := Default()
	c.Units = 3
	m, err := ReadMachine()
	if err != nil {
		t.Fatal(err)
	}
	units, err := cpuUnits(key, c, m)
	if err != nil || len(units) != 3 {
		t.Fatalf("%d units, %v", len(units), err)
	}
	again, err := cpuUnits(key, c, m)
	if err != nil {
		t.Fatal(err)
	}
	seen := map[string]bool{}
	for i, u := range units {
		if u.ID != again[i].ID {
			t.Error("a unit has another id after a restart")
		}
		if seen[u.ID.String()] {
			t.Error("two units have one id")
		}
		seen[u.ID.String()] = true
	}
	lots := func() []policy.Lot {
		u, err := cpuUnits(key, c, m)
		if err != nil {
			t.Fatal(err)
		}
		return []policy.Lot{{Class: CPU, Units: u, PerUnit: u[0].Resources}}
	}
	m.MemoryMiB, m.milliCPU = 4096, 8000
	for _, s := range []struct {
		share Share
		units int
		want  string
	}{
		{Share{}, 3, ""},
		{Share{Units: 70}, 2, ""},
		{Share{Keep: map[string]uint32{"cpu": 1}}, 2, ""},
		{Share{Memory: 75}, 3, ""},
		{Share{Memory: 74}, 3, "share.memory of 74% is 3031 MiB"},
		{Share{CPU: 37}, 3, "share.cpu of 37% is 2960"},
	} {
		c.Share = s.share
		l := lots()
		if err := c.fits(l, m); len(l[0].Units) != s.units || s.want == "" && err != nil || s.want != "" && (!errors.Is(err, service.ErrConfig) || !strings.Contains(err.Error(), s.want)) {
			t.Errorf("%+v: %d units, %v", s.share, len(l[0].Units), err)
		}
	}
	c.Share = Share{}
	c.Unit.MemoryMiB = 1 << 30
	if err := c.fits(lots(), m); !errors.Is(err, service.ErrConfig) || !strings.Contains(err.Error(), "this machine has") {
		t.Errorf("more memory than there is: %v", err)
	}
}
