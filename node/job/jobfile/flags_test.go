package jobfile

import (
	"errors"
	"github.com/starling-network/starling/node/job"
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"
)

// sameAs are the lines of a job file's spec (or of the file, with metadata) that equal one flag.
var sameAs = []struct {
	flags Flags
	file  string
}{
	{Flags{Name: "x"}, "metadata: {name: x}"},
	{Flags{Labels: []string{"a=b=c", "d="}}, "metadata: {labels: {a: b=c, d: ''}}"},
	{Flags{Args: []string{"-x", ""}}, "args: [-x, '']"},
	{Flags{Env: []string{"A=b=c", "D="}}, "env: {A: b=c, D: ''}"},
	{Flags{Count: "7"}, "count: 7"},
	{Flags{Class: "gpu"}, "resources: {class: gpu}"},
	{Flags{Units: "3"}, "resources: {units: 3}"},
	{Flags{GPUs: "h100:2,vram>=40"}, "resources: {gpus: 'h100:2,vram>=40'}"},
	{Flags{Unproven: true}, "resources: {unproven: true}"},
	{Flags{CPU: "1.5"}, "resources: {cpu: 1500m}"},
	{Flags{Memory: "1Gi"}, "resources: {memory: 1024Mi}"},
	{Flags{Disk: "1Gi"}, "resources: {disk: 1024Mi}"},
	{Flags{Regions: []string{"a", "b"}}, "placement: {regions: [a, b]}"},
	{Flags{Exclude: []string{"SysvarC1ock11111111111111111111111111111111"}},
		"placement: {exclude: [SysvarC1ock11111111111111111111111111111111]}"},
	{Flags{Spread: "pack"}, "placement: {spread: pack}"},
	{Flags{Spread: "peer"}, "placement: {spread: peer}"},
	{Flags{Inputs: []string{"a:/b/c"}}, "inputs: [{src: a, dst: /b/c}]"},
	{Flags{Outputs: []string{"/a", "/b"}}, "outputs: [{src: /a}, {src: /b}]"},
	{Flags{Only: []string{"SysvarC1ock11111111111111111111111111111111"}},
		"placement: {only: [SysvarC1ock11111111111111111111111111111111]}"},
	{Flags{Volumes: []string{"data:/data", "model:/m:ro"}}, "volumes: {data: /data, model: '/m:ro'}"},
	{Flags{Ckpt: "/ckpt"}, "checkpoint: {path: /ckpt}"},
	{Flags{Copies: "3:30d:0.0002", Outputs: []string{"/out"}},
		"copies: {count: 3, for: 720h, maxPrice: 0.0002/unit-hour}\n  outputs: [{src: /out}]"},
	{Flags{Ckpt: "/ckpt:90s"}, "checkpoint: {path: /ckpt, every: 1m30s}"},
	{Flags{Scratch: "50Gi"}, "scratch: 51200Mi"},
	{Flags{Retries: "0"}, "restart: {max: 0}"},
	{Flags{Restart: "always"}, "restart: {policy: always}"},
	{Flags{Restart: "on-failure", Backoff: "0s"}, "restart: {policy: on-failure, backoff: 0s}"},
	{Flags{Queue: "90s"}, "timeouts: {queue: 1m30s}"},
	{Flags{Pull: "1h"}, "timeouts: {pull: 60m}"},
	{Flags{Start: "1h"}, "timeouts: {start: 60m}"},
	{Flags{Run: "1.5h"}, "timeouts: {run: 90m}"},
	{Flags{Stop: "500ms"}, "timeouts: {stop: 0.5s}"},
	{Flags{Keep: "1h"}, "keep: 3600s"},
	{Flags{Idle: "30m"}, "idle: 1800s"},
	{Flags{Guards: "3"}, "guardians: 3"},
	{Flags{Guards: "5", Standbys: "0"}, "guardians: 5\n  standbys: 0"},
	{Flags{Budget: "0.000001"}, "payment: {maxPrice: 1, budget: 0.000001}"},
	{Flags{Probes: "move"}, "probes: move"},
	{Flags{Probes: "warn"}, ""},
	{Flags{Verify: "none"}, ""},
	{Flags{Entrypoint: "sh"}, "entrypoint: [sh]"},
	{Flags{WorkDir: "/w"}, "workDir: /w"},
	{Flags{Shm: "8Gi"}, "shmSize: 8192Mi"},
	{Flags{Network: "internet"}, "network: internet"},
	{Flags{Network: "none"}, "network: none"},
	{Flags{Secrets: []string{"a=file:x=y"}}, "secrets: [{name: a, from: 'file:x=y'}]"},
	{Flags{SecretEnv: []string{"A=env:B"}}, "secrets: [{env: A, from: env:B}]"},
	{Flags{RegistryAuth: "docker"}, "registryAuth: docker"},
	{Flags{RegistryAuth: "me=env:P"}, "registryAuth: {username: me, passwordFrom: env:P}"},
	{Flags{HealthCmd: "curl x"}, "health: {command: [/bin/sh, -c, curl x]}"},
	{Flags{HealthTCP: "80", HealthWait: "1s"}, "health: {tcp: 80, timeout: 1s}"},
	{Flags{HealthHTTP: ":80"}, "health: {http: {port: 80}}"},
	{Flags{HealthHTTP: "80/a?b", HealthEvery: "5s", HealthTries: "9", HealthStart: "1m"},
		"health: {http: {port: 80, path: '/a?b'}, interval: 5s, retries: 9, startPeriod: 60s}"},
	{Flags{Webhooks: []string{"https://a/b"}}, "webhooks: [{url: 'https://a/b'}]"},
}

// Each flag makes the job that its field makes, and every flag of the table of flags is tried.
func TestEachFlagIsItsField(t *testing.T) {
	t.Parallel()
	tried := map[string]bool{"Module": true, "MaxPrice": true}
	for _, c := range sameAs {
		meta, line := "", c.file
		if strings.HasPrefix(line, "metadata") {
			meta, line = line+"\n", ""
		}
		if !strings.Contains(line, "payment") {
			line += "\n  payment: {maxPrice: 1}"
		}
		text := "apiVersion: v1\nkind: Job\n" + meta + "spec:\n  image: " + testImage + "\n  " + line + "\n"
		file, err := Parse([]byte(text), token)
		if err != nil {
			t.Errorf("%s: %v", c.file, err)
			continue
		}
		f := c.flags
		f.Module, f.MaxPrice = testImage, "1"
		flags, err := f.Job(token)
		if err != nil || !reflect.DeepEqual(file, flags) {
			t.Errorf("%s: the flags make\n%+v, %v\nthe file\n%+v", c.file, flags, err, file)
		}
		for v, i := reflect.ValueOf(c.flags), 0; i < v.NumField(); i++ {
			if !v.Field(i).IsZero() {
				tried[v.Type().Field(i).Name] = true
			}
		}
	}
	for i, typ := 0, reflect.TypeFor[Flags](); i < typ.NumField(); i++ {
		refused := []string{"Privileged", "CapAdd", "Devices", "Security", "PID", "IPC", "Publish", "TTY", "User"}
		if name := typ.Field(i).Name; !tried[name] && !slices.Contains(refused, name) {
			t.Errorf("no case sets %s", name)
		}
	}
}

// Defaults hold where a field is absent, and a zero that is written is no absence.
func TestDefaults(t *testing.T) {
	t.Parallel()
	j := flagsJob(t, Flags{Module: "a.wasm"})
	want := job.Timeouts{Queue: job.DefaultQueue, Run: job.DefaultRun}
	if j.Count != 1 || j.Resources.Class != job.DefaultClass || j.Resources.Units != 1 || j.Restart.Max != job.DefaultRestart ||
		j.Restart.Policy != job.RestartNever || j.Restart.Backoff != 0 || j.Timeouts != want ||
		j.Timeouts.Grace() != job.DefaultStop {
		t.Errorf("got %+v", j)
	}
	h := flagsJob(t, Flags{Module: testImage, HealthTCP: "80"}).Health
	if h.Interval != job.DefaultHealthEvery || h.Timeout != job.DefaultHealthTimeout || h.Retries != job.DefaultHealthRetries {
		t.Errorf("got %+v", h)
	}
	for line, field := range map[string]string{
		"count: 0": "spec.count", "resources: {units: 0}": "spec.resources.units",
		"resources: {class: ''}": "spec.resources.class",
		"timeouts: {queue: 0s}":  "spec.timeouts.queue", "timeouts: {run: 0s}": "spec.timeouts.run",
		"health: {tcp: 1, interval: 0s}": "spec.health.interval",
		"health: {tcp: 1, timeout: 0s}":  "spec.health.timeout",
		"health: {tcp: 1, retries: 0}":   "spec.health.retries", "rounds: {count: 0}": "spec.rounds.count",
	} {
		_, err := Parse([]byte(strings.Replace(at("  "+line+"\n"), "module: a.wasm", "image: "+testImage, 1)), token)
		wrong, ok := errors.AsType[*job.Error](err)
		if !ok || len(wrong.Problems) != 1 || wrong.Problems[0].Field != field {
			t.Errorf("%s: got %v, want a refusal of %s", line, err, field)
		}
	}
	if g := flagsJob(t, Flags{Module: "a.wasm", Guards: "3"}); g.Standbys != job.DefaultStandbys {
		t.Errorf("%d standbys, want %d", g.Standbys, job.DefaultStandbys)
	}
	if name := flagsJob(t,
		Flags{Module: "docker://ghcr.io/acme/my.app_2:v1@sha256:" + testImage[len(testImage)-64:]}).Name; name != "my" {
		t.Errorf("the name is %q", name)
	}
}

// A secret without a name has that of its variable or its file; both at once stay a contradiction.
func TestSecretNames(t *testing.T) {
	t.Parallel()
	parse := func(secret string) (job.Secret, error) {
		j, err := Parse([]byte(at("  env: {PLAIN: '', FULL: x}\n  secrets: [{"+secret+", from: env:S}]\n")), token)
		if err != nil {
			return job.Secret{}, err
		}
		return j.Secrets[0], nil
	}
	for text, want := range map[string]job.Secret{
		"name: a":          {Name: "a"},
		"env: A":           {Name: "A", Env: "A"},
		"file: a.pem":      {Name: "a.pem"},
		"name: a, env: B":  {Name: "a", Env: "B"},
		"name: a, file: b": {Name: "a", File: "b"},
	} {
		want.From = "env:S"
		if got, err := parse(text); err != nil || got != want {
			t.Errorf("%s: got %+v, %v, want %+v", text, got, err, want)
		}
	}
	for text, field := range map[string]string{
		"env: A, file: b": "spec.secrets[0]", "name: c, env: A, file: b": "spec.secrets[0]",
		"env: FULL": "spec.secrets[0].env", "env: PLAIN": "spec.secrets[0].env", "env: 1A": "spec.secrets[0].env",
		"env: ''": "spec.secrets[0].name", "file: ../x": "spec.secrets[0].name",
		"name: a, file: .x": "spec.secrets[0].file",
	} {
		_, err := parse(text)
		if wrong, ok := errors.AsType[*job.Error](err); !ok || wrong.Problems[0].Field != field {
			t.Errorf("%s: got %v, want a refusal of %s", text, err, field)
		}
	}
	for _, s := range []job.Secret{{Name: "a"}, {Name: "b", File: "a"}} {
		if s.FileName() != "a" || (job.Secret{Name: "a", Env: "A"}).FileName() != "" {
			t.Errorf("%+v is the file %q", s, s.FileName())
		}
	}
}

// Job files hold what docker has and no provider gives, each as a refusal and not as a misspelling.
func TestNeverIsNoMisspelling(t *testing.T) {
	t.Parallel()
	for _, field := range slices.Sorted(maps.Keys(job.Never)) {
		if field == job.EngineSocket { // a path and no field
			continue
		}
		_, err := Parse([]byte(at("  "+field+": 1\n")), token)
		if err == nil || !strings.HasSuffix(err.Error(), job.Never[field]) || strings.Contains(err.Error(), "unknown") {
			t.Errorf("%s: %v", field, err)
		}
	}
}
