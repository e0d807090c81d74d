package reputation

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"slices"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
)

// Bounds of a View.
const (
	MaxFacts  = 1 << 18
	MaxPeers  = 1 << 16
	MaxStakes = 1 << 14
)

// ErrTooMany means that there are more facts, peers or stakes than a View may have.
var ErrTooMany = errors.New("too many facts, peers or stakes")

// HalfLifeDays is the half-life of a fact's weight in days.
const HalfLifeDays = 30

// The terms' constants; PROTOCOL.md has their reasons.
const (
	// badWeight is λ: the factor of negative facts.
	badWeight = 10
	// maxGain bounds one counterparty's unweighted facts about a peer: e¹⁰ ≈ 22 000 units of value.
	maxGain = 10 * one
	// maxVoice bounds the total of one counterparty's facts about all peers in a role: it is shared among them.
	maxVoice = 20 * one
	// auditShare divides the value of passed audits: they prove the hardware, not its owner's conduct. All the audits
	// that a peer can pass in a half-life leave it a newcomer.
	auditShare = 8
	// Values of proofs, in units of value; lateParts late audits count as one unit.
	failUnits, twiceUnits, lateParts = 10, 100, 64
	// lossParts lost leases count as at least one unit, even if each was worth less. So one loss weighs little beside
	// completed work, and a peer that loses every lease is soon shunned.
	lossParts = 64
	// newcomerBelow is the evidence, G + B, below which too little is known of a peer to judge it by.
	newcomerBelow = one
)

// Params are of the network.
type Params struct {
	Unit     market.Amount // value of an exchange that counts ln 2; at least 1
	HalfLife uint64        // slots; at least 1
}

// ParamsOf suit a network: a unit is a hundredth of a token, and the half-life thirty days.
func ParamsOf(g market.Genesis) Params {
	hundredth, err := market.ParseDecimal("0.01", g.Decimals)
	if err != nil {
		hundredth = 1 // a token that is not divided so finely
	}
	return Params{Unit: market.Amount(max(1, hundredth)),
		HalfLife: max(1, HalfLifeDays*24*3_600_000/max(1, g.SlotMillis))}
}

// Stake is a peer's stake.
type Stake struct {
	Peer   sign.Key      `json:"peer"`
	Amount market.Amount `json:"amount"`
}

// View is one reader's view of its facts in one slot. It is never changed; many goroutines may use it.
type View struct {
	p      Params
	now    market.Slot
	reader int32      // -1 where no fact or stake names it
	keys   []sign.Key // ascending
	peers  []peer
	deals  []deal // by subject, role, rater
	arcs   []arc  // by from, to
	stakes uint64 // in all
	seeds  uint64 // in all, in millionths of nats
}

// peer is one node of the network.
type peer struct {
	deals  [2][2]int32 // from, to in View.deals, by role
	arcs   [2]int32    // from, to in View.arcs
	rated  [2]int32    // how many others it rates, by their role
	voice  [2]uint64   // total of its facts about them, likewise
	sum    uint64      // of the strengths of its arcs
	stake  uint64      // scaled
	seed   uint64      // good facts of the reader about it
	pass   float64     // share of its mass that continues
	failed bool        // the reader's own facts and proofs are more against it than for it
	doubt  uint64      // good facts of its about such peers, in millionths of nats
	proofs [2]proofs   // by role
	scores [2]bool     // whether there is anything about it, by role
}

// proofs are the verifiable facts about a peer, as sums of decayed values.
type proofs struct {
	counts [5]uint32 // AuditPassed, AuditFailed, AuditLate, SoldTwice, Lied
	values [5]uint64
}

// deal is the sum of one peer's facts about another in a role.
type deal struct {
	subject, rater int32
	role           Role
	kept, failed   uint32 // how many
	good, bad      uint64 // decayed values
	gain, loss     uint64 // of them, in millionths of nats
}

// arc is a step of the walk: from a peer with good facts about another to that one.
type arc struct {
	from, to int32
	strength uint64
}

// NewView makes a View of the reader's facts in slot now. It changes neither slice, and their order does not matter. It
// returns ErrTooMany, or market.ErrMalformed for impossible facts and params of 0.
func NewView(p Params, reader sign.Key, now market.Slot, facts []Fact, stakes []Stake) (*View, error) {
	if p.Unit < 1 || p.HalfLife < 1 {
		return nil, fmt.Errorf("%w: unit %d, half-life of %d slots", market.ErrMalformed, p.Unit, p.HalfLife)
	}
	if len(facts) > MaxFacts || len(stakes) > MaxStakes {
		return nil, fmt.Errorf("%w: %d facts, %d stakes", ErrTooMany, len(facts), len(stakes))
	}
	for _, f := range facts {
		if err := f.check(); err != nil {
			return nil, err
		}
	}
	v := &View{p: p, now: now}
	if err := v.name(reader, facts, stakes); err != nil {
		return nil, err
	}
	v.count(reader, facts)
	v.join()
	v.stake(stakes)
	return v, nil
}

// name numbers the peers.
func (v *View) name(reader sign.Key, facts []Fact, stakes []Stake) error {
	seen := make(map[sign.Key]struct{}, min(2*len(facts), MaxPeers))
	add := func(k sign.Key) {
		if _, known := seen[k]; !known && !k.IsZero() && len(v.keys) <= MaxPeers {
			seen[k] = struct{}{}
			v.keys = append(v.keys, k)
		}
	}
	for _, f := range facts {
		add(f.Subject)
		add(f.Rater)
	}
	for _, s := range stakes {
		add(s.Peer)
	}
	if len(v.keys) > MaxPeers {
		return fmt.Errorf("%w: more than %d peers", ErrTooMany, MaxPeers)
	}
	slices.SortFunc(v.keys, compareKeys)
	v.peers = make([]peer, len(v.keys))
	v.reader = v.find(reader)
	return nil
}

func compareKeys(a, b sign.Key) int { return bytes.Compare(a[:], b[:]) }

// find returns the number of a peer; -1 if it is unknown.
func (v *View) find(k sign.Key) int32 {
	i, ok := slices.BinarySearchFunc(v.keys, k, compareKeys)
	if !ok {
		return -1
	}
	return int32(i)
}

// worth is a fact's value today.
func (v *View) worth(value uint64, at market.Slot) uint64 {
	return decay(value, uint64(v.now-min(v.now, at)), v.p.HalfLife) // a future date does not increase the value
}

// count sums the facts up, each of them once.
func (v *View) count(reader sign.Key, facts []Fact) {
	sorted := slices.Clone(facts)
	slices.SortFunc(sorted, compareFact)
	index := make(map[sign.Key]int32, len(v.keys))
	for i, k := range v.keys {
		index[k] = int32(i)
	}
	for i, f := range sorted {
		if i > 0 && sameFact(sorted[i-1], f) == 0 {
			continue
		}
		subject := index[f.Subject]
		if f.Kind >= AuditPassed {
			v.peers[subject].scores[f.Role] = true
			v.prove(&v.peers[subject].proofs[f.Role], f)
			continue
		}
		if f.Kind == Failed && f.Rater != reader {
			continue
		}
		d := deal{subject: subject, role: f.Role, rater: index[f.Rater]}
		if f.Kind == Kept {
			d.kept, d.good = 1, v.worth(uint64(f.Value), f.At)
		} else { // however little was lost, a promise was broken
			d.failed, d.bad = 1, v.worth(max(uint64(f.Value), uint64(v.p.Unit)/lossParts, 1), f.At)
		}
		v.deals = append(v.deals, d)
	}
}

func (v *View) prove(p *proofs, f Fact) {
	unit := uint64(v.p.Unit)
	value := unit
	switch f.Kind {
	case AuditFailed:
		value = mulCap(unit, failUnits)
	case AuditLate:
		value = max(1, unit/lateParts)
	case SoldTwice, Lied:
		value = mulCap(unit, twiceUnits)
	}
	i := f.Kind - AuditPassed
	p.counts[i]++
	p.values[i] = addCap(p.values[i], v.worth(value, f.At))
}

// join makes one deal of all between two peers in a role, and the arcs.
func (v *View) join() {
	slices.SortFunc(v.deals, func(x, y deal) int {
		return cmp.Or(cmp.Compare(x.subject, y.subject), cmp.Compare(x.role, y.role), cmp.Compare(x.rater, y.rater))
	})
	n := 0
	for i, d := range v.deals {
		if last := &v.deals[max(0, n-1)]; i > 0 && last.subject == d.subject && last.role == d.role &&
			last.rater == d.rater {
			last.kept, last.failed = last.kept+d.kept, last.failed+d.failed
			last.good, last.bad = addCap(last.good, d.good), addCap(last.bad, d.bad)
			continue
		}
		v.deals[n] = d
		n++
	}
	v.deals = v.deals[:n:n]
	unit := uint64(v.p.Unit)
	for i := range v.deals {
		d := &v.deals[i]
		d.gain, d.loss = min(nats(d.good, unit), maxGain), nats(d.bad, unit)
		p := &v.peers[d.subject]
		if at := &p.deals[d.role]; at[1] == 0 {
			*at = [2]int32{int32(i), int32(i) + 1}
		} else {
			at[1] = int32(i) + 1
		}
		p.scores[d.role] = true
		v.peers[d.rater].rated[d.role]++
		v.peers[d.rater].voice[d.role] += d.gain
		if d.gain > 0 && d.rater != v.reader {
			v.arcs = append(v.arcs, arc{d.rater, d.subject, d.gain})
		}
	}
	v.connect()
	v.begin()
}

// connect makes one arc of one peer's facts about another in both roles, and indexes them.
func (v *View) connect() {
	slices.SortFunc(v.arcs, func(x, y arc) int { return cmp.Or(cmp.Compare(x.from, y.from), cmp.Compare(x.to, y.to)) })
	n := 0
	for i, a := range v.arcs {
		if last := &v.arcs[max(0, n-1)]; i > 0 && last.from == a.from && last.to == a.to {
			last.strength += a.strength
			continue
		}
		v.arcs[n] = a
		n++
	}
	v.arcs = v.arcs[:n:n]
	for i, a := range v.arcs {
		p := &v.peers[a.from]
		if p.arcs[1] == 0 {
			p.arcs[0] = int32(i)
		}
		p.arcs[1] = int32(i) + 1
		p.sum += a.strength // at most 2·maxGain·MaxPeers
	}
}

// begin sets the starting points of the reader's walk, and the peers that end it.
func (v *View) begin() {
	for i := range v.peers {
		p := &v.peers[i]
		var gain, loss uint64
		for role := range p.deals {
			for _, d := range v.deals[p.deals[role][0]:p.deals[role][1]] {
				if d.rater == v.reader {
					gain, loss = gain+d.gain, loss+d.loss
				}
			}
			loss += p.proofs[role].loss(uint64(v.p.Unit))
		}
		loss *= badWeight
		p.seed, p.failed = gain-min(gain, loss), loss > gain
		p.pass = one / float64(one+loss) // a cheat's facts about others count less
		v.seeds += p.seed
	}
	for _, a := range v.arcs {
		if v.peers[a.to].failed {
			v.peers[a.from].doubt += a.strength
		}
	}
}

// loss is the weight of the proofs against a peer, in millionths of nats.
func (p *proofs) loss(unit uint64) uint64 {
	sum := uint64(0)
	for _, v := range p.values[1:] {
		sum = addCap(sum, v)
	}
	return nats(sum, unit)
}

// gain is the weight of the proofs for it.
func (p *proofs) gain(unit uint64) uint64 { return nats(p.values[0], unit) / auditShare }

// stake adds the stakes: the greatest of each peer.
func (v *View) stake(stakes []Stake) {
	for _, s := range stakes {
		if i := v.find(s.Peer); i >= 0 && i != v.reader {
			p := &v.peers[i]
			p.stake = max(p.stake, uint64(s.Amount)>>stakeShift)
		}
	}
	for i := range v.peers {
		v.stakes += v.peers[i].stake
	}
}

// stakeShift lets the sum of all stakes fit: they are counted in 2¹⁴ base units.
const stakeShift = 14

// Peers returns the peers with facts in a role, ascending by key, without the reader.
func (v *View) Peers(role Role) []sign.Key {
	var out []sign.Key
	for i, k := range v.keys {
		if v.peers[i].scores[role] && int32(i) != v.reader {
			out = append(out, k)
		}
	}
	return out
}
