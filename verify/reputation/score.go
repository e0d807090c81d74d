package reputation

import (
	"cmp"
	"slices"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
)

// Score is the score of a peer in one of its roles.
type Score struct {
	Peer       sign.Key `json:"peer"`
	Role       Role     `json:"role"`
	Millionths uint32   `json:"score"` // lower 5 % bound, rounded down
	Good       uint64   `json:"good"`  // G, in millionths
	Bad        uint64   `json:"bad"`   // λ·B, in millionths
}

// Stranger is the score of an unknown peer.
var Stranger = lowerBound(0, 0)

// Newcomer means that too little is known of the peer to judge it by, good or bad. A peer that failed is one again when
// that is long ago.
func (s Score) Newcomer() bool { return s.Good+s.Bad < newcomerBelow }

// Shunned means that more speaks against the peer than for it.
func (s Score) Shunned() bool { return !s.Newcomer() && s.Bad > s.Good }

func scored(k sign.Key, role Role, good, bad uint64) Score {
	good, bad = min(good, maxEvidence), min(bad, maxEvidence)
	return Score{Peer: k, Role: role, Good: good, Bad: bad, Millionths: lowerBound(good, bad)}
}

// Score is the reader's score of a peer, or of itself, in a role.
func (v *View) Score(k sign.Key, role Role) Score { return v.Scores(role, k)[0] }

// Scores returns the scores of many peers, in their order. It is faster than Score for each.
func (v *View) Scores(role Role, keys ...sign.Key) []Score {
	out := make([]Score, len(keys))
	var w *walk
	for i, k := range keys {
		j := v.find(k)
		if j < 0 || !v.peers[j].scores[role] {
			out[i] = scored(k, role, 0, 0)
			continue
		}
		if w == nil {
			w = newWalk(v)
		}
		var good, bad uint64
		for _, t := range v.terms(w, j, role) {
			good, bad = good+t.good, bad+t.bad
		}
		out[i] = scored(k, role, good, bad)
	}
	return out
}

// term is a summand of G or λ·B.
type term struct {
	line      Line
	good, bad uint64
}

// terms are the terms of peer j. A deal with both good and bad facts has two.
func (v *View) terms(w *walk, j int32, role Role) []term {
	var out []term
	at := v.peers[j].deals[role]
	deals := v.deals[at[0]:at[1]]
	if slices.ContainsFunc(deals, func(d deal) bool { return d.gain > 0 && d.rater != v.reader }) {
		w.without(j)
	}
	for _, d := range deals {
		if d.kept > 0 {
			good := w.said(&d)
			out = append(out, term{Line{Kind: Kept, Rater: v.keys[d.rater], Own: d.rater == v.reader,
				Count: int(d.kept), Value: market.Amount(d.good), Weight: uint32(good * one / max(1, d.gain)),
				Evidence: good}, good, 0})
		}
		if d.failed > 0 {
			bad := d.loss * badWeight
			out = append(out, term{Line{Kind: Failed, Rater: v.keys[d.rater], Own: true, Count: int(d.failed),
				Value: market.Amount(d.bad), Weight: badWeight * one, Evidence: bad}, 0, bad})
		}
	}
	return append(out, v.proven(&v.peers[j].proofs[role])...)
}

// proven are the terms of proofs. Those against a peer share one logarithm: each has its addition to those before.
func (v *View) proven(p *proofs) []term {
	var out []term
	unit := uint64(v.p.Unit)
	if n := p.counts[0]; n > 0 {
		good := p.gain(unit)
		out = append(out, term{Line{Kind: AuditPassed, Count: int(n), Value: market.Amount(p.values[0]),
			Weight: one / auditShare, Evidence: good}, good, 0})
	}
	var sum, before uint64
	for _, kind := range []Kind{SoldTwice, Lied, AuditFailed, AuditLate} {
		i := kind - AuditPassed
		if p.counts[i] == 0 {
			continue
		}
		sum = addCap(sum, p.values[i])
		bad := nats(sum, unit) * badWeight
		out = append(out, term{Line{Kind: kind, Count: int(p.counts[i]), Value: market.Amount(p.values[i]),
			Weight: badWeight * one, Evidence: bad - before}, 0, bad - before})
		before = bad
	}
	return out
}

// Line is one term of a score.
type Line struct {
	Kind     Kind          `json:"-"`
	What     string        `json:"what"`
	Rater    sign.Key      `json:"rater,omitzero"`
	Own      bool          `json:"own,omitempty"` // the reader saw it itself
	Count    int           `json:"count,omitempty"`
	Value    market.Amount `json:"value,omitempty"`    // today, of the amount exchanged or lost
	Weight   uint32        `json:"weight,omitempty"`   // of the rater, or λ; millionths
	Evidence uint64        `json:"evidence,omitempty"` // added to G or to λ·B, in millionths
	Adds     int64         `json:"adds"`               // to the score, in millionths
}

// Explanation is a score with all of its terms. The Adds of its lines sum up to it.
type Explanation struct {
	Score
	Newcomer bool   `json:"newcomer,omitempty"`
	Shunned  bool   `json:"shunned,omitempty"`
	Stranger uint32 `json:"stranger"` // the score of an unknown peer
	Lines    []Line `json:"lines"`
}

// Explain is the score of a peer line by line, good before bad and the largest terms first; past most lines of either,
// the others share one.
func (v *View) Explain(k sign.Key, role Role, most int) Explanation {
	e := Explanation{Score: v.Score(k, role), Stranger: Stranger}
	e.Newcomer, e.Shunned = e.Score.Newcomer(), e.Score.Shunned()
	var good, bad []term
	if j := v.find(k); j >= 0 && v.peers[j].scores[role] {
		for _, t := range v.terms(newWalk(v), j, role) {
			if t.line.Kind == Kept || t.line.Kind == AuditPassed {
				good = append(good, t)
			} else {
				bad = append(bad, t)
			}
		}
	}
	e.Lines = []Line{{What: "nothing known", Adds: int64(Stranger)}}
	at, sum := Stranger, [2]uint64{}
	for _, ts := range [][]term{shorten(good, most), shorten(bad, most)} {
		for _, t := range ts {
			sum[0], sum[1] = sum[0]+t.good, sum[1]+t.bad
			next := scored(k, role, sum[0], sum[1]).Millionths
			if t.line.What == "" {
				t.line.What = t.line.Kind.String()
			}
			t.line.Adds, at = int64(next)-int64(at), next
			e.Lines = append(e.Lines, t.line)
		}
	}
	return e
}

// shorten sorts the terms and joins those past most.
func shorten(ts []term, most int) []term {
	slices.SortStableFunc(ts, func(x, y term) int { return cmp.Compare(y.good+y.bad, x.good+x.bad) })
	if most < 1 || len(ts) <= most {
		return ts
	}
	rest := term{line: Line{What: "others, " + ts[most].line.Kind.String()}}
	for _, t := range ts[most:] {
		rest.line.Count += t.line.Count
		rest.line.Value = market.Amount(addCap(uint64(rest.line.Value), uint64(t.line.Value)))
		rest.line.Evidence += t.line.Evidence
		rest.good, rest.bad = rest.good+t.good, rest.bad+t.bad
	}
	return append(ts[:most:most], rest)
}
