package rewards

import (
	"bytes"
	"errors"
	"testing"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/node/nodepb"
	"github.com/starling-network/starling/node/protocol"
	"github.com/starling-network/starling/p2p/stream"
)

// A document is read part by part; a peer whose parts are not those of one document of the length it said is not read on.
func TestRead(t *testing.T) {
	t.Parallel()
	doc := bytes.Repeat([]byte{1, 2, 3}, protocol.MaxRewardsPart/2) // 1.5 parts
	honest := func(offset uint64) (*nodepb.RewardsReply, error) {
		part := doc[offset:]
		return &nodepb.RewardsReply{Total: uint64(len(doc)), Part: part[:min(len(part), protocol.MaxRewardsPart)]}, nil
	}
	if b, err := read(honest, len(doc)); err != nil || !bytes.Equal(b, doc) {
		t.Errorf("%d bytes, %v", len(b), err)
	}
	asked := 0
	for what, part := range map[string]func(uint64) (*nodepb.RewardsReply, error){
		"longer than asked for": func(uint64) (*nodepb.RewardsReply, error) {
			return &nodepb.RewardsReply{Total: uint64(len(doc)) + 1, Part: doc[:protocol.MaxRewardsPart]}, nil
		},
		"byte by byte": func(o uint64) (*nodepb.RewardsReply, error) {
			return &nodepb.RewardsReply{Total: uint64(len(doc)), Part: doc[o : o+1]}, nil
		},
		"empty": func(uint64) (*nodepb.RewardsReply, error) { return &nodepb.RewardsReply{}, nil },
		"a length that changes": func(o uint64) (*nodepb.RewardsReply, error) {
			asked++
			r, err := honest(o)
			r.Total -= o / protocol.MaxRewardsPart
			return r, err
		},
		"too much at the end": func(o uint64) (*nodepb.RewardsReply, error) {
			r, err := honest(o)
			if o > 0 {
				r.Part = append(bytes.Clone(r.Part), 1)
			}
			return r, err
		},
	} {
		if b, err := read(part, len(doc)); !errors.Is(err, market.ErrMalformed) || b != nil {
			t.Errorf("%s: %d bytes, %v", what, len(b), err)
		}
	}
	if asked != 2 {
		t.Errorf("asked %d times", asked)
	}
	if _, err := read(func(uint64) (*nodepb.RewardsReply, error) { return nil, stream.Refuse(codeUnknown, "none") }, 1); !errors.Is(err, ErrNoDocument) {
		t.Errorf("what is not there: %v", err)
	}
}
