package files

import (
	"slices"
	"time"

	"github.com/ipfs/go-cid"

	"github.com/starling-network/starling/node/api"
	"github.com/starling-network/starling/p2p/blob"
)

// NeedJob is what needs the files of this peer's own jobs.
const NeedJob = "job"

// Stored lists the stored files, the largest first.
func (f *Files) Stored() ([]api.StoredBlob, error) {
	all, err := f.stored()
	out := []api.StoredBlob{}
	for _, b := range all {
		out = append(out, b.StoredBlob)
	}
	return out, err
}

// Clean removes the files that nothing needs and that were not used for blob.UsedLately, and lists them. A dry run only
// lists them.
func (f *Files) Clean(dry bool) ([]api.StoredBlob, error) {
	all, err := f.stored()
	if err != nil {
		return nil, err
	}
	out := []api.StoredBlob{}
	for _, b := range all {
		if len(b.Needed) > 0 || time.Since(b.Used) <= blob.UsedLately {
			continue
		}
		if !dry {
			if err := f.cfg.Blobs.Remove(b.c); err != nil {
				return out, err
			}
		}
		out = append(out, b.StoredBlob)
	}
	return out, nil
}

// stored is a stored file with its digest.
type stored struct {
	c cid.Cid
	api.StoredBlob
}

func (f *Files) stored() (out []stored, err error) {
	all, err := f.cfg.Blobs.List()
	if err != nil {
		return nil, err
	}
	needed := map[cid.Cid][]string{}
	for _, n := range f.needs {
		some, err := n.of()
		if err != nil {
			return nil, err
		}
		for c := range some {
			needed[c] = append(needed[c], n.by)
		}
	}
	for _, b := range all {
		by := append([]string{}, needed[b.CID]...)
		if !slices.Contains(by, NeedJob) && f.jobs.Uses(b.CID) { // an output of an old job
			by = append(by, NeedJob)
		}
		holders := slices.DeleteFunc(b.Holders, func(h string) bool { return h == "" })
		out = append(out, stored{b.CID, api.StoredBlob{
			CID: b.CID.String(), Size: b.Size, Used: b.Used.UTC(), Holders: holders, Needed: by,
		}})
	}
	slices.SortStableFunc(out, func(a, b stored) int { return int(min(max(b.Size-a.Size, -1), 1)) })
	return out, nil
}
