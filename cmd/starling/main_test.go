package main

import (
	"errors"
	"os/exec"
	"regexp"
	"strconv"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
)

func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){"starling": main})
}

// TestScripts runs the scripts of testdata/script: the command line as a shell sees it.
func TestScripts(t *testing.T) {
	t.Parallel()
	testscript.Run(t, testscript.Params{
		Dir:                 "testdata/script",
		RequireExplicitExec: true,
		RequireUniqueNames:  true,
		Setup: func(e *testscript.Env) error {
			e.Setenv("HOME", e.WorkDir+"/user")
			for _, v := range []string{"STARLING_HOME", "XDG_DATA_HOME", "XDG_CACHE_HOME"} {
				e.Setenv(v, "")
			}
			return nil
		},
		Cmds: map[string]func(ts *testscript.TestScript, neg bool, args []string){"code": code, "soon": soon, "capture": capture},
	})
}

// code runs a program and wants this exit code: `code 2 starling nonsense`.
func code(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: code N program [args]")
	}
	want, err := strconv.Atoi(args[0])
	ts.Check(err)
	got := 0
	if err := ts.Exec(args[1], args[2:]...); err != nil {
		exit, ok := errors.AsType[*exec.ExitError](err)
		if !ok {
			ts.Fatalf("running %s: %v", args[1], err)
		}
		got = exit.ExitCode()
	}
	if got != want {
		ts.Fatalf("%s ended with %d, want %d", args[1], got, want)
	}
}

// capture sets an environment variable to the first group of a pattern in the last output: `capture ADDR "(/ip4/.*)"`.
func capture(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		ts.Fatalf("usage: capture NAME PATTERN")
	}
	re, err := regexp.Compile(args[1])
	ts.Check(err)
	m := re.FindStringSubmatch(ts.ReadFile("stdout"))
	if len(m) < 2 {
		ts.Fatalf("no match of %s with a group in the last output", args[1])
	}
	ts.Setenv(args[0], m[1])
}

// soon runs a program until it succeeds, or fails if it is to: `soon starling peer status` waits for a peer that starts
// in the background.
func soon(ts *testscript.TestScript, neg bool, args []string) {
	if len(args) == 0 {
		ts.Fatalf("usage: [!] soon program [args]")
	}
	for deadline := time.Now().Add(2 * time.Minute); ; time.Sleep(20 * time.Millisecond) {
		err := ts.Exec(args[0], args[1:]...)
		if (err != nil) == neg {
			return
		}
		if time.Now().After(deadline) {
			ts.Fatalf("%v: %v", args, err)
		}
	}
}
