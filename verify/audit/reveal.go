package audit

import (
	"bytes"
	"encoding/binary"
	"slices"

	"github.com/starling-network/starling/market/sign"
)

// Sizes of a beacon that peers make themselves.
const (
	// Revealers is how many peers make it, where there are so many.
	Revealers = 32
	// RevealSize is the size of the statement, bytes.
	RevealSize = 128
	// RevealedSize is what a proof holds of each, bytes.
	RevealedSize = sign.KeySize + NonceSize + sign.SignatureSize
	// MaxProof bounds what shows that a beacon is one, bytes.
	MaxProof = 1 + (Revealers+Slack)*RevealedSize
)

// Commitment is a peer's word that it has chosen a nonce for one provider in one window.
type Commitment struct {
	Member sign.Key
	Hash   sign.Hash
}

// Commit is a peer's commitment to a nonce.
func Commit(member, provider sign.Key, w Window, n Nonce) Commitment {
	return Commitment{member, sign.Sum([]byte("starling/audit/commit/v1"), member[:], provider[:], w.bytes(), n[:])}
}

// ListHash names a list of commitments for a provider in a window, members ascending.
func ListHash(provider sign.Key, w Window, list []Commitment) sign.Hash {
	b := append([]byte("starling/audit/commitments/v1"), provider[:]...)
	b = append(b, w.bytes()...)
	for _, c := range list {
		b = append(b, c.Member[:]...)
		b = append(b, c.Hash[:]...)
	}
	return sign.Sum(b)
}

// Reveal is a peer's word that its nonce belongs to a list of commitments. An honest peer gives one for a provider in a window, so
// that a provider cannot choose among lists. Tag "starling:reveal"; layout, little-endian:
//
//	offset  size  field
//	     0     1  version = 1
//	     1     7  reserved: 0
//	     8    32  member, who signs
//	    40    32  provider
//	    72     8  window
//	    80    32  hash of the list (ListHash)
//	   112    16  nonce
type Reveal struct {
	Member   sign.Key
	Provider sign.Key
	Window   Window
	List     sign.Hash
	Nonce    Nonce
}

// Marshal returns the layout.
func (r Reveal) Marshal() [RevealSize]byte {
	var b [RevealSize]byte
	b[0] = version
	copy(b[8:], r.Member[:])
	copy(b[40:], r.Provider[:])
	binary.LittleEndian.PutUint64(b[72:], uint64(r.Window))
	copy(b[80:], r.List[:])
	copy(b[112:], r.Nonce[:])
	return b
}

// Sign signs the statement.
func (r Reveal) Sign(d sign.Domain, s sign.Signer) (sign.Signature, error) {
	b := r.Marshal()
	return s.Sign(d.Preimage(sign.TagReveal, b[:]))
}

// Verify checks the member's signature.
func (r Reveal) Verify(d sign.Domain, sig sign.Signature) error {
	b := r.Marshal()
	return sign.Verify(r.Member, d.Preimage(sign.TagReveal, b[:]), sig)
}

// Revealed is what one peer gave to a beacon.
type Revealed struct {
	Member    sign.Key
	Nonce     Nonce
	Signature sign.Signature
}

// revealed makes the beacon of what a list's peers revealed for a provider in a window, members ascending, and the list's hash.
func revealed(provider sign.Key, w Window, rs []Revealed) (Beacon, sign.Hash) {
	list := make([]Commitment, len(rs))
	for i, r := range rs {
		list[i] = Commit(r.Member, provider, w, r.Nonce)
	}
	hash := ListHash(provider, w, list)
	b := append([]byte("starling/audit/revealed/v1"), hash[:]...)
	for _, r := range rs {
		b = append(b, r.Nonce[:]...)
	}
	return Beacon{Source: ByReveal, Round: uint64(w), Value: sign.Sum(b)}, hash
}

// FromReveals is the beacon that peers made for a provider in a window, and its proof:
//
//	n u8 ‖ n × ( member[32] ‖ nonce[16] ‖ signature[64] ), members strictly ascending
func FromReveals(provider sign.Key, w Window, rs []Revealed) (b Beacon, proof []byte) {
	rs = slices.SortedFunc(slices.Values(rs), func(a, b Revealed) int { return slices.Compare(a.Member[:], b.Member[:]) })
	proof = []byte{byte(len(rs))}
	for _, r := range rs {
		proof = append(proof, r.Member[:]...)
		proof = append(proof, r.Nonce[:]...)
		proof = append(proof, r.Signature[:]...)
	}
	b, _ = revealed(provider, w, rs)
	return b, proof
}

// unmarshalReveals reads a proof and nothing after it.
func unmarshalReveals(b []byte) ([]Revealed, error) {
	if len(b) < 1 || b[0] < 1 || len(b) > MaxProof || len(b) != 1+int(b[0])*RevealedSize {
		return nil, malformed("reveals", "%d bytes", len(b))
	}
	var out []Revealed
	for b = b[1:]; len(b) > 0; b = b[RevealedSize:] {
		r := Revealed{sign.Key(b[:32]), Nonce(b[32:48]), sign.Signature(b[48:112])}
		if len(out) > 0 && bytes.Compare(out[len(out)-1].Member[:], r.Member[:]) >= 0 {
			return nil, malformed("reveals", "members are not in order")
		}
		out = append(out, r)
	}
	return out, nil
}

func membersOf(rs []Revealed) []sign.Key {
	out := make([]sign.Key, len(rs))
	for i, r := range rs {
		out[i] = r.Member
	}
	return out
}

// RevealersIn are those who made a beacon, by its proof, which must have been checked.
func RevealersIn(proof []byte) []sign.Key {
	rs, err := unmarshalReveals(proof)
	if err != nil {
		return nil
	}
	return membersOf(rs)
}

// DrawRevealers gives those who make a provider's beacon in a window, and how many they are to be: the first are they, and those
// after stand at most Slack places below, for who read the bonded set a moment later. Anybody can say long before who they will be: that is why
// more than two thirds of them must take part, and why a committee is drawn by what comes of it and not by this.
func (r Roster) DrawRevealers(w Window, provider sign.Key) (drawn Roster, size int) {
	drawn = r.Draw(Beacon{Source: ByReveal, Round: uint64(w)}, w, provider, Revealers+Slack)
	return drawn, min(len(drawn), Revealers)
}

// CheckRevealers verifies that more than two thirds of those whom a roster draws made a beacon, and nobody else. RuleBeacon.
func CheckRevealers(roster Roster, w Window, provider sign.Key, members []sign.Key) error {
	drawn, size := roster.DrawRevealers(w, provider)
	need := Certify(size) - min(Slack, size/8) // readers of large sets may not know quite the same one
	if size < 1 || len(members) < need || len(members) > len(drawn) {
		return broken(RuleBeacon, "%d peers made the beacon, %d of %d must", len(members), need, size)
	}
	for _, m := range members {
		if !slices.ContainsFunc(drawn, func(d Member) bool { return d.Key == m }) {
			return broken(RuleBeacon, "%s made the beacon and is not drawn for it", m.Short())
		}
	}
	return nil
}
