package jobfile

import (
	"fmt"
	"strings"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/node/job"
)

// never refuses the flags that docker has and Starling has not.
func (f Flags) never(r *flagReader) {
	for _, asked := range []struct {
		flag, why string
		given     bool
	}{
		{"--privileged", "privileged", f.Privileged},
		{"--cap-add", "capAdd", len(f.CapAdd) > 0},
		{"--device", "devices", len(f.Devices) > 0},
		{"--security-opt", "securityOpt", len(f.Security) > 0},
		{"--pid", "hostPID", f.PID != ""},
		{"--ipc", "hostIPC", f.IPC != ""},
		{"--publish", "ports", len(f.Publish) > 0},
		{"--tty", "tty", f.TTY},
		{"--user", "user", f.User != ""},
	} {
		if asked.given {
			r.problems.add(asked.flag, "%s", job.Never[asked.why])
		}
	}
}

// volumes reads named volumes, and refuses mounts of the provider's own files.
func (f Flags) volumes(r *flagReader, j *job.Job) {
	for _, v := range f.Volumes {
		name, place, _ := strings.Cut(v, ":")
		switch {
		case strings.Contains(v, job.EngineSocket):
			r.problems.add("--volume", "%s", job.Never[job.EngineSocket])
		case place == "" || strings.ContainsAny(name, "/.~"):
			r.problems.add("--volume", "%s; a volume of starling volume create is NAME:/PATH", job.Never["hostMounts"])
		default:
			j.Volumes = append(j.Volumes, asVolume(name, place))
		}
	}
}

// program reads the fields that only a container has, and the secrets of any program.
func (f Flags) program(r *flagReader, j *job.Job) {
	r.one("spec.entrypoint", f.Entrypoint, func(s string) error { j.Entrypoint = []string{s}; return nil })
	r.one("spec.workDir", f.WorkDir, func(s string) error { j.WorkDir = s; return nil })
	take(r, "spec.network", f.Network, &j.Network, asNetwork)
	secret := func(flag string, texts []string, env bool) {
		for _, text := range texts {
			name, from, ok := strings.Cut(text, "=")
			if !ok { // the text may be the secret itself
				r.problems.add(flag, "want NAME=env:VARIABLE or NAME=file:PATH (value hidden)")
				continue
			}
			s := job.Secret{Name: name, From: from}
			if env {
				s.Env = name
			}
			j.Secrets = append(j.Secrets, s)
		}
	}
	secret("--secret", f.Secrets, false)
	secret("--secret-env", f.SecretEnv, true)
	r.one("spec.registryAuth", f.RegistryAuth, func(s string) error {
		if s == "docker" {
			j.Registry = &job.Registry{Docker: true}
			return nil
		}
		user, from, ok := strings.Cut(s, "=")
		if !ok {
			return fmt.Errorf("want docker, which takes your own docker login, or USER=env:VARIABLE or USER=file:PATH")
		}
		j.Registry = &job.Registry{Username: user, PasswordFrom: from}
		return nil
	})
	for _, text := range f.Webhooks {
		j.Webhooks = append(j.Webhooks, job.Webhook{URL: text})
	}
}

// health reads the check of a container, if there is one.
func (f Flags) health(r *flagReader, j *job.Job) {
	h := &job.Health{}
	if j.Health != nil {
		*h = *j.Health
	}
	if f.HealthCmd != "" || f.HealthTCP != "" || f.HealthHTTP != "" { // another check than the template's
		h.Command, h.TCP, h.HTTP = nil, 0, nil
	}
	// As docker's --health-cmd: a line for the image's shell.
	r.one("spec.health.command", f.HealthCmd,
		func(s string) error { h.Command = []string{"/bin/sh", "-c", s}; return nil })
	take(r, "spec.health.tcp", f.HealthTCP, &h.TCP, parsePort)
	r.one("spec.health.http", f.HealthHTTP, func(s string) (err error) {
		port, path, _ := strings.Cut(strings.TrimPrefix(s, ":"), "/")
		h.HTTP = &job.HTTPGet{Path: "/" + path}
		h.HTTP.Port, err = parsePort(port)
		return err
	})
	take(r, "spec.health.interval", f.HealthEvery, &h.Interval, parseSpan)
	take(r, "spec.health.timeout", f.HealthWait, &h.Timeout, parseSpan)
	take(r, "spec.health.retries", f.HealthTries, &h.Retries, parseCount)
	take(r, "spec.health.startPeriod", f.HealthStart, &h.StartPeriod, parseSpan)
	for field := range r.said {
		if strings.HasPrefix(field, "spec.health.") {
			j.Health = h
		}
	}
}

// ForVolume returns the flags of a volume of size bytes, such as 20Gi, in whole units of class market.Disk.
func (f Flags) ForVolume(size string) (Flags, error) {
	mib, err := parseMiB(size)
	if err == nil && (mib == 0 || mib > market.MaxUnitsPerLease*market.DiskUnitMiB) {
		err = fmt.Errorf("%s is not between 1Mi and %dGi", size, market.MaxUnitsPerLease*market.DiskUnitMiB>>10)
	}
	if err != nil {
		return f, fmt.Errorf("--size: %w", err)
	}
	f.Class, f.Disk = string(market.Disk), fmt.Sprintf("%dMi", market.DiskUnitMiB)
	f.Units = fmt.Sprint((mib + market.DiskUnitMiB - 1) / market.DiskUnitMiB)
	return f, nil
}
