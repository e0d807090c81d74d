package audit_test

import (
	"bytes"
	"errors"
	"testing"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/verify/audit"
	"github.com/starling-network/starling/verify/audit/audittest"
)

// A refusal is checked by anybody; nothing of it can be changed.
func TestRefusal(t *testing.T) {
	t.Parallel()
	c, all := audittest.Refusals(t, 7, 5)
	good := all[0]
	check := func(x audit.Refusal, slots uint64, roster audit.Roster) error {
		return errors.Join(audit.NewRules(c.Genesis()).Check(x.Target().Window, x.Beacon()),
			x.Check(audittest.Domain(), slots), x.CheckMembers(roster))
	}
	if err := check(good, c.Slots, c.Roster); err != nil || good.Target().Window != 7 {
		t.Fatal(err)
	}
	b := good.Marshal()
	if read, err := audit.UnmarshalRefusal(b); err != nil || !bytes.Equal(read.Marshal(), b) ||
		len(b) > audit.MaxRefusal {
		t.Fatalf("it is not read as it was written: %v", err)
	}
	for i := range b {
		if i == 3 || i >= 8 && i < 48 {
			continue // the committee's size, which nobody signed, and the beacon, which the chain knows
		}
		bad := bytes.Clone(b)
		bad[i] ^= 1
		if x, err := audit.UnmarshalRefusal(bad); err == nil && check(x, c.Slots, c.Roster) == nil {
			t.Fatalf("bit of byte %d: it holds", i)
		}
	}
	if check(good, c.Slots+1, c.Roster) == nil || check(good, c.Slots, c.Roster[:1]) == nil {
		t.Error("another network's, or by one who is not drawn")
	}
	if _, err := audit.UnmarshalRefusal(append(b, 0)); err == nil {
		t.Error("more than one")
	}
	pass, err := audittest.New(12).Make()
	if err != nil {
		t.Fatal(err)
	}
	pass.Verdicts = pass.Verdicts[:1]
	if _, err := audit.Refuse(pass); err == nil {
		t.Error("a pass refuses")
	}
	if _, err := audit.UnmarshalRefusal(pass.Certificate().Marshal()); !errors.Is(err, market.ErrMalformed) {
		t.Errorf("a pass is read as a refusal: %v", err)
	}
}

func FuzzRefusal(f *testing.F) {
	c, all := audittest.Refusals(f, 7, 1)
	f.Add(all[0].Marshal())
	f.Fuzz(func(t *testing.T, b []byte) {
		x, err := audit.UnmarshalRefusal(b)
		if err != nil {
			return
		}
		if !bytes.Equal(x.Marshal(), b) {
			t.Fatal("a refusal is not written as it was read")
		}
		_ = x.Check(audittest.Domain(), c.Slots)
		_ = x.CheckMembers(c.Roster)
		if got := audit.Certificate(x).Target(); got != x.Target() || x.String() == "" {
			t.Fatalf("%q is of %v, its certificate of %v", x, x.Target(), got)
		}
	})
}
