package voice

import (
	"reflect"
	"testing"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/node/buyer/record"
)

// The guardians of a job come back from package guardian as they were.
func TestMembersOf(t *testing.T) {
	t.Parallel()
	key := func(n byte) sign.Key { return sign.NewPrivate([32]byte{n}).Key() }
	want := []record.Guardian{
		{Key: key(1), Addrs: []string{"/ip4/192.0.2.1"}, Wage: &market.LeaseCore{Units: 1}}, {Key: key(2)},
	}
	if got := GuardiansOf(MembersOf(want)); !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v, want %+v", got, want)
	}
	j := record.Job{Detached: &record.Detached{Owner: key(9), Guardians: want, Key: key(8), Terms: sign.Hash{7}}}
	c, err := CharterOf(j.Detached)
	if err != nil || c.Owner != key(9) || c.Keys.Threshold != 2 || len(c.Keys.Keys) != 2 {
		t.Errorf("%+v, %v", c, err)
	}
}
