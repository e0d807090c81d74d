package child

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"
)

// mode makes this test binary a program that does as it says.
const mode = "STARLING_TEST_CHILD"

var errFailed = errors.New("test program")

func TestMain(m *testing.M) {
	if what := os.Getenv(mode); what != "" {
		os.Exit(program(what))
	}
	os.Exit(m.Run())
}

// program answers each line with the line. A line "wait ID" is answered after the line "cancel ID", "deaf ID" never.
func program(what string) int {
	what, argument, _ := strings.Cut(what, "=")
	in := bufio.NewReader(os.Stdin)
	for {
		l, err := in.ReadString('\n')
		if err != nil {
			return 0
		}
		if what == "once" { // crashes only while the file is there
			if os.Remove(argument) == nil {
				fmt.Fprintln(os.Stderr, "broken")
				return 3
			}
		}
		if strings.HasPrefix(l, "deaf") {
			continue
		}
		if strings.HasPrefix(l, "wait") {
			if _, err := in.ReadString('\n'); err != nil {
				return 0
			}
		}
		fmt.Print(strconv.Itoa(os.Getpid()), " ", l)
	}
}

func start(t *testing.T, cfg Config, what string) *Program {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cfg.Path, cfg.Env, cfg.Failed = self, []string{mode + "=" + what}, errFailed
	cfg.Read = func(r *bufio.Reader) ([]byte, error) { return r.ReadBytes('\n') }
	p := New(cfg)
	t.Cleanup(func() {
		if err := p.Close(); err != nil {
			t.Error(err)
		}
	})
	return p
}

// question asks with a word, and tells which process answered.
func question(word string, pid *string) Question {
	return Question{
		Timeout: time.Hour,
		Text:    func(id uint64) ([]byte, error) { return fmt.Appendf(nil, "%s %d\n", word, id), nil },
		Answer: func(id uint64, b []byte) error {
			var text string
			*pid, text, _ = strings.Cut(string(b), " ")
			if want := fmt.Sprintf("%s %d\n", word, id); text != want {
				return fmt.Errorf("%q, want %q", text, want)
			}
			return nil
		},
	}
}

// After a crash it is left alone for a while, longer each time, and then it works again.
func TestBackoff(t *testing.T) {
	t.Parallel()
	bomb := filepath.Join(t.TempDir(), "bomb")
	now := time.Unix(1_000_000, 0)
	p := start(t, Config{Now: func() time.Time { return now }}, "once="+bomb)
	var pid string
	ask := func() error { return p.Call(t.Context(), question("ask", &pid)) }
	if err := ask(); err != nil {
		t.Fatal(err)
	}
	first := pid
	if err := os.WriteFile(bomb, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := ask(); !errors.Is(err, errFailed) || !strings.Contains(err.Error(), "crashed: exit status 3: broken") {
		t.Fatal(err)
	}
	if err := ask(); !errors.Is(err, errFailed) || !strings.Contains(err.Error(), "exit status 3: broken (tried again in 1s)") {
		t.Fatalf("asked again at once: %v", err)
	}
	now = now.Add(time.Second)
	if err := ask(); err != nil || pid == first {
		t.Fatal(err)
	}
	if p.failures != 0 {
		t.Error("failures are remembered after a success")
	}
	for n, want := range map[int]time.Duration{1: time.Second, 2: 2 * time.Second, 6: 32 * time.Second, 7: time.Minute, 1000: time.Minute} {
		if got := backoff(n); got != want {
			t.Errorf("after %d failures %v, want %v", n, got, want)
		}
	}
}

// A program that ends a question when it is told to goes on; one that does not is ended. Without a way to tell, it is ended.
func TestCancel(t *testing.T) {
	t.Parallel()
	for word, kept := range map[string]bool{"wait": true, "deaf": false, "none": false} {
		p := start(t, Config{}, "good")
		var before, after string
		if err := p.Call(t.Context(), question("ask", &before)); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		q := question(word, &after)
		if word == "none" {
			q = question("deaf", &after)
		} else {
			q.Cancel = func(id uint64) []byte { return fmt.Appendf(nil, "cancel %d\n", id) }
		}
		if q.Grace = time.Hour; !kept {
			q.Grace = time.Millisecond
		}
		text := q.Text
		q.Text = func(id uint64) ([]byte, error) {
			cancel()
			return text(id)
		}
		if err := p.Call(ctx, q); !errors.Is(err, context.Canceled) {
			t.Fatalf("%s: %v", word, err)
		}
		if err := p.Call(t.Context(), question("ask", &after)); err != nil {
			t.Fatalf("%s: %v", word, err)
		}
		if (before == after) != kept {
			t.Errorf("%s: process %s, then %s", word, before, after)
		}
	}
}

// Who waits for another's question leaves when its context ends.
func TestTurn(t *testing.T) {
	t.Parallel()
	p := start(t, Config{}, "good")
	p.turn <- struct{}{}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	var pid string
	if err := p.Call(ctx, question("ask", &pid)); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	<-p.turn
	if err := p.Close(); err != nil {
		t.Fatal(err)
	}
	if err := p.Call(t.Context(), question("ask", &pid)); !errors.Is(err, errFailed) {
		t.Errorf("a closed program answers: %v", err)
	}
}

// A process that was killed and does not go away, stuck in the driver, is not joined by a second one.
func TestStuck(t *testing.T) {
	t.Parallel()
	p := start(t, Config{}, "good")
	cmd := exec.Command("true")
	if err := cmd.Start(); err != nil {
		t.Skipf("no program to start: %v", err)
	}
	defer func() { _ = cmd.Wait() }()
	gone := make(chan struct{})
	p.dying = &process{cmd: cmd, gone: gone}
	var pid string
	if err := p.Call(t.Context(), question("ask", &pid)); !errors.Is(err, errFailed) || !strings.Contains(err.Error(), "hangs in the driver") {
		t.Error(err)
	}
	close(gone)
	if err := p.Call(t.Context(), question("ask", &pid)); err != nil {
		t.Error(err)
	}
}
