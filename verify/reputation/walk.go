package reputation

import (
	"math/bits"

	"github.com/starling-network/starling/market/sign"
)

// hops is the length of the walk: to the reader's counterparties, to theirs, and the same once more.
const hops = 4

// stakeQuarter is the share of walks, in quarters, that begin at those with stake where the reader has dealt with
// others.
const stakeQuarter = 1

// massBits is the fixed point of the mass that the walk brings to a peer: all of it together is below 2^massBits.
const massBits = 52

// walk computes the weights of a peer's raters. It is used by one goroutine, for one peer after another.
type walk struct {
	v          *View
	at, next   []float64
	top        []float64 // of the mass at each in this step, the largest part from one peer
	mass       []uint64
	left       []uint64 // of each peer's arcs, the part to the removed peer
	dealt      [2][]bool
	references [2]uint64
}

func newWalk(v *View) *walk {
	n := len(v.peers)
	return &walk{v: v, at: make([]float64, n), next: make([]float64, n), top: make([]float64, n),
		mass: make([]uint64, n), left: make([]uint64, n), dealt: [2][]bool{make([]bool, n), make([]bool, n)}}
}

// The argument of without that removes no peer.
const nobody = -1

// without walks the network without peer j: without j itself, its arcs and the arcs to it. So facts about j do not
// change the result.
//
// A walk begins at peers with positive facts of the reader, in proportion to these, and at peers with stake. At each
// step it follows one of the arcs, in proportion to their strengths, or ends: with probability one half, and at peers
// with known failures. It ends at the reader.
func (w *walk) without(j int32) {
	v := w.v
	w.leave(j)
	clear(w.mass)
	w.start(j)
	for hop := 1; ; hop++ {
		scale := float64(uint64(1) << (massBits - hop)) // each hop counts half of the one before
		for i, x := range w.at {
			// A peer that is trusted by mistake must not act through others: the mass from one source counts at most as
			// much as all other mass. The first hop comes from the reader itself.
			if hop > 1 {
				x = min(x, 2*(x-w.top[i]))
				w.at[i] = x // and goes no further, or it would come back as if from others
			}
			w.mass[i] += uint64(float64(x * scale))
		}
		if hop == hops {
			break
		}
		clear(w.next)
		clear(w.top)
		for i, x := range w.at {
			p := &v.peers[i]
			sum := p.sum - w.left[i]
			if x == 0 || sum == 0 {
				continue
			}
			per := float64(x*p.pass) / float64(sum)
			for _, a := range v.arcs[p.arcs[0]:p.arcs[1]] {
				if a.to != j && a.to != v.reader {
					part := float64(per * float64(a.strength))
					w.next[a.to] += part
					w.top[a.to] = max(w.top[a.to], part)
				}
			}
		}
		w.at, w.next = w.next, w.at
	}
	for role := range w.references {
		w.references[role] = w.reference(Role(role))
	}
}

// leave notes the part of the others' facts that is about j.
func (w *walk) leave(j int32) {
	clear(w.left)
	clear(w.dealt[Provider])
	clear(w.dealt[Buyer])
	if j == nobody {
		return
	}
	for role, at := range w.v.peers[j].deals {
		for _, d := range w.v.deals[at[0]:at[1]] {
			w.dealt[role][d.rater] = true
			if d.rater != w.v.reader {
				w.left[d.rater] += d.gain
			}
		}
	}
}

// start puts the walks where they begin, 1 in all.
func (w *walk) start(j int32) {
	v := w.v
	seeds, stakes := v.seeds, v.stakes
	if j != nobody {
		seeds, stakes = seeds-v.peers[j].seed, stakes-v.peers[j].stake
	}
	ofSeeds, ofStakes := 1.0, 0.0
	switch {
	case seeds > 0 && stakes > 0:
		ofSeeds, ofStakes = 1-stakeQuarter/4.0, stakeQuarter/4.0
	case stakes > 0:
		ofSeeds, ofStakes = 0, 1
	}
	clear(w.at)
	for i := range v.peers {
		p := &v.peers[i]
		if int32(i) == j {
			continue
		}
		if p.seed > 0 && seeds > 0 {
			w.at[i] += float64(ofSeeds*float64(p.seed)) / float64(seeds)
		}
		if p.stake > 0 && stakes > 0 {
			w.at[i] += float64(ofStakes*float64(p.stake)) / float64(stakes)
		}
	}
}

// reference is the mass of a full weight: of the peers that rate others in the role, half of all mass is brought to
// peers that have no more. Many peers with little mass cannot lower it. Few with much cannot raise it by more than the
// walk brings to them.
func (w *walk) reference(role Role) uint64 {
	const perDoubling = 8
	var sums [64 * perDoubling]uint64
	var total uint64
	for i, m := range w.mass {
		others := w.v.peers[i].rated[role]
		if w.dealt[role][i] {
			others--
		}
		if m > 0 && others > 0 && int32(i) != w.v.reader {
			n := bits.Len64(m)
			sums[n*perDoubling+int(m<<(64-n)>>60&7)] += m
			total += m
		}
	}
	var below uint64
	for i, sum := range sums {
		if below += sum; sum > 0 && below >= total-below {
			return uint64(8+i%perDoubling) << (i / perDoubling) >> 4
		}
	}
	return 0
}

// said is the weight of a deal for its subject, in millionths of nats. The reader's own facts count in full. Facts of
// others count by their mass, and less if the rater has facts about many peers, or positive facts about peers that
// failed.
func (w *walk) said(d *deal) uint64 {
	if d.rater == w.v.reader || d.gain == 0 {
		return d.gain
	}
	ref := w.references[d.role]
	if ref == 0 {
		return 0 // no reference to compare it with
	}
	gain := d.gain
	if voice := w.v.peers[d.rater].voice[d.role]; voice > maxVoice {
		gain = gain * maxVoice / voice // grows with the gain, which is a part of the voice
	}
	hi, lo := bits.Mul64(gain, min(w.mass[d.rater], ref))
	q, _ := bits.Div64(hi, lo, ref)
	// A rater with good facts about failed peers counts less: a buyer that sells its word sells it to several.
	doubt := w.v.peers[d.rater].doubt
	if w.v.peers[d.subject].failed {
		doubt -= w.left[d.rater] // of the subject itself
	}
	return q * one / (one + doubt)
}

// Reached returns a function that reports whether the reader's walk reaches a peer, or it is the reader. Only then do
// its facts count.
func (v *View) Reached() func(sign.Key) bool {
	w := newWalk(v)
	w.without(nobody)
	return func(k sign.Key) bool {
		i := v.find(k)
		return i >= 0 && (i == v.reader || w.mass[i] > 0)
	}
}
