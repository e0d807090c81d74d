// Package workload lays out what one execution reads and writes: it holds a
// workload to its rules, fetches its inputs, gives the runtime its mounts and
// stores what the program left. Providers use it for leased work, buyers for the
// reduce step that runs on their own machine.
package workload

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/ipfs/go-cid"
	"github.com/libp2p/go-libp2p/core/peer"

	"github.com/starling-network/starling/node/nodepb"
	"github.com/starling-network/starling/node/runtime"
	"github.com/starling-network/starling/p2p/blob"
)

// What one workload may name.
const (
	maxArgs    = 1024
	maxEnv     = 256
	maxInputs  = 256
	maxOutputs = 16
	maxPath    = 512
)

// ErrWorkload says that a workload breaks a rule; its text goes to the buyer.
var ErrWorkload = errors.New("workload cannot be run")

// Bad makes an ErrWorkload that says what is wrong.
func Bad(format string, args ...any) error {
	return fmt.Errorf("%w: %s", ErrWorkload, fmt.Sprintf(format, args...))
}

// Check holds a workload from a peer to the rules before anything is
// fetched for it.
func Check(w *nodepb.Workload, runtimes map[string]runtime.Runtime) error {
	if w == nil {
		return Bad("there is none")
	}
	if runtimes[w.Runtime] == nil {
		return Bad("runtime %q is not offered here", w.Runtime)
	}
	if len(w.Args) > maxArgs || len(w.Env) > maxEnv || len(w.Inputs) > maxInputs || len(w.Outputs) > maxOutputs {
		return Bad("at most %d arguments, %d variables, %d inputs and %d outputs", maxArgs, maxEnv, maxInputs, maxOutputs)
	}
	if _, err := CID(w.Module); err != nil {
		return Bad("module: %v", err)
	}
	for _, in := range w.Inputs {
		if err := checkPath(in.GetPath()); err != nil {
			return Bad("input: %v", err)
		}
		if _, err := CID(in.Blob); err != nil {
			return Bad("input %s: %v", in.Path, err)
		}
		if !in.Blob.Tree && path.Dir(in.Path) == "/" {
			return Bad("input file %s must lie in a directory, such as /data%s", in.Path, in.Path)
		}
	}
	for _, out := range w.Outputs {
		if err := checkPath(out); err != nil {
			return Bad("output: %v", err)
		}
	}
	return nil
}

func checkPath(p string) error {
	if len(p) > maxPath || !path.IsAbs(p) || path.Clean(p) != p || p == "/" || strings.ContainsRune(p, 0) {
		return fmt.Errorf("path %.80q is not a clean absolute path below /", p)
	}
	// A mount is a whole first path element, and one of the runtime's own lies under this one.
	if top(p) == top(runtime.ControlDir) {
		return fmt.Errorf("path %s: /%s is kept for the runtime", p, top(p))
	}
	return nil
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

// Blobs is where a peer keeps content-addressed files.
type Blobs interface {
	Has(c cid.Cid) bool
	Path(c cid.Cid) (string, error)
	PutTree(ctx context.Context, dir string) (cid.Cid, int64, error)
	Unpack(c cid.Cid, dir string, max int64) error
}

// Fetcher brings a blob from a peer into the store.
type Fetcher func(ctx context.Context, from peer.ID, c cid.Cid, max int64) error

// Stage is the directory of one execution: its mounts, and room for the runtime.
//
//	<dir>/mnt/<first path element>/…   inputs and outputs as the program sees them
//	<dir>/run                          the runtime's own
type Stage struct {
	Dir string
}

// Run is the runtime's own directory.
func (s Stage) Run() string { return filepath.Join(s.Dir, "run") }

// Remove removes all of the stage.
func (s Stage) Remove() error { return os.RemoveAll(s.Dir) }

func (s Stage) host(guest string) string {
	return filepath.Join(s.Dir, "mnt", filepath.FromSlash(guest))
}

func top(guest string) string             { return strings.SplitN(guest[1:], "/", 2)[0] }
func (s Stage) mount(first string) string { return filepath.Join(s.Dir, "mnt", first) }
func writable(outs []string, t string) bool {
	return slices.ContainsFunc(outs, func(o string) bool { return top(o) == t })
}

// Prepare fetches what the workload reads and lays it out. Everything under one
// first path element is one mount, writable when an output lies in it.
func (s Stage) Prepare(ctx context.Context, w *nodepb.Workload, from peer.ID, blobs Blobs, fetch Fetcher, room int64) ([]runtime.Mount, error) {
	if err := s.Remove(); err != nil {
		return nil, fmt.Errorf("clearing %s: %w", s.Dir, err)
	}
	tops := map[string]bool{}
	for _, o := range w.Outputs {
		tops[top(o)] = true
		if err := os.MkdirAll(s.host(o), 0o755); err != nil {
			return nil, fmt.Errorf("making output %s: %w", o, err)
		}
	}
	left := room
	for _, in := range w.Inputs {
		tops[top(in.Path)] = true
		c, err := CID(in.Blob)
		if err != nil {
			return nil, err
		}
		if err := fetch(ctx, from, c, left); err != nil {
			return nil, fmt.Errorf("fetching input %s: %w", in.Path, err)
		}
		size, err := sizeOf(blobs, c) // what the buyer says of it proves nothing
		if err != nil {
			return nil, fmt.Errorf("placing input %s: %w", in.Path, err)
		}
		if left -= size; left < 0 {
			return nil, Bad("inputs are larger than the %d MiB of disk that the lease has", room>>20)
		}
		if err := s.place(ctx, in, c, blobs, writable(w.Outputs, top(in.Path)), left+size); err != nil {
			return nil, fmt.Errorf("placing input %s: %w", in.Path, err)
		}
	}
	var mounts []runtime.Mount
	for t := range tops {
		mounts = append(mounts, runtime.Mount{Host: s.mount(t), Guest: "/" + t, ReadOnly: !writable(w.Outputs, t)})
	}
	slices.SortFunc(mounts, func(a, b runtime.Mount) int { return strings.Compare(a.Guest, b.Guest) })
	return mounts, nil
}

func sizeOf(blobs Blobs, c cid.Cid) (int64, error) {
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

// place puts one fetched input where the program finds it. A file under a
// read-only mount is linked from the store, one that could be written is copied.
func (s Stage) place(ctx context.Context, in *nodepb.Input, c cid.Cid, blobs Blobs, write bool, room int64) error {
	host := s.host(in.Path)
	if in.Blob.Tree {
		if err := os.MkdirAll(host, 0o755); err != nil {
			return err
		}
		return blobs.Unpack(c, host, room)
	}
	if err := os.MkdirAll(filepath.Dir(host), 0o755); err != nil {
		return err
	}
	src, err := blobs.Path(c)
	if err != nil {
		return err
	}
	if !write {
		if os.Link(src, host) == nil {
			return nil
		}
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

// Collect stores what the program left at its outputs.
func (s Stage) Collect(ctx context.Context, outs []string, blobs Blobs) ([]*nodepb.Output, error) {
	var res []*nodepb.Output
	for _, o := range outs {
		c, n, err := blobs.PutTree(ctx, s.host(o))
		if err != nil {
			return nil, fmt.Errorf("storing output %s: %w", o, err)
		}
		res = append(res, &nodepb.Output{Path: o, Blob: &nodepb.Blob{Cid: c.Bytes(), Size: uint64(n), Tree: true}})
	}
	return res, nil
}
