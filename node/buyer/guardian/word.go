package guardian

import (
	"encoding/binary"
	"fmt"

	"github.com/ipfs/go-cid"

	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/node/nodepb"
	"github.com/starling-network/starling/verify"
)

// Word identifies the supervisor that left a state or a lease with the guardians: its signature, tag "starling:ward",
// and the grant that it supervised under. A guardian passes it on, and a guardian that lies can only leave it out. The
// signed layout, little-endian:
//
//	offset  size  field
//	     0     1  version = 1
//	     1     1  kind: 1 state, 2 lease
//	     2     6  reserved: 0
//	     8    32  job
//	    40     8  epoch
//	    48    32  SHA-256 of the content
type Word struct {
	Epoch     uint64         `json:"epoch"`
	Grant     []byte         `json:"grant,omitempty"`
	Signature sign.Signature `json:"signature"`
}

const (
	wordState = 1
	wordLease = 2
	wordSize  = 80
)

func preimage(d sign.Domain, job sign.Hash, epoch uint64, kind byte, content sign.Hash) []byte {
	var b [wordSize]byte
	b[0], b[1] = 1, kind
	copy(b[8:], job[:])
	binary.LittleEndian.PutUint64(b[40:], epoch)
	copy(b[48:], content[:])
	return d.Preimage(sign.TagWard, b[:])
}

// word signs the supervisor's statement under an epoch.
func (c Charter) word(
	d sign.Domain, by sign.Signer, epoch uint64, grant []byte, kind byte, content sign.Hash,
) (Word, error) {
	sig, err := by.Sign(preimage(d, c.Job, epoch, kind, content))
	if err != nil {
		return Word{}, fmt.Errorf("signing for the guardians: %w", err)
	}
	return Word{Epoch: epoch, Grant: grant, Signature: sig}, nil
}

// checkWord verifies that the supervisor of the word's epoch signed it, and that the epoch was granted.
func (c Charter) checkWord(d sign.Domain, w Word, kind byte, content sign.Hash) error {
	if err := c.CheckGrant(d, w.Epoch, w.Grant); err != nil {
		return err
	}
	return sign.Verify(c.Supervisor(w.Epoch), preimage(d, c.Job, w.Epoch, kind, content), w.Signature)
}

func (w Word) pb() *nodepb.Word {
	return &nodepb.Word{Epoch: w.Epoch, Grant: w.Grant, Signature: w.Signature[:]}
}

func wordOf(pb *nodepb.Word) (Word, error) {
	if len(pb.GetSignature()) != sign.SignatureSize || len(pb.Grant) > verify.MaxSignedSupervisionGrant {
		return Word{}, fmt.Errorf("a word with a signature of %d bytes and a grant of %d",
			len(pb.GetSignature()), len(pb.GetGrant()))
	}
	return Word{Epoch: pb.Epoch, Grant: pb.Grant, Signature: sign.Signature(pb.Signature)}, nil
}

// State is a job's standing, as its supervisor reports it.
type State struct {
	Version uint64 `json:"version"` // counts the changes under one epoch, from 1
	Bytes   []byte `json:"bytes"`
	Over    bool   `json:"over,omitempty"` // the job needs no supervision
	Files   []File `json:"files,omitempty"`
}

func (s State) hash() sign.Hash {
	head := binary.LittleEndian.AppendUint64(nil, s.Version)
	head = append(head, 0)
	if s.Over {
		head[8] = 1
	}
	for _, f := range s.Files {
		size := uint64(f.Size)
		if f.Spare {
			size |= 1 << 63
		}
		head = binary.LittleEndian.AppendUint64(head, size)
		head = append(head, f.CID.Bytes()...) // of one length: work.CID
	}
	size := binary.LittleEndian.AppendUint64(nil, uint64(len(head)))
	return sign.Sum([]byte("starling/ward/state/v1"), size, head, s.Bytes)
}

// SignedState is a state with the supervisor's word.
type SignedState struct {
	State
	Word
}

// SignState signs a state for the guardians, as the supervisor by under the epoch of grant.
func (c Charter) SignState(d sign.Domain, by sign.Signer, epoch uint64, grant []byte, s State) (SignedState, error) {
	w, err := c.word(d, by, epoch, grant, wordState, s.hash())
	return SignedState{s, w}, err
}

// SpareOf returns those of some stored files that are spare files of the state. s may be nil.
func (s *SignedState) SpareOf(stored []cid.Cid) []cid.Cid {
	if s == nil {
		return nil
	}
	return SpareOf(s.Files, SpareBits(s.Files, stored))
}

// Newer reports whether s replaces o.
func (s SignedState) Newer(o *SignedState) bool {
	return o == nil || s.Epoch > o.Epoch || s.Epoch == o.Epoch && s.Version > o.Version
}

// PB returns the message.
func (s SignedState) PB() *nodepb.GuardedState {
	return &nodepb.GuardedState{
		Version: s.Version, State: s.Bytes, Over: s.Over, Files: pbFiles(s.Files), Word: s.Word.pb(),
	}
}

// ReadState parses a state and checks its signer.
func (c Charter) ReadState(d sign.Domain, pb *nodepb.GuardedState) (SignedState, error) {
	if len(pb.State) > MaxState || pb.Version == 0 {
		return SignedState{}, fmt.Errorf("version %d of %d bytes, at most %d fit", pb.Version, len(pb.State), MaxState)
	}
	word, err := wordOf(pb.Word)
	if err != nil {
		return SignedState{}, err
	}
	files, err := filesOf(pb.Files)
	if err != nil {
		return SignedState{}, err
	}
	s := SignedState{State{Version: pb.Version, Bytes: pb.State, Over: pb.Over, Files: files}, word}
	return s, c.checkWord(d, word, wordState, s.hash())
}
