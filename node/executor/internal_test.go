package executor

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/node/runtime"
	"github.com/starling-network/starling/p2p/stream"
)

// What an engine, a registry or a file system says goes to the operator, and to no buyer.
func TestAttackErrorsTellWhatIsInside(t *testing.T) {
	t.Parallel()
	const inside = "dial tcp 10.0.0.5:22: SSH-2.0-OpenSSH_9.6p1 /home/operator/.starling"
	raw := errors.New(inside)
	for _, err := range []error{
		raw, fmt.Errorf("%w: %w", runtime.ErrBadImage, raw), fmt.Errorf("%w: %w", runtime.ErrRegistry, raw),
		fmt.Errorf("%w: %w", runtime.ErrCredentials, raw), fmt.Errorf("%w: %w", runtime.ErrEngine, raw),
		fmt.Errorf("%w: %w", runtime.ErrNoRoom, raw), fmt.Errorf("%w: %w", runtime.ErrDevice, raw),
		fmt.Errorf("%w: %w", runtime.ErrBadMount, raw), fmt.Errorf("%w: %w", runtime.ErrExists, raw),
		fmt.Errorf("fetching: %w: %w", stream.ErrUnreachable, raw),
		fmt.Errorf("starting: %w", &runtime.SpecError{Field: "Dir", Reason: inside}),
		&runtime.Failure{Class: runtime.ErrRegistry, Advice: "check the image's name", Cause: raw},
	} {
		text := BuyersText(err, notStarted)
		for _, secret := range []string{"10.0.0.5", "SSH", "operator"} {
			if text == "" || strings.Contains(text, secret) {
				t.Errorf("a buyer gets %q of %v", text, err)
			}
		}
	}
}

// No two leases with running programs have one user, a lease keeps its own, and a free user is given again.
func TestUsers(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		type program struct {
			lease market.LeaseID
			user  uint32
			runs  bool
		}
		var all []program
		for range rapid.IntRange(1, 60).Draw(t, "programs") {
			l := market.LeaseID{255, byte(rapid.IntRange(254, 255).Draw(t, "lease")), byte(rapid.IntRange(0, 9).Draw(t, "more"))}
			var u users
			for _, p := range all {
				u.add(p.lease, p.user, p.runs)
			}
			got, err := u.pick(l)
			if err != nil || got == 0 || got > runtime.MaxUser {
				t.Fatalf("user %d, %v", got, err)
			}
			for _, p := range all {
				if p.lease == l && p.user != got {
					t.Fatalf("lease %s has users %d and %d", l.Short(), p.user, got)
				}
				if p.lease != l && p.runs && p.user == got && !u.known(l) {
					t.Fatalf("leases %s and %s have user %d", l.Short(), p.lease.Short(), got)
				}
			}
			all = append(all, program{l, got, rapid.Bool().Draw(t, "runs")})
		}
	})
}

func (u *users) known(l market.LeaseID) bool {
	_, ok := u.of[l]
	return ok
}

// Keys are text that is read back, and nothing else is read.
func TestKeys(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		k := Key{Seq: rapid.Uint64().Draw(t, "seq")}
		copy(k.Lease[:], rapid.SliceOfN(rapid.Byte(), 32, 32).Draw(t, "lease"))
		text, err := k.MarshalText()
		var back Key
		if err != nil || back.UnmarshalText(text) != nil || back != k {
			t.Fatalf("%q: %v, %v", text, back, err)
		}
	})
	for _, bad := range []string{"", "/", "x/1", strings.Repeat("0", 64), strings.Repeat("0", 64) + "/x", "00/1"} {
		var k Key
		if k.UnmarshalText([]byte(bad)) == nil {
			t.Errorf("%q was read", bad)
		}
	}
}
