package buyer

import (
	"slices"
	"time"

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

// resultsFor is how long what a job has left is needed after its end, whatever else the disk is for.
const resultsFor = 7 * 24 * time.Hour

// Blobs are what jobs need: inputs and programs of those that have not ended, and what the others left within the last week.
func (b *Buyer) Blobs() map[cid.Cid]bool {
	out := map[cid.Cid]bool{}
	add := func(text string) {
		if c, err := cid.Parse(text); err == nil {
			out[c] = true
		}
	}
	b.any(func(j Job) bool {
		if j.State.Ended() && time.Since(j.Ended) > resultsFor {
			return false
		}
		j.eachLeft(add)
		if !j.State.Ended() {
			for _, bl := range j.Spec.Blobs {
				add(bl.CID)
			}
		}
		return false
	})
	return out
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
func (j Job) left(c string) (found bool) {
	j.eachLeft(func(text string) { found = found || text == c })
	return found
}

// eachLeft calls f with the CIDs of what the job has left.
func (j Job) eachLeft(f func(c string)) {
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
	}
}
