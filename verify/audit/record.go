package audit

import (
	"bytes"
	"encoding/binary"
	"errors"
	"slices"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/verify/challenge"
)

// MaxRecord bounds a record, bytes.
const MaxRecord = 64 << 10

const recordHead = 64 // before the answer

// Record is an audit that anyone can check: of one unit in one window. Layout, little-endian:
//
//	offset  size  field
//	     0     1  version = 1
//	     1     1  reserved: 0
//	     2     1  n, verdicts, 1 to 11
//	     3     1  committee drawn, 1 to 11, at least n
//	     4     4  reserved: 0
//	     8     8  slot of the beacon
//	    16    32  value of the beacon
//	    48     8  window length in slots
//	    56     8  reserved: 0
//	    64   280  answer
//	   344    64  the provider's signature over it
//	   408    72  shown
//	   480    64  the provider's signature over it
//	   544        n × ( verdict[184] ‖ signature[64] ), members strictly ascending
//	              openings of the products (challenge.Opened)
//	              ends of the walk (challenge.Walked)
//
// Its name is SHA-256( "starling/record/v1" ‖ all of it ).
type Record struct {
	Beacon      Beacon           `json:"beacon"`
	Committee   uint8            `json:"committee"`
	WindowSlots uint64           `json:"window_slots"`
	Answer      Answer           `json:"answer"`
	AnswerSig   sign.Signature   `json:"answer_signature"`
	Shown       Shown            `json:"shown"`
	ShownSig    sign.Signature   `json:"shown_signature"`
	Verdicts    []Signed         `json:"verdicts"`
	Opened      challenge.Opened `json:"-"`
	Walked      challenge.Walked `json:"-"`
}

// Marshal returns the layout.
func (r Record) Marshal() []byte {
	out := append(r.stated(), r.Opened.Marshal()...)
	return append(out, r.Walked.Marshal()...)
}

// stated is the part of the layout that was signed: all before the openings.
func (r Record) stated() []byte {
	out := make([]byte, recordHead, MaxRecord)
	out[0], out[2], out[3] = version, byte(len(r.Verdicts)), r.Committee
	binary.LittleEndian.PutUint64(out[8:], uint64(r.Beacon.Slot))
	copy(out[16:], r.Beacon.Value[:])
	binary.LittleEndian.PutUint64(out[48:], r.WindowSlots)
	answer, shown := r.Answer.Marshal(), r.Shown.Marshal()
	out = append(out, answer[:]...)
	out = append(out, r.AnswerSig[:]...)
	out = append(out, shown[:]...)
	out = append(out, r.ShownSig[:]...)
	for _, v := range r.Verdicts {
		b := v.Verdict.Marshal()
		out = append(out, b[:]...)
		out = append(out, v.Signature[:]...)
	}
	return out
}

// Hash names the record.
func (r Record) Hash() sign.Hash { return sign.Sum([]byte("starling/record/v1"), r.Marshal()) }

// UnmarshalRecord decodes the layout without trailing bytes. It does not verify; Check does.
func UnmarshalRecord(b []byte) (Record, error) {
	if len(b) > MaxRecord {
		return Record{}, malformed("record", "%d bytes, at most %d", len(b), MaxRecord)
	}
	r, rest, err := cutStated(b)
	if err != nil {
		return Record{}, err
	}
	if r.Opened, rest, err = challenge.UnmarshalOpened(rest); err != nil {
		return Record{}, malformed("record", "%v", err)
	}
	if r.Walked, rest, err = challenge.UnmarshalWalked(rest); err != nil {
		return Record{}, malformed("record", "%v", err)
	}
	if len(rest) > 0 {
		return Record{}, malformed("record", "%d bytes too many", len(rest))
	}
	return r, nil
}

// cutStated reads the signed part of a record and returns the bytes after it.
func cutStated(b []byte) (Record, []byte, error) {
	const verdicts = recordHead + AnswerSize + sign.SignatureSize + ShownSize + sign.SignatureSize
	const each = VerdictSize + sign.SignatureSize
	if len(b) < verdicts || b[0] != version || b[1] != 0 || !zero(b[4:8]) || !zero(b[56:64]) {
		return Record{}, nil, malformed("record", "%d bytes, or unknown version or reserved bytes", len(b))
	}
	n := int(b[2])
	if n < 1 || n > Appeal || b[3] > Appeal || int(b[3]) < n {
		return Record{}, nil, malformed("record", "%d verdicts of %d", n, b[3])
	}
	r := Record{
		Beacon:      Beacon{Slot: market.Slot(binary.LittleEndian.Uint64(b[8:])), Value: sign.Hash(b[16:48])},
		Committee:   b[3],
		WindowSlots: binary.LittleEndian.Uint64(b[48:]),
	}
	var err error
	rest := b[recordHead:]
	if r.Answer, err = UnmarshalAnswer(rest[:AnswerSize]); err != nil {
		return Record{}, nil, err
	}
	r.AnswerSig, rest = sign.Signature(rest[AnswerSize:]), rest[AnswerSize+sign.SignatureSize:]
	if r.Shown, err = UnmarshalShown(rest[:ShownSize]); err != nil {
		return Record{}, nil, err
	}
	r.ShownSig, rest = sign.Signature(rest[ShownSize:]), rest[ShownSize+sign.SignatureSize:]
	if len(rest) < n*each {
		return Record{}, nil, malformed("record", "%d bytes of %d verdicts", len(rest), n)
	}
	for i := range n {
		v, err := UnmarshalVerdict(rest[:VerdictSize])
		if err != nil {
			return Record{}, nil, err
		}
		if i > 0 && bytes.Compare(v.Member[:], r.Verdicts[i-1].Member[:]) <= 0 {
			return Record{}, nil, malformed("record", "verdicts are not in order")
		}
		r.Verdicts = append(r.Verdicts, Signed{v, sign.Signature(rest[VerdictSize:])})
		rest = rest[each:]
	}
	return r, rest, nil
}

// given returns the nonces of round i of all members that gave a verdict.
func given(vs []Signed, i int) []Given {
	out := make([]Given, len(vs))
	for k, v := range vs {
		out[k] = Given{v.Member, v.Nonces[i]}
	}
	return out
}

// Check verifies the parts of a record that need no other data: form, seeds, signatures, openings, walkers, and that
// more than two thirds of the committee passed it. Two checks need other data: that the beacon draws the members
// (CheckMembers, with the bonded set), and that the beacon is the network's (CheckRules, with the genesis, and the
// chain). The cheapest checks come first.
func (r Record) Check(d sign.Domain) error {
	if err := r.checkForm(); err != nil {
		return err
	}
	if err := r.CheckComputed(); err != nil {
		return err
	}
	return r.checkSignatures(d)
}

// checkForm does the cheap checks.
func (r Record) checkForm() error {
	a := r.Answer
	switch hash := a.Hash(); {
	case a.Attempt < 1 || a.Attempt > MaxAttempts:
		return broken(RuleAttempt, "attempt %d of at most %d", a.Attempt, MaxAttempts)
	case r.WindowSlots < 1:
		return broken(RuleWindow, "windows of no length")
	case r.Shown.Answer != hash:
		return broken(RuleOpenings, "shown of another answer")
	case len(r.Verdicts) < 1 || len(r.Verdicts) > int(r.Committee) || r.Committee > Appeal:
		return broken(RuleMajority, "%d verdicts of a committee of %d", len(r.Verdicts), r.Committee)
	}
	if err := checkSlot(r.Beacon, a.Window, r.WindowSlots); err != nil {
		return err
	}
	passed := 0
	for i, v := range r.Verdicts {
		switch {
		case i > 0 && bytes.Compare(v.Member[:], r.Verdicts[i-1].Member[:]) <= 0:
			return broken(RuleVerdict, "members: duplicate, or not in order")
		case v.Member == a.Provider:
			return broken(RuleCommittee, "the provider judges itself")
		case v.Answer != r.Shown.Answer || v.Openings != r.Shown.Openings:
			return broken(RuleVerdict, "verdict of %s: on another answer, or other openings", v.Member.Short())
		}
		if err := errors.Join(v.checkNonces(), v.CheckTimes(r.Beacon, a.Window, r.WindowSlots)); err != nil {
			return err
		}
		if v.Outcome == Pass {
			passed++
		}
	}
	if need := Certify(int(r.Committee)); passed < need {
		return broken(RuleMajority, "%d of a committee of %d passed, want %d", passed, r.Committee, need)
	}
	return nil
}

// CheckComputed verifies the parts that a committee cannot fake: seeds, draws, every opened entry and every walker
// shown.
func (r Record) CheckComputed() error {
	a := r.Answer
	if err := r.checkSeeds(); err != nil {
		return err
	}
	if Show(a, r.Opened.Openings) != r.Shown {
		return broken(RuleOpenings, "openings: not the signed ones")
	}
	if err := CheckProducts(a, r.Opened); err != nil {
		return err
	}
	drawn := Walkers(a.WalkSeed, a.WalkRoot, a.Walk, given(r.Verdicts, 2))
	if err := r.Walked.Check(a.DatasetSeed, a.WalkSeed, a.Walk, a.WalkRoot, drawn); err != nil {
		return because(RuleWalk, err)
	}
	return nil
}

// checkSeeds holds the seeds against beacon and nonces.
func (r Record) checkSeeds() error {
	a := r.Answer
	if want := ProductSeed(r.Beacon, a.Target, given(r.Verdicts, 0)); a.ProductSeed != want {
		return broken(RuleSeed, "products of seed %s, the nonces make %s", a.ProductSeed.Short(), want.Short())
	}
	if want := WalkSeed(a.ProductSeed, a.ProductRoot, given(r.Verdicts, 1)); a.WalkSeed != want {
		return broken(RuleSeed, "walk of seed %s, the nonces make %s", a.WalkSeed.Short(), want.Short())
	}
	return nil
}

// CheckProducts verifies the openings of an answer against its own seeds.
func CheckProducts(a Answer, o challenge.Opened) error {
	if err := o.Check(a.ProductSeed, a.Shape, a.ProductRoot, Drawn(a.WalkSeed, a.Shape), Pick(a.WalkSeed)); err != nil {
		return because(RuleOpenings, err)
	}
	return nil
}

func (r Record) checkSignatures(d sign.Domain) error {
	if err := errors.Join(r.Answer.Verify(d, r.AnswerSig),
		r.Shown.Verify(d, r.Answer.Provider, r.ShownSig)); err != nil {
		return because(RuleProvider, err)
	}
	for _, v := range r.Verdicts {
		if err := v.Verify(d, v.Signature); err != nil {
			return because(RuleVerdict, err)
		}
	}
	return nil
}

// Slack is the maximum number of places of a member below the drawn committee: peers that read the bonded set at
// slightly different times may have slightly different sets.
const Slack = 2

// CheckMembers verifies the size of the committee, and that each judging member is drawn from the roster: in the
// committee, or at most Slack places below it. A provider that could set the committee's size would choose a single
// friend.
func (r Record) CheckMembers(roster Roster) error {
	if err := roster.Check(); err != nil {
		return because(RuleCommittee, err)
	}
	drawn := roster.Draw(r.Beacon, r.Answer.Window, r.Answer.Provider, Appeal+Slack)
	size := int(r.Committee)
	switch whole := len(drawn); {
	case size == Committee || size == Appeal:
	case size > Committee && size < Appeal && size <= whole && whole <= size+Slack: // an appeal to all there are
	case size < Committee && whole < Committee+Slack && whole <= size+Slack: // a committee of all there are
	default:
		return broken(RuleCommittee, "a committee of %d, %d can be drawn", size, whole)
	}
	drawn = drawn[:min(size+Slack, len(drawn))]
	for _, v := range r.Verdicts {
		if !slices.ContainsFunc(drawn, func(m Member) bool { return m.Key == v.Member }) {
			return broken(RuleCommittee, "%s is not among the %d that are drawn first", v.Member.Short(), len(drawn))
		}
	}
	return nil
}

// EraAudits is how many audits a dataset serves, on average.
const EraAudits = 24

// EraOf is the window with the beacon for a window's datasets: the last one before its era, so that there is time to
// fill them.
func (i Instants) EraOf(w Window) Window {
	return max(w-w%i.Audits(EraAudits), 1) - 1
}

// CheckDataset verifies that the unit walked over its own dataset, with the beacon of the window that EraOf returns:
// two units that walk over one dataset need the memory of one.
func (r Record) CheckDataset(era Beacon) error {
	if want := DatasetSeed(era, r.Answer.Provider, r.Answer.Unit); r.Answer.DatasetSeed != want {
		return broken(RuleSeed, "a dataset of seed %s, the unit's is %s", r.Answer.DatasetSeed.Short(), want.Short())
	}
	return nil
}

// Rates are a lower bound of a unit's rates by a record, since no round trip is subtracted.
type Rates struct {
	Operations uint64 `json:"operations"` // int8 multiplications and additions a second
	Reads      uint64 `json:"reads"`      // of 32 bytes each at a random place, a second
	Memory     uint64 `json:"memory"`     // bytes of the dataset
}

// Rates takes the times that more than two thirds of the committee saw kept (Timing). Zero where fewer saw any.
func (r Record) Rates() Rates {
	t := r.Timing()
	if t.Product == never {
		return Rates{}
	}
	return Rates{
		Operations: perSecond(r.Answer.Shape.Operations(), max(t.Product, 1)),
		Reads:      perSecond(r.Answer.Walk.Reads(), max(t.Walk, 1)),
		Memory:     r.Answer.Walk.Bytes(),
	}
}
