package cluster

import (
	"strconv"
	"time"
)

// Task is one rank of a cluster as an engine's template sees it.
type Task struct {
	ID        string // of the cluster
	Rank      uint32
	Size      uint32
	Begun     uint32 // its size when the engine began; 0: Size
	GPUs      uint32 // of each member
	MilliCPU  uint32 // of each member; 0: unknown
	MemoryMiB uint32 // of each member; 0: unknown
	Class     Class  // of the network between them, at the slowest
	RTT       time.Duration
	Options   map[string]string
	Command   []string // of the user; empty: it serves
}

// Program is the program of a rank's container. Its environment is added to the contract's.
type Program struct {
	// Entrypoint replaces the image's own, Args its arguments; without either the image runs as it is.
	Entrypoint []string
	Args       []string
	Env        map[string]string
	// Ready is how to find out that it does its work; nil: when it runs.
	Ready *Ready
	// Token: it needs the cluster's token, in the secret file TokenFile.
	Token bool
}

// Ready is a page that answers with 200 as soon as a program is ready, or a port that accepts where Path is empty.
type Ready struct {
	Port uint16
	Path string
}

type template func(Task) Program

// Program is the program of a task's rank. The task fits the engine: CheckOptions, and a command where it needs one.
func (e Engine) Program(t Task) Program { return e.template(t) }

// Slots is how many processes mpi may start on each member.
func (e Engine) Slots(t Task) uint32 {
	switch e.Name {
	case "mpi":
		return t.option("slots", max(t.GPUs, 1))
	case "torchrun":
		return t.option("processes", max(t.GPUs, 1))
	}
	return max(t.GPUs, 1)
}

// option returns the number of an option, or otherwise if it is unset.
func (t Task) option(name string, otherwise uint32) uint32 {
	if n, err := strconv.ParseUint(t.Options[name], 10, 32); err == nil {
		return uint32(n)
	}
	return otherwise
}

// begun is the engine's size at its beginning.
func (t Task) begun() uint32 {
	if t.Begun > 0 {
		return t.Begun
	}
	return t.Size
}

// rtt is the round trip for time-outs: the measured one, or the class's bound.
func (t Task) rtt() time.Duration {
	if t.RTT > 0 {
		return t.RTT
	}
	return map[Class]time.Duration{
		LAN:   time.Millisecond,
		Metro: 15 * time.Millisecond,
		WAN:   250 * time.Millisecond,
	}[t.Class]
}

// script is a program of the image's shell. A user's text is an argument of it, never a part of its text.
func script(text string, env map[string]string, args ...string) Program {
	return Program{Entrypoint: []string{"/bin/sh", "-c", text, "starling"}, Args: args, Env: env}
}

// shellRun is a function that runs a program, hands it the end that this shell is asked for, and has its exit code in
// $code.
const shellRun = `
asked=
trap 'asked=1; [ -z "$pid" ] || kill -TERM "$pid" 2>/dev/null' TERM INT
run() {
  "$@" & pid=$!
  [ -z "$asked" ] || kill -TERM "$pid" 2>/dev/null
  while :; do
    wait "$pid"; code=$?
    kill -0 "$pid" 2>/dev/null || break
  done
  pid=
}
`

// again runs a worker. Its head may not exist yet, or no longer: it tries again, and the buyer decides which members
// are lost.
const again = `
while :; do
  run "$@"
  [ -z "$asked" ] || exit 0
  sleep 2 & wait $!
  [ -z "$asked" ] || exit 0
done`
