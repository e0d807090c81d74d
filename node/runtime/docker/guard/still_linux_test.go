package guard

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// running returns the threads that run in a box, but those of its guard and of processes with an argument.
func (b *box) running(but string) (found []string) {
	own := fmt.Sprintf("/proc/%d", b.cmd.Process.Pid)
	space, _ := os.Readlink(own + "/ns/pid")
	processes, err := filepath.Glob("/proc/[0-9]*")
	must(b.t, err)
	for _, p := range processes {
		if s, _ := os.Readlink(p + "/ns/pid"); p == own || s != space {
			continue
		}
		line, _ := os.ReadFile(p + "/cmdline")
		args := strings.Split(string(line), "\x00")
		threads, _ := filepath.Glob(p + "/task/*/stat")
		for _, thread := range threads {
			stat, _ := os.ReadFile(thread)
			fields := strings.Fields(string(stat[max(0, strings.LastIndexByte(string(stat), ')')):]))
			if len(fields) > 1 && strings.Contains("RSD", fields[1]) && !slices.Contains(args, but) {
				found = append(found, strings.Join(append(args, filepath.Base(filepath.Dir(thread)), fields[1]), " "))
			}
		}
	}
	return found
}

// stands waits until no process runs in a box but its gauges.
func (b *box) stands() {
	b.t.Helper()
	wait(b.t, "stillness", func() bool { return len(b.running("gauge")) == 0 })
}

// A program stands still that has no first thread, and one whose processes start others faster than they are found.
func TestAttackStill(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"leaderless", "hop"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBox(t, layout{UID: 1000})
			if a := b.run(nil, name); a.Error != "" {
				t.Fatal(a.Error)
			}
			b.prints("stdout", "runs")
			if a := b.ask(Request{Op: OpStill}); a.Error != "" {
				t.Fatal(a.Error)
			}
			b.stands()
			b.alive()
		})
	}
}

// A program that has the kernel resume it is stopped again, and in the end killed.
func TestAttackResumes(t *testing.T) {
	t.Parallel()
	b := newBox(t, layout{UID: 1000})
	if a := b.run(nil, "resume"); a.Error != "" {
		t.Fatal(a.Error)
	}
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
	b := newBox(t, layout{UID: 1000})
	if a := b.run(nil, "stopper"); a.Error != "" {
		t.Fatal(a.Error)
	}
	b.prints("stdout", "runs")
	for i := range 5 {
		id, _ := b.attach(command("sleep"), "out"+strconv.Itoa(i))
		b.send(Request{Op: OpCancel, ID: id})
		b.answer(id, true)
	}
	b.alive()
}
