package cli

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"github.com/starling-network/starling/node/api"
	"github.com/starling-network/starling/node/buyer/record"
	"github.com/starling-network/starling/node/job"
	"github.com/starling-network/starling/node/live"
)

func TestExitCodes(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		err  error
		code ExitCode
		text string
	}{
		{nil, ExitOK, ""},
		{errors.New("broken"), ExitFailed, "starling: broken\n"},
		{&Error{Code: ExitNoMatch, Err: errors.New("nobody"), Hint: "raise --max-price"}, ExitNoMatch, "starling: nobody\nhint: raise --max-price\n"},
		{fmt.Errorf("submitting: %w", &Error{Code: ExitPayment, Err: errors.New("no funds"), Hint: "airdrop"}), ExitPayment, "starling: submitting: no funds\nhint: airdrop\n"},
		{fmt.Errorf("waiting: %w", context.DeadlineExceeded), ExitTimeout, "starling: waiting: context deadline exceeded\n"},
		{fmt.Errorf("reading: %w", job.ErrInvalid), ExitUsage, "starling: reading: job is not valid\n"},
		{fmt.Errorf("%w: /x", api.ErrNoPeer), ExitUnreachable, "starling: no peer is running here: /x\nhint: start it with `starling up`, or name another directory with --home\n"},
		{&api.Error{Status: 404, Message: "no such job", Hint: "look"}, ExitUsage, "starling: no such job\nhint: look\n"},
		{&api.Error{Status: 500, Message: "oh"}, ExitFailed, "starling: oh\n"},
		{JobError(record.Job{ID: "j1", State: record.Succeeded}), ExitOK, ""},
		{JobError(record.Job{ID: "j1", State: record.Failed, Code: record.CodeProgram, Reason: "rank 0 exited with 3"}), ExitFailed, "starling: job j1 failed: rank 0 exited with 3\n"},
		{JobError(record.Job{ID: "j1", State: record.Failed, Reason: "\x1b[2J\u009bred"}), ExitFailed, "starling: job j1 failed:  [2J red\n"},
		{JobError(record.Job{ID: "j1", State: record.Failed, Code: record.CodeNoMatch, Reason: "nobody"}), ExitNoMatch, "starling: job j1 failed: nobody\n"},
		{JobError(record.Job{ID: "j1", State: record.Failed, Code: record.CodePayment, Reason: "no funds"}), ExitPayment, "starling: job j1 failed: no funds\n"},
		{JobError(record.Job{ID: "j1", State: record.Failed, Code: record.CodeTimeout, Reason: "1h"}), ExitTimeout, "starling: job j1 failed: 1h\n"},
		{JobError(record.Job{ID: "j1", State: record.Failed, Code: record.CodeLost, Reason: "4 times"}), ExitLost, "starling: job j1 failed: 4 times\n"},
		{JobError(record.Job{ID: "j1", State: record.Failed, Code: record.CodeInput, Reason: "no input"}), ExitUsage, "starling: job j1 failed: no input\n"},
		{JobError(record.Job{ID: "j1", State: record.Failed, Code: record.CodePeer, Reason: "disk full"}), ExitPeer, "starling: job j1 failed: disk full\n"},
		{JobError(record.Job{ID: "j1", State: record.Stopped, Reason: "by its user"}), ExitFailed, "starling: job j1 stopped: by its user\n"},
		{&api.Error{Status: 502, Code: api.CodeUnreachable, Message: "gone", Hint: "wait"}, ExitUnreachable, "starling: gone\nhint: wait\n"},
		{&api.Error{Status: 507, Code: api.CodeFull, Message: "no room"}, ExitPeer, "starling: no room\n"},
		{&api.Error{Status: 500, Code: api.CodePeer, Message: "journal"}, ExitPeer, "starling: journal\n"},
		{&api.Error{Status: 402, Code: api.CodePayment, Message: "no funds"}, ExitPayment, "starling: no funds\n"},
		{fmt.Errorf("copying: %w", live.ErrCut), ExitUnreachable, "starling: copying: the connection broke off\n"},
		{WithHint(errors.New("broken"), "mend %s", "it"), ExitFailed, "starling: broken\nhint: mend it\n"},
		{WithHint(&Error{Code: ExitUsage, Err: errors.New("x"), Hint: "first"}, "second"), ExitUsage, "starling: x\nhint: first\n"},
	} {
		cmd := func(*App) *cobra.Command {
			return &cobra.Command{Use: "x", GroupID: GroupNetworks, RunE: func(*cobra.Command, []string) error { return c.err }}
		}
		code, _, text := runLine(t, cmd, "x")
		if code != int(c.code) || text != c.text {
			t.Errorf("%v: code %d, text %q, want %d, %q", c.err, code, text, c.code, c.text)
		}
	}
	_, _, text := runLine(t, func(*App) *cobra.Command {
		return &cobra.Command{Use: "x", RunE: func(*cobra.Command, []string) error { return WithHint(errors.New("a <b>"), "c") }}
	}, "x", "-o", "json")
	if want := `{"error":{"code":"failed","message":"a <b>","hint":"c"}}` + "\n"; text != want {
		t.Errorf("as JSON: %q, want %q", text, want)
	}
}

// Every class of errors of a job has a code, every code a word and a line in the help.
func TestExitCodesAreDocumented(t *testing.T) {
	t.Parallel()
	words := map[string]bool{}
	for _, c := range []ExitCode{ExitOK, ExitFailed, ExitUsage, ExitNoMatch, ExitPayment, ExitUnreachable, ExitLost, ExitPeer, ExitTimeout} {
		if words[c.word()] {
			t.Errorf("%d has the word of another code, %q", c, c.word())
		}
		words[c.word()] = true
		if !regexp.MustCompile(fmt.Sprintf(`(?m)^  %d +\w`, c)).MatchString(rootEnd) {
			t.Errorf("the help does not list exit code %d", c)
		}
	}
	for _, c := range []record.Code{record.CodeNoMatch, record.CodePayment, record.CodeTimeout, record.CodeLost, record.CodeInput, record.CodePeer} {
		if e := Explain(JobError(record.Job{State: record.Failed, Code: c})); e.Code == ExitFailed {
			t.Errorf("a job that failed with %q has the exit code of one whose program failed", c)
		}
	}
}

func TestTablesCannotBeBroken(t *testing.T) {
	t.Parallel()
	_, out, _ := runLine(t, func(a *App) *cobra.Command {
		return &cobra.Command{Use: "x", RunE: func(*cobra.Command, []string) error {
			return a.Show(nil, func(tb *Table) {
				tb.Row("a\tb", "\x1b[31mred")
				tb.Row("long name", 7)
				tb.Head("NAME", "VALUE")
			})
		}}
	}, "x")
	if want := "NAME       VALUE\na b         [31mred\nlong name  7\n"; out != want {
		t.Errorf("got %q, want %q", out, want)
	}
}

// A command that is not there suggests another: one with that synonym, one of that name, or one of a similar name.
func TestMeantBy(t *testing.T) {
	t.Parallel()
	leaf := func(use string, synonyms ...string) *cobra.Command {
		return &cobra.Command{Use: use, SuggestFor: synonyms, RunE: func(*cobra.Command, []string) error { return nil }}
	}
	root := leaf("starling")
	noun := func(use string, below ...*cobra.Command) *cobra.Command {
		return Noun("", &cobra.Command{Use: use, SuggestFor: []string{"old" + use}}, below...)
	}
	root.AddCommand(leaf("status", "show"), noun("job", leaf("history"), leaf("ls"), noun("probe", leaf("show"), leaf("check"))),
		noun("wallet", leaf("show", "balance"), leaf("ls")), noun("proof", leaf("check")))
	for args, want := range map[string]string{
		"job show": "status", "show": "status", "balance": "wallet show", "history": "job history", "job check": "job probe check",
		"oldjob": "job", "oldjob ls": "job ls", "job histroy": "job history", "check": "proof check", "version": "--version",
	} {
		c, rest, err := root.Find(strings.Fields(args))
		if err != nil { // of the root
			c, rest = root, strings.Fields(args)
		}
		if got := meantBy(c, rest); got != "starling "+want {
			t.Errorf("%s: got %q, want starling %s", args, got, want)
		}
	}
}

// runLine runs the command line as Main does, with another command in place of the real ones.
func runLine(t *testing.T, c func(*App) *cobra.Command, args ...string) (code int, out, errOut string) {
	t.Helper()
	var o, e bytes.Buffer
	a := &App{In: strings.NewReader(""), Out: &o, Err: &e, Getenv: func(string) string { return "" }, Commands: []func(*App) *cobra.Command{c}}
	code = a.Run(t.Context(), args)
	return code, o.String(), e.String()
}
