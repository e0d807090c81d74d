package jobcmd

import (
	"archive/tar"
	"bytes"
	"errors"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"testing"

	"github.com/starling-network/starling/cmd/internal/cli"
	"github.com/starling-network/starling/cmd/internal/cli/clitest"
	"github.com/starling-network/starling/node/buyer/record"
	"github.com/starling-network/starling/node/job"
)

// What a provider calls its output decides nothing about where it is written.
func TestOutputDir(t *testing.T) {
	t.Parallel()
	j := record.Job{Spec: job.Job{Outputs: []job.Output{{Path: "/out"}, {Path: "/data/out"}}}}
	for path, want := range map[string]string{"/out": "dir/out", "/data/out": "dir/data/out", "/etc": "", "../out": "", "/out/../../x": "", "": ""} {
		got, err := outputDir(j, "dir", path)
		if got != want || (err == nil) != (want != "") {
			t.Errorf("%q goes to %q, %v, want %q", path, got, err, want)
		}
	}
}

// A download that breaks off leaves nothing, neither of a file nor of a tree, and can be repeated.
func TestGetBreaksOff(t *testing.T) {
	t.Parallel()
	var archive bytes.Buffer
	w := tar.NewWriter(&archive)
	for _, name := range []string{"a", "b"} {
		err := w.WriteHeader(&tar.Header{Name: name, Typeflag: tar.TypeReg, Size: 1000, Mode: 0o644})
		if _, wrote := w.Write(make([]byte, 1000)); err != nil || wrote != nil {
			t.Fatal(err, wrote)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	for _, tree := range []bool{false, true} {
		j := jobWith(t, func(j *record.Job) {
			ended(record.Succeeded, "", "")(j)
			b := record.Blob{CID: "cid", Size: int64(archive.Len()), Tree: tree}
			j.Ranks[1].Outputs = []record.Output{{Path: "/out", Blob: b}}
		})
		sends := 1600 // all of the first file, part of the second
		blob := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", strconv.Itoa(archive.Len()))
			_, _ = w.Write(archive.Bytes()[:sends])
		})
		p := answering(t, clitest.Answers{"GET /v1/jobs/{id}": j, "GET /v1/blobs/{cid}": blob})
		out := filepath.Join(t.TempDir(), "out")
		p.CLI(t, "get", "--rank", "1", "j", filepath.Dir(out)).Want(t, cli.ExitFailed, `^starling: downloading /out of rank 1: `)
		if left, err := os.ReadDir(out); len(left) > 0 || !tree && !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("left of a tree %v: %v, %v", tree, left, err)
		}
		sends = archive.Len()
		p.CLI(t, "get", "--rank", "1", "j", filepath.Dir(out)).Want(t, cli.ExitOK)
	}
}
