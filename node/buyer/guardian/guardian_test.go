package guardian_test

import (
	"bytes"
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/node/buyer/guardian"
	"github.com/starling-network/starling/node/buyer/guardian/guardiantest"
	"github.com/starling-network/starling/node/nodepb"
	"github.com/starling-network/starling/p2p/stream"
	"github.com/starling-network/starling/verify"
	"github.com/starling-network/starling/verify/meter"
)

// The owner is away, one guardian is dead: another takes the job over where it stands, is obeyed by the others, and the owner,
// back, takes it over again.
func TestOwnerAwayAndGuardianDead(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 3, 2)
		p := w.owner()
		guardiantest.Must(t, p.Engage(t.Context(), w.engagement()))
		guardiantest.Must(t, p.Engage(t.Context(), w.engagement())) // again, the same
		stop := w.beating(p)
		lease := guardiantest.StartPaying(t, w.charter, 1, w.now(), 1)
		v, err := p.SignVoucher(t.Context(), lease.Handed())
		guardiantest.Must(t, err)
		guardiantest.Must(t, v.Check(guardiantest.Network.Domain(), lease.Signed.Core))
		guardiantest.Must(t, p.Beat(t.Context(), &guardian.State{Version: 1, Bytes: []byte("one"), Files: []guardian.File{guardiantest.FileOf("part")}}))
		guardiantest.Must(t, p.Beat(t.Context(), &guardian.State{Version: 2, Bytes: []byte("two"), Files: []guardian.File{guardiantest.FileOf("part")}}))
		for range 3 {
			time.Sleep(time.Second)
			lease.Receipt(w.now(), w.now(), false)
			v, err = p.SignVoucher(t.Context(), lease.Handed())
			guardiantest.Must(t, err)
			guardiantest.Must(t, v.Check(guardiantest.Network.Domain(), lease.Signed.Core))
		}
		if v.Seq != 4 || v.Cumulative != 100 { // four intervals of ten slots at 2.5
			t.Fatalf("voucher %+v", v.Voucher)
		}
		stop()
		first := guardiantest.HostOf(w.charter.Supervisor(2)) // which would go first
		w.crash(first)
		silent := time.Now()
		i, taken := w.supervising(1)
		took := time.Since(silent)
		if want := guardian.TimingOf(guardiantest.Network); took > want.Silent+want.Turn+time.Second {
			t.Errorf("the take-over took %v", took)
		}
		if i == first || string(taken.File) != "job" || taken.State == nil || string(taken.State.Bytes) != "two" || len(taken.Leases) != 1 || taken.Key.Key() != guardiantest.JobKey.Key() {
			t.Fatalf("host %d took up %+v", i, taken)
		}
		if err := p.Beat(t.Context(), nil); !errors.Is(err, guardian.ErrSuperseded) {
			t.Fatalf("the owner's beat: %v", err)
		}
		if _, err := p.SignVoucher(t.Context(), lease.Handed()); !errors.Is(err, guardian.ErrSuperseded) {
			t.Fatalf("the owner's voucher: %v", err)
		}
		stop = w.beating(taken.Panel)
		epoch, _ := taken.Panel.Epoch()
		on := guardiantest.Resume(t, w.charter, taken.Leases[0], epoch)
		on.Receipt(w.now(), on.Payer.Last().To+10, false)
		v, err = taken.Panel.SignVoucher(t.Context(), on.Handed())
		guardiantest.Must(t, err)
		guardiantest.Must(t, v.Check(guardiantest.Network.Domain(), on.Signed.Core))
		if v.Supervision != epoch || v.Seq != 5 {
			t.Fatalf("voucher %+v", v.Voucher)
		}
		guardiantest.Must(t, taken.Panel.Beat(t.Context(), &guardian.State{Version: 1, Bytes: []byte("three")}))
		// The owner is back.
		standing, err := p.Grant(t.Context())
		guardiantest.Must(t, err)
		if standing.Epoch <= epoch || string(standing.State.Bytes) != "three" || len(standing.Leases) != 1 {
			t.Fatalf("the owner found %+v", standing)
		}
		if err := taken.Panel.Beat(t.Context(), nil); !errors.Is(err, guardian.ErrSuperseded) {
			t.Fatalf("the guardian's beat: %v", err)
		}
		guardiantest.Must(t, p.Beat(t.Context(), nil))
		n := w.nodes[i]
		n.mu.Lock()
		if !slices.Equal(n.yield, []uint64{standing.Epoch}) {
			t.Errorf("the guardian was told to yield to epochs %v", n.yield)
		}
		n.mu.Unlock()
		rs, err := p.Receipts(t.Context(), lease.Signed.Core)
		guardiantest.Must(t, err)
		guardiantest.Must(t, verify.CheckChain(guardiantest.Network.Domain(), lease.Signed.Core, rs))
		if len(rs) != 4 {
			t.Fatalf("%d receipts", len(rs))
		}
		stop()
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		if err := p.Dismiss(ctx); !errors.Is(err, guardian.ErrMinority) { // one is dead
			t.Fatal(err)
		}
		if got := len(n.s.Jobs()); got != 0 {
			t.Errorf("%d jobs are guarded", got)
		}
	})
}

// As long as the supervisor beats, nobody takes over; a lone guardian that wants to cannot, nor can it pay.
func TestLoneGuardianCanDoNothing(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 3, 2)
		p := w.owner()
		guardiantest.Must(t, p.Engage(t.Context(), w.engagement()))
		defer w.beating(p)()
		lease := guardiantest.StartPaying(t, w.charter, 1, w.now(), 1)
		_, err := p.SignVoucher(t.Context(), lease.Handed())
		guardiantest.Must(t, err)
		evil := guardiantest.HostOf(w.charter.Supervisor(2))
		panel := w.panel(evil, 1, nil)
		for range 20 {
			_, err := panel.Grant(t.Context())
			if !errors.Is(err, guardian.ErrMinority) {
				t.Fatalf("a guardian was granted the job of a supervisor that is there: %v", err)
			}
			time.Sleep(300 * time.Millisecond)
		}
		if _, err := panel.SignVoucher(t.Context(), lease.Handed()); err == nil {
			t.Fatal("a guardian had a voucher signed")
		}
		if err := panel.Beat(t.Context(), &guardian.State{Version: 9, Bytes: []byte("mine")}); !errors.Is(err, guardian.ErrSuperseded) {
			t.Fatalf("a guardian's beat: %v", err)
		}
		// With signatures of its own under everything, in its own name and in others'.
		forged := verify.SignedSupervisionGrant{SupervisionGrant: verify.SupervisionGrant{Version: 1, Job: guardiantest.JobTerms, Epoch: 2, Supervisor: guardiantest.PeerKey(evil).Key(),
			Guardians: w.charter.Keys.Hash()}, Signatures: verify.Signatures{Set: w.charter.Keys}}
		forged, err = forged.With(guardiantest.Network.Domain(), guardiantest.PeerKey(evil))
		guardiantest.Must(t, err)
		forged.Sigs = append(forged.Sigs, forged.Sigs[0])
		forged.Sigs[1].Index++
		other := 1 + evil%3
		for _, req := range []*nodepb.GuardRequest{
			{Job: guardiantest.JobTerms[:], Epoch: 2, Grant: forged.Marshal(), Op: &nodepb.GuardRequest_Beat_{Beat: &nodepb.GuardRequest_Beat{}}},
			{Job: guardiantest.JobTerms[:], Epoch: 1, Op: &nodepb.GuardRequest_Beat_{Beat: &nodepb.GuardRequest_Beat{}}},
			{Job: guardiantest.JobTerms[:], Epoch: 1, Op: &nodepb.GuardRequest_Dismiss_{Dismiss: &nodepb.GuardRequest_Dismiss{}}},
			{Job: guardiantest.JobTerms[:], Epoch: 1, Op: &nodepb.GuardRequest_GrantTo{GrantTo: &nodepb.GuardRequest_Grant{Epoch: 1}}},
			{Job: guardiantest.JobTerms[:], Epoch: 1, Op: &nodepb.GuardRequest_GrantTo{GrantTo: &nodepb.GuardRequest_Grant{Epoch: 3}}},
			{Job: guardiantest.JobTerms[:], Epoch: 1, Op: &nodepb.GuardRequest_GrantTo{GrantTo: &nodepb.GuardRequest_Grant{Epoch: 1 << 60}}},
			{Job: guardiantest.JobTerms[:], Epoch: 1},
		} {
			if _, err := w.raw(evil, other, req); err == nil {
				t.Errorf("%v was answered", req)
			}
		}
		for i := 1; i <= 3; i++ {
			if n := w.nodes[i].times(); n > 0 {
				t.Errorf("guardian %d took the job up %d times", i, n)
			}
		}
	})
}

// One guardian lies about everything that it is asked: what it says is not believed, and what it leaves out the others have.
func TestOneGuardianLies(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 3, 2)
		p := w.owner()
		guardiantest.Must(t, p.Engage(t.Context(), w.engagement()))
		evil := guardiantest.HostOf(w.charter.Supervisor(4)) // the last to go
		w.malicious(evil, func(req *nodepb.GuardRequest) *nodepb.GuardReply {
			switch req.Op.(type) {
			case *nodepb.GuardRequest_Voucher_, *nodepb.GuardRequest_Witness_:
				return &nodepb.GuardReply{Op: &nodepb.GuardReply_Signed_{
					Signed: &nodepb.GuardReply_Signed{Signature: append([]byte{1, 2, 3}, make([]byte, 61)...)},
				}}
			case *nodepb.GuardRequest_Read_:
				forged := guardian.State{Version: 99, Bytes: []byte("forged")}
				st, _ := w.charter.SignState(guardiantest.Network.Domain(), guardiantest.PeerKey(evil), 1, nil, forged)
				return &nodepb.GuardReply{Op: &nodepb.GuardReply_Standing_{Standing: &nodepb.GuardReply_Standing{Epoch: 1, State: st.PB()}}}
			case *nodepb.GuardRequest_GrantTo:
				b := make([]byte, 64)
				return &nodepb.GuardReply{Op: &nodepb.GuardReply_Standing_{Standing: &nodepb.GuardReply_Standing{Epoch: 99, Signature: b}}}
			case *nodepb.GuardRequest_Receipts_:
				return &nodepb.GuardReply{Op: &nodepb.GuardReply_Receipts{Receipts: &nodepb.GuardReply_ReceiptList{Receipts: [][]byte{make([]byte, verify.ReceiptSize)}, More: true}}}
			}
			return nil
		})
		lease := guardiantest.StartPaying(t, w.charter, 1, w.now(), 1)
		v, err := p.SignVoucher(t.Context(), lease.Handed())
		guardiantest.Must(t, err)
		guardiantest.Must(t, v.Check(guardiantest.Network.Domain(), lease.Signed.Core))
		guardiantest.Must(t, p.Beat(t.Context(), &guardian.State{Version: 1, Bytes: []byte("true")}))
		standing, err := p.Read(t.Context())
		guardiantest.Must(t, err)
		if standing.Epoch != 1 || string(standing.State.Bytes) != "true" || len(standing.Leases) != 1 || standing.Answers != 2 {
			t.Fatalf("read %+v", standing)
		}
		_, err = p.Receipts(t.Context(), lease.Signed.Core)
		guardiantest.Must(t, err)
		i, taken := w.supervising(1)
		if i == evil || string(taken.State.Bytes) != "true" {
			t.Fatalf("host %d took up %+v", i, taken)
		}
		guardiantest.Must(t, taken.Panel.Beat(t.Context(), nil))
	})
}

// A supervisor that is there and does not pay is replaced; one whose provider is gone, and says so, is not.
func TestSupervisorThatDoesNotPay(t *testing.T) {
	t.Parallel()
	for name, stopped := range map[string]bool{"does not pay": false, "says that it stopped": true} {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t, 3, 2)
			p := w.owner()
			guardiantest.Must(t, p.Engage(t.Context(), w.engagement()))
			defer w.beating(p)()
			lease := guardiantest.StartPaying(t, w.charter, 1, w.now(), 1)
			_, err := p.SignVoucher(t.Context(), lease.Handed())
			guardiantest.Must(t, err)
			if stopped {
				time.Sleep(time.Second)
				lease.Step(w.now(), meter.Stopped{Reason: "lost"})
				_, err := p.SignVoucher(t.Context(), lease.Handed())
				guardiantest.Must(t, err)
				time.Sleep(20 * time.Second)
				for i := 1; i <= 3; i++ {
					if w.nodes[i].times() > 0 {
						t.Errorf("%s: guardian %d took over", name, i)
					}
				}
				return
			}
			_, taken := w.supervising(1)
			if len(taken.Leases) != 1 {
				t.Errorf("%s: %d leases", name, len(taken.Leases))
			}
		})
	}
}

// A guardian that was down is told what it missed, and reads it from the others when it is back.
func TestGuardianBackAfterCrash(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 3, 2)
		p := w.owner()
		guardiantest.Must(t, p.Engage(t.Context(), w.engagement()))
		defer w.beating(p)()
		disk := w.crash(1)
		lease := guardiantest.StartPaying(t, w.charter, 1, w.now(), 1)
		_, err := p.SignVoucher(t.Context(), lease.Handed())
		guardiantest.Must(t, err)
		guardiantest.Must(t, p.Beat(t.Context(), &guardian.State{Version: 1, Bytes: []byte("state")}))
		w.back(1, disk)
		for range 100 {
			st, knows := w.nodes[1].s.State(guardiantest.JobTerms)
			reply, err := w.raw(0, 1, &nodepb.GuardRequest{Job: guardiantest.JobTerms[:], Epoch: 1, Op: &nodepb.GuardRequest_Read_{}})
			if err == nil && knows && string(st.Bytes) == "state" && len(reply.GetStanding().GetLeases()) == 1 {
				return
			}
			time.Sleep(100 * time.Millisecond)
		}
		t.Fatal("it never learnt what it missed")
	})
}

// A guardian that supervises and is started again goes on.
func TestSupervisorRestarts(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 3, 2)
		p := w.owner()
		guardiantest.Must(t, p.Engage(t.Context(), w.engagement()))
		i, taken := w.supervising(1)
		epoch, _ := taken.Panel.Epoch()
		guardiantest.Must(t, taken.Panel.Beat(t.Context(), &guardian.State{Version: 1, Bytes: []byte("state")}))
		disk := w.crash(i)
		w.back(i, disk)
		j, again := w.supervising(epoch - 1)
		if got, _ := again.Panel.Epoch(); j != i || got != epoch || string(again.State.Bytes) != "state" {
			t.Fatalf("host %d went on under epoch %d with %+v", j, got, again.State)
		}
		guardiantest.Must(t, again.Panel.Beat(t.Context(), &guardian.State{Version: 2, Over: true}))
		// Once it is over, nobody supervises; the owner may read, and dismiss.
		time.Sleep(20 * time.Second)
		standing, err := p.Read(t.Context())
		guardiantest.Must(t, err)
		if standing.Epoch != epoch || !standing.State.Over {
			t.Fatalf("read %+v", standing)
		}
		guardiantest.Must(t, p.Dismiss(t.Context()))
		_, err = p.Read(t.Context())
		if err == nil {
			standing, _ = p.Read(t.Context())
			if standing.State != nil || len(standing.Leases) > 0 {
				t.Fatalf("after it was dismissed: %+v", standing)
			}
		}
	})
}

// An engagement that a guardian does not want, or that is not right, is refused with its reason.
func TestEngageRefusals(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 3, 2)
		p := w.owner()
		request := func(change func(*nodepb.GuardRequest_Engage)) *nodepb.GuardRequest {
			e := w.engagement()
			box := sealedTo(t, 1)
			pb := guardian.Engaged{
				Keys: w.charter.Keys, Members: w.members, Sealed: box, File: e.File, Files: e.Files, Addrs: e.Addrs, Until: e.Until,
			}.PB()
			change(pb)
			return &nodepb.GuardRequest{Job: guardiantest.JobTerms[:], Op: &nodepb.GuardRequest_Engage_{Engage: pb}}
		}
		for name, change := range map[string]func(*nodepb.GuardRequest_Engage){
			"no majority":         func(e *nodepb.GuardRequest_Engage) { e.Threshold = 1 },
			"threshold of 300":    func(e *nodepb.GuardRequest_Engage) { e.Threshold = 300 },
			"too many":            func(e *nodepb.GuardRequest_Engage) { e.Threshold = 3; e.Guardians = e.Guardians[:2] },
			"not this peer":       func(e *nodepb.GuardRequest_Engage) { e.Guardians = without(e.Guardians, guardiantest.PeerKey(1).Key()) },
			"out of order":        func(e *nodepb.GuardRequest_Engage) { slices.Reverse(e.Guardians) },
			"no key":              func(e *nodepb.GuardRequest_Engage) { e.Sealed = nil },
			"another's key":       func(e *nodepb.GuardRequest_Engage) { e.Sealed = sealedTo(t, 2) },
			"large":               func(e *nodepb.GuardRequest_Engage) { e.File = make([]byte, guardian.MaxFile+1) },
			"many files":          func(e *nodepb.GuardRequest_Engage) { e.Files = slices.Repeat(e.Files, guardian.MaxFiles+1) },
			"large files":         func(e *nodepb.GuardRequest_Engage) { e.Files[0].Size = 101 },
			"files that overflow": func(e *nodepb.GuardRequest_Engage) { e.Files[0].Size = 1 << 63 },
			"no digest":           func(e *nodepb.GuardRequest_Engage) { e.Files[0].Cid = []byte{1} },
			"too long":            func(e *nodepb.GuardRequest_Engage) { e.UntilMillis += 3_600_000 },
			"over":                func(e *nodepb.GuardRequest_Engage) { e.UntilMillis = 1 },
			"for ever":            func(e *nodepb.GuardRequest_Engage) { e.UntilMillis = 1 << 63 },
			"many addresses":      func(e *nodepb.GuardRequest_Engage) { e.Addrs = make([]string, 17) },
			"wage of another": func(e *nodepb.GuardRequest_Engage) {
				c := guardiantest.NewLease(w.charter, 1, 10).Core.Marshal()
				e.Guardians[0].Wage = c[:]
			},
			"wage that is none": func(e *nodepb.GuardRequest_Engage) { e.Guardians[0].Wage = []byte{1} },
		} {
			_, err := w.raw(0, 1, request(change))
			var refused *stream.Refused
			var bad *stream.Malformed
			if !errors.As(err, &refused) && !errors.As(err, &bad) {
				t.Errorf("%s: %v", name, err)
			}
		}
		w.mu.Lock()
		w.missing = map[int]bool{0: true, 2: true, 3: true}
		w.mu.Unlock()
		_, err := w.raw(0, 1, request(func(*nodepb.GuardRequest_Engage) {}))
		wantCode(t, err, guardian.CodeFetching)
		w.mu.Lock()
		w.missing = map[int]bool{}
		w.mu.Unlock()
		guardiantest.Must(t, p.Engage(t.Context(), w.engagement()))
		_, err = w.raw(0, 1, request(func(e *nodepb.GuardRequest_Engage) { e.File = []byte("other") }))
		wantCode(t, err, guardian.CodeOther)
		_, err = w.raw(2, 1, request(func(*nodepb.GuardRequest_Engage) {})) // a guardian cannot own it
		var bad *stream.Malformed
		if !errors.As(err, &bad) {
			t.Errorf("engaged by a guardian: %v", err)
		}
		// A stranger learns nothing.
		for _, op := range []*nodepb.GuardRequest{{Op: &nodepb.GuardRequest_Read_{Read: &nodepb.GuardRequest_Read{}}}, {Job: guardiantest.JobTerms[:31]}, {Job: make([]byte, 32)}} {
			if _, err := w.raw(0, 1, op); err == nil {
				t.Errorf("%v was answered", op)
			}
		}
		offers := guardian.Offers(t.Context(), w.net.Hosts[0], guardiantest.Network, []guardian.Candidate{{guardiantest.PeerKey(1).Key(), w.addrs(1)}, {guardiantest.PeerKey(2).Key(), w.addrs(2)}, {guardiantest.PeerKey(9).Key(), nil}})
		if len(offers) != 2 || offers[0].Payout != (sign.Key{1}) || offers[0].MaxBytes != 100 || offers[0].Longest != time.Hour {
			t.Errorf("offers %+v", offers)
		}
	})
}

// More leases than one answer holds are all read.
func TestReadInPages(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 3, 2)
		p := w.owner()
		guardiantest.Must(t, p.Engage(t.Context(), w.engagement()))
		defer w.beating(p)()
		var want []guardian.Lease
		for i := range 24 {
			l := guardiantest.StartPaying(t, w.charter, byte(i), w.now(), 1).Handed()
			l.Record = bytes.Repeat([]byte{byte(i)}, guardian.MaxRecord)
			_, err := p.SignVoucher(t.Context(), l)
			guardiantest.Must(t, err)
			want = append(want, l)
		}
		standing, err := p.Read(t.Context())
		guardiantest.Must(t, err)
		if !slices.Equal(sortedIDs(standing.Leases), sortedIDs(want)) {
			t.Fatalf("read %d leases of %d", len(standing.Leases), len(want))
		}
	})
}
