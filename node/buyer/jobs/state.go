package jobs

import (
	"slices"
	"time"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/lease"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/node/buyer/jobs/file"
)

// Now is the time of a Step: the wall clock for deadlines, the chain's slot for leases.
type Now = lease.Now

// GangID numbers the orders of a job, from 1.
type GangID uint32

// Req names an API call that waits for an Answer; 0: none.
type Req uint64

// Exec names one execution. Lease is the first of its renewal chain.
type Exec struct {
	Rank  uint32
	Lease market.LeaseID
	Seq   uint64
}

// State is a job. It is a value: Step returns another one. Fields without a JSON name are volatile: they are not
// journalled, and Recovered sets them anew.
type State struct {
	Params   Params     `json:"params"`
	Phase    Phase      `json:"phase"`
	Outcome  Outcome    `json:"outcome,omitzero"` // from Stopping on
	Command  Command    `json:"command,omitzero"`
	Created  time.Time  `json:"created"`
	Started  time.Time  `json:"started,omitzero"`  // every rank had a lease first; timeouts.run counts from here
	Finished time.Time  `json:"finished,omitzero"` // every program has ended, and outputs are gathered
	Ended    time.Time  `json:"ended,omitzero"`    // all is paid
	Round    uint32     `json:"round,omitempty"`   // from 0; Params.Rounds once the last one is done
	Carry    File       `json:"carry,omitzero"`
	Paused   bool       `json:"paused,omitempty"`
	WantStop bool       `json:"wantStop,omitempty"` // requested while another peer supervised
	Extended uint32     `json:"extended,omitempty"` // accepted extensions
	Ranks    []Rank     `json:"ranks"`
	Gangs    []Gang     `json:"gangs,omitempty"` // orders in progress; those without an order id are volatile
	Placed   GangID     `json:"placed,omitempty"`
	Renewals []Renewal  `json:"renewals,omitempty"`
	Grants   []Grant    `json:"grants,omitempty"` // money of replicas
	Judged   []bool     `json:"judged,omitempty"` // by rank, for a job with checks
	Plan     Plan       `json:"plan,omitzero"`
	Scale    *Scale     `json:"scale,omitempty"` // change of size in progress
	Avoid    []sign.Key `json:"avoid,omitempty"` // providers that lost a rank, oldest first
	Account  Account    `json:"account,omitzero"`

	// Gang is the newest order, Placed the newest one with an order id.
	Gang GangID `json:"-"`
	// Leases are facts of the lease room, which repeats them in Recovered.
	Leases []Lease `json:"-"`
	// ResumedUntil is when limits take effect that expired while this peer was away.
	ResumedUntil time.Time `json:"-"`

	closing, anchoring, reducing bool // the effect was emitted
}

// Rank is one numbered worker of a job.
type Rank struct {
	State       RankState      `json:"state"`
	Joining     bool           `json:"joining,omitempty"` // of a scale-up that is not complete
	Epoch       uint32         `json:"epoch,omitempty"`   // of its newest order; each lease of the rank has its own
	Lease       market.LeaseID `json:"lease,omitzero"`    // first of its renewal chain; zero without one
	Whole       bool           `json:"whole,omitempty"`   // the lease was bought for all of timeouts.run
	Provider    sign.Key       `json:"provider,omitzero"`
	Seq         uint64         `json:"seq,omitempty"`        // newest execution under Lease
	Generation  uint32         `json:"generation,omitempty"` // of the cluster when Seq was started
	Losses      uint32         `json:"losses,omitempty"`
	Restarts    uint32         `json:"restarts,omitempty"`
	NotBefore   time.Time      `json:"notBefore,omitzero"` // of the next order or start
	Begun       time.Time      `json:"begun,omitzero"`     // Seq was requested
	Exit        Exit           `json:"exit,omitzero"`
	Outputs     []File         `json:"outputs,omitempty"`
	Checkpoints []Checkpoint   `json:"checkpoints,omitempty"` // the newest first
	Unextended  string         `json:"unextended,omitempty"`  // why its lease was not renewed

	Doing     Activity  `json:"-"`
	Gang      GangID    `json:"-"` // while Ordering
	Since     time.Time `json:"-"` // waiting since; timeouts.queue counts from here
	Pulled    bool      `json:"-"`
	Adopted   bool      `json:"-"` // started by an earlier process or supervisor
	Silent    time.Time `json:"-"` // since then its provider has not answered
	HaltBy    time.Time `json:"-"` // set once a stop was requested
	Unhealthy string    `json:"-"`
	LostBy    Cause     `json:"-"` // why its lease ended; 0: it did not

	lostWhy  string
	unplaced string // why its newest order failed
	tries    uint32 // orders that failed since Since
	heard    bool   // since another rank is Judging
}

// The files of a job.
type (
	File       = file.File
	Checkpoint = file.Checkpoint
)

// Exit is how an execution ended.
type Exit struct {
	Code     int    `json:"code,omitempty"`
	Reason   string `json:"reason,omitempty"` // the runtime's; empty if the program exited
	Detail   string `json:"detail,omitempty"`
	Broken   bool   `json:"broken,omitempty"`   // the provider's doing, unless a stop was requested
	Hopeless bool   `json:"hopeless,omitempty"` // every provider would answer the same
}

// Reasons of an Exit that decide its Code.
const (
	ReasonProgram   = "program" // the program cannot be loaded
	ReasonTimeout   = "timeout"
	ReasonUnhealthy = "unhealthy"
	reasonEnded     = "ended"
	reasonInput     = "input" // an input's URL does not have it
	reasonMemory    = "oom"
	reasonDisk      = "disk"
)

func (e Exit) ok() bool { return e.Code == 0 && e.Reason == "" && !e.Broken }

// Gang is one order in progress.
type Gang struct {
	ID       GangID         `json:"id"`
	Ranks    []uint32       `json:"ranks"`
	Cap      market.Amount  `json:"cap"` // most that its leases cost together
	Until    time.Time      `json:"until"`
	Extended uint32         `json:"extended,omitempty"` // State.Extended when it was ordered
	Whole    bool           `json:"whole,omitempty"`    // its leases are bought for all of timeouts.run
	Order    market.OrderID `json:"order"`
	Dropped  bool           `json:"dropped,omitempty"` // CancelGang was emitted; an answer is still due
}

// Lease is a fact about one lease. A successor has the Chain, Rank and Epoch of its first.
type Lease struct {
	ID, Chain   market.LeaseID
	Rank, Epoch uint32
	Provider    sign.Key
	End         market.Slot
	Rate        market.Rate
	Most        market.Amount // it can still cost, or did
	Open        bool          // it is not settled
	Usable      bool          // its chain can be used
	Ending      bool          // EndLease was emitted, LeaseCost is still due
	asked       bool          // EndLease was emitted in this process
}

// Renewal is a successor requested from a provider.
type Renewal struct {
	Rank  uint32         `json:"rank"`
	Of    market.LeaseID `json:"of"`
	Chain market.LeaseID `json:"chain"`
	Until market.Slot    `json:"until"`
	Cap   market.Amount  `json:"cap"`
}

// Grant is the money of one replica.
type Grant struct {
	Rank    uint32        `json:"rank"`
	Attempt uint32        `json:"attempt"`
	Most    market.Amount `json:"most"`
}

// Scale is a change of a cluster's size.
type Scale struct {
	Req    Req    `json:"-"`
	From   uint32 `json:"from"`
	Target uint32 `json:"target"`
	// Budget is the job's once a scale-down is complete, or once a scale-up has failed.
	Budget market.Amount `json:"budget"`
}

// up reports whether members are added.
func (c *Scale) up() bool { return c != nil && c.Target > c.From }

// down reports whether members are removed.
func (c *Scale) down() bool { return c != nil && c.Target < c.From }

// Plan is the membership of a cluster, as far as it decides something.
type Plan struct {
	Version    uint64    `json:"version,omitempty"`    // counts changes of membership
	Generation uint32    `json:"generation,omitempty"` // counts starts of all members with another head
	Ready      time.Time `json:"ready,omitzero"`       // the head of this generation was healthy first
	Idle       time.Time `json:"idle,omitzero"`        // unused since
	Epochs     []uint32  `json:"epochs,omitempty"`     // of ranks that were scaled away
}

// Command is the supervision of a guarded job.
type Command struct {
	Owner bool   `json:"owner,omitempty"` // this peer submitted the job
	Epoch uint64 `json:"epoch,omitempty"` // under which this peer supervised last
	Other uint64 `json:"other,omitempty"` // highest epoch of another peer
	Lost  bool   `json:"lost,omitempty"`  // another peer supervises, or may
}

// Outcome is the outcome of a job.
type Outcome struct {
	Result Result `json:"result"`
	Code   Code   `json:"code,omitempty"`
	Reason string `json:"reason,omitempty"`
}

// Account is the progress of settling.
type Account struct {
	Counted  bool          `json:"counted,omitempty"`
	Released bool          `json:"released,omitempty"`
	Anchored bool          `json:"anchored,omitempty"`
	Owed     market.Amount `json:"owed,omitempty"`
	Paid     market.Amount `json:"paid,omitempty"`
	Receipts uint64        `json:"receipts,omitempty"`
	Tx       string        `json:"tx,omitempty"`
}

// clone copies everything that a Step may change.
func (s State) clone() State {
	s.Ranks, s.Gangs, s.Leases = slices.Clone(s.Ranks), slices.Clone(s.Gangs), slices.Clone(s.Leases)
	s.Renewals, s.Grants = slices.Clone(s.Renewals), slices.Clone(s.Grants)
	s.Judged, s.Avoid, s.Plan.Epochs = slices.Clone(s.Judged), slices.Clone(s.Avoid), slices.Clone(s.Plan.Epochs)
	if s.Scale != nil {
		scale := *s.Scale
		s.Scale = &scale
	}
	return s
}

// Done reports whether the runner of the job can be closed: nothing is left to do here.
func (s State) Done() bool {
	switch {
	case s.Phase == Ended:
		return true
	case s.Command.Owner:
		return false
	case s.Command.Lost:
		return s.Command.Epoch > 0
	}
	return s.Phase == Settling && !s.owing()
}

// owing reports whether a lease is not settled, or may still be taken.
func (s State) owing() bool {
	open := slices.ContainsFunc(s.Leases, func(l Lease) bool { return l.Open })
	return open || len(s.Gangs) > 0 || len(s.Renewals) > 0
}

// usable reports whether a lease of the chain is known, and whether one can be used.
func (s *State) usable(chain market.LeaseID) (known, ok bool) {
	for i := range s.Leases {
		if l := &s.Leases[i]; l.Chain == chain {
			known, ok = true, ok || l.Usable
		}
	}
	return known, ok
}

// lastRound reports whether no round follows this one.
func (s *State) lastRound() bool { return s.Round+1 >= s.Params.Rounds }

// leaving reports whether rank i is being scaled away.
func (s *State) leaving(i int) bool { return s.Scale.down() && uint32(i) >= s.Scale.Target }

// serves reports whether rank i only serves the head of its cluster.
func (s *State) serves(i int) bool {
	return s.Params.Cluster != nil && s.Params.Cluster.HeadEnds && i != 0
}

// checking reports whether results are checked after the job's work.
func (s *State) checking() bool {
	return s.Params.Checked && (s.Outcome.Result == ResultSucceeded || s.Outcome.Code == CodeVerify)
}

// remaining returns how long the job may still run.
func (s *State) remaining(now time.Time) time.Duration {
	if s.Started.IsZero() {
		return s.Params.Run
	}
	return s.Params.Run - max(now.Sub(s.Started), 0)
}

// late reports whether this process took the job over, by a restart or from another peer: its network view is fresh.
func (s *State) late() bool { return !s.ResumedUntil.IsZero() }

// jitter is the pause after the nth failed order of a rank: n times 125 to 375 ms, up to 3 s. It differs between jobs,
// so that two buyers that blocked each other do not meet again.
func (s *State) jitter(id GangID, n uint32) time.Duration {
	x := (s.Params.Seed ^ uint64(id)) * 0x9e3779b97f4a7c15 >> 54 // 10 bits
	return time.Duration(min(n, 8)) * (125*time.Millisecond + time.Duration(x)*250*time.Millisecond/1024)
}

// grant returns the index of a replica's grant, or -1.
func (s *State) grant(rank, attempt uint32) int {
	return slices.IndexFunc(s.Grants, func(g Grant) bool { return g.Rank == rank && g.Attempt == attempt })
}
