package scenarios

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"
)

// A step that fails does not keep the next ones from being done; the end of the context does.
func TestPlay(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	broken := errors.New("broken")
	var said strings.Builder
	o := Options{Say: func(format string, _ ...any) { said.WriteString(format) }}
	steps := []Step{
		{"one", func(context.Context) (string, error) { return "done", nil }},
		{"two", func(context.Context) (string, error) { return "half", broken }},
		{"three", func(ctx context.Context) (string, error) {
			_, bounded := ctx.Deadline()
			if !bounded {
				t.Error("a step without an end")
			}
			cancel()
			return "in\ntwo lines", nil
		}},
		{"four", func(context.Context) (string, error) { t.Error("goes on after the end"); return "", nil }},
	}
	rows, err := Play(ctx, o, time.Minute, steps)
	if !errors.Is(err, context.Canceled) || len(rows) != 3 || rows[0].Err != nil || !errors.Is(rows[1].Err, broken) || !strings.Contains(said.String(), "FAILED") {
		t.Fatalf("%v, %v", rows, err)
	}
	var b strings.Builder
	err = table(&b, rows)
	if want := "ok      one    done\nFAILED  two    half\nok      three  in two lines\n"; err == nil || err.Error() != "1 of 3 failed" || b.String() != want {
		t.Errorf("%v\n%s", err, b.String())
	}
}

// A wait that ends has what its last whole try saw: one that was cut short saw nothing.
func TestUntil(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	tries := 0
	_, err := Until(ctx, func() (bool, string, error) {
		if tries++; tries == 2 {
			cancel()
			return false, "", errors.New("killed")
		}
		return false, "2 of 3 nodes", nil
	})
	if !errors.Is(err, context.Canceled) || !strings.Contains(err.Error(), "2 of 3 nodes") || strings.Contains(err.Error(), "killed") {
		t.Errorf("%v, want what the first try saw", err)
	}
	if _, err := Until(ctx, func() (bool, string, error) { return false, "nothing yet", nil }); err == nil ||
		!strings.Contains(err.Error(), "nothing yet") {
		t.Errorf("%v, want what the only try saw", err)
	}
	if saw, err := Until(ctx, func() (bool, string, error) { return true, "all", nil }); saw != "all" || err != nil {
		t.Errorf("%q, %v", saw, err)
	}
}
