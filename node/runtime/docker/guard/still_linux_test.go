package guard

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// processes calls f with the processes of a box but its guard, and their arguments.
func (b *box) processes(f func(pid int, args []string)) {
	must(b.t, eachNumber("/proc", func(pid int) {
		if space, _ := os.Readlink(fmt.Sprintf("/proc/%d/ns/pid", pid)); space != b.space || pid == b.cmd.Process.Pid {
			return
		}
		line, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
		f(pid, strings.Split(strings.TrimSuffix(string(line), "\x00"), "\x00"))
	}))
}

// process waits for a process with these last arguments, and returns its number on this machine.
func (b *box) process(last ...string) (found int) {
	b.t.Helper()
	wait(b.t, strings.Join(last, " "), func() bool {
		b.processes(func(pid int, args []string) {
			if len(args) >= len(last) && slices.Equal(args[len(args)-len(last):], last) {
				found = pid
			}
		})
		return found > 0
	})
	return found
}

// running returns the threads that run in a box: their arguments, number and state. Those of its guard do not count, nor of
// gauges.
func (b *box) running() (found []string) {
	b.processes(func(pid int, args []string) {
		threads, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", pid))
		for _, thread := range threads {
			stat, _ := os.ReadFile(thread)
			fields := strings.Fields(string(stat[max(0, strings.LastIndexByte(string(stat), ')')):]))
			if len(fields) > 1 && strings.Contains("RSD", fields[1]) && !slices.Contains(args, "gauge") {
				found = append(found, strings.Join(append(args, filepath.Base(filepath.Dir(thread)), fields[1]), " "))
			}
		}
	})
	return found
}

// stands waits until no process runs in a box but its gauges.
func (b *box) stands() {
	b.t.Helper()
	wait(b.t, "stillness", func() bool { return len(b.running()) == 0 })
}

// still stops the processes of a box and waits until they stand.
func (b *box) still() {
	b.t.Helper()
	if a := b.ask(Request{Op: OpStill}); a.Error != "" {
		b.t.Fatal(a.Error)
	}
	b.stands()
}

// gauge attaches a gauge: a program of this binary with the word among its arguments.
func (b *box) gauge(output string, program ...string) (uint32, int) {
	b.t.Helper()
	c := command(append(program, "gauge")...)
	c.Gauge = true
	id, a := b.attach(c, output)
	if a.Error != "" {
		b.t.Fatal(a.Error)
	}
	return id, b.process(c.Argv[1:]...)
}

// During a stillness gauges alone run: neither the program, nor others, nor one that is attached meanwhile. Afterwards all
// run but a process that the program had stopped itself.
func TestStill(t *testing.T) {
	t.Parallel()
	b := started(t, layout{UID: 1000}, nil, "sleep")
	program := b.process("sleep")
	_, gauge := b.gauge("gauge", "sleep")
	_, _ = b.attach(command("stop"), "stopped")
	stopped := b.process("stop")
	wait(t, "its stop", func() bool { return stateOf(stopped) == 'T' })
	_, _ = b.attach(command("sleep", "other"), "other")
	b.goOn()
	b.still()
	b.still() // again, which prolongs it
	if state := stateOf(gauge); state != 'R' {
		t.Errorf("the gauge is in state %c", state)
	}
	var late []int
	for i := range maxResumed + 2 { // more than may begin by themselves
		name := fmt.Sprint("late", i)
		if _, a := b.attach(command("sleep", name), name); a.Error != "" {
			t.Fatal(a.Error)
		}
		late = append(late, b.process("sleep", name))
	}
	b.stands()
	for _, pid := range late {
		if state := stateOf(pid); state != 'T' {
			t.Errorf("a program that was attached meanwhile is in state %q", state)
		}
	}
	b.goOn()
	for _, pid := range late {
		wait(t, "those that were attached meanwhile", func() bool { return stateOf(pid) == 'R' })
	}
	other := b.process("sleep", "other")
	wait(t, "the others", func() bool { return stateOf(program) == 'R' && stateOf(other) == 'R' })
	if state := stateOf(stopped); state != 'T' || b.output("stopped") != "runs\n" {
		t.Errorf("a process that the program had stopped is in state %c and printed %q", state, b.output("stopped"))
	}
	b.goOn()
	b.alive()
}

// goOn ends a stillness, and waits until the guard has ended it.
func (b *box) goOn() {
	b.t.Helper()
	must(b.t, b.conn.Send(Request{Op: OpGoOn}))
	b.ask(Request{Op: OpUsage})
}

// The program chooses neither the environment of a gauge, nor its processors, nor its user.
func TestAttackSlowsGauge(t *testing.T) {
	t.Parallel()
	b := started(t, layout{Files: passwdFiles}, func(o *Order) {
		o.Command.Env, o.Identity = []string{"GOMAXPROCS=1", "GODEBUG=cpu.all=off"}, &Identity{User: "ml"}
	}, "sleep")
	b.gauge("env", "files", "then sleep")
	if out := b.prints("env", "limits"); !strings.Contains(out, "env [] / <nil>") {
		t.Errorf("a gauge has the environment %s", out)
	}
	_, pid := b.gauge("gauge", "sleep")
	var one, all unix.CPUSet
	must(t, unix.SchedGetaffinity(0, &all))
	for i := range 1024 {
		if all.IsSet(i) {
			one.Set(i)
			break
		}
	}
	threads := func(f func(thread int)) { must(t, eachNumber(fmt.Sprintf("/proc/%d/task", pid), f)) }
	threads(func(thread int) { must(t, unix.SchedSetaffinity(thread, &one)) })
	b.still()
	threads(func(thread int) {
		var now unix.CPUSet
		must(t, unix.SchedGetaffinity(thread, &now))
		if now.Count() < all.Count() {
			t.Errorf("thread %d may run on %d processors of %d", thread, now.Count(), all.Count())
		}
	})
	if info, err := os.Stat(fmt.Sprintf("/proc/%d", pid)); err != nil || info.Sys().(*syscall.Stat_t).Uid != 0 {
		t.Errorf("the gauge has the user of the program, %v", err)
	}
	b.alive()
}

// A program stands still that has no first thread, and one whose processes start others faster than they are found.
func TestAttackStill(t *testing.T) {
	t.Parallel()
	const uid = 64123 // a user of its own, whose processes the kernel counts
	for name, least := range map[string]int{"leaderless": 1, "hop": 1 + chains} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBox(t, layout{UID: uid})
			b.run(nil, name)
			b.prints("stdout", "runs")
			b.still()
			n := 0
			b.processes(func(int, []string) { n++ })
			if n < least {
				t.Errorf("%d processes are left of %d: they did not all stop at once", n, least)
			}
			b.alive()
		})
	}
}

// A program that has the kernel resume it is stopped again, and in the end killed.
func TestAttackResumes(t *testing.T) {
	t.Parallel()
	b := started(t, layout{UID: 1000}, nil, "resume")
	theirs, ours := socketPair(t)
	wait(t, "a listener", func() bool {
		a := b.ask(Request{Op: OpDial, Port: 8080}, theirs)
		return a.Error == ""
	})
	_ = theirs.Close()
	b.prints("stdout", "runs <nil>")
	if a := b.ask(Request{Op: OpStill}); a.Error != "" {
		t.Fatal(a.Error)
	}
	wait(t, "the program's end", func() bool {
		_, _ = ours.Write([]byte("x"))
		return b.over()
	})
	if r := b.end(); r.Code != 128+9 {
		t.Errorf("report %+v, want that it is killed", r)
	}
}

// Processes that the program stops before they are a program do not keep the guard.
func TestAttackStopsAttached(t *testing.T) {
	t.Parallel()
	b := started(t, layout{UID: 1000}, nil, "stopper")
	b.prints("stdout", "runs")
	for i := range 5 {
		id, _ := b.attach(command("sleep"), "out"+strconv.Itoa(i))
		b.send(Request{Op: OpCancel, ID: id})
		b.answer(id, true)
	}
	b.alive()
}

// A stillness is refused after the program's end, and its end without one changes nothing.
func TestStillAfterTheEnd(t *testing.T) {
	t.Parallel()
	g := &guard{over: true}
	if err := g.still(); err == nil || err.Error() != "the program has ended" || g.stillness != nil {
		t.Errorf("%v, %v", err, g.stillness)
	}
	g.goOn()
}

// The state of a process is that of its liveliest thread.
func TestStates(t *testing.T) {
	t.Parallel()
	for stat, want := range map[string]byte{
		"1 (sh) S 0 1":       'R',
		"1 (sh) R 0 1":       'R',
		"1 (sh) D 0 1":       'D',
		"1 (sh) T 0 1":       'T',
		"1 (sh) t 0 1":       't',
		"1 (sh) X 0 1":       'Z',
		"1 (sh) P 0 1":       'D',
		"1 (a) T (b) R 0":    'R',
		"1 (a) T 1 (b)) Z 0": 'Z',
		"1 (sh) ":            0,
		"1 (sh) RR 1":        'D',
		"1 (sh)":             0,
		"":                   0,
	} {
		if got := threadState([]byte(stat)); got != want {
			t.Errorf("%q: state %q, want %q", stat, got, want)
		}
	}
	for _, test := range []string{"ZRR", "TZT", "tTT", "DTD", "RDR", "\x00ZZ", "Z\x00Z", "\x00\x00\x00", "\x00TT"} {
		if got := livelier(test[0], test[1]); got != test[2] {
			t.Errorf("threads in %q: %q", test[:2], got)
		}
	}
	if got := ticksIn([]byte("77 (a) T 1) T 1 77 77 0 -1 4194368 0 0 0 0 31 41 0 0 20 0")); got != 31 {
		t.Errorf("%d ticks in user mode, want 31", got)
	}
	for status, want := range map[string]bool{
		"SigPnd:\t0000000000040000\nShdPnd:\t0000000000000000\n": false,
		"Name:\tShdPnd:\nShdPnd:\t0000000000040100\nSigBlk:\t0":  true,
		"ShdPnd:\t40000": true, "ShdPnd:\tx": false, "": false,
	} {
		if got := stopIn([]byte(status)); got != want {
			t.Errorf("SIGSTOP pends in %q: %v", status, got)
		}
	}
	if got := ticksIn([]byte("77 (a) T 1 77 77 0 -1 4194368 0 0 0 0")); got != 0 {
		t.Errorf("%d ticks in half a line", got)
	}
	if got := stateOf(os.Getpid()); got != 'R' {
		t.Errorf("this process: %q", got)
	}
	if got := stateOf(1 << 30); got != 0 {
		t.Errorf("no process: %q", got)
	}
}

// A process counts as stopped before its program only if it is this guard's child, since the start, and stopped.
func TestIsStoppedFork(t *testing.T) {
	t.Parallel()
	const stat = "77 (a) T 1) T 1 77 77 0 -1 4194368 0 0 0 0 0 0 0 0 20 0 1 0 500 0 0"
	if !isStoppedFork([]byte(stat), 1, 5_009_999_999) {
		t.Error("a stopped fork is not found")
	}
	for name, not := range map[string]string{
		"it runs":       strings.Replace(stat, ") T 1 ", ") R 1 ", 1),
		"of another":    strings.Replace(stat, ") T 1 ", ") T 2 ", 1),
		"a program":     strings.Replace(stat, "4194368", "4194304", 1),
		"older":         strings.Replace(stat, " 500 ", " 499 ", 1),
		"no flags":      strings.Replace(stat, "4194368", "x", 1),
		"no time":       strings.Replace(stat, " 500 ", " x ", 1),
		"half a line":   stat[:40],
		"no name":       strings.ReplaceAll(stat, ")", ""),
		"no line":       "",
		"negative time": strings.Replace(stat, " 500 ", " -500 ", 1),
	} {
		if isStoppedFork([]byte(not), 1, 5_000_000_000) {
			t.Errorf("%s: %q counts", name, not)
		}
	}
}

func FuzzStat(f *testing.F) {
	f.Add([]byte("77 (a) T 1) T 1 77 77 0 -1 4194368 0 0 0 0 0 0 0 0 20 0 1 0 500 0 0"), []byte("1 (sh) S"))
	f.Fuzz(func(t *testing.T, a, b []byte) {
		if isStoppedFork(a, 1, 0) && threadState(a) != 'T' {
			t.Errorf("%q is stopped and in state %q", a, threadState(a))
		}
		x, y := threadState(a), threadState(b)
		if livelier(x, y) != livelier(y, x) || livelier(livelier(x, y), y) != livelier(x, y) {
			t.Errorf("states %q and %q depend on their order", x, y)
		}
		if got := livelier(x, y); got != 0 && got != x && got != y {
			t.Errorf("states %q and %q give %q", x, y, got)
		}
	})
}
