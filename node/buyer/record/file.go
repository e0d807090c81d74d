package record

import (
	"time"

	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/node/job"
	"github.com/starling-network/starling/node/store"
)

// Blob names a content-addressed file of a job.
type Blob struct {
	CID  string `json:"cid"`
	Size int64  `json:"size,omitempty"` // bytes
	Tree bool   `json:"tree,omitempty"` // a deterministic tar of a directory
}

// Checkpoint is a pack of a rank's checkpoint that this peer has.
type Checkpoint struct {
	Number uint64    `json:"number"` // by the provider, within its execution
	At     time.Time `json:"at"`     // this peer had it
	Blob
	// Guardians have answered since this peer started that they store it. It is not journalled.
	Guardians []sign.Key `json:"guardians,omitempty"`
}

// Source is a stored file as the content of a job's source.
func (b Blob) Source() job.Blob { return job.Blob{CID: b.CID, Size: b.Size, Tree: b.Tree} }

// Output is a file or folder that a rank left at a path.
type Output struct {
	Path string `json:"path"`
	Blob
}

// Reads reports whether a blob, by its CID, is an input or program of the job that its buyer's peer has.
func (j Job) Reads(c string) bool {
	for _, bl := range j.Spec.Blobs {
		if bl.CID == c && bl.Here() {
			return true
		}
	}
	return false
}

// Sends reports whether the job may still send its inputs to a provider. The file of a volume that runs is at its
// provider, which nothing replaces.
func (j Job) Sends() bool {
	return !j.State.Ended() && !(j.Spec.Runtime == job.RuntimeVolume && len(j.Ranks) == 1 && j.Ranks[0].Runs())
}

// Entries returns the entries that are journalled with a new job: that of its idempotency key, unless that is "", and
// that of its copies.
func (j Job) Entries(once string) (out []store.Put, err error) {
	if once != "" {
		out = append(out, Submissions.Encode(once, []byte(j.ID)))
	}
	if j.Spec.Copies != nil {
		var p store.Put
		p, err = Keepings.Encode(KeptOpen+j.ID, Kept{})
		out = append(out, p)
	}
	return out, err
}

// Left reports whether a blob, by its CID, is an output of the job or a checkpoint.
func (j Job) Left(c string) (found bool) {
	j.EachLeft(func(text string) { found = found || text == c })
	return found
}

// EachLeft calls f with the CIDs of the job's outputs and checkpoints.
func (j Job) EachLeft(f func(c string)) {
	if j.Carry != nil {
		f(j.Carry.CID)
	}
	for _, r := range j.Ranks {
		if r.Log != nil {
			f(r.Log.CID)
		}
		for _, o := range r.Outputs {
			f(o.CID)
		}
		for _, c := range r.Checkpoints {
			f(c.CID)
		}
	}
}
