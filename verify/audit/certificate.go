package audit

import (
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/verify/challenge"
)

// MaxCertificate bounds a certificate, bytes.
const MaxCertificate = recordHead + AnswerSize + ShownSize + 2*sign.SignatureSize +
	Appeal*(VerdictSize+sign.SignatureSize)

// Certificate is a record without its openings: the layout of Record up to the last verdict. Certificates are kept of
// every window of an epoch, 544 + 248 bytes a verdict. They show unit, question, committee and times. The correctness
// of the results rests on the statements of more than two thirds of a randomly drawn committee.
type Certificate struct {
	record Record // without openings
}

// Certificate returns the record's certificate.
func (r Record) Certificate() Certificate {
	r.Opened, r.Walked = challenge.Opened{}, challenge.Walked{}
	return Certificate{r}
}

// Marshal returns the layout.
func (c Certificate) Marshal() []byte { return c.record.stated() }

// CutCertificate decodes a certificate and returns the bytes after it. It does not verify; Check does.
func CutCertificate(b []byte) (Certificate, []byte, error) {
	r, rest, err := cutStated(b)
	if err != nil {
		return Certificate{}, nil, err
	}
	return Certificate{r}, rest, nil
}

// Hash names the certificate: SHA-256( "starling/certificate/v1" ‖ layout ).
func (c Certificate) Hash() sign.Hash {
	return sign.Sum([]byte("starling/certificate/v1"), c.Marshal())
}

// Record is the record without its openings.
func (c Certificate) Record() Record { return c.record }

// Target is the audited unit and window.
func (c Certificate) Target() Target { return c.record.Answer.Target }

// Rates are the unit's measured rates.
func (c Certificate) Rates() Rates { return c.record.Rates() }

// Members are the members that judged, ascending.
func (c Certificate) Members() []sign.Key {
	out := make([]sign.Key, len(c.record.Verdicts))
	for i, v := range c.record.Verdicts {
		out[i] = v.Member
	}
	return out
}

// Seen is a reader's knowledge of a window without any record: its roster, its beacon, and the beacon of its datasets.
type Seen struct {
	Roster Roster `json:"roster"`
	Beacon Beacon `json:"beacon"`
	Era    Beacon `json:"era"`
}

// Check verifies a certificate: form, seeds, signatures, that more than two thirds of the committee passed it, and that
// beacon, dataset, committee and instant are those of the window.
func (c Certificate) Check(n Rules, seen Seen) error {
	r := c.record
	if r.WindowSlots != n.instants.Slots {
		return broken(RuleWindow, "windows of %d slots, the network's have %d", r.WindowSlots, n.instants.Slots)
	}
	if err := r.checkForm(); err != nil {
		return err
	}
	if r.Beacon != seen.Beacon {
		return broken(RuleBeacon, "the beacon is of slot %d, that of window %d is of slot %d",
			r.Beacon.Slot, r.Answer.Window, seen.Beacon.Slot)
	}
	if err := r.checkSeeds(); err != nil {
		return err
	}
	if err := r.CheckInstant(n.instants, ""); err != nil {
		return err
	}
	if err := r.CheckDataset(seen.Era); err != nil {
		return err
	}
	if err := r.CheckMembers(seen.Roster); err != nil {
		return err
	}
	return r.checkSignatures(n.domain)
}
