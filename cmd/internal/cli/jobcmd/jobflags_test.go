package jobcmd

import (
	"reflect"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"github.com/starling-network/starling/cmd/internal/cli"
	"github.com/starling-network/starling/cmd/internal/cli/clitest"
	"github.com/starling-network/starling/node/job"
	"github.com/starling-network/starling/node/job/jobfile"
)

// The flags of a job, through the command line, make what the job package reads of them.
func TestJobFlagsReachTheJob(t *testing.T) {
	t.Parallel()
	var got job.Job
	cmd := func(*cli.App) *cobra.Command {
		c := &cobra.Command{Use: "run MODULE [-- ARGS]", Args: cobra.MinimumNArgs(1)}
		f := JobFlags(c)
		c.RunE = func(_ *cobra.Command, args []string) (err error) {
			f.Module, f.Args = args[0], args[1:]
			got, err = f.Job(jobfile.Token{Decimals: 6})
			return err
		}
		return c
	}
	code, _, text := clitest.Run(t, cmd, "run", "-n", "5", "--cpu", "0.5", "--memory", "256Mi", "--disk", "1Gi", "--units", "2", "--class", "cpu",
		"--name", "lm", "-l", "team=a", "-e", "SEED=1", "-e", "LIST=a,b", "--region", "local,eu-west", "--exclude", "SysvarC1ock11111111111111111111111111111111",
		"--spread", "pack", "-i", "shards/{rank}.bin:/data/shard.bin", "--out", "/out", "--retries", "1", "--queue-timeout", "30s",
		"--timeout", "10m", "--max-price", "0.05", "--budget", "0.25", "lm.wasm", "--", "train", "--steps", "200")
	if code != 0 {
		t.Fatal(text)
	}
	want, err := jobfile.Parse([]byte(`
apiVersion: v1
kind: Job
metadata: {name: lm, labels: {team: a}}
spec:
  module: lm.wasm
  args: [train, --steps, 200]
  env: {SEED: 1, LIST: "a,b"}
  count: 5
  resources: {class: cpu, units: 2, cpu: 0.5, memory: 256Mi, disk: 1Gi}
  placement: {regions: [local, eu-west], exclude: [SysvarC1ock11111111111111111111111111111111], spread: pack}
  inputs: [{src: "shards/{rank}.bin", dst: /data/shard.bin}]
  outputs: [{src: /out}]
  restart: {max: 1}
  timeouts: {queue: 30s, run: 10m}
  payment: {maxPrice: 0.05, budget: 0.25}
`), jobfile.Token{Decimals: 6})
	if err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("the flags make\n%+v\nthe file\n%+v", got, want)
	}
	code, _, text = clitest.Run(t, cmd, "run", "lm.wasm", "--count", "three")
	if code != int(cli.ExitUsage) || !strings.Contains(text, `--count: "three" is not a count`) {
		t.Errorf("code %d, %q", code, text)
	}
}

// Flags that docker has are accepted where they change nothing, and refused with the replacement where there is one.
func TestFlagsOfDocker(t *testing.T) {
	t.Parallel()
	for line, want := range map[string]string{
		"quote -it app:1":    "starling exec -it",
		"quote -i -t app:1":  "starling exec -it",
		"run -p 80:80 app:1": "starling job port-forward",
		"run -u 1000 app:1":  "--user: the user of a container cannot be chosen",
		"run app:1 sh -c x":  "come after --: starling run app:1 -- …",
		"run app:1 --fast":   "come after --: starling run app:1 -- …",
		"run --fast app:1":   "unknown flag: --fast",
	} {
		command := newRun
		if strings.HasPrefix(line, "quote") {
			command = NewQuote
		}
		code, _, text := clitest.Run(t, command, strings.Fields(line)...)
		if code != int(cli.ExitUsage) || !strings.Contains(text, want) {
			t.Errorf("%s: exit code %d, got %q, want %q", line, code, text, want)
		}
	}
}
