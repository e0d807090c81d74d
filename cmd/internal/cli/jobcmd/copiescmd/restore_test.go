package copiescmd

import (
	"encoding/json"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"github.com/starling-network/starling/cmd/internal/cli"
	"github.com/starling-network/starling/cmd/internal/cli/clitest"
	"github.com/starling-network/starling/cmd/internal/cli/jobcmd/sources"
	"github.com/starling-network/starling/node/api"
	"github.com/starling-network/starling/node/buyer/record"
)

// exported is a record of two ranks' copies.
func exported() record.ShownCopies {
	out := func(text string) []record.Output {
		return []record.Output{{Path: "/out/f", Blob: record.Blob{CID: "cid-" + text, Size: int64(len(text))}}}
	}
	return record.ShownCopies{
		Job: "jabcdefgh", Pack: &record.Blob{CID: "pack", Size: 1000}, Key: "AGE-SECRET-KEY-1X",
		Copies: []record.ShownCopy{}, Outputs: [][]record.Output{out("zero"), out("one")},
	}
}

// world has a peer that answers as it is given.
func world(t *testing.T, all clitest.Answers) *clitest.Answering {
	t.Helper()
	command := func(a *cli.App) *cobra.Command { return New(a, sources.Download) }
	return clitest.NewAnswering(t, []func(*cli.App) *cobra.Command{command}, clitest.Network, all)
}

// The exported file restores the outputs of all ranks, and its key reaches the peer alone.
func TestRestore(t *testing.T) {
	t.Parallel()
	var asked record.ShownCopies
	p := world(t, clitest.Answers{
		"GET /v1/jobs/{id}/copies": exported(),
		"POST /v1/copies/import": http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if err := json.NewDecoder(r.Body).Decode(&asked); err != nil {
				t.Error(err)
			}
			w.WriteHeader(http.StatusNoContent)
		}),
		"GET /v1/blobs/{cid}": http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			_, _ = w.Write([]byte(strings.TrimPrefix(r.PathValue("cid"), "cid-")))
		}),
	})
	dir := t.TempDir()
	file, out := filepath.Join(dir, "copies.json"), filepath.Join(dir, "results")
	p.CLI(t, "copies", "jabc", "--export", file).Want(t, cli.ExitOK)
	p.CLI(t, "copies", "jabc", "--import", file, "--get", out).Want(t, cli.ExitOK, `/out/f +4 `, `/out/f +3 `)
	if asked.Key != "AGE-SECRET-KEY-1X" || asked.Pack == nil || len(asked.Outputs) != 2 {
		t.Errorf("the peer got %+v", asked)
	}
	for name, want := range map[string]string{"0/out/f": "zero", "1/out/f": "one"} {
		if got, err := os.ReadFile(filepath.Join(out, name)); err != nil || string(got) != want {
			t.Errorf("%s: %q, %v", name, got, err)
		}
	}
	p.CLI(t, "copies", "jabc", "--import", file, "--get", out).Want(t, cli.ExitFailed, `exists`) // nothing is replaced
}

// A file of another job, of another kind, or with a path outside the directory writes nothing, and shows no key.
func TestAttackExportedFile(t *testing.T) {
	t.Parallel()
	p := world(t, clitest.Answers{"POST /v1/copies/import": api.None{}})
	for name, change := range map[string]func(*record.ShownCopies) string{
		"another job":   func(s *record.ShownCopies) string { s.Job = "jother"; return "want those of jabc" },
		"no outputs":    func(s *record.ShownCopies) string { s.Outputs = nil; return "no outputs" },
		"a path beyond": func(s *record.ShownCopies) string { s.Outputs[1][0].Path = "../../x"; return "not a path below" },
		"no path":       func(s *record.ShownCopies) string { s.Outputs[1][0].Path = ""; return "not a path below" },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, dir := exported(), t.TempDir()
			says := change(&s)
			text, err := json.Marshal(s)
			if err != nil {
				t.Fatal(err)
			}
			file, out := filepath.Join(dir, "copies.json"), filepath.Join(dir, "results")
			if err := os.WriteFile(file, text, 0o600); err != nil {
				t.Fatal(err)
			}
			r := p.CLI(t, "copies", "jabc", "--import", file, "--get", out)
			if r.Code == int(cli.ExitOK) || !strings.Contains(r.Err, says) || strings.Contains(r.Err, "SECRET") {
				t.Errorf("%d: %s", r.Code, r.Err)
			}
			if left, err := os.ReadDir(dir); err != nil || len(left) != 1 {
				t.Errorf("left: %v, %v", left, err)
			}
		})
	}
	file := filepath.Join(t.TempDir(), "key")
	if err := os.WriteFile(file, []byte("AGE-SECRET-KEY-1X"), 0o600); err != nil {
		t.Fatal(err)
	}
	r := p.CLI(t, "copies", "jabc", "--import", file, "--get", "x")
	if r.Want(t, cli.ExitUsage, "not a file of job copies --export"); strings.Contains(r.Err, "SECRET") {
		t.Errorf("%d: %s", r.Code, r.Err)
	}
	p.CLI(t, "copies", "jabc", "--import", file).Want(t, cli.ExitUsage, `get`)
	p.CLI(t, "copies", "jabc", "--import", file, "--get", "x", "--extend", "7d").Want(t, cli.ExitUsage)
	p.CLI(t, "copies", "jabc", "--extend", "soon").Want(t, cli.ExitUsage, `--extend: "soon" is not a duration`)
}
