package jobs

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/node/buyer/jobs/file"
)

const (
	recordVersion = 1
	maxRecord     = 16 << 20 // bytes
	maxOutputs    = 16       // files of one execution
	maxList       = 1 << 16  // entries of a list that grows with a job's life
	maxAvoid      = 1024
	maxReason     = 1024
)

// record is an encoded State.
type record struct {
	Version int `json:"version"`
	State
}

// durable returns the state as the journal has it.
func (s State) durable() State {
	s = s.clone()
	s.Gangs = slices.DeleteFunc(s.Gangs, func(g Gang) bool { return g.Order.IsZero() })
	for i := range s.Ranks {
		if r := &s.Ranks[i]; r.State == RankWaiting {
			r.NotBefore = time.Time{} // the pause between orders does not outlive the process
		}
	}
	return s
}

// Encode returns the durable fields as JSON.
func (s State) Encode() ([]byte, error) {
	b, err := json.Marshal(record{recordVersion, s.durable()})
	if err != nil {
		return nil, fmt.Errorf("encoding job: %w", err)
	}
	return b, nil
}

// Decode reads an encoded state. It returns ErrRecord if no State encodes so. The first event of a decoded state is
// Recovered.
func Decode(b []byte) (State, error) {
	if len(b) > maxRecord {
		return State{}, fmt.Errorf("%w: %d bytes, want at most %d", ErrRecord, len(b), maxRecord)
	}
	var r record
	d := json.NewDecoder(bytes.NewReader(b))
	d.DisallowUnknownFields()
	if err := d.Decode(&r); err != nil {
		return State{}, fmt.Errorf("%w: %w", ErrRecord, err)
	}
	if _, err := d.Token(); err != io.EOF {
		return State{}, fmt.Errorf("%w: more than one value", ErrRecord)
	}
	if r.Version != recordVersion {
		return State{}, fmt.Errorf("%w: version %d, want %d", ErrRecord, r.Version, recordVersion)
	}
	r.Gang = r.Placed
	if err := r.State.validate(); err != nil {
		return State{}, err
	}
	return r.State, nil
}

// validate reports the first rule that the durable fields break.
func (s *State) validate() error {
	bad := func(name string, got any) error { return fmt.Errorf("%w: %s: %v", ErrRecord, name, got) }
	if err := s.Params.Validate(); err != nil {
		return err
	}
	count := s.Params.Count
	if s.Scale.up() {
		count = s.Scale.Target
	}
	o := s.Outcome
	ended := o.Result != 0 && o.Result <= ResultStopped && (o.Code != 0) == (o.Result == ResultFailed)
	switch {
	case s.Phase < Engaging || s.Phase > Ended:
		return bad("phase", s.Phase)
	case s.Phase >= Stopping && !ended, s.Phase < Stopping && o != Outcome{}:
		return bad("outcome", o)
	case s.Phase == Reducing && !s.Params.Reduce, s.Phase == Engaging && !s.Params.Guarded:
		return bad("phase", s.Phase)
	case s.Round > s.Params.Rounds || s.Round == s.Params.Rounds && s.Phase < Stopping:
		return bad("round", s.Round)
	case s.Started.IsZero() && (s.Phase == Working || s.Phase == Reducing):
		return bad("started", s.Started)
	case s.Phase < Settling && !s.Finished.IsZero():
		return bad("finished", s.Finished)
	case s.Scale != nil && !s.Scale.valid(s):
		return bad("scale", *s.Scale)
	case len(s.Ranks) != int(count):
		return bad("ranks", len(s.Ranks))
	case s.Params.Checked && len(s.Judged) != len(s.Ranks), !s.Params.Checked && s.Judged != nil:
		return bad("judged", len(s.Judged))
	case !s.Carry.Valid() || len(s.Plan.Epochs) > MaxRanks || len(s.Avoid) > maxAvoid:
		return bad("carry, plan or avoid", "out of range")
	}
	for i := range s.Ranks {
		if err := s.validateRank(i); err != nil {
			return err
		}
	}
	return s.validateLists()
}

// valid reports whether a change of size belongs to the state.
func (c *Scale) valid(s *State) bool {
	return s.Params.Cluster != nil && s.Phase == Working && c.From == s.Params.Count && c.From != c.Target &&
		c.Target >= 1 && c.Target <= MaxRanks
}

// furthest is the last state that a rank can have.
func (p Phase) furthest() RankState {
	switch p {
	case Engaging:
		return RankWaiting
	case Placing: // a lease that another supervisor took
		return RankLeased
	case Working, Reducing:
		return RankDone
	}
	return RankStopped
}

// validateRank reports the first rule that a rank breaks.
func (s *State) validateRank(i int) error {
	r := &s.Ranks[i]
	bad := func(name string, got any) error { return fmt.Errorf("%w: rank %d: %s: %v", ErrRecord, i, name, got) }
	held := r.State == RankLeased || r.State == RankRunning
	switch {
	case r.State < RankWaiting:
		return bad("state", r.State)
	case held && r.Lease.IsZero() || r.State == RankWaiting && !r.Lease.IsZero():
		return bad("lease", r.Lease)
	case r.State == RankRunning && r.Seq == 0 || r.State > s.Phase.furthest():
		return bad("state", r.State)
	case r.Joining != (s.Scale.up() && uint32(i) >= s.Scale.From) || r.Joining && r.State != RankWaiting:
		return bad("joining", r.Joining)
	case r.Epoch == ^uint32(0) || r.Losses > maxList || r.Restarts > maxRestart:
		return bad("epoch, losses or restarts", "out of range")
	case !validOutputs(r.Outputs):
		return bad("outputs", len(r.Outputs))
	case !file.ValidCheckpoints(r.Checkpoints):
		return bad("checkpoints", len(r.Checkpoints))
	}
	return nil
}

// validateLists reports the first rule that a gang, renewal or grant breaks.
func (s *State) validateLists() error {
	bad := func(name string, got any) error { return fmt.Errorf("%w: %s: %v", ErrRecord, name, got) }
	if len(s.Gangs) > maxList || len(s.Renewals) > MaxRanks || len(s.Grants) > maxList {
		return bad("gangs, renewals or grants", "too many")
	}
	var last GangID
	for _, g := range s.Gangs {
		if g.ID <= last || g.ID > s.Placed || g.Order.IsZero() || len(g.Ranks) == 0 || len(g.Ranks) > MaxRanks {
			return bad("gang", g.ID)
		}
		last = g.ID
	}
	chains := map[market.LeaseID]bool{}
	for _, n := range s.Renewals {
		if n.Of.IsZero() || n.Chain.IsZero() || chains[n.Chain] || n.Rank >= MaxRanks {
			return bad("renewal", n.Of)
		}
		chains[n.Chain] = true
	}
	for i, g := range s.Grants {
		if i > 0 && s.grant(g.Rank, g.Attempt) != i {
			return bad("grant", g.Rank)
		}
	}
	return nil
}

func validOutputs(files []File) bool {
	return len(files) <= maxOutputs && !slices.ContainsFunc(files, func(f File) bool { return !f.Valid() })
}

// Merge validates a standing that another supervisor left of the job, and returns the state that follows from it for
// CommandGranted. The supervisor may lie: a standing is held to states that this peer itself could have journalled, so
// that a false standing costs at most the work in it. No epoch and no round is lowered, and a done rank stays done.
//
// If sure is set, own comes from this peer's journal, and a standing of the same command or an older one is no news:
// Merge returns own. It returns ErrRecord if the standing cannot be read, and ErrForeign if it does not follow from
// own.
func Merge(own State, theirs []byte, sure bool) (State, error) {
	s, err := Decode(theirs)
	if err != nil {
		return own, err
	}
	if sure && s.Command.Epoch <= own.Command.Epoch {
		return own, nil
	}
	foreign := func(name string, got, want any) error {
		return fmt.Errorf("%w: %s: %v, want %v", ErrForeign, name, got, want)
	}
	switch {
	case !s.Params.Guarded || !s.Params.follows(own.Params):
		return own, foreign("params", s.Params, own.Params)
	case !s.Created.Equal(own.Created):
		return own, foreign("created", s.Created, own.Created)
	case s.Phase == Engaging:
		return own, foreign("phase", s.Phase, Placing)
	case s.Phase < own.Phase && !(s.Phase == Working && own.Phase == Reducing):
		return own, foreign("phase", s.Phase, own.Phase)
	case own.Phase >= Stopping && s.Outcome != own.Outcome:
		return own, foreign("outcome", s.Outcome, own.Outcome)
	case s.Round < own.Round:
		return own, foreign("round", s.Round, own.Round)
	case len(s.Ranks) != len(own.Ranks):
		return own, foreign("ranks", len(s.Ranks), len(own.Ranks))
	}
	for i := range s.Ranks {
		s.Ranks[i] = s.Ranks[i].after(own.Ranks[i], s.Round == own.Round)
	}
	s.Outcome.Reason = clip(s.Outcome.Reason)
	if s.Phase == Ended { // debts are still to be settled here
		s.Phase, s.Ended = Settling, time.Time{}
	}
	if !own.Started.IsZero() {
		s.Started = own.Started
	}
	s.Params.LostAfter = own.Params.LostAfter
	if own.Command.Owner { // the owner has the authoritative parameters
		s.Params, s.Paused, s.WantStop, s.Extended = own.Params, own.Paused, own.WantStop, own.Extended
	}
	s.WantStop = s.WantStop || own.WantStop
	s.Command, s.Account, s.Grants = own.Command, own.Account, own.Grants
	s.Gangs, s.Gang, s.Placed = own.Gangs, own.Gang, own.Placed
	s.Leases, s.ResumedUntil = own.Leases, own.ResumedUntil
	if err := s.validate(); err != nil {
		return own, fmt.Errorf("%w: %w", ErrForeign, err)
	}
	return s, nil
}

// after returns the rank as another supervisor left it, held to the own one.
func (r Rank) after(own Rank, sameRound bool) Rank {
	epoch := max(r.Epoch, own.Epoch)
	if sameRound && own.State == RankDone && r.State != RankDone {
		r = own // a done rank does not run again
	}
	r.Epoch = epoch
	r.Losses, r.Restarts = max(r.Losses, own.Losses), max(r.Restarts, own.Restarts)
	r.Exit.Reason, r.Exit.Detail, r.Unextended = clip(r.Exit.Reason), clip(r.Exit.Detail), clip(r.Unextended)
	return r
}

// follows reports whether p is own but for the time and money of an extension, and for the configuration of its peer.
func (p Params) follows(own Params) bool {
	p.Run, p.Budget, p.Cluster = own.Run, own.Budget, own.Cluster // no guarded job has a cluster
	p.LostAfter = own.LostAfter
	return p == own
}

// clip bounds and cleans text that came from a peer.
func clip(text string) string { return market.Clean(text, maxReason) }
