package record

import (
	"slices"
	"strings"
	"time"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/node/cluster"
	"github.com/starling-network/starling/node/job"
)

// Cluster is the state of a job whose ranks form one cluster. Members and Version are the plan that every member gets.
// They change together, in one write of the journal with the cause, so that no version has two contents.
//
//	leases of all ranks ─▶ version 1 ─▶ each rank starts with it
//	a rank is lost ─▶ version n+1 without it ─▶ a new lease, a higher epoch ─▶ version n+2 ─▶ sent to each member
//	scale up: new ranks are ordered, all or none ─▶ version n+1
//	scale down: the highest end ─▶ version n+1 without them
type Cluster struct {
	Version uint64 `json:"version"` // of the plan; 0: no plan yet
	Size    uint32 `json:"size"`    // ranks 0 to Size-1
	Members []Seat `json:"members,omitempty"`
	// Terms is its name in all its leases, however its job is changed later: members with the same one are of one
	// cluster.
	Terms sign.Hash `json:"terms"`
	// Begun is the size in its engine's configuration at its start, Generation the number of restarts since.
	Begun      uint32 `json:"begun"`
	Generation int    `json:"generation,omitempty"`
	// Ready is when its head's engine answered first in this generation; zero: not yet.
	Ready time.Time `json:"ready,omitzero"`
	// Target is a smaller size that it is being brought to; 0: none.
	Target uint32 `json:"target,omitempty"`
	// Before is the budget that the job had before it was last made larger, and has again if the new members do not
	// join.
	Before market.Amount `json:"before,omitempty"`
	// Epochs are the epochs of removed ranks, by rank. A new lease of such a rank gets a higher epoch.
	Epochs []uint32 `json:"epochs,omitempty"`
	// Idle is the start of its idle time; zero: it is in use, or not watched.
	Idle time.Time `json:"idle,omitzero"`
}

// Seat is one member of a cluster's plan.
type Seat struct {
	Rank  uint32         `json:"rank"`
	Epoch uint32         `json:"epoch"`
	Lease market.LeaseID `json:"lease"` // the first of its line
}

func (c *Cluster) clone() *Cluster {
	if c == nil {
		return nil
	}
	out := *c
	out.Members, out.Epochs = slices.Clone(c.Members), slices.Clone(c.Epochs)
	return &out
}

// NewCluster returns the state of a new job that is a cluster, or nil for another one.
func NewCluster(id string, spec job.Job) (*Cluster, error) {
	if spec.Cluster == nil {
		return nil, nil
	}
	terms, err := Terms(spec, []byte(id))
	if err != nil {
		return nil, err
	}
	return &Cluster{Size: spec.Count, Begun: spec.Count, Terms: terms}, nil
}

// Terms returns the hash that commits to a job and to apart, which distinguishes it from equal jobs.
func Terms(spec job.Job, apart ...[]byte) (sign.Hash, error) {
	b, err := job.Marshal(spec)
	if err != nil {
		return sign.Hash{}, err
	}
	return sign.Sum(append([][]byte{[]byte("starling/terms/v1"), b}, apart...)...), nil
}

// Engine returns the software that runs on a cluster, as its options set it.
func (j Job) Engine() cluster.Engine {
	e, err := cluster.LookUp(j.Spec.Cluster.Engine)
	if err != nil {
		return cluster.Engine{} // the job was checked
	}
	return e.With(j.Spec.Cluster.Options)
}

// Task returns the values from which the engine's template makes the program of a rank.
func (j Job) Task(rank int) cluster.Task {
	per, units, c := j.Spec.Resources.PerUnit, j.Spec.Resources.Units, j.Spec.Cluster
	t := cluster.Task{
		ID: j.ID, Rank: uint32(rank), Size: j.Cluster.Size, Begun: j.Cluster.Begun, Class: c.Network,
		Options: c.Options, Command: c.Command,
		MilliCPU: Times(per.MilliCPU, units), MemoryMiB: Times(per.MemoryMiB, units),
	}
	if j.Network != nil {
		t.RTT = time.Duration(j.Network.RTTMicros) * time.Microsecond
	}
	if cls := string(j.Spec.Resources.Class); cls == "gpu" || strings.HasPrefix(cls, "gpu/") {
		t.GPUs = units
	}
	return t
}

// Times multiplies, up to the highest number there is.
func Times(a, b uint32) uint32 { return uint32(min(uint64(a)*uint64(b), 1<<32-1)) }

// Resized returns the spec of the job with another number of members. Its budget follows if it was the most that the
// job could cost.
func (j Job) Resized(n int) (job.Job, error) {
	count := uint32(n)
	return j.Spec.With(job.Changes{Count: &count})
}
