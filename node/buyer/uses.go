package buyer

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/ipfs/go-cid"
)

// Uses reports whether a job of this peer needs a blob: as input or program of one that runs, or as what one has left.
func (b *Buyer) Uses(c cid.Cid) bool {
	text := c.String()
	if b.any(func(j Job) bool { return j.left(text) || !j.State.Ended() && j.reads(text) }) {
		return true
	}
	used := false
	err := b.pastBlobs(text+"/", func(_ string, of pastBlob) { used = used || of.Left })
	return used || err != nil // what cannot be read may be needed
}

// Holds reports whether an API key may have a blob: it uploaded it, or a job of its own reads it or left it.
func (b *Buyer) Holds(key string, c cid.Cid) bool {
	if b.cfg.Uploaded != nil && b.cfg.Uploaded(key, c) {
		return true
	}
	text := c.String()
	if b.any(func(j Job) bool { return j.Key == key && (j.left(text) || j.reads(text)) }) {
		return true
	}
	holds := false
	err := b.pastBlobs(text+"/", func(_ string, of pastBlob) { holds = holds || of.Key == key })
	return holds && err == nil
}

// maxCID bounds a CID's text in a key of the journal.
const maxCID = 256

// pastBlob is what a job that has left memory has to do with a blob.
type pastBlob struct {
	Key   string    `json:"key,omitempty"`
	Left  bool      `json:"left,omitempty"` // it left it; else it reads it
	Ended time.Time `json:"ended"`
}

// blobsOf are the blobs of a job that has ended, by CID: what it left, and what it reads if it is an API key's.
func blobsOf(j Job) map[string]pastBlob {
	out := map[string]pastBlob{}
	put := func(c string, of pastBlob) {
		if _, err := cid.Parse(c); err == nil && len(c) <= maxCID {
			out[c] = of
		}
	}
	if j.Key != "" {
		for _, bl := range j.Spec.Blobs {
			put(bl.CID, pastBlob{Key: j.Key, Ended: j.Ended})
		}
	}
	j.eachLeft(func(c string) { put(c, pastBlob{Key: j.Key, Left: true, Ended: j.Ended}) })
	return out
}

// pastBlobs reads what jobs that have left memory have to do with blobs, those whose CID and job begin with prefix.
func (b *Buyer) pastBlobs(prefix string, f func(c string, of pastBlob)) error {
	b.mu.Lock()
	none := len(b.past) == 0
	b.mu.Unlock()
	if none {
		return nil
	}
	return b.cfg.Store.List(context.Background(), kindPastBlob, prefix, func(key string, value []byte) error {
		var of pastBlob
		if err := json.Unmarshal(value, &of); err != nil {
			return fmt.Errorf("reading past blob %s: %w", key, err)
		}
		c, _, _ := strings.Cut(key, "/")
		f(c, of)
		return nil
	})
}

// resultsFor is how long what a job has left is needed after its end, whatever else the disk is for.
const resultsFor = 7 * 24 * time.Hour

// Blobs are what jobs need: inputs and programs of those that have not ended, and what the others left within the last week.
func (b *Buyer) Blobs() (map[cid.Cid]bool, error) {
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
	return out, b.pastBlobs("", func(c string, of pastBlob) {
		if of.Left && time.Since(of.Ended) <= resultsFor {
			add(c)
		}
	})
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
