package audit

import (
	"bytes"

	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/verify/challenge"
	"github.com/starling-network/starling/verify/drand"
)

// MaxCertificate bounds a certificate, bytes.
const MaxCertificate = recordHead + AnswerSize + ShownSize + 2*sign.SignatureSize + Appeal*(VerdictSize+sign.SignatureSize) + MaxProof

// Certificate is a record without its openings: the layout of Record up to the last verdict, and after it the proof of the beacon. It is
// what is kept of every window of an epoch, 544 + 248 bytes a verdict and the proof, and shows who was asked what, who judged, and in
// what time; that what was computed is right is then the word of more than two thirds of a committee that nobody chose.
type Certificate struct {
	record Record // without openings
}

// Certificate is that of the record.
func (r Record) Certificate() Certificate {
	r.Opened, r.Walked = challenge.Opened{}, challenge.Walked{}
	return Certificate{r}
}

// Marshal returns the layout.
func (c Certificate) Marshal() []byte { return append(c.record.stated(), c.record.Proof...) }

// CutCertificate reads a certificate and gives the bytes after it. It verifies nothing; Check does.
func CutCertificate(b []byte) (Certificate, []byte, error) {
	r, rest, err := cutStated(b)
	if err != nil {
		return Certificate{}, nil, err
	}
	n := 0
	switch r.Beacon.Source {
	case Drand:
		n = 2 * drand.SignatureSize
	case ByReveal:
		if len(rest) < 1 {
			return Certificate{}, nil, malformed("certificate", "cut off before the proof of its beacon")
		}
		n = 1 + int(rest[0])*RevealedSize
	case SlotHash: // the chain proves it
	}
	if n > len(rest) || n > MaxProof {
		return Certificate{}, nil, malformed("certificate", "a proof of %d bytes of its beacon, %d are there", n, len(rest))
	}
	if n > 0 {
		r.Proof = bytes.Clone(rest[:n])
	}
	return Certificate{r}, rest[n:], nil
}

// Hash names the certificate: SHA-256( "starling/certificate/v1" ‖ layout ).
func (c Certificate) Hash() sign.Hash {
	return sign.Sum([]byte("starling/certificate/v1"), c.Marshal())
}

// Record is the record without its openings.
func (c Certificate) Record() Record { return c.record }

// Target is whose unit it is of, and when.
func (c Certificate) Target() Target { return c.record.Answer.Target }

// Rates are what the unit showed.
func (c Certificate) Rates() Rates { return c.record.Rates() }

// Members are who judged, ascending.
func (c Certificate) Members() []sign.Key {
	out := make([]sign.Key, len(c.record.Verdicts))
	for i, v := range c.record.Verdicts {
		out[i] = v.Member
	}
	return out
}

// Seen is what somebody knows of a window without any record: who could be drawn in it, and what beacons of it are held against.
type Seen struct {
	Roster Roster `json:"roster"`
	// Beacon is one that needs no more proof, and Era that of its datasets: the window's slot hash, or one of which Proof was verified.
	// None, where peers make beacons and where the window was not looked at.
	Beacon Beacon `json:"beacon,omitzero"`
	Proof  []byte `json:"proof,omitempty"`
	Era    Beacon `json:"era,omitzero"`
	// Began is when the window began, seconds since 1970, and Within by how much that may be wrong: where beacons are drand's.
	Began  uint64 `json:"began,omitzero"`
	Within uint64 `json:"within,omitzero"`
}

// Knows reports whether a certificate's beacon is the one that needs no more proof.
func (s Seen) Knows(c Certificate) bool {
	return s.Beacon != Beacon{} && s.Beacon == c.record.Beacon && bytes.Equal(s.Proof, c.record.Proof)
}

// CheckSeen verifies a certificate's beacon against what is known of its window, and gives that of its datasets.
func (b *Beacons) CheckSeen(c Certificate, seen Seen) (era Beacon, err error) {
	is, at := c.record.Beacon, c.record.Answer.Target
	switch {
	case seen.Knows(c):
		return seen.Era, nil
	case b.source == SlotHash:
		return Beacon{}, broken(RuleWindow, "the beacon is of slot %d, that of window %d is of slot %d", is.Round, at.Window, seen.Beacon.Round)
	case b.source == Drand && !b.schedule.Fits(is.Round, seen.Began, seen.Within):
		return Beacon{}, broken(RuleTime, "window %d is drawn by round %d of drand, not %d", at.Window, b.schedule.After(seen.Began), is.Round)
	}
	return b.Check(at.Provider, at.Window, is, c.record.Proof)
}

// With is what is known of a window once a certificate of it was verified.
func (s Seen) With(c Certificate, era Beacon) Seen {
	s.Beacon, s.Proof, s.Era = c.record.Beacon, c.record.Proof, era
	return s
}

// Check verifies a certificate: form, seeds, signatures, that more than two thirds of the committee passed it, and that beacon,
// dataset, committee and instant are those of the window. It gives the beacon of the datasets.
func (c Certificate) Check(b *Beacons, seen Seen) (era Beacon, err error) {
	r := c.record
	if r.WindowSlots != b.slots {
		return Beacon{}, broken(RuleWindow, "windows of %d slots, the network's have %d", r.WindowSlots, b.slots)
	}
	if err := r.checkForm(); err != nil {
		return Beacon{}, err
	}
	if era, err = b.CheckSeen(c, seen); err != nil {
		return Beacon{}, err
	}
	if err := r.checkSeeds(); err != nil {
		return Beacon{}, err
	}
	if err := r.CheckInstant(b.instants, ""); err != nil {
		return Beacon{}, err
	}
	if err := r.CheckDataset(era); err != nil {
		return Beacon{}, err
	}
	if err := r.CheckMembers(seen.Roster); err != nil {
		return Beacon{}, err
	}
	return era, r.checkSignatures(b.domain)
}
