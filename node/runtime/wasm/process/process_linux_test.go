package process

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// taskEnv makes the test binary a process under test.
const taskEnv = "STARLING_TEST_PROCESS"

// tasks are the processes under test. Each prints a line when it is ready.
var tasks = map[string]func(arg string) error{
	"lock": func(path string) error {
		f, err := os.OpenFile(path, os.O_RDWR, 0)
		if err != nil {
			return err
		}
		defer f.Close()
		if err := Lock(f); err != nil {
			return err
		}
		fmt.Println("locked")
		time.Sleep(time.Hour) // until it is killed
		return nil
	},
	"stop": func(d string) error {
		after, err := time.ParseDuration(d)
		if err != nil {
			return err
		}
		s, err := NewStopper()
		if err != nil {
			return err
		}
		fmt.Println("stopping")
		if err := s.Stop(after); err != nil {
			return err
		}
		fmt.Println("awake")
		time.Sleep(time.Hour) // until it is killed
		return nil
	},
	"dead man": func(string) error {
		if err := KillAfter(50 * time.Millisecond); err != nil {
			return err
		}
		fmt.Println("armed")
		return unix.Kill(os.Getpid(), unix.SIGSTOP)
	},
	"spin": func(string) error {
		Yield()
		fmt.Println("spinning", CPUTime() > 0)
		for n := 0; n < math.MaxInt; n++ { // until it is killed
		}
		return nil
	},
}

func TestMain(m *testing.M) {
	if name, arg, ok := strings.Cut(os.Getenv(taskEnv), "="); ok {
		time.AfterFunc(time.Minute, func() { os.Exit(2) }) // its test was killed
		fmt.Fprintln(os.Stderr, tasks[name](arg))
		os.Exit(1)
	}
	os.Exit(m.Run())
}

// begin starts a process under test and returns a reader of its further lines.
func begin(t *testing.T, task, arg string) (*exec.Cmd, *bufio.Reader) {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = []string{taskEnv + "=" + task + "=" + arg}
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	lines := bufio.NewReader(out)
	if _, err := lines.ReadString('\n'); err != nil {
		t.Fatal(err)
	}
	return cmd, lines
}

// until polls a condition that comes true.
func until(t *testing.T, condition func() bool) {
	t.Helper()
	for !condition() {
		if t.Context().Err() != nil {
			t.FailNow()
		}
		time.Sleep(time.Millisecond)
	}
}

func open(t *testing.T, path string) *os.File {
	t.Helper()
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = f.Close() })
	return f
}

// It runs alone: between fork and exec of a child, its descriptors share the lock.
func TestLock(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lock")
	mine, other := open(t, path), open(t, path)
	if held, err := Held(other); held || err != nil {
		t.Errorf("free: %v, %v", held, err)
	}
	if err := Lock(mine); err != nil {
		t.Fatal(err)
	}
	if err := Lock(other); !errors.Is(err, ErrLocked) {
		t.Errorf("second lock: %v", err)
	}
	if held, err := Held(other); !held || err != nil {
		t.Errorf("locked: %v, %v", held, err)
	}
	if err := mine.Close(); err != nil {
		t.Fatal(err)
	}
	if held, err := Held(other); held || err != nil {
		t.Errorf("closed: %v, %v", held, err)
	}
	if err := other.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := Held(other); err == nil {
		t.Error("a closed file can be locked")
	}
}

// A lock ends with its process, however that dies.
func TestLockOfAnotherProcess(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "lock")
	f := open(t, path)
	cmd, _ := begin(t, "lock", path)
	if held, err := Held(f); !held || err != nil {
		t.Fatalf("%v, %v", held, err)
	}
	free := make(chan error, 1)
	go func() { free <- AwaitFree(f) }()
	select {
	case err := <-free:
		t.Fatalf("free while it is held: %v", err)
	default:
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	if err := <-free; err != nil {
		t.Error(err)
	}
	if err := Lock(f); err != nil {
		t.Errorf("after its death: %v", err)
	}
}

func TestStop(t *testing.T) {
	t.Parallel()
	t.Run("until it is woken", func(t *testing.T) {
		t.Parallel()
		cmd, lines := begin(t, "stop", "1h")
		until(t, func() bool { return Stopped(cmd.Process.Pid) })
		if err := cmd.Process.Signal(unix.SIGCONT); err != nil {
			t.Fatal(err)
		}
		if line, err := lines.ReadString('\n'); line != "awake\n" {
			t.Errorf("%q, %v", line, err)
		}
		until(t, func() bool { return !Stopped(cmd.Process.Pid) })
	})
	t.Run("for a time", func(t *testing.T) {
		t.Parallel()
		_, lines := begin(t, "stop", "20ms")
		if line, err := lines.ReadString('\n'); line != "awake\n" {
			t.Errorf("%q, %v", line, err)
		}
	})
}

// The kernel kills a process that cannot run any more.
func TestKillAfter(t *testing.T) {
	t.Parallel()
	cmd, lines := begin(t, "dead man", "")
	if _, err := io.ReadAll(lines); err != nil {
		t.Error(err)
	}
	err := cmd.Wait()
	var exit *exec.ExitError
	if !errors.As(err, &exit) || exit.Sys().(syscall.WaitStatus).Signal() != syscall.SIGKILL {
		t.Errorf("ended with %v", err)
	}
}

func TestUsage(t *testing.T) {
	t.Parallel()
	cmd, _ := begin(t, "spin", "")
	pid := cmd.Process.Pid
	until(t, func() bool {
		cpu, memory, err := Usage(pid)
		if err != nil {
			t.Fatal(err)
		}
		return cpu > 0 && memory > 0
	})
	stats, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", pid))
	if err != nil || len(stats) < 2 {
		t.Fatalf("threads: %v, %v", stats, err)
	}
	for _, name := range stats {
		b, err := os.ReadFile(name)
		if err != nil {
			continue // it has ended
		}
		_, rest, _ := strings.Cut(string(b), ") ")
		if nice := strings.Fields(rest)[16]; nice != "10" {
			t.Errorf("%s: nice %s, want 10", name, nice)
		}
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait()
	if _, _, err := Usage(pid); err == nil {
		t.Error("the usage of a dead process was read")
	}
	if !Stopped(pid) {
		t.Error("a dead process runs")
	}
}
