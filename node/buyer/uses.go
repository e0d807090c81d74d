package buyer

import "github.com/ipfs/go-cid"

// Uses says whether a job of this peer needs a blob: as input or program of one that runs, or as what one has left.
func (b *Buyer) Uses(c cid.Cid) bool {
	text := c.String()
	for _, s := range b.supervisors() {
		j := s.snapshot()
		if j.Carry != nil && j.Carry.CID == text {
			return true
		}
		for _, r := range j.Ranks {
			if r.Log != nil && r.Log.CID == text {
				return true
			}
			for _, o := range r.Outputs {
				if o.CID == text {
					return true
				}
			}
		}
		if j.State.Ended() {
			continue
		}
		for _, bl := range j.Spec.Blobs {
			if bl.CID == text {
				return true
			}
		}
	}
	return false
}
