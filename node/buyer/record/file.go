package record

import (
	"time"

	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/node/job"
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
