package workload

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/ipfs/go-cid"

	"github.com/starling-network/starling/node/nodepb"
	"github.com/starling-network/starling/p2p/blob"
)

// sender is a peer that sends its bytes. then is called after some of them, and its error breaks the transfer off.
type sender struct {
	data []byte
	some int
	then func() error
}

// Open implements blob.Source.
func (s sender) Open(_ context.Context, _ cid.Cid, offset, _ int64) (io.ReadCloser, int64, error) {
	if offset > 0 {
		return io.NopCloser(bytes.NewReader(s.data[offset:])), int64(len(s.data)), nil
	}
	return io.NopCloser(io.MultiReader(bytes.NewReader(s.data[:s.some]), s, bytes.NewReader(s.data[s.some:]))),
		int64(len(s.data)), nil
}

// Read has no bytes.
func (s sender) Read([]byte) (int, error) {
	if err := s.then(); err != nil {
		return 0, err
	}
	return 0, io.EOF
}

// A checkpoint is in its directory while its pack comes, and stays there only if all of the pack came and this buyer may
// have it.
func TestAttackPackThatBreaksOff(t *testing.T) {
	t.Parallel()
	const mib = 1 << 20
	dir := t.TempDir()
	content := []byte(strings.Repeat("0123456789abcdef", mib/16))
	for _, name := range []string{"a", "b", "c"} {
		if err := os.WriteFile(filepath.Join(dir, name), content, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	var pack bytes.Buffer
	if err := blob.Pack(t.Context(), &pack, dir, 4*mib); err != nil {
		t.Fatal(err)
	}
	data := pack.Bytes()
	c := blob.Sum(data)
	w := &nodepb.Workload{Runtime: "wasm", Checkpoint: &nodepb.Checkpoint{Path: "/ckpt"}, Inputs: []*nodepb.Input{
		{Path: "/ckpt", Blob: &nodepb.Blob{Cid: c.Bytes(), Size: uint64(len(data)), Tree: true}},
	}}
	lie := bytes.Clone(data)
	lie[2*mib]++
	gone := errors.New("gone")
	tests := map[string]struct {
		data  []byte
		cut   error
		again bool  // the fetcher resumes a transfer that broke off
		after error // of the fetcher, when all bytes came
		want  error
	}{
		"whole":                       {data: data},
		"cut, then resumed":           {data: data, cut: gone, again: true},
		"cut":                         {data: data, cut: gone, want: gone},
		"a lie":                       {data: lie, want: blob.ErrDigest},
		"of a buyer who has it not":   {data: data, after: gone, want: gone},
		"a lie, cut, and then itself": {data: lie, cut: gone, again: true, want: blob.ErrDigest},
	}
	for name, test := range tests {
		for _, own := range []bool{false, true} {
			f := setup(t)
			at := f.stage.host("/ckpt", true)
			began := false
			from := sender{test.data, 5 * mib / 2, func() error {
				for !began { // the first file is there before the first transfer ends
					got, err := os.ReadFile(filepath.Join(at, "a"))
					if began = err == nil && bytes.Equal(got, content); began {
						return test.cut
					}
					time.Sleep(time.Millisecond)
				}
				return nil
			}}
			fetch := func(ctx context.Context, _ Places, c cid.Cid, max int64) error {
				_, err := f.store.Receive(ctx, from, c, max, []string{Holder("")}, nil)
				if err != nil && test.again {
					_, err = f.store.Receive(ctx, from, c, max, []string{Holder("")}, nil)
				}
				return errors.Join(err, test.after)
			}
			w.Inputs[0].Own = own // its transfer is not stored
			_, err := f.stage.Prepare(t.Context(), w, "", f.store, fetch, 4*mib, nil)
			if !errors.Is(err, test.want) || test.want == nil && err != nil {
				t.Errorf("%s: got %v, want %v", name, err, test.want)
			}
			left, err := os.ReadDir(at)
			if err != nil || (len(left) == 3) != (test.want == nil) || (len(left) == 0) != (test.want != nil) {
				t.Errorf("%s: it has %v, %v", name, left, err)
			}
			for _, e := range left {
				if got, err := os.ReadFile(filepath.Join(at, e.Name())); err != nil || !bytes.Equal(got, content) {
					t.Errorf("%s: %s has %d bytes, %v", name, e.Name(), len(got), err)
				}
			}
			if stored := f.store.Has(c); test.want == nil && stored != (!own || test.again) {
				t.Errorf("%s: own %t, stored %t", name, own, stored)
			}
		}
	}
}

// A transfer of the same pack that another execution needs alone stores nothing. The pack is fetched once more then.
func TestPackOfAnother(t *testing.T) {
	t.Parallel()
	f, dir := setup(t), t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "a"), []byte("content"), 0o644); err != nil {
		t.Fatal(err)
	}
	var pack bytes.Buffer
	if err := blob.Pack(t.Context(), &pack, dir, 1<<20); err != nil {
		t.Fatal(err)
	}
	w := &nodepb.Workload{Runtime: "wasm", Checkpoint: &nodepb.Checkpoint{Path: "/ckpt"}, Inputs: []*nodepb.Input{
		{Path: "/ckpt", Own: true, Blob: &nodepb.Blob{Cid: blob.Sum(pack.Bytes()).Bytes(), Tree: true}},
	}}
	fetched := 0
	fetch := func(ctx context.Context, _ Places, _ cid.Cid, _ int64) error {
		if fetched++; fetched == 1 {
			return nil
		}
		_, _, err := f.store.Put(ctx, bytes.NewReader(pack.Bytes()))
		return err
	}
	if _, err := f.stage.Prepare(t.Context(), w, "", f.store, fetch, 1<<20, nil); err != nil || fetched != 2 {
		t.Errorf("fetched %d times: %v", fetched, err)
	}
	if got, err := os.ReadFile(filepath.Join(f.stage.host("/ckpt", true), "a")); string(got) != "content" {
		t.Errorf("got %q, %v", got, err)
	}
}
