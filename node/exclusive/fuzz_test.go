package exclusive

import (
	"context"
	"errors"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/node/nodepb"
	"github.com/starling-network/starling/node/protocol"
	"github.com/starling-network/starling/p2p/stream"
)

// one gives the record of one hash.
type one sign.Hash

func (o one) Probe(_ context.Context, hash sign.Hash) ([]byte, error) {
	if hash != sign.Hash(o) {
		return nil, ErrNoRecord
	}
	return []byte{1}, nil
}

func (o one) Probes(context.Context) ([]sign.Hash, error) { return []sign.Hash{sign.Hash(o)}, nil }

// Whoever asks for records is given the one that there is, or told why there is none.
func FuzzProbesRequest(f *testing.F) {
	for _, req := range []*nodepb.ProbesRequest{{}, {Hash: make([]byte, 32)}, {Hash: append([]byte{9}, make([]byte, 31)...)}, {Hash: make([]byte, 31)}} {
		b, err := proto.Marshal(req)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		var req nodepb.ProbesRequest
		if proto.Unmarshal(b, &req) != nil {
			return
		}
		for _, from := range []Published{nil, one{9}} {
			r, err := published(t.Context(), from, &req)
			_, refused := errors.AsType[*stream.Refused](err)
			_, malformed := errors.AsType[*stream.Malformed](err)
			switch {
			case err == nil && len(req.Hash) > 0 && (from == nil || sign.Hash(req.Hash) != sign.Hash{9} || len(r.Record) != 1):
				t.Fatalf("%x is given", req.Hash)
			case err != nil && !refused && !malformed:
				t.Fatal(err)
			}
		}
	})
}

// What a peer answers is the record that was asked for, or hashes in order, or nothing.
func FuzzProbesReply(f *testing.F) {
	for _, r := range []*nodepb.ProbesReply{{}, {Record: make([]byte, 900)}, {Hashes: make([]byte, 64)}, {Hashes: append(make([]byte, 63), 1)}, {Hashes: make([]byte, 31)}} {
		b, err := proto.Marshal(r)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		var r nodepb.ProbesReply
		if proto.Unmarshal(b, &r) != nil {
			return
		}
		if _, err := readRecord(&r, sign.Hash{1}); err == nil {
			t.Fatal("a record of a hash that nothing has")
		}
		if list, err := readList(&r); err == nil && (len(list) > protocol.MaxProbes || len(list)*sign.HashSize != len(r.Hashes)) {
			t.Fatalf("%d hashes of %d bytes", len(list), len(r.Hashes))
		}
	})
}
