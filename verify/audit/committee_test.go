package audit_test

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/verify/audit"
	"github.com/starling-network/starling/verify/audit/audittest"
)

const windowSlots = 9000

// bonds are registrations of n peers, each of its own owner, that bonded a thousand tokens long ago.
func bonds(n int) (all []audit.Registration) {
	for i := range n {
		k := sign.Key(sign.Sum([]byte(fmt.Sprint("member", i))))
		all = append(all, audit.Registration{Peer: k, Owner: k, Bonded: 1_000_000_000})
	}
	return all
}

func mature(t *testing.T, all []audit.Registration, w audit.Window) audit.Roster {
	t.Helper()
	r, err := audit.Mature(all, w, audit.Instants{Slots: windowSlots})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func has(r audit.Roster, k sign.Key) bool {
	return slices.ContainsFunc(r, func(m audit.Member) bool { return m.Key == k })
}

// A key that is made when the window's beacon is known, so that it is drawn for one provider, is drawn by nobody: what is registered, bonded
// or given another key less than a window before the window begins is not in its roster. A tenth of a millionth of the stake found such a key
// in 0.2 s of one processor.
func TestAttackKeyGroundAfterBeacon(t *testing.T) {
	t.Parallel()
	const window = 7
	provider := sign.Key(sign.Sum([]byte("provider")))
	beacon := audit.Beacon{Slot: windowSlots * window, Value: sign.Sum([]byte("a block"))}
	honest := mature(t, bonds(1000), window).Draw(beacon, window, provider, audit.Committee+audit.Slack)
	ground := func(weight uint64) sign.Key { // a key that beats the ninth
		for tries := uint64(0); ; tries++ {
			k := sign.Key(sign.Sum(binary.LittleEndian.AppendUint64([]byte("ground"), tries)))
			with := append(slices.Clone(honest), audit.Member{Key: k, Owner: k, Weight: weight})
			if has(with.Draw(beacon, window, provider, len(honest)), k) {
				return k
			}
		}
	}
	k := ground(100_000_000)
	first := audit.Window(window).First(windowSlots)
	for _, since := range []market.Slot{first + 2, first, first - 1, audit.Window(window-1).First(windowSlots) + 1} {
		r := mature(t, append(bonds(1000), audit.Registration{Peer: k, Owner: k, Bonded: 100_000_000, Since: since}),
			window)
		if has(r, k) || !slices.Equal(r.Draw(beacon, window, provider, len(honest)), honest) {
			t.Errorf("a key that is there since slot %d chooses its committee in window %d, which begins in slot %d",
				since, window, first)
		}
	}
	// It may judge in the next window, and is drawn by a beacon that was not known when it was made.
	late := append(bonds(1000), audit.Registration{Peer: k, Owner: k, Bonded: 100_000_000, Since: first - 1})
	if !has(mature(t, late, window+1), k) {
		t.Error("who bonded a window ago is not in the roster")
	}
}

// A provider makes as many keys as it likes, and all of them fall to one of a few committees.
func TestAttackProviderKeyGround(t *testing.T) {
	t.Parallel()
	roster := mature(t, bonds(1000), 7)
	beacon := audit.Beacon{Slot: windowSlots * 7, Value: sign.Sum([]byte("a block"))}
	drawn := map[string]int{}
	for i := range 500 {
		k := sign.Key(sign.Sum([]byte(fmt.Sprint("provider", i))))
		drawn[fmt.Sprint(roster.Draw(beacon, 7, k, audit.Committee))]++
	}
	if len(drawn) != audit.Lots {
		t.Errorf("500 keys of a provider can choose among %d committees, want %d", len(drawn), audit.Lots)
	}
}

// Nobody judges what the same owner sells, with however many peers and whether the provider has bonded something or not.
func TestAttackOwnCommittee(t *testing.T) {
	t.Parallel()
	owner := sign.Key{7}
	provider := audittest.Key("provider")
	for name, bonded := range map[string]uint64{"a provider that judges": 5, "a provider that only sells": 0} {
		all := bonds(12)
		for i := range 6 {
			all[i].Owner = owner
		}
		all = append(all, audit.Registration{Peer: provider.Key(), Owner: owner, Bonded: bonded})
		roster := mature(t, all, 7)
		drawn := roster.Draw(audit.Beacon{Value: sign.Hash{1}}, 7, provider.Key(), 11)
		if len(drawn) != 6 {
			t.Errorf("%s: %d are drawn, 6 are of other owners", name, len(drawn))
		}
		for _, m := range drawn {
			if m.Owner == owner {
				t.Errorf("%s: %s judges its own owner's units", name, m.Key.Short())
			}
		}
		// A record that such a committee made all the same is refused by who reads it.
		c := audittest.New(5)
		r, err := c.Make()
		if err != nil {
			t.Fatal(err)
		}
		if err := r.CheckMembers(c.Roster); err != nil {
			t.Fatal(err)
		}
		own := slices.Clone(c.Roster)
		own[0].Owner = owner
		own = append(own, audit.Member{Key: provider.Key(), Owner: owner, Weight: bonded})
		wantRule(t, name+": a member is its own", r.CheckMembers(own), audit.RuleCommittee)
	}
}

// A roster is what stood a window ago: bonded, not slashed, each peer once, in one order, of bounded size.
func TestMature(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		var all []audit.Registration
		for range rapid.IntRange(0, 40).Draw(t, "registrations") {
			all = append(all, audit.Registration{
				Peer: sign.Key{rapid.Byte().Draw(t, "peer") % 30}, Owner: sign.Key{rapid.Byte().Draw(t, "owner") % 10},
				Bonded: rapid.Uint64Max(3).Draw(t, "bonded"), Since: market.Slot(rapid.Uint64Max(400).Draw(t, "since")),
				Slashed: rapid.IntRange(0, 9).Draw(t, "slashed") == 0,
			})
		}
		r, err := audit.Mature(all, 3, audit.Instants{Slots: 100})
		back := slices.Clone(all)
		slices.Reverse(back)
		again, errAgain := audit.Mature(back, 3, audit.Instants{Slots: 100})
		if !slices.Equal(r, again) || (err == nil) != (errAgain == nil) {
			t.Fatal("the order of registrations matters")
		}
		if err != nil {
			if !errors.Is(err, audit.ErrRoster) {
				t.Fatal(err)
			}
			return
		}
		weights := 0
		for i, m := range r {
			if i > 0 && slices.Compare(r[i-1].Key[:], m.Key[:]) >= 0 {
				t.Fatal("not in order")
			}
			if m.Weight > 0 {
				weights++
			}
			if !slices.ContainsFunc(all, func(x audit.Registration) bool {
				return x.Peer == m.Key && x.Owner == m.Owner && x.Since <= 200 &&
					(x.Bonded == m.Weight && !x.Slashed || m.Weight == 0)
			}) {
				t.Fatalf("%+v did not stand so", m)
			}
		}
		if weights < audit.MinBonded {
			t.Fatalf("%d have a weight", weights)
		}
		if b, err := audit.UnmarshalRoster(r.Marshal()); err != nil || !slices.Equal(b, r) {
			t.Fatalf("%v: %v", b, err)
		}
	})
	big := bonds(audit.MaxRoster + 100)
	for i := range big {
		big[i].Bonded = uint64(1 + i)
	}
	r := mature(t, big, 3)
	if len(r) != audit.MaxRoster || has(r, big[99].Peer) || !has(r, big[100].Peer) {
		t.Errorf("%d members of %d", len(r), len(big))
	}
	for name, b := range map[string][]byte{"cut off": r.Marshal()[:100],
		"out of order": append(r[1:2].Marshal(), r[:1].Marshal()...), "nobody": nil} {
		if _, err := audit.UnmarshalRoster(b); err == nil {
			t.Errorf("a roster, %s", name)
		}
	}
}

// TestRosterBounds: as many members as there may be are read, one more or part of one is not.
func TestRosterBounds(t *testing.T) {
	t.Parallel()
	r := make(audit.Roster, audit.MaxRoster+1)
	for i := range r {
		r[i] = audit.Member{Key: sign.Key{byte(i >> 16), byte(i >> 8), byte(i), 31: 1}, Owner: sign.Key{1}, Weight: 1}
	}
	most := r[:audit.MaxRoster].Marshal()
	if back, err := audit.UnmarshalRoster(most); err != nil || !slices.Equal(back, r[:audit.MaxRoster]) {
		t.Errorf("%d members: %v", audit.MaxRoster, err)
	}
	for what, b := range map[string][]byte{
		"one member more": r.Marshal(), "part of a member": most[:len(most)-1], "a byte": most[:1],
		"in another order": slices.Concat(most[audit.MemberSize:2*audit.MemberSize], most[:audit.MemberSize]),
		"a member twice":   slices.Concat(most[:audit.MemberSize], most[:audit.MemberSize]),
	} {
		if _, err := audit.UnmarshalRoster(b); !errors.Is(err, market.ErrMalformed) {
			t.Errorf("%s: %v", what, err)
		}
	}
}
