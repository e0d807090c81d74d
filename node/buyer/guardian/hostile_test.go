package guardian

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/node/nodepb"
	"github.com/starling-network/starling/node/sealed"
	"github.com/starling-network/starling/node/slots"
	"github.com/starling-network/starling/node/store"
	"github.com/starling-network/starling/p2p/p2ptest"
	"github.com/starling-network/starling/p2p/stream"
	"github.com/starling-network/starling/verify"
)

// alone is the service of guardian number 0 of the charter, which nobody can reach.
func alone(t testing.TB, g market.Genesis, c Charter, disk store.Store) (*Service, error) {
	t.Helper()
	key := peerKey(hostOf(c.Keys.Keys[0]))
	ticks := slots.New(clock{time.Now()}, g.SlotMillis, time.Second, p2ptest.Quiet())
	must(t, ticks.Sync(t.Context()))
	return New(t.Context(), Config{
		Genesis: g, Key: key, Store: disk, Slots: ticks, Log: p2ptest.Quiet(), Policy: Policy{Accept: true, MaxJobs: 2, MaxBytes: 100, Longest: time.Hour},
		Unseal: func(p sealed.Purpose, box []byte) ([]byte, error) { return sealed.Open(key, p, box) },
		TakeUp: func(context.Context, Taken) error { return nil }, Yield: func(sign.Hash, uint64) {},
	})
}

func engaging(t testing.TB, g market.Genesis, c Charter, members []Member) *nodepb.GuardRequest {
	t.Helper()
	seed := jobKey.Seed()
	box, err := sealed.Seal(c.Keys.Keys[0], SealedFor(g.Tag(), c.Job), seed[:])
	must(t, err)
	return &nodepb.GuardRequest{Job: c.Job[:], Op: &nodepb.GuardRequest_Engage_{Engage: &nodepb.GuardRequest_Engage{
		Sealed: box, Threshold: uint32(c.Keys.Threshold), Guardians: pbMembers(members), UntilMillis: uint64(time.Now().Add(time.Minute).UnixMilli()),
	}}}
}

// TestAttackGuardianPlaces: owners of one network, each with a key of its own, and one owner from everywhere take a part of a guardian's
// places; others get the rest, also after a restart. What was dismissed makes room.
func TestAttackGuardianPlaces(t *testing.T) {
	t.Parallel()
	base, members := charterOf(t, 3, 2)
	disk := store.NewMemory()
	at := netip.Prefix{}
	start := func() *Service {
		s, err := alone(t, network, base, disk)
		must(t, err)
		s.cfg.Policy.MaxJobs = 16
		s.at = func(sign.Key) netip.Prefix { return at }
		return s
	}
	s, n := start(), 0
	engage := func(owner string) error {
		c := base
		c.Owner, c.Job = named(owner).Key(), sign.Sum([]byte(fmt.Sprint("job", n)))
		n++
		_, err := s.answer(t.Context(), c.Owner, engaging(t, network, c, members))
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
	if _, err := s.offer(named("x").Key()); err == nil {
		t.Error("a network that has its share is offered more")
	}
	s = start()
	if got := take(keys); got != 0 {
		t.Errorf("after a restart the same network has %d more guarded", got)
	}
	at = netip.Prefix{}
	if got := take(func(int) string { return "one" }); got != s.cfg.Policy.share() {
		t.Errorf("one key has %d of 16 jobs guarded", got)
	}
	at = netip.MustParsePrefix("2001:db8::/56")
	must(t, engage("else"))
}

// by is what the owner asks in its first epoch.
func by(c Charter, op *nodepb.GuardRequest) *nodepb.GuardRequest {
	return &nodepb.GuardRequest{Job: c.Job[:], Epoch: 1, Op: op.Op}
}

func ownersWord(t testing.TB, c Charter, kind byte, content sign.Hash) Word {
	t.Helper()
	sig, err := peerKey(0).Sign(preimage(network.Domain(), c.Job, 1, kind, content))
	must(t, err)
	return Word{Epoch: 1, Signature: sig}
}

func beatWith(t testing.TB, c Charter, s State) *nodepb.GuardRequest {
	t.Helper()
	return by(c, &nodepb.GuardRequest{Op: &nodepb.GuardRequest_Beat_{Beat: &nodepb.GuardRequest_Beat{State: said{s, ownersWord(t, c, wordState, s.hash())}.pb()}}})
}

func vouching(t testing.TB, c Charter, l Lease) *nodepb.GuardRequest {
	t.Helper()
	return by(c, &nodepb.GuardRequest{Op: &nodepb.GuardRequest_Voucher_{Voucher: &nodepb.GuardRequest_Voucher{Lease: l.pb(ownersWord(t, c, wordLease, l.hash()))}}})
}

// granting is a proof that an epoch was granted to whoever it belongs to.
func granting(t testing.TB, c Charter, epoch uint64) []byte {
	t.Helper()
	g := verify.SignedSupervisionGrant{SupervisionGrant: verify.SupervisionGrant{Version: 1, Job: c.Job, Epoch: epoch, Supervisor: c.Supervisor(epoch),
		Guardians: c.Keys.Hash()}, Signatures: verify.Signatures{Set: c.Keys}}
	for _, k := range c.Keys.Keys[:c.Keys.Threshold] {
		var err error
		g, err = g.With(network.Domain(), peerKey(hostOf(k)))
		must(t, err)
	}
	return g.Marshal()
}

// Safety: the power is cut at each write, before and after it. What was answered is remembered by the process that comes next:
// the job, its state, its leases and receipts, the epoch that it was shown; and it goes on.
func TestCrashAtEachWrite(t *testing.T) {
	t.Parallel()
	c, members := charterOf(t, 3, 2)
	lease := startPaying(t, c, 1, firstSlot, 1)
	first := lease.handed()
	lease.receipt(firstSlot+10, firstSlot+10, false)
	second := lease.handed()
	owner, engage := c.Owner, engaging(t, network, c, members)
	taking := &nodepb.GuardRequest{Job: c.Job[:], Epoch: 2, Grant: granting(t, c, 2), Op: &nodepb.GuardRequest_Read_{Read: &nodepb.GuardRequest_Read{}}}
	steps := []*nodepb.GuardRequest{engage, beatWith(t, c, State{Version: 1, Bytes: []byte("one")}), vouching(t, c, first), vouching(t, c, second),
		beatWith(t, c, State{Version: 2, Bytes: []byte("two")}), taking, by(c, &nodepb.GuardRequest{Op: &nodepb.GuardRequest_Dismiss_{Dismiss: &nodepb.GuardRequest_Dismiss{}}})}
	run := func(at int, when store.When) (writes int) {
		disk := store.NewMemory()
		crashing := store.NewCrashing(disk)
		crashing.CrashAt(at, when)
		s, err := alone(t, network, c, crashing)
		must(t, err)
		answered := 0
		for _, req := range steps {
			if _, err := s.answer(t.Context(), owner, req); err != nil {
				if !errors.Is(err, store.ErrCrashed) {
					t.Fatalf("crash at %d: step %d: %v", at, answered, err)
				}
				break
			}
			answered++
		}
		s, err = alone(t, network, c, disk)
		must(t, err)
		w := s.find(c.Job)
		switch {
		case answered == 0:
		case w == nil:
			t.Fatalf("crash at %d: the job is forgotten", at)
		case w.Dismissed:
		case answered > 1 && w.state == nil, answered > 4 && w.state.Version != 2:
			t.Fatalf("crash at %d: after %d answers the state is %+v", at, answered, w.state)
		case answered > 2 && w.leases[first.ID()] == nil, answered > 3 && (w.leases[first.ID()].payer.Last().Seq != 1 || w.receipts != 1):
			t.Fatalf("crash at %d: after %d answers the lease is forgotten", at, answered)
		case answered > 5 && w.Epoch != 2:
			t.Fatalf("crash at %d: after %d answers the epoch is %d", at, answered, w.Epoch)
		}
		if answered > 3 && answered < 6 {
			if _, err := s.answer(t.Context(), owner, vouching(t, c, first)); !refused(err, CodeVoucher) && !refused(err, CodeSuperseded) {
				t.Fatalf("crash at %d: an older voucher: %v", at, err)
			}
		}
		for i, req := range steps { // the owner asks again what it has no answer to, and all before it
			var r *stream.Refused
			if _, err := s.answer(t.Context(), owner, req); err != nil && !errors.As(err, &r) {
				t.Fatalf("crash at %d: step %d again: %v", at, i, err)
			}
		}
		if w := s.find(c.Job); !w.Dismissed || len(w.leases) > 0 || w.Sealed != nil {
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
		must(t, disk.List(t.Context(), kind, "", func(string, []byte) error { n++; return nil }))
	}
	return n
}

// A supervisor's transaction is signed as the chain wants it, and what was opened is remembered.
func TestWitnessedEscrowIsRemembered(t *testing.T) {
	t.Parallel()
	g := escrowed()
	c, members := charterOf(t, 3, 2)
	disk := store.NewMemory()
	s, err := alone(t, g, c, disk)
	must(t, err)
	ask := func(message []byte) (*nodepb.GuardReply, error) {
		return s.answer(t.Context(), c.Owner, by(c, &nodepb.GuardRequest{Op: &nodepb.GuardRequest_Witness_{Witness: &nodepb.GuardRequest_Witness{Message: message}}}))
	}
	_, err = s.answer(t.Context(), c.Owner, engaging(t, g, c, members))
	must(t, err)
	open, hire := calls(Ward{Charter: c})
	if _, err := ask(messageOf(t, c.Owner, hire.Instruction(g.Program))); !refused(err, CodeWitness) {
		t.Fatalf("hiring from no escrow: %v", err)
	}
	message := messageOf(t, c.Owner, open.Instruction(g.Program))
	reply, err := ask(message)
	must(t, err)
	_, err = signatureOf(Member{Key: c.Keys.Keys[0]}, reply.GetSigned().GetSignature(), message)
	must(t, err)
	s, err = alone(t, g, c, disk)
	must(t, err)
	_, err = ask(messageOf(t, c.Owner, hire.Instruction(g.Program)))
	must(t, err)
}

// FuzzRequest: whatever a part of the job asks, a guardian answers or declines, and signs no voucher that was not earned.
func FuzzRequest(f *testing.F) {
	c, members := charterOf(f, 3, 2)
	lease := startPaying(f, c, 1, firstSlot, 1).handed()
	ops := []*nodepb.GuardRequest{beatWith(f, c, State{Version: 1, Bytes: []byte("s")}), vouching(f, c, lease),
		{Job: c.Job[:], Epoch: 2, Grant: granting(f, c, 2), Op: &nodepb.GuardRequest_Read_{Read: &nodepb.GuardRequest_Read{}}},
		by(c, &nodepb.GuardRequest{Op: &nodepb.GuardRequest_GrantTo{GrantTo: &nodepb.GuardRequest_Grant{Epoch: 5}}}),
		by(c, &nodepb.GuardRequest{Op: &nodepb.GuardRequest_Witness_{Witness: &nodepb.GuardRequest_Witness{Message: []byte{1, 0, 0, 1}}}}),
		by(c, &nodepb.GuardRequest{Op: &nodepb.GuardRequest_Receipts_{Receipts: &nodepb.GuardRequest_Receipts{Lease: make([]byte, 32)}}}),
		by(c, &nodepb.GuardRequest{Op: &nodepb.GuardRequest_Wage_{Wage: &nodepb.GuardRequest_Wage{Voucher: make([]byte, verify.VoucherSize)}}}),
	}
	for i, op := range ops {
		b, err := proto.Marshal(op)
		must(f, err)
		f.Add(uint8(i%2), b)
	}
	s, err := alone(f, network, c, store.NewMemory())
	must(f, err)
	engage := engaging(f, network, c, members)
	f.Fuzz(func(t *testing.T, from uint8, b []byte) {
		req := &nodepb.GuardRequest{}
		if proto.Unmarshal(b, req) != nil {
			return
		}
		peers := append([]sign.Key{c.Owner}, c.Keys.Keys...)
		who := peers[int(from)%len(peers)]
		if s.find(c.Job) == nil || s.find(c.Job).Dismissed {
			s.cfg.Store = store.NewMemory()
			s.wards = map[sign.Hash]*ward{}
			if _, err := s.answer(t.Context(), c.Owner, engage); err != nil {
				t.Fatal(err)
			}
		}
		s.find(c.Job).heard = time.Now() // the supervisor is there
		reply, err := s.answer(t.Context(), who, req)
		var declined *stream.Refused
		var bad *stream.Malformed
		switch {
		case err != nil && !errors.As(err, &declined) && !errors.As(err, &bad):
			t.Fatal(err)
		case err == nil && reply.GetSigned() != nil && req.GetVoucher() != nil:
			w := s.find(c.Job)
			l, _, _ := leaseOf(req.GetVoucher().GetLease())
			k := w.leases[l.ID()]
			if who != w.Supervisor(w.Epoch) || k == nil || k.Signed.Check(network.Domain()) != nil {
				t.Fatalf("signed for %s", who.Short())
			}
		case err == nil && reply.GetStanding().GetSignature() != nil && who != c.Owner:
			t.Fatal("granted to another while the supervisor is there")
		}
	})
}

// FuzzStanding: whatever a guardian says of a job, only what a supervisor said is taken.
func FuzzStanding(f *testing.F) {
	c, members := charterOf(f, 3, 2)
	lease := startPaying(f, c, 1, firstSlot, 1).handed()
	state := State{Version: 1, Bytes: []byte("s")}
	b, err := proto.Marshal(&nodepb.GuardReply_Standing{Epoch: 1, State: said{state, ownersWord(f, c, wordState, state.hash())}.pb(),
		Leases: []*nodepb.GuardedLease{lease.pb(ownersWord(f, c, wordLease, lease.hash()))}})
	must(f, err)
	f.Add(b)
	b, err = proto.Marshal(&nodepb.GuardReply_Standing{Epoch: 2, Grant: granting(f, c, 2)})
	must(f, err)
	f.Add(b)
	f.Fuzz(func(t *testing.T, b []byte) {
		st := &nodepb.GuardReply_Standing{}
		if proto.Unmarshal(b, st) != nil {
			return
		}
		p := NewPanel(PanelConfig{Genesis: network, Key: peerKey(0), Charter: c, Members: members})
		defer p.Close()
		v := &view{leases: map[market.LeaseID]*kept{}}
		if p.takeHead(v, st) == nil && v.state != nil && v.state.hash() != state.hash() {
			t.Fatalf("nobody said state %+v", v.state)
		}
		if _, err := p.takeLeases(v, st); err != nil {
			return
		}
		if p.takeHead(v, st) == nil {
			s := Standing{Epoch: 1, leases: map[market.LeaseID]*kept{}}
			s.add(v)
			s = p.merged(s)
			if s.Epoch != 1 && c.CheckGrant(network.Domain(), s.Epoch, s.Grant) != nil {
				t.Fatalf("epoch %d was not granted", s.Epoch)
			}
			if slices.ContainsFunc(s.Leases, func(l Lease) bool { return l.hash() != lease.hash() }) {
				t.Fatal("nobody said such a lease")
			}
		}
	})
}
