package ipfs

import (
	"fmt"
	"math"
	"math/bits"

	dagpb "github.com/ipfs/boxo/ipld/merkledag/pb"
	unixfspb "github.com/ipfs/boxo/ipld/unixfs/pb"
	"github.com/ipfs/go-cid"
	"google.golang.org/protobuf/proto"
)

// maxFanout bounds the width of a shard of a directory.
const maxFanout = 1 << 12

// node is a decoded block.
type node struct {
	kind   kind
	data   []byte // of a file, before the data of its links
	size   int64  // of a file, bytes
	links  []link
	prefix int // of a shard: digits before the names of its links
}

type kind int

const (
	file kind = iota
	directory
	shard // part of a directory
)

// link is a part of a file, or an entry of a directory.
type link struct {
	name string // of an entry
	id   cid.Cid
	size int64 // of a part, bytes
}

// decode reads a block that matches its CID.
func decode(id cid.Cid, block []byte) (n node, err error) {
	if id.Prefix().Codec == cid.Raw {
		return node{kind: file, data: block, size: int64(len(block))}, nil
	}
	var outer dagpb.PBNode
	var inner unixfspb.Data
	if err := proto.Unmarshal(block, &outer); err != nil {
		return n, fmt.Errorf("block %s: %w: %w", id, ErrForm, err)
	}
	if err := proto.Unmarshal(outer.GetData(), &inner); err != nil {
		return n, fmt.Errorf("block %s: %w: %w", id, ErrForm, err)
	}
	for _, l := range outer.GetLinks() {
		to, err := cid.Cast(l.GetHash())
		if err == nil {
			err = readable(to)
		}
		if err != nil {
			return n, fmt.Errorf("block %s: link: %w: %w", id, ErrForm, err)
		}
		n.links = append(n.links, link{name: l.GetName(), id: to})
	}
	switch t := inner.GetType(); t {
	case unixfspb.Data_Raw, unixfspb.Data_File:
		err = n.file(&inner)
	case unixfspb.Data_Directory:
		n.kind = directory
	case unixfspb.Data_HAMTShard:
		width := inner.GetFanout()
		if width < 2 || width > maxFanout || bits.OnesCount64(width) != 1 {
			err = fmt.Errorf("fan-out %d of a shard", width)
		}
		n.kind, n.prefix = shard, len(fmt.Sprintf("%X", width-1))
	default:
		err = fmt.Errorf("kind %.20s: want files and directories", t)
	}
	if err != nil {
		return n, fmt.Errorf("block %s: %w: %w", id, ErrForm, err)
	}
	return n, nil
}

// file reads the data and sizes of a file's node.
func (n *node) file(inner *unixfspb.Data) error {
	n.kind, n.data, n.size = file, inner.GetData(), int64(len(inner.GetData()))
	sizes := inner.GetBlocksizes()
	if len(sizes) != len(n.links) {
		return fmt.Errorf("%d sizes of %d blocks", len(sizes), len(n.links))
	}
	for i, size := range sizes {
		if size == 0 || size > uint64(math.MaxInt64-n.size) {
			return fmt.Errorf("size %d of a block", size)
		}
		n.links[i].size = int64(size)
		n.size += int64(size)
	}
	if inner.Filesize != nil && inner.GetFilesize() != uint64(n.size) {
		return fmt.Errorf("size: got %d bytes, want %d", n.size, inner.GetFilesize())
	}
	return nil
}
