package jobcmd_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/starling-network/starling/cmd/internal/cli"
	"github.com/starling-network/starling/cmd/internal/cli/clitest"
	"github.com/starling-network/starling/cmd/internal/cli/rooms"
	"github.com/starling-network/starling/node/buyer/record"
	"github.com/starling-network/starling/node/files/s3/s3test"
	"github.com/starling-network/starling/node/webhook"
	"github.com/starling-network/starling/p2p"
)

// What the jobs of these tests must keep to themselves.
const (
	secretValue = "correct-horse-battery-staple"
	hookSecret  = "tr0ub4dor-and-3"
)

// world is a world of all commands, with the tests of this package.
type world struct{ *clitest.World }

func newWorld(t testing.TB) *world {
	t.Helper()
	return &world{clitest.NewWorld(t, rooms.Commands, p2p.NAT{})}
}

// TestRun runs jobs through the command line and checks the messages of jobs that fail or are refused.
func TestRun(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	t.Run("fail", func(t *testing.T) { t.Parallel(); w.testFail(t) })
	t.Run("refused", func(t *testing.T) { t.Parallel(); w.testRefused(t) })
	t.Run("submit", func(t *testing.T) { t.Parallel(); w.testSubmit(t) })
	t.Run("limits", func(t *testing.T) { t.Parallel(); w.testLimits(t) })
}

// TestSecretsAndHistory runs jobs with secrets and webhooks, lists them and repeats one.
func TestSecretsAndHistory(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.Env["TOKEN"], w.Env["HOOK"] = secretValue, hookSecret
	t.Run("secrets", func(t *testing.T) { w.testSecrets(t) })
	t.Run("docker login", func(t *testing.T) { w.testDockerLogin(t) })
	t.Run("history", func(t *testing.T) { w.testHistory(t) })
}

func (w *world) testFail(t *testing.T) {
	args := []string{"run", "--max-price", "1", "--budget", "1", "--name", "wrong", filepath.Join(w.Files, "fail.wasm")}
	w.CLI(t, args...).Want(t, cli.ExitFailed, `^this goes wrong$`, `^starling: job (j\w+) failed: .*7`, `^hint: starling why j\w+$`)
	// One document on standard output, everything else beside it.
	r := w.CLI(t, append(args, "--wait", "paid", "-o", "json")...).Want(t, cli.ExitFailed, `"code":"failed"`)
	var j record.Job
	if err := json.Unmarshal([]byte(r.Out), &j); err != nil || j.State != record.Failed || j.Code != record.CodeProgram {
		t.Errorf("%v: %s", err, r.Out)
	}
	w.CLI(t, "get", j.ID, t.TempDir()).Want(t, cli.ExitFailed, `has no outputs`, `^hint: name the directories to keep`)
}

func (w *world) testRefused(t *testing.T) {
	module := filepath.Join(w.Files, "work.wasm")
	w.CLI(t, "run", "--max-price", "0.01", "--queue-timeout", "1s", module).Want(t, cli.ExitNoMatch, `no match for 1 × 1 units of cpu`, `^hint: starling why`)
	w.CLI(t, "run", "--max-price", "1", "--disk", "2Mi", "--scratch", "7Mi", "--queue-timeout", "1s", module).Want(t, cli.ExitNoMatch, `disk 8 MiB, asked 9 MiB`)
	w.CLI(t, "run", "--max-price", "1000", "--timeout", "24h", module).Want(t, cli.ExitPayment, `can cost up to 24000.00 STAR`, `^hint: `)
	w.CLI(t, "run", "--max-price", "1", filepath.Join(w.Files, "nowhere.wasm")).Want(t, cli.ExitUsage, `nowhere.wasm: no such file`)
	w.CLI(t, "run", "--max-price", "1", w.Files).Want(t, cli.ExitUsage, `a module is one file`)
	w.CLI(t, "run", "--max-price", "1", "cid:bafkreihdwdcefgh4dqkjv67uzcmw7ojee6xedzdetojuzjevtenxquvyku").Want(t, cli.ExitUsage, `is not on this peer`)
	link := filepath.Join(t.TempDir(), "data")
	if err := os.MkdirAll(link, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("/etc/passwd", filepath.Join(link, "link")); err != nil {
		t.Fatal(err)
	}
	w.CLI(t, "run", "--max-price", "1", "-i", link+":/in", module).Want(t, cli.ExitUsage, `uploading .*: link: symbolic link to "/etc/passwd": want a relative link .* cp -rL`)
	for _, at := range []string{"https://127.0.0.1:1/w.bin", "https://169.254.169.254/latest/meta-data"} {
		w.CLI(t, "run", "--max-price", "1", "-i", at+":/in/w.bin", module).Want(t, cli.ExitUsage, at+`: input cannot be read: .* on the internet`, `^hint: download it`)
	}
	w.CLI(t, "run", module).Want(t, cli.ExitUsage, `--max-price`)
	w.CLI(t, "run").Want(t, cli.ExitUsage, `run needs a module`, `^hint: starling run`)
	w.CLI(t, "run", "--max-price", "1", module, "argument").Want(t, cli.ExitUsage, `^hint: arguments of the program come after --`)
	w.CLI(t, "run", "--max-price", "1", "-d", "--save", "x", module).Want(t, cli.ExitUsage, `--save needs`)
	w.CLI(t, "run", "--max-price", "1", "-d", "--wait", "paid", module).Want(t, cli.ExitUsage, `--wait paid needs`, `^hint: starling wait`)
	w.CLI(t, "run", "--max-price", "1", "--wait", "long", module).Want(t, cli.ExitUsage, `--wait: "long", want result or paid`)
}

func (w *world) testSubmit(t *testing.T) {
	file := w.File(t, "job.yaml", `
apiVersion: v1
kind: Job
metadata: {name: filed}
spec:
  module: greet.wasm
  count: 2
  args: [one]
  inputs: [{src: "in/{rank}/name", dst: /in/name}]
  outputs: [{src: /out}]
  payment: {maxPrice: 1, budget: 1}
`)
	id := strings.TrimSpace(w.CLI(t, "submit", "-d", file).Want(t, cli.ExitOK, `^j\w+$`).Out)
	w.CLI(t, "wait", id).Want(t, cli.ExitOK, `^`+id+` succeeded`)
	dir := t.TempDir()
	w.CLI(t, "get", id, dir).Want(t, cli.ExitOK, `^RANK +OUTPUT`, `^1 +/out`)
	if b, err := os.ReadFile(filepath.Join(dir, "1", "out", "greeting")); err != nil || string(b) != "hello grace from 1" {
		t.Errorf("%q, %v", b, err)
	}
	// The peer has the content of a URL that no provider can read.
	file = w.File(t, "url.yaml", fmt.Sprintf(`
apiVersion: v1
kind: Job
metadata: {name: linked}
spec:
  module: greet.wasm
  args: [one]
  inputs: [{src: "https://nowhere.invalid/name", sha256: %x, dst: /in/name}]
  outputs: [{src: /out}]
  payment: {maxPrice: 1, budget: 1}
`, sha256.Sum256([]byte("grace"))))
	w.CLI(t, "submit", file).Want(t, cli.ExitOK, `hello grace`)
	file = w.File(t, "gone.yaml", fmt.Sprintf(`
apiVersion: v1
kind: Job
metadata: {name: gone}
spec:
  module: greet.wasm
  inputs: [{src: "https://nowhere.invalid/name", sha256: %x, dst: /in/name}]
  restart: {max: 0}
  payment: {maxPrice: 1, budget: 1}
`, sha256.Sum256([]byte("nobody's"))))
	w.CLI(t, "submit", file).Want(t, cli.ExitLost, `nowhere.invalid/name: input cannot be read: .* on the internet`)
	file = filepath.Join(w.Files, "job.yaml")
	d := w.CLI(t, "submit", "-d", file).Want(t, cli.ExitOK, `^follow it with .starling logs -f j\w+.$`)
	w.CLI(t, "logs", "-f", strings.TrimSpace(d.Out)).Want(t, cli.ExitOK, `^\[1\] hello grace$`)
}

// TestS3 runs a job with inputs and outputs in S3, and repeats the upload.
func TestS3(t *testing.T) {
	t.Parallel()
	s := s3test.Start(t, false)
	w := newWorld(t)
	for _, name := range []string{"AWS_ENDPOINT_URL", "AWS_REGION", "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"} {
		w.Env[name] = s.Env(name)
	}
	w.Env["TMPDIR"] = t.TempDir()
	for name, text := range map[string]string{"in/0/name": "ada", "in/1/name": "grace"} {
		file := filepath.Join(s.Dir, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(file), 0o755), os.WriteFile(file, []byte(text), 0o644)); err != nil {
			t.Fatal(err)
		}
	}
	run := []string{"run", "-n", "2", "--max-price", "1", "--budget", "1", "-i", "s3://bucket/in/{rank}/:/in", "--out", "/out", "--save", "s3://bucket/results", filepath.Join(w.Files, "greet.wasm")}
	r := w.CLI(t, run...).Want(t, cli.ExitOK, `^\[1\] hello grace$`, `^input s3://bucket/in/1/ has 1 object, 0.0 KiB, through this computer$`, `^saved s3://bucket/results/0/out$`, `^saved s3://bucket/results/1/out$`)
	if strings.Contains(r.Out+r.Err, s3test.Secret) {
		t.Errorf("the secret key is shown: %+v", r)
	}
	for rank, want := range []string{"hello ada from 0", "hello grace from 1"} {
		if b, err := os.ReadFile(filepath.Join(s.Dir, "results", fmt.Sprint(rank), "out/greeting")); err != nil || string(b) != want {
			t.Errorf("rank %d: %q, %v", rank, b, err)
		}
	}
	id := regexp.MustCompile(`(?m)^job (j\w+)$`).FindStringSubmatch(r.Err)[1]
	w.CLI(t, "get", id, "s3://bucket/results").Want(t, cli.ExitOK, `^1 +/out +\d+ +s3://bucket/results/1/out$`)
	w.CLI(t, "get", "--rank", "1", id, "s3://bucket").Want(t, cli.ExitOK, `s3://bucket/out$`)
	if err := os.WriteFile(filepath.Join(s.Dir, "results/1/out/greeting"), []byte("another's"), 0o644); err != nil {
		t.Fatal(err)
	}
	w.CLI(t, "get", id, "s3://bucket/results").Want(t, cli.ExitFailed, `1 of 2 objects are missing: \["1/out/greeting"\]: .*another object with this name exists`, `^hint: starling get `+id+` s3://bucket/results/ sends the missing objects`)
	w.CLI(t, "get", id, "s3://other-bucket/results").Want(t, cli.ExitUsage, `not found on the S3 server`)
	run[len(run)-2] = "s3://other-bucket/results"
	r = w.CLI(t, run...).Want(t, cli.ExitUsage, `s3://other-bucket/ at http://.*: not found on the S3 server`)
	if strings.Contains(r.Err, "job j") {
		t.Errorf("a job was submitted: %s", r.Err)
	}
	run[len(run)-2] = "s3://bucket/*"
	w.CLI(t, run...).Want(t, cli.ExitUsage, `--save: name of an S3 object: .* one folder`)
	if left, err := os.ReadDir(w.Env["TMPDIR"]); err != nil || len(left) > 0 {
		t.Errorf("left %q, %v", left, err)
	}
	w.Env["AWS_SECRET_ACCESS_KEY"] = ""
	w.CLI(t, "get", id, "s3://bucket/results").Want(t, cli.ExitUsage, `settings for S3: AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY: got one of them, want both`)
}

func (w *world) testLimits(t *testing.T) {
	w.CLI(t, "run", "--max-price", "1", "--timeout", "2s", filepath.Join(w.Files, "spin.wasm")).Want(t, cli.ExitTimeout, `time limit`, `^hint: starling why`)
}

// What a job owes cannot be paid while the chain makes no blocks: its result is there all the same, and run returns with it.
func TestRunReturns(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	dir := t.TempDir()
	results, gate := filepath.Join(dir, "results"), filepath.Join(dir, "gate")
	var out, errOut clitest.Buffer
	code := make(chan int, 1)
	go func() {
		code <- w.App(&out, &errOut).Run(t.Context(), []string{"run", "--max-price", "1", "--budget", "1", "--out", "/out", "--save", results, filepath.Join(w.Files, "hold.wasm"), "--", gate})
	}()
	clitest.Eventually(t, "the program runs", func() bool { return out.String() == "holding\n" })
	w.Halted.Store(true)
	if err := os.WriteFile(gate+".new", []byte("open"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(gate+".new", gate); err != nil {
		t.Fatal(err)
	}
	clitest.Result{Code: <-code, Out: out.String(), Err: errOut.String()}.Want(t, cli.ExitOK, `^j\w+ succeeded in [\d.]+m?s; its peer pays the amount due: starling status j\w+$`)
	if b, err := os.ReadFile(filepath.Join(results, "out", "text")); err != nil || string(b) != "open" {
		t.Errorf("%q, %v", b, err)
	}
	id := regexp.MustCompile(`(?m)^job (j\w+)$`).FindStringSubmatch(errOut.String())[1]
	w.CLI(t, "status", id).Want(t, cli.ExitOK, `^state +settling, then succeeded$`)
	w.CLI(t, "logs", "-f", id).Want(t, cli.ExitOK, `^holding$`)
	w.Halted.Store(false)
	w.CLI(t, "wait", id).Want(t, cli.ExitOK, `^`+id+` succeeded in [\d.]+m?s, cost 0.\d+ STAR`)
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
	w.File(t, "key.txt", secretValue)
	file := w.File(t, "tell.yaml", fmt.Sprintf(`{apiVersion: v1, kind: Job, metadata: {name: tell}, spec: {module: tell.wasm,
  secrets: [{name: token, env: TOKEN, from: "env:TOKEN"}, {name: key, from: "file:key.txt"}],
  webhooks: [{url: %q, events: [running, succeeded], secretFrom: "env:HOOK"}], payment: {maxPrice: 1}, timeouts: {run: 1m}}}`, server.URL))
	out := w.Must(t, "submit", file)
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
	missing := w.CLI(t, "run", "--max-price", "1", "--secret-env", "X=env:NOT_SET", filepath.Join(w.Files, "tell.wasm"))
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
	for _, home := range w.Homes {
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
	var jobs record.Page
	if err := json.Unmarshal([]byte(w.Must(t, "job", "history", "-o", "json")), &jobs); err != nil || len(jobs.Jobs) == 0 {
		t.Fatalf("%d jobs: %v", len(jobs.Jobs), err)
	}
	look("history", []byte(w.Must(t, "job", "history", "-o", "json")))
	for _, j := range jobs.Jobs {
		for _, command := range [][]string{{"status", j.ID}, {"why", j.ID}, {"proof", "ls", j.ID}} {
			look(command[0], []byte(w.Must(t, append(command, "-o", "json")...)))
		}
	}
}

// testDockerLogin hands in a job whose image needs the user's docker login, and looks for the password wherever the peers write.
func (w *world) testDockerLogin(t *testing.T) {
	file := w.File(t, "private.yaml", `{apiVersion: v1, kind: Job, metadata: {name: private}, spec: {registryAuth: docker,
  image: "registry.example/a/b@sha256:`+strings.Repeat("ab", 32)+`", payment: {maxPrice: 1}, timeouts: {queue: 1h, run: 1m}}}`)
	w.Env["DOCKER_CONFIG"], w.Env["PATH"] = filepath.Dir(w.File(t, "docker/config.json", `{"credsStore": "broken"}`)), clitest.HelperDir(t)
	r := w.CLI(t, "submit", "-d", file).Want(t, cli.ExitUsage, "registry credentials: docker-credential-broken has no credentials for registry.example")
	if strings.Contains(r.Out+r.Err, clitest.PullSecret) {
		t.Errorf("the password is shown: %+v", r)
	}
	w.File(t, "docker/config.json", `{"credHelpers": {"registry.example": "good"}}`)
	out := w.Must(t, "submit", "-d", "-o", "json", file)
	var j record.Job
	if err := json.Unmarshal([]byte(out), &j); err != nil || j.ID == "" {
		t.Fatalf("%s: %v", out, err)
	}
	w.Must(t, "stop", j.ID)
	w.CLI(t, "wait", j.ID)
	w.nowhere(t)
}

func (w *world) testHistory(t *testing.T) {
	hello := filepath.Join(w.Files, "fail.wasm")
	if r := w.CLI(t, "run", "--wait", "paid", "--max-price", "1", "--timeout", "1m", "--name", "failing", "--restart", "on-failure", "--retries", "1", hello); r.Code != int(cli.ExitFailed) ||
		!strings.Contains(r.Err, "restarted rank 0") || !strings.Contains(r.Err, "after 1 restarts") {
		t.Fatalf("%+v", r)
	}
	var page record.Page
	if err := json.Unmarshal([]byte(w.Must(t, "job", "history", "--name", "failing", "--since", "1h", "--state", "failed", "-o", "json")), &page); err != nil || len(page.Jobs) != 1 {
		t.Fatalf("%d jobs: %v", len(page.Jobs), err)
	}
	id := page.Jobs[0].ID
	again := w.CLI(t, "job", "rerun", id, "--timeout", "2m", "--max-price", "0.5")
	if again.Code != int(cli.ExitFailed) {
		t.Fatalf("%+v", again)
	}
	first := w.CLI(t, "job", "history", "--limit", "1")
	_, next, ok := strings.Cut(strings.TrimSpace(first.Err), "--after ")
	if first.Code != 0 || !ok {
		t.Fatalf("%+v", first)
	}
	if err := json.Unmarshal([]byte(w.Must(t, "job", "history", "--limit", "1", "--after", next, "-o", "json")), &page); err != nil || len(page.Jobs) != 1 || page.Jobs[0].ID != id {
		t.Errorf("the second page has %+v, %v", page.Jobs, err)
	}
	var rerun record.Page
	if err := json.Unmarshal([]byte(w.Must(t, "job", "history", "--limit", "1", "-o", "json")), &rerun); err != nil {
		t.Fatal(err)
	}
	if j := rerun.Jobs[0]; j.Rerun != id || j.Spec.Timeouts.Run != 2*time.Minute || j.Spec.Payment.MaxPrice != 500_000 || j.Ranks[0].Retries != 1 {
		t.Errorf("%+v", j)
	}
	for _, args := range [][]string{{"--since", "yesterday"}, {"--state", "x"}, {"--limit", "0"}, {"--after", "x"}} {
		if r := w.CLI(t, append([]string{"job", "history"}, args...)...); r.Code != int(cli.ExitUsage) {
			t.Errorf("%v: %+v", args, r)
		}
	}
	w.CLI(t, "job", "prune", "--dry-run").Want(t, cli.ExitOK, `^no job ended that long ago$`)
	w.CLI(t, "job", "prune").Want(t, cli.ExitOK, `^no job ended that long ago$`)
	w.CLI(t, "job", "prune", "--older-than", "1h").Want(t, cli.ExitUsage, `--older-than: "1h", want 24h or more`)
	w.CLI(t, "status", id).Want(t, cli.ExitOK, `^job +`+id)
	if r := w.CLI(t, "job", "rerun", "jnone"); r.Code != int(cli.ExitUsage) || !strings.Contains(r.Err, "no such job") {
		t.Errorf("%+v", r)
	}
}
