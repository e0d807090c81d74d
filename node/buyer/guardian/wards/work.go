package wards

import (
	"slices"
	"time"

	"github.com/starling-network/starling/node/buyer/guardian"
	"github.com/starling-network/starling/node/machine"
	"github.com/starling-network/starling/node/sealed"
)

const (
	// forgetAfter is how long after its end a job is still there, so that its owner can read it and its guardians are
	// paid.
	forgetAfter = 24 * time.Hour
	// unbackedFor is the maximum wait for a wage, wageLook the interval of checks for it.
	unbackedFor = time.Hour
	wageLook    = time.Second
)

// tick begins the work that is due.
func (s *step) tick() {
	s.ticked = s.now.Time
	late := s.now.Time.Sub(s.Until) >= forgetAfter
	switch {
	case !s.Dismissed && (late || !s.Unbacked.IsZero() && s.now.Time.Sub(s.Unbacked) > unbackedFor):
		s.expired = true
		s.shut()
	case !s.Dismissed && !s.doing:
		s.begin(s.due(s.now))
	case s.Dismissed && !s.erased && !s.erasing:
		s.erase()
	case s.Dismissed && s.erased && !s.doing && !s.fetching && (s.expired || late):
		s.gone = true
		s.do(removeWard{})
	}
}

// begin makes a call of due.
func (s *step) begin(f effect) {
	switch f.(type) {
	case nil:
		return
	case look:
		s.looked = s.now.Time
	case takeOver:
		s.asked = s.now.Time
	}
	s.doing = true
	s.do(f)
}

// due returns the next call for a ward that is not dismissed, or nil.
func (w guarded) due(now machine.Now) effect {
	switch {
	case !w.refreshed:
		return merge{w.Ward, refreshing}
	case !w.Unbacked.IsZero() && w.state != nil && now.Time.Sub(w.looked) > wageLook:
		return look{w.Ward, w.state.Bytes}
	case !w.Ready || w.Over:
		return nil
	case w.mine() && !w.taken:
		return merge{w.Ward, resuming}
	case !w.mine() && w.starving.IsZero() && w.starved(now) && now.Time.Sub(w.asked) > w.timing.Turn:
		return merge{w.Ward, judging}
	case !w.mine() && w.failed(now) && w.turn(now.Time):
		return takeOver{w.Ward}
	}
	return nil
}

// backed notes that the wage is on chain. The job's files are fetched then.
func (s *step) backed(ev looked) {
	if s.doing = false; ev.err != nil || s.Dismissed {
		return
	}
	s.Unbacked, s.tried = time.Time{}, time.Time{}
	s.do(putWard{})
}

// merged imports newer data of the other guardians, and continues with the purpose of the request.
func (s *step) merged(ev merged) {
	if s.doing = false; s.Dismissed {
		return
	}
	err := s.absorb(ev.standing)
	if ev.err != nil {
		err = ev.err
	}
	if err != nil {
		s.do(warn{"the other guardians' data of a job is missing", err})
	}
	switch ev.why {
	case refreshing:
		s.refreshed = true
	case judging:
		s.asked = s.now.Time
		if err == nil && ev.standing.Answers >= int(s.Keys.Threshold) && s.starved(s.now) {
			s.starving = s.now.Time
			s.do(warn{text: "the supervisor of a job does not pay"})
		}
	case resuming: // this guardian's data is enough
		s.takeUp()
	}
}

// absorb imports a standing.
func (s *step) absorb(standing guardian.Standing) error {
	if err := s.learn(standing.Epoch, standing.Grant); err != nil {
		return err
	}
	if st := standing.SignedState(); st != nil {
		if err := s.keepState(*st); err != nil {
			return err
		}
	}
	for id, l := range standing.SignedLeases() {
		old := s.leases[id]
		k, _, err := s.checkLease(*l)
		if err != nil || !k.Newer(old) || k.Follows(old) != nil {
			continue // a lease that this guardian would not have signed, or already has
		}
		if err := s.keepLease(k); err != nil {
			return err
		}
	}
	return nil
}

// tookOver learns the supervisor after this guardian's request for the job, also where another one was faster.
func (s *step) tookOver(ev tookOver) {
	s.doing = false
	if err := s.learn(ev.standing.Epoch, ev.standing.Grant); err != nil {
		s.do(warn{"the supervisor of a job is not known", err})
	}
}

// takeUp resumes a job that this guardian supervises.
func (s *step) takeUp() {
	if s.Over || !s.mine() || s.taken {
		return
	}
	if s.key == nil {
		s.do(warn{"a job cannot be supervised", sealed.ErrSealed})
		return
	}
	t := guardian.Taken{
		Charter: s.Charter, Key: *s.key, File: slices.Clone(s.File), Files: slices.Clone(s.Files), Until: s.Until,
	}
	if s.state != nil {
		st := s.state.State
		t.State = &st
	}
	for _, k := range s.leases {
		t.Leases = append(t.Leases, k.Lease)
	}
	s.taken, s.heard, s.doing = true, s.now.Time, true
	s.do(takeUp{s.Ward, t})
}

// drop notes files that were needed.
func (s *step) drop(files []guardian.File) { s.stale = slices.Concat(s.stale, files) }

// arrange drops and brings files, where that is due: files are brought once the wage is on chain.
func (s *step) arrange() {
	bring := !s.Dismissed && !s.complete && s.Unbacked.IsZero() && s.now.Time.Sub(s.tried) > s.timing.Silent
	if s.fetching || s.gone || !bring && len(s.stale) == 0 {
		return
	}
	s.do(arrange{s.Ward, s.state, s.stale, bring})
	s.fetching, s.stale = true, nil
}

// arranged notes the files that are stored.
func (s *step) arranged(ev arranged) {
	if s.fetching = false; !ev.tried {
		return
	}
	if s.tried = s.now.Time; !ev.ok || s.Dismissed {
		return
	}
	if !s.Ready {
		s.Ready, s.heard = true, s.now.Time
		s.do(putWard{})
	}
	if s.complete = s.state == ev.of && ev.whole; s.state != ev.of {
		s.tried = time.Time{} // the state's files are due
	}
	s.spare = s.state.SpareOf(ev.spare)
}
