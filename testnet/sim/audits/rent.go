package audits

import (
	"encoding/binary"
	"time"

	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/testnet/sim/play"
	"github.com/starling-network/starling/verify/audit"
)

// rented is a card that its provider has for a part of the time, window by window, on a network whose blocks draw the
// audits.
type rented struct {
	*unit
	seed   sign.Hash
	w      audit.Window
	recent audit.Recent
	passed audit.Window // the window of its record
	proven bool         // it has one

	audits, passes int
	windows, held  int
	sold           int // windows in which a reader accepts it as proven
}

func newRented(w *play.World) *rented {
	return &rented{unit: honest(w, anyGPU(w)), seed: play.Random[sign.Hash](w)}
}

// next begins a window, with or without an audit and with or without the card at its beginning.
func (r *rented) next(has bool) (audited, passed bool) {
	r.w++
	b := audit.Beacon{Slot: r.w.First(instants.Slots),
		Value: sign.Sum(binary.LittleEndian.AppendUint64(r.seed[:], uint64(r.w)))}
	r.recent.Known = r.w
	if audited = instants.Fires(b); audited {
		r.recent.Before, r.recent.Last = r.recent.Last, r.w
		r.audits++
		if r.absent = !has; r.play(r.audits, audit.Committee).Result == audit.Passed {
			passed, r.passed, r.proven = true, r.w, true
			r.passes++
		}
	}
	r.windows++
	if has {
		r.held++
	}
	rec := audit.Record{WindowSlots: instants.Slots, Answer: audit.Answer{Target: audit.Target{Window: r.passed}}}
	if r.proven && audit.Fresh(rec, instants.Slots, r.recent, instants.Of(r.w), audit.Work{}) == nil {
		r.sold++
	}
	return audited, passed
}

// rents simulates a provider for ten times Horizon audits on average. The gain is its share of audits, or of proven
// time, beyond the share of time with the card. It is caught if that does not exceed chance.
func rents(
	has func(r *rented) func(audited, passed bool) bool, of func(r *rented) float64,
) func(w *play.World) (play.Trial, error) {
	return func(w *play.World) (play.Trial, error) {
		r := newRented(w)
		decide := has(r)
		now := true
		for range int(instants.Audits(10 * play.Horizon)) {
			audited, passed := r.next(now)
			now = decide(audited, passed)
		}
		t := play.Trial{Checks: r.audits, Gain: of(r) - play.Share(r.held, r.windows)}
		t.First = r.passes == 0
		t.Caught = t.Gain <= mostRented
		return t, nil
	}
}

// mostRented is the largest difference by chance between an honest share of audits and that of the time, in 240 audits.
const mostRented = 0.12

func (r *rented) paid() float64   { return play.Share(r.passes, r.audits) }
func (r *rented) proved() float64 { return play.Share(r.sold, r.windows) }

// paused returns the card after a passed audit, and rents it again after windows windows.
func paused(windows int) func(r *rented) func(audited, passed bool) bool {
	return func(*rented) func(audited, passed bool) bool {
		left := 0
		return func(_, passed bool) bool {
			if left--; passed {
				left = windows
			}
			return left <= 0
		}
	}
}

// untilMissed returns the card after a passed audit, and rents it again after a missed audit.
func untilMissed(*rented) func(audited, passed bool) bool {
	has := true
	return func(audited, passed bool) bool {
		if audited {
			has = !passed
		}
		return has
	}
}

// aMinute is a provider that rents a card at the block of an audit. It gets the card after one to four minutes, as in
// clouds.
func aMinute(w *play.World) play.Player {
	u := honest(w, anyGPU(w))
	lead := slotsLast(uint64(instants.Of(1) - audit.Window(1).First(instants.Slots)))
	return func(window, committee int) audit.Report {
		until := lead + slotsLast(instants.Width(u.class).Late)
		u.absent = time.Minute+time.Duration(w.R.Int64N(int64(3*time.Minute))) > until
		return u.play(window, committee)
	}
}

// Cards that are rented for audits, and not for the time between them.
var rentKinds = []play.Kind{
	{Name: "rent-minute", Threat: 25, What: "rents a card when an audit's block is made", Play: aMinute},
	{
		Name: "rent-pause", Threat: 25, What: "returns its card for an hour after each passed audit",
		Try:   rents(paused(int(instants.OneIn)), (*rented).paid),
		Limit: "its share of audits is its share of time with the card, except for chance",
		Gain: play.Gain{What: "share of passed audits beyond the share of time with the card",
			Most: 0.01},
	},
	{
		Name: "rent-missed", Threat: 25,
		What:  "returns its card after each passed audit, until it misses one",
		Try:   rents(untilMissed, (*rented).proved),
		Limit: "it is sold as proven by the last two audits, for half of the rewards",
		Gain: play.Gain{What: "share of proven time beyond the share of time with the card",
			Most: 0.5},
	},
}
