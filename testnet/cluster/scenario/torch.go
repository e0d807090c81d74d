//go:build linux

package scenario

import (
	"context"
	"fmt"
	"math"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/starling-network/starling/testnet/images"
	"github.com/starling-network/starling/testnet/scenarios"
)

// torchJobs is the part of the scenario that trains with torchrun.
type torchJobs struct{ *world }

func (w torchJobs) steps() []scenarios.Step {
	return []scenarios.Step{
		{What: "torchrun: data-parallel training on gloo, the same loss on all ranks and as in one process",
			Run: w.trains},
		{What: "torchrun: a member's peer is killed; training resumes from its checkpoint with another",
			Run: w.trainsOn},
		w.template("torchrun", images.Torch), w.template("model-parallel", images.Torch),
		w.template("pipeline-parallel", images.Torch),
	}
}

// mpiJobs is the part of the scenario with programs of MPI.
type mpiJobs struct{ *world }

func (w mpiJobs) steps() []scenarios.Step {
	return []scenarios.Step{{What: "mpi: a ring and an all-reduce with Debian's Open MPI, started through the peers",
		Run: w.rings}, w.template("mpi", images.MPI)}
}

var ends = regexp.MustCompile(`(?m)rank (\d+) of (\d+) ends: loss (\S+) weights (\S+)`)

// trained reads the loss and the sum of weights from a log. All ranks must have the same values.
func trained(log string, ranks int) (loss, weights float64, err error) {
	found := ends.FindAllStringSubmatch(log, -1)
	if len(found) != ranks {
		return 0, 0, fmt.Errorf("%d of %d ranks printed their result: %s", len(found), ranks, scenarios.Tail(log))
	}
	for i, m := range found {
		l, lerr := strconv.ParseFloat(m[3], 64)
		s, serr := strconv.ParseFloat(m[4], 64)
		if lerr != nil || serr != nil || m[2] != strconv.Itoa(ranks) {
			return 0, 0, fmt.Errorf("unexpected output of a rank: %q", m[0])
		}
		if i > 0 && (m[3] != found[0][3] || m[4] != found[0][4]) {
			return 0, 0, fmt.Errorf("the ranks differ: %q and %q", found[0][0], m[0])
		}
		loss, weights = l, s
	}
	return loss, weights, nil
}

// tolerance is the allowed difference of sums that were added up in another order: float32, printed with six digits.
const tolerance = 2e-4

// alone trains in one process, as a plain job, and compares the result.
func (w torchJobs) alone(ctx context.Context, steps int, loss, weights float64) error {
	out, err := w.done(ctx, "run", "--wait", "paid", "--max-price", "1", "--budget", "1", "--timeout", "10m",
		w.image[images.Torch], "--", "python3", jobs+"/ddp.py", "--alone", "--steps", strconv.Itoa(steps))
	if err != nil {
		return err
	}
	l, s, err := trained(out, 1)
	if err == nil && (math.Abs(l-loss) > tolerance || math.Abs(s-weights) > tolerance*100) {
		err = fmt.Errorf("one process: loss %f, weights %f; the cluster: %f, %f", l, s, loss, weights)
	}
	return err
}

// train writes the file of a training cluster. Its network may be slow, because every step waits for it.
func (w torchJobs) train(name string, args ...string) (string, error) {
	command := append([]string{"python3", jobs + "/ddp.py"}, args...)
	return w.write(name, w.image[images.Torch], "{name: torchrun, sync: seldom, maxRestarts: 10}",
		"  command: ["+strings.Join(command, ", ")+"]")
}

func (w torchJobs) trains(ctx context.Context) (string, error) {
	const steps = 30
	file, err := w.train("ddp", "--steps", `"`+strconv.Itoa(steps)+`"`)
	if err != nil {
		return "", err
	}
	began := time.Now()
	out, err := w.done(ctx, "cluster", "up", file)
	if err != nil {
		return "", err
	}
	took := time.Since(began)
	loss, weights, err := trained(out, members)
	if err == nil {
		err = w.alone(ctx, steps, loss, weights)
	}
	if err != nil {
		return "", err
	}
	w.note("DDP's loss %.6f on %d ranks and in one process", loss, members)
	j, err := w.paid(ctx, "ddp")
	return fmt.Sprintf("%d ranks: loss %.6f, weights %.5f, one process the same; order to end %v; paid %s",
		members, loss, weights, took.Round(time.Millisecond), w.net.Genesis.FormatAmount(j.Paid)), err
}

func (w torchJobs) trainsOn(ctx context.Context) (string, error) {
	const steps = 120
	file, err := w.train("elastic", "--steps", `"`+strconv.Itoa(steps)+`"`, "--pause", `"0.1"`)
	if err != nil {
		return "", err
	}
	up, err := w.follow("cluster", "up", file)
	if err != nil {
		return "", err
	}
	if err := up.WaitFor(ctx, "step 20 ", 1); err != nil {
		return "", err
	}
	const rank = members - 1
	gone, err := w.lose(ctx, "elastic", rank)
	if err != nil {
		return "", err
	}
	j, err := w.replaced(ctx, "elastic", rank, gone)
	if err != nil {
		return "", err
	}
	w.Say("  %s", w.hosts(j))
	code, err := up.Wait(ctx)
	if err != nil || code != 0 {
		return "", fmt.Errorf("the training: exit code %d, %s: %w", code, scenarios.Tail(up.Text()), err)
	}
	loss, weights, err := trained(up.Text(), members)
	if err == nil {
		err = w.alone(ctx, steps, loss, weights)
	}
	if err != nil {
		return "", err
	}
	from := regexp.MustCompile(`begins at step ([1-9]\d*)`).FindStringSubmatch(up.Text())
	if from == nil {
		return "", fmt.Errorf("the training restarted without a checkpoint: %s", scenarios.Tail(up.Text()))
	}
	if err := w.again(ctx, gone); err != nil {
		return "", err
	}
	if _, err := w.paid(ctx, "elastic"); err != nil {
		return "", err
	}
	w.note("training resumed at step %s after a kill", from[1])
	return fmt.Sprintf("%s was killed; now %s; resumed at step %s; loss %.6f "+
		"as in one undisturbed process",
		gone.name, w.hosts(j), from[1], loss), nil
}

// rounds is the number of tries of MPI. Its launcher once exited with 0 without running, while its peer measured the
// lease.
const rounds = 5

func (w mpiJobs) rings(ctx context.Context) (string, error) {
	saw := ""
	for round := range rounds {
		var err error
		if saw, err = w.ring(ctx, fmt.Sprintf("mpi-%d", round+1)); err != nil {
			return "", fmt.Errorf("round %d: %w", round+1, err)
		}
	}
	w.note("MPI: %d of %d rounds right", rounds, rounds)
	return fmt.Sprintf("%s; the sums of 8 MiB are the same on all, in %d of %d rounds", saw, rounds, rounds), nil
}

var (
	ringLine = regexp.MustCompile(`ring: \S+( -> \S+)*`)
	sumWords = regexp.MustCompile(`rank \d+ of \d+: sum \d+`)
)

// ring runs MPI once and returns the order of the ring. MPI requires a metro network with direct paths. The peer behind
// the NAT that only relays pass is not asked for a quote. For the others the buyer waits for punched holes.
func (w mpiJobs) ring(ctx context.Context, name string) (string, error) {
	file, err := w.write(name, w.image[images.MPI], "mpi", "  command: [python3, "+jobs+"/ring.py]")
	if err != nil {
		return "", err
	}
	s, err := w.command(ctx, "cluster", "up", file).Run()
	if err != nil {
		return "", err
	}
	if s.Code != 0 {
		return "", fmt.Errorf("starling cluster up: %v", s)
	}
	way := ringLine.FindString(s.Out)
	if n := len(sumWords.FindAllString(s.Out, -1)); n != members || way == "" {
		return "", fmt.Errorf("%d of %d ranks printed their sum: %v", n, members, s)
	}
	_, err = w.paid(ctx, name)
	return way, err
}
