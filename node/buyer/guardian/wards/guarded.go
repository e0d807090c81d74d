package wards

import (
	"slices"
	"time"

	"github.com/ipfs/go-cid"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/node/buyer/guardian"
	"github.com/starling-network/starling/node/machine"
)

// rules are the constants by which this peer guards. They do not change.
type rules struct {
	genesis  market.Genesis
	domain   sign.Domain
	self     sign.Key
	timing   guardian.Timing
	maxBytes int64 // of the files of one job
}

// guarded is the machine of a ward: the ward with its other records in the journal, and with data that a restart
// forgets. It is an immutable value.
//
//	           engaged
//	     with a wage │ without
//	     ┌───────────┴────────┐
//	     ▼                    ▼
//	 unbacked ──looked──▶ fetching ──arranged──▶ ready ──beat: over──▶ over
//	     │                    │                    │                    │
//	     ├────────────────────┴─────────┬──────────┴────────────────────┘
//	an hour passed                      │ dismissed, or a day after its time
//	     ▼                              ▼
//	  expired ───────────────────▶ dismissed ──erased, a day after its time──▶ gone
//
// unbacked is Unbacked, fetching is Ready not set, and the other states are fields. Beside them a ward has an epoch,
// which only rises. If its supervisor fails, the guardians request the job in turn, and the one with the next granted
// epoch takes it up.
//
// One call at a time does the work that time brings (doing), and another one arranges the files (fetching).
type guarded struct {
	*rules
	Ward
	state    *guardian.SignedState
	leases   map[market.LeaseID]*guardian.SignedLease // replaced with each change
	bytes    int                                      // of the leases
	receipts int

	key       *sign.Private   // the job's; nil if it cannot be opened
	ticked    time.Time       // last tick
	heard     time.Time       // of the supervisor
	asked     time.Time       // when this peer last tried to take over
	granted   time.Time       // when it granted the job to another peer that has not beaten yet
	starving  time.Time       // since when it is certain that the supervisor does not pay; zero: it does
	looked    time.Time       // last check for its wage
	tried     time.Time       // when the last fetch ended; zero: a fetch is due
	stale     []guardian.File // no longer needed, to be dropped
	doing     bool            // the call of due is under way
	fetching  bool            // the call of arrange is under way
	erasing   bool            // the call of erase is under way
	refreshed bool            // the other guardians were polled
	taken     bool            // the job was taken up under the epoch
	complete  bool            // all files are stored, also the state's
	spare     []cid.Cid       // spare files of the state that are stored
	erased    bool            // the journal has the ward alone
	expired   bool            // it is gone once it is erased
	gone      bool            // the journal has nothing of it
}

// Step implements machine.Machine.
func (w guarded) Step(now machine.Now, ev event) (guarded, []effect, error) {
	if w.gone {
		return w, nil, errUnknown
	}
	s := step{guarded: w, now: now}
	if err := s.take(ev); err != nil {
		return w, nil, err
	}
	s.arrange()
	return s.guarded, s.effects, nil
}

// Next implements machine.Machine. A supervisor is watched closely, and wards without one are not.
func (w guarded) Next(machine.Now) time.Time {
	every := max(w.timing.Beat/2, 100*time.Millisecond)
	if !w.Ready || w.Over {
		every = max(every, wageLook)
	}
	at := w.ticked.Add(every)
	switch end := w.Until.Add(forgetAfter); {
	case w.gone:
		return time.Time{}
	case w.Dismissed && w.erased && !w.expired && end.After(at):
		return end
	}
	return at
}

// Done implements machine.Machine.
func (w guarded) Done() bool { return w.gone }

// needed are the files of the job and of its state.
func (w guarded) needed() []guardian.File {
	if w.state == nil {
		return w.Files
	}
	return slices.Concat(w.Files, w.state.Files)
}

// mine reports whether this peer supervises the job.
func (w guarded) mine() bool { return w.Supervisor(w.Epoch) == w.self }

// failed reports whether the supervisor is silent, or does not pay.
func (w guarded) failed(now machine.Now) bool {
	return now.Time.Sub(w.heard) > w.timing.Silent || !w.starving.IsZero()
}

// starved reports whether a voucher is overdue.
func (w guarded) starved(now machine.Now) bool {
	if now.Slot == 0 || w.Over {
		return false
	}
	silent := w.genesis.SlotsIn(w.timing.Silent)
	for _, k := range w.leases {
		if k.Starved(now.Slot, silent) {
			return true
		}
	}
	return false
}

// turn reports whether it is this guardian's turn to request the job.
func (w guarded) turn(now time.Time) bool {
	since := w.starving
	if since.IsZero() {
		since = w.heard.Add(w.timing.Silent)
	}
	return now.Sub(since) > time.Duration(w.Turn(w.self, w.Epoch))*w.timing.Turn &&
		now.Sub(w.asked) > w.timing.Turn && now.Sub(w.granted) > w.timing.Silent
}

// step is a guarded on its way to the next one, with the effects so far. A result event never fails: it ends a call.
type step struct {
	guarded
	now     machine.Now
	effects []effect
}

func (s *step) do(f effect) { s.effects = append(s.effects, f) }

func (s *step) take(ev event) error {
	switch ev := ev.(type) {
	case resumed: // no beat could arrive before
		s.heard, s.ticked = s.now.Time, s.now.Time
	case ticked:
		s.tick()
	case engaged:
		return s.engage(ev.ward)
	case learned:
		return s.learn(ev.epoch, ev.grant)
	case beaten:
		return s.beat(ev)
	case vouched:
		return s.voucher(ev)
	case witnessed:
		return s.witness(ev)
	case requested:
		return s.grant(ev)
	case earnedWage:
		return s.wage(ev)
	case dismissed:
		return s.dismiss(ev.from)
	case looked:
		s.backed(ev)
	case arranged:
		s.arranged(ev)
	case merged:
		s.merged(ev)
	case tookOver:
		s.tookOver(ev)
	case takenUp:
		if s.doing = false; ev.err != nil && s.Epoch == ev.epoch {
			s.taken = false
		}
	case erased:
		s.erasing, s.erased = false, ev.err == nil
	}
	return nil
}
