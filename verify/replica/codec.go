package replica

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"unicode/utf8"
)

// MaxState bounds a journalled check, in bytes.
const MaxState = 32 << 10

// Marshal gives the state for the journal: JSON, so that a person can read it. Persist carries it.
func (c Check) Marshal() ([]byte, error) {
	b, err := json.Marshal(c.s)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrState, err)
	}
	return b, nil
}

// Restore returns the machine with its last journalled state. It returns ErrState or ErrTerms.
func Restore(b []byte) (Check, error) {
	var c Check
	if len(b) > MaxState {
		return c, fmt.Errorf("%w: %d bytes", ErrState, len(b))
	}
	dec := json.NewDecoder(bytes.NewReader(b))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&c.s); err != nil {
		return Check{}, fmt.Errorf("%w: %w", ErrState, err)
	}
	if _, err := dec.Token(); err != io.EOF {
		return Check{}, fmt.Errorf("%w: trailing bytes", ErrState)
	}
	if err := c.s.plausible(); err != nil {
		return Check{}, err
	}
	return c, nil
}

// plausible refuses states that no check journals.
func (s state) plausible() error {
	if err := s.Terms.Params.Check(); err != nil {
		return fmt.Errorf("%w: %w", ErrState, err)
	}
	bad := func(what string) error { return fmt.Errorf("%w: %s", ErrState, what) }
	right, wrong := majority(s.Results)
	switch {
	case len(s.Results) == 0 || len(s.Results) > MaxResults:
		return bad("results")
	case s.Attempt > MaxAttempts || len(s.Tried) > MaxAttempts || len(s.Results) > int(s.Attempt)+1:
		return bad("attempts")
	case s.Odds > Always || s.Terms.Trust.Valid > MaxTrust:
		return bad("odds or record")
	case s.Since > lastSlot || s.Until > 2*lastSlot:
		return bad("slots")
	case len(s.Reason) > maxReason || !utf8.ValidString(s.Reason):
		return bad("reason")
	}
	switch s.State {
	case Unchecked:
		if s.Beacon != nil || s.Attempt > 0 {
			return bad("unchecked with a block")
		}
		return nil
	case NotDrawn:
		if s.Beacon == nil || s.Attempt > 0 {
			return bad("not drawn, and replicated")
		}
		return nil
	case Unverified:
		return nil
	case Replicating:
		if s.Attempt == 0 || right >= 0 || len(s.Results) == MaxResults {
			return bad("replicating: already decided")
		}
	case Equal:
		if right < 0 || len(wrong) > 0 {
			return bad("equal without an equal")
		}
	case Differs:
		if right < 0 || len(wrong) == 0 {
			return bad("differs without a majority")
		}
	case Undecided:
		if right >= 0 || len(s.Results) < MaxResults {
			return bad("undecided too early")
		}
	default:
		return bad("state " + string(s.State))
	}
	if s.Beacon == nil {
		return bad("replicated without a block")
	}
	return nil
}
