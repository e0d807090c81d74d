// Package job is a user's request, its rules and its cost. Package jobfile reads it from a file or
// from the flags of `starling run`.
//
//	job file (YAML) ─▶ jobfile.Parse ─┐
//	                                  ├─▶ Job ─▶ WithBlobs ─▶ Marshal ─▶ local API ─▶ Unmarshal ─▶ Job
//	flags ────▶ jobfile.Flags.Job ────┘
//
// A field that is unknown, misspelt, of the wrong type or out of range is refused with its path and its line, because a
// job that ran with half of its limits ignored has already cost money. Fields that are part of the format but that this
// version does not implement are refused with [ErrNotSupported] for the same reason.
//
// Quantities are exact integers: MiB, thousandths of a CPU, base units of the token. No float touches money.
package job

import (
	"fmt"
	"math"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/node/job/kept"
	"github.com/starling-network/starling/node/job/names"
	"github.com/starling-network/starling/node/job/span"
	"github.com/starling-network/starling/node/runtime"
)

// Limits of one job.
const (
	MaxRank    = market.MaxCount // ranks of one job
	MaxRounds  = 10_000
	MaxRestart = 100
	MaxArgs    = 1024
	MaxEnv     = 250 // the peer adds a few
	MaxInputs  = 250
	MaxOutputs = 16
	MaxLabels  = 32
	MaxText    = 32 << 10 // bytes of one argument or variable
	MaxPath    = 512

	MinTime  = time.Second
	MaxQueue = 24 * time.Hour
	MaxPull  = 24 * time.Hour
	MaxRun   = 30 * 24 * time.Hour
	MaxStop  = 5 * time.Minute
	MaxKeep  = 30 * 24 * time.Hour

	MaxStandbys = 4
	// WagePart is the part of the highest cost of its leases that a job's guardians get at most, together: a tenth.
	WagePart = 10
)

// Defaults of a job.
const (
	DefaultClass   = market.Class("cpu")
	DefaultRestart = 3
	DefaultQueue   = 2 * time.Minute
	DefaultRun     = time.Hour
	DefaultStop    = 2 * time.Second
	// DefaultStandbys is the number of standbys of a job with guardians.
	DefaultStandbys = 2
)

// The runtimes of a job.
const (
	RuntimeWasm   = "wasm"   // WASI programs, given by module
	RuntimeDocker = "docker" // containers, given by image
	// RuntimeVolume keeps a directory for other jobs; it has no program.
	RuntimeVolume = market.Volume
)

// Job is a validated request. It is made by Parse, Flags.Job or Unmarshal and not changed afterwards: methods that
// return another Job share nothing with it that either would change.
type Job struct {
	Name    string            `json:"name"`
	Labels  map[string]string `json:"labels,omitempty"`
	Runtime string            `json:"runtime"` // RuntimeWasm, RuntimeDocker or RuntimeVolume
	// Module is the source of a WASI program. A source is a file path as the user wrote it, or "cid:" and a CID.
	Module string `json:"module,omitempty"`
	// Image is a container image, instead of Module. The peer that takes the job adds the digest that a name without
	// one has then. The peer has the files of pushed.invalid/NAME@sha256:….
	Image      string            `json:"image,omitempty"`
	Entrypoint []string          `json:"entrypoint,omitempty"` // of a container, instead of the image's own
	Args       []string          `json:"args,omitempty"`
	WorkDir    string            `json:"workDir,omitempty"` // of a container; empty: the image's
	Network    runtime.Network   `json:"network,omitempty"` // of a container
	Env        map[string]string `json:"env,omitempty"`
	// Secrets are their names and where the program finds them; their Values travel beside the job.
	Secrets   []Secret  `json:"secrets,omitempty"`
	Registry  *Registry `json:"registryAuth,omitempty"` // optional; if nil, the image is public
	Health    *Health   `json:"health,omitempty"`       // nil: running is healthy
	Count     uint32    `json:"count"`                  // ranks: leases taken all-or-nothing
	Resources Resources `json:"resources"`
	Placement Placement `json:"placement,omitzero"`
	// Cluster is optional; if nil, the ranks are independent.
	Cluster *Cluster `json:"cluster,omitempty"`
	Inputs  []Input  `json:"inputs,omitempty"`
	Outputs []Output `json:"outputs,omitempty"`
	// Volumes are the volumes that the program finds.
	Volumes []VolumeMount `json:"volumes,omitempty"`
	// Checkpoint is optional; if nil, a rank that moves begins anew.
	Checkpoint *Checkpoint `json:"checkpoint,omitempty"`
	// Copies is optional; if nil, this peer alone keeps the outputs.
	Copies *Copies `json:"copies,omitempty"`
	// ScratchMiB is the room that every rank has at ScratchPath at least, beside the disk of Resources; 0: none.
	ScratchMiB uint32 `json:"scratchMiB,omitempty"`
	// ShmMiB is the size of a container's /dev/shm, which is part of its memory; 0: half of its memory.
	ShmMiB   uint32   `json:"shmMiB,omitempty"`
	Rounds   *Rounds  `json:"rounds,omitempty"` // nil: the program runs once
	Restart  Restart  `json:"restart"`
	Timeouts Timeouts `json:"timeouts"`
	Keep     Span     `json:"keep,omitzero"` // how long providers keep results for an absent buyer; 0: as they like
	// Idle is the time without use after which the job is stopped: no stream into it is open through the buyer's peer,
	// and its programs compute little. 0: never.
	Idle Span `json:"idle,omitzero"`
	// Guardians is how many peers keep the job going when the one it was handed to is gone; 0: none. Standbys is how
	// many further providers they may take for ranks that are lost.
	Guardians uint32    `json:"guardians,omitempty"`
	Standbys  uint32    `json:"standbys,omitempty"`
	Verify    Verify    `json:"verify,omitempty"` // how results are checked
	Probes    Probes    `json:"probes,omitempty"` // how shared units are detected
	Payment   Payment   `json:"payment"`
	Webhooks  []Webhook `json:"webhooks,omitempty"`
	// Blobs are the contents of all sources, by source with {rank} filled in; nil until WithBlobs. The parts of a
	// pushed image are there as image:SHA-256.
	Blobs map[string]Blob `json:"blobs,omitempty"`
}

// Span is a length of time, and Copies are copies of outputs; see packages span and kept.
type (
	Span   = span.Span
	Copies = kept.Copies
)

// Resources is the share of every rank: Units units of a class, each with at least PerUnit. Zero fields require
// nothing.
type Resources struct {
	Class   market.Class     `json:"class"`
	Units   uint32           `json:"units"`
	PerUnit market.Resources `json:"perUnit,omitzero"`
	// MinCapability is the compute capability that GPUs have at least.
	MinCapability market.Capability `json:"minCapability,omitempty"`
	// Unproven takes units that have shown no fresh audit record too, on a network that audits.
	Unproven bool `json:"unproven,omitempty"`
}

// ScratchPath is a directory on the disk of a rank's lease that is empty at the start of its program and discarded at
// the end.
const ScratchPath = "/scratch"

// MinPerUnit returns the least resources of each unit: the job's, a part of the scratch space, and memory for its part
// of /dev/shm.
func (j Job) MinPerUnit() market.Resources {
	per, units := j.Resources.PerUnit, uint64(max(j.Resources.Units, 1))
	disk := uint64(per.DiskMiB) + (uint64(j.ScratchMiB)+units-1)/units
	per.DiskMiB = uint32(min(disk, math.MaxUint32))
	per.MemoryMiB = max(per.MemoryMiB, uint32((uint64(j.ShmMiB)+units-1)/units))
	return per
}

// Placement restricts the providers of the ranks.
type Placement struct {
	Regions []market.Region `json:"regions,omitempty"` // none: anywhere
	Exclude []sign.Key      `json:"exclude,omitempty"` // providers that are not wanted
	Only    []sign.Key      `json:"only,omitempty"`    // the only providers that are wanted; none: any
	Pack    bool            `json:"pack,omitempty"`    // several ranks may go to one peer
	// GossipOnly asks no provider directly: the order is published and quotes are waited for. Programs that measure
	// gossip set it; job files and flags do not.
	GossipOnly bool `json:"gossipOnly,omitempty"`
}

// Rounds runs the program Count times on the same leases. After each round Reduce (if set) makes one directory of all
// ranks' outputs, which every rank finds at Carry in the next round.
type Rounds struct {
	Count  uint32  `json:"count"`
	Carry  string  `json:"carry,omitempty"`
	Reduce *Reduce `json:"reduce,omitempty"`
}

// Reduce is the program that the buyer's side runs between rounds.
type Reduce struct {
	Module string   `json:"module"`
	Args   []string `json:"args,omitempty"`
	Inputs []Input  `json:"inputs,omitempty"`
}

// Timeouts bound the job in time. A zero Pull, Start or Stop is no limit.
type Timeouts struct {
	Queue time.Duration // until all leases are signed
	Pull  time.Duration // a provider may take to fetch program and inputs
	Start time.Duration // from the lease until the program runs, and is healthy where it has a check; pulling included
	Run   time.Duration // from the first leases on
	Stop  time.Duration // a program's grace when it is stopped
}

// Verify is how the job's results are checked.
type Verify string

// The ways of checking results.
const (
	// VerifyNone takes results as they come.
	VerifyNone Verify = ""
	// VerifyReplicate runs the program deterministically, and has some results recomputed by other providers.
	VerifyReplicate Verify = "replicate"
)

// Probes is the buyer's check, while its job runs, that it has all of its leased units: from time to time it times a
// small product on the leased hardware, for at most a thousandth of the lease's time.
type Probes string

// The ways of probing.
const (
	// ProbesWarn probes and reports the results; the job continues.
	ProbesWarn Probes = ""
	// ProbesMove takes a rank to another provider as soon as its units are shared, or an answer is wrong.
	ProbesMove Probes = "move"
	// ProbesOff does not probe.
	ProbesOff Probes = "off"
)

// Defaults of the units of a checked job. They are fixed, since results may depend on them.
const (
	DefaultVerifyMemoryMiB = 256
	DefaultVerifyDiskMiB   = 256
)

// RoundCount is how many times the program runs, at least 1.
func (j Job) RoundCount() int {
	if j.Rounds == nil {
		return 1
	}
	return int(j.Rounds.Count)
}

// Providers are the only providers that may have the job's ranks; nil means any. Volumes have to be where they are.
func (j Job) Providers() []sign.Key {
	for _, v := range j.Volumes {
		if !v.Provider.IsZero() {
			return []sign.Key{v.Provider}
		}
	}
	return j.Placement.Only
}

// String is a one-line account: "lm: 5 ranks of 1 unit of cpu, at most 0.05 per unit-hour, budget 0.25, 10m0s".
func (j Job) String() string {
	proven := ""
	if j.Resources.Unproven {
		proven = ", proven or not"
	}
	return fmt.Sprintf("%s: %s of %s of %s%s, at most %s, budget %s, %v", j.Name,
		plural(uint64(j.Count), "rank"), plural(uint64(j.Resources.Units), "unit"), j.Resources.Class, proven,
		j.Payment.PriceText(), j.Payment.BudgetText(), j.Timeouts.Run)
}

// String returns the placement for a table:
func (p Placement) String() string {
	var words []string
	for _, r := range p.Regions {
		words = append(words, string(r))
	}
	text := "anywhere"
	if len(words) > 0 {
		text = strings.Join(words, ",")
	}
	if p.Pack {
		text += ", packed"
	}
	if p.GossipOnly {
		text += ", gossip only"
	}
	return text
}

func plural(n uint64, word string) string {
	if n == 1 {
		return "1 " + word
	}
	return strconv.FormatUint(n, 10) + " " + word + "s"
}

// Complete fills in the defaults of fields that were not set, and checks the job. said reports whether a field, by its
// name in a job file, was set. The error is an *Error.
func (j Job) Complete(said func(field string) bool) (Job, error) {
	j = normal(j.withDefaults(said))
	return j, j.Check()
}

// withDefaults fills in the defaults. The budget's default is the most that the job can cost.
func (j Job) withDefaults(said func(field string) bool) Job {
	j.Runtime = RuntimeWasm
	if j.Image != "" || j.Cluster != nil {
		j.Runtime = RuntimeDocker
	}
	if j.Resources.Class == market.Disk {
		j.Runtime, j.Resources.Unproven, j.Probes = RuntimeVolume, true, ProbesOff
	}
	if j.Cluster != nil {
		c := j.Cluster.withDefaults()
		j.Cluster = &c
	}
	if !said("metadata.name") {
		j.Name = nameFrom(j.Module + imageName(j.Image))
	}
	if !said("spec.count") && !said("spec.size") {
		j.Count = 1
	}
	if !said("spec.resources.class") && j.Resources.Class == "" {
		j.Resources.Class = DefaultClass
	}
	if !said("spec.resources.units") && j.Resources.Units == 0 {
		j.Resources.Units = 1
	}
	if !said("spec.restart.max") && j.Runtime != RuntimeVolume {
		j.Restart.Max = DefaultRestart
	}
	if !said("spec.timeouts.queue") {
		j.Timeouts.Queue = DefaultQueue
	}
	if !said("spec.timeouts.run") {
		j.Timeouts.Run = DefaultRun
	}
	if j.Restart.Policy != RestartNever && !said("spec.restart.backoff") {
		j.Restart.Backoff = DefaultBackoff
	}
	if j.Health != nil {
		h := j.Health.withDefaults(said)
		j.Health = &h
	}
	if j.Guardians > 0 && j.Runtime != RuntimeVolume && !said("spec.standbys") {
		j.Standbys = DefaultStandbys
	}
	if j.Checkpoint != nil {
		j.Checkpoint = j.Checkpoint.withDefaults()
		if !said("spec.resources.disk") && j.Resources.PerUnit.DiskMiB == 0 {
			j.Resources.PerUnit.DiskMiB = DefaultCheckpointDiskMiB
		}
	}
	if per := &j.Resources.PerUnit; j.Verify == VerifyReplicate {
		if per.MemoryMiB == 0 {
			per.MemoryMiB = DefaultVerifyMemoryMiB
		}
		if per.DiskMiB == 0 {
			per.DiskMiB = DefaultVerifyDiskMiB
		}
	}
	if !said("spec.payment.budget") {
		if cost, err := j.MaxCost(); err == nil {
			j.Payment.Budget = cost
		}
	}
	return j
}

// nameFrom derives a job's name from its module's: "build/LM.wasm" → "lm", and "job" if the result is empty.
func nameFrom(module string) string {
	if strings.HasPrefix(module, CIDScheme) {
		return "job"
	}
	base := path.Base(filepath.ToSlash(module))
	base = strings.ToLower(strings.TrimSuffix(base, path.Ext(base)))
	clean := strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= '0' && r <= '9' {
			return r
		}
		return '-'
	}, base)
	clean = strings.Trim(clean[:min(len(clean), names.Max)], "-")
	if clean == "" {
		return "job"
	}
	return clean
}

// NeedsValues reports whether the job has secrets of any kind.
func (j Job) NeedsValues() bool {
	return len(j.Secrets) > 0 || j.Registry != nil || slices.ContainsFunc(j.Webhooks,
		func(w Webhook) bool { return w.SecretFrom != "" })
}
