package jobfile

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"reflect"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/node/job"
)

const (
	decimals  = 6
	testImage = "acme/x@sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
)

var token = Token{Decimals: decimals}

// TestJobFiles holds what job files read as, and every message of refusal, in testdata. Run with -rewrite after a change on purpose.
func TestJobFiles(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"accepted", "refused", "later", "flags", "clusters"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			datadriven.RunTest(t, "testdata/"+name, func(t *testing.T, d *datadriven.TestData) string {
				var j job.Job
				var err error
				switch d.Cmd {
				case "job":
					j, err = Parse([]byte(d.Input), token)
				case "flags":
					var f Flags
					dec := json.NewDecoder(strings.NewReader(d.Input))
					dec.DisallowUnknownFields()
					if err := dec.Decode(&f); err != nil {
						t.Fatal(err)
					}
					j, err = f.Job(token)
				}
				if err != nil {
					var kinds []string
					for _, kind := range []error{job.ErrInvalid, job.ErrNotSupported} {
						if errors.Is(err, kind) {
							kinds = append(kinds, kind.Error())
						}
					}
					return fmt.Sprintf("[%s]\n%v\n", strings.Join(kinds, "] ["), err)
				}
				b, err := job.Marshal(j)
				if err != nil {
					t.Fatal(err)
				}
				var pretty bytes.Buffer
				if err := json.Indent(&pretty, b, "", " "); err != nil {
					t.Fatal(err)
				}
				return j.String() + "\n" + pretty.String() + "\n"
			})
		})
	}
}

const fullFile = `apiVersion: v1
kind: Job
metadata: {name: lm, labels: {team: a}}
spec:
  module: build/lm.wasm
  args: [train, --steps, 200]
  env: {SEED: 1}
  count: 5
  resources: {class: cpu, units: 2, cpu: 0.5, memory: 256Mi, disk: 1Gi, unproven: true}
  placement:
    regions: [local, eu-west]
    exclude: [SysvarC1ock11111111111111111111111111111111]
    spread: pack
  inputs: [{src: "shards/{rank}.bin", dst: /data/shard.bin}]
  outputs: [{src: /out}]
  restart: {max: 1}
  timeouts: {queue: 30s, run: 10m}
  payment: {maxPrice: 0.05/unit-hour, budget: 0.25}
`

func fullFlags() Flags {
	return Flags{
		Name: "lm", Labels: []string{"team=a"}, Module: "build/lm.wasm", Args: []string{"train", "--steps", "200"},
		Env: []string{"SEED=1"}, Count: "5", Class: "cpu", Units: "2", CPU: "500m", Memory: "0.25Gi", Disk: "1024Mi", Unproven: true,
		Regions: []string{"local", "eu-west"}, Exclude: []string{"SysvarC1ock11111111111111111111111111111111"},
		Spread: "pack", Inputs: []string{"src=shards/{rank}.bin,dst=/data/shard.bin"},
		Outputs: []string{"/out"}, Retries: "1", Queue: "30s", Run: "600s", MaxPrice: "0.050", Budget: "0.25",
	}
}

func TestFlagsAndFileMakeTheSameJob(t *testing.T) {
	t.Parallel()
	file, err := Parse([]byte(fullFile), token)
	if err != nil {
		t.Fatal(err)
	}
	flags, err := fullFlags().Job(token)
	if err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(file, flags) {
		t.Errorf("the file makes\n%+v\nthe flags make\n%+v", file, flags)
	}
	short, err := Flags{Module: "lm.wasm", MaxPrice: "1"}.Job(token)
	if err != nil {
		t.Fatal(err)
	}
	long, err := Parse([]byte("{apiVersion: v1, kind: Job, spec: {module: lm.wasm, payment: {maxPrice: 1}}}"), token)
	if err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(short, long) {
		t.Errorf("the file makes\n%+v\nthe flags make\n%+v", long, short)
	}
}

// A price on a free network is refused for that reason, with and without decimals.
func TestPriceOnFreeNetwork(t *testing.T) {
	t.Parallel()
	for _, price := range []string{"0.5", "1"} {
		_, err := Flags{Module: "lm.wasm", MaxPrice: price}.Job(Token{Free: true})
		if err == nil || !strings.Contains(err.Error(), "--max-price: ") || !strings.Contains(err.Error(), "free network") ||
			!strings.Contains(err.Error(), "leave it out") {
			t.Errorf("%s: got %v", price, err)
		}
	}
}

func TestMoneyIsExact(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]market.Price{
		"0.05": 50_000, "0.1": 100_000, "0.000001": 1, "18446744073709.551615": 1<<64 - 1, "3/unit-hour": 3_000_000,
	} {
		if got, err := parsePrice(text, token); err != nil || got != want {
			t.Errorf("parsePrice(%q) = %d, %v, want %d", text, got, err, want)
		}
	}
	for _, text := range []string{"", "-1", "+1", "1e3", "0x1", "1_0", ".5", "5.", "0.0000001", "18446744073709.551616", "1/gpu-hour", "NaN"} {
		if got, err := parsePrice(text, token); err == nil {
			t.Errorf("parsePrice(%q) = %d, want an error", text, got)
		}
	}
}

func TestHugeFilesAreRefusedAtOnce(t *testing.T) {
	t.Parallel()
	for name, text := range map[string]string{
		"long":     strings.Repeat("#", MaxFile+1),
		"brackets": strings.Repeat("[", MaxFile),
		"braces":   strings.Repeat("{a: ", MaxFile/4),
		"aliases":  "a: &a [x, x]\nb: &b [*a, *a]\nc: &c [*b, *b]\n",
	} {
		if _, err := Parse([]byte(text), token); !errors.Is(err, job.ErrInvalid) {
			t.Errorf("%s: %v, want ErrInvalid", name, err)
		}
	}
	var many strings.Builder
	many.WriteString("apiVersion: v1\nkind: Job\nspec:\n")
	for i := range 100 {
		fmt.Fprintf(&many, "  nonsense%d: 1\n", i)
	}
	_, err := Parse([]byte(many.String()), token)
	if n := strings.Count(err.Error(), "\n"); n != 20 {
		t.Errorf("100 problems make %d lines, want %d and one that counts the rest", n, 20)
	}
}

// FuzzParse: no file makes the reader panic, and a job that it accepts survives JSON.
func FuzzParse(f *testing.F) {
	for _, name := range []string{"accepted", "refused", "later", "clusters"} {
		seeds, err := os.ReadFile("testdata/" + name)
		if err != nil {
			f.Fatal(err)
		}
		for _, seed := range bytes.Split(seeds, []byte("\njob\n")) {
			body, _, _ := bytes.Cut(seed, []byte("\n----\n"))
			f.Add(body)
		}
	}
	f.Add([]byte(fullFile))
	f.Fuzz(func(t *testing.T, data []byte) {
		j, err := Parse(data, token)
		if err != nil {
			if !errors.Is(err, job.ErrInvalid) && !errors.Is(err, job.ErrNotSupported) {
				t.Fatalf("%v is of no kind", err)
			}
			return
		}
		if again := roundTrip(t, j); !reflect.DeepEqual(j, again) {
			t.Fatalf("got %+v back for %+v", again, j)
		}
	})
}

func roundTrip(t interface{ Fatal(...any) }, j job.Job) job.Job {
	b, err := job.Marshal(j)
	if err != nil {
		t.Fatal(err)
	}
	again, err := job.Unmarshal(b)
	if err != nil {
		t.Fatal(err)
	}
	return again
}

// flagsJob is the job of flags, at a price of 1.
func flagsJob(t *testing.T, f Flags) job.Job {
	t.Helper()
	f.MaxPrice = "1"
	j, err := f.Job(token)
	if err != nil {
		t.Fatal(err)
	}
	return j
}
