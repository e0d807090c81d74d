//go:build linux

package scenario

import (
	"context"
	"fmt"
	"regexp"
	"strings"
	"time"

	"github.com/starling-network/starling/testnet/images"
	"github.com/starling-network/starling/testnet/scenarios"
)

const daskName = "dask"

// daskCluster is the part of the scenario with a Dask cluster.
type daskCluster struct{ *world }

func (w daskCluster) steps() []scenarios.Step {
	return []scenarios.Step{
		{What: "dask: a cluster starts, with a scheduler on its head", Run: w.daskUp},
		{What: "dask: a Client on the head: tasks on all members, a graph over them, an object of 50 MB on each",
			Run: w.onCluster(daskName, w.daskInside)},
		{What: "dask: a Client of the buyer's own, unchanged, through port-forward",
			Run: w.onCluster(daskName, w.daskOutside)},
		{What: "dask: taken down, and paid for the used time",
			Run: w.onCluster(daskName, func(ctx context.Context) (string, error) {
				return w.down(ctx, daskName)
			})},
		w.template("dask", images.Dask),
	}
}

func (w daskCluster) daskUp(ctx context.Context) (string, error) {
	file, err := w.write(daskName, w.image[images.Dask], "dask")
	if err != nil {
		return "", err
	}
	began := time.Now()
	if _, err := w.done(ctx, "cluster", "up", file); err != nil {
		return "", err
	}
	took := time.Since(began)
	w.running.up = daskName
	w.note("Dask's scheduler answered after %.1f s", took.Seconds())
	j, err := w.job(ctx, daskName)
	return fmt.Sprintf("%s; the scheduler answers after %v", w.hosts(j), took.Round(time.Millisecond)), err
}

// graph is the program that uses a Dask cluster.
const graph = "graph.py"

// daskInside finds the scheduler by the variable that every member has, and runs a graph.
func (w daskCluster) daskInside(ctx context.Context) (string, error) {
	out, err := w.done(ctx, "cluster", "exec", daskName, "--", "python3", jobs+"/"+graph, fmt.Sprint(members))
	if err != nil {
		return "", err
	}
	s, err := readSpread(out)
	if err != nil {
		return "", err
	}
	w.note("Dask moved %d MB to %d other members at %.0f Mbit/s", s.Bytes/1_000_000, s.Copies, s.rate())
	return s.String(), nil
}

var forwardedPlain = regexp.MustCompile(`(127\.0\.0\.1:\d+) -> port 8786`)

// daskOutside runs Dask's client at the buyer's site, from the image's file system: with its own libraries, outside any
// container.
func (w daskCluster) daskOutside(ctx context.Context) (string, error) {
	said, err := w.forward(ctx, daskName, 8786)
	if err != nil {
		return "", err
	}
	m := forwardedPlain.FindStringSubmatch(said)
	if m == nil {
		return "", fmt.Errorf("port-forward: unexpected output %q", said)
	}
	dir, err := w.source()
	if err != nil {
		return "", err
	}
	s, err := w.python(ctx, images.Dask, dir+"/"+graph, fmt.Sprint(members), "tcp://"+m[1]).Run()
	if err != nil || s.Code != 0 {
		return "", fmt.Errorf("a client of tcp://%s: %v: %w", m[1], s, err)
	}
	saw, err := readSpread(s.Out)
	return fmt.Sprintf("Client(\"tcp://%s\"): %v", m[1], strings.TrimSpace(saw.String())), err
}
