package buyer

import (
	"context"
	"slices"
	"time"

	"github.com/ipfs/go-cid"

	"github.com/starling-network/starling/node/buyer/archive"
)

// Uses reports whether a job of this peer needs a blob: as input or program of a running one, or as an output.
func (a *catalogue) Uses(c cid.Cid) bool {
	text := c.String()
	if a.any(func(j Job) bool { return j.Left(text) || j.Sends() && j.Reads(text) }) {
		return true
	}
	used := false
	err := a.archive.Blobs(context.Background(), text, func(_ string, of archive.Blob) { used = used || of.Left })
	return used || err != nil // a blob with an unreadable record may be needed
}

// Holds reports whether an API key may read a blob: it uploaded the blob, or one of its jobs reads or produced it.
func (a *catalogue) Holds(key string, c cid.Cid) bool {
	if a.files.Uploaded(key, c) {
		return true
	}
	text := c.String()
	if a.any(func(j Job) bool { return j.Key == key && (j.Left(text) || j.Reads(text)) }) {
		return true
	}
	holds := false
	err := a.archive.Blobs(context.Background(), text, func(_ string, of archive.Blob) {
		holds = holds || of.Key == key
	})
	return holds && err == nil
}

// maxCID bounds a CID's text in a key of the journal.
const maxCID = 256

// blobsOf are the blobs of a job that has ended, by CID: its outputs, and its inputs if it is an API key's.
func blobsOf(j Job) map[string]archive.Blob {
	out := map[string]archive.Blob{}
	put := func(c string, of archive.Blob) {
		if _, err := cid.Parse(c); err == nil && len(c) <= maxCID {
			out[c] = of
		}
	}
	if j.Key != "" {
		for _, bl := range j.Spec.Blobs {
			if bl.Here() {
				put(bl.CID, archive.Blob{Key: j.Key, Ended: j.Ended})
			}
		}
	}
	j.EachLeft(func(c string) { put(c, archive.Blob{Key: j.Key, Left: true, Ended: j.Ended}) })
	return out
}

// resultsFor is how long a job's outputs are needed after its end, however full the disk is.
const resultsFor = 7 * 24 * time.Hour

// Blobs returns the blobs that jobs need: inputs and programs of unended ones, and the last week's outputs of others.
func (a *catalogue) Blobs() (map[cid.Cid]bool, error) {
	out := map[cid.Cid]bool{}
	add := func(text string) {
		if c, err := cid.Parse(text); err == nil {
			out[c] = true
		}
	}
	a.any(func(j Job) bool {
		if j.State.Ended() && time.Since(j.Ended) > resultsFor {
			return false
		}
		j.EachLeft(add)
		if j.Sends() {
			for _, bl := range j.Spec.Blobs {
				if bl.Here() {
					add(bl.CID)
				}
			}
		}
		return false
	})
	return out, a.archive.Blobs(context.Background(), "", func(c string, of archive.Blob) {
		if of.Left && time.Since(of.Ended) <= resultsFor {
			add(c)
		}
	})
}

// any reports whether f holds for one of the jobs.
func (a *catalogue) any(f func(Job) bool) bool {
	return slices.ContainsFunc(a.supervisors(), func(s *supervisor) bool { return f(s.Snapshot()) })
}
