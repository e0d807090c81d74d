package jobfile

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/starling-network/starling/node/job"
	"pgregory.net/rapid"
)

// Nesting is bounded however a file hides it: the YAML parser would take minutes over the deepest file that fits.
func TestNestingIsBounded(t *testing.T) {
	t.Parallel()
	const deep = MaxFile / 4
	for name, text := range map[string]string{
		"brackets":                  strings.Repeat("[", deep),
		"brackets after a comment":  "# " + strings.Repeat("]", deep) + "\n" + strings.Repeat("[", deep),
		"brackets after closed":     strings.Repeat("]", deep) + strings.Repeat("[", deep),
		"brackets closed in quotes": strings.Repeat(`["]",`, deep/2),
		"braces closed in quotes":   strings.Repeat(`{'}': `, deep/2),
		"dashes":                    strings.Repeat("- ", deep),
		"dashes after a key":        "apiVersion: v1\nspec:\n  args:\n  " + strings.Repeat("- ", deep),
		"keys":                      strings.Repeat("? ", deep),
	} {
		start := time.Now()
		_, err := Parse([]byte(text), token)
		if !errors.Is(err, job.ErrInvalid) || !strings.Contains(err.Error(), "are open at once") {
			t.Errorf("%s: %.200v after %v, want a refusal for its depth", name, err, time.Since(start))
		}
	}
}

// As many brackets as are read at once are read, and any number beside one another, in comments and in quotes.
func TestNestingInBounds(t *testing.T) {
	t.Parallel()
	for name, text := range map[string]string{
		"open at once":      strings.Repeat("[", maxDepth) + strings.Repeat("]", maxDepth),
		"beside each other": "[" + strings.Repeat("[], {}, ", 1000) + "]",
		"in a comment":      "x # " + strings.Repeat("[", 1000),
		"in quotes":         `"` + strings.Repeat("[{", 1000) + `"`,
		"items":             strings.Repeat("- a\n", 1000),
	} {
		_, err := Parse([]byte(text), token)
		if err == nil || !strings.Contains(err.Error(), "want fields, found") {
			t.Errorf("%s: %.200v, want a refusal for the missing fields", name, err)
		}
	}
}

// at is a job file with one line in the place of its seventh.
func at(line string) string {
	return "apiVersion: v1\nkind: Job\nmetadata: {name: x}\nspec:\n  module: a.wasm\n  payment: {maxPrice: 1}\n" + line
}

// Each construct by which a file would mean something else than it shows is refused where it stands.
func TestHostileYAML(t *testing.T) {
	t.Parallel()
	for line, want := range map[string]string{
		"  env: &a {A: b}\n":                 "7:8: spec.env: anchors and aliases are not read: write the value out",
		"  args: [!!str 5]\n":                "7:10: spec.args[0]: tags are not read: write a plain value",
		"  env: {A: !!binary aGk=}\n":        "7:12: spec.env.A: tags are not read: write a plain value",
		"  count: !!int 3\n":                 "7:10: spec.count: tags are not read: write a plain value",
		"  env: {? [a] : b}\n":               "7:15: not YAML: found an invalid key for this map",
		"  count: .inf\n":                    "found something that is not plain YAML",
		"  count: 1_000\n":                   `7:10: spec.count: "1_000" is not a count`,
		"  count: 4294967296\n":              `7:10: spec.count: "4294967296" is not a count`,
		"  count: 0b11\n":                    `7:10: spec.count: "0b11" is not a count`,
		"  count: |\n    3\n":                "7:10: spec.count: want a whole number, found a block of text",
		"  count: {}\n":                      "7:10: spec.count: want a whole number, found fields",
		"  count: true\n":                    "7:10: spec.count: want a whole number, found true",
		"  args: {a: b}\n":                   "7:9: spec.args: want a list, found fields",
		"  args: ~\n  command: [a]\n":        "8:12: spec.command: spec.args is given, too: write one of them",
		"  \"env\\e[2J\": 1\n":               "7:3: spec.env?[2J: unknown field",
		"  health: 8080\n":                   "7:11: spec.health: want fields, found 8080",
		"  health: {http: {port: 0}}\n":      "7:25: spec.health.http.port: 0 is not a port: want 1 to 65535",
		"  health: {tcp: 65536}\n":           "7:17: spec.health.tcp: 65536 is not a port: want 1 to 65535",
		"  registryAuth: podman\n":           "7:17: spec.registryAuth: want docker, which takes",
		"  keep: 1 day\n":                    `7:9: spec.keep: "1 day" is not a length of time: want 30s, 10m or 1h30m`,
		"  restart: {backoff: [1s]}\n":       "7:22: spec.restart.backoff: want one value, found a list",
		"  webhooks: {url: x}\n":             "7:13: spec.webhooks: want a list",
		"  resources: {gpus: 2, units: 1}\n": "7:31: spec.resources.units: conflict with gpus",
		"  resources: {unproven: yes}\n":     `7:25: spec.resources.unproven: "yes", want true or false`,
		"  size: 3\n":                        "7:9: spec.size: write count for the ranks of a job, or kind: Cluster",
		"  timeout: 5m\n":                    "7:3: spec.timeout: unknown field, did you mean timeouts?",
		"  COUNT: 5\n":                       "7:3: spec.COUNT: unknown field, did you mean count?",
		"--- \na: b\n":                       "8:1: a second document: a file holds one job",
	} {
		_, err := Parse([]byte(at(line)), token)
		if !errors.Is(err, job.ErrInvalid) || !strings.Contains(err.Error()+"\n", want) {
			t.Errorf("%q:\ngot  %v\nwant %s", line, err, want)
		}
	}
}

// Values are the text that is written: nothing is rounded, translated or dropped.
func TestScalarsAreText(t *testing.T) {
	t.Parallel()
	const args = "  args: [5, 0.10, true, 010, 0x1F, 1e3, -0, yes, '', \"a\\tb\", 2001-01-01, 1_0]\n"
	j, err := Parse([]byte(at(args)), token)
	if err != nil {
		t.Fatal(err)
	}
	want := []string{"5", "0.10", "true", "010", "0x1F", "1e3", "-0", "yes", "", "a\tb", "2001-01-01", "1_0"}
	if !slices.Equal(j.Args, want) {
		t.Errorf("got %q, want %q", j.Args, want)
	}
	if _, err := Parse([]byte(at("  args: [null]\n")), token); !errors.Is(err, job.ErrInvalid) {
		t.Errorf("an argument of nothing: %v", err)
	}
	for _, empty := range []string{"  args:\n", "  env:\n", "  inputs: ~\n", "  restart:\n", "  secrets: []\n"} {
		if _, err := Parse([]byte(at(empty)), token); err != nil {
			t.Errorf("%q: %v, want an empty field", empty, err)
		}
	}
}

// An error never repeats the control characters of a file or a flag, which would write over a terminal.
func TestErrorsArePrintable(t *testing.T) {
	t.Parallel()
	const evil = "\x1b[2J\x07"
	long := strings.Repeat("x", 5000)
	files := []string{
		at("  env: {\"A\\e[2J\\a\": b}\n"), at("  env: {\"" + long + "\": b}\n"),
		strings.Replace(at(""), "{name: x}", "{labels: {\"\\e[2J\\a\": b}}", 1),
		strings.Replace(at(""), "{name: x}", "{labels: {\""+long+"\": b}}", 1),
		strings.Replace(at("  engine: {name: ray, \"\\e[2J\\a\": 1}\n"), "kind: Job", "kind: Cluster", 1),
		at("  module: \"\\e[2J\"\n"), at("  \"\\e[2J\": \"\\a\"\n"),
	}
	for _, f := range files {
		_, err := Parse([]byte(f), token)
		if err == nil || strings.ContainsAny(err.Error(), evil[:1]+evil[4:]) || len(err.Error()) > 1500 {
			t.Errorf("%.120q: %.300q", f, err)
		}
	}
	for _, f := range []Flags{{Env: []string{evil + "=1"}}, {Labels: []string{evil + "=1"}},
		{Env: []string{long + "-=1"}}} {
		f.Module, f.MaxPrice = "a.wasm", "1"
		if _, err := f.Job(token); err == nil || strings.ContainsAny(err.Error(), evil[:1]+evil[4:]) {
			t.Errorf("%.120q: %.300q", f.Env, err)
		}
	}
}

// The distance of words is a metric: nothing but equal words have none, it has no direction, and no detour is shorter.
func TestDistanceProperty(t *testing.T) {
	t.Parallel()
	word := rapid.StringMatching(`[ab]{0,6}`)
	rapid.Check(t, func(t *rapid.T) {
		a, b, c := word.Draw(t, "a"), word.Draw(t, "b"), word.Draw(t, "c")
		ab := distance(a, b)
		if (ab == 0) != (a == b) || ab != distance(b, a) || ab > max(len(a), len(b)) || ab < len(a)-len(b) {
			t.Fatalf("from %q to %q: %d, back %d", a, b, ab, distance(b, a))
		}
		if ab > distance(a, c)+distance(c, b) {
			t.Fatalf("from %q to %q: %d, over %q %d", a, b, ab, c, distance(a, c)+distance(c, b))
		}
		if distance(a, a+"x") != 1 || distance("x"+a, a) != 1 {
			t.Fatalf("a letter more than %q is not 1", a)
		}
	})
}

// A suggestion is a known field that is near, the first of several that are equally near, and none for a far word.
func TestNearest(t *testing.T) {
	t.Parallel()
	known := map[string]int{"module": 1, "image": 1, "count": 1, "inputs": 1, "outputs": 1, "args": 1, "ab": 1, "ac": 1}
	for key, want := range map[string]string{
		"modul": "module", "Module": "module", "input": "inputs", "imge": "image", "coutn": "count",
		"outputss": "outputs",
		"zzz":      "", "": "", "x": "", "a": "", "ad": "ab", "mo": "", strings.Repeat("module", 10): "",
	} {
		if got := nearest(key, known); got != want {
			t.Errorf("%q: got %q, want %q", key, got, want)
		}
	}
}
