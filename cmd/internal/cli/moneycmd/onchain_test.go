package moneycmd

import (
	"errors"
	"fmt"
	"math"
	"regexp"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/starling-network/starling/chain"
	"github.com/starling-network/starling/chain/program"
	"github.com/starling-network/starling/chain/program/account"
	"github.com/starling-network/starling/cmd/internal/cli"
	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
)

// A number of slots is never a negative time, a later slot never an earlier one, and none is past a hundred years.
func TestSlotsInOrder(t *testing.T) {
	t.Parallel()
	const century = 100 * 365 * 24 * time.Hour
	rapid.Check(t, func(t *rapid.T) {
		l := &Chain{Genesis: market.Genesis{SlotMillis: rapid.Uint64Range(1, market.MaxSlotMillis).Draw(t, "millis")}}
		a, b := rapid.Uint64().Draw(t, "a"), rapid.Uint64().Draw(t, "b")
		x, y := l.Slots(market.Slot(min(a, b))), l.Slots(market.Slot(max(a, b)))
		if x < 0 || x > y || y > century {
			t.Fatalf("%d and %d slots of %d ms: %v and %v", min(a, b), max(a, b), l.Genesis.SlotMillis, x, y)
		}
	})
	l := &Chain{Genesis: market.Genesis{SlotMillis: 400}}
	for slots, want := range map[market.Slot]time.Duration{0: 0, 1: 400 * time.Millisecond, 9000: time.Hour,
		math.MaxUint64: century} {
		if got := l.Slots(slots); got != want {
			t.Errorf("%d slots: got %v, want %v", slots, got, want)
		}
	}
}

// A past slot has another text than a coming one, up to the last slot.
func TestWhen(t *testing.T) {
	t.Parallel()
	l := &Chain{Genesis: market.Genesis{SlotMillis: 400}}
	for _, x := range []struct {
		now, slot market.Slot
		want      string
	}{
		{1000, 1000, `^slot 1000, 0s ago$`},
		{1000, 850, `^slot 850, 60s ago$`},
		{1000, 1001, `^slot 1001, in about 0s \(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\)$`},
		{0, math.MaxUint64, `^slot 18446744073709551615, in about 36500d \(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\)$`},
		{math.MaxUint64, 0, `^slot 0, 36500d ago$`},
	} {
		if got := l.When(x.now, x.slot); !regexp.MustCompile(x.want).MatchString(got) {
			t.Errorf("slot %d at %d: got %q, want %s", x.slot, x.now, got, x.want)
		}
	}
}

// An amount has the decimals of its own token, and none where nobody knows them.
func TestText(t *testing.T) {
	t.Parallel()
	l := &Chain{Genesis: market.Genesis{Mint: sign.Key{9}, Symbol: "STAR", Decimals: 6}}
	terms := account.Params{Mints: []account.MintTerms{{Mint: sign.Key{9}, Decimals: 3}, {Mint: sign.Key{8}, Decimals: 2},
		{Mint: sign.Key{7}}}}
	for _, x := range []struct {
		mint sign.Key
		n    uint64
		want string
	}{
		{sign.Key{9}, 1_234_567, "1.234567 STAR"}, {sign.Key{9}, 0, "0.00 STAR"},
		{sign.Key{8}, 1234, "12.34 of " + sign.Key{8}.Short()}, {sign.Key{7}, 1234, "1234 of " + sign.Key{7}.Short()},
		{sign.Key{6}, math.MaxUint64, "18446744073709551615 base units of " + sign.Key{6}.Short()},
	} {
		if got := l.Text(x.mint, x.n, terms); got != x.want {
			t.Errorf("got %q, want %q", got, x.want)
		}
	}
}

// An amount that is shown is read back as the same, in every token; the symbol is not a part of it.
func TestAmountsAreRead(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		decimals := uint8(rapid.IntRange(0, market.MaxDecimals).Draw(t, "decimals"))
		want := rapid.Uint64Range(1, math.MaxUint64).Draw(t, "amount")
		got, err := baseUnits(market.Decimal(want, decimals), decimals)
		if err != nil || got != want {
			t.Fatalf("%s: got %d, %v, want %d", market.Decimal(want, decimals), got, err, want)
		}
		if _, err := baseUnits(fmt.Sprintf("%d STAR", want), decimals); cli.Explain(err).Code != cli.ExitUsage {
			t.Fatalf("with a symbol: %v", err)
		}
	})
}

// Errors of the chain keep their text and get a remedy, however they are wrapped; nothing is the remedy of no error.
func TestExplain(t *testing.T) {
	t.Parallel()
	peer, owner := sign.NewPrivate([32]byte{1}), sign.Key{2}
	l := &Chain{Peer: peer, Owner: owner, Genesis: market.Genesis{Symbol: "STAR"}}
	if err := l.Explain(nil); err != nil {
		t.Errorf("no error: %v", err)
	}
	for _, x := range []struct {
		err  error
		hint string
	}{
		{chain.ErrFees, "send SOL to the peer's key, " + peer.Key().String()},
		{fmt.Errorf("%w: %w", chain.ErrRejected, chain.ErrAllowance), "send STAR to " + owner.String() + ", or let its owner " +
			"allow the peer more: starling wallet allow AMOUNT"},
		{chain.ErrDown, "name another endpoint with --rpc"},
		{chain.ErrDisagree, "name another endpoint with --rpc"},
		{fmt.Errorf("%w: %w", chain.ErrRejected, program.ErrEarly), "starling wallet escrow show, and stake status, show the earliest time"},
		{chain.ErrMalformed, "it is of another kind or network; starling wallet escrow ls lists yours"},
		{errors.New("odd"), ""},
	} {
		err := fmt.Errorf("reading: %w", x.err)
		got := cli.Explain(l.Explain(err))
		if got.Code != cli.ExitPayment || got.Hint != x.hint || got.Error() != err.Error() || !errors.Is(got, x.err) {
			t.Errorf("%v: got code %d and hint %q, want %q", err, got.Code, got.Hint, x.hint)
		}
	}
}

// The owner signs for its tokens where its key is at hand.
func TestSigners(t *testing.T) {
	t.Parallel()
	peer, owner := sign.NewPrivate([32]byte{1}), sign.NewPrivate([32]byte{2})
	l := &Chain{Peer: peer, Owner: owner.Key(), Keys: map[sign.Key]sign.Signer{peer.Key(): peer}}
	if got := l.Spender().Key(); got != peer.Key() {
		t.Errorf("without the owner's key %v signs, want the peer", got)
	}
	if _, err := l.Signer(owner.Key(), "the owner"); cli.Explain(err).Code != cli.ExitUsage {
		t.Errorf("got %v, want a usage error", err)
	}
	l.Keys[owner.Key()] = owner
	if got := l.Spender().Key(); got != owner.Key() {
		t.Errorf("%v signs, want the owner", got)
	}
}
