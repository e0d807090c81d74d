package buyer

import (
	"slices"

	"github.com/ipfs/go-cid"
)

// Uses says whether a job of this peer needs a blob: as input or program of one that runs, or as what one has left.
func (b *Buyer) Uses(c cid.Cid) bool {
	text := c.String()
	return b.any(func(j Job) bool { return j.left(text) || !j.State.Ended() && j.reads(text) })
}

// Holds reports whether an API key may have a blob: it uploaded it, or a job of its own reads it or left it.
func (b *Buyer) Holds(key string, c cid.Cid) bool {
	if b.cfg.Uploaded != nil && b.cfg.Uploaded(key, c) {
		return true
	}
	text := c.String()
	return b.any(func(j Job) bool { return j.Key == key && (j.left(text) || j.reads(text)) })
}

// any reports whether f holds for one of the jobs.
func (b *Buyer) any(f func(Job) bool) bool {
	return slices.ContainsFunc(b.supervisors(), func(s *supervisor) bool { return f(s.snapshot()) })
}

// reads reports whether a blob is an input or program of the job.
func (j Job) reads(c string) bool {
	for _, bl := range j.Spec.Blobs {
		if bl.CID == c {
			return true
		}
	}
	return false
}

// left reports whether a blob is what the job has left.
func (j Job) left(c string) bool {
	if j.Carry != nil && j.Carry.CID == c {
		return true
	}
	for _, r := range j.Ranks {
		if r.Log != nil && r.Log.CID == c {
			return true
		}
		for _, o := range r.Outputs {
			if o.CID == c {
				return true
			}
		}
	}
	return false
}
