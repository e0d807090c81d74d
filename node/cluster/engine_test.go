package cluster

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"
)

// TestPrograms holds what each engine makes of a rank. Run with -rewrite after a change on purpose.
func TestPrograms(t *testing.T) {
	t.Parallel()
	datadriven.RunTest(t, "testdata/engines", func(t *testing.T, d *datadriven.TestData) string {
		task := Task{ID: "jabc", Class: WAN}
		if err := json.Unmarshal([]byte(d.Input), &task); err != nil {
			t.Fatal(err)
		}
		e, err := LookUp(d.Cmd)
		if err != nil {
			t.Fatal(err)
		}
		if option, err := e.CheckOptions(task.Options); err != nil {
			return fmt.Sprintf("%s: %v\n", option, err)
		}
		p := e.Program(task)
		var out strings.Builder
		for i, a := range append(slices.Clone(p.Entrypoint), p.Args...) {
			if i == 2 && p.Entrypoint[0] == "/bin/sh" {
				a = "…" // its text is run by the tests below
			}
			fmt.Fprintf(&out, "%q ", a)
		}
		out.WriteString("\n")
		for _, k := range slices.Sorted(maps.Keys(p.Env)) {
			fmt.Fprintf(&out, "  %s=%s\n", k, p.Env[k])
		}
		if p.Ready != nil {
			fmt.Fprintf(&out, "ready: %d%s\n", p.Ready.Port, p.Ready.Path)
		}
		fmt.Fprintf(&out, "slots: %d, token: %v\n", e.Slots(task), p.Token)
		return out.String()
	})
}

func TestEnginesSayWhatTheyNeed(t *testing.T) {
	t.Parallel()
	for name, e := range Engines {
		if e.Name != name || e.template == nil || e.Needs.Check() != nil || e.Ends != EndsHead && e.Ends != EndsAll || e.Needs != WAN && e.Why == "" {
			t.Errorf("%s: %+v", name, e)
		}
		for _, c := range classes {
			if err := e.LivesOn(c); (err == nil) != (slices.Index(classes, c) <= slices.Index(classes, e.Needs)) || err != nil && !errors.Is(err, ErrEngine) {
				t.Errorf("%s on %s: %v", name, c, err)
			}
		}
	}
	torch := Engines["torchrun"]
	if torch.LivesOn(WAN) == nil || torch.With(map[string]string{"sync": "seldom"}).LivesOn(WAN) != nil {
		t.Error("torchrun lives on a wan when its members seldom talk, and only then")
	}
	if Engines["none"].With(map[string]string{"ends": "head"}).Ends != EndsHead {
		t.Error("none does not end with its head")
	}
	if WAN.Admits("moon") || Class("moon").Admits(LAN) || !Metro.Admits(LAN) || Metro.Admits(WAN) {
		t.Error("classes are not in order")
	}
	elastic := map[string]string{"minNodes": "2", "maxNodes": "5"}
	for _, c := range []struct {
		engine  string
		options map[string]string
		size    uint32
		ok      bool
	}{
		{"ray", nil, 200, true}, {"dask", nil, 1, true}, {"none", nil, 1, true}, {"mpi", nil, 4, false},
		{"torchrun", nil, 4, false}, {"torchrun", elastic, 5, true}, {"torchrun", elastic, 6, false}, {"torchrun", elastic, 1, false}, {"torchrun", elastic, 2, true},
	} {
		if err := Engines[c.engine].CheckScale(c.options, 3, c.size); (err == nil) != c.ok {
			t.Errorf("%s %v from 3 to %d: %v", c.engine, c.options, c.size, err)
		}
	}
}

// shell runs a program of the shell with the tools of a directory and nothing else, and returns what it said and its exit code.
type shell struct {
	t    *testing.T
	dir  string
	cmd  *exec.Cmd
	said *os.File
}

// begin starts a rank's program where each tool is a script.
func begin(t *testing.T, p Program, tools map[string]string) *shell {
	t.Helper()
	s := &shell{t: t, dir: t.TempDir()}
	tools["sleep"] = "touch $DIR/slept; exec /bin/sleep 0.01"
	syscall.ForkLock.RLock() // a process that another test starts meanwhile would keep the script open: text file busy
	for name, text := range tools {
		if err := os.WriteFile(filepath.Join(s.dir, name), []byte("#!/bin/sh\n"+text+"\n"), 0o755); err != nil {
			syscall.ForkLock.RUnlock()
			t.Fatal(err)
		}
	}
	syscall.ForkLock.RUnlock()
	s.cmd = exec.Command(p.Entrypoint[0], append(slices.Clone(p.Entrypoint[1:]), p.Args...)...)
	s.cmd.Env = []string{"PATH=" + s.dir + ":/usr/bin:/bin", "DIR=" + s.dir}
	for k, v := range p.Env {
		s.cmd.Env = append(s.cmd.Env, k+"="+v)
	}
	var err error
	if s.said, err = os.OpenFile(filepath.Join(s.dir, "said"), os.O_CREATE|os.O_RDWR|os.O_APPEND, 0o600); err != nil {
		t.Fatal(err)
	}
	s.cmd.Stdout, s.cmd.Stderr = s.said, s.said // a file: what it leaves running, as a container would not, may keep it open
	s.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := s.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = syscall.Kill(-s.cmd.Process.Pid, syscall.SIGKILL) })
	return s
}

// wait waits until a file is there that a tool makes.
func (s *shell) wait(file string) {
	s.t.Helper()
	for {
		if _, err := os.Stat(filepath.Join(s.dir, file)); err == nil {
			return
		}
		if s.t.Context().Err() != nil {
			s.t.Fatalf("%s never came", file)
		}
		time.Sleep(time.Millisecond)
	}
}

func (s *shell) ask() { _ = s.cmd.Process.Signal(syscall.SIGTERM) }

func (s *shell) end() (int, string) {
	_ = s.cmd.Wait()
	said, err := os.ReadFile(s.said.Name())
	if err != nil {
		s.t.Fatal(err)
	}
	return s.cmd.ProcessState.ExitCode(), string(said)
}

func TestRayWorkerTriesAgainUntilItIsAsked(t *testing.T) {
	t.Parallel()
	s := begin(t, Engines["ray"].Program(Task{Rank: 2, Size: 3}), map[string]string{
		// Two heads that are not there, then one that is.
		"ray": `echo "ray $*"
if [ -e $DIR/2 ]; then trap 'echo asked; exit 1' TERM; touch $DIR/joined; while :; do /bin/sleep 0.01; done; fi
if [ -e $DIR/1 ]; then touch $DIR/2; else touch $DIR/1; fi
exit 1`})
	s.wait("joined")
	s.ask()
	code, said := s.end()
	if code != 0 || strings.Count(said, "--address=10.77.0.2:6379") != 3 || !strings.Contains(said, "asked") {
		t.Errorf("exit code %d: %s", code, said)
	}
}

func TestRayHeadEndsWithItsCommand(t *testing.T) {
	t.Parallel()
	tools := map[string]string{
		"ray": `echo "ray $*" >> $DIR/said
case "$1" in
status) [ -e $DIR/one ] && echo " 1 node_b"; touch $DIR/one; echo " 1 node_a";;
esac`,
		"work": `echo "work $1|$2"; exit 7`,
	}
	code, said := begin(t, Engines["ray"].Program(Task{Size: 2, Command: []string{"work", "a b", "$(c)"}}), tools).end()
	if code != 7 || !strings.Contains(said, "work a b|$(c)") || strings.Count(said, "ray status") != 2 || !strings.Contains(said, "ray stop") || !strings.Contains(said, "ray start") {
		t.Errorf("exit code %d: %s", code, said)
	}
	// Asked to end, it hands that on, and what its program makes of it is its own.
	tools["work"] = `trap 'exit 3' TERM; touch $DIR/working; while :; do /bin/sleep 0.01; done`
	s := begin(t, Engines["ray"].Program(Task{Size: 1, Command: []string{"work"}}), tools)
	s.wait("working")
	s.ask()
	if code, said := s.end(); code != 3 {
		t.Errorf("exit code %d: %s", code, said)
	}
	// A head that does not come up fails.
	if code, said := begin(t, Engines["ray"].Program(Task{Size: 1, Command: []string{"work"}}), map[string]string{"ray": "exit 1"}).end(); code != 1 {
		t.Errorf("exit code %d: %s", code, said)
	}
}

// On a busy machine Ray gives up its start. The head is started again, but not after three other failures, and not once
// it had started.
func TestRayHeadStartsAgain(t *testing.T) {
	t.Parallel()
	const gives = `echo "ray $*"
[ "$1" = start ] || exit 0
mkdir -p $TMPDIR/ray
if [ -e $DIR/1 ]; then touch $TMPDIR/ray/ray_current_cluster; exit 5; fi
touch $DIR/1
exit 1`
	for _, command := range [][]string{nil, {"work"}} {
		for tool, want := range map[string]struct{ starts, code int }{gives: {2, 5}, `echo "ray $*"; exit 1`: {3, 1}} {
			p := Engines["ray"].Program(Task{Size: 1, Command: command})
			s := begin(t, Program{Entrypoint: []string{"/bin/sh", "-c", "TMPDIR=$DIR/tmp; export TMPDIR; " + p.Entrypoint[2],
				"starling"}, Args: p.Args, Env: p.Env}, map[string]string{"ray": tool})
			code, said := s.end()
			if command != nil {
				want.code = 1
			}
			if n := strings.Count(said, "ray start"); n != want.starts || code != want.code {
				t.Errorf("command %v: %d starts, exit code %d, want %v: %s", command, n, code, want, said)
			}
		}
	}
}

func TestDaskHead(t *testing.T) {
	t.Parallel()
	tools := map[string]string{
		"dask": `if [ $1 = worker ]; then echo "$*"; exit 1; fi
trap 'exit 1' TERM; touch $DIR/scheduling; while :; do /bin/sleep 0.01; done`,
		"work": `until [ -e $DIR/scheduling ]; do /bin/sleep 0.01; done; exit 5`,
	}
	if code, said := begin(t, Engines["dask"].Program(Task{Size: 2, Command: []string{"work"}}), tools).end(); code != 5 {
		t.Errorf("exit code %d: %s", code, said)
	}
	s := begin(t, Engines["dask"].Program(Task{Size: 2}), maps.Clone(tools))
	s.wait("scheduling")
	s.ask()
	if code, said := s.end(); code != 0 {
		t.Errorf("a scheduler that was asked to end: exit code %d: %s", code, said)
	}
	tools["dask"] = "exit 4"
	if code, said := begin(t, Engines["dask"].Program(Task{Size: 2}), tools).end(); code != 4 {
		t.Errorf("a scheduler that fails: exit code %d: %s", code, said)
	}
}

func TestMPIHolds(t *testing.T) {
	t.Parallel()
	s := begin(t, Engines["mpi"].Program(Task{Rank: 1, Size: 2, Command: []string{"ring"}}), map[string]string{})
	s.wait("slept")
	s.ask()
	if code, said := s.end(); code != 0 {
		t.Errorf("exit code %d: %s", code, said)
	}
}

func TestMPIHead(t *testing.T) {
	t.Parallel()
	p := Engines["mpi"].Program(Task{Size: 2, Command: []string{"ring", "a b"}})
	for code, launcher := range map[int]string{9: "mpirun (Open MPI) 4.1.4", 0: "HYDRA build details"} {
		got, said := begin(t, p, map[string]string{
			"mpirun": fmt.Sprintf(`[ "$1" != --version ] || { echo "%s"; exit; }
echo "$1 $2 $*|$OMPI_MCA_ess_base_forward_signals"; exit %d`, launcher, code)}).end()
		if got != code || !strings.HasSuffix(said, "ring a b|none\n") || strings.Contains(said, "-f /etc/cluster/hosts") == (code == 9) {
			t.Errorf("%s ends with %d: exit code %d: %s", launcher, code, got, said)
		}
	}
}

func TestTorchArgs(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{
		"train.py --x 1":              "train.py --x 1",
		"python train.py":             "train.py",
		"/usr/bin/python3 -m pkg a":   "-m pkg a",
		"-m pkg":                      "-m pkg",
		"torchrun --no-python ./a":    "--no-python ./a",
		"./binary train.py":           "--no-python ./binary train.py",
		"python3 -u train.py":         "--no-python python3 -u train.py",
		"/opt/conda/bin/python3 a.py": "a.py",
	} {
		if got := strings.Join(torchArgs(strings.Fields(in)), " "); got != want {
			t.Errorf("%s: %s, want %s", in, got, want)
		}
	}
}

// Only a head that others look for has precedence.
func TestFirst(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		engine string
		rank   uint32
		want   bool
	}{{"ray", 0, true}, {"ray", 1, false}, {"dask", 0, true}, {"torchrun", 0, false}, {"mpi", 0, false}, {"none", 0, false}, {"unknown", 0, false}} {
		if got := (Plan{Engine: c.engine, Rank: c.rank}).First(); got != c.want {
			t.Errorf("rank %d of %s: %v", c.rank, c.engine, got)
		}
	}
}
