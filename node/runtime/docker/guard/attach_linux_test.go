package guard

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"testing"
)

// attachTerminal attaches a program at a terminal, and returns the peer's end of it.
func (b *box) attachTerminal(c Command) (id uint32, a Answer, out *bufio.Reader, write func(string), hangUp func()) {
	b.t.Helper()
	c.TTY = true
	memory, err := MemoryFile(c)
	must(b.t, err)
	theirs, ours := socketPair(b.t)
	defer CloseFiles([]*os.File{memory, theirs})
	id = b.send(Request{Op: OpAttach}, memory, theirs)
	write = func(line string) {
		_, err := ours.Write([]byte(line))
		must(b.t, err)
	}
	return id, b.answer(id, false), bufio.NewReader(ours), write, func() { _ = ours.Close() }
}

// An attached program has the program's environment with its own on top, the program's directory or its own, and its files.
func TestAttach(t *testing.T) {
	t.Parallel()
	b := started(t, layout{UID: 1000, Files: map[string]string{"dir/": "", "other/": ""}}, func(o *Order) {
		o.Command.Env, o.Command.Dir = []string{"A=1", "B=2"}, "/dir"
	}, "sleep")
	files := command("files")
	files.Env, files.Dir = []string{"B=3", "C=4"}, ""
	elsewhere := command("files")
	elsewhere.Dir = "/other"
	for output, test := range map[string]struct {
		command Command
		want    string
	}{
		"files":     {files, "env [B=3 C=4 A=1] /dir <nil>"},
		"elsewhere": {elsewhere, "env [A=1 B=2] /other <nil>"},
	} {
		id, a := b.attach(test.command, output)
		if a.Error != "" {
			t.Fatal(a.Error)
		}
		b.answer(id, true)
		want := fmt.Sprintf("file 0 /dev/null\nfile 1 %[1]s\nfile 2 %[1]s\n%[2]s\n", b.dir+"/"+output, test.want)
		if got, _, _ := strings.Cut(b.output(output), "limits"); got != want {
			t.Errorf("it printed %q, want %q", got, want)
		}
	}
	id, _ := b.attach(command("exit", "7"), "exit")
	if a := b.answer(id, true); a.Code != 7 {
		t.Errorf("answer %+v, want code 7", a)
	}
	id, _ = b.attach(command("die", "9"), "die")
	if a := b.answer(id, true); a.Code != 137 {
		t.Errorf("answer %+v, want code 137", a)
	}
	id, _ = b.attach(command("sleep"), "cancelled")
	b.send(Request{Op: OpCancel, ID: id + 1}) // of none
	b.send(Request{Op: OpCancel, ID: id})
	if a := b.answer(id, true); a.Code != 137 {
		t.Errorf("answer %+v, want that it is killed", a)
	}
	b.alive()
}

// A request that cannot be carried out is refused, and nothing is left of it.
func TestAttachRefused(t *testing.T) {
	t.Parallel()
	b := started(t, layout{UID: 1000}, nil, "sleep")
	terminal := command("terminal")
	terminal.TTY = true
	missing := command("sleep")
	missing.Argv[0] = "none"
	for name, test := range map[string]struct {
		command Command
		files   int
		want    string
	}{
		"no files":           {command("sleep"), 0, "1 descriptors"},
		"two files":          {command("sleep"), 2, "3 descriptors"},
		"terminal for none":  {command("sleep"), 1, "2 descriptors, terminal: false"},
		"none for terminal":  {terminal, 3, "4 descriptors, terminal: true"},
		"no socket":          {terminal, 1, "opening a socket of the peer"},
		"no program":         {Command{Dir: "/"}, 3, "names no program"},
		"relative directory": {Command{Argv: []string{"x"}, Dir: "x"}, 3, "not absolute"},
		"missing":            {missing, 3, `"none" is not in the image's PATH`},
	} {
		memory, err := MemoryFile(test.command)
		must(t, err)
		files := []*os.File{memory}
		for range test.files {
			null, err := os.Open(os.DevNull)
			must(t, err)
			files = append(files, null)
		}
		if a := b.ask(Request{Op: OpAttach}, files...); !strings.Contains(a.Error, test.want) {
			t.Errorf("%s: answer %+v, want %q", name, a, test.want)
		}
		CloseFiles(files)
	}
	if a := b.ask(Request{Op: OpAttach}); !strings.Contains(a.Error, "0 descriptors") {
		t.Errorf("answer %+v", a)
	}
	theirs, ours := socketPair(t)
	memory, err := MemoryFile(Command{Argv: []string{"/none"}, Dir: "/", TTY: true})
	must(t, err)
	if a := b.ask(Request{Op: OpAttach}, memory, theirs); !strings.Contains(a.Error, `running "/none"`) {
		t.Errorf("answer %+v", a)
	}
	CloseFiles([]*os.File{memory, theirs})
	if rest := readAll(t, ours); rest != "" {
		t.Errorf("the terminal of no program has %q", rest)
	}
	b.alive()
}

// No more programs are attached than MaxAttached; when one ends there is room for another.
func TestAttackAttachesMany(t *testing.T) {
	t.Parallel()
	b := started(t, layout{UID: 1000}, nil, "sleep")
	memory, err := MemoryFile(command("sleep"))
	must(t, err)
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	must(t, err)
	defer CloseFiles([]*os.File{memory, null})
	var last uint32
	for range MaxAttached {
		last = b.send(Request{Op: OpAttach}, memory, null, null, null)
	}
	for id := last - MaxAttached + 1; id <= last; id++ {
		if a := b.answer(id, false); a.Error != "" {
			t.Fatalf("program %d: %s", id, a.Error)
		}
	}
	if a := b.ask(Request{Op: OpAttach}, memory, null, null, null); !strings.Contains(a.Error, "attached already") {
		t.Errorf("answer %+v to one too many", a)
	}
	b.send(Request{Op: OpCancel, ID: last})
	b.answer(last, true)
	if a := b.ask(Request{Op: OpAttach}, memory, null, null, null); a.Error != "" {
		t.Error(a.Error)
	}
	b.alive()
}

// A terminal is the controlling one of its program, has the sizes that the peer sends, and carries both directions.
func TestTerminal(t *testing.T) {
	t.Parallel()
	b := started(t, layout{UID: 1000}, nil, "sleep")
	c := command("terminal")
	c.Rows, c.Cols = 24, 80
	id, a, out, write, _ := b.attachTerminal(c)
	if a.Error != "" {
		t.Fatal(a.Error)
	}
	next := func(want string) {
		t.Helper()
		line, err := out.ReadString('\n')
		if must(t, err); strings.TrimSpace(line) != want {
			t.Fatalf("the terminal shows %q, want %q", line, want)
		}
	}
	next("size 24 80 <nil> true <nil>")
	b.send(Request{Op: OpSize, ID: id + 100, Rows: 1, Cols: 1}) // of none
	b.send(Request{Op: OpSize, ID: id, Rows: 50, Cols: 132})
	next("size 50 132 <nil> true <nil>")
	write("hello\n")
	next("hello") // its echo
	next("line hello")
	if a := b.answer(id, true); a.Code != 7 {
		t.Errorf("answer %+v, want code 7", a)
	}
	if _, err := out.ReadString('\n'); err == nil {
		t.Error("the terminal of a program that has ended does not end")
	}
	b.alive()
}

// A process that keeps a terminal open after its program keeps nothing of it in the guard once the peer has closed it.
func TestAttackHoldsTerminal(t *testing.T) {
	t.Parallel()
	b := started(t, layout{UID: 1000}, nil, "sleep")
	open := func() (n int) { // but the pipes that Go keeps for later copies
		files := fmt.Sprintf("/proc/%d/fd", b.cmd.Process.Pid)
		must(t, eachNumber(files, func(fd int) {
			if target, _ := os.Readlink(fmt.Sprint(files, "/", fd)); !strings.HasPrefix(target, "pipe:") {
				n++
			}
		}))
		return n
	}
	before := open()
	for range 3 {
		id, a, out, _, hangUp := b.attachTerminal(command("holder"))
		if a.Error != "" {
			t.Fatal(a.Error)
		}
		if line, err := out.ReadString('\n'); err != nil || strings.TrimSpace(line) != "holds" {
			t.Fatalf("it shows %q, %v", line, err)
		}
		b.answer(id, true)
		hangUp()
	}
	wait(t, "the end of the terminals", func() bool { return open() == before })
	b.alive()
}

// The environment on top replaces variables of the same name, and no name comes twice from below.
func TestMerged(t *testing.T) {
	t.Parallel()
	for _, test := range [][3][]string{
		{{"A=1", "B=2"}, {"B=3", "C="}, {"B=3", "C=", "A=1"}},
		{{"A=1", "AB=2"}, {"A=x=y"}, {"A=x=y", "AB=2"}},
		{{"A=1"}, nil, {"A=1"}},
		{nil, {"A=1"}, {"A=1"}},
		{{"A"}, {"A=2"}, {"A=2"}},
	} {
		top := append(test[1][:len(test[1]):len(test[1])], "spare")[:len(test[1])]
		got, _ := json.Marshal(merged(test[0], top))
		if want, _ := json.Marshal(test[2]); string(got) != string(want) {
			t.Errorf("%q with %q on top: %s, want %s", test[0], test[1], got, want)
		}
		if top[:len(top)+1][len(top)] != "spare" {
			t.Error("it writes behind its argument")
		}
	}
}
