package replica

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/verify"
)

const (
	announceVersion = 1
	announceHead    = 8 + sign.HashSize

	// MaxAnnouncement is the largest announcement.
	MaxAnnouncement = announceHead + MaxResults*verify.ReceiptSize
)

// Announcement tells of a dissent that somebody has: where it says how long it is and what its hash is, the receipts in it already
// show that providers signed different outputs. Layout, little-endian:
//
//	0   1  version = 1
//	1   1  n, receipts, 2 to MaxResults
//	2   2  reserved: 0
//	4   4  length of the Dissent's layout
//	8  32  its SHA-256
//	40     n × receipt[384], lease ids ascending
type Announcement struct {
	Size     uint32
	Hash     sign.Hash
	Receipts []verify.Receipt
}

// Announce is the announcement of a dissent.
func Announce(d Dissent) Announcement {
	b := d.Marshal()
	a := Announcement{Size: uint32(len(b)), Hash: sha256.Sum256(b)}
	for _, r := range d.Results {
		a.Receipts = append(a.Receipts, r.Receipt)
	}
	return a
}

// Check checks what needs no work: ended, apart, both signatures of each receipt, and dissent (two outputs differ).
func (a Announcement) Check(d sign.Domain) error {
	if n := len(a.Receipts); n < 2 || n > MaxResults {
		return malformed("announcement", "%d receipts, want 2 to %d", n, MaxResults)
	}
	if least := dissentHead + workHead + len(a.Receipts)*(verify.ReceiptSize+resultHead); a.Size < uint32(least) || a.Size > MaxDissent {
		return malformed("announcement", "of %d bytes, want %d to %d", a.Size, least, MaxDissent)
	}
	by, differ := map[sign.Key]bool{}, false
	for i, r := range a.Receipts {
		switch {
		case i > 0 && bytes.Compare(a.Receipts[i-1].Lease[:], r.Lease[:]) >= 0:
			return malformed("announcement", "leases are not in order")
		case by[r.Provider]:
			return broken(RuleApart, "two results are by provider %s", r.Provider.Short())
		case !r.Final():
			return broken(RuleEnded, "receipt %d of lease %s is not its last", r.Seq, r.Lease.Short())
		case r.Output.IsZero():
			return broken(RuleOutput, "provider %s signed no output", r.Provider.Short())
		}
		by[r.Provider] = true
		differ = differ || r.Output != a.Receipts[0].Output
	}
	if !differ {
		return broken(RuleDissent, "all %d outputs are the same", len(a.Receipts))
	}
	for _, r := range a.Receipts {
		if err := r.CheckSignatures(d); err != nil {
			return err
		}
	}
	return nil
}

// Ends is the slot in which the last of the results ended.
func (a Announcement) Ends() (to market.Slot) {
	for _, r := range a.Receipts {
		to = max(to, r.To)
	}
	return to
}

// Open reads the dissent that was announced: bytes of this length and hash, with these receipts. It verifies nothing else.
func (a Announcement) Open(b []byte) (Dissent, error) {
	if len(b) != int(a.Size) || sha256.Sum256(b) != a.Hash {
		return Dissent{}, malformed("dissent", "%d bytes of another hash than was announced", len(b))
	}
	d, err := UnmarshalDissent(b)
	if err != nil {
		return Dissent{}, err
	}
	if len(d.Results) != len(a.Receipts) {
		return Dissent{}, malformed("dissent", "%d results, %d were announced", len(d.Results), len(a.Receipts))
	}
	for i, r := range d.Results {
		if r.Receipt != a.Receipts[i] {
			return Dissent{}, malformed("dissent", "receipt %d is another than was announced", i)
		}
	}
	return d, nil
}

// Marshal returns the layout.
func (a Announcement) Marshal() []byte {
	b := append(make([]byte, 0, announceHead+len(a.Receipts)*verify.ReceiptSize), announceVersion, byte(len(a.Receipts)), 0, 0)
	b = append(binary.LittleEndian.AppendUint32(b, a.Size), a.Hash[:]...)
	for _, r := range a.Receipts {
		b = append(b, r.Marshal()...)
	}
	return b
}

// UnmarshalAnnouncement reads the layout and nothing after it. It verifies nothing; Check does.
func UnmarshalAnnouncement(b []byte) (Announcement, error) {
	if len(b) < announceHead || b[0] != announceVersion || b[2] != 0 || b[3] != 0 {
		return Announcement{}, malformed("announcement", "%d bytes, or not version %d", len(b), announceVersion)
	}
	n := int(b[1])
	if n < 2 || n > MaxResults || len(b) != announceHead+n*verify.ReceiptSize {
		return Announcement{}, malformed("announcement", "%d bytes of %d receipts", len(b), n)
	}
	a := Announcement{Size: binary.LittleEndian.Uint32(b[4:]), Hash: sign.Hash(b[8:announceHead])}
	for b = b[announceHead:]; len(b) > 0; b = b[verify.ReceiptSize:] {
		r, err := verify.UnmarshalReceipt(b[:verify.ReceiptSize])
		if err != nil {
			return Announcement{}, err
		}
		a.Receipts = append(a.Receipts, r)
	}
	return a, nil
}
