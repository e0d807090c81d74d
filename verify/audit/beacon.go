package audit

import (
	"encoding/binary"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/verify/drand"
)

// Source says where a beacon's value comes from.
type Source uint8

// The sources.
const (
	// SlotHash is the hash of the first block of the window on Solana. A leader can bias it and nobody foresee it for long.
	SlotHash Source = 1
	// Drand is a round of drand's quicknet, which anyone can verify for ever.
	Drand Source = 2
	// ByReveal is made by the peers that judge, for each provider: networks without a chain.
	ByReveal Source = 3
)

// String names the source.
func (s Source) String() string {
	switch s {
	case SlotHash:
		return "slot hash"
	case Drand:
		return "drand"
	case ByReveal:
		return "commit and reveal"
	}
	return "unknown"
}

// Beacon is a public value that nobody knew before its round.
type Beacon struct {
	Source Source    `json:"source"`
	Round  uint64    `json:"round"` // slot, drand's round, or the window
	Value  sign.Hash `json:"value"`
}

func (b Beacon) bytes() []byte {
	out := append([]byte{byte(b.Source)}, binary.LittleEndian.AppendUint64(nil, b.Round)...)
	return append(out, b.Value[:]...)
}

// SourceOf is the source of a network's beacons.
func SourceOf(g market.Genesis) Source {
	switch g.AuditBeacon {
	case market.ByDrand:
		return Drand
	case market.CommitReveal:
		return ByReveal
	}
	return SlotHash
}

// Beacons checks the beacons of one network.
type Beacons struct {
	source   Source
	genesis  sign.Hash
	domain   sign.Domain
	slots    uint64
	millis   uint64 // of a slot
	instants Instants
	net      *drand.Network // of Drand
	schedule drand.Schedule
}

// NewBeacons makes it of a valid genesis. drand.ErrKey.
func NewBeacons(g market.Genesis) (*Beacons, error) {
	b := &Beacons{source: SourceOf(g), genesis: g.Hash(), domain: g.Domain(), slots: g.AuditSlots, millis: g.SlotMillis, instants: NewInstants(g)}
	if b.source != Drand {
		return b, nil
	}
	b.schedule = drand.NewSchedule(g)
	var err error
	b.net, err = drand.New(g.Drand)
	return b, err
}

// Source is where the network's beacons come from.
func (b *Beacons) Source() Source { return b.source }

// Instants are when the network's audits begin.
func (b *Beacons) Instants() Instants { return b.instants }

// Schedule says which of drand's rounds windows are drawn by.
func (b *Beacons) Schedule() drand.Schedule { return b.schedule }

// Check verifies all of a beacon that needs nothing else, and gives the beacon that the datasets of the window's units are made of.
// RuleBeacon, RuleWindow. What each source leaves to others:
//
//	slot hash         that the block has that hash; the chain knows. So era is not known: the zero Beacon
//	drand             that the window began when its round did; a clock knows (drand.Schedule.Fits)
//	commit and reveal that who made it is drawn for it; the bonded set knows (CheckMembers)
func (b *Beacons) Check(provider sign.Key, w Window, is Beacon, proof []byte) (era Beacon, err error) {
	if is.Source != b.source {
		return Beacon{}, broken(RuleBeacon, "a beacon by %s, the network's are by %s", is.Source, b.source)
	}
	switch is.Source {
	case SlotHash:
		if len(proof) != 0 {
			return Beacon{}, broken(RuleBeacon, "%d bytes of proof of a slot hash, which has none", len(proof))
		}
		if is.Round < uint64(w.First(b.slots)) || WindowOf(slot(is.Round), b.slots) != w {
			return Beacon{}, broken(RuleWindow, "the beacon is of slot %d, window %d begins at %d", is.Round, w, w.First(b.slots))
		}
		return Beacon{}, nil
	case Drand:
		return b.checkDrand(is, proof)
	case ByReveal:
		return b.checkReveals(provider, w, is, proof)
	}
	return Beacon{}, broken(RuleBeacon, "a beacon of source %d", is.Source)
}

// Rounds are the beacon of a drand round with the era's, of both signatures. RuleBeacon.
func (b *Beacons) Rounds(round uint64, own, era drand.Signature) (is, eraIs Beacon, proof []byte, err error) {
	if is.Value, err = b.net.Verify(round, own); err == nil {
		eraIs.Value, err = b.net.Verify(b.Era(round), era)
	}
	if err != nil {
		return Beacon{}, Beacon{}, nil, because(RuleBeacon, err)
	}
	is.Source, is.Round, eraIs.Source, eraIs.Round = Drand, round, Drand, b.Era(round)
	return is, eraIs, append(own[:], era[:]...), nil
}

// CheckRound verifies the signature of a round of drand. drand.ErrSignature.
func (b *Beacons) CheckRound(round uint64, sig drand.Signature) error {
	_, err := b.net.Verify(round, sig)
	return err
}

// Era is the drand round that datasets are made of when a window is drawn by round.
func (b *Beacons) Era(round uint64) uint64 { return b.schedule.Era(round, EraWindows) }

func (b *Beacons) checkDrand(is Beacon, proof []byte) (Beacon, error) {
	if len(proof) != 2*drand.SignatureSize {
		return Beacon{}, broken(RuleBeacon, "%d bytes of proof, two signatures have %d", len(proof), 2*drand.SignatureSize)
	}
	if !b.schedule.Drawn(is.Round) {
		return Beacon{}, broken(RuleBeacon, "no window is drawn by round %d of drand", is.Round)
	}
	want, era, _, err := b.Rounds(is.Round, drand.Signature(proof), drand.Signature(proof[drand.SignatureSize:]))
	if err == nil && want != is {
		err = broken(RuleBeacon, "round %d of drand has the value %s, not %s", is.Round, want.Value.Short(), is.Value.Short())
	}
	return era, err
}

func (b *Beacons) checkReveals(provider sign.Key, w Window, is Beacon, proof []byte) (Beacon, error) {
	rs, err := unmarshalReveals(proof)
	if err != nil {
		return Beacon{}, because(RuleBeacon, err)
	}
	want, list := revealed(provider, w, rs)
	if want != is {
		return Beacon{}, broken(RuleBeacon, "the nonces make another beacon for %s in window %d", provider.Short(), w)
	}
	for _, r := range rs {
		if r.Member == provider {
			return Beacon{}, broken(RuleBeacon, "the provider makes its own beacon")
		}
		if err := (Reveal{r.Member, provider, w, list, r.Nonce}).Verify(b.domain, r.Signature); err != nil {
			return Beacon{}, because(RuleBeacon, err)
		}
	}
	return b.RevealEra(w), nil
}

// RevealEra is what datasets are made of where peers make the beacons: a value that anybody can say long before. A dataset need not be
// unforeseen, only the unit's own and large: whoever makes it before its time must keep it somewhere, and it must be where the walk is.
func (b *Beacons) RevealEra(w Window) Beacon {
	at := EraOf(w)
	return Beacon{Source: ByReveal, Round: uint64(at), Value: sign.Sum([]byte("starling/audit/era/v1"), b.genesis[:], binary.LittleEndian.AppendUint64(nil, uint64(at)))}
}

// CheckBeacon verifies a record's beacon, that its windows are the network's and that it began when it had to; where the era's beacon is
// known by it, its dataset too. RuleBeacon, RuleWindow, RuleInstant, RuleSeed.
func (r Record) CheckBeacon(b *Beacons) error {
	if r.WindowSlots != b.slots {
		return broken(RuleWindow, "windows of %d slots, the network's have %d", r.WindowSlots, b.slots)
	}
	era, err := b.Check(r.Answer.Provider, r.Answer.Window, r.Beacon, r.Proof)
	if err == nil {
		err = r.CheckInstant(b.instants, "")
	}
	if err != nil || era == (Beacon{}) {
		return err
	}
	return r.CheckDataset(era)
}

// PaceError is which part of a stretch of slots a reader may be wrong by: slots are not as long as they should be.
const PaceError = 16

// Beside tells when a window began from when another did: it has that from s. The time is the less sure the further it lies away.
func (b *Beacons) Beside(other Window, s Seen, w Window) Seen {
	apart := max(other, w) - min(other, w)
	seconds := uint64(apart.First(b.slots)) / 1000 * b.millis
	seconds += uint64(apart.First(b.slots)) % 1000 * b.millis / 1000
	if w >= other {
		s.Began += seconds
	} else {
		s.Began -= min(seconds, s.Began)
	}
	s.Within += seconds/PaceError + 1
	return s
}
