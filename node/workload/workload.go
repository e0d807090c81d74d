// Package workload lays out the files of one execution: it holds a
// workload to its rules, fetches its inputs, gives the runtime its mounts and
// stores the outputs of the program. Providers use it for leased work, buyers for the
// reduce step that runs on their own machine.
package workload

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/ipfs/go-cid"
	"github.com/libp2p/go-libp2p/core/peer"

	"github.com/starling-network/starling/node/nodepb"
	"github.com/starling-network/starling/node/runtime"
	"github.com/starling-network/starling/node/runtime/volume"
	"github.com/starling-network/starling/p2p/blob"
	"github.com/starling-network/starling/p2p/blob/remove"
	"github.com/starling-network/starling/p2p/blob/swarm"
)

// ErrWorkload means that a workload breaks a rule; its text goes to the buyer.
var ErrWorkload = errors.New("workload cannot be run")

// Bad makes an ErrWorkload with a description of the problem.
func Bad(format string, args ...any) error {
	return fmt.Errorf("%w: %s", ErrWorkload, fmt.Sprintf(format, args...))
}

// CID is the digest that b names, if it is one this network uses.
func CID(b *nodepb.Blob) (cid.Cid, error) {
	if b == nil {
		return cid.Undef, errors.New("no digest")
	}
	c, err := cid.Cast(b.Cid)
	if err != nil {
		return cid.Undef, fmt.Errorf("bad digest: %w", err)
	}
	return c, blob.Check(c)
}

// CIDs returns the digests of blobs, without those of CID's errors.
func CIDs(blobs ...*nodepb.Blob) (out []cid.Cid) {
	for _, b := range blobs {
		if c, err := CID(b); err == nil {
			out = append(out, c)
		}
	}
	return out
}

// Blobs is where a peer keeps content-addressed files.
type Blobs interface {
	Has(c cid.Cid) bool
	Path(c cid.Cid) (string, error)
	Put(ctx context.Context, r io.Reader) (cid.Cid, int64, error)
	PutTree(ctx context.Context, dir string, max int64) (blob.Tree, error)
	UnpackAhead(ctx context.Context, c cid.Cid, dir string, max int64, alone string) *blob.Unpacking
}

// Holder is a peer as a holder of blobs.
func Holder(id peer.ID) string { return "peer " + id.String() }

// Places are the places where a blob can be read.
type Places struct {
	Peer    peer.ID
	Origin  Origin    // instead of URLs and the peer; optional
	URLs    []string  // tried before the peer
	Size    int64     // that its buyer declares; 0 if it is not known
	Fellows []peer.ID // may have parts of it
}

// Origin is a place of a blob that is no peer.
type Origin interface {
	blob.Source
	swarm.Supplier
	// Name names the place. Who names it may read the blob there.
	Name() string
}

// Fetcher brings a blob of at most max bytes from one of its places into the store.
type Fetcher func(ctx context.Context, at Places, c cid.Cid, max int64) error

// At are the places of a blob of a workload, for an execution that a peer commands.
func At(from peer.ID, w *nodepb.Workload, b *nodepb.Blob) Places {
	return Places{
		Peer: from, URLs: b.GetUrls(), Size: int64(min(b.GetSize(), math.MaxInt64)), Fellows: Fellows(w),
	}
}

// NoRoom reports whether a Fetcher failed because this peer's disk or its share for blobs is full.
func NoRoom(err error) bool { return errors.Is(err, blob.ErrFull) || errors.Is(err, blob.ErrDiskFull) }

// MaxOutputs is the most bytes that a program's outputs have together as archives, if it may write disk bytes.
func MaxOutputs(disk int64) int64 { return blob.MaxArchive(disk) }

// Stage is the directory of one execution: its mounts, and room for the runtime.
//
//	<dir>/mnt/…    read-only files, at the paths by which the program sees them
//	<dir>/disk/…   writable files, likewise: a volume, where the runtime has them. At run/starling/layer, which is
//	               no place for a mount, the files that a container writes outside of its mounts
//	<dir>/run      the runtime's own
type Stage struct {
	Dir string
}

// Run is the runtime's own directory.
func (s Stage) Run() string { return filepath.Join(s.Dir, "run") }

// layerPath is the place of the layer in the volume: no program has a mount there, or around it.
const layerPath = runtime.ControlDir + "/layer"

// Layer is the directory for the files that a container writes outside of its mounts, or "" if the stage has no volume
// that bounds them.
func (s Stage) Layer() (string, error) {
	if volumes, err := volume.Mounted(s.disk()); err != nil || len(volumes) == 0 {
		return "", err
	}
	return s.host(layerPath, true), nil
}

// Remove removes the whole stage, whatever files the program made.
func (s Stage) Remove() error { return errors.Join(volume.Release(s.Dir), remove.All(s.Dir)) }

func (s Stage) disk() string { return filepath.Join(s.Dir, "disk") }

// host returns the path on this machine of a path of the program, in a writable or a read-only mount.
func (s Stage) host(guest string, write bool) string {
	if write {
		return filepath.Join(s.disk(), filepath.FromSlash(guest))
	}
	return filepath.Join(s.Dir, "mnt", filepath.FromSlash(guest))
}

// MakeVolume makes a directory with room for the given bytes, as a runtime.Volumer does.
type MakeVolume func(ctx context.Context, dir string, bytes int64) error

func top(guest string) string { return strings.SplitN(guest[1:], "/", 2)[0] }

// Prepare fetches the inputs of the workload, lays them out and returns its mounts, each writable when an output lies
// in it. Writable files are in a volume of room bytes where makeVolume, which may be nil, makes one.
func (s Stage) Prepare(
	ctx context.Context, w *nodepb.Workload, from peer.ID, blobs Blobs, fetch Fetcher,
	room int64, makeVolume MakeVolume,
) ([]runtime.Mount, error) {
	if err := s.Remove(); err != nil {
		return nil, fmt.Errorf("clearing %s: %w", s.Dir, err)
	}
	if makeVolume != nil {
		if err := makeVolume(ctx, s.disk(), room); err != nil && !errors.Is(err, runtime.ErrNoVolume) {
			return nil, err
		}
	}
	for _, o := range writableDirs(w) {
		if err := os.MkdirAll(s.host(o, true), 0o755); err != nil {
			return nil, fmt.Errorf("making output %s: %w", o, err)
		}
	}
	if w.Scratch != "" { // for every user of the program, as directories for temporary files are
		if err := os.Chmod(s.host(w.Scratch, true), 0o777|fs.ModeSticky); err != nil {
			return nil, fmt.Errorf("making %s: %w", w.Scratch, err)
		}
	}
	p := preparation{s, w, from, blobs, fetch, room, room, makeVolume != nil}
	for _, in := range w.Inputs {
		if err := p.input(ctx, in); err != nil {
			return nil, err
		}
	}
	return s.Mounts(w), nil
}

// preparation is the fetching and laying out of a workload's inputs.
type preparation struct {
	Stage
	w          *nodepb.Workload
	from       peer.ID
	blobs      Blobs
	fetch      Fetcher
	room, left int64 // bytes
	volume     bool  // writable files are in a volume
}

// input fetches an input and lays it out. An archive is unpacked while it comes. That of a checkpoint is not stored: no
// other execution needs it.
func (p *preparation) input(ctx context.Context, in *nodepb.Input) (err error) {
	c, err := CID(in.Blob)
	if err != nil {
		return err
	}
	at := At(p.from, p.w, in.Blob)
	if in.Own {
		at.Fellows = nil
	}
	write := writable(p.w, mountOf(p.w, in.Path))
	host := p.host(in.Path, write)
	var tree *blob.Unpacking
	if in.Blob.Tree {
		if err := os.MkdirAll(host, 0o755); err != nil {
			return p.placing(in, err)
		}
		alone := ""
		if in.Own && in.Path == p.w.GetCheckpoint().GetPath() {
			alone = Holder(p.from)
		}
		tree = p.blobs.UnpackAhead(ctx, c, host, p.left, alone)
		defer func() { err = errors.Join(err, tree.Close()) }()
	}
	var size, unpacked int64
	for again := false; ; again = true {
		if err := p.fetch(ctx, at, c, p.left); err != nil {
			return fmt.Errorf("fetching input %s: %w", in.Path, err)
		}
		size, unpacked, err = p.lay(c, host, write, tree)
		if again || !errors.Is(err, blob.ErrNotFound) { // another execution of this peer needed it alone
			break
		}
	}
	if err != nil {
		return p.placing(in, err)
	}
	p.left -= max(size, unpacked)
	return nil
}

// lay lays out a blob that was fetched, and returns its size if it is stored, and its use of the disk as an archive.
func (p *preparation) lay(c cid.Cid, host string, write bool, tree *blob.Unpacking) (size, unpacked int64, err error) {
	size, err = SizeOf(p.blobs, c) // the buyer's figure proves nothing
	switch stored := !errors.Is(err, blob.ErrNotFound); {
	case stored && err != nil:
	case size > p.left:
		err = Bad("inputs are larger than the %d MiB of disk that the lease has", p.room>>20)
	case tree != nil:
		unpacked, err = tree.Finish()
	case stored:
		err = placeFile(p.blobs, c, host, write)
	}
	return size, unpacked, err
}

// placing describes an error of laying out an input.
func (p *preparation) placing(in *nodepb.Input, err error) error {
	if errors.Is(err, ErrWorkload) {
		return err
	}
	if errors.Is(err, syscall.ENOSPC) && p.volume {
		return Bad("input %s: more files or bytes than the lease's %d MiB of disk", in.Path, p.room>>20)
	}
	return fmt.Errorf("placing input %s: %w", in.Path, err)
}

// SizeOf returns the size of a stored blob, in bytes.
func SizeOf(blobs Blobs, c cid.Cid) (int64, error) {
	p, err := blobs.Path(c)
	if err != nil {
		return 0, err
	}
	st, err := os.Stat(p)
	if err != nil {
		return 0, err
	}
	return st.Size(), nil
}

// placeFile puts a stored file at its path for the program. Under a read-only mount it is linked from the store;
// elsewhere it is copied.
func placeFile(blobs Blobs, c cid.Cid, host string, write bool) error {
	if err := os.MkdirAll(filepath.Dir(host), 0o755); err != nil {
		return err
	}
	src, err := blobs.Path(c)
	if err != nil {
		return err
	}
	if !write && os.Link(src, host) == nil {
		return nil
	}
	return copyFile(host, src)
}

func copyFile(dst, src string) error {
	in, err := os.Open(src)
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := os.OpenFile(dst, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	if _, err := io.Copy(out, in); err != nil {
		out.Close()
		return err
	}
	return out.Close()
}

// Clear removes the files of the program. Its logs and the runtime's records stay.
func (s Stage) Clear() error {
	return errors.Join(volume.Release(s.disk()), remove.All(s.disk()), remove.All(filepath.Join(s.Dir, "mnt")))
}

// Pack stores the checkpoint of the program, of at most room bytes as Collect counts them.
func (s Stage) Pack(ctx context.Context, w *nodepb.Workload, blobs Blobs, room int64) (blob.Tree, error) {
	return blobs.PutTree(ctx, s.host(w.GetCheckpoint().GetPath(), true), room)
}

// Collect stores the outputs of the program, of at most room bytes together. A sparse file counts with its whole
// length, since all of it is stored and sent.
func (s Stage) Collect(ctx context.Context, outs []string, blobs Blobs, room int64) ([]*nodepb.Output, error) {
	var res []*nodepb.Output
	left := room
	for _, o := range outs {
		t, err := blobs.PutTree(ctx, s.host(o, true), left)
		if errors.Is(err, blob.ErrTooLarge) {
			return nil, fmt.Errorf("storing output %s: the outputs are larger than the %d MiB of disk "+
				"that the lease has: %w", o, room>>20, err)
		}
		if err != nil {
			return nil, fmt.Errorf("storing output %s: %w", o, err)
		}
		left -= t.Unpacked
		res = append(res, &nodepb.Output{
			Path: o,
			Blob: &nodepb.Blob{Cid: t.CID.Bytes(), Size: uint64(t.Size), Tree: true},
		})
	}
	return res, nil
}
