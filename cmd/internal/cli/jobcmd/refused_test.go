package jobcmd

import (
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/starling-network/starling/cmd/internal/cli"
	"github.com/starling-network/starling/cmd/internal/cli/clitest"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/node/api"
	"github.com/starling-network/starling/node/buyer/record"
	"github.com/starling-network/starling/node/config"
	"github.com/starling-network/starling/verify/exclusive"
	"github.com/starling-network/starling/verify/replica"
)

// A program is quoted with the flags of a job, for the network's token.
func TestQuoteProgram(t *testing.T) {
	t.Parallel()
	p := answering(t, clitest.Answers{"POST /v1/quotes": &record.Quotation{Places: true}})
	module := p.File(t, "app.wasm", "x")
	p.CLI(t, "quote", "-n", "4", "--timeout", "2h", "--max-price", "0.05", module).Want(t, cli.ExitOK, `^module +`+module+`$`, `^ranks +4$`,
		`^time +.*2h0m0s running$`, `^4 ranks for 2h0m0s would cost `)
	asked := p.Asked()
	if len(asked) != 1 {
		t.Fatalf("asked for %q", asked)
	}
	for _, part := range []string{`"count":4`, `"maxPrice":50000`, `"module":"` + module + `"`} {
		if !strings.Contains(strings.ReplaceAll(asked[0], " ", ""), part) {
			t.Errorf("%s is not in %s", part, asked[0])
		}
	}
	for line, says := range map[string]string{
		"":                                `quote needs an argument`,
		"--max-price 0.0000001 app.wasm":  `max-price`,
		"--max-price much app.wasm":       `max-price`,
		"-n 0 --max-price 1 app.wasm":     `count`,
		"-n -1 --max-price 1 app.wasm":    `"-1"`,
		"--gpus h100:x --max-price 1 a:1": `gpus`,
		"one.wasm two.wasm":               `quote does not take "two.wasm"`,
	} {
		p.CLI(t, append([]string{"quote"}, strings.Fields(line)...)...).Want(t, cli.ExitUsage, `^starling: .*`+says)
	}
	if asked := p.Asked(); len(asked) > 0 {
		t.Errorf("asked for %q", asked)
	}
}

// A refusal of the peer has its message, its hint, and the exit code of its class, in each command.
func TestRefusals(t *testing.T) {
	t.Parallel()
	for code, x := range map[string]struct {
		refusal api.Error
		want    cli.ExitCode
	}{
		"missing":     {api.Error{Status: http.StatusNotFound, Code: "not_found", Message: "no\x1b[2J such job", Hint: "look"}, cli.ExitUsage},
		"payment":     {api.Error{Status: http.StatusPaymentRequired, Code: api.CodePayment, Message: "no funds", Hint: "fund it"}, cli.ExitPayment},
		"unreachable": {api.Error{Status: http.StatusBadGateway, Code: api.CodeUnreachable, Message: "provider gone", Hint: "wait"}, cli.ExitUnreachable},
		"full":        {api.Error{Status: http.StatusInsufficientStorage, Code: api.CodeFull, Message: "disk full", Hint: "make room"}, cli.ExitPeer},
		"broken":      {api.Error{Status: http.StatusInternalServerError, Message: "broken", Hint: "see the log"}, cli.ExitFailed},
	} {
		t.Run(code, func(t *testing.T) {
			t.Parallel()
			no := &x.refusal
			p := answering(t, clitest.Answers{"GET /v1/jobs": no, "GET /v1/jobs/{id}": no, "DELETE /v1/jobs/{id}": no, "POST /v1/quotes": no,
				"POST /v1/jobs": no, "POST /v1/jobs/{id}/rerun": no, "POST /v1/blobs": record.Blob{CID: "bafkreigh2akiscaildcqabsyg3dfr6chu3fgpregiymsck7e7aqa4s52zy", Size: 1}})
			p.File(t, "app.wasm", "x")
			file := p.File(t, "job.yaml", jobFile)
			says := strings.ReplaceAll(strings.Map(func(r rune) rune {
				if r == '\x1b' {
					return ' '
				}
				return r
			}, no.Message), "[", `\[`)
			for _, line := range []string{"ps", "job history", "status j", "why j", "logs j", "stop j", "wait j", "get j " + t.TempDir(), "quote " + file,
				"submit -d " + file, "submit " + file, "job rerun -d j"} {
				r := p.CLI(t, strings.Fields(line)...).Want(t, x.want, `^starling: .*`+says+`$`, `^hint: `+no.Hint+`$`).Not(t, "\x1b")
				if r.Out != "" {
					t.Errorf("%s: %q on standard output", line, r.Out)
				}
			}
		})
	}
}

// Checks of results, replicas, proofs and units have a line each.
func TestCheckRows(t *testing.T) {
	t.Parallel()
	var got []string
	row := func(name, value string) { got = append(got, name+": "+value) }
	verdict := &replica.Verdict{Results: []replica.Committed{{Party: replica.Party{Provider: sign.Key{1}}}, {Party: replica.Party{Provider: sign.Key{2}}}}, Wrong: []int{1, 7, -1}}
	j := record.Job{Replica: &record.Replica{Job: "jold", Rank: 2}, Verified: []record.Verified{
		{State: replica.Equal, Replicas: []string{"jr1", "jr2"}}, {State: replica.Differs, Verdict: verdict, Evidence: "p1"}, {},
	}, Ranks: []record.Rank{
		{Exclusive: &record.Exclusive{Wrong: 2, Note: "it is slow", Health: &record.Health{Changes: []exclusive.Change{{Text: "one GPU fell off"}, {Text: "hot"}}}}},
		{}, {Exclusive: &record.Exclusive{Unanswered: 3}},
	}}
	checkRows(row, j)
	want := []string{"checked: replica of jold, rank 2", "checked: rank 0: replicated, equal", ": replica jr1", ": replica jr2",
		"checked: rank 1: mismatch: " + sign.Key{2}.Short() + " differs", ": proof p1, `starling proof export p1 FILE`", "checked: rank 2: unchecked",
		"exclusivity: rank 0: 2 wrong answers; it is slow", "hardware: rank 0: one GPU fell off", "hardware: rank 0: hot", "exclusivity: rank 2: 3 not answered"}
	if !slices.Equal(got, want) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	got = nil
	if checkRows(row, record.Job{Ranks: make([]record.Rank, 2)}); len(got) > 0 {
		t.Errorf("without checks: %q", got)
	}
}

// A job file can be standard input. Where no network is known its amounts have six decimals; a malformed network is a
// wrong configuration.
func TestLoadJob(t *testing.T) {
	t.Parallel()
	home := t.TempDir()
	a := &cli.App{In: strings.NewReader(jobFile), Getenv: func(name string) string { return map[string]string{"STARLING_HOME": home}[name] }}
	j, err := LoadJob(a, "-")
	if err != nil || j.Name != "words" || j.Module != "app.wasm" || j.Payment.MaxPrice != 50_000 {
		t.Errorf("%+v, %v", j, err)
	}
	path := filepath.Join(t.TempDir(), "job.yaml")
	if err := os.WriteFile(path, []byte(jobFile), 0o600); err != nil {
		t.Fatal(err)
	}
	if j, err := LoadJob(a, path); err != nil || j.Module != filepath.Join(filepath.Dir(path), "app.wasm") {
		t.Errorf("module %s is not beside its file, %v", j.Module, err)
	}
	a.In = strings.NewReader("kind: Nothing\n")
	if _, err := LoadJob(a, "-"); cli.Explain(err).Code != cli.ExitUsage || !strings.HasPrefix(err.Error(), "-") {
		t.Errorf("got %v", err)
	}
	if err := os.WriteFile(filepath.Join(home, config.FileGenesis), []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := LoadJob(a, path); cli.Explain(err).Code != cli.ExitUsage {
		t.Errorf("a malformed network: %v", err)
	}
}
