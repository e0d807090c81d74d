package attend

import (
	"maps"
	"net"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"github.com/starling-network/starling/cmd/internal/cli"
	"github.com/starling-network/starling/cmd/internal/cli/clitest"
	"github.com/starling-network/starling/node/job"
)

func TestNotebookRefused(t *testing.T) {
	t.Parallel()
	p := clitest.NewAnswering(t, []func(*cli.App) *cobra.Command{NewNotebook}, clitest.Network, clitest.Answers{})
	for line, want := range map[string]string{
		"notebook":                                       "--max-price: missing",
		"notebook app:1 --max-price 1":                   `notebook does not take "app:1"`,
		"notebook --max-price 1 -n 2":                    "a notebook is one container",
		"notebook --max-price 1 --image app.wasm":        "a notebook is one container",
		"notebook --max-price 1 --port http":             `--port: "http" is not a port`,
		"notebook --max-price 1 --guardians 3 --idle 1h": "do not see a job's streams",
	} {
		p.CLI(t, strings.Fields(line)...).Want(t, cli.ExitUsage, want)
	}
}

func TestInScratch(t *testing.T) {
	t.Parallel()
	given := job.Job{ScratchMiB: 1, Env: map[string]string{"A": "1"}}
	j := inScratch(given)
	if want := map[string]string{"A": "1", "HOME": "/scratch"}; !maps.Equal(j.Env, want) || j.WorkDir != "/scratch" || len(given.Env) != 1 {
		t.Errorf("%v, %s", j.Env, j.WorkDir)
	}
	j = inScratch(job.Job{ScratchMiB: 1, WorkDir: "/w", Env: map[string]string{"HOME": "/h"}})
	if j.Env["HOME"] != "/h" || j.WorkDir != "/w" {
		t.Errorf("%v, %s", j.Env, j.WorkDir)
	}
	if j = inScratch(job.Job{}); j.Env != nil || j.WorkDir != "" {
		t.Errorf("%v, %s without scratch", j.Env, j.WorkDir)
	}
}

// The port here is that of the container, or another if it is in use.
func TestLocal(t *testing.T) {
	t.Parallel()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	_, port, _ := net.SplitHostPort(ln.Addr().String())
	if got := (notebook{port: port}).local(); got != "0" {
		t.Errorf("a port in use: %s", got)
	}
	ln.Close()
	for range 100 { // another program may take the port
		if (notebook{port: port}).local() == port {
			return
		}
		if ln, err = net.Listen("tcp", "127.0.0.1:0"); err != nil {
			t.Fatal(err)
		}
		_, port, _ = net.SplitHostPort(ln.Addr().String())
		ln.Close()
	}
	t.Error("no free port is taken")
}

func TestRandomToken(t *testing.T) {
	t.Parallel()
	if a, b := randomToken(), randomToken(); a == b || len(a) != 48 {
		t.Errorf("tokens %q and %q", a, b)
	}
}
