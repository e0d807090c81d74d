package wards

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"testing"
	"time"

	"github.com/ipfs/go-cid"
	"github.com/libp2p/go-libp2p/core/peer"
	"google.golang.org/protobuf/proto"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/node/buyer/guardian"
	"github.com/starling-network/starling/node/buyer/guardian/guardiantest"
	"github.com/starling-network/starling/node/nodepb"
	"github.com/starling-network/starling/node/sealed"
	"github.com/starling-network/starling/node/slots"
	"github.com/starling-network/starling/node/store"
	"github.com/starling-network/starling/p2p/p2ptest"
	"github.com/starling-network/starling/p2p/stream"
	"github.com/starling-network/starling/verify"
)

// alone is the service of guardian number 0 of the charter, which nobody can reach. Its wards do not run.
func alone(t testing.TB, g market.Genesis, c guardian.Charter, disk store.Store) (*Service, error) {
	t.Helper()
	key := guardiantest.PeerKey(guardiantest.HostOf(c.Keys.Keys[0]))
	ticks := slots.New(guardiantest.Clock{Began: time.Now()}, g.SlotMillis, time.Second, p2ptest.Quiet())
	guardiantest.Must(t, ticks.Sync(t.Context()))
	s, err := New(t.Context(), Config{
		Genesis: g, Key: key, Store: disk, Slots: ticks, Log: p2ptest.Quiet(), Policy: Policy{Accept: true, MaxJobs: 2, MaxBytes: 100, Longest: time.Hour},
		Unseal: func(p sealed.Purpose, box []byte) ([]byte, error) { return sealed.Open(key, p, box) }, Files: idle{},
	})
	if err == nil {
		s.fellows = func(Ward) fellows { return idle{} }
		s.HandTo(idle{})
	}
	return s, err
}

// running is alone with wards that run until stop is called. set changes the service before.
func running(
	t testing.TB, g market.Genesis, c guardian.Charter, disk store.Store, set func(*Service),
) (s *Service, stop func()) {
	t.Helper()
	s, err := alone(t, g, c, disk)
	guardiantest.Must(t, err)
	if set != nil {
		set(s)
	}
	return s, goOn(t, s)
}

// goOn runs the wards of a service until stop is called.
func goOn(t testing.TB, s *Service) (stop func()) {
	return p2ptest.Go(t, func(ctx context.Context) error {
		if err := s.runner.Run(ctx); !errors.Is(err, store.ErrCrashed) {
			return err
		}
		return nil
	})
}

// wardIn is the ward of a job, or nil.
func wardIn(s *Service, job sign.Hash) *guarded {
	w, _, err := s.runner.Get(job)
	if err != nil {
		return nil
	}
	return &w
}

// erasedIn waits until the records of a dismissed job are removed.
func erasedIn(t testing.TB, s *Service, job sign.Hash) {
	t.Helper()
	_, err := s.runner.Until(t.Context(), job, func(w guarded) bool { return w.Dismissed && w.erased })
	guardiantest.Must(t, err)
}

// idle is a supervisor, a store of files, and the guardians of a ward, that does nothing.
type idle struct{}

func (idle) TakeUp(context.Context, guardian.Taken) error         { return nil }
func (idle) Yield(sign.Hash, uint64)                              {}
func (idle) Fetch(context.Context, peer.ID, cid.Cid, int64) error { return errNotThere }
func (idle) Share(peer.ID, cid.Cid)                               {}
func (idle) Drop(...cid.Cid)                                      {}
func (idle) Close()                                               {}

func (idle) Read(context.Context) (guardian.Standing, error) {
	return guardian.Standing{}, guardian.ErrMinority
}

func (idle) Grant(context.Context) (guardian.Standing, error) {
	return guardian.Standing{}, guardian.ErrMinority
}

func engaging(t testing.TB, g market.Genesis, c guardian.Charter, members []guardian.Member) *nodepb.GuardRequest {
	t.Helper()
	seed := guardiantest.JobKey.Seed()
	box, err := sealed.Seal(c.Keys.Keys[0], guardian.SealedFor(g.Tag(), c.Job), seed[:])
	guardiantest.Must(t, err)
	return &nodepb.GuardRequest{Job: c.Job[:], Op: &nodepb.GuardRequest_Engage_{Engage: guardian.Engaged{
		Sealed: box, Keys: c.Keys, Members: members, Until: time.Now().Add(time.Minute),
	}.PB()}}
}

// TestAttackGuardianPlaces: owners of one network, each with a key of its own, and one owner from everywhere take a part of a guardian's
// places; others get the rest, also after a restart. What was dismissed makes room.
func TestAttackGuardianPlaces(t *testing.T) {
	t.Parallel()
	base, members := guardiantest.CharterOf(t, 3, 2)
	disk := store.NewMemory()
	at := netip.Prefix{}
	start := func() (*Service, func()) {
		return running(t, guardiantest.Network, base, disk, func(s *Service) {
			s.cfg.Policy.MaxJobs = 16
			s.doors.at = func(sign.Key) netip.Prefix { return at }
		})
	}
	n := 0
	s, stop := start()
	engage := func(owner string) error {
		c := base
		c.Owner, c.Job = guardiantest.Named(owner).Key(), sign.Sum([]byte(fmt.Sprint("job", n)))
		n++
		_, err := s.Answer(t.Context(), c.Owner, engaging(t, guardiantest.Network, c, members))
		return err
	}
	take := func(owner func(i int) string) (taken int) {
		for i := range 12 {
			if engage(owner(i)) == nil {
				taken++
			}
		}
		return taken
	}
	keys := func(i int) string { return fmt.Sprint("key", n, i) }
	at = netip.MustParsePrefix("203.0.113.0/24")
	if got := take(keys); got != s.cfg.Policy.share() {
		t.Errorf("12 keys of one network have %d of 16 jobs guarded", got)
	}
	if _, err := s.doors.offer(guardiantest.Named("x").Key()); err == nil {
		t.Error("a network that has its share is offered more")
	}
	stop()
	s, _ = start()
	if got := take(keys); got != 0 {
		t.Errorf("after a restart the same network has %d more guarded", got)
	}
	at = netip.Prefix{}
	if got := take(func(int) string { return "one" }); got != s.cfg.Policy.share() {
		t.Errorf("one key has %d of 16 jobs guarded", got)
	}
	at = netip.MustParsePrefix("2001:db8::/56")
	guardiantest.Must(t, engage("else"))
}

var dismissing = &nodepb.GuardRequest{Op: &nodepb.GuardRequest_Dismiss_{Dismiss: &nodepb.GuardRequest_Dismiss{}}}

// asked is what the owner asks in its first epoch.
func asked(c guardian.Charter, op *nodepb.GuardRequest) *nodepb.GuardRequest {
	return &nodepb.GuardRequest{Job: c.Job[:], Epoch: 1, Op: op.Op}
}

func beatWith(t testing.TB, c guardian.Charter, s guardian.State) *nodepb.GuardRequest {
	t.Helper()
	signed, err := c.SignState(guardiantest.Network.Domain(), guardiantest.PeerKey(0), 1, nil, s)
	guardiantest.Must(t, err)
	return asked(c, &nodepb.GuardRequest{Op: &nodepb.GuardRequest_Beat_{Beat: &nodepb.GuardRequest_Beat{State: signed.PB()}}})
}

func vouching(t testing.TB, c guardian.Charter, l guardian.Lease) *nodepb.GuardRequest {
	t.Helper()
	signed, err := c.SignLease(guardiantest.Network, guardiantest.PeerKey(0), 1, nil, l)
	guardiantest.Must(t, err)
	return asked(c, &nodepb.GuardRequest{Op: &nodepb.GuardRequest_Voucher_{Voucher: &nodepb.GuardRequest_Voucher{Lease: signed.PB()}}})
}

// Safety: the power is cut at each write, before and after it. What was answered is remembered by the process that comes next:
// the job, its state, its leases and receipts, the epoch that it was shown; and it goes on.
func TestCrashAtEachWrite(t *testing.T) {
	t.Parallel()
	c, members := guardiantest.CharterOf(t, 3, 2)
	lease := guardiantest.StartPaying(t, c, 1, guardiantest.FirstSlot, 1)
	first := lease.Handed()
	lease.Receipt(guardiantest.FirstSlot+10, guardiantest.FirstSlot+10, false)
	second := lease.Handed()
	owner, engage := c.Owner, engaging(t, guardiantest.Network, c, members)
	taking := &nodepb.GuardRequest{Job: c.Job[:], Epoch: 2, Grant: guardiantest.Granting(t, c, 2), Op: &nodepb.GuardRequest_Read_{Read: &nodepb.GuardRequest_Read{}}}
	steps := []*nodepb.GuardRequest{engage, beatWith(t, c, guardian.State{Version: 1, Bytes: []byte("one")}), vouching(t, c, first), vouching(t, c, second),
		beatWith(t, c, guardian.State{Version: 2, Bytes: []byte("two")}), taking, asked(c, dismissing)}
	run := func(at int, when store.When) (writes int) {
		disk := store.NewMemory()
		crashing := store.NewCrashing(disk)
		crashing.CrashAt(at, when)
		s, stop := running(t, guardiantest.Network, c, crashing, nil)
		answered := 0
		for _, req := range steps {
			if _, err := s.Answer(t.Context(), owner, req); err != nil {
				if !errors.Is(err, store.ErrCrashed) {
					t.Fatalf("crash at %d: step %d: %v", at, answered, err)
				}
				break
			}
			answered++
		}
		if answered == len(steps) && at == 0 {
			erasedIn(t, s, c.Job)
		}
		stop()
		s, stop = running(t, guardiantest.Network, c, disk, nil)
		defer stop()
		w := wardIn(s, c.Job)
		switch {
		case answered == 0:
		case w == nil:
			t.Fatalf("crash at %d: the job is forgotten", at)
		case w.Dismissed:
		case answered > 1 && w.state == nil, answered > 4 && w.state.Version != 2:
			t.Fatalf("crash at %d: after %d answers the state is %+v", at, answered, w.state)
		case answered > 2 && w.leases[first.ID()] == nil, answered > 3 && (w.leases[first.ID()].Last().Seq != 1 || w.receipts != 1):
			t.Fatalf("crash at %d: after %d answers the lease is forgotten", at, answered)
		case answered > 5 && w.Epoch != 2:
			t.Fatalf("crash at %d: after %d answers the epoch is %d", at, answered, w.Epoch)
		}
		if answered > 3 && answered < 6 {
			if _, err := s.Answer(t.Context(), owner, vouching(t, c, first)); !guardian.Refused(err, guardian.CodeVoucher) && !guardian.Refused(err, guardian.CodeSuperseded) {
				t.Fatalf("crash at %d: an older voucher: %v", at, err)
			}
		}
		for i, req := range steps { // the owner asks again what it has no answer to, and all before it
			var r *stream.Refused
			if _, err := s.Answer(t.Context(), owner, req); err != nil && !errors.As(err, &r) {
				t.Fatalf("crash at %d: step %d again: %v", at, i, err)
			}
		}
		erasedIn(t, s, c.Job)
		if w := wardIn(s, c.Job); !w.Dismissed || len(w.leases) > 0 || w.Sealed != nil {
			t.Fatalf("crash at %d: in the end the job is %+v", at, w.Ward)
		}
		if left := records(t, disk); left != 1 {
			t.Fatalf("crash at %d: %d records are left of a job that was dismissed", at, left)
		}
		return crashing.Count()
	}
	writes := run(0, store.Before)
	if writes < len(steps) {
		t.Fatalf("%d writes for %d answers", writes, len(steps))
	}
	for at := 1; at <= writes; at++ {
		run(at, store.Before)
		run(at, store.After)
	}
}

func records(t testing.TB, disk store.Store) (n int) {
	t.Helper()
	for _, kind := range []string{wards.Kind(), states.Kind(), leases.Kind(), receipts.Kind()} {
		guardiantest.Must(t, disk.List(t.Context(), kind, "", func(string, []byte) error { n++; return nil }))
	}
	return n
}

// A supervisor's transaction is signed as the chain wants it, and what was opened is remembered.
func TestWitnessedEscrowIsRemembered(t *testing.T) {
	t.Parallel()
	g := guardiantest.Escrowed()
	c, members := guardiantest.CharterOf(t, 3, 2)
	disk := store.NewMemory()
	s, stop := running(t, g, c, disk, nil)
	ask := func(message []byte) (*nodepb.GuardReply, error) {
		return s.Answer(t.Context(), c.Owner, asked(c, &nodepb.GuardRequest{Op: &nodepb.GuardRequest_Witness_{Witness: &nodepb.GuardRequest_Witness{Message: message}}}))
	}
	_, err := s.Answer(t.Context(), c.Owner, engaging(t, g, c, members))
	guardiantest.Must(t, err)
	open, hire := calls(Ward{Charter: c})
	if _, err := ask(messageOf(t, c.Owner, hire.Instruction(g.Program))); !guardian.Refused(err, guardian.CodeWitness) {
		t.Fatalf("hiring from no escrow: %v", err)
	}
	message := messageOf(t, c.Owner, open.Instruction(g.Program))
	reply, err := ask(message)
	guardiantest.Must(t, err)
	guardiantest.Must(t, sign.Verify(c.Keys.Keys[0], message, sign.Signature(reply.GetSigned().GetSignature())))
	stop()
	s, _ = running(t, g, c, disk, nil)
	_, err = ask(messageOf(t, c.Owner, hire.Instruction(g.Program)))
	guardiantest.Must(t, err)
}

// FuzzRequest: whatever a part of the job asks, a guardian answers or declines, and signs no voucher that was not earned.
func FuzzRequest(f *testing.F) {
	c, members := guardiantest.CharterOf(f, 3, 2)
	lease := guardiantest.StartPaying(f, c, 1, guardiantest.FirstSlot, 1).Handed()
	ops := []*nodepb.GuardRequest{beatWith(f, c, guardian.State{Version: 1, Bytes: []byte("s")}), vouching(f, c, lease),
		{Job: c.Job[:], Epoch: 2, Grant: guardiantest.Granting(f, c, 2), Op: &nodepb.GuardRequest_Read_{Read: &nodepb.GuardRequest_Read{}}},
		asked(c, &nodepb.GuardRequest{Op: &nodepb.GuardRequest_GrantTo{GrantTo: &nodepb.GuardRequest_Grant{Epoch: 5}}}),
		asked(c, &nodepb.GuardRequest{Op: &nodepb.GuardRequest_Witness_{Witness: &nodepb.GuardRequest_Witness{Message: []byte{1, 0, 0, 1}}}}),
		asked(c, &nodepb.GuardRequest{Op: &nodepb.GuardRequest_Receipts_{Receipts: &nodepb.GuardRequest_Receipts{Lease: make([]byte, 32)}}}),
		asked(c, &nodepb.GuardRequest{Op: &nodepb.GuardRequest_Wage_{Wage: &nodepb.GuardRequest_Wage{Voucher: make([]byte, verify.VoucherSize)}}}),
	}
	for i, op := range ops {
		b, err := proto.Marshal(op)
		guardiantest.Must(f, err)
		f.Add(uint8(i%2), b)
	}
	engage := engaging(f, guardiantest.Network, c, members)
	f.Fuzz(func(t *testing.T, from uint8, b []byte) {
		req := &nodepb.GuardRequest{}
		if proto.Unmarshal(b, req) != nil {
			return
		}
		peers := append([]sign.Key{c.Owner}, c.Keys.Keys...)
		who := peers[int(from)%len(peers)]
		s, _ := running(t, guardiantest.Network, c, store.NewMemory(), nil)
		if _, err := s.Answer(t.Context(), c.Owner, engage); err != nil { // the supervisor is there
			t.Fatal(err)
		}
		reply, err := s.Answer(t.Context(), who, req)
		var declined *stream.Refused
		var bad *stream.Malformed
		switch {
		case err != nil && !errors.As(err, &declined) && !errors.As(err, &bad):
			t.Fatal(err)
		case err == nil && reply.GetSigned() != nil && req.GetVoucher() != nil:
			w := wardIn(s, c.Job)
			l, _ := guardian.ParseLease(req.GetVoucher().GetLease())
			k := w.leases[l.ID()]
			if who != w.Supervisor(w.Epoch) || k == nil || k.Signed.Check(guardiantest.Network.Domain()) != nil {
				t.Fatalf("signed for %s", who.Short())
			}
		case err == nil && reply.GetStanding().GetSignature() != nil && who != c.Owner:
			t.Fatal("granted to another while the supervisor is there")
		}
	})
}
