package guardian_test

import (
	"bytes"
	"context"
	"slices"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/node/buyer/guardian"
	"github.com/starling-network/starling/node/buyer/guardian/guardiantest"
	"github.com/starling-network/starling/node/nodepb"
)

// local answers every request with one standing, and counts them.
type local struct {
	standing *nodepb.GuardReply_Standing
	asked    int
}

func (l *local) Answer(context.Context, sign.Key, *nodepb.GuardRequest) (*nodepb.GuardReply, error) {
	l.asked++
	return &nodepb.GuardReply{Op: &nodepb.GuardReply_Standing_{Standing: l.standing}}, nil
}

func (*local) Jobs() []guardian.Charter { return nil }

// alone is a panel of a job with one guardian, this peer.
func alone(t testing.TB, c guardian.Charter, members []guardian.Member, l *local) *guardian.Panel {
	p := guardian.NewPanel(guardian.PanelConfig{
		Genesis: guardiantest.Network, Key: guardiantest.PeerKey(1), Charter: c, Members: members, Local: l,
	})
	t.Cleanup(p.Close)
	return p
}

// signedLease is a lease as the owner hands it in under its first epoch.
func signedLease(t testing.TB, c guardian.Charter, l guardian.Lease) *nodepb.GuardedLease {
	t.Helper()
	k, err := c.SignLease(guardiantest.Network, guardiantest.PeerKey(0), 1, nil, l)
	guardiantest.Must(t, err)
	return k.PB()
}

func signedState(t testing.TB, c guardian.Charter, s guardian.State) *nodepb.GuardedState {
	t.Helper()
	st, err := c.SignState(guardiantest.Network.Domain(), guardiantest.PeerKey(0), 1, nil, s)
	guardiantest.Must(t, err)
	return st.PB()
}

// FuzzStanding: a panel takes only what a supervisor signed, whatever a guardian answers, and it ends.
func FuzzStanding(f *testing.F) {
	c, members := guardiantest.CharterOf(f, 1, 1)
	lease := guardiantest.StartPaying(f, c, 1, guardiantest.FirstSlot, 1).Handed()
	state := guardian.State{Version: 1, Bytes: []byte("s")}
	for _, st := range []*nodepb.GuardReply_Standing{
		{Epoch: 1, State: signedState(f, c, state), Leases: []*nodepb.GuardedLease{signedLease(f, c, lease)}},
		{Epoch: 1, Leases: []*nodepb.GuardedLease{signedLease(f, c, lease)}, More: true},
		{Epoch: 2, Grant: guardiantest.Granting(f, c, 2)},
	} {
		b, err := proto.Marshal(st)
		guardiantest.Must(f, err)
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		st := &nodepb.GuardReply_Standing{}
		if proto.Unmarshal(b, st) != nil {
			return
		}
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		s, err := alone(t, c, members, &local{standing: st}).Read(ctx)
		if ctx.Err() != nil {
			t.Fatal("the guardian was asked again and again")
		}
		if err != nil {
			if s.Answers > 0 || s.State != nil || len(s.Leases) > 0 || s.Epoch != 1 {
				t.Fatalf("after %v: taken %+v", err, s)
			}
			return
		}
		if s.State != nil && (s.State.Version != state.Version || !bytes.Equal(s.State.Bytes, state.Bytes)) {
			t.Fatalf("nobody said state %+v", s.State)
		}
		if s.Epoch != 1 && c.CheckGrant(guardiantest.Network.Domain(), s.Epoch, s.Grant) != nil {
			t.Fatalf("epoch %d was not granted", s.Epoch)
		}
		if slices.ContainsFunc(s.Leases, func(l guardian.Lease) bool {
			return l.Signed != lease.Signed || !bytes.Equal(l.Record, lease.Record) || !bytes.Equal(l.Payer, lease.Payer)
		}) {
			t.Fatal("nobody said such a lease")
		}
	})
}

// A guardian that repeats a page of leases, and always has more, is asked twice and not believed.
func TestPagesThatRepeat(t *testing.T) {
	t.Parallel()
	c, members := guardiantest.CharterOf(t, 1, 1)
	lease := guardiantest.StartPaying(t, c, 1, guardiantest.FirstSlot, 1).Handed()
	l := &local{standing: &nodepb.GuardReply_Standing{
		Epoch: 1, Leases: []*nodepb.GuardedLease{signedLease(t, c, lease)}, More: true,
	}}
	if s, err := alone(t, c, members, l).Read(t.Context()); err == nil || len(s.Leases) > 0 || l.asked != 2 {
		t.Errorf("asked %d times, taken %d leases: %v", l.asked, len(s.Leases), err)
	}
}

// FuzzMessages: what is parsed of an engagement, a state or a lease is within the bounds, and stays the same when it is
// sent on.
func FuzzMessages(f *testing.F) {
	c, members := guardiantest.CharterOf(f, 3, 2)
	guardiantest.Pay(c, members)
	lease := guardiantest.StartPaying(f, c, 1, guardiantest.FirstSlot, 1).Handed()
	lease.Escrow = sign.Key{4}
	files := []guardian.File{guardiantest.FileOf("a"), guardiantest.FileOf("b")}
	seed := func(kind uint8, m proto.Message) {
		b, err := proto.Marshal(m)
		guardiantest.Must(f, err)
		f.Add(kind, b)
	}
	seed(0, guardian.Engaged{
		Keys: c.Keys, Members: members, Sealed: []byte("box"), File: []byte("file"), Files: files,
		Addrs: []string{"/ip4/127.0.0.1"}, Until: time.UnixMilli(1 << 40), Complete: true,
	}.PB())
	seed(1, signedState(f, c, guardian.State{Version: 3, Bytes: []byte("s"), Over: true, Files: files}))
	lease.Escrow = sign.Key{}
	signed := signedLease(f, c, lease)
	seed(2, signed)
	escrow := sign.Key{4}
	signed.Escrow = escrow[:]
	seed(2, signed)
	again := func(t *testing.T, m, as proto.Message, err error) {
		if err != nil || !proto.Equal(m, as) {
			t.Fatalf("parsed again: got %v, %v, want %v", as, err, m)
		}
	}
	f.Fuzz(func(t *testing.T, kind uint8, b []byte) {
		switch kind % 3 {
		case 0:
			pb := &nodepb.GuardRequest_Engage{}
			if proto.Unmarshal(b, pb) != nil {
				return
			}
			e, err := guardian.ReadEngaged(pb)
			if err != nil {
				return
			}
			if len(e.Members) != len(e.Keys.Keys) || len(e.Members) > guardian.MaxGuardians ||
				len(e.File) > guardian.MaxFile || len(e.Files) > guardian.MaxFiles || guardian.BytesOf(e.Files) < 0 {
				t.Fatalf("out of bounds: %+v", e)
			}
			next, err := guardian.ReadEngaged(e.PB())
			again(t, e.PB(), next.PB(), err)
		case 1:
			pb := &nodepb.GuardedState{}
			if proto.Unmarshal(b, pb) != nil {
				return
			}
			s, err := c.ReadState(guardiantest.Network.Domain(), pb)
			if err != nil {
				return
			}
			next, err := c.ReadState(guardiantest.Network.Domain(), s.PB())
			again(t, s.PB(), next.PB(), err)
		case 2:
			pb := &nodepb.GuardedLease{}
			if proto.Unmarshal(b, pb) != nil {
				return
			}
			k, err := guardian.ParseLease(pb)
			if err != nil {
				return
			}
			if len(k.Record) > guardian.MaxRecord {
				t.Fatalf("a record of %d bytes", len(k.Record))
			}
			next, err := guardian.ParseLease(k.PB())
			again(t, k.PB(), next.PB(), err)
			// A lease that nobody signed is refused without a panic.
			if known, err := c.CheckLease(guardiantest.Network, k, nil); err == nil {
				if _, err := c.CheckLease(guardiantest.Network, k, &known); err != nil {
					t.Fatalf("checked again: %v", err)
				}
			}
		}
	})
}
