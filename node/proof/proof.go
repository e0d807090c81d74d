// Package proof has the kinds of public proofs: signed statements in a file that any peer can check without a request
// to their owner.
//
//	kind         proves                                         kept by            also checked on chain
//	receipts     the cost of a job                              the job's buyer    anchors of all receipts
//	history      leases of others with one peer                 node/reputation    the anchor of each receipt
//	probes       how fast a job's hardware computed             the job's buyer
//	audit        that a unit passed an audit                    node/audit         the anchor of its record
//	refusal      that a unit did not pass an audit              node/audit
//	double-sale  that a provider sold one unit twice            node/proof/keep
//	fraud        that a peer signed a false statement (audits)  node/proof/keep
//	dispute      that providers signed different results        node/proof/keep
//
// A [Proof] is the encoded form, a [Content] the decoded one, a [File] is a proof with the genesis of its network, and
// a [Finding] the result of a check. The package is pure: only CheckChain needs more than its arguments.
package proof

import (
	"encoding/json"
	"errors"
	"fmt"

	"github.com/starling-network/starling/chain"
	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/verify"
	"github.com/starling-network/starling/verify/audit"
	"github.com/starling-network/starling/verify/replica"
)

// Kind names a kind of proof.
type Kind string

// The kinds.
const (
	KindReceipts   Kind = "receipts"
	KindHistory    Kind = "history"
	KindProbes     Kind = "probes"
	KindAudit      Kind = "audit"
	KindRefusal    Kind = "refusal"
	KindDoubleSale Kind = "double-sale"
	KindFraud      Kind = "fraud"
	KindDispute    Kind = "dispute"
)

var (
	// ErrKind reports a kind that this version does not have.
	ErrKind = errors.New("unknown kind of proof")
	// ErrUnknown reports a proof that is not kept.
	ErrUnknown = errors.New("no such proof")
	// ErrUnsure reports a proof that this peer cannot judge, or that other peers may judge differently.
	ErrUnsure = errors.New("the proof cannot be judged here")
	// ErrFull reports that there is no room for a proof about its subject.
	ErrFull = errors.New("no room for further proofs about this subject")
)

// Content is a decoded proof.
type Content interface {
	Kind() Kind
	// Hash names the subject matter: two proofs of the same matter have the same hash.
	Hash() sign.Hash
	// Subjects returns the peers that the proof is about.
	Subjects() []sign.Key
	// Summary describes the claim in one line. It checks nothing.
	Summary() string
	// Encode returns the bytes that Decode reads.
	Encode() ([]byte, error)
	// Check checks every rule that needs no chain. The error is a *BrokenRule where a rule has a name.
	Check(g market.Genesis) (Finding, error)
}

// spec is the row of a kind in the table of kinds.
type spec struct {
	kind    Kind
	code    byte   // between peers
	text    string // for people
	most    int    // bytes of an encoded proof
	json    bool   // the encoding is JSON, else a fixed layout
	public  bool   // peers serve it to any peer; other kinds have private data of a buyer
	decode  func(body, anchor []byte) (Content, error)
	checked string // by Check, in one line
	left    string // unchecked; empty if nothing is
}

// specs has a row for each kind.
var specs = []spec{
	{KindReceipts, 1, "the cost of a job", MaxReceipts, true, false, plain(decodeReceipts),
		"both signatures of every lease and receipt, the chain of each lease's receipts, vouchers, sums", ""},
	{KindHistory, 2, "anchored receipts of leases with a peer", MaxHistory, true, false, plain(decodeHistory),
		"both signatures of every receipt, and its place under its anchor's root", ""},
	{KindProbes, 3, "probes of a job's hardware", MaxProbes, true, false, plain(decodeProbes),
		"lease, question, answer and opened entries of each record, with both signatures",
		"the measured times: the buyer alone signs them"},
	{KindAudit, 4, "an audit that a unit passed", audit.MaxRecord, false, true, decodeAudit,
		"seeds, opened entries, walkers, verdicts, and all signatures",
		"the beacon and the committee: they rest on the network's chain"},
	{KindRefusal, 5, "an audit that a unit did not pass", audit.MaxRefusal, false, true, plain(decodeRefusal),
		"the provider's signatures of its answer, and the member's of its verdict",
		"the beacon and the committee: they rest on the network's chain"},
	{KindDoubleSale, 6, "one unit sold twice", verify.MaxConflict, false, true, plain(decodeDoubleSale),
		"four signatures, two leases, one provider, a slot in common, the unit in both",
		"whether the provider has a stake: proof submit checks the chain"},
	{KindFraud, 7, "a false statement in an audit", audit.MaxLie, false, true, plain(decodeFraud),
		"the offender's signatures; the false value was computed again",
		"whether the offender has a stake: proof submit checks the chain"},
	{KindDispute, 8, "different results of one work", replica.MaxDissent, false, false, plain(decodeDispute),
		"each provider's signature of its result, for one work, in the last receipt of its lease", ""},
}

// plain makes a decoder of a kind that has no anchor.
func plain[C Content](decode func([]byte) (C, error)) func(body, anchor []byte) (Content, error) {
	return func(body, anchor []byte) (Content, error) {
		if len(anchor) > 0 {
			return nil, fmt.Errorf("%w: anchor of a proof without one", market.ErrMalformed)
		}
		return decode(body)
	}
}

func specOf(k Kind) (spec, error) {
	for _, s := range specs {
		if s.kind == k {
			return s, nil
		}
	}
	return spec{}, fmt.Errorf("%w: %.40q", ErrKind, k)
}

// Kinds lists all kinds.
func Kinds() (out []Kind) {
	for _, s := range specs {
		out = append(out, s.kind)
	}
	return out
}

// Public reports whether peers serve proofs of the kind to any peer. The others contain private data of a buyer.
func (k Kind) Public() bool {
	s, err := specOf(k)
	return err == nil && s.public
}

// MaxPublic bounds the encoding of a public proof, in bytes.
const MaxPublic = audit.MaxRecord

// Text describes a kind for users.
func (k Kind) Text() string {
	s, err := specOf(k)
	if err != nil {
		return "unknown"
	}
	return s.text
}

// Decode reads an encoded proof and verifies nothing; Content.Check does. It returns ErrKind, and market.ErrMalformed
// if body is not exactly one proof of the kind.
func Decode(k Kind, body []byte) (Content, error) { return decode(k, body, nil) }

func decode(k Kind, body, anchor []byte) (Content, error) {
	s, err := specOf(k)
	if err != nil {
		return nil, err
	}
	if len(body) > s.most {
		return nil, fmt.Errorf("%w: %s proof of %d bytes, want at most %d", market.ErrMalformed, k, len(body), s.most)
	}
	return s.decode(body, anchor)
}

// Proof is an encoded proof. Its JSON is that of a proof's file and of the API.
type Proof struct {
	Kind   Kind            `json:"kind"`
	Body   json.RawMessage `json:"body"`             // an object, or a fixed layout as base64
	Anchor []byte          `json:"anchor,omitempty"` // chain.Inclusion of an audit record; may be empty
}

// New encodes a proof.
func New(c Content) (Proof, error) {
	s, err := specOf(c.Kind())
	if err != nil {
		return Proof{}, err
	}
	b, err := c.Encode()
	if err != nil {
		return Proof{}, err
	}
	p := Proof{Kind: s.kind, Body: b}
	if a, ok := c.(Audit); ok {
		p.Anchor = a.Anchor
	}
	if !s.json {
		p.Body, err = json.Marshal(b)
	}
	return p, err
}

// Marshal returns the form of a proof between peers: the code of its kind, u8, and its encoding.
func Marshal(c Content) ([]byte, error) {
	s, err := specOf(c.Kind())
	if err != nil {
		return nil, err
	}
	b, err := c.Encode()
	return append([]byte{s.code}, b...), err
}

// Unmarshal reads the form of Marshal, with an anchor for a record of an audit. It returns the errors of Decode.
func Unmarshal(b, anchor []byte) (Content, error) {
	for _, s := range specs {
		if len(b) > 0 && s.code == b[0] {
			return decode(s.kind, b[1:], anchor)
		}
	}
	return nil, fmt.Errorf("%w: %.1x", ErrKind, b)
}

// Open decodes the proof. It returns the errors of Decode.
func (p Proof) Open() (Content, error) {
	s, err := specOf(p.Kind)
	if err != nil {
		return nil, err
	}
	body := []byte(p.Body)
	if !s.json {
		body = nil
		if err := json.Unmarshal(p.Body, &body); err != nil {
			return nil, fmt.Errorf("%w: body of a %s proof: want base64", market.ErrMalformed, p.Kind)
		}
	}
	return decode(p.Kind, body, p.Anchor)
}

// anchored reads the inclusion of an audit record's hash.
func anchored(b []byte) (chain.Inclusion, bool) {
	in, err := chain.UnmarshalInclusion(b)
	return in, err == nil
}
