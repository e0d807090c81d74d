// Package scenarios is the common part of the observable scenarios: steps in sequence, a row for the result of each,
// and a command that prints them. The scripts beside it run them.
package scenarios

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"text/tabwriter"
	"time"
)

// Options are the parameters of a run.
type Options struct {
	Dir    string // directory of homes and programs; created, and not removed
	Binary string // path of starling; simulated GPUs need starling-nvml beside it
	Say    func(format string, args ...any)
}

// Row is one observation.
type Row struct {
	What string
	Got  string
	Err  error // its error; nil if it succeeded
}

// Step is one action with an observation.
type Step struct {
	What string
	Run  func(context.Context) (string, error)
}

// Play runs the steps, each within most, and continues after a failed one. It returns a row for each. If ctx ends, it
// stops with that error.
func Play(ctx context.Context, o Options, most time.Duration, steps []Step) ([]Row, error) {
	var rows []Row
	for _, s := range steps {
		o.Say("· %s", s.What)
		began := time.Now()
		stepCtx, cancel := context.WithTimeout(ctx, most)
		got, err := s.Run(stepCtx)
		cancel()
		rows = append(rows, Row{What: s.What, Got: got, Err: err})
		if err != nil {
			o.Say("  FAILED after %v: %v", time.Since(began).Round(time.Millisecond), err)
		} else {
			o.Say("  %s (%v)", got, time.Since(began).Round(time.Millisecond))
		}
		if ctx.Err() != nil {
			return rows, ctx.Err()
		}
	}
	return rows, nil
}

// Main is the command of a scenario: it runs the scenario until it ends or is interrupted, prints the observations, and
// exits with an error code if anything failed.
func Main(name string, run func(context.Context, Options) ([]Row, error)) {
	binary := flag.String("starling", "bin/starling", "path of the peer's program")
	keep := flag.Bool("keep", false, "keep homes and logs")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := show(ctx, name, *binary, *keep, run); err != nil {
		fmt.Fprintf(os.Stderr, "%s: %v\n", name, err)
		stop()
		os.Exit(1)
	}
}

func show(
	ctx context.Context, name, binary string, keep bool, run func(context.Context, Options) ([]Row, error),
) error {
	dir, err := os.MkdirTemp("", "starling-"+name+"-")
	if err != nil {
		return err
	}
	if keep {
		fmt.Println("homes and logs are kept in", dir)
	} else {
		defer os.RemoveAll(dir)
	}
	if binary, err = filepath.Abs(binary); err != nil {
		return err
	}
	began := time.Now()
	say := func(format string, args ...any) { fmt.Printf(format+"\n", args...) }
	rows, err := run(ctx, Options{Dir: dir, Binary: binary, Say: say})
	if err != nil {
		return err
	}
	fmt.Println()
	if err := table(os.Stdout, rows); err != nil {
		return err
	}
	fmt.Printf("\n%s: all steps succeeded, in %v\n", name, time.Since(began).Round(time.Second))
	return nil
}

// table prints the rows. It returns an error with the number of failures.
func table(w io.Writer, rows []Row) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	failed := 0
	for _, r := range rows {
		verdict := "ok"
		if r.Err != nil {
			verdict = "FAILED"
			failed++
		}
		fmt.Fprintf(t, "%s\t%s\t%s\n", verdict, r.What, strings.ReplaceAll(r.Got, "\n", " "))
	}
	if err := t.Flush(); err != nil {
		return err
	}
	if failed > 0 {
		return fmt.Errorf("%d of %d failed", failed, len(rows))
	}
	return nil
}
