package buyer

import "github.com/starling-network/starling/node/buyer/recording"

// Record has a recorder receive the jobs that are submitted from now on. It is for tests.
func (b *Buyer) Record(r recording.Recorder) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.recorder = r
}

// seatsOf are ranks of a job that has counted their epochs.
func seatsOf(j Job, ranks []uint32) (out []recording.Seat) {
	for _, i := range ranks {
		out = append(out, recording.Seat{Rank: i, Epoch: j.Ranks[i].Epoch})
	}
	return out
}

// factsOf are leases as the job's state machine knows them.
func factsOf(leases map[uint32]*bought) (out []recording.Lease) {
	for _, l := range leases {
		c := l.core
		out = append(out, recording.Lease{
			ID: l.id, Chain: l.first, Rank: c.Rank, Epoch: c.RankEpoch, Provider: c.Provider, End: c.End, Rate: c.Rate,
			Most: l.most(), Open: true, Usable: true,
		})
	}
	return out
}

// lossOf is the loss of a lease.
func lossOf(l *bought) recording.LeaseLost {
	loss := recording.LeaseLost{Chain: l.first, Cause: recording.Defaulted, Reason: l.lostReason()}
	if l.spent() {
		loss.Cause = recording.Expired
	}
	return loss
}

// files are outputs as the job's state machine knows them.
func files(outputs []Output) (out []recording.File) {
	for _, o := range outputs {
		out = append(out, recording.File{Path: o.Path, CID: o.CID, Bytes: o.Size, Tree: o.Tree})
	}
	return out
}
