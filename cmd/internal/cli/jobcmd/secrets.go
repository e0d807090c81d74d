package jobcmd

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/starling-network/starling/cmd/internal/cli"
	"github.com/starling-network/starling/cmd/internal/cli/imagecmd"
	"github.com/starling-network/starling/node/api"
	"github.com/starling-network/starling/node/job"
	"github.com/starling-network/starling/node/runtime"
)

// values reads the secrets of a job. Its errors contain none of them.
func values(a *cli.App, ctx context.Context, j job.Job) (job.Values, error) {
	var v job.Values
	for _, s := range j.Secrets {
		b, err := secret(a, s.From)
		if err != nil {
			return v, &cli.Error{Code: cli.ExitUsage, Err: fmt.Errorf("secret %s: %w", s.Name, err)}
		}
		if v.Secrets == nil {
			v.Secrets = map[string][]byte{}
		}
		if s.Env != "" { // the newline at the end of a file is not part of a variable
			b = bytes.TrimRight(b, "\r\n")
		}
		v.Secrets[s.Name] = b
	}
	for i, w := range j.Webhooks {
		if w.SecretFrom == "" {
			continue
		}
		b, err := secret(a, w.SecretFrom)
		if err != nil {
			return v, &cli.Error{Code: cli.ExitUsage, Err: fmt.Errorf("webhook %d: %w", i, err)}
		}
		if v.Webhooks == nil {
			v.Webhooks = map[int][]byte{}
		}
		v.Webhooks[i] = bytes.TrimRight(b, "\r\n")
	}
	if err := login(a, ctx, j, &v); err != nil {
		return v, err
	}
	return v, v.CheckFor(j)
}

// login reads the credentials for the registry of a job's image, if the job has any.
func login(a *cli.App, ctx context.Context, j job.Job, v *job.Values) (err error) {
	r := j.Registry
	switch {
	case r == nil:
		return nil
	case r.Docker:
		v.Username, v.Password, err = imagecmd.Login(ctx, a, j.Image)
	default:
		var b []byte
		b, err = secret(a, r.PasswordFrom)
		v.Username, v.Password = r.Username, string(bytes.TrimRight(b, "\r\n"))
	}
	if err != nil {
		return &cli.Error{Code: cli.ExitUsage, Err: fmt.Errorf("registry credentials: %w", err)}
	}
	return nil
}

// unsealed is a job as it is quoted: with the credentials for its image's registry, which resolve its tag, and without
// other secrets.
func unsealed(a *cli.App, ctx context.Context, j job.Job) (sub api.Submission, err error) {
	j.Secrets, j.Webhooks = nil, slices.Clone(j.Webhooks)
	for i := range j.Webhooks {
		j.Webhooks[i].SecretFrom = ""
	}
	sub.Job = j
	if runtime.CheckImage(j.Image) == nil { // no tag
		sub.Job.Registry = nil
		return sub, nil
	}
	return sub, login(a, ctx, j, &sub.Values)
}

// secret reads one value from its source.
func secret(a *cli.App, from string) ([]byte, error) {
	if name, ok := strings.CutPrefix(from, job.FromEnv); ok {
		value := a.Getenv(name)
		if value == "" {
			return nil, fmt.Errorf("variable %s is not set", name)
		}
		return []byte(value), nil
	}
	path := strings.TrimPrefix(from, job.FromFile)
	b, err := cli.ReadFile(path, runtime.MaxSecretBytes)
	if err == nil && len(b) == 0 {
		err = fmt.Errorf("%s is empty", path)
	}
	return b, err
}
