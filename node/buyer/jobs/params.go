package jobs

import (
	"fmt"
	"time"

	"github.com/starling-network/starling/market"
)

// Bounds on the content of a record.
const (
	MaxRanks   = 1024
	maxRounds  = 10_000
	maxRestart = 100
	maxTime    = 10 * 366 * 24 * time.Hour
)

// Params are the values of the job file and of the configuration that decide something.
type Params struct {
	Count    uint32        `json:"count"`
	Rounds   uint32        `json:"rounds"`
	Standbys uint32        `json:"standbys,omitempty"`
	Reduce   bool          `json:"reduce,omitempty"`  // a program runs here between rounds
	Checked  bool          `json:"checked,omitempty"` // results are replicated
	Guarded  bool          `json:"guarded,omitempty"` // other peers may take over
	Restart  Restart       `json:"restart"`
	Queue    time.Duration `json:"queue"`
	Pull     time.Duration `json:"pull,omitempty"`  // 0: no limit
	Start    time.Duration `json:"start,omitempty"` // 0: no limit
	Run      time.Duration `json:"run"`
	Idle     time.Duration `json:"idle,omitempty"` // without use, until the job stops; 0: never
	Grace    time.Duration `json:"grace"`
	// LostAfter is how long a provider may be silent.
	LostAfter time.Duration `json:"lostAfter"`
	Rate      market.Rate   `json:"rate"`   // ceiling of one rank's lease
	Budget    market.Amount `json:"budget"` // leases and replicas together
	// SlotMillis is the length of a slot, Interval the slots of one metering interval.
	SlotMillis uint64  `json:"slotMillis"`
	Interval   uint64  `json:"interval"`
	Cluster    *Engine `json:"cluster,omitempty"` // nil: ranks are independent
	Seed       uint64  `json:"seed"`              // of jitter; differs between jobs
}

// Restart is the restart policy of a job. Max bounds the losses of a rank and the restarts of its program separately.
type Restart struct {
	Max         uint32        `json:"max"`
	OnFailure   bool          `json:"onFailure,omitempty"`
	Always      bool          `json:"always,omitempty"`
	Backoff     time.Duration `json:"backoff,omitempty"`
	MostBackoff time.Duration `json:"mostBackoff,omitempty"`
}

// Engine describes a cluster's engine as far as it decides something.
type Engine struct {
	HeadEnds  bool          `json:"headEnds,omitempty"`  // the job ends with the head; other members only serve
	Binds     bool          `json:"binds,omitempty"`     // members do not survive their head
	HeadFirst bool          `json:"headFirst,omitempty"` // other members wait for the head
	Autostop  time.Duration `json:"autostop,omitempty"`  // 0: never
}

// Validate reports the first value that no job can have.
func (p Params) Validate() error {
	bad := func(name string, got any) error { return fmt.Errorf("%w: %s: %v", ErrRecord, name, got) }
	times := []struct {
		name     string
		got, min time.Duration
	}{
		{"queue", p.Queue, 0}, {"pull", p.Pull, 0}, {"start", p.Start, 0}, {"run", p.Run, 1}, {"idle", p.Idle, 0},
		{"grace", p.Grace, 0}, {"lostAfter", p.LostAfter, 0}, {"backoff", p.Restart.Backoff, 0},
		{"mostBackoff", p.Restart.MostBackoff, 0},
	}
	for _, t := range times {
		if t.got < t.min || t.got > maxTime {
			return bad(t.name, t.got)
		}
	}
	switch c := p.Cluster; {
	case p.Count < 1 || p.Count > MaxRanks:
		return bad("count", p.Count)
	case p.Rounds < 1 || p.Rounds > maxRounds:
		return bad("rounds", p.Rounds)
	case p.Standbys > MaxRanks:
		return bad("standbys", p.Standbys)
	case p.Restart.Max > maxRestart:
		return bad("restart.max", p.Restart.Max)
	case p.SlotMillis < 1 || p.SlotMillis > market.MaxSlotMillis:
		return bad("slotMillis", p.SlotMillis)
	case p.Interval < 1 || p.Interval > market.MaxLeaseSlots:
		return bad("interval", p.Interval)
	case c != nil && (p.Rounds != 1 || p.Reduce || p.Checked || p.Guarded):
		return bad("cluster", "a cluster has no rounds, checks or guardians")
	case c != nil && (c.Autostop < 0 || c.Autostop > maxTime):
		return bad("autostop", c.Autostop)
	case p.Idle > 0 && (c != nil || p.Guarded):
		return bad("idle", "a guarded job does not see its use, and a cluster has autostop")
	case p.Checked && p.Guarded:
		return bad("checked", "a guarded job has no checks")
	}
	return nil
}

// IdleLimit returns the time without use after which the job stops; 0 is never.
func (p Params) IdleLimit() time.Duration {
	if p.Cluster != nil {
		return p.Cluster.Autostop
	}
	return p.Idle
}

// slotsIn returns the slots that cover d.
func (p Params) slotsIn(d time.Duration) uint64 {
	slot := time.Duration(p.SlotMillis) * time.Millisecond
	return uint64((max(d, 0) + slot - 1) / slot)
}

// again reports whether a program that exited, after n restarts, is started again.
func (re Restart) again(ok bool, n uint32) bool {
	return n < re.Max && (re.Always || re.OnFailure && !ok)
}

// cures reports whether an unhealthy program is stopped.
func (re Restart) cures() bool { return re.Always || re.OnFailure }

// wait returns the pause before the nth restart, from 1: Backoff, doubled each time up to MostBackoff.
func (re Restart) wait(n uint32) time.Duration {
	d := re.Backoff
	for i := uint32(1); i < n && d < re.MostBackoff; i++ {
		d *= 2
	}
	return min(d, re.MostBackoff)
}
