package guard

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/starling-network/starling/node/runtime"
)

// started runs a program in a box, and fails the test if the guard cannot start it.
func started(t *testing.T, l layout, edit func(*Order), program ...string) *box {
	t.Helper()
	b := newBox(t, l)
	if a := b.run(edit, program...); a.Error != "" || a.Started.IsZero() {
		t.Fatalf("answer %+v", a)
	}
	return b
}

// No signal of the program ends its guard, neither of kill(2) nor of sigqueue(3), which Go's runtime would take for a
// fault of the guard's own.
func TestAttackSignals(t *testing.T) {
	t.Parallel()
	b := started(t, layout{UID: 1000}, nil, "signals")
	if out := b.prints("stdout", "done"); strings.Contains(out, "signal") {
		t.Errorf("signals are not sent: %s", out)
	}
	b.alive()
}

// The guard catches no signal that a program could queue without end, and its children ignore none.
func TestAttackQueuesSignals(t *testing.T) {
	t.Parallel()
	b := started(t, layout{UID: 1000}, nil, "sleep")
	for pid, want := range map[int]string{b.cmd.Process.Pid: "0000000000404000", b.process("sleep"): ""} {
		text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
		must(t, err)
		for line := range strings.Lines(string(text)) {
			name, set, _ := strings.Cut(strings.TrimSpace(line), ":\t")
			if name == "SigIgn" && set != "0000000000000000" || name == "SigCgt" && want != "" && set != want {
				t.Errorf("process %d: %s %s, want that SIGTERM and SIGURG are caught", pid, name, set)
			}
		}
	}
	b.alive()
}

// The program can neither read its guard, nor trace it, nor take its descriptors, nor write beside it.
func TestAttackSteals(t *testing.T) {
	t.Parallel()
	b := started(t, layout{UID: 1000}, nil, "steal")
	if out := b.prints("stdout", "done"); out != "done\n" {
		t.Errorf("the program %s", out)
	}
	if r := b.end(); r.Code != 0 || r.Reason != runtime.ReasonNone {
		t.Errorf("report %+v", r)
	}
}

// A program has the environment and directory of its order and nothing of its guard: three descriptors, and limits.
func TestProgram(t *testing.T) {
	t.Parallel()
	b := started(t, layout{UID: 1000, Files: map[string]string{"dir/": ""}}, func(o *Order) {
		o.Command.Env, o.Command.Dir = []string{"A=1", "B=x y"}, "/dir"
		o.Writable, o.DiskBytes = []string{"/run"}, 4096
	}, "files")
	// Its limit of file sizes may come a moment after its start.
	got, want := b.prints("stdout", "limits"), "file 0 /dev/null\nfile 1 pipe\nfile 2 pipe\nenv [A=1 B=x y] /dir <nil>\nlimits true "
	if !strings.HasPrefix(got, want) {
		t.Errorf("it printed %q, want %q", got, want)
	}
	if r := b.end(); r.Code != 0 || r.Reason != runtime.ReasonNone || r.Started.IsZero() || r.Ended.Before(r.Started) {
		t.Errorf("report %+v", r)
	}
	b = started(t, layout{UID: 1000}, nil, "print", "to", "both")
	if r := b.end(); r.Code != 0 || b.output("stdout") != "[to both]\n" || b.output("stderr") != "[to both]\n" {
		t.Errorf("report %+v, %q, %q", r, b.output("stdout"), b.output("stderr"))
	}
	b = started(t, layout{UID: 1000}, func(o *Order) { o.LogBytes = 10 }, "print", "much", "more")
	if r, out := b.end(), b.output("stdout"); r.Code != 0 || !strings.HasPrefix(out, "[much more\n"+strings.TrimPrefix(runtime.LogCutMarker, "\n")) {
		t.Errorf("report %+v, log %q, want its first 10 bytes", r, out)
	}
}

// The report has the program's end as its cause: a code, a signal, a limit, or a request.
func TestEnds(t *testing.T) {
	t.Parallel()
	request := func(req Request) func(*box) { return func(b *box) { b.send(req) } }
	signal := func(s os.Signal) func(*box) { return func(b *box) { must(b.t, b.cmd.Process.Signal(s)) } }
	for name, test := range map[string]struct {
		program string
		edit    func(*Order)
		act     func(*box) // once it has printed
		code    int
		reason  runtime.Reason
	}{
		"success":          {"exit 0", nil, nil, 0, runtime.ReasonNone},
		"failure":          {"exit 3", nil, nil, 3, runtime.ReasonNone},
		"largest code":     {"exit 255", nil, nil, 255, runtime.ReasonNone},
		"fault":            {"die 11", nil, nil, 139, runtime.ReasonTrap},
		"forbidden call":   {"die 31", nil, nil, 159, runtime.ReasonTrap},
		"its own kill":     {"die 9", nil, nil, 137, runtime.ReasonNone},
		"its own term":     {"die 15", nil, nil, 143, runtime.ReasonNone},
		"too large a file": {"die 25", nil, nil, runtime.CodeKilled, runtime.ReasonDisk},
		"time":             {"sleep", func(o *Order) { o.WallTime = time.Millisecond }, nil, runtime.CodeTimeout, runtime.ReasonTimeout},
		"killed":           {"sleep", nil, request(Request{Op: OpKill, Reason: runtime.ReasonKilled}), runtime.CodeKilled, runtime.ReasonKilled},
		"killed for files": {"sleep", nil, request(Request{Op: OpKill, Reason: runtime.ReasonDisk}), runtime.CodeKilled, runtime.ReasonDisk},
		"term":             {"term", nil, request(Request{Op: OpTerm}), 4, runtime.ReasonNone},
		"engine":           {"term", nil, signal(unix.SIGTERM), runtime.CodeLost, runtime.ReasonLost},
		"signals hide it":  {"term pester", nil, signal(unix.SIGTERM), runtime.CodeLost, runtime.ReasonLost},
		"first reason": {"sleep", nil, func(b *box) {
			b.send(Request{Op: OpKill, Reason: runtime.ReasonDisk})
			_ = b.conn.Send(Request{Op: OpKill, Reason: runtime.ReasonKilled})
		}, runtime.CodeKilled, runtime.ReasonDisk},
		"term, then engine": {"term late", nil, func(b *box) {
			b.send(Request{Op: OpTerm})
			b.prints("stdout", "asked")
			must(t, b.cmd.Process.Signal(unix.SIGTERM))
		}, 4, runtime.ReasonNone},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := started(t, layout{UID: 1000}, test.edit, strings.Fields(test.program)...)
			if test.act != nil {
				if strings.HasPrefix(test.program, "term") {
					b.prints("stdout", "ready")
				}
				test.act(b)
			}
			if r := b.end(); r.Code != test.code || r.Reason != test.reason {
				t.Errorf("report %+v, want code %d, reason %q", r, test.code, test.reason)
			}
			if out := b.output("stdout"); strings.HasPrefix(test.program, "term") && !strings.Contains(out, "asked") {
				t.Errorf("the program got no SIGTERM: %q", out)
			}
		})
	}
}

// Processes that outlive the program, in sessions of their own and with its output open, do not keep its guard.
func TestAttackOrphans(t *testing.T) {
	t.Parallel()
	b := started(t, layout{UID: 1000}, nil, "orphans")
	if r := b.end(); r.Code != 0 {
		t.Errorf("report %+v", r)
	}
}

// An order that cannot be carried out is refused with its reason, and the guard ends without a program.
func TestRefusedOrders(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		edit func(*Order)
		want string
	}{
		"directory":   {func(o *Order) { o.Command.Dir = "/none" }, `working directory "/none"`},
		"a file":      {func(o *Order) { o.Command.Dir = "/etc/file" }, "working directory"},
		"program":     {func(o *Order) { o.Command.Argv[0] = "/none" }, `running "/none"`},
		"no program":  {func(o *Order) { o.Command.Argv[0] = "none" }, `"none" is not in the image's PATH`},
		"volume":      {func(o *Order) { o.Volume, o.Writable = Volume{1, 2}, []string{"/run"} }, "does not see the mounts"},
		"no mount":    {func(o *Order) { o.Volume, o.Writable = Volume{1, 2}, []string{"/none"} }, "looking at the mount /none"},
		"secret":      {func(o *Order) { o.Secrets = map[string][]byte{"../x": nil} }, `secret "../x" is no file name`},
		"above":       {func(o *Order) { o.Secrets = map[string][]byte{"..": nil} }, "writing secret .."},
		"argument":    {func(o *Order) { o.Command.Argv = append(o.Command.Argv, "a\x00b") }, "invalid argument"},
		"environment": {func(o *Order) { o.Command.Env = []string{"A=\x00"} }, "invalid argument"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBox(t, layout{UID: 1000, Files: map[string]string{"etc/file": "x"}})
			a := b.run(test.edit, "print", "it runs")
			if !strings.Contains(a.Error, test.want) || a.NoVolume != (name == "volume") || a.BadUser {
				t.Errorf("answer %+v, want %q", a, test.want)
			}
			<-b.exited
			if code := b.cmd.ProcessState.ExitCode(); code != runtime.CodeLost || b.output("report")+b.output("stdout") != "" {
				t.Errorf("exit code %d, report %q, printed %q", code, b.output("report"), b.output("stdout"))
			}
		})
	}
}

// A guard takes no other first message than an order with its files.
func TestFirstMessage(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		message any
		files   int
	}{
		"another operation": {Request{Op: OpAdopt}, 4},
		"no files":          {Request{Op: OpRun}, 0},
		"a file less":       {Request{Op: OpRun}, 3},
		"no order":          {Request{Op: OpRun}, 4},
		"no request":        {"run", 4},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBox(t, layout{UID: 1000})
			var files []*os.File
			for i := range test.files {
				f, err := os.OpenFile(filepath.Join(b.dir, strconv.Itoa(i)), os.O_CREATE|os.O_RDWR, 0o600)
				must(t, err)
				files = append(files, f)
			}
			must(t, b.conn.Send(test.message, files...))
			CloseFiles(files)
			<-b.exited
			if code := b.cmd.ProcessState.ExitCode(); code != runtime.CodeLost {
				t.Errorf("exit code %d, want %d", code, runtime.CodeLost)
			}
		})
	}
}

// A guard without a peer connects again and shows its token. The programs and the stillness of the earlier peer end.
func TestNextPeer(t *testing.T) {
	t.Parallel()
	b := started(t, layout{UID: 1000}, nil, "term")
	first := b.prints("stdout", "ready")
	id, a := b.attach(command("sleep"), "attached")
	if a.Error != "" {
		t.Fatal(a.Error)
	}
	earlier := b.process("sleep")
	b.still()
	_ = b.conn.Close()
	b.accept()
	if a := b.receive(); a.Token != "its own" || a.ID != 0 {
		t.Fatalf("first message %+v, want the token", a)
	}
	must(t, b.conn.Send(Request{Op: OpAdopt}))
	for a = b.receive(); a.Started.IsZero(); a = b.receive() { // the attached program's end may come before
		if a.ID != id || !a.Ended {
			t.Fatalf("answer %+v", a)
		}
	}
	go b.read(b.conn)
	wait(t, "the end of the earlier peer's program", func() bool { return stateOf(earlier) == 0 })
	b.send(Request{Op: OpTerm})
	if r := b.end(); r.Code != 4 || !r.Started.Equal(a.Started) {
		t.Errorf("report %+v after %q; want code 4, started %v", r, first, a.Started)
	}
}

// A message that no peer sends ends the connection, not the program.
func TestMalformedRequests(t *testing.T) {
	t.Parallel()
	b := started(t, layout{UID: 1000}, nil, "term")
	b.prints("stdout", "ready")
	for _, message := range []any{"x", Request{Op: "x"}, Request{Op: OpKill, Reason: "x"}, map[string]any{"op": "term", "more": 1}} {
		_ = b.conn.Send(message)
		wait(t, "the end of the connection", func() bool {
			b.mu.Lock()
			defer b.mu.Unlock()
			return b.hungUp
		})
		_ = b.conn.Close()
		b.accept()
		if a := b.receive(); a.Token != "its own" {
			t.Fatalf("first message %+v, want the token", a)
		}
		go b.read(b.conn)
	}
	b.alive()
}

// Without a peer for the grace, the program is lost.
func TestNoPeer(t *testing.T) {
	t.Parallel()
	b := started(t, layout{UID: 1000}, func(o *Order) { o.Grace = 10 * time.Millisecond }, "sleep")
	_ = b.listener.Close()
	_ = b.conn.Close()
	if r := b.end(); r.Code != runtime.CodeLost || r.Reason != runtime.ReasonLost {
		t.Errorf("report %+v, want lost", r)
	}
}

// Secrets are the program's alone, and each is a file of its own.
func TestSecrets(t *testing.T) {
	t.Parallel()
	b := started(t, layout{UID: 1000}, func(o *Order) { o.Secrets = map[string][]byte{"key": []byte("its value"), "b": nil} }, "self")
	out := b.prints("stdout", "key its")
	for _, want := range []string{"user 1000 1000 []", "at /run/secrets dr-x------ 1000 1000", "at /run/secrets/key -r-------- 1000 1000", "key its value <nil>"} {
		if !strings.Contains(out, want) {
			t.Errorf("no %q in\n%s", want, out)
		}
	}
}

// A file of the program may not be larger than its disk.
func TestFileSize(t *testing.T) {
	t.Parallel()
	b := started(t, layout{UID: 1000}, func(o *Order) { o.Writable, o.DiskBytes = []string{"/run"}, 4095 }, "write", "/run/big")
	if out := b.prints("stdout", "\n"); !strings.Contains(out, "too large") {
		t.Errorf("writing 4,097 bytes: %s", out)
	}
}

// A guard reports usage without a control group of its own: CPU time of its processes that have ended, and of itself.
func TestUsage(t *testing.T) {
	t.Parallel()
	b := started(t, layout{UID: 1000}, nil, "sleep")
	for i := 0; ; i++ {
		if a := b.ask(Request{Op: OpUsage}); a.CPUMillis >= 30 {
			break
		}
		id, a := b.attach(command("exit", "0"), fmt.Sprint("out", i))
		if a.Error != "" {
			t.Fatal(a.Error)
		}
		b.answer(id, true)
	}
	b.alive()
}
