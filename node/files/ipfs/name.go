// Package ipfs reads files and directories of IPFS through a gateway that is not trusted. It runs on the buyer's side
// only: providers get a file's SHA-256 and its https:// URL at the gateway, or fetch it from the buyer's peer.
//
//	ipfs://CID[/PATH]
//
//	GET GATEWAY/ipfs/CID?format=raw ──▶ block ──▶ digest = CID's ──▶ UnixFS node ──▶ links: the next blocks
//	                                                                      │
//	                                                                      └──▶ bytes of a file; or a directory
//
// Every block is checked against its CID before it is decoded, so that a gateway can refuse, and nothing else. The
// author of a CID is not trusted either. Blocks, depth, links and sizes are bounded, and a file has as many bytes as
// its nodes declare. Names in directories are single path elements.
package ipfs

import (
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/ipfs/go-cid"
	"github.com/multiformats/go-multihash"
)

// Scheme begins the names.
const Scheme = "ipfs://"

const (
	maxName    = 2 << 10 // bytes of a name
	maxElement = 255     // bytes of an element of a path, as in Linux
	maxDepth   = 16      // of a file's blocks, of a directory's shards, and of directories
)

// ErrName means that a text names nothing in IPFS that can be read.
var ErrName = errors.New("name in IPFS")

// Name is the name of a file or directory.
type Name struct {
	Root cid.Cid
	Path []string // below the root
}

// Parse reads a name. Its path is percent-encoded, as in other URLs; a slash at the end is optional.
func Parse(text string) (Name, error) {
	rest, ok := strings.CutPrefix(text, Scheme)
	if !ok || len(text) > maxName || strings.ContainsAny(rest, "?#") {
		return Name{}, fmt.Errorf("%w: %.80q, want ipfs://CID or ipfs://CID/PATH", ErrName, text)
	}
	id, at, _ := strings.Cut(rest, "/")
	root, err := cid.Decode(id)
	if err == nil {
		err = readable(root)
	}
	if err != nil {
		return Name{}, fmt.Errorf("%w: CID %.80q: %w", ErrName, id, err)
	}
	n := Name{Root: root}
	if at = strings.TrimSuffix(at, "/"); at == "" {
		return n, nil
	}
	for part := range strings.SplitSeq(at, "/") {
		name, err := url.PathUnescape(part)
		if err == nil {
			err = checkElement(name)
		}
		if err != nil {
			return Name{}, fmt.Errorf("%w: %.80q: %w", ErrName, text, err)
		}
		n.Path = append(n.Path, name)
	}
	if len(n.Path) > maxDepth {
		return Name{}, fmt.Errorf("%w: %.80q: %d elements, at most %d", ErrName, text, len(n.Path), maxDepth)
	}
	return n, nil
}

// Base is the last element of the name: of the path, or the CID.
func (n Name) Base() string {
	if len(n.Path) == 0 {
		return n.Root.String()
	}
	return n.Path[len(n.Path)-1]
}

// String is the name as Parse reads it.
func (n Name) String() string { return Scheme + n.location() }

func (n Name) location() string {
	at := n.Root.String()
	for _, part := range n.Path {
		at += "/" + url.PathEscape(part)
	}
	return at
}

// readable returns an error for CIDs with another hash or another kind of block than files have.
func readable(id cid.Cid) error {
	p := id.Prefix()
	switch {
	case p.MhType != multihash.SHA2_256 || p.MhLength != 32:
		return errors.New("want a CID with SHA-256")
	case p.Codec != cid.Raw && p.Codec != cid.DagProtobuf:
		return errors.New("want a CID of a file or directory: raw or dag-pb")
	}
	return nil
}

// checkElement returns an error unless a name is one element of a path.
func checkElement(name string) error {
	unprintable := func(r rune) bool { return unicode.IsControl(r) || r == '\u2028' || r == '\u2029' }
	if len(name) > maxElement || name == "." || strings.ContainsRune(name, '/') || !fs.ValidPath(name) ||
		!utf8.ValidString(name) || strings.ContainsFunc(name, unprintable) {
		return fmt.Errorf("name %.80q: want one element of a path, of at most %d bytes", name, maxElement)
	}
	return nil
}
