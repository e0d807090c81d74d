package jobfile

import (
	"maps"
	"slices"
	"strings"

	"github.com/goccy/go-yaml/ast"
	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/node/job"
)

// This file reads the parts of a job file about how a program is run, supervised and reported.

func (f *file) image(n ast.Node, field string) {
	if text, ok := f.text(n, field); ok {
		f.job.Image = asImage(text)
	}
}

func (f *file) spanTo(to *job.Span) func(ast.Node, string) {
	return func(n ast.Node, field string) { set(f, n, field, to, parseSpan) }
}

// checkpointTo returns the reader of the checkpoint of a job.
func checkpointTo(f *file) func(n ast.Node, path string) {
	return func(n ast.Node, path string) {
		c := &job.Checkpoint{}
		f.job.Checkpoint = c
		f.fields(n, path, fields{"path": f.textTo(&c.Path), "every": f.spanTo(&c.Every)}, nil)
	}
}

// copiesTo returns the reader of the copies of a job's outputs.
func copiesTo(f *file) func(n ast.Node, path string) {
	return func(n ast.Node, path string) {
		c := &job.Copies{}
		f.job.Copies = c
		price := func(s string) (market.Price, error) { return parsePrice(s, f.token) }
		f.fields(n, path, fields{
			"count":    f.numberTo(&c.Count),
			"for":      func(n ast.Node, field string) { set(f, n, field, &c.For, parseDays) },
			"maxPrice": func(n ast.Node, field string) { set(f, n, field, &c.MaxPrice, price) },
		}, nil)
	}
}

func (f *file) restart(n ast.Node, path string) {
	r := &f.job.Restart
	f.fields(n, path, fields{
		"max": func(n ast.Node, field string) {
			if v, ok := f.number(n, field); ok {
				r.Max = int(v)
			}
		},
		"policy":  func(n ast.Node, field string) { set(f, n, field, &r.Policy, asPolicy) },
		"backoff": f.spanTo(&r.Backoff),
	}, map[string]string{"migrate": "migration of running work"})
}

func (f *file) timeouts(n ast.Node, path string) {
	t := &f.job.Timeouts
	f.fields(n, path, fields{
		"queue": func(n ast.Node, field string) { set(f, n, field, &t.Queue, parseTime) },
		"pull":  func(n ast.Node, field string) { set(f, n, field, &t.Pull, parseTime) },
		"start": func(n ast.Node, field string) { set(f, n, field, &t.Start, parseTime) },
		"run":   func(n ast.Node, field string) { set(f, n, field, &t.Run, parseTime) },
		"stop":  func(n ast.Node, field string) { set(f, n, field, &t.Stop, parseTime) },
	}, nil)
}

func (f *file) secrets(n ast.Node, path string) {
	f.list(n, path, func(n ast.Node, path string) {
		var s job.Secret
		literal := f.elsewhere("a secret's value", "from")
		f.fields(n, path, fields{
			"name": f.textTo(&s.Name), "env": f.textTo(&s.Env), "file": f.textTo(&s.File), "from": f.textTo(&s.From),
			"value": literal, "literal": literal,
		}, nil)
		switch { // the name under which the program sees it will do
		case s.Name != "":
		case s.Env != "":
			s.Name = s.Env
		default:
			s.Name, s.File = s.File, ""
		}
		f.job.Secrets = append(f.job.Secrets, s)
	})
}

// elsewhere refuses a value of a secret and names the field for its source.
func (f *file) elsewhere(value, from string) func(ast.Node, string) {
	return func(n ast.Node, field string) {
		f.wrong(n, field, "%s does not belong into a job file: write %s: env:VARIABLE or %[2]s: file:PATH", value, from)
	}
}

func (f *file) registry(n ast.Node, path string) {
	r := &job.Registry{}
	f.job.Registry = r
	if text, ok := n.(*ast.StringNode); ok {
		if r.Docker = text.Value == "docker"; !r.Docker {
			f.wrong(n, path, "want docker, which takes your own docker login, or {username: …, passwordFrom: "+
				"env:VARIABLE}")
		}
		return
	}
	f.fields(n, path, fields{
		"username": f.textTo(&r.Username), "passwordFrom": f.textTo(&r.PasswordFrom),
		"password": f.elsewhere("a password", "passwordFrom"),
	}, nil)
}

func (f *file) health(n ast.Node, path string) {
	h := &job.Health{}
	f.job.Health = h
	f.fields(n, path, fields{
		"command":     f.args(&h.Command),
		"tcp":         f.portTo(&h.TCP),
		"http":        f.httpGet,
		"interval":    f.spanTo(&h.Interval),
		"timeout":     f.spanTo(&h.Timeout),
		"retries":     f.numberTo(&h.Retries),
		"startPeriod": f.spanTo(&h.StartPeriod),
	}, nil)
}

func (f *file) httpGet(n ast.Node, path string) {
	g := &job.HTTPGet{Path: "/"}
	f.job.Health.HTTP = g
	f.fields(n, path, fields{"port": f.portTo(&g.Port), "path": f.textTo(&g.Path)}, nil)
}

func (f *file) portTo(to *uint16) func(ast.Node, string) {
	return func(n ast.Node, field string) {
		v, ok := f.number(n, field)
		if !ok {
			return
		}
		port, err := asPort(v)
		if err != nil {
			f.wrong(n, field, "%v", err)
		}
		*to = port
	}
}

func (f *file) webhooks(n ast.Node, path string) {
	f.list(n, path, func(n ast.Node, path string) {
		var w job.Webhook
		f.fields(n, path, fields{
			"url": f.textTo(&w.URL), "events": f.args(&w.Events), "secretFrom": f.textTo(&w.SecretFrom),
			"secret": f.elsewhere("a secret", "secretFrom"),
		}, nil)
		f.job.Webhooks = append(f.job.Webhooks, w)
	})
}

// volumes reads a mapping of names of volumes to their places.
func (f *file) volumes(n ast.Node, path string) {
	places := f.texts(n, path)
	for _, name := range slices.Sorted(maps.Keys(places)) {
		f.job.Volumes = append(f.job.Volumes, asVolume(name, places[name]))
	}
}

// asVolume reads the place of a volume: "/data" or "/data:ro".
func asVolume(name, place string) job.VolumeMount {
	v := job.VolumeMount{Name: name}
	v.Path, v.ReadOnly = strings.CutSuffix(place, ":ro")
	return v
}

// set reads one value through its parser.
func set[T any](f *file, n ast.Node, field string, to *T, parse func(string) (T, error)) {
	text, ok := f.text(n, field)
	if !ok {
		return
	}
	v, err := parse(text)
	if err != nil {
		f.wrong(n, field, "%v", err)
		return
	}
	*to = v
}

// items reads a list of values through their parser.
func items[T any](f *file, n ast.Node, field string, to *[]T, parse func(string) (T, error)) {
	f.list(n, field, func(n ast.Node, field string) {
		var v T
		before := len(f.problems)
		if set(f, n, field, &v, parse); len(f.problems) == before {
			*to = append(*to, v)
		}
	})
}
