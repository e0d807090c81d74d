package client

import (
	"archive/tar"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"testing"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/node/job"
	"github.com/starling-network/starling/p2p/blob"
)

// storing is a client with nothing but a file store.
func storing(t *testing.T) *Client {
	t.Helper()
	s, err := blob.OpenStore(filepath.Join(t.TempDir(), "blobs"), 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	return &Client{blobs: s}
}

func write(t *testing.T, path, text string) string {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// A file and a directory become blobs that Get returns, a CID is taken as it is, and the job's files are all
// or none.
func TestUpload(t *testing.T) {
	t.Parallel()
	c, dir := storing(t), t.TempDir()
	module := write(t, filepath.Join(dir, "app.wasm"), "module")
	tree := filepath.Join(dir, "data")
	write(t, filepath.Join(tree, "in", "a"), "first")
	spec := job.Job{Name: "files", Runtime: job.RuntimeWasm, Module: module, Count: 1,
		Resources: job.Resources{Class: job.DefaultClass, Units: 1},
		Timeouts:  job.Timeouts{Queue: job.DefaultQueue, Run: job.DefaultRun},
		Payment:   job.Payment{MaxPrice: 1, Budget: 1},
		Inputs:    []job.Input{{Source: tree, Path: "/data"}}}
	got, err := c.Upload(t.Context(), spec)
	if err != nil || len(got.Blobs) != 2 {
		t.Fatalf("%+v, %v", got.Blobs, err)
	}
	if b := got.Blobs[module]; b.Tree || b.Size != 6 || read(t, c, b.CID) != "module" {
		t.Errorf("the module: %+v", b)
	}
	b := got.Blobs[tree]
	if !b.Tree || b.Size == 0 {
		t.Errorf("the directory: %+v", b)
	}
	if r, err := c.Get(b.CID); err != nil {
		t.Error(err)
	} else {
		defer r.Close()
		files := map[string]string{}
		for in := tar.NewReader(r); ; {
			h, err := in.Next()
			if err != nil {
				break
			}
			text, err := io.ReadAll(in)
			if files[h.Name] = string(text); err != nil {
				t.Error(err)
			}
		}
		if files["in/a"] != "first" {
			t.Errorf("the directory holds %q", files)
		}
	}
	spec.Inputs[0] = job.Input{Source: job.CIDScheme + got.Blobs[module].CID, Path: "/data/in"}
	if got, err := c.Upload(t.Context(), spec); err != nil ||
		!reflect.DeepEqual(got.Blobs[spec.Inputs[0].Source], job.Blob{CID: got.Blobs[module].CID}) {
		t.Errorf("a CID is taken in as %+v, %v", got.Blobs, err)
	}
	spec.Module = filepath.Join(dir, "none.wasm")
	if got, err := c.Upload(t.Context(), spec); !errors.Is(err, fs.ErrNotExist) || len(got.Blobs) != 0 {
		t.Errorf("a file that is not there: %+v, %v", got.Blobs, err)
	}
	if _, err := c.Submit(t.Context(), spec); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("submitted without its module: %v", err)
	}
}

func read(t *testing.T, c *Client, id string) string {
	t.Helper()
	r, err := c.Get(id)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	text, err := io.ReadAll(r)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// A text that is no CID and a file that is not in the store are errors.
func TestGetRefuses(t *testing.T) {
	t.Parallel()
	c := storing(t)
	for _, text := range []string{"", "x", "bafkreigh2akiscaildcqabsyg3dfr6chu3fgpregiymsck7e7aqa4s52zy"} {
		if r, err := c.Get(text); err == nil {
			r.Close()
			t.Errorf("%q is a file", text)
		}
	}
	if _, err := c.Quote(t.Context(), market.Class("no class!")); err == nil {
		t.Error("a quote for a class that is none")
	}
}
