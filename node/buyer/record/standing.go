package record

import (
	"encoding/json"
	"errors"
	"fmt"
	"path"
	"slices"

	"github.com/ipfs/go-cid"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/node/buyer/jobs"
)

// A statement of another supervisor about a job carries its signature, and it may lie. This file holds it to values
// that this peer itself could have journalled, so that a false statement costs at most the work in it.

// Standing is a job as its guardians store it for the next supervisor: the state of its machine, and the other data of
// a supervisor.
type Standing struct {
	Work     json.RawMessage  `json:"work"` // jobs.State
	Detached standingMoney    `json:"detached"`
	Orders   []market.OrderID `json:"orders,omitempty"`
	Carry    *Blob            `json:"carry,omitempty"` // of the first round, too
	Ranks    []standingRank   `json:"ranks"`
}

// standingMoney is the place of a job's money.
type standingMoney struct {
	Escrow   *Place            `json:"escrow,omitempty"`
	Standbys []Standby         `json:"standbys,omitempty"`
	Wages    map[string][]byte `json:"wages,omitempty"` // see Detached
}

// standingRank is a rank's state beside its job's machine.
type standingRank struct {
	Route     string     `json:"route,omitempty"`
	Units     Units      `json:"units,omitzero"`
	Log       *Blob      `json:"log,omitempty"`
	Exclusive *Exclusive `json:"exclusive,omitempty"` // the spending on probes counts on
}

// StandingOf returns the standing of a job. work is the encoded state of its machine.
func StandingOf(j Job, work []byte) Standing {
	p := Standing{Work: work, Orders: j.Orders, Carry: j.Carry}
	p.Detached = standingMoney{j.Detached.Escrow, j.Detached.Standbys, j.Detached.Wages}
	for _, r := range j.Ranks {
		k := standingRank{Route: r.Route, Units: r.Units, Log: r.Log}
		if r.Exclusive != nil {
			short := *r.Exclusive
			short.Health, k.Exclusive = nil, &short
		}
		p.Ranks = append(p.Ranks, k)
	}
	return p
}

// AcceptStanding validates another supervisor's standing of a job against this peer's record j and machine own. It
// returns the resulting machine. The standing is nil if it is not newer.
func AcceptStanding(j Job, own jobs.State, raw []byte) (jobs.State, *Standing, error) {
	var p Standing
	if err := json.Unmarshal(raw, &p); err != nil {
		return own, nil, err
	}
	theirs, err := jobs.Decode(p.Work)
	sure := own.Command.Epoch > 0 // this peer has supervised the job
	if err != nil || sure && theirs.Command.Epoch <= own.Command.Epoch {
		return own, nil, err // this peer's own standing, or an older one
	}
	st, err := jobs.Merge(own, p.Work, sure)
	if err != nil {
		return own, nil, err
	}
	if p.Detached.Escrow == nil && !st.Started.IsZero() {
		return own, nil, errors.New("the standing has begun without an escrow")
	}
	if len(p.Ranks) != len(st.Ranks) {
		return own, nil, fmt.Errorf("the standing has %d ranks, want %d", len(p.Ranks), len(st.Ranks))
	}
	c := st.Carry
	if c != (jobs.File{}) && !sound(Blob{CID: c.CID, Size: c.Bytes}) || p.Carry != nil && !sound(*p.Carry) {
		return own, nil, errors.New("the carry of the standing's rounds is not a file")
	}
	for i := range st.Ranks {
		bad := func(f jobs.File) bool { return !fit(f.Path) || !sound(Blob{CID: f.CID, Size: f.Bytes}) }
		if slices.ContainsFunc(st.Ranks[i].Outputs, bad) {
			return own, nil, fmt.Errorf("the outputs of rank %d are not a list of files", i)
		}
		lost := func(c jobs.Checkpoint) bool { return !sound(Blob{CID: c.File.CID, Size: c.File.Bytes}) }
		if slices.ContainsFunc(st.Ranks[i].Checkpoints, lost) {
			return own, nil, fmt.Errorf("the checkpoints of rank %d are not a list of files", i)
		}
		k := &p.Ranks[i]
		if k.Log != nil && !sound(*k.Log) {
			k.Log = nil
		}
		k.Route, k.Units.Model = Clean(k.Route), Clean(k.Units.Model)
	}
	spec := j.Spec // of which only this changes, when a job is made longer
	spec.Timeouts.Run, spec.Payment.Budget = st.Params.Run, st.Params.Budget
	if err := spec.Check(); err != nil {
		return own, nil, err
	}
	return st, &p, nil
}

// sound reports whether a blob can be the name of a file.
func sound(f Blob) bool {
	_, err := cid.Parse(f.CID)
	return err == nil && f.Size >= 0
}

// fit reports whether a path that a peer names is absolute and can be printed.
func fit(p string) bool { return path.IsAbs(p) && market.Clean(p, len(p)) == p }

// Amend updates a job to the standing, except its machine. An owner keeps its own record of its money.
func (p *Standing) Amend(j *Job, owner bool) {
	j.Orders, j.Carry = p.Orders, p.Carry
	for i := range min(len(j.Ranks), len(p.Ranks)) {
		k, r := &j.Ranks[i], p.Ranks[i]
		k.Route, k.Units, k.Log, k.Exclusive = r.Route, r.Units, r.Log, r.Exclusive
	}
	if !owner {
		d := j.Detached.Clone()
		d.Escrow, d.Wages, d.Standbys = p.Detached.Escrow, p.Detached.Wages, p.Detached.Standbys
		j.Detached = d
	}
}
