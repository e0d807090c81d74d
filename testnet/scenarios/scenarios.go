// Package scenarios is the common part of the scenarios that a person can watch: steps that are done one after the
// other, a row for the result of each, and a command that prints them. The scripts beside it run them.
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
	Dir    string // for homes and programs; made, and left
	Binary string // starling; with starling-nvml beside it simulated GPUs can be shown, too
	Say    func(format string, args ...any)
}

// Row is one thing that was seen.
type Row struct {
	What string
	Got  string
	Err  error // its error; nil: none
}

// Step is one thing to do and see.
type Step struct {
	What string
	Run  func(context.Context) (string, error)
}

// Play does the steps, each within most, also after one that failed, and gives a row for each. It ends early with ctx,
// and then with its error.
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

// Main is the command of a scenario: it runs it until it ends or is interrupted, prints the observations, and does not
// return if anything failed.
func Main(name string, run func(context.Context, Options) ([]Row, error)) {
	binary := flag.String("starling", "bin/starling", "the peer's program")
	keep := flag.Bool("keep", false, "leave homes and logs")
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
		fmt.Println("homes and logs stay in", dir)
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
	fmt.Printf("\n%s: everything went as it should, in %v\n", name, time.Since(began).Round(time.Second))
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
