package audit_test

import (
	"encoding/binary"
	"math"
	"testing"
	"time"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/verify/audit"
)

// drawn is an audit of a network: from when on anybody can know of it, and its instant.
type drawn struct {
	window    audit.Window
	known, at market.Slot
}

// drawnIn are the audits of so many windows.
func drawnIn(i audit.Instants, windows audit.Window) (out []drawn) {
	for w := range windows {
		b := audit.Beacon{Slot: w.First(i.Slots), Value: sign.Sum(binary.LittleEndian.AppendUint64([]byte("block"),
			uint64(w)))}
		if i.Fires(b) {
			out = append(out, drawn{w, b.Slot, i.Of(w)})
		}
	}
	return out
}

// defaults are those of starling network genesis: one window of two minutes in thirty.
var defaults = audit.Instants{Slots: 300, Millis: 400, OneIn: 30}

// near fails where a share of so many draws is further from what is expected than five deviations.
func near(t *testing.T, what string, hits, of int, want float64) {
	t.Helper()
	got, room := float64(hits)/float64(of), 5*math.Sqrt(want*(1-want)/float64(of))
	if math.Abs(got-want) > room {
		t.Errorf("%s: %.2f %% of %d, expected %.2f %%", what, 100*got, of, 100*want)
	}
}

// A provider that has the card only for the announced minute is there for no audit, and one that gives it back right after an audit misses as
// many as its pause is likely to hold. A window of an hour, of which the instant was drawn by its first block, was announced a quarter of an
// hour ahead, and had no other: both passed in every window, with the card for 2 % and 25 % of the time.
func TestAttackRentForTheMinute(t *testing.T) {
	t.Parallel()
	const windows = 200_000
	slots := func(d time.Duration) market.Slot { return market.Slot(d.Milliseconds()) / market.Slot(defaults.Millis) }
	all := drawnIn(defaults, windows)
	near(t, "windows with an audit", len(all), windows, 1/30.)

	// It rents a card when it knows of an audit. Clouds give one in a minute and more.
	there := 0
	for _, a := range all {
		if a.at >= a.known+slots(time.Minute) {
			there++
		}
	}
	if there > 0 {
		t.Errorf("rented for the minute: it is there for %d of %d audits", there, len(all))
	}

	// It has the card, and gives it back after each audit for a while.
	for _, pause := range []time.Duration{10 * time.Minute, 45 * time.Minute, 3 * time.Hour} {
		missed, until := 0, market.Slot(0)
		for k, a := range all {
			if a.at < until {
				missed++
			}
			if k == 0 || a.at >= until { // it passed
				until = a.at + slots(pause)
			}
		}
		// Of the audits it misses a geometric number in each pause, and passes the first after it.
		quiet := math.Floor(float64(slots(pause)) / float64(defaults.Slots))
		perPause := quiet / float64(defaults.OneIn)
		near(t, "missed with a pause of "+pause.String(), missed, len(all), perPause/(1+perPause))
	}
}

// Liveness: an audit comes, after one as after none: with 12 times the expected windows one does in all but six of a million.
func TestAuditsCome(t *testing.T) {
	t.Parallel()
	all := drawnIn(defaults, 200_000)
	longest, soon := audit.Window(0), 0
	for k, a := range all[1:] {
		gap := a.window - all[k].window
		if longest = max(longest, gap); gap <= 30 {
			soon++
		}
	}
	if longest > defaults.Audits(audit.Horizon) {
		t.Errorf("none in %d windows", longest)
	}
	near(t, "another within 30 windows", soon, len(all)-1, 1-math.Pow(29./30, 30))
}
