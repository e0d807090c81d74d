//go:build linux

package scenario

import (
	"context"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/starling-network/starling/node/job/template"
	"github.com/starling-network/starling/testnet/images"
	"github.com/starling-network/starling/testnet/scenarios"
)

// template makes a step with the smoke run of a built-in template, in an image of this machine.
func (w *world) template(name string, image images.Name) scenarios.Step {
	return scenarios.Step{What: "template " + name + ": its smoke run",
		Run: func(ctx context.Context) (string, error) { return w.smokes(ctx, name, image) }}
}

// smokes makes the smoke run of a template, and records it in the file STARLING_RECORD if that is set.
func (w *world) smokes(ctx context.Context, name string, image images.Name) (string, error) {
	t, err := template.Builtin(name)
	if err != nil {
		return "", err
	}
	d, err := t.Describe()
	if err != nil {
		return "", err
	}
	args := []string{"run", "--max-price", "1", "--budget", "5", "--timeout", "20m", "--template", name,
		"--set", "image=" + w.image[image]}
	for parameter, value := range d.Smoke.Set {
		args = append(args, "--set", parameter+"="+value)
	}
	began := time.Now()
	out, err := w.done(ctx, args...)
	if err != nil {
		return "", err
	}
	for line := range strings.Lines(out) {
		if strings.Contains(line, d.Smoke.Prints) {
			took := time.Since(began).Round(time.Millisecond)
			got := fmt.Sprintf("%s (%v)", strings.TrimSpace(line), took)
			return got, template.RecordIn(os.Getenv("STARLING_RECORD"), t)
		}
	}
	return "", fmt.Errorf("output: got %s, want %q", scenarios.Tail(out), d.Smoke.Prints)
}
