package guardian

import (
	"bytes"
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/starling-network/starling/market/sign"
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
		must(t, p.Engage(t.Context(), w.engagement()))
		must(t, p.Engage(t.Context(), w.engagement())) // again, the same
		stop := w.beating(p)
		lease := startPaying(t, w.charter, 1, w.now(), 1)
		v, err := p.SignVoucher(t.Context(), lease.handed())
		must(t, err)
		must(t, v.Check(network.Domain(), lease.lease.Core))
		must(t, p.Beat(t.Context(), &State{Version: 1, Bytes: []byte("one"), Files: []File{fileOf("part")}}))
		must(t, p.Beat(t.Context(), &State{Version: 2, Bytes: []byte("two"), Files: []File{fileOf("part")}}))
		for range 3 {
			time.Sleep(time.Second)
			lease.receipt(w.now(), w.now(), false)
			v, err = p.SignVoucher(t.Context(), lease.handed())
			must(t, err)
			must(t, v.Check(network.Domain(), lease.lease.Core))
		}
		if v.Seq != 4 || v.Cumulative != 100 { // four intervals of ten slots at 2.5
			t.Fatalf("voucher %+v", v.Voucher)
		}
		stop()
		first := hostOf(w.charter.Supervisor(2)) // which would go first
		w.crash(first)
		silent := time.Now()
		i, taken := w.supervising(1)
		took := time.Since(silent)
		if want := TimingOf(network); took > want.Silent+want.Turn+time.Second {
			t.Errorf("the take-over took %v", took)
		}
		if i == first || string(taken.File) != "job" || taken.State == nil || string(taken.State.Bytes) != "two" || len(taken.Leases) != 1 || taken.Key.Key() != jobKey.Key() {
			t.Fatalf("host %d took up %+v", i, taken)
		}
		if err := p.Beat(t.Context(), nil); !errors.Is(err, ErrSuperseded) {
			t.Fatalf("the owner's beat: %v", err)
		}
		if _, err := p.SignVoucher(t.Context(), lease.handed()); !errors.Is(err, ErrSuperseded) {
			t.Fatalf("the owner's voucher: %v", err)
		}
		stop = w.beating(taken.Panel)
		epoch, _ := taken.Panel.Epoch()
		on := resume(t, w.charter, taken.Leases[0], epoch)
		on.receipt(w.now(), on.payer.Last().To+10, false)
		v, err = taken.Panel.SignVoucher(t.Context(), on.handed())
		must(t, err)
		must(t, v.Check(network.Domain(), on.lease.Core))
		if v.Supervision != epoch || v.Seq != 5 {
			t.Fatalf("voucher %+v", v.Voucher)
		}
		must(t, taken.Panel.Beat(t.Context(), &State{Version: 1, Bytes: []byte("three")}))
		// The owner is back.
		standing, err := p.Grant(t.Context())
		must(t, err)
		if standing.Epoch <= epoch || string(standing.State.Bytes) != "three" || len(standing.Leases) != 1 {
			t.Fatalf("the owner found %+v", standing)
		}
		if err := taken.Panel.Beat(t.Context(), nil); !errors.Is(err, ErrSuperseded) {
			t.Fatalf("the guardian's beat: %v", err)
		}
		must(t, p.Beat(t.Context(), nil))
		n := w.nodes[i]
		n.mu.Lock()
		if !slices.Equal(n.yield, []uint64{standing.Epoch}) {
			t.Errorf("the guardian was told to yield to epochs %v", n.yield)
		}
		n.mu.Unlock()
		rs, err := p.Receipts(t.Context(), lease.lease.Core)
		must(t, err)
		must(t, verify.CheckChain(network.Domain(), lease.lease.Core, rs))
		if len(rs) != 4 {
			t.Fatalf("%d receipts", len(rs))
		}
		stop()
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		if err := p.Dismiss(ctx); !errors.Is(err, ErrMinority) { // one is dead
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
		must(t, p.Engage(t.Context(), w.engagement()))
		defer w.beating(p)()
		lease := startPaying(t, w.charter, 1, w.now(), 1)
		_, err := p.SignVoucher(t.Context(), lease.handed())
		must(t, err)
		evil := hostOf(w.charter.Supervisor(2))
		panel := w.panel(evil, 1, nil)
		for range 20 {
			_, err := panel.Grant(t.Context())
			if !errors.Is(err, ErrMinority) {
				t.Fatalf("a guardian was granted the job of a supervisor that is there: %v", err)
			}
			time.Sleep(300 * time.Millisecond)
		}
		if _, err := panel.SignVoucher(t.Context(), lease.handed()); err == nil {
			t.Fatal("a guardian had a voucher signed")
		}
		if err := panel.Beat(t.Context(), &State{Version: 9, Bytes: []byte("mine")}); !errors.Is(err, ErrSuperseded) {
			t.Fatalf("a guardian's beat: %v", err)
		}
		// With signatures of its own under everything, in its own name and in others'.
		forged := verify.SignedSupervisionGrant{SupervisionGrant: verify.SupervisionGrant{Version: 1, Job: jobTerms, Epoch: 2, Supervisor: peerKey(evil).Key(),
			Guardians: w.charter.Keys.Hash()}, Signatures: verify.Signatures{Set: w.charter.Keys}}
		forged, err = forged.With(network.Domain(), peerKey(evil))
		must(t, err)
		forged.Sigs = append(forged.Sigs, forged.Sigs[0])
		forged.Sigs[1].Index++
		other := 1 + evil%3
		for _, req := range []*nodepb.GuardRequest{
			{Job: jobTerms[:], Epoch: 2, Grant: forged.Marshal(), Op: &nodepb.GuardRequest_Beat_{Beat: &nodepb.GuardRequest_Beat{}}},
			{Job: jobTerms[:], Epoch: 1, Op: &nodepb.GuardRequest_Beat_{Beat: &nodepb.GuardRequest_Beat{}}},
			{Job: jobTerms[:], Epoch: 1, Op: &nodepb.GuardRequest_Dismiss_{Dismiss: &nodepb.GuardRequest_Dismiss{}}},
			{Job: jobTerms[:], Epoch: 1, Op: &nodepb.GuardRequest_GrantTo{GrantTo: &nodepb.GuardRequest_Grant{Epoch: 1}}},
			{Job: jobTerms[:], Epoch: 1, Op: &nodepb.GuardRequest_GrantTo{GrantTo: &nodepb.GuardRequest_Grant{Epoch: 3}}},
			{Job: jobTerms[:], Epoch: 1, Op: &nodepb.GuardRequest_GrantTo{GrantTo: &nodepb.GuardRequest_Grant{Epoch: 1 << 60}}},
			{Job: jobTerms[:], Epoch: 1},
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
		must(t, p.Engage(t.Context(), w.engagement()))
		evil := hostOf(w.charter.Supervisor(4)) // the last to go
		w.malicious(evil, func(req *nodepb.GuardRequest) *nodepb.GuardReply {
			switch req.Op.(type) {
			case *nodepb.GuardRequest_Voucher_, *nodepb.GuardRequest_Witness_:
				return signedReply(sign.Signature{1, 2, 3})
			case *nodepb.GuardRequest_Read_:
				st := said{State{Version: 99, Bytes: []byte("forged")}, Word{Epoch: 1}}
				st.Signature, _ = peerKey(evil).Sign(preimage(network.Domain(), jobTerms, 1, wordState, st.hash()))
				return &nodepb.GuardReply{Op: &nodepb.GuardReply_Standing_{Standing: &nodepb.GuardReply_Standing{Epoch: 1, State: st.pb()}}}
			case *nodepb.GuardRequest_GrantTo:
				b := make([]byte, 64)
				return &nodepb.GuardReply{Op: &nodepb.GuardReply_Standing_{Standing: &nodepb.GuardReply_Standing{Epoch: 99, Signature: b}}}
			case *nodepb.GuardRequest_Receipts_:
				return &nodepb.GuardReply{Op: &nodepb.GuardReply_Receipts{Receipts: &nodepb.GuardReply_ReceiptList{Receipts: [][]byte{make([]byte, verify.ReceiptSize)}, More: true}}}
			}
			return nil
		})
		lease := startPaying(t, w.charter, 1, w.now(), 1)
		v, err := p.SignVoucher(t.Context(), lease.handed())
		must(t, err)
		must(t, v.Check(network.Domain(), lease.lease.Core))
		must(t, p.Beat(t.Context(), &State{Version: 1, Bytes: []byte("true")}))
		standing, err := p.Read(t.Context())
		must(t, err)
		if standing.Epoch != 1 || string(standing.State.Bytes) != "true" || len(standing.Leases) != 1 || standing.Answers != 2 {
			t.Fatalf("read %+v", standing)
		}
		_, err = p.Receipts(t.Context(), lease.lease.Core)
		must(t, err)
		i, taken := w.supervising(1)
		if i == evil || string(taken.State.Bytes) != "true" {
			t.Fatalf("host %d took up %+v", i, taken)
		}
		must(t, taken.Panel.Beat(t.Context(), nil))
	})
}

// A supervisor that is there and does not pay is replaced; one whose provider is gone, and says so, is not.
func TestSupervisorThatDoesNotPay(t *testing.T) {
	t.Parallel()
	for name, stopped := range map[string]bool{"does not pay": false, "says that it stopped": true} {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t, 3, 2)
			p := w.owner()
			must(t, p.Engage(t.Context(), w.engagement()))
			defer w.beating(p)()
			lease := startPaying(t, w.charter, 1, w.now(), 1)
			_, err := p.SignVoucher(t.Context(), lease.handed())
			must(t, err)
			if stopped {
				time.Sleep(time.Second)
				lease.step(w.now(), meter.Stopped{Reason: "lost"})
				_, err := p.SignVoucher(t.Context(), lease.handed())
				must(t, err)
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
		must(t, p.Engage(t.Context(), w.engagement()))
		defer w.beating(p)()
		disk := w.crash(1)
		lease := startPaying(t, w.charter, 1, w.now(), 1)
		_, err := p.SignVoucher(t.Context(), lease.handed())
		must(t, err)
		must(t, p.Beat(t.Context(), &State{Version: 1, Bytes: []byte("state")}))
		w.back(1, disk)
		for range 100 {
			wd := w.nodes[1].s.find(jobTerms)
			wd.mu.Lock()
			knows := wd.state != nil && len(wd.leases) == 1
			wd.mu.Unlock()
			if knows {
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
		must(t, p.Engage(t.Context(), w.engagement()))
		i, taken := w.supervising(1)
		epoch, _ := taken.Panel.Epoch()
		must(t, taken.Panel.Beat(t.Context(), &State{Version: 1, Bytes: []byte("state")}))
		disk := w.crash(i)
		w.back(i, disk)
		j, again := w.supervising(epoch - 1)
		if got, _ := again.Panel.Epoch(); j != i || got != epoch || string(again.State.Bytes) != "state" {
			t.Fatalf("host %d went on under epoch %d with %+v", j, got, again.State)
		}
		must(t, again.Panel.Beat(t.Context(), &State{Version: 2, Over: true}))
		// Once it is over, nobody supervises; the owner may read, and dismiss.
		time.Sleep(20 * time.Second)
		standing, err := p.Read(t.Context())
		must(t, err)
		if standing.Epoch != epoch || !standing.State.Over {
			t.Fatalf("read %+v", standing)
		}
		must(t, p.Dismiss(t.Context()))
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
			pb := &nodepb.GuardRequest_Engage{Sealed: box, File: e.File, Threshold: 2, Guardians: pbMembers(w.members), Files: pbFiles(e.Files),
				Addrs: e.Addrs, UntilMillis: uint64(e.Until.UnixMilli())}
			change(pb)
			return &nodepb.GuardRequest{Job: jobTerms[:], Op: &nodepb.GuardRequest_Engage_{Engage: pb}}
		}
		for name, change := range map[string]func(*nodepb.GuardRequest_Engage){
			"no majority":         func(e *nodepb.GuardRequest_Engage) { e.Threshold = 1 },
			"threshold of 300":    func(e *nodepb.GuardRequest_Engage) { e.Threshold = 300 },
			"too many":            func(e *nodepb.GuardRequest_Engage) { e.Threshold = 3; e.Guardians = e.Guardians[:2] },
			"not this peer":       func(e *nodepb.GuardRequest_Engage) { e.Guardians = without(e.Guardians, peerKey(1).Key()) },
			"out of order":        func(e *nodepb.GuardRequest_Engage) { slices.Reverse(e.Guardians) },
			"no key":              func(e *nodepb.GuardRequest_Engage) { e.Sealed = nil },
			"another's key":       func(e *nodepb.GuardRequest_Engage) { e.Sealed = sealedTo(t, 2) },
			"large":               func(e *nodepb.GuardRequest_Engage) { e.File = make([]byte, MaxFile+1) },
			"many files":          func(e *nodepb.GuardRequest_Engage) { e.Files = slices.Repeat(e.Files, MaxFiles+1) },
			"large files":         func(e *nodepb.GuardRequest_Engage) { e.Files[0].Size = 101 },
			"files that overflow": func(e *nodepb.GuardRequest_Engage) { e.Files[0].Size = 1 << 63 },
			"no digest":           func(e *nodepb.GuardRequest_Engage) { e.Files[0].Cid = []byte{1} },
			"too long":            func(e *nodepb.GuardRequest_Engage) { e.UntilMillis += 3_600_000 },
			"over":                func(e *nodepb.GuardRequest_Engage) { e.UntilMillis = 1 },
			"for ever":            func(e *nodepb.GuardRequest_Engage) { e.UntilMillis = 1 << 63 },
			"many addresses":      func(e *nodepb.GuardRequest_Engage) { e.Addrs = make([]string, maxAddrs+1) },
			"wage of another": func(e *nodepb.GuardRequest_Engage) {
				c := newLease(w.charter, 1, 10).Core.Marshal()
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
		wantCode(t, err, CodeFetching)
		w.mu.Lock()
		w.missing = map[int]bool{}
		w.mu.Unlock()
		must(t, p.Engage(t.Context(), w.engagement()))
		_, err = w.raw(0, 1, request(func(e *nodepb.GuardRequest_Engage) { e.File = []byte("other") }))
		wantCode(t, err, CodeOther)
		_, err = w.raw(2, 1, request(func(*nodepb.GuardRequest_Engage) {})) // a guardian cannot own it
		var bad *stream.Malformed
		if !errors.As(err, &bad) {
			t.Errorf("engaged by a guardian: %v", err)
		}
		// A stranger learns nothing.
		for _, op := range []*nodepb.GuardRequest{{Op: &nodepb.GuardRequest_Read_{Read: &nodepb.GuardRequest_Read{}}}, {Job: jobTerms[:31]}, {Job: make([]byte, 32)}} {
			if _, err := w.raw(0, 1, op); err == nil {
				t.Errorf("%v was answered", op)
			}
		}
		offers := Offers(t.Context(), w.net.Hosts[0], network, []Candidate{{peerKey(1).Key(), w.addrs(1)}, {peerKey(2).Key(), w.addrs(2)}, {peerKey(9).Key(), nil}})
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
		must(t, p.Engage(t.Context(), w.engagement()))
		defer w.beating(p)()
		var want []Lease
		for i := range 24 {
			l := startPaying(t, w.charter, byte(i), w.now(), 1).handed()
			l.Record = bytes.Repeat([]byte{byte(i)}, MaxRecord)
			_, err := p.SignVoucher(t.Context(), l)
			must(t, err)
			want = append(want, l)
		}
		standing, err := p.Read(t.Context())
		must(t, err)
		if !slices.Equal(sortedIDs(standing.Leases), sortedIDs(want)) {
			t.Fatalf("read %d leases of %d", len(standing.Leases), len(want))
		}
	})
}
