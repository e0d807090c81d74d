package wards

import (
	"context"
	"fmt"
	"net/netip"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/node/buyer/guardian"
	"github.com/starling-network/starling/node/buyer/guardian/guardiantest"
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
		start := func() *Service {
			s, err := alone(t, guardiantest.Network, base, disk)
			guardiantest.Must(t, err)
			s.cfg.Policy = policy
			s.cfg.Backed = func(context.Context, Ward, []byte) error { return errNotThere }
			s.doors.at = func(sign.Key) netip.Prefix { return at }
			return s
		}
		s := start()
		for i := range rapid.IntRange(1, 30).Draw(r, "steps") {
			at = rapid.SampledFrom(networks).Draw(r, "network")
			owner := guardiantest.Named(fmt.Sprint("owner", rapid.IntRange(0, 4).Draw(r, "owner"))).Key()
			ward := Ward{
				Charter: guardian.Charter{Job: sign.Sum([]byte(fmt.Sprint(i))), Owner: owner, Buyer: base.Buyer, Keys: base.Keys},
				Members: members, Epoch: 1, Ready: true, Until: time.Now().Add(time.Minute), From: at,
			}
			switch rapid.IntRange(0, 5).Draw(r, "step") {
			case 0:
				s = start()
			case 1:
				for _, w := range s.wards.all() {
					guardiantest.Must(t, w.shut(t.Context()))
					break
				}
			case 2:
				ward.Unbacked = time.Now()
				_, _ = s.doors.admit(t.Context(), ward)
			default:
				before := s.doors.count(owner, at)
				_, offered := s.doors.offer(owner)
				_, err := s.doors.admit(t.Context(), ward)
				if (err == nil) != (offered == nil) {
					r.Fatalf("offered: %v, admitted: %v", offered, err)
				}
				fits := before.jobs < policy.MaxJobs && before.owner < policy.share() && before.network < policy.share()
				if (err == nil) != fits {
					r.Fatalf("beside %+v of %d: %v", before, policy.MaxJobs, err)
				}
			}
			for _, w := range s.wards.values() {
				c := s.doors.count(w.Owner, w.From)
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
