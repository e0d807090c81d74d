//go:build linux

package ordinary

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/starling-network/starling/node/job/template"
	"github.com/starling-network/starling/testnet/scenarios"
)

// Templates returns the built-in templates that run here: each has a Dockerfile, one container, and no needs.
func Templates() (out []template.Template, err error) {
	for _, name := range template.BuiltinNames() {
		t, err := template.Builtin(name)
		if err != nil {
			return nil, err
		}
		d, err := t.Describe()
		if err != nil {
			return nil, err
		}
		if d.Kind == "Job" && len(d.Smoke.Needs) == 0 && t.File(template.FileDockerfile) != nil {
			out = append(out, t)
		}
	}
	return out, nil
}

// chooseTemplates returns the named templates, or all.
func chooseTemplates(text string) ([]template.Template, error) {
	all, err := Templates()
	if err != nil || text == "" {
		return nil, err
	}
	if text == "all" {
		return all, nil
	}
	var out []template.Template
	for _, name := range strings.Split(text, ",") {
		i := slices.IndexFunc(all, func(t template.Template) bool { return t.Name == name })
		if i < 0 {
			return nil, fmt.Errorf("template %q: not one that runs here", name)
		}
		out = append(out, all[i])
	}
	return out, nil
}

// templateSteps builds each template's image, and makes its smoke run in both modes.
func (w *world) templateSteps(chosen []template.Template) (steps []scenarios.Step) {
	for _, t := range chosen {
		i := image{name: "template-" + t.Name, from: t.Write}
		steps = append(steps, scenarios.Step{What: i.name + ": build", Run: func(ctx context.Context) (string, error) {
			if err := i.build(ctx, w.engines[0].Host(), w.proxy.url(), w.Dir, w.tag(i.name)); err != nil {
				return "", err
			}
			_, err := docker(ctx, w.engines[0].Host(), "push", "-q", w.tag(i.name))
			return "from its Dockerfile, pushed", err
		}})
		for m, mode := range modes {
			steps = append(steps, scenarios.Step{What: i.name + ": " + mode,
				Run: func(ctx context.Context) (string, error) { return w.smokes(ctx, m, t, w.tag(i.name)) }})
		}
	}
	return steps
}

// smokes makes the smoke run of a template with an image. A run with layers is recorded.
func (w *world) smokes(ctx context.Context, mode int, t template.Template, image string) (string, error) {
	d, err := t.Describe()
	if err != nil {
		return "", err
	}
	args := []string{"--template", t.Name, "--set", "image=" + image}
	dir := w.Dir + "/template-" + t.Name
	for name, value := range d.Smoke.Set {
		if t.File(value) != nil { // an input of the template's own
			value = dir + "/" + value
		}
		args = append(args, "--set", name+"="+value)
	}
	if len(d.Smoke.Args) > 0 {
		args = append(append(args, "--"), d.Smoke.Args...)
	}
	got, s, err := w.runs(ctx, mode, d.Smoke.Prints, args...)
	if err != nil && mode != layered && s.Code == failed {
		return "does not run: " + complaint(s), nil
	}
	if err == nil && mode == layered {
		err = template.RecordIn(w.record, t)
	}
	return got, err
}
