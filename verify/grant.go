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
	// MaxSignedSupervisionGrant is the largest: 16 of 16 guardians.
	MaxSignedSupervisionGrant = SupervisionGrantSize + MaxSignedVoucher - VoucherSize
)

// GrantVersion is the version of both grants written and read here.
const GrantVersion = 1

// SupervisionGrant is the appointment of a job's supervisor by its guardians. Of two grants for one job the higher
// epoch is obeyed. Signed by the threshold of the guardians' key set, tag "starling:super". Layout, little-endian:
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

// UnmarshalSupervisionGrant decodes the layout without trailing bytes.
func UnmarshalSupervisionGrant(b []byte) (SupervisionGrant, error) {
	if len(b) != SupervisionGrantSize || b[0] != GrantVersion || !zero(b[1:8]) {
		return SupervisionGrant{}, malformed("supervision grant", "%d bytes, or unknown version or reserved bytes",
			len(b))
	}
	return SupervisionGrant{
		Version: b[0], Job: sign.Hash(b[8:40]), Epoch: binary.LittleEndian.Uint64(b[40:]),
		Supervisor: sign.Key(b[48:80]), Guardians: sign.Hash(b[80:112]),
		Slot: market.Slot(binary.LittleEndian.Uint64(b[112:])),
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

// Check verifies that the guardians granted it for this job; guardians is the hash of the job's key set. It checks the
// rules lease (another job), supervision (epoch 0), key-set, majority, threshold and signature. The caller checks
// whether a higher epoch exists.
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
		return broken(RuleMajority, "%d of %d guardians could grant two supervisors at once",
			s.Set.Threshold, len(s.Set.Keys))
	}
	b := s.SupervisionGrant.Marshal()
	return s.check(d, sign.TagSupervision, b[:], guardians)
}

// Marshal returns the wire form. The key set must be valid.
func (s SignedSupervisionGrant) Marshal() []byte {
	b := s.SupervisionGrant.Marshal()
	return s.appendTo(append(make([]byte, 0, MaxSignedSupervisionGrant), b[:]...))
}

// UnmarshalSignedSupervisionGrant decodes the wire form without trailing bytes. It verifies no signature; Check does.
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
