// Package programtest has the programs that the peers of command tests run, in place of WASI modules.
package programtest

import (
	"fmt"
	"os"
	"strings"

	"github.com/starling-network/starling/node/buyer/record"
	"github.com/starling-network/starling/node/runtime"
	"github.com/starling-network/starling/node/runtime/runtimetest"
	"github.com/starling-network/starling/node/runtime/runtimetest/guest"
)

// Runtimes are those of a peer that runs the programs of All.
func Runtimes() map[string]runtime.Runtime {
	return map[string]runtime.Runtime{"wasm": runtimetest.NewFake("wasm", All)}
}

// Module is the module file of a program.
func Module(name string) []byte { return runtimetest.FakeModule(name) }

// All are the programs by name. Tests add theirs before they make a world.
var All = map[string]guest.Program{
	// greet copies its input to its output, with its rank.
	"greet": func(p guest.Process) int {
		rank := Environ(p, record.EnvRank)
		text, err := guest.ReadFile(p, "/in/name", 100)
		if err != nil {
			return 1
		}
		fmt.Fprintf(p.Stdout(), "hello %s\nfrom rank %s", text, rank)
		fmt.Fprintln(p.Stderr(), "args", strings.Join(p.Args(), " "))
		// Longer than an interval plus the slot error of a busy machine, so that at least one interval is billed.
		for range 1500 {
			p.Burn()
		}
		if guest.WriteFile(p, "/out/greeting", []byte("hello "+string(text)+" from "+rank)) != nil {
			return 2
		}
		return 0
	},
	// spin runs until it is killed.
	"spin": func(p guest.Process) int {
		for {
			p.Burn()
		}
	},
	// This program prints the length of each secret.
	"tell": func(p guest.Process) int {
		file, err := guest.ReadFile(p, runtime.SecretsDir+"/key", 100)
		if err != nil {
			return 1
		}
		fmt.Fprintln(p.Stdout(), "secrets of", len(Environ(p, "TOKEN")), "and", len(file))
		return 0
	},
	"fail": func(p guest.Process) int {
		fmt.Fprintln(p.Stderr(), "this goes wrong")
		return 7
	},
	// hold runs until a file exists on this machine, and copies the file to its output.
	"hold": func(p guest.Process) int {
		fmt.Fprintln(p.Stdout(), "holding")
		text, err := os.ReadFile(p.Args()[len(p.Args())-1])
		for ; err != nil; text, err = os.ReadFile(p.Args()[len(p.Args())-1]) {
			p.Burn()
		}
		if guest.WriteFile(p, "/out/text", text) != nil {
			return 2
		}
		return 0
	},
	// work runs until it is stopped.
	"work": func(p guest.Process) int {
		fmt.Fprintln(p.Stdout(), "working")
		for !guest.Exists(p, guest.StopFile) {
			p.Burn()
		}
		return 0
	},
}

// Environ returns a variable of a program's environment, or "".
func Environ(p guest.Process, name string) string {
	for _, e := range p.Environ() {
		if v, ok := strings.CutPrefix(e, name+"="); ok {
			return v
		}
	}
	return ""
}
