package voice

import (
	"slices"
	"time"

	"github.com/ipfs/go-cid"
	"github.com/libp2p/go-libp2p/core/peer"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/node/buyer/guardian"
	"github.com/starling-network/starling/node/buyer/record"
	"github.com/starling-network/starling/p2p"
)

// KeptFor is the time after its end for which guardians store a job for its owner.
const KeptFor = 7 * 24 * time.Hour

// MembersOf returns the guardians of a job in the form of package guardian.
func MembersOf(guardians []record.Guardian) []guardian.Member {
	out := make([]guardian.Member, len(guardians))
	for i, g := range guardians {
		out[i] = guardian.Member(g)
	}
	return out
}

// GuardiansOf is the reverse of MembersOf.
func GuardiansOf(members []guardian.Member) []record.Guardian {
	out := make([]record.Guardian, len(members))
	for i, m := range members {
		out[i] = record.Guardian(m)
	}
	return out
}

// CharterOf returns the guardians and the owner of a detached job.
func CharterOf(d *record.Detached) (guardian.Charter, error) {
	keys := make([]sign.Key, len(d.Guardians))
	for i, m := range d.Guardians {
		keys[i] = m.Key
	}
	set, err := market.NewKeySet(uint8(len(keys)/2+1), keys...)
	return guardian.Charter{Job: d.Terms, Owner: d.Owner, Buyer: d.Key, Keys: set}, err
}

// Kept returns the files of a job that its guardians keep for its owner and for the next supervisor.
func Kept(j record.Job) (files []guardian.File) {
	add := func(b record.Blob, spare bool) {
		if c, err := cid.Parse(b.CID); err == nil {
			files = append(files, guardian.File{CID: c, Size: b.Size, Spare: spare})
		}
	}
	keep := func(b record.Blob) { add(b, false) }
	for i := range j.Ranks {
		for _, o := range j.Ranks[i].Outputs {
			keep(o.Blob)
		}
		if l := j.Ranks[i].Log; l != nil {
			keep(*l)
		}
	}
	for i := range j.Ranks {
		for _, c := range j.Ranks[i].Checkpoints {
			add(c.Blob, true)
		}
	}
	if j.Carry != nil {
		keep(*j.Carry)
	}
	return files
}

// Granter grants peers access to files of this one.
type Granter interface {
	Grant(to peer.ID, c cid.Cid)
}

// Share grants the guardians of a job access to files of this peer.
func Share(h *p2p.Host, g Granter, d *record.Detached, files []guardian.File) error {
	for _, m := range d.Guardians {
		id, err := h.Remember(m.Key, m.Addrs)
		if err != nil {
			return err
		}
		for _, f := range files {
			g.Grant(id, f.CID)
		}
	}
	return nil
}

// Shown returns a copy of a job with the guardians that store its checkpoints, as their answers say. g may be nil.
func (g *Guarded) Shown(j record.Job) record.Job {
	if g == nil || g.Guardians() == nil {
		return j
	}
	panel := g.Guardians()
	j.Ranks = slices.Clone(j.Ranks)
	for i := range j.Ranks {
		all := slices.Clone(j.Ranks[i].Checkpoints)
		for k := range all {
			if c, err := cid.Parse(all[k].CID); err == nil {
				all[k].Guardians = panel.Keepers(c)
			}
		}
		j.Ranks[i].Checkpoints = all
	}
	return j
}
