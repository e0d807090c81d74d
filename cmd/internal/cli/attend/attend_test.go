package attend

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"

	"github.com/starling-network/starling/cmd/internal/cli"
	"github.com/starling-network/starling/cmd/internal/cli/clitest"
	"github.com/starling-network/starling/cmd/internal/cli/jobcmd"
	"github.com/starling-network/starling/node/api"
	"github.com/starling-network/starling/node/buyer/record"
	"github.com/starling-network/starling/node/job"
	"github.com/starling-network/starling/node/runtime"
)

// attended is a peer on which a job of run -it passes states, and the job that it was given.
func attended(t *testing.T, session Session, states ...func(*record.Job)) (p *clitest.Answering, given *job.Job) {
	t.Helper()
	given = &job.Job{}
	now := func(change func(*record.Job)) record.Job {
		j := record.Job{ID: "jaaaaaaaaaaaa", Spec: *given, State: record.Matching, Ranks: make([]record.Rank, 1)}
		if change != nil {
			change(&j)
		}
		return j
	}
	stopped := make(chan struct{})
	p = clitest.NewAnswering(t, []func(*cli.App) *cobra.Command{func(a *cli.App) *cobra.Command { return jobcmd.NewRun(a, Terminal(session)) }}, clitest.Network, clitest.Answers{
		"POST /v1/jobs": http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			b, _ := io.ReadAll(r.Body)
			spec, err := job.Unmarshal(b)
			if err != nil {
				t.Errorf("%v: %s", err, b)
			}
			*given = spec
			_ = json.NewEncoder(w).Encode(now(nil))
		}),
		"GET /v1/jobs/{id}": http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _ = json.NewEncoder(w).Encode(now(nil)) }),
		"DELETE /v1/jobs/{id}": http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			close(stopped)
			w.WriteHeader(http.StatusNoContent)
		}),
		"GET /v1/jobs/{id}/events": http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			states := states
			select {
			case <-stopped:
				states = []func(*record.Job){func(j *record.Job) { j.State, j.Owed = record.Stopped, 7 }}
			default:
			}
			for _, change := range states {
				b, _ := json.Marshal(now(change))
				fmt.Fprintf(w, "event: job\ndata: %s\n\n", b)
			}
			w.(http.Flusher).Flush()
			<-r.Context().Done()
		}),
	})
	return p, given
}

func running(j *record.Job) {
	j.State, j.Ranks[0].State, j.Ranks[0].Live.Phase = record.Running, record.RankRunning, "running"
}

func TestAttended(t *testing.T) {
	t.Parallel()
	line := []string{"run", "-it", "--max-price", "1", "--budget", "2", "app:1", "bash"}
	for name, c := range map[string]struct {
		left    bool
		err     error
		code    cli.ExitCode
		says    []string
		stopped bool
	}{
		"ended":    {false, nil, cli.ExitOK, []string{`^job jaaaaaaaaaaaa, at most 2.00 STAR, stopped after 30m0s without use$`, `^jaaaaaaaaaaaa stopped, cost`}, true},
		"exit":     {false, &cli.ExitError{Code: 42}, 42, []string{`^jaaaaaaaaaaaa stopped, cost`}, true},
		"no shell": {false, errors.New("sh: not in the image"), cli.ExitFailed, []string{`not in the image`, `stopped, cost`}, true},
		"detached": {true, nil, cli.ExitOK, []string{`runs on and is paid for until it is stopped: .starling ssh jaaaaaaaaaaaa. .* .starling stop jaaaaaaaaaaaa. ends it`}, false},
		"cut":      {true, &api.Error{Code: api.CodeUnreachable, Message: "the connection was reset"}, cli.ExitUnreachable, []string{`runs on`}, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			opened := 0
			p, given := attended(t, func(_ *cli.App, _ context.Context, _ *api.Client, j record.Job) (bool, error) {
				opened++
				return c.left, c.err
			}, nil, func(j *record.Job) { running(j); j.Ranks[0].Live.Phase = "pulling" }, running)
			p.CLI(t, line...).Want(t, c.code, c.says...)
			if opened != 1 {
				t.Errorf("%d terminals were opened", opened)
			}
			if got := slices.ContainsFunc(p.Asked(), func(s string) bool { return strings.HasPrefix(s, "DELETE") }); got != c.stopped {
				t.Errorf("stopped: %v", got)
			}
			if !slices.Equal(given.Entrypoint, runtime.Keeper()) || !slices.Equal(given.Args, []string{"bash"}) || given.Guardians != 0 || given.Idle != job.Span(30*time.Minute) {
				t.Errorf("a job of %q, %q", given.Entrypoint, given.Args)
			}
		})
	}
}

// A job that ends before its terminal opens is an error, and an interrupt before that stops the job.
func TestAttendedNever(t *testing.T) {
	t.Parallel()
	never := func(*cli.App, context.Context, *api.Client, record.Job) (bool, error) {
		t.Error("a terminal was opened")
		return false, nil
	}
	p, _ := attended(t, never, func(j *record.Job) { j.State, j.Code, j.Reason = record.Failed, record.CodeNoMatch, "no provider" })
	p.CLI(t, "run", "-it", "--max-price", "1", "app:1").Want(t, cli.ExitNoMatch, `failed: no provider`, `^hint: starling why`)

	p, _ = attended(t, never, nil)
	var out, errs clitest.Buffer
	ctx, interrupt := context.WithCancel(t.Context())
	done := make(chan int, 1)
	go func() {
		done <- p.App(&out, &errs).Run(ctx, []string{"run", "-it", "--max-price", "1", "app:1", "--", "sh", "-c", "x"})
	}()
	clitest.Eventually(t, "the job is followed", func() bool { return strings.Contains(errs.String(), "job jaaaaaaaaaaaa") })
	interrupt()
	if code := <-done; code != int(cli.ExitInterrupted) || !strings.Contains(errs.String(), "jaaaaaaaaaaaa stopped, cost") {
		t.Errorf("exit code %d: %s", code, errs.String())
	}
}

func TestAttendedRefused(t *testing.T) {
	t.Parallel()
	p, _ := attended(t, nil, nil)
	for line, want := range map[string]string{
		"run -it --max-price 1 app.wasm":             "only a container has a terminal: give an image",
		"run -it -n 2 --max-price 1 app:1":           "a terminal needs a job of one rank",
		"run -it --save out --max-price 1 app:1":     "--save needs a program that ends by itself",
		"run -it -d --max-price 1 app:1 bash":        "-d with -it starts no command",
		"run --max-price 1 app:1 bash":               "run does not take \"bash\"",
		"run -it --max-price 1 app:1 bash -c exit":   "come after --",
		"run -it -u 1000 --max-price 1 app:1 bash":   "the user of a container cannot be chosen",
		"run -it --max-price 1 --privileged app:1 x": "privileged containers are not possible",
	} {
		p.CLI(t, strings.Fields(line)...).Want(t, cli.ExitUsage, want)
	}
}
