package templatecmd

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/starling-network/starling/cmd/internal/cli"
	"github.com/starling-network/starling/cmd/internal/cli/clitest"
	"github.com/starling-network/starling/node/job/template"
)

// The smoke run of every built-in template can be ordered as a user would.
func TestEverySmokeRun(t *testing.T) {
	t.Parallel()
	p := home(t)
	for _, name := range template.BuiltinNames() {
		tm, err := template.Builtin(name)
		if err != nil {
			t.Fatal(err)
		}
		d, err := tm.Describe()
		if err != nil {
			t.Fatal(err)
		}
		files := filepath.Join(t.TempDir(), name)
		if err := tm.Write(files); err != nil {
			t.Fatal(err)
		}
		args := []string{"run", "--dry-run", "--max-price", "1", "--template", name}
		for parameter, value := range d.Smoke.Set {
			if tm.File(value) != nil {
				value = filepath.Join(files, value)
			}
			args = append(args, "--set", parameter+"="+value)
		}
		if len(d.Smoke.Args) > 0 {
			args = append(append(args, "--"), d.Smoke.Args...)
		}
		p.CLI(t, args...).Want(t, cli.ExitOK, `^name: `+name+`$`)
		if asked := p.Asked(); len(asked) != 1 || !strings.Contains(asked[0], `"name":"`+name+`"`) {
			t.Errorf("%s: asked for %.200q", name, asked)
		}
	}
}

// Flags change a cluster's members and command, and a template for GPUs runs without them.
func TestFlagsOverTemplate(t *testing.T) {
	t.Parallel()
	p := home(t)
	run := func(args ...string) clitest.Result {
		return p.CLI(t, append([]string{"run", "--max-price", "1", "--dry-run", "--template"}, args...)...)
	}
	run("torchrun", "-n", "4", "--gpus", "2", "--", "python3", "-V").Want(t, cli.ExitOK,
		`^count: 4$`, `^  command:\n  - python3\n  - -V$`, `^  class: gpu$`, `^  units: 2$`)
	run("vllm", "--class", "cpu", "--network", "none").Want(t, cli.ExitOK, `^  class: cpu$`, `^  units: 1$`).Not(t, `vram`)
	run("jupyter", "--set", "token=a", "--secret-env", "HF_TOKEN=env:MINE").Want(t, cli.ExitOK, `from: env:MINE`)
	run("postgres", "--timeout", "999h").Want(t, cli.ExitUsage, `^starling: --timeout: 999h0m0s, want`)
	run("hf-finetune", "--set", "network=host").Want(t, cli.ExitUsage,
		`^starling: hf-finetune/job.yaml:\d+:12: spec.network: `)
	run("hf-finetune", "--set", "text=nowhere.txt").Want(t, cli.ExitUsage,
		`^starling: a file of the job cannot be read: nowhere.txt: no such file`)
}

// The JSON of show has all that the table shows.
func TestShowJSON(t *testing.T) {
	t.Parallel()
	p := home(t)
	r := p.CLI(t, "job", "template", "show", "blender", "-o", "json").Want(t, cli.ExitOK)
	var s shown
	if err := json.Unmarshal([]byte(r.Out), &s); err != nil {
		t.Fatal(err)
	}
	tm, err := template.Builtin("blender")
	if err != nil {
		t.Fatal(err)
	}
	if s.Name != "blender" || s.Digest != tm.Digest() || s.Job != string(tm.File(template.FileJob)) ||
		!strings.HasPrefix(s.Dockerfile, "FROM ") || len(s.Parameters) != 3 || s.Kind != "Job" {
		t.Errorf("got %+v", s)
	}
}

// Texts of a foreign template do not write over a terminal.
func TestAttackTerminal(t *testing.T) {
	t.Parallel()
	p := home(t)
	at := dir(t, "wasm", "about: name to greet", `about: "a\e[2J"`)
	readme := filepath.Join(at, template.FileReadme)
	for _, text := range []string{"x\x1b[2J\nNeeds: a\nExample: starling run --template a\n", "x\x07"} {
		if err := os.WriteFile(readme, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		for _, command := range []string{"show", "check"} {
			r := p.CLI(t, "job", "template", command, at)
			if strings.ContainsAny(r.Out+r.Err, "\x1b\x07") {
				t.Errorf("%s: %q, %q", command, r.Out, r.Err)
			}
		}
	}
	r := p.CLI(t, "job", "template", "show", dir(t, "wasm", "spec:", "# \x1b[2J\nspec:"))
	if strings.ContainsAny(r.Out+r.Err, "\x1b") {
		t.Errorf("a comment: %q, %q", r.Out, r.Err)
	}
}

// Archives are beside their index, whatever its name.
func TestBeside(t *testing.T) {
	t.Parallel()
	for index, want := range map[string]string{
		"/a/index.json":                     "/a/x.tar",
		"https://a.example/t/index.json":    "https://a.example/t/x.tar",
		"https://a.example/t/i.json?key=1":  "https://a.example/t/x.tar",
		"https://a.example/index.json":      "https://a.example/x.tar",
		"https://a.example:8443/b/c/d.json": "https://a.example:8443/b/c/x.tar",
	} {
		if got := beside(index, "x.tar"); got != want {
			t.Errorf("%s: got %s, want %s", index, got, want)
		}
	}
}

// A directory with two templates of one name is not published, nor one without a network or a key.
func TestPublishRefused(t *testing.T) {
	t.Parallel()
	p := home(t)
	one, two := dir(t, "wasm", "", ""), dir(t, "wasm", "world", "moon")
	p.CLI(t, "job", "template", "publish", "--to", t.TempDir(), one, two).Want(t, cli.ExitUsage, `wasm: want each name once`)
	to := t.TempDir()
	if err := os.WriteFile(filepath.Join(to, template.FileIndex), []byte("other"), 0o600); err != nil {
		t.Fatal(err)
	}
	p.CLI(t, "job", "template", "publish", "--to", to, one).Want(t, cli.ExitUsage, `is not an index of this peer's key`)
	left, err := os.ReadDir(to)
	if err != nil || len(left) != 1 {
		t.Errorf("left %v, %v", left, err)
	}
	alone := clitest.NewHome(t.TempDir(), commands)
	alone.CLI(t, "job", "template", "publish", "--to", to, one).Want(t, cli.ExitUnreachable, `reading the network.s genesis`)
	alone.CLI(t, "run", "--template", "a/index.json#x", "--max-price", "1").Want(t, cli.ExitUnreachable, `reading the network.s genesis`)
}

// Values of --set may contain an equals sign.
func TestParseSet(t *testing.T) {
	t.Parallel()
	got, err := parseSet([]string{"a=b=c", "d="})
	if err != nil || got["a"] != "b=c" || got["d"] != "" || len(got) != 2 {
		t.Errorf("%q, %v", got, err)
	}
	if names := template.BuiltinNames(); !slices.IsSorted(names) {
		t.Errorf("the list is not sorted: %q", names)
	}
}
