package record

import (
	"fmt"
	"slices"
	"time"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/node/nodepb"
	"github.com/starling-network/starling/verify/exclusive"
)

// Rank is one numbered worker of a job.
type Rank struct {
	State    RankState      `json:"state"`
	Epoch    uint32         `json:"epoch"` // counts the leases of this rank; the highest wins
	Lease    market.LeaseID `json:"lease,omitzero"`
	Provider sign.Key       `json:"provider,omitzero"`
	Route    string         `json:"route,omitempty"`
	Units    Units          `json:"units,omitzero"` // of the last lease
	Restarts int            `json:"restarts,omitempty"`
	Seq      uint64         `json:"seq,omitempty"` // of the execution under its lease
	Exit     int            `json:"exit"`
	Reason   string         `json:"reason,omitempty"`
	Detail   string         `json:"detail,omitempty"`  // the provider's report of the end
	Outputs  []Output       `json:"outputs,omitempty"` // of the last round it finished
	// Log is a guardian's copy of the rank's log, for an owner that comes back; nil: none.
	Log *Blob `json:"log,omitempty"`
	// LogBase is where this execution's log begins in the rank's log.
	LogBase int64 `json:"logBase,omitempty"`
	// Retries counts restarts of the program on its lease, by restart.policy. Restarts, above, counts moves of the rank
	// to another provider.
	Retries int `json:"retries,omitempty"`
	// Generation is the cluster's generation at the start of its program.
	Generation int       `json:"generation,omitempty"`
	Begun      time.Time `json:"begun,omitzero"` // when the start of this execution was requested
	After      time.Time `json:"after,omitzero"` // the program is started again at this time
	Live       Live      `json:"live,omitzero"`  // the provider's last report of the execution
	// Unextended is why the provider would not sign a successor of its lease.
	Unextended string `json:"unextended,omitempty"`
	// Checkpoints are the packs from which the rank can continue, at most two, the newest first.
	Checkpoints []Checkpoint `json:"checkpoints,omitempty"`
	// Exclusive has the results of probes and the provider's reports for the units of the last lease; nil if there are
	// none.
	Exclusive *Exclusive `json:"exclusive,omitempty"`
}

// Runs reports whether the rank's program runs, by the last report of its provider; not while it is paused.
func (r Rank) Runs() bool { return r.State == RankRunning && r.Live.Phase == phaseRunning }

// phaseRunning is Live.Phase while the program runs.
const phaseRunning = "running"

// RankState is where one rank of a job stands.
type RankState string

// The states of a rank.
const (
	RankWaiting RankState = "waiting" // no lease yet, or lost and not replaced yet
	RankLeased  RankState = "leased"  // has a lease, nothing runs
	RankRunning RankState = "running" // its execution was started
	RankDone    RankState = "done"    // its execution of this round exited with 0
	RankFailed  RankState = "failed"  // its execution exited with another code
	RankJoining RankState = "joining" // a cluster is being scaled to have it; it has no lease yet
)

// Units is the kind of a lease's units.
type Units struct {
	Class     market.Class `json:"class"`
	Model     string       `json:"model,omitempty"`
	Simulated bool         `json:"simulated,omitempty"` // they are not hardware
}

// UnitsOf returns the kind of the units of a quote.
func UnitsOf(q market.Quote) Units {
	return Units{Class: q.Class, Model: q.Model, Simulated: q.Simulated}
}

// Live is a running program as its provider describes it.
type Live struct {
	Phase     string    `json:"phase,omitempty"`  // pulling, running, paused
	Health    string    `json:"health,omitempty"` // starting, healthy, unhealthy; empty without a check
	Message   string    `json:"message,omitempty"`
	Pulled    uint64    `json:"pulled,omitempty"` // bytes
	PullTotal uint64    `json:"pullTotal,omitempty"`
	Devices   []string  `json:"devices,omitempty"` // its GPUs
	KeepUntil time.Time `json:"keepUntil,omitzero"`
	Ways      *Ways     `json:"ways,omitempty"` // of a cluster's member
}

// Equal reports whether two reports are the same to a user.
func (l Live) Equal(o Live) bool {
	return slices.Equal(l.Devices, o.Devices) && l.KeepUntil.Equal(o.KeepUntil) && l.Phase == o.Phase &&
		l.Health == o.Health && l.Message == o.Message && l.Pulled == o.Pulled && l.PullTotal == o.PullTotal &&
		l.Ways.Equal(o.Ways)
}

// Exclusive is a buyer's record of a rank's units for as long as it has them.
type Exclusive struct {
	Lease      market.LeaseID   `json:"lease"` // the first of its renewal chain
	Watch      exclusive.Watch  `json:"watch"`
	Budget     exclusive.Budget `json:"budget"`
	Asked      uint64           `json:"asked"`                // questions
	Unanswered int              `json:"unanswered,omitempty"` // of them
	Full       int              `json:"full,omitempty"`       // of them: the program had left the devices no memory
	Wrong      int              `json:"wrong,omitempty"`      // answers
	Note       string           `json:"note,omitempty"`       // the reason if there are none
	Health     *Health          `json:"health,omitempty"`     // nil: the provider reported no devices
}

// Health has a provider's reports of an execution's hardware, at both ends of it, and the changes in between.
type Health struct {
	Execution uint64             `json:"execution"`
	Before    *Snapshot          `json:"before,omitempty"`
	After     *Snapshot          `json:"after,omitempty"`
	Changes   []exclusive.Change `json:"changes,omitempty"`
}

// Snapshot is one of the reports, with both signatures.
type Snapshot struct {
	exclusive.Snapshot
	ProviderSig sign.Signature `json:"providerSig"`
	BuyerSig    sign.Signature `json:"buyerSig"`
}

// Text sums the record up in a line, for a person. It is "" without any result.
func (x *Exclusive) Text() string {
	if x == nil {
		return ""
	}
	text := x.Watch.Text()
	add := func(more string) {
		if text != "" {
			text += "; "
		}
		text += more
	}
	if x.Wrong > 0 {
		add(fmt.Sprintf("%d wrong answers", x.Wrong))
	}
	if x.Unanswered > 0 {
		add(fmt.Sprintf("%d not answered", x.Unanswered))
	}
	if x.Full > 0 {
		add(fmt.Sprintf("%d not possible beside the program, which had filled the devices' memory", x.Full))
	}
	if x.Note != "" {
		add(x.Note)
	}
	return text
}

// Has reports whether the snapshot of an execution was taken.
func (x *Exclusive) Has(seq uint64, when exclusive.When) bool {
	if x.Health == nil || x.Health.Execution != seq {
		return false
	}
	return when == exclusive.Before && x.Health.Before != nil || when == exclusive.After && x.Health.After != nil
}

// Add adds a snapshot and returns the changes that follow from it, beside those that the caller found in it.
func (x *Exclusive) Add(seq uint64, snap *Snapshot, changes []exclusive.Change) []exclusive.Change {
	h := Health{Execution: seq}
	if x.Health != nil && x.Health.Execution == seq {
		h = *x.Health
	}
	if snap.When == exclusive.Before {
		h.Before = snap
	} else {
		h.After = snap
	}
	if h.Before != nil && h.After != nil {
		changes = append(changes, exclusive.Changes(h.Before.Snapshot, h.After.Snapshot)...)
	}
	h.Changes = append(slices.Clone(h.Changes), changes...)
	x.Health = &h
	return changes
}

// LiveOf returns an execution as its user sees it while it runs.
func LiveOf(ex *nodepb.Execution) Live {
	l := Live{Message: Clean(ex.Message), Pulled: ex.PulledBytes, PullTotal: ex.PullTotal, Ways: WaysOf(ex)}
	switch {
	case ex.State.Ended():
		l.Message, l.Ways = "", nil
	case ex.Paused:
		l.Phase = "paused"
	case ex.State == nodepb.ExecState_EXEC_STATE_PULLING:
		l.Phase = "pulling"
	case ex.State == nodepb.ExecState_EXEC_STATE_RUNNING:
		l.Phase = phaseRunning
	}
	switch ex.Health {
	case nodepb.Health_HEALTH_STARTING:
		l.Health = "starting"
	case nodepb.Health_HEALTH_HEALTHY:
		l.Health = "healthy"
	case nodepb.Health_HEALTH_UNHEALTHY:
		l.Health = "unhealthy"
	}
	if l.Message == "" && l.Health == "unhealthy" {
		l.Message = Clean(ex.HealthMessage)
	}
	for _, d := range ex.Devices {
		if len(l.Devices) < maxDevices {
			l.Devices = append(l.Devices, Clean(d))
		}
	}
	if ms := ex.KeepUntilMillis; ms > 0 && ms < maxMillis {
		l.KeepUntil = time.UnixMilli(int64(ms))
	}
	return l
}

const (
	maxDevices = 256
	maxMillis  = 1 << 45 // a time that JSON can have
)

// maxText bounds a text of a peer, in bytes.
const maxText = 800

// Clean bounds and cleans a text that came from a peer.
func Clean(s string) string {
	if len(s) > maxText {
		return market.Clean(s, maxText) + "…"
	}
	return market.Clean(s, maxText)
}
