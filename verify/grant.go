package verify

import (
	"encoding/binary"
	"fmt"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
)

// Sizes of the grant layouts, in bytes.
const (
	SupervisionGrantSize = 120
	RankGrantSize        = 152
	SignedRankGrantSize  = RankGrantSize + sign.SignatureSize
	// MaxSignedSupervisionGrant is the largest: 16 of 16 guardians.
	MaxSignedSupervisionGrant = SupervisionGrantSize + MaxSignedVoucher - VoucherSize
)

// GrantVersion is the version of both grants written and read here.
const GrantVersion = 1

// SupervisionGrant is the word of a job's guardians about who may command it. Of two grants for one job the higher epoch
// is obeyed. Signed by the threshold of the guardians' key set, tag "starling:super". Layout, little-endian:
//
//	offset  size  field
//	     0     1  version = 1
//	     1     7  reserved: 0
//	     8    32  job id
//	    40     8  epoch, from 1
//	    48    32  supervisor: the peer key that may command
//	    80    32  guardians: hash of the key set that grants (market.KeySet)
//	   112     8  slot in which it was granted
type SupervisionGrant struct {
	Version    uint8       `json:"version"`
	Job        sign.Hash   `json:"job"`
	Epoch      uint64      `json:"epoch"`
	Supervisor sign.Key    `json:"supervisor"`
	Guardians  sign.Hash   `json:"guardians"`
	Slot       market.Slot `json:"slot"`
}

// Marshal returns the layout.
func (g SupervisionGrant) Marshal() [SupervisionGrantSize]byte {
	var b [SupervisionGrantSize]byte
	b[0] = g.Version
	copy(b[8:], g.Job[:])
	binary.LittleEndian.PutUint64(b[40:], g.Epoch)
	copy(b[48:], g.Supervisor[:])
	copy(b[80:], g.Guardians[:])
	binary.LittleEndian.PutUint64(b[112:], uint64(g.Slot))
	return b
}

// UnmarshalSupervisionGrant reads the layout and nothing after it.
func UnmarshalSupervisionGrant(b []byte) (SupervisionGrant, error) {
	if len(b) != SupervisionGrantSize || b[0] != GrantVersion || !zero(b[1:8]) {
		return SupervisionGrant{}, malformed("supervision grant", "%d bytes, or unknown version or reserved bytes", len(b))
	}
	return SupervisionGrant{
		Version: b[0], Job: sign.Hash(b[8:40]), Epoch: binary.LittleEndian.Uint64(b[40:]), Supervisor: sign.Key(b[48:80]),
		Guardians: sign.Hash(b[80:112]), Slot: market.Slot(binary.LittleEndian.Uint64(b[112:])),
	}, nil
}

// SignedSupervisionGrant is a grant and the guardians' signatures. Layout: grant[120] ‖ Signatures.
type SignedSupervisionGrant struct {
	SupervisionGrant
	Signatures
}

// With adds the signature of one guardian.
func (s SignedSupervisionGrant) With(d sign.Domain, by sign.Signer) (SignedSupervisionGrant, error) {
	b := s.SupervisionGrant.Marshal()
	g, err := s.signBy(d, sign.TagSupervision, b[:], by)
	if err != nil {
		return s, fmt.Errorf("signing supervision grant: %w", err)
	}
	s.Signatures = g
	return s, nil
}

// Check asks whether guardians, the hash of the key set that the job names, granted it for this job: rules lease (another
// job), supervision (epoch 0), key-set, majority, threshold, signature. Whether a higher epoch is known, the caller says.
func (s SignedSupervisionGrant) Check(d sign.Domain, job, guardians sign.Hash) error {
	switch g := s.SupervisionGrant; {
	case g.Version != GrantVersion:
		return malformed("supervision grant", "version %d", g.Version)
	case g.Job != job:
		return broken(RuleLease, "for job %s, not %s", g.Job.Short(), job.Short())
	case g.Epoch == 0:
		return broken(RuleSupervision, "epochs begin at 1")
	case g.Guardians != guardians:
		return broken(RuleKeySet, "granted by guardians %s, the job has %s", g.Guardians.Short(), guardians.Short())
	case 2*int(s.Set.Threshold) <= len(s.Set.Keys):
		return broken(RuleMajority, "%d of %d guardians could grant two supervisors at once", s.Set.Threshold, len(s.Set.Keys))
	}
	b := s.SupervisionGrant.Marshal()
	return s.check(d, sign.TagSupervision, b[:], guardians)
}

// Marshal returns the wire form. The key set must be valid.
func (s SignedSupervisionGrant) Marshal() []byte {
	b := s.SupervisionGrant.Marshal()
	return s.appendTo(append(make([]byte, 0, MaxSignedSupervisionGrant), b[:]...))
}

// UnmarshalSignedSupervisionGrant reads the wire form and nothing after it. It verifies no signature; Check does.
func UnmarshalSignedSupervisionGrant(b []byte) (SignedSupervisionGrant, error) {
	if len(b) <= SupervisionGrantSize || len(b) > MaxSignedSupervisionGrant {
		return SignedSupervisionGrant{}, malformed("signed supervision grant", "%d bytes", len(b))
	}
	g, err := UnmarshalSupervisionGrant(b[:SupervisionGrantSize])
	if err != nil {
		return SignedSupervisionGrant{}, err
	}
	sigs, err := unmarshalSignatures(b[SupervisionGrantSize:])
	if err != nil {
		return SignedSupervisionGrant{}, err
	}
	return SignedSupervisionGrant{SupervisionGrant: g, Signatures: sigs}, nil
}

// RankGrant is the supervisor's word that a lease runs a rank of a job. Of two grants for one rank the one of the higher
// supervision epoch, then of the higher rank epoch, runs; the other ends. Signed by the supervisor, tag "starling:rank".
// Layout, little-endian:
//
//	offset  size  field
//	     0     1  version = 1
//	     1     3  reserved: 0
//	     4     4  rank
//	     8     4  rank epoch
//	    12     4  reserved: 0
//	    16    32  job id
//	    48     8  supervision epoch under which it is granted
//	    56    32  supervisor
//	    88    32  provider
//	   120    32  lease id
type RankGrant struct {
	Version     uint8          `json:"version"`
	Rank        uint32         `json:"rank"`
	Epoch       uint32         `json:"epoch"`
	Job         sign.Hash      `json:"job"`
	Supervision uint64         `json:"supervision"`
	Supervisor  sign.Key       `json:"supervisor"`
	Provider    sign.Key       `json:"provider"`
	Lease       market.LeaseID `json:"lease"`
}

// Supersedes reports whether g, a grant for the same rank, is obeyed instead of o.
func (g RankGrant) Supersedes(o RankGrant) bool {
	if g.Supervision != o.Supervision {
		return g.Supervision > o.Supervision
	}
	return g.Epoch > o.Epoch
}

// Marshal returns the layout.
func (g RankGrant) Marshal() [RankGrantSize]byte {
	var b [RankGrantSize]byte
	b[0] = g.Version
	binary.LittleEndian.PutUint32(b[4:], g.Rank)
	binary.LittleEndian.PutUint32(b[8:], g.Epoch)
	copy(b[16:], g.Job[:])
	binary.LittleEndian.PutUint64(b[48:], g.Supervision)
	copy(b[56:], g.Supervisor[:])
	copy(b[88:], g.Provider[:])
	copy(b[120:], g.Lease[:])
	return b
}

// UnmarshalRankGrant reads the layout and nothing after it.
func UnmarshalRankGrant(b []byte) (RankGrant, error) {
	if len(b) != RankGrantSize || b[0] != GrantVersion || !zero(b[1:4]) || !zero(b[12:16]) {
		return RankGrant{}, malformed("rank grant", "%d bytes, or unknown version or reserved bytes", len(b))
	}
	return RankGrant{
		Version: b[0], Rank: binary.LittleEndian.Uint32(b[4:]), Epoch: binary.LittleEndian.Uint32(b[8:]), Job: sign.Hash(b[16:48]),
		Supervision: binary.LittleEndian.Uint64(b[48:]), Supervisor: sign.Key(b[56:88]), Provider: sign.Key(b[88:120]),
		Lease: market.LeaseID(b[120:152]),
	}, nil
}

// SignedRankGrant is a rank grant and the supervisor's signature. Layout: grant[152] ‖ signature[64].
type SignedRankGrant struct {
	RankGrant
	Signature sign.Signature `json:"signature"`
}

// Sign signs the grant as the supervisor it names.
func (g RankGrant) Sign(d sign.Domain, s sign.Signer) (SignedRankGrant, error) {
	b := g.Marshal()
	sig, err := s.Sign(d.Preimage(sign.TagRank, b[:]))
	if err != nil {
		return SignedRankGrant{}, fmt.Errorf("signing rank grant: %w", err)
	}
	return SignedRankGrant{RankGrant: g, Signature: sig}, nil
}

// Check asks whether the supervisor it names signed it: rule signature. That this peer is the supervisor
// under that epoch, a SupervisionGrant says, or epoch 0 the job itself: its buyer.
func (s SignedRankGrant) Check(d sign.Domain) error {
	if s.Version != GrantVersion {
		return malformed("rank grant", "version %d", s.Version)
	}
	b := s.RankGrant.Marshal()
	if err := sign.Verify(s.Supervisor, d.Preimage(sign.TagRank, b[:]), s.Signature); err != nil {
		return &RuleError{Rule: RuleSignature, Detail: err.Error(), Err: err}
	}
	return nil
}

// Marshal returns the wire form.
func (s SignedRankGrant) Marshal() []byte {
	b := s.RankGrant.Marshal()
	return append(append(make([]byte, 0, SignedRankGrantSize), b[:]...), s.Signature[:]...)
}

// UnmarshalSignedRankGrant reads the wire form and nothing after it. It verifies no signature; Check does.
func UnmarshalSignedRankGrant(b []byte) (SignedRankGrant, error) {
	if len(b) != SignedRankGrantSize {
		return SignedRankGrant{}, malformed("signed rank grant", "%d bytes, want %d", len(b), SignedRankGrantSize)
	}
	g, err := UnmarshalRankGrant(b[:RankGrantSize])
	if err != nil {
		return SignedRankGrant{}, err
	}
	return SignedRankGrant{RankGrant: g, Signature: sign.Signature(b[RankGrantSize:])}, nil
}
