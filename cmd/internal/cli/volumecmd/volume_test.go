package volumecmd

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"

	"github.com/starling-network/starling/cmd/internal/cli"
	"github.com/starling-network/starling/cmd/internal/cli/clitest"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/node/api"
	"github.com/starling-network/starling/node/buyer/record"
	"github.com/starling-network/starling/node/job"
	"github.com/starling-network/starling/node/job/jobfile"
)

// A time is written as Go writes durations, or in days.
func TestDuration(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]time.Duration{
		"90s": 90 * time.Second, "12h": 12 * time.Hour, "7d": 7 * 24 * time.Hour, "1d": 24 * time.Hour,
	} {
		if got, err := duration(text); err != nil || got != want {
			t.Errorf("%s: %v, %v", text, got, err)
		}
	}
	for _, text := range []string{"", "d", "0d", "-1d", "1.5d", "99999d", "x", "1ms", "7days"} {
		if got, err := duration(text); err == nil {
			t.Errorf("%q: %v", text, got)
		}
	}
}

// asked is the job of flags on a network with a currency.
func asked(t *testing.T, f jobfile.Flags, size string) job.Job {
	t.Helper()
	var err error
	if f.MaxPrice = "0.01"; size != "" {
		f, err = f.ForVolume(size)
	}
	if err != nil {
		t.Fatal(err)
	}
	j, err := f.Job(jobfile.Token{Decimals: clitest.Network.Decimals})
	if err != nil {
		t.Fatal(err)
	}
	return j
}

// kept is a volume as its peer shows it.
func kept(t *testing.T, id, name string) record.Job {
	return record.Job{
		ID: id, State: record.Running, Started: time.Now(), Spec: asked(t, jobfile.Flags{Name: name}, "20Gi"),
		Ranks: []record.Rank{{
			State: record.RankRunning, Provider: sign.NewPrivate([32]byte{7}).Key(), Live: record.Live{Phase: "running"},
		}},
	}
}

// offer is one of a provider.
func offer(provider byte, class string) api.OfferInfo {
	return api.OfferInfo{Provider: sign.NewPrivate([32]byte{provider}).Key(), Class: class, Free: 2}
}

var commands = []func(*cli.App) *cobra.Command{NewVolume}

// The commands find a volume by its name among the jobs, and show its size, provider, time and cost.
func TestCommands(t *testing.T) {
	t.Parallel()
	program := record.Job{ID: "jprogram1", State: record.Running, Spec: asked(t, jobfile.Flags{Module: "a.wasm"}, "")}
	one := kept(t, "jdata0001", "data")
	p := clitest.NewAnswering(t, commands, clitest.Network, clitest.Answers{
		"GET /v1/node": &api.Error{Status: http.StatusNotFound, Code: "x", Message: "none"},
		"GET /v1/jobs": record.Page{Jobs: []record.Job{program, kept(t, "jdata2001", "data-2"), one}},
		"GET /v1/offers": http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			sold := map[string][]api.OfferInfo{
				"disk":     {offer(7, "disk"), offer(8, "disk")},
				"gpu/h100": {offer(8, "gpu/h100"), offer(9, "gpu/h100")}, "gpu/l4": {offer(9, "gpu/l4")},
			}
			_ = json.NewEncoder(w).Encode(sold[r.URL.Query().Get("class")])
		}),
		"POST /v1/jobs": one,
		"GET /v1/jobs/{id}/events": http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			b, _ := json.Marshal(one)
			fmt.Fprintf(w, "event: job\ndata: %s\n\n", b)
		}),
		"GET /v1/jobs/jdata0001": one, "GET /v1/jobs/jprogram1": program,
		"GET /v1/jobs/jnone":             &api.Error{Status: http.StatusNotFound, Code: "no_job", Message: "none"},
		"GET /v1/jobs/none":              &api.Error{Status: http.StatusNotFound, Code: "no_job", Message: "none"},
		"GET /v1/jobs/{id}/receipts":     []record.LeaseAccount{{Owed: 1_000_000}, {Owed: 250_000}},
		"POST /v1/jobs/jdata0001/extend": record.Extension{Job: "jdata0001", Until: time.Now().Add(time.Hour)},
		"DELETE /v1/jobs/jdata0001":      struct{}{},
	})
	p.CLI(t, "volume", "ls").Want(t, cli.ExitOK, `data +20 GiB +running +`+one.Ranks[0].Provider.Short()+` +20.*1\.25`,
		`data-2 +20 GiB`)
	p.CLI(t, "volume", "create", "data", "--size", "15Gi", "--for", "2d", "--max-price", "0.01").
		Want(t, cli.ExitOK, `data +20 GiB +running`)
	sent := strings.Join(p.Asked(), "\n")
	for _, part := range []string{`"name":"data"`, `"runtime":"volume"`, `"units":2`, `"run":"48h0m0s"`} {
		if !strings.Contains(sent, part) {
			t.Errorf("%s is not in %s", part, sent)
		}
	}
	p.CLI(t, "volume", "create", "data", "--max-price", "0.01", "--with", "gpu/h100").Want(t, cli.ExitOK, `data +20 GiB`)
	sent = strings.Join(p.Asked(), "\n")
	if near := sign.NewPrivate([32]byte{8}).Key(); !strings.Contains(sent, `"only":["`+near.String()+`"]`) {
		t.Errorf("the provider of both, %s, is not alone in %s", near, sent)
	}
	p.CLI(t, "volume", "create", "data", "--max-price", "0.01", "--with", "gpu/l4").Want(t, cli.ExitNoMatch, `gpu/l4`)
	p.CLI(t, "volume", "create", "data", "--max-price", "0.01", "--with", "GPU").Want(t, cli.ExitUsage, `--with`)
	p.CLI(t, "volume", "extend", "data", "1d").Want(t, cli.ExitOK, `paid until`)
	p.CLI(t, "volume", "rm", "data").Want(t, cli.ExitOK, `jdata0001`)
	for _, name := range []string{"none", "jprogram1"} {
		p.CLI(t, "volume", "rm", name).Want(t, cli.ExitUsage, `no volume is called`, `volume ls`)
	}
	p.CLI(t, "volume", "create", "data", "--size", "0Gi").Want(t, cli.ExitUsage, `--size`)
	p.CLI(t, "volume", "create", "data", "--for", "x").Want(t, cli.ExitUsage, `not a duration`)
	p.CLI(t, "volume", "rm").Want(t, cli.ExitUsage, `needs a name`)
}
