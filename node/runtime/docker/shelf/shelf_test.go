package shelf

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/starling-network/starling/node/runtime"
)

// memory is a store of images of 5 GiB on a disk of 100 GiB.
type memory struct {
	free   int64
	images []Shelved
}

func (m *memory) Usage() (free, size int64, ok bool) { return m.free, 100 << 30, true }

func (m *memory) List(context.Context) ([]Shelved, error) { return slices.Clone(m.images), nil }

func (m *memory) Remove(_ context.Context, tag string) error {
	if strings.HasPrefix(tag, "used") {
		return errors.New("a container is made of it")
	}
	m.free += 5 << 30
	m.images = slices.DeleteFunc(m.images, func(i Shelved) bool { return i.Tag == tag })
	return nil
}

func (m *memory) Touch(context.Context, string, string) error { return nil }

// newTestShelf is a shelf in memory that keeps 4 GiB free.
func newTestShelf(free int64, images ...Shelved) *Shelf {
	return New(&memory{free: free, images: slices.Clone(images)}, 4<<10, 85, slog.New(slog.DiscardHandler))
}

// Room is made by removing what was used longest ago, and only as much as is needed; a floor stays free, and what
// several pulls plan is summed.
func TestShelf(t *testing.T) {
	t.Parallel()
	ago := func(d time.Duration) time.Time { return time.Now().Add(-d) }
	old := []Shelved{{Tag: "b", Used: ago(2 * time.Hour)}, {Tag: "used", Used: ago(9 * time.Hour)}, {Tag: "a", Used: ago(3 * time.Hour)}, {Tag: "fresh", Used: ago(time.Minute)}}
	for name, c := range map[string]struct {
		free, need int64 // GiB
		left       int
		err        error
	}{
		"enough":                     {50, 10, 4, nil},
		"above the high-water mark":  {12, 0, 3, nil},
		"all that may go":            {12, 12, 2, nil}, // too full still, which is no error
		"below the floor":            {5, 20, 2, runtime.ErrNoRoom},
		"below the floor at once":    {1, 0, 2, nil},
		"far too large for the disk": {90, 1 << 20, 2, runtime.ErrNoRoom},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newTestShelf(c.free<<30, old...)
			p, err := s.Plan(t.Context(), c.need<<30)
			if left, _ := s.store.List(t.Context()); !errors.Is(err, c.err) || len(left) != c.left {
				t.Errorf("%v; %v are left", err, left)
			}
			p.End(t.Context())
			if s.planned != 0 {
				t.Errorf("%d bytes are still planned", s.planned)
			}
		})
	}
	s := newTestShelf(50 << 30)
	first, err := s.Plan(t.Context(), 40<<30)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Plan(t.Context(), 10<<30); !errors.Is(err, runtime.ErrNoRoom) {
		t.Errorf("the same room twice: %v", err)
	}
	if err := first.Become(t.Context(), 30<<30); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Plan(t.Context(), 10<<30); err != nil {
		t.Error(err)
	}
}

// One pull of an image goes on at a time, and who waits for it may give up.
func TestOnePullAtATime(t *testing.T) {
	t.Parallel()
	s := newTestShelf(50 << 30)
	done, err := s.Pulling(t.Context(), "a")
	if err != nil {
		t.Fatal(err)
	}
	other, err := s.Pulling(t.Context(), "b")
	if err != nil {
		t.Fatal(err)
	}
	other()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := s.Pulling(ctx, "a"); !errors.Is(err, context.Canceled) {
		t.Errorf("waiting for another's pull: %v", err)
	}
	next := make(chan error)
	go func() {
		done, err := s.Pulling(t.Context(), "a")
		if err == nil {
			done()
		}
		next <- err
	}()
	done()
	if err := <-next; err != nil {
		t.Error(err)
	}
}
