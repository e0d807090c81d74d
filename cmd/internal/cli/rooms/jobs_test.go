package rooms

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/starling-network/starling/cmd/internal/cli"
	"github.com/starling-network/starling/cmd/internal/cli/clitest"
	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/node/api"
	"github.com/starling-network/starling/node/buyer"
	"github.com/starling-network/starling/node/webhook"
)

// What the jobs of these tests must keep to themselves.
const (
	secretValue = "correct-horse-battery-staple"
	hookSecret  = "tr0ub4dor-and-3"
)

// TestJobsInFull runs jobs with secrets and webhooks through the command line, and everything that is done with jobs beside.
func TestJobsInFull(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	t.Run("secrets", func(t *testing.T) { w.testSecrets(t) })
	t.Run("docker login", func(t *testing.T) { w.testDockerLogin(t) })
	t.Run("history", func(t *testing.T) { w.testHistory(t) })
	t.Run("quote", func(t *testing.T) { w.testQuote(t) })
	t.Run("keys", func(t *testing.T) { w.testKeys(t) })
	t.Run("block", func(t *testing.T) { w.testBlock(t) })
}

// must runs a command that has to work.
func (w *world) must(t *testing.T, args ...string) string {
	t.Helper()
	r := w.cli(t, args...)
	if r.Code != 0 {
		t.Fatalf("%v: code %d\n%s%s", args, r.Code, r.Out, r.Err)
	}
	return r.Out
}

// A secret reaches the program and its webhook's receiver can check the signature; neither is anywhere on any peer's disk or
// in any answer of the API.
func (w *world) testSecrets(t *testing.T) {
	type call struct {
		event, signature string
		body             []byte
	}
	calls := make(chan call, 20)
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		b, _ := io.ReadAll(r.Body)
		calls <- call{r.Header.Get(webhook.HeaderEvent), r.Header.Get(webhook.HeaderSignature), b}
	}))
	t.Cleanup(server.Close)
	w.file(t, "key.txt", secretValue)
	file := w.file(t, "tell.yaml", fmt.Sprintf(`{apiVersion: v1, kind: Job, metadata: {name: tell}, spec: {module: tell.wasm,
  secrets: [{name: token, env: TOKEN, from: "env:TOKEN"}, {name: key, from: "file:key.txt"}],
  webhooks: [{url: %q, events: [running, succeeded], secretFrom: "env:HOOK"}], payment: {maxPrice: 1}, timeouts: {run: 1m}}}`, server.URL))
	out := w.must(t, "submit", file)
	if want := fmt.Sprintf("secrets of %d and %d", len(secretValue), len(secretValue)); !strings.Contains(out, want) {
		t.Errorf("the program said %q", out)
	}
	for _, event := range []string{"running", "succeeded"} {
		select {
		case c := <-calls:
			at, _, _ := strings.Cut(strings.TrimPrefix(c.signature, "t="), ",")
			unix, err := strconv.ParseInt(at, 10, 64)
			if err != nil || c.event != event || webhook.Sign([]byte(hookSecret), time.Unix(unix, 0), c.body) != c.signature {
				t.Errorf("%s, signed %q: %v", c.event, c.signature, err)
			}
			var b struct {
				Job struct{ Name, State string } `json:"job"`
			}
			if err := json.Unmarshal(c.body, &b); err != nil || b.Job.Name != "tell" || b.Job.State != event {
				t.Errorf("%s: %v", c.body, err)
			}
		case <-time.After(time.Minute):
			t.Fatalf("nobody was told of %s", event)
		}
	}
	missing := w.cli(t, "run", "--max-price", "1", "--secret-env", "X=env:NOT_SET", filepath.Join(w.files, "tell.wasm"))
	if missing.Code != int(cli.ExitUsage) || !strings.Contains(missing.Err, "variable NOT_SET is not set") {
		t.Errorf("%+v", missing)
	}
	w.nowhere(t)
}

// nowhere fails the test if a secret is in a file of a peer or in an answer of the API.
func (w *world) nowhere(t *testing.T) {
	t.Helper()
	secrets := [][]byte{[]byte(secretValue), []byte(hookSecret), []byte(clitest.PullSecret)}
	look := func(where string, b []byte) {
		for _, s := range secrets {
			if bytes.Contains(b, s) {
				t.Errorf("%s has a secret", where)
			}
		}
	}
	files := 0
	for _, home := range w.homes {
		err := filepath.WalkDir(home, func(path string, d fs.DirEntry, err error) error {
			if err != nil || !d.Type().IsRegular() {
				return nil // what a peer removes while we look
			}
			b, err := os.ReadFile(path)
			if err != nil {
				return nil
			}
			files++
			look(path, b)
			return nil
		})
		if err != nil {
			t.Error(err)
		}
		for _, name := range []string{"journal.db", "journal.db-wal", "peer.log"} {
			if _, err := os.Stat(filepath.Join(home, name)); err != nil {
				t.Errorf("%s was not looked into: %v", name, err)
			}
		}
	}
	if files < 6 {
		t.Errorf("only %d files were looked into", files)
	}
	var jobs buyer.Page
	if err := json.Unmarshal([]byte(w.must(t, "job", "history", "-o", "json")), &jobs); err != nil || len(jobs.Jobs) == 0 {
		t.Fatalf("%d jobs: %v", len(jobs.Jobs), err)
	}
	look("history", []byte(w.must(t, "job", "history", "-o", "json")))
	for _, j := range jobs.Jobs {
		for _, command := range [][]string{{"status", j.ID}, {"why", j.ID}, {"proof", "ls", j.ID}} {
			look(command[0], []byte(w.must(t, append(command, "-o", "json")...)))
		}
	}
}

func (w *world) testHistory(t *testing.T) {
	hello := filepath.Join(w.files, "fail.wasm")
	if r := w.cli(t, "run", "--wait", "paid", "--max-price", "1", "--timeout", "1m", "--name", "failing", "--restart", "on-failure", "--retries", "1", hello); r.Code != int(cli.ExitFailed) ||
		!strings.Contains(r.Err, "restarted rank 0") || !strings.Contains(r.Err, "after 1 restarts") {
		t.Fatalf("%+v", r)
	}
	var page buyer.Page
	if err := json.Unmarshal([]byte(w.must(t, "job", "history", "--name", "failing", "--since", "1h", "--state", "failed", "-o", "json")), &page); err != nil || len(page.Jobs) != 1 {
		t.Fatalf("%d jobs: %v", len(page.Jobs), err)
	}
	id := page.Jobs[0].ID
	again := w.cli(t, "job", "rerun", id, "--timeout", "2m", "--max-price", "0.5")
	if again.Code != int(cli.ExitFailed) {
		t.Fatalf("%+v", again)
	}
	first := w.cli(t, "job", "history", "--limit", "1")
	_, next, ok := strings.Cut(strings.TrimSpace(first.Err), "--after ")
	if first.Code != 0 || !ok {
		t.Fatalf("%+v", first)
	}
	if err := json.Unmarshal([]byte(w.must(t, "job", "history", "--limit", "1", "--after", next, "-o", "json")), &page); err != nil || len(page.Jobs) != 1 || page.Jobs[0].ID != id {
		t.Errorf("the second page has %+v, %v", page.Jobs, err)
	}
	var rerun buyer.Page
	if err := json.Unmarshal([]byte(w.must(t, "job", "history", "--limit", "1", "-o", "json")), &rerun); err != nil {
		t.Fatal(err)
	}
	if j := rerun.Jobs[0]; j.Rerun != id || j.Spec.Timeouts.Run != 2*time.Minute || j.Spec.Payment.MaxPrice != 500_000 || j.Ranks[0].Retries != 1 {
		t.Errorf("%+v", j)
	}
	for _, args := range [][]string{{"--since", "yesterday"}, {"--state", "x"}, {"--limit", "0"}, {"--after", "x"}} {
		if r := w.cli(t, append([]string{"job", "history"}, args...)...); r.Code != int(cli.ExitUsage) {
			t.Errorf("%v: %+v", args, r)
		}
	}
	if r := w.cli(t, "job", "rerun", "jnone"); r.Code != int(cli.ExitUsage) || !strings.Contains(r.Err, "no such job") {
		t.Errorf("%+v", r)
	}
}

func (w *world) testQuote(t *testing.T) {
	hello := filepath.Join(w.files, "fail.wasm")
	out := w.must(t, "quote", "-n", "2", "--max-price", "1", "--timeout", "1h", hello)
	if !strings.Contains(out, "2 ranks for 1h0m0s would cost 0.7") || strings.Count(out, "direct in")+strings.Count(out, "gossip in") != 2 {
		t.Errorf("%s", out)
	}
	if r := w.cli(t, "quote", "--max-price", "0.1", hello); r.Code != int(cli.ExitNoMatch) || !strings.Contains(r.Err, "could not be placed now") {
		t.Errorf("%+v", r)
	}
	file := w.file(t, "quote.yaml", "{apiVersion: v1, kind: Job, spec: {module: fail.wasm, payment: {maxPrice: 1}}}")
	var q buyer.Quotation
	if err := json.Unmarshal([]byte(w.must(t, "quote", file, "-o", "json")), &q); err != nil || !q.Places || q.Cost == 0 || len(q.Quotes) == 0 {
		t.Errorf("%+v, %v", q, err)
	}
	if r := w.cli(t, "quote", "-n", "2", file); r.Code != int(cli.ExitUsage) {
		t.Errorf("%+v", r)
	}
}

// A key sees and spends only its own.
func (w *world) testKeys(t *testing.T) {
	token := strings.TrimSpace(w.must(t, "peer", "key", "add", "ci", "--per-day", "3", "--per-job", "2"))
	if r := w.cli(t, "peer", "key", "add", "ci"); r.Code != int(cli.ExitUsage) || !strings.Contains(r.Err, "there is one called") {
		t.Errorf("%+v", r)
	}
	if out := w.must(t, "peer", "key", "ls"); !strings.Contains(out, "ci") || strings.Contains(out, token) {
		t.Errorf("%s", out)
	}
	if out := w.must(t, "wallet", "spend"); !strings.Contains(out, "key ci") || !strings.Contains(out, "this peer") {
		t.Errorf("%s", out)
	}
	var ep api.Endpoint
	b, err := os.ReadFile(filepath.Join(w.home, "api.json"))
	if err == nil {
		err = json.Unmarshal(b, &ep)
	}
	if err != nil {
		t.Fatal(err)
	}
	var page buyer.Page
	if err := json.Unmarshal([]byte(w.must(t, "job", "history", "--limit", "1", "-o", "json")), &page); err != nil {
		t.Fatal(err)
	}
	ask := func(method, path, body string) (int, string) {
		req, err := http.NewRequestWithContext(t.Context(), method, ep.URL+path, strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Authorization", "Bearer "+token)
		resp, err := ep.HTTP().Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		b, _ := io.ReadAll(resp.Body)
		return resp.StatusCode, string(b)
	}
	spec := page.Jobs[0].Spec
	for source := range spec.Blobs { // a key's jobs have the files that it uploaded
		b, err := os.ReadFile(source)
		if err != nil {
			t.Fatal(err)
		}
		if code, text := ask(http.MethodPost, "/v1/blobs", string(b)); code != http.StatusOK {
			t.Fatalf("%d %s", code, text)
		}
	}
	submit := func(budget market.Amount) (int, string) {
		s := spec
		s.Payment.Budget, s.Payment.MaxPrice, s.Timeouts.Run, s.Restart.Backoff, s.Restart.Policy = budget, 1_000_000, 10*time.Hour, 0, ""
		b, err := json.Marshal(s)
		if err != nil {
			t.Fatal(err)
		}
		return ask(http.MethodPost, "/v1/jobs", string(b))
	}
	for _, c := range []struct {
		name, method, path string
		want               int
	}{
		{"keys", http.MethodGet, "/v1/keys", 403}, {"a key", http.MethodPost, "/v1/keys", 403}, {"blocks", http.MethodGet, "/v1/blocks", 403},
		{"sold leases", http.MethodGet, "/v1/leases", 403}, {"another's job", http.MethodGet, "/v1/jobs/" + page.Jobs[0].ID, 404},
		{"another's log", http.MethodGet, "/v1/jobs/" + page.Jobs[0].ID + "/logs", 404}, {"another's end", http.MethodDelete, "/v1/jobs/" + page.Jobs[0].ID, 404},
		{"running another's", http.MethodPost, "/v1/jobs/" + page.Jobs[0].ID + "/rerun", 404},
		{"its jobs", http.MethodGet, "/v1/jobs", 200}, {"offers", http.MethodGet, "/v1/offers", 200}, {"its spending", http.MethodGet, "/v1/spend", 200},
	} {
		if code, text := ask(c.method, c.path, "{}"); code != c.want || c.want == 200 && strings.Contains(text, page.Jobs[0].ID) {
			t.Errorf("%s: %d %s", c.name, code, text)
		}
	}
	if code, text := submit(2_500_000); code != http.StatusPaymentRequired || !strings.Contains(text, "per job") {
		t.Errorf("%d %s", code, text)
	}
	code, text := submit(1_900_000)
	var j buyer.Job
	if err := json.Unmarshal([]byte(text), &j); err != nil || code != http.StatusCreated || j.Key != "ci" {
		t.Fatalf("%d %s: %v", code, text, err)
	}
	if code, _ := ask(http.MethodGet, "/v1/jobs/"+j.ID, ""); code != 200 {
		t.Errorf("its own job: %d", code)
	}
	w.must(t, "peer", "key", "rm", "ci")
	if code, _ := ask(http.MethodGet, "/v1/jobs", ""); code != http.StatusUnauthorized {
		t.Errorf("a key that was ended: %d", code)
	}
	if r := w.cli(t, "peer", "key", "rm", "ci"); r.Code != int(cli.ExitUsage) {
		t.Errorf("%+v", r)
	}
}

func (w *world) testBlock(t *testing.T) {
	var offers []api.OfferInfo
	if err := json.Unmarshal([]byte(w.must(t, "offers", "-o", "json")), &offers); err != nil || len(offers) != 2 {
		t.Fatalf("%d offers: %v", len(offers), err)
	}
	p := offers[0].Provider.String()
	w.must(t, "peer", "block", "add", p, "--reason", "snores", "--as", "provider")
	if out := w.must(t, "peer", "block", "ls"); !strings.Contains(out, p) || !strings.Contains(out, "snores") {
		t.Errorf("%s", out)
	}
	w.cli(t, "run", "--max-price", "1", filepath.Join(w.files, "fail.wasm"))
	var page buyer.Page
	if err := json.Unmarshal([]byte(w.must(t, "job", "history", "--limit", "1", "-o", "json")), &page); err != nil {
		t.Fatal(err)
	}
	if out := w.must(t, "why", page.Jobs[0].ID); !strings.Contains(out, "blocked by you: snores") || page.Jobs[0].Ranks[0].Provider.String() == p {
		t.Errorf("%s", out)
	}
	w.must(t, "peer", "block", "rm", p[:8])
	var q buyer.Quotation
	short := w.cli(t, "run", "--dry-run", "--max-price", "1", "--exclude", p[:8], filepath.Join(w.files, "fail.wasm"), "-o", "json").Want(t, cli.ExitOK)
	if err := json.Unmarshal([]byte(short.Out), &q); err != nil {
		t.Fatal(err)
	}
	for _, o := range q.Quotes {
		if o.Provider.String() == p && o.Ranks > 0 {
			t.Errorf("not excluded by the beginning of its key: %s", short.Out)
		}
	}
	w.cli(t, "peer", "show", p[:8]).Want(t, cli.ExitOK, `^key +`+p)
	w.cli(t, "peer", "ping", "-c", "1", p[:10]).Want(t, cli.ExitOK, `^path +direct$`)
	w.cli(t, "peer", "show", p[:7]).Want(t, cli.ExitUsage, `neither a peer id`)
	w.cli(t, "peer", "block", "add", "zzzzzzzz").Want(t, cli.ExitUsage, `no peer known here has a key that begins so`, `^hint: .starling peer ls. lists`)
	for _, args := range [][]string{{"add", "nobody"}, {"rm", p}, {"add", p, "--as", "king"}} {
		if r := w.cli(t, append([]string{"peer", "block"}, args...)...); r.Code != int(cli.ExitUsage) {
			t.Errorf("%v: %+v", args, r)
		}
	}
}
