package audits

import (
	"math"
	"time"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/node/device/sim"
	"github.com/starling-network/starling/testnet/sim/play"
	"github.com/starling-network/starling/verify/audit"
	"github.com/starling-network/starling/verify/challenge"
)

// hour is the time between audits, on average.
const hour = time.Hour

// unit is a peer with one unit: its claim, its hardware, and its method of hiding the difference. New returns an honest
// unit.
type unit struct {
	w         *play.World
	class     market.Class
	resources market.Resources // claimed
	hardware  sim.Class        // real hardware
	host      host             // its host

	together float64       // number of identities that the card answers for at once
	have     sim.Share     // present part of the dataset
	entries  float64       // share of the products computed
	tries    int           // attempts in a window
	wrong    bool          // its openings are wrong, or of another window
	absent   bool          // it does not begin
	from     time.Duration // its beginning, by its own clock, after the instant
	turn     turn          // delay on a card that answers for other identities too

	colluding float64 // colluding share of the roster's weight
	most      int     // most colluding members on one committee; 0 is all
	friends   friend  // their action
	chooses   bool    // the provider selects them as far as Slack allows

	shape   challenge.Shape
	walk    challenge.Walk
	floor   audit.Floor
	card    float64
	outages sim.Outages
}

// friend is the action of colluding members.
type friend int

const (
	help     friend = iota // report the unit as fast and right
	slander                // report it as slow
	deny                   // report it as wrong
	withhold               // give nonces and no verdict
)

// honest is a unit with the claimed hardware.
func honest(w *play.World, c sim.Class) *unit {
	u := &unit{
		w: w, class: c.Market, resources: c.Resources, hardware: c, host: measured, together: 1, have: sim.Whole,
		entries: 1, tries: audit.MaxAttempts, card: w.Noise.Card(), outages: sim.Outages{N: w.Noise},
	}
	return u.claims(c)
}

// claims sets the claimed class.
func (u *unit) claims(c sim.Class) *unit {
	u.class, u.resources = c.Market, c.Resources
	return u.asked()
}

// asked sets the challenges for its claim.
func (u *unit) asked() *unit {
	var err error
	if u.shape, u.walk, err = audit.Plan(u.class, u.resources); err != nil {
		panic(err) // classes of this simulation have plans
	}
	u.floor, _ = audit.FloorOf(u.class, u.resources)
	return u
}

// lacks removes a share of the dataset, which is computed again when it is read.
func (u *unit) lacks(share float64) *unit {
	u.have = sim.Share{Resident: 1 - share}
	return u
}

// play runs the unit window after window.
func (u *unit) play(window, committee int) audit.Report {
	at := time.Duration(window) * hour
	if u.outages.Away(at, at+3*time.Second) || u.absent {
		return audit.Report{Result: audit.Absent}
	}
	members := u.draw(committee)
	if len(members) < audit.Certify(committee) { // members give a nonce only at the instant
		return audit.Report{Result: audit.Absent}
	}
	speed := u.w.Noise.Speed() * u.card // a hot card stays hot for a window
	rep := audit.Report{Result: audit.Failed}
	for range u.tries {
		result, broken, again := u.attempt(members, committee, speed)
		if broken {
			rep.Broken++
		}
		switch result {
		case audit.Passed:
			rep.Result = audit.Passed
			return rep
		case audit.Undecided:
			rep.Result = audit.Undecided // a window fails if all its attempts do
		}
		if !again { // they give a nonce for another attempt only to units that they saw work
			break
		}
		members = left(members[:min(committee, len(members))])
	}
	return rep
}

// member is a drawn member, in the order of the draw.
type member struct {
	bad  bool
	gone bool          // withheld a verdict, and is not asked again
	trip time.Duration // to the provider and back
}

// draw returns the members of a committee and of the Slack places below it that see the unit begin in time.
func (u *unit) draw(committee int) []member {
	var members []member
	bad := 0
	width := instants.Width(u.class)
	begins := u.from + u.w.Noise.Sight()
	for range committee + audit.Slack {
		m := member{trip: u.w.Noise.Trip()}
		if u.w.R.Float64() < u.colluding && (u.most == 0 || bad < u.most) {
			m.bad = true
			bad++
		}
		after := begins - u.w.Noise.Sight() + m.trip/2
		if m.bad && u.friends == help || after >= -slotsLast(width.Early) && after < slotsLast(width.Late) {
			members = append(members, m)
		}
	}
	return members
}

// instants are the instants of a network on Solana with the defaults of starling network genesis: one window of two
// minutes in thirty has an audit.
var instants = audit.Instants{Slots: 300, Millis: 400, OneIn: 30}

func slotsLast(n uint64) time.Duration { return time.Duration(n*instants.Millis) * time.Millisecond }

// left removes members that withheld.
func left(members []member) []member {
	var out []member
	for _, m := range members {
		if !m.gone {
			out = append(out, m)
		}
	}
	return out
}

// ask returns the members that a provider selects: the drawn ones, without distant ones while enough are left; or its
// colluding members and as few others as possible.
func (u *unit) ask(members []member, committee int) []*member {
	var asked []*member
	if !u.chooses {
		drawn := members[:min(committee, len(members))]
		for i := range drawn {
			if drawn[i].trip <= audit.MaxTrip*time.Microsecond || len(drawn)-1-i+len(asked) < audit.Certify(committee) {
				asked = append(asked, &drawn[i])
			}
		}
		return asked
	}
	for i := range members {
		if members[i].bad {
			asked = append(asked, &members[i])
		}
	}
	for i := range members {
		if !members[i].bad && len(asked) < audit.Certify(committee) {
			asked = append(asked, &members[i])
		}
	}
	return asked[:min(len(asked), committee)]
}

// attempt is one audit: the committee's result, whether the unit aborted it as a cheat would, and whether the remaining
// members saw it work, so that they judge it once more.
func (u *unit) attempt(members []member, committee int, speed float64) (result audit.Result, broken, again bool) {
	asked := u.ask(members, committee)
	rec := audit.Record{Committee: uint8(committee), Answer: audit.Answer{Shape: u.shape, Walk: u.walk}}
	need := audit.Certify(committee)
	right := !u.wrong && (u.entries == 1 || u.w.R.Float64() < math.Pow(u.entries, challenge.Openings))
	truthful := 0
	for _, m := range asked {
		m.gone = m.bad && u.friends == withhold
		if !m.bad || u.friends == withhold {
			truthful++
		}
	}
	if !right { // honest members report it; a cheat that expects this aborts instead
		if truthful >= need {
			return audit.Failed, !u.wrong, false
		}
		return audit.Undecided, false, false
	}
	product, walk := u.floor.Deadlines(u.shape, u.walk)
	late := uint64(u.turn.second.Microseconds()) > audit.Within(u.class, product)
	passes := 0
	void := false
	saw := 0 // members that gave every nonce, and saw it work
	for i, v := range u.times(asked, speed) {
		if took := max(v.Product, uint64(u.turn.second.Microseconds())) + v.Walk; !late &&
			took <= audit.Whole(u.class, product, walk) && !(asked[i].bad && u.friends != help) {
			saw++
		}
		switch m := asked[i]; {
		case m.gone:
			void = true // a member gave a nonce and no verdict
			continue
		case m.bad && u.friends == deny:
			v.Outcome = audit.Wrong
		case m.bad && u.friends == slander:
			v.Product, v.Walk = v.Product*4, v.Walk*4+1_000_000
			v.Outcome = audit.Pass
		case m.bad:
			v.Product, v.Walk, v.Outcome = 1, 1, audit.Pass
		default:
			if v.Outcome = audit.Judge(u.floor, rec, v, true); late {
				v.Outcome = audit.Late
			}
		}
		if v.Outcome == audit.Pass {
			passes++
		}
		rec.Verdicts = append(rec.Verdicts, audit.Signed{Verdict: v})
	}
	again = saw >= need
	switch {
	case void:
		return audit.Undecided, false, again
	case passes >= need && rec.CheckClass(u.class, u.resources) == nil:
		return audit.Passed, false, false
	case rec.FailsClass(u.class, u.resources) || len(rec.Verdicts)-passes >= need:
		return audit.Failed, false, again
	}
	return audit.Undecided, false, again
}

// host is the time that a provider's host adds to its hardware's: the transfer of each hash from the helper through the
// pipe, and its place in a tree.
type host struct {
	pipe time.Duration // for one hash
	hash time.Duration // for one node
	copy time.Duration // pauses of the GPU while hashes are copied, for one hash
	// late delays hashing until the last product is there, and sends ends unhashed: the behaviour of old helpers
	late bool
}

// measured is the time of one core of an EPYC with SHA extensions (go test -bench 'Host|Answer' ./verify/challenge
// ./node/device/cuda): 186 ns for a node; 72 MB through the pipe in 0.13 s. The copies are assumed: 4 GB/s into
// pageable memory.
var measured = host{pipe: 60 * time.Nanosecond, hash: 190 * time.Nanosecond, copy: 8 * time.Nanosecond}

// product is the time until the root of a product's tiles, for hardware that takes took.
func (h host) product(s challenge.Shape, took time.Duration) time.Duration {
	n := time.Duration(s.Tiles())
	took += n * h.copy
	if h.late {
		return took + n*(h.pipe+h.hash)
	}
	last := n / time.Duration(s.Products)
	return max(took, n*(h.pipe+h.hash)) + last*(h.pipe+h.hash)
}

// walk is the time until the root of a walk.
func (h host) walk(w challenge.Walk, took time.Duration) time.Duration {
	n := time.Duration(w.Groups())
	if h.late { // 64 ends of 8 bytes in place of one hash, and a leaf of nine blocks to hash beside the node
		return took + n*(16*(h.pipe+h.copy)+4*h.hash)
	}
	return took + n*(h.pipe+h.hash/2+h.copy) // on two of the eight processors
}

// times are the members' measurements: the hardware's time, the host's hashing, and the network. All include the round
// trip of the farthest member, since the provider waits for its nonces.
func (u *unit) times(asked []*member, speed float64) []audit.Verdict {
	n := u.w.Noise
	slow := func(d time.Duration, by float64) time.Duration { return time.Duration(float64(d) * by / speed) }
	product := u.turn.product + u.host.product(u.shape, slow(u.hardware.Multiplies(u.shape), u.together*u.entries))
	walk := u.turn.walk + u.host.walk(u.walk, slow(u.hardware.Walks(u.walk, u.have), u.together))
	var first, second time.Duration
	for _, m := range asked {
		first, second = max(first, m.trip+n.Delay()), max(second, m.trip+n.Delay())
	}
	out := make([]audit.Verdict, len(asked))
	for i := range asked {
		clock := n.Clock()
		micros := func(d time.Duration) uint64 { return uint64(float64(d.Microseconds()) * clock) }
		out[i] = audit.Verdict{
			Product: micros(product + first + n.Delay()), Walk: micros(walk + second + n.Delay()),
		}
	}
	return out
}
