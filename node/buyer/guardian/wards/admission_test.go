package wards

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/node/buyer/guardian"
	"github.com/starling-network/starling/node/buyer/guardian/guardiantest"
	"github.com/starling-network/starling/node/nodepb"
	"github.com/starling-network/starling/node/store"
)

// Safety: no owner, no network and no unpaid wages take more places than the policy has for them, in whatever order jobs
// come, are dismissed and a process follows another. Liveness: an offer that was made is kept, and a stranger from
// elsewhere finds a place while there is one.
func TestPlacesAreShared(t *testing.T) {
	t.Parallel()
	base, members := guardiantest.CharterOf(t, 3, 2)
	guardiantest.Pay(base, members)
	networks := []netip.Prefix{{}, netip.MustParsePrefix("203.0.113.0/24"), netip.MustParsePrefix("2001:db8::/56")}
	rapid.Check(t, func(r *rapid.T) {
		disk, at := store.NewMemory(), netip.Prefix{}
		policy := Policy{
			Accept: true, MaxJobs: rapid.IntRange(0, 12).Draw(r, "places"), MaxBytes: 100, Longest: time.Hour,
		}
		start := func() (*Service, func()) {
			return running(t, guardiantest.Network, base, disk, func(s *Service) {
				s.cfg.Policy = policy
				s.cfg.Backed = func(context.Context, Ward, []byte) error { return errNotThere }
				s.doors.at = func(sign.Key) netip.Prefix { return at }
			})
		}
		count := func(s *Service, owner sign.Key, at netip.Prefix) census {
			s.doors.mu.Lock()
			defer s.doors.mu.Unlock()
			return s.doors.countLocked(owner, at)
		}
		s, stop := start()
		defer func() { stop() }()
		for i := range rapid.IntRange(1, 30).Draw(r, "steps") {
			at = rapid.SampledFrom(networks).Draw(r, "network")
			owner := guardiantest.Named(fmt.Sprint("owner", rapid.IntRange(0, 4).Draw(r, "owner"))).Key()
			ward := Ward{
				Charter: guardian.Charter{Job: sign.Sum([]byte(fmt.Sprint(i))), Owner: owner, Buyer: base.Buyer, Keys: base.Keys},
				Members: members, Epoch: 1, Ready: true, Until: time.Now().Add(time.Minute), From: at,
			}
			switch rapid.IntRange(0, 5).Draw(r, "step") {
			case 0:
				stop()
				s, stop = start()
			case 1:
				for _, w := range s.all() {
					_, err := s.Answer(t.Context(), w.Owner, asked(w.Charter, dismissing))
					guardiantest.Must(t, err)
					break
				}
			case 2:
				ward.Unbacked = time.Now()
				_ = s.doors.admit(t.Context(), ward)
			default:
				before := count(s, owner, at)
				_, offered := s.doors.offer(owner)
				err := s.doors.admit(t.Context(), ward)
				if (err == nil) != (offered == nil) {
					r.Fatalf("offered: %v, admitted: %v", offered, err)
				}
				fits := before.jobs < policy.MaxJobs && before.owner < policy.share() && before.network < policy.share()
				if (err == nil) != fits {
					r.Fatalf("beside %+v of %d: %v", before, policy.MaxJobs, err)
				}
			}
			for _, w := range s.wards() {
				c := count(s, w.Owner, w.From)
				if c.jobs > policy.MaxJobs || c.unbacked > policy.unbacked() ||
					!w.Dismissed && (c.owner > policy.share() || c.network > policy.share()) {
					r.Fatalf("with %d places: %+v", policy.MaxJobs, c)
				}
			}
		}
	})
}

// A job that is not for this peer is refused by the policy, with the reason.
func TestPolicyForOneJob(t *testing.T) {
	t.Parallel()
	base, members := guardiantest.CharterOf(t, 3, 2)
	guardiantest.Pay(base, members)
	s, err := alone(t, guardiantest.Network, base, store.NewMemory())
	guardiantest.Must(t, err)
	s.cfg.Payout, s.cfg.Policy.ShareMillionths = members[0].Wage.Payout, 5000
	good := Ward{Charter: base, Members: members, Epoch: 1, Until: time.Now().Add(time.Minute)}
	guardiantest.Must(t, s.doors.wants(good))
	wage := func(change func(*market.LeaseCore)) func(*Ward) {
		return func(w *Ward) {
			w.Members = append([]guardian.Member{}, w.Members...)
			core := *w.Members[0].Wage
			change(&core)
			w.Members[0].Wage = &core
		}
	}
	for name, change := range map[string]func(*Ward){
		"large files": func(w *Ward) {
			w.Files = []guardian.File{guardiantest.FileOf("a"), guardiantest.FileOf("b")}
			w.Files[0].Size, w.Files[1].Size = 50, 51
		},
		"too long":     func(w *Ward) { w.Until = time.Now().Add(2 * time.Hour) },
		"over":         func(w *Ward) { w.Until = time.Now() },
		"to another":   wage(func(c *market.LeaseCore) { c.Payout[0]++ }),
		"for nothing":  wage(func(c *market.LeaseCore) { c.Cap = 0 }),
		"without wage": func(w *Ward) { w.Members = []guardian.Member{{Key: members[0].Key}, members[1], members[2]} },
	} {
		w := good
		change(&w)
		if err := s.doors.wants(w); !guardian.Refused(err, guardian.CodePolicy) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// slow is a store whose writes wait while it is held.
type slow struct {
	store.Store
	mu   sync.Mutex
	held chan struct{} // closed to release; nil: not held
}

// hold holds writes until the function that it returns is called.
func (s *slow) hold() (release func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	held := make(chan struct{})
	s.held = held
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.held = nil
		close(held)
	}
}

func (s *slow) Write(ctx context.Context, puts ...store.Put) error {
	s.mu.Lock()
	held := s.held
	s.mu.Unlock()
	if held != nil {
		<-held
	}
	return s.Store.Write(ctx, puts...)
}

// TestAttackGuardianPlacesAtOnce: thousands of free keys that engage a guardian at once, while its disk is slow, have
// no more places than one after the other: a place counts before it is written.
func TestAttackGuardianPlacesAtOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		base, members := guardiantest.CharterOf(t, 3, 2)
		disk := &slow{Store: store.NewMemory()}
		s, _ := running(t, guardiantest.Network, base, disk, func(s *Service) { s.cfg.Policy.MaxJobs = 8 })
		release := disk.hold()
		var admitted, full atomic.Int32
		var wg sync.WaitGroup
		for i := range 2000 {
			wg.Go(func() {
				owner := guardiantest.Named(fmt.Sprint("key", i)).Key()
				err := s.doors.admit(t.Context(), Ward{
					Charter: guardian.Charter{Job: sign.Sum([]byte(fmt.Sprint(i))), Owner: owner, Buyer: base.Buyer, Keys: base.Keys},
					Members: members, Epoch: 1, Ready: true, Until: time.Now().Add(time.Minute),
				})
				switch {
				case err == nil:
					admitted.Add(1)
				case guardian.Refused(err, guardian.CodeFull):
					full.Add(1)
				default:
					t.Error(err)
				}
			})
		}
		synctest.Wait()
		if n := full.Load(); n != 1992 {
			t.Errorf("%d of 2000 are refused while the disk is slow, want 1992", n)
		}
		release()
		wg.Wait()
		if n := admitted.Load(); n != 8 || len(s.Jobs()) != 8 || records(t, disk) != 8 {
			t.Errorf("%d have places, %d jobs are guarded, %d records, want 8", n, len(s.Jobs()), records(t, disk))
		}
	})
}

// Nobody waits for the disk but a request whose own step is written: not readers, not other jobs, not offers.
func TestOthersDoNotWaitForTheDisk(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		a, members := guardiantest.CharterOf(t, 3, 2)
		b, c := a, a
		b.Job, c.Job = sign.Sum([]byte("b")), sign.Sum([]byte("c"))
		disk := &slow{Store: store.NewMemory()}
		s, _ := running(t, guardiantest.Network, a, disk, func(s *Service) { s.cfg.Policy.MaxJobs = 16 })
		engage := func(c guardian.Charter) error {
			_, err := s.Answer(t.Context(), c.Owner, engaging(t, guardiantest.Network, c, members))
			return err
		}
		guardiantest.Must(t, engage(a))
		guardiantest.Must(t, engage(b))
		release := disk.hold()
		var wg sync.WaitGroup
		var written atomic.Int32
		wg.Go(func() {
			_, err := s.Answer(t.Context(), a.Owner, beatWith(t, a, guardian.State{Version: 1}))
			guardiantest.Must(t, err)
			written.Add(1)
		})
		wg.Go(func() {
			guardiantest.Must(t, engage(c))
			written.Add(1)
		})
		synctest.Wait()
		for name, req := range map[string]*nodepb.GuardRequest{
			"read":            asked(a, &nodepb.GuardRequest{Op: &nodepb.GuardRequest_Read_{Read: &nodepb.GuardRequest_Read{}}}),
			"another's beat":  asked(b, &nodepb.GuardRequest{Op: &nodepb.GuardRequest_Beat_{Beat: &nodepb.GuardRequest_Beat{}}}),
			"another's grant": asked(b, &nodepb.GuardRequest{Op: &nodepb.GuardRequest_GrantTo{GrantTo: &nodepb.GuardRequest_Grant{Epoch: 5}}}),
			"offer":           {Op: &nodepb.GuardRequest_Offer_{Offer: &nodepb.GuardRequest_Offer{}}},
		} {
			if _, err := s.Answer(t.Context(), a.Owner, req); err != nil {
				t.Errorf("%s: %v", name, err)
			}
		}
		if n := len(s.Jobs()); n != 2 || len(s.Wards()) != 2 || len(s.Blobs()) != 0 {
			t.Errorf("%d jobs", n)
		}
		if _, known := s.State(a.Job); known || written.Load() != 0 {
			t.Errorf("a state is known before it is written: %v, %d answers", known, written.Load())
		}
		if err := engage(c); !guardian.Refused(err, guardian.CodeFetching) {
			t.Errorf("engaged again while the engagement is written: %v", err)
		}
		release()
		wg.Wait()
		if st, known := s.State(a.Job); !known || st.Version != 1 || len(s.Jobs()) != 3 {
			t.Errorf("written: %+v, %d jobs", st, len(s.Jobs()))
		}
	})
}

// An engagement that cannot be written takes no place.
func TestEngagementNotWritten(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c, members := guardiantest.CharterOf(t, 3, 2)
		disk := store.NewCrashing(store.NewMemory())
		s, _ := running(t, guardiantest.Network, c, disk, func(s *Service) { s.cfg.Policy.MaxJobs = 1 })
		disk.CrashAt(1, store.Before)
		if _, err := s.Answer(t.Context(), c.Owner, engaging(t, guardiantest.Network, c, members)); !errors.Is(err, store.ErrCrashed) {
			t.Errorf("engaged: %v", err)
		}
		if _, err := s.doors.offer(c.Owner); err != nil || len(s.Jobs()) != 0 {
			t.Errorf("offered: %v, %d jobs", err, len(s.Jobs()))
		}
	})
}
