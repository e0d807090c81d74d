package replica

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"slices"

	"github.com/starling-network/starling/market/sign"
)

// Candidate is a provider that can run a replica.
type Candidate struct {
	Provider sign.Key
	Owner    sign.Key // the wallet behind its stake, or without one its payout
	Staked   bool
}

// Party is a peer that has given a result of the work already, or has it checked.
type Party struct {
	Provider sign.Key `json:"provider"`
	Owner    sign.Key `json:"owner"`
}

// Pick sorts the candidates into the order of requests for the attempt-th replica. Candidates with the owner of a party
// are left out. Keys are free, so each owner has one lot for all its keys, and owners with a stake are first. The lot
// is SHA-256("starling/replica/pick/v1" ‖ seed ‖ attempt u32 ‖ key), ascending, of the owner and then among its keys.
func Pick(seed sign.Hash, attempt uint32, all []Candidate, parties []Party) []sign.Key {
	type lot struct {
		Candidate
		owner, key sign.Hash
	}
	n := binary.LittleEndian.AppendUint32(nil, attempt)
	of := func(k sign.Key) sign.Hash { return sign.Sum([]byte("starling/replica/pick/v1"), seed[:], n, k[:]) }
	seen := map[sign.Key]bool{}
	var lots []lot
	for _, c := range all {
		if seen[c.Provider] || slices.ContainsFunc(parties, func(p Party) bool { return p.same(c) }) {
			continue
		}
		seen[c.Provider] = true
		lots = append(lots, lot{c, of(c.Owner), of(c.Provider)})
	}
	slices.SortFunc(lots, func(x, y lot) int {
		if x.Staked != y.Staked {
			return cmp.Compare(btoi(y.Staked), btoi(x.Staked))
		}
		return cmp.Or(bytes.Compare(x.owner[:], y.owner[:]), bytes.Compare(x.key[:], y.key[:]))
	})
	out := make([]sign.Key, len(lots))
	for i, l := range lots {
		out[i] = l.Provider
	}
	return out
}

// same reports whether a candidate is the party, or has the same owner, under any key.
func (p Party) same(c Candidate) bool {
	return c.Provider == p.Provider || c.Owner == p.Owner || c.Provider == p.Owner || c.Owner == p.Provider
}

func btoi(b bool) int {
	if b {
		return 1
	}
	return 0
}
