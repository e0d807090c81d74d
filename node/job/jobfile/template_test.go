package jobfile

import (
	"errors"
	"path"
	"reflect"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/starling-network/starling/node/job"
)

const templateFile = `apiVersion: v1
kind: Job
metadata: {name: transcode}
parameters:
  image: {default: "acme/ffmpeg:7", about: image with ffmpeg}
  video: {about: the video, input: true}
  ranks: {default: "2", about: ranks}
  rate: {default: "30", about: frames per second}
smoke: {set: {video: test.mp4}, args: [-version], prints: done, needs: [gpu]}
spec:
  image: ${image}
  args: [-r, "${rate}/1", "a $${rate} $x $", '${rate}']
  env:
    SCRIPT: |
      echo ${HOME} ${rate}
  count: ${ranks}
  inputs:
    - {src: "${video}", dst: /in/video}
    - {src: "names/{rank}.txt", dst: /in/name.txt}
    - {src: "https://example.org/f", sha256: ` + sumOfNothing + `, dst: /in/f}
  resources: {gpus: "h100:1,vram>=24"}
  timeouts: {run: 10m}
`

const sumOfNothing = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"

func placed(file string) string { return path.Join("/t", file) }

func fill(t *testing.T, text string, values map[string]string) (Template, *Draft) {
	t.Helper()
	tm, d, err := ReadTemplate([]byte(text), values, placed)
	if err != nil {
		t.Fatal(err)
	}
	return tm, d
}

// Values are inserted, the template's own files are placed, and the user's files are not.
func TestReadTemplate(t *testing.T) {
	t.Parallel()
	tm, d := fill(t, templateFile, map[string]string{"video": "my/film.mov", "rate": "25"})
	j, err := Flags{MaxPrice: "1", Env: []string{"MORE=1"}, Inputs: []string{"x:/in/x"}, Run: "5m"}.Over(d, token)
	if err != nil {
		t.Fatal(err)
	}
	if want := []string{"-r", "25/1", "a ${rate} $x $", "25"}; !slices.Equal(j.Args, want) {
		t.Errorf("arguments %q, want %q", j.Args, want)
	}
	var sources []string
	for _, in := range j.Inputs {
		sources = append(sources, in.Source)
	}
	want := []string{"my/film.mov", "/t/names/{rank}.txt", "https://example.org/f#sha256=" + sumOfNothing, "x"}
	if !slices.Equal(sources, want) || j.Count != 2 || j.Image != "acme/ffmpeg:7" || j.Name != "transcode" ||
		j.Timeouts.Run.Minutes() != 5 || j.Resources.Class != "gpu/h100" {
		t.Errorf("sources %q, want %q; job %+v", sources, want, j)
	}
	if script := map[string]string{"SCRIPT": "echo ${HOME} ${rate}\n", "MORE": "1"}; !reflect.DeepEqual(j.Env, script) {
		t.Errorf("variables %q", j.Env)
	}
	wantSmoke := Smoke{map[string]string{"video": "test.mp4"}, []string{"-version"}, "done", []string{"gpu"}}
	if !reflect.DeepEqual(tm.Smoke, wantSmoke) || !slices.Equal(tm.Files, []string{"names/{rank}.txt"}) || tm.Kind != Kind {
		t.Errorf("got %+v", tm)
	}
	if p := tm.Parameters[1]; p.Name != "video" || !p.Required || !p.Input || tm.Parameters[2].Default != "2" {
		t.Errorf("parameters %+v", tm.Parameters)
	}
	described, err := DescribeTemplate([]byte(templateFile))
	if tm.Files = nil; err != nil || !reflect.DeepEqual(described, tm) {
		t.Errorf("described as %+v, %v", described, err)
	}
}

// Flags replace fields and their dependants: arguments, the GPUs, and a health check.
func TestOver(t *testing.T) {
	t.Parallel()
	text := strings.Replace(templateFile, "  timeouts:", "  health: {http: {port: 80}, interval: 7s}\n  timeouts:", 1)
	over := func(f Flags) job.Job {
		t.Helper()
		_, d := fill(t, text, map[string]string{"video": "v"})
		f.MaxPrice = "1"
		j, err := f.Over(d, token)
		if err != nil {
			t.Fatal(err)
		}
		return j
	}
	if j := over(Flags{Class: "cpu", Args: []string{"x"}}); j.Resources.PerUnit.VRAMMiB != 0 || j.Resources.Units != 1 ||
		j.Resources.Class != "cpu" || !slices.Equal(j.Args, []string{"x"}) {
		t.Errorf("got %+v", j)
	}
	if h := over(Flags{HealthTCP: "81"}).Health; h.HTTP != nil || h.TCP != 81 || h.Interval.String() != "7s" {
		t.Errorf("got %+v", h)
	}
	if h := over(Flags{HealthWait: "3s"}).Health; h.HTTP == nil || h.HTTP.Port != 80 || h.Timeout.String() != "3s" {
		t.Errorf("got %+v", h)
	}
	cluster := "apiVersion: v1\nkind: Cluster\nsmoke: {prints: x}\nspec: {size: 2, image: a:1, engine: mpi, command: [a]}\n"
	_, d := fill(t, cluster, nil)
	j, err := Flags{MaxPrice: "1", Count: "3", Args: []string{"b", "c"}}.Over(d, token)
	if err != nil || j.Count != 3 || !slices.Equal(j.Cluster.Command, []string{"b", "c"}) || len(j.Args) > 0 {
		t.Errorf("got %+v, %v", j, err)
	}
}

// Problems of a completed job are at the template's line, or at the flag that is wrong or missing.
func TestOverLocates(t *testing.T) {
	t.Parallel()
	text := strings.Replace(templateFile, "{run: 10m}", "{run: 900h}", 1)
	for want, f := range map[string]Flags{
		"22:19: spec.timeouts.run: ":            {MaxPrice: "1"},
		"--max-price: missing":                  {Run: "1h"},
		"--timeout: 999h0m0s, want":             {MaxPrice: "1", Run: "999h"},
		"--count: 0, want 1 to":                 {MaxPrice: "1", Run: "1h", Count: "0"},
		"--env: not a variable's name: want le": {MaxPrice: "1", Run: "1h", Env: []string{"1=1"}},
	} {
		_, d := fill(t, text, map[string]string{"video": "v"})
		if _, err := f.Over(d, token); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: %v, want %q", f, err, want)
		}
	}
}

// A line of a template in the place of another is refused, with its line.
func TestTemplateRefused(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ old, new, want string }{
		{"${image}", "${imag}", `11:10: spec.image: no parameter is called "imag"; write $${ for the text ${`},
		{"${image}", "${image", `11:10: spec.image: "${image" has no closing brace`},
		{"${image}", "a:1", "5:10: parameters.image: not used: want ${image} in spec"},
		{"  rate:", "  Rate:", "8:3: parameters.Rate: not a parameter's name"},
		{"about: ranks}", "abuot: ranks}", "7:25: parameters.ranks.abuot: unknown field, did you mean about?"},
		{", about: ranks}", "}", "7:3: parameters.ranks.about: missing"},
		{"input: true", "input: yes", `6:36: parameters.video.input: "yes", want true or false`},
		{"set: {video", "set: {movie", "9:22: smoke.set.movie: no such parameter"},
		{"set: {video", `set: {"\a\e[2J"`, "9:26: smoke.set.??[2J: no such parameter"},
		{"prints: done, ", "", "9:8: smoke.prints: missing"},
		{"needs: [gpu]", "needs: [gold]", `smoke.needs: "gold", want gpu or internet`},
		{"smoke:", "smoker:", "smoke: missing"},
		{"smoke:", "smoke: {prints: x}\nsmoke:", `not YAML: mapping key "smoke" already defined`},
		{"count: ${ranks}", "count: \"${rate}x${ranks}\"", `16:10: spec.count: want a whole number, found the text "30x2"`},
		{"  image: ${", "  imago: ${", "11:3: spec.imago: unknown field, did you mean image?"},
		{"  env:", "  env: &a\n    A: b\n  labels:", "anchors and aliases are not read"},
	} {
		text := strings.Replace(templateFile, c.old, c.new, 1)
		_, _, err := ReadTemplate([]byte(text), map[string]string{"video": "v"}, placed)
		if !errors.Is(err, job.ErrInvalid) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s:\ngot  %v\nwant %s", c.new, err, c.want)
		}
	}
	for want, values := range map[string]map[string]string{
		"--set: video is required: the video":                           nil,
		`--set: "vide": no such parameter, did you mean video?`:         {"video": "a", "vide": "b"},
		`--set: "x": no such parameter: want image, ranks, rate, video`: {"video": "a", "x": "b"},
		"--set: rate: want one line of at most 4096 bytes":              {"video": "a", "rate": "1\n2"},
		`16:10: spec.count: want a whole number, found the text "many"`: {"video": "a", "ranks": "many"},
		`16:10: spec.count: want a whole number, found the text "0x2"`:  {"video": "a", "ranks": "0x2"},
	} {
		_, _, err := ReadTemplate([]byte(templateFile), values, placed)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %s", values, err, want)
		}
	}
	if _, err := Parse([]byte(templateFile), token); err == nil || !strings.Contains(err.Error(),
		"5:3: parameters: this is a template's job file: starling run --template DIRECTORY reads it") {
		t.Errorf("a template as a job file: %v", err)
	}
}

// A template gets no file, variable, credential or money of the user, and does not choose the providers.
func TestAttackTemplateReadsUser(t *testing.T) {
	t.Parallel()
	const id = "bafkreihdwdcefgh4dqkjv67uzcmw7ojee6xedzdetojuzjevtenxquvyku"
	source := func(text string) string { return "  inputs: [{src: \"" + text + "\", dst: /in/a}]\n" }
	for _, line := range []string{
		"  secrets: [{name: A, env: A, from: env:AWS_SECRET_ACCESS_KEY}]\n",
		"  secrets: [{name: A, from: file:/root/.ssh/id_ed25519}]\n",
		"  registryAuth: docker\n",
		"  registryAuth: {username: a, passwordFrom: env:TOKEN}\n",
		"  webhooks: [{url: https://example.org/hook, secretFrom: env:TOKEN}]\n",
		"  webhooks: [{url: https://example.org/hook}]\n",
		"  payment: {maxPrice: 1000000}\n", "  payment: {budget: 1000000}\n", "  payment: {}\n",
		"  guardians: 5\n", "  standbys: 4\n", "  probes: \"off\"\n",
		"  placement: {regions: [mine]}\n", "  placement: {exclude: []}\n", "  resources: {unproven: true}\n",
		source("/etc/passwd"), source("../../etc/passwd"), source("a/../../b"), source("./a"), source("."), source(""),
		source("file:/etc/passwd"), source("file:///etc/passwd"), source("file:../a"), source("a\\\\b"), source("c:a"),
		source("~/.ssh/id_ed25519 "[:1] + "/../x"), source("//a"), source("a//b"), source("a/"),
		source("cid:" + id), source("s3://bucket/key"), source("s3://bucket/folder/"), source("hf://me/private/w.bin"),
		source("https://example.org/f"), source("https://169.254.169.254/latest"), source("http://example.org/f"),
		source("${text}"), source("${set}"), source("s3://${set}/key"), source("${open}"), source("/home/${open}"),
		source("${open}/../x"), source("${set}${open}"), source("../${open}"),
		"  rounds: {count: 2, reduce: {module: m.wasm}}\n",
	} {
		text := "apiVersion: v1\nkind: Job\nparameters:\n  set: {about: a, default: /etc/passwd}\n" +
			"  open: {about: a, default: /etc/passwd, input: true}\n  text: {about: a, default: \"cid:" + id + "\"}\n" +
			"smoke: {prints: a}\nspec:\n  module: m.wasm\n  args: [\"${set}\", \"${open}\", \"${text}\"]\n" + line
		// The user sets a parameter that is not an input, to the name of a file that lies here.
		_, _, err := ReadTemplate([]byte(text), map[string]string{"set": "/etc/hosts"}, placed)
		if !errors.Is(err, job.ErrInvalid) || !strings.Contains(err.Error(), "11:") {
			t.Errorf("%s: %v", line, err)
		}
	}
	for _, module := range []string{"/bin/a.wasm", "../m.wasm", "cid:" + id, "https://example.org/m.wasm"} {
		text := "apiVersion: v1\nkind: Job\nsmoke: {prints: a}\nspec:\n  module: " + module + "\n"
		if _, _, err := ReadTemplate([]byte(text), nil, placed); err == nil || !strings.Contains(err.Error(), "5:11: spec.module") {
			t.Errorf("%s: %v", module, err)
		}
	}
}

// A file that differs from a template in some places is refused or read, and never panics.
func TestAttackMutatedTemplate(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		b := []byte(templateFile)
		for range rapid.IntRange(1, 6).Draw(t, "changes") {
			at := rapid.IntRange(0, len(b)-1).Draw(t, "at")
			switch to := min(len(b), at+rapid.IntRange(1, 40).Draw(t, "length")); rapid.IntRange(0, 2).Draw(t, "kind") {
			case 0:
				b[at] = rapid.ByteRange(0, 127).Draw(t, "byte")
			case 1:
				b = append(b[:at:at], append([]byte(" "), b[to:]...)...)
			case 2:
				b = append(b[:at:at], append(slices.Clone(b[at:to]), b[at:]...)...)
			}
		}
		_, d, err := ReadTemplate(b, map[string]string{"video": "v"}, placed)
		if err == nil {
			_, _ = Flags{MaxPrice: "1"}.Over(d, token)
		}
		_, _ = DescribeTemplate(b)
	})
}

// A value is one value of the job, whatever its text.
func TestValueIsOneValue(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		value := rapid.StringMatching("[ -~]{0,40}").Draw(t, "value")
		_, d, err := ReadTemplate([]byte(templateFile), map[string]string{"video": "v", "rate": value}, placed)
		if err != nil {
			t.Fatal(err)
		}
		j, err := Flags{MaxPrice: "1"}.Over(d, token)
		if want := []string{"-r", value + "/1", "a ${rate} $x $", value}; err != nil || !slices.Equal(j.Args, want) {
			t.Fatalf("arguments %q, want %q, %v", j.Args, want, err)
		}
	})
}

// No text makes a template panic, or read a file outside.
func FuzzReadTemplate(f *testing.F) {
	f.Add([]byte(templateFile), "video")
	f.Fuzz(func(t *testing.T, data []byte, name string) {
		tm, d, err := ReadTemplate(data, map[string]string{name: "value"}, placed)
		if err != nil {
			return
		}
		for _, file := range tm.Files {
			if strings.HasPrefix(file, "/") || strings.Contains("/"+file+"/", "/../") {
				t.Errorf("reads %q", file)
			}
		}
		j, err := Flags{MaxPrice: "1"}.Over(d, token)
		if err == nil && j.NeedsValues() {
			t.Errorf("needs values: %+v", j)
		}
	})
}
