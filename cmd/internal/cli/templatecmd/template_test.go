package templatecmd

import (
	"crypto/x509"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"github.com/starling-network/starling/cmd/internal/cli"
	"github.com/starling-network/starling/cmd/internal/cli/clitest"
	"github.com/starling-network/starling/cmd/internal/cli/jobcmd"
	"github.com/starling-network/starling/node/buyer/record"
	"github.com/starling-network/starling/node/config"
	"github.com/starling-network/starling/node/files/web"
	"github.com/starling-network/starling/node/job/template"
	"github.com/starling-network/starling/p2p"
)

var commands = []func(*cli.App) *cobra.Command{newRun,
	func(a *cli.App) *cobra.Command { return jobcmd.NewJob(a, New(a)) }}

// home is a peer with a key that answers quotes.
func home(t *testing.T) *clitest.Answering {
	t.Helper()
	q := &record.Quotation{Places: true}
	p := clitest.NewAnswering(t, commands, clitest.Network, clitest.Answers{"POST /v1/quotes": q})
	p.Env = map[string]string{"XDG_CACHE_HOME": t.TempDir()}
	if err := os.WriteFile(filepath.Join(p.Home, config.FileIdentity), p2p.MarshalKeypair([32]byte{7}), 0o600); err != nil {
		t.Fatal(err)
	}
	return p
}

// dir is a copy of a built-in template, with a change of its job file.
func dir(t *testing.T, name, old, changed string) string {
	t.Helper()
	tm, err := template.Builtin(name)
	if err != nil {
		t.Fatal(err)
	}
	at := filepath.Join(t.TempDir(), name)
	if err := tm.Write(at); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(at, template.FileJob)
	text := strings.Replace(string(tm.File(template.FileJob)), old, changed, 1)
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return at
}

// The list has every built-in template, and what show writes is a template that checks.
func TestCommands(t *testing.T) {
	t.Parallel()
	p := home(t)
	r := p.CLI(t, "job", "template", "ls").Want(t, cli.ExitOK, `^NAME +KIND +SMOKE +ABOUT$`, `^wasm +Job +\S.* Greets by`,
		`^vllm +Job +not run here: needs gpu, internet +Serves`, `^torchrun +Cluster +`)
	if lines := strings.Count(r.Out, "\n"); lines != len(template.BuiltinNames())+1 {
		t.Errorf("%d lines:\n%s", lines, r.Out)
	}
	p.CLI(t, "job", "template", "ls", "-o", "json").Want(t, cli.ExitOK, `"digest": "[0-9a-f]{64}"`)
	to := filepath.Join(t.TempDir(), "mine")
	p.CLI(t, "job", "template", "show", "nginx", "--to", to).Want(t, cli.ExitOK, `^template +nginx: Serves a page`,
		`^needs +one CPU unit`, `^--set site +page .* \(input\); default index.html$`, `^job.yaml +apiVersion: v1$`)
	p.CLI(t, "job", "template", "show", "nginx", "--to", to).Want(t, cli.ExitUsage, `mine exists already`)
	p.CLI(t, "job", "template", "check", to).Want(t, cli.ExitOK, `^template +mine: Serves`, `^smoke run +not run by this command`)
	p.CLI(t, "job", "template", "check", dir(t, "nginx", "image: ${image}", "imagine: ${image}")).Want(t, cli.ExitUsage,
		`^starling: nginx/job.yaml:\d+:3: spec.imagine: unknown field, did you mean image\?$`)
	p.CLI(t, "job", "template", "show", "ngimx").Want(t, cli.ExitUsage, `^starling: template "ngimx": not built in: want one of .*nginx`,
		`^hint: starling job template ls; a directory is given as \./ngimx$`)
	p.CLI(t, "job", "template", "ls", "a", "b").Want(t, cli.ExitUsage, `ls takes at most one index`)
	p.CLI(t, "job", "template", "publish", to).Want(t, cli.ExitUsage, `publish needs templates, and --to`)
	p.CLI(t, "job", "template", "check", filepath.Join(to, "nowhere")).Want(t, cli.ExitUsage, `no such file`)
}

// A dry run shows the job of a template with the user's values and flags, and asks for quotes of it.
func TestRunTemplate(t *testing.T) {
	t.Parallel()
	p := home(t)
	video := p.File(t, "film.mov", "video")
	run := func(args ...string) clitest.Result {
		return p.CLI(t, append([]string{"run", "--max-price", "1", "--dry-run"}, args...)...)
	}
	run("--template", "ffmpeg", "--set", "rate=25", "-i", video+":/in/video", "-e", "A=b", "--timeout", "5m").Want(t, cli.ExitOK,
		`^image: linuxserver/ffmpeg:7.1.1$`, `^- "?25"?$`, `^  A: b$`, `film.mov$`, `run: 5m0s$`, `^budget +0\.08`)
	asked := strings.Join(p.Asked(), "\n")
	if !strings.Contains(asked, `"image":"linuxserver/ffmpeg:7.1.1"`) || strings.Contains(asked, "parameters") {
		t.Errorf("asked for %s", asked)
	}
	run("--template", "wasm", "--set", "greet=you").Want(t, cli.ExitOK, `^module: .*/templates/[0-9a-f]{64}/wasm/hello.wasm$`)
	run("--template", "wasm", "--", "a", "b").Want(t, cli.ExitOK, `^- a\n- b$`)
	run("--template", "wasm", "a").Want(t, cli.ExitUsage, `run --template does not take "a"`, `^hint: arguments of the program come after --`)
	run("--template", "wasm", "--set", "greeting").Want(t, cli.ExitUsage, `--set: "greeting": want NAME=VALUE`)
	run("--template", "wasm", "--set", "greet=a", "--set", "greet=b").Want(t, cli.ExitUsage, `each name once`)
	run("--template", "wasm", "--set", "great=a").Want(t, cli.ExitUsage, `--set: "great": no such parameter, did you mean greet\?`)
	run("--template", "wasm", "--accept-publisher", "a").Want(t, cli.ExitUsage, `"wasm" is not of an index`)
	run("--set", "greet=a", "x.wasm").Want(t, cli.ExitUsage, `of a template: want --template NAME`)
	run(video).Want(t, cli.ExitOK, `^module +.*film.mov$`).Not(t, `^image:`)
	run().Want(t, cli.ExitUsage, `run needs a module`)
	p.CLI(t, "run", "--template", "wasm").Want(t, cli.ExitUsage, `^starling: --max-price: missing`)
}

// A template of others does not set how much is spent, and gets no file that the user does not name.
func TestAttackForeignTemplate(t *testing.T) {
	t.Parallel()
	p := home(t)
	costly := dir(t, "wasm", "timeouts: {run: 5m}", "count: 100\n  timeouts: {run: 700h}")
	p.CLI(t, "run", "--template", costly, "--max-price", "1").Want(t, cli.ExitUsage,
		`^starling: --budget: missing: the template \S+ sets the ranks and the run time$`)
	p.CLI(t, "run", "--template", costly, "--max-price", "1", "--dry-run").Want(t, cli.ExitOK, `^count: 100$`, `^budget +7\d{4}`)
	for _, line := range []string{
		"secrets: [{name: A, env: A, from: env:HOME}]", "inputs: [{src: /etc/passwd, dst: /in/a}]",
		"inputs: [{src: ../../../../etc/passwd, dst: /in/a}]", "payment: {maxPrice: 100}", "registryAuth: docker",
	} {
		p.CLI(t, "run", "--max-price", "1", "--dry-run", "--template", dir(t, "wasm", "timeouts:", line+"\n  timeouts:")).Want(t,
			cli.ExitUsage, `^starling: wasm/job.yaml:\d+:\d+: spec\.`)
	}
	link := dir(t, "wasm", "", "")
	if err := os.Symlink("/etc/passwd", filepath.Join(link, "link")); err != nil {
		t.Fatal(err)
	}
	p.CLI(t, "run", "--max-price", "1", "--dry-run", "--template", link).Want(t, cli.ExitUsage, `"link" is not a regular file`)
	if asked := p.Asked(); len(asked) != 1 {
		t.Errorf("asked for %q", asked)
	}
}

// A changed copy of a template in the cache is not run.
func TestAttackCache(t *testing.T) {
	t.Parallel()
	p := home(t)
	r := p.CLI(t, "run", "--max-price", "1", "--dry-run", "--template", "wasm").Want(t, cli.ExitOK)
	file := regexp.MustCompile(`(?m)^module: (.*)$`).FindStringSubmatch(r.Err)
	if file == nil {
		t.Fatal(r.Err)
	}
	good, err := os.ReadFile(file[1])
	if err == nil {
		err = os.WriteFile(file[1], []byte("\x00asm evil"), 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	p.CLI(t, "run", "--max-price", "1", "--dry-run", "--template", "wasm").Want(t, cli.ExitOK)
	if now, err := os.ReadFile(file[1]); err != nil || string(now) != string(good) {
		t.Errorf("the module is %.20q, %v", now, err)
	}
}

// published publishes templates, and returns their directory and the publisher's key.
func published(t *testing.T, p *clitest.Answering, to string, dirs ...string) string {
	t.Helper()
	r := p.CLI(t, append([]string{"job", "template", "publish", "--to", to}, dirs...)...).Want(t, cli.ExitOK, `^index +.*index.json$`)
	key := regexp.MustCompile(`(?m)^publisher +(\w+)$`).FindStringSubmatch(r.Out)
	if key == nil {
		t.Fatal(r.Out)
	}
	return key[1]
}

// An index in a directory: its publisher is accepted once, each version has a higher number, and an old one is refused.
func TestPublish(t *testing.T) {
	t.Parallel()
	p, to := home(t), t.TempDir()
	mine := dir(t, "wasm", "default: world", "default: moon")
	key := published(t, p, to, mine, dir(t, "nginx", "", ""))
	at := filepath.Join(to, template.FileIndex)
	first, err := os.ReadFile(at)
	if err != nil {
		t.Fatal(err)
	}
	user := home(t)
	run := func(name string, more ...string) clitest.Result {
		return user.CLI(t, append([]string{"run", "--max-price", "1", "--dry-run", "--template", at + "#" + name}, more...)...)
	}
	run("wasm").Want(t, cli.ExitUsage, `^starling: publisher is not accepted: the index is of `+key, `^hint: .*--accept-publisher `+key)
	run("wasm", "--accept-publisher", strings.Repeat("1", 32)).Want(t, cli.ExitUsage, `publisher is not accepted`)
	run("wasm", "--accept-publisher", key).Want(t, cli.ExitOK, `^publisher `+key+` is accepted for `, `^- moon$`)
	run("wasm").Want(t, cli.ExitOK, `^- moon$`).Not(t, "accepted")
	run("gone").Want(t, cli.ExitUsage, `template "gone": not in the index`)
	user.CLI(t, "job", "template", "ls", at).Want(t, cli.ExitOK, `^NAME +ABOUT$`, `^wasm +Greets`)
	user.CLI(t, "job", "template", "check", at+"#nginx").Want(t, cli.ExitOK)
	published(t, p, to, mine)
	run("wasm").Want(t, cli.ExitOK)
	if err := os.WriteFile(at, first, 0o600); err != nil {
		t.Fatal(err)
	}
	run("wasm").Want(t, cli.ExitUsage, `index is older than one read before: sequence: got 1, want 2 or more`)
	user.CLI(t, "run", "--max-price", "1", "--template", at+"#wasm").Want(t, cli.ExitUsage, `--budget: missing|older`)
	other := home(t)
	if err := os.WriteFile(filepath.Join(other.Home, config.FileIdentity), p2p.MarshalKeypair([32]byte{8}), 0o600); err != nil {
		t.Fatal(err)
	}
	other.CLI(t, "job", "template", "publish", "--to", to, mine).Want(t, cli.ExitUsage, `is not an index of this peer's key`)
	bad := dir(t, "wasm", "prints:", "shows:")
	p.CLI(t, "job", "template", "publish", "--to", t.TempDir(), bad).Want(t, cli.ExitUsage, `^wasm/job.yaml:\d+:\d+: smoke`)
}

// An archive beside an index that is not the one of the index's digest is refused.
func TestAttackArchiveOfServer(t *testing.T) {
	t.Parallel()
	p, to := home(t), t.TempDir()
	key := published(t, p, to, dir(t, "wasm", "", ""))
	archives, err := filepath.Glob(filepath.Join(to, "*.tar"))
	if err != nil || len(archives) != 1 {
		t.Fatal(archives, err)
	}
	b, err := os.ReadFile(archives[0])
	if err != nil {
		t.Fatal(err)
	}
	b[len(b)/2] ^= 1
	if err := os.WriteFile(archives[0], b, 0o600); err != nil {
		t.Fatal(err)
	}
	p.CLI(t, "run", "--max-price", "1", "--dry-run", "--accept-publisher", key, "--template",
		filepath.Join(to, template.FileIndex)+"#wasm").Want(t, cli.ExitUsage, `SHA-256 of the archive: got`)
}

// An index of a web server is read by the rules for URLs of strangers: public addresses, bounded sizes.
func TestURL(t *testing.T) {
	t.Parallel()
	p, to := home(t), t.TempDir()
	key := published(t, p, to, dir(t, "wasm", "", ""))
	s := httptest.NewTLSServer(http.FileServer(http.Dir(to)))
	defer s.Close()
	roots := x509.NewCertPool()
	roots.AddCert(s.Certificate())
	client, err := web.New(web.Config{Hosts: []string{strings.TrimPrefix(s.URL, "https://")}, Roots: roots})
	if err != nil {
		t.Fatal(err)
	}
	f := finder{app: p.App(&clitest.Buffer{}, &clitest.Buffer{}), accept: key, web: client}
	got, err := f.find(t.Context(), s.URL+"/index.json#wasm")
	if err != nil || !got.foreign {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(to, "big.json"), make([]byte, template.MaxIndex+1), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := f.find(t.Context(), s.URL+"/big.json#wasm"); err == nil || !strings.Contains(err.Error(), "at most") {
		t.Errorf("a large index: %v", err)
	}
	f.web = nil
	for _, at := range []string{s.URL + "/index.json", "http://example.org/index.json", "https://10.0.0.1/index.json",
		"https://user:pass@example.org/index.json"} {
		if _, err := f.find(t.Context(), at+"#wasm"); err == nil {
			t.Errorf("%s was read", at)
		}
	}
}

// newRun is run without terminals.
func newRun(a *cli.App) *cobra.Command { return NewRun(a, nil) }
