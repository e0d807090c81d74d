package webhook

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/starling-network/starling/node/store"
)

var quiet = slog.New(slog.DiscardHandler)

func open(t *testing.T, st store.Store, private bool) *Queue {
	t.Helper()
	q, err := Open(t.Context(), Config{Store: st, Private: private, Log: quiet,
		Secret: func(context.Context, string, int) ([]byte, error) { return []byte("key"), nil }})
	if err != nil {
		t.Fatal(err)
	}
	return q
}

// run delivers until the test ends or stop is called.
func (q *Queue) run(t *testing.T) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		q.Run(ctx)
	}()
	stop = func() { cancel(); <-done }
	t.Cleanup(stop)
	return stop
}

func queue(t *testing.T, st store.Store, d Delivery) {
	t.Helper()
	p, err := d.Put()
	if err == nil {
		err = st.Write(t.Context(), p)
	}
	if err != nil {
		t.Fatal(err)
	}
}

func TestCheckRefusesPrivateHosts(t *testing.T) {
	t.Parallel()
	for url, want := range map[string]bool{
		"https://hooks.example/starling": true, "http://93.184.216.34:8080/x": true, "http://[2606:2800:220:1::1]/": true,
		"http://127.0.0.1:9/x": false, "http://localhost/x": false, "http://10.0.0.7/": false, "http://[::1]:80/": false,
		"http://169.254.169.254/latest": false, "http://[::ffff:127.0.0.1]/": false,
	} {
		if err := open(t, store.NewMemory(), false).Check(url); errors.Is(err, ErrPrivate) == want || want && err != nil {
			t.Errorf("%s: %v", url, err)
		}
		if err := open(t, store.NewMemory(), true).Check(url); err != nil {
			t.Errorf("%s: %v where private addresses are allowed", url, err)
		}
	}
}

func delivery(t *testing.T, url, event string, n int) Delivery {
	t.Helper()
	d, err := New("j1", 0, url, event, true, time.Now().Add(time.Duration(n)), map[string]string{"id": "j1"})
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// server answers with the statuses given, then with 200, and hands on what it was sent.
func server(t *testing.T, statuses ...int) (url string, got <-chan *http.Request, bodies <-chan []byte) {
	reqs, texts := make(chan *http.Request, 100), make(chan []byte, 100)
	n := 0
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		b, _ := io.ReadAll(r.Body)
		reqs <- r
		texts <- b
		if n++; n <= len(statuses) {
			w.Header().Set("Location", "http://127.0.0.1:1/")
			w.WriteHeader(statuses[n-1])
		}
	}))
	t.Cleanup(s.Close)
	return s.URL + "/hook", reqs, texts
}

func TestDelivery(t *testing.T) {
	t.Parallel()
	url, got, bodies := server(t)
	st := store.NewMemory()
	q := open(t, st, true)
	stop := q.run(t)
	for i, event := range []string{"running", "succeeded"} {
		d := delivery(t, url, event, i)
		queue(t, st, d)
		q.Added(d)
	}
	for _, event := range []string{"running", "succeeded"} { // in order
		r, body := <-got, <-bodies
		if r.Method != http.MethodPost || r.Header.Get(HeaderEvent) != event || r.Header.Get("Content-Type") != "application/json" {
			t.Errorf("%s %v", r.Method, r.Header)
		}
		var b Body
		if err := json.Unmarshal(body, &b); err != nil || b.Event != event || b.ID != r.Header.Get(HeaderDelivery) {
			t.Errorf("%s: %v", body, err)
		}
		at, _, _ := strings.Cut(strings.TrimPrefix(r.Header.Get(HeaderSignature), "t="), ",")
		unix, err := strconv.ParseInt(at, 10, 64)
		if err != nil || Sign([]byte("key"), time.Unix(unix, 0), body) != r.Header.Get(HeaderSignature) {
			t.Errorf("signature %q: %v", r.Header.Get(HeaderSignature), err)
		}
	}
	waitEmpty(t, q)
	stop()
	if n := open(t, st, true).Waiting(); n != 0 {
		t.Errorf("the journal still has %d", n)
	}
}

// waitEmpty returns when nothing waits any more: the server has its request before the queue has the answer.
func waitEmpty(t *testing.T, q *Queue) {
	t.Helper()
	for deadline := time.Now().Add(20 * time.Second); q.Waiting() > 0; {
		if time.Now().After(deadline) {
			t.Fatalf("%d still wait", q.Waiting())
		}
		time.Sleep(time.Millisecond)
	}
}

// What was journalled and not taken is delivered by the next process.
func TestSurvivesRestart(t *testing.T) {
	t.Parallel()
	url, got, _ := server(t, http.StatusInternalServerError)
	st := store.NewMemory()
	d := delivery(t, url, "failed", 0)
	queue(t, st, d) // and the peer dies before it tries
	q := open(t, st, true)
	stop := q.run(t)
	<-got // it is refused
	waitTried(t, st, d.ID)
	stop()
	q = open(t, st.Snapshot(), true)
	if q.Waiting() != 1 {
		t.Fatalf("%d wait after the restart", q.Waiting())
	}
	q.run(t)
	if r := <-got; r.Header.Get(HeaderDelivery) != d.ID {
		t.Errorf("delivery %s", r.Header.Get(HeaderDelivery))
	}
	waitEmpty(t, q)
}

func waitTried(t *testing.T, st store.Store, id string) {
	t.Helper()
	for deadline := time.Now().Add(20 * time.Second); time.Now().Before(deadline); time.Sleep(time.Millisecond) {
		if d, err := deliveries.Get(t.Context(), st, id); err == nil && d.Tries > 0 {
			return
		}
	}
	t.Fatal("the failed try is not in the journal")
}

// Some answers end a delivery at once; an address that is not public is one of them.
func TestGivenUp(t *testing.T) {
	t.Parallel()
	gone, asked, _ := server(t, http.StatusGone, http.StatusGone)
	moved, _, _ := server(t, http.StatusFound, http.StatusFound)
	private, never, _ := server(t)
	for _, c := range []struct {
		name, url string
		private   bool
	}{
		{"gone", gone, true}, {"moved", moved, true}, {"loopback", private, false}, {"by name", strings.Replace(private, "127.0.0.1", "localhost", 1), false},
	} {
		t.Run(c.name, func(t *testing.T) {
			st := store.NewMemory()
			q := open(t, st, c.private)
			q.run(t)
			d := delivery(t, c.url, "failed", 0)
			queue(t, st, d)
			q.Added(d)
			waitEmpty(t, q)
			if _, err := deliveries.Get(t.Context(), st, d.ID); !errors.Is(err, store.ErrNotFound) {
				t.Errorf("the journal keeps it: %v", err)
			}
		})
	}
	if len(asked) != 1 {
		t.Errorf("a page that is gone was asked %d times", len(asked))
	}
	if len(never) > 0 {
		t.Error("a private address was called")
	}
}

func TestBackoff(t *testing.T) {
	t.Parallel()
	for n, want := range map[int]time.Duration{1: time.Second, 2: 2 * time.Second, 5: 16 * time.Second, 13: longestTry, 1000: longestTry} {
		if got := backoff(n); got != want {
			t.Errorf("after %d tries %v, want %v", n, got, want)
		}
	}
}

func TestRoom(t *testing.T) {
	t.Parallel()
	q := open(t, store.NewMemory(), false)
	for i := range MaxWaiting {
		q.add(Delivery{Job: fmt.Sprint(i)})
	}
	if err := q.Room(); !errors.Is(err, ErrFull) {
		t.Error(err)
	}
}

func FuzzDelivery(f *testing.F) {
	d, err := New("j1", 3, "https://example.org", "failed", true, time.Unix(1, 2), map[string]string{"a": "b"})
	if err != nil {
		f.Fatal(err)
	}
	p, err := d.Put()
	if err != nil {
		f.Fatal(err)
	}
	f.Add(p.Key, p.Value)
	f.Add("x", []byte(`{}`))
	f.Fuzz(func(t *testing.T, key string, data []byte) {
		s := store.NewMemory()
		if s.Write(t.Context(), store.Put{Kind: deliveries.Kind(), Key: key, Value: data}) != nil {
			t.Skip() // no key
		}
		var got []Delivery
		add := func(d Delivery) { got = append(got, d) }
		if load(t.Context(), s, add) != nil {
			return
		}
		p, err := got[0].Put()
		if err != nil {
			t.Skip() // times that JSON cannot write
		}
		if err := errors.Join(s.Write(t.Context(), p), load(t.Context(), s, add)); err != nil {
			t.Fatal(err)
		}
		more, err := got[len(got)-1].Put()
		if err != nil || len(got) != 2 || !reflect.DeepEqual(p, more) {
			t.Fatalf("%s came back as %s: %v", p.Value, more.Value, err)
		}
	})
}

// Power is cut before and after every write of a queue. The next one delivers all that wait, in order, and nothing that
// the journal has as delivered.
func TestCrashAtEveryWrite(t *testing.T) {
	t.Parallel()
	for _, when := range []store.When{store.Before, store.After} {
		for n := 1; crashAt(t, n, when); n++ {
			if n > 10 {
				t.Fatal("more writes than tries")
			}
		}
	}
}

func crashAt(t *testing.T, n int, when store.When) (crashed bool) {
	url, got, _ := server(t, http.StatusInternalServerError)
	disk := store.NewMemory()
	var ids []string
	for i, event := range []string{"running", "succeeded"} {
		d := delivery(t, url, event, i)
		queue(t, disk, d)
		ids = append(ids, d.ID)
	}
	power := store.NewCrashing(disk)
	power.CrashAt(n, when)
	q := open(t, power, true)
	stop := q.run(t)
	for !down(power) && q.Waiting() > 0 {
		time.Sleep(time.Millisecond)
	}
	stop()
	if crashed = down(power); !crashed && power.Count() != 3 {
		t.Errorf("without a crash: %d writes, want 3", power.Count())
	}
	first := delivered(got)
	var left []string
	if err := load(t.Context(), disk, func(d Delivery) { left = append(left, d.ID) }); err != nil {
		t.Fatal(err)
	}
	next := open(t, disk, true)
	next.run(t)
	waitEmpty(t, next)
	if second := delivered(got); !slices.Equal(second, left) {
		t.Errorf("crash at write %d, side %d: delivered were %q, want %q", n, when, second, left)
	}
	if i := len(ids) - len(left); !slices.Equal(left, ids[i:]) || len(first) < i {
		t.Errorf("crash at write %d, side %d: %q is left after %q", n, when, left, first)
	}
	if err := load(t.Context(), disk, func(d Delivery) { t.Errorf("%s is left", d.ID) }); err != nil {
		t.Error(err)
	}
	return crashed
}

// delivered returns the deliveries that were tried, each as often as others came between.
func delivered(got <-chan *http.Request) (ids []string) {
	for len(got) > 0 {
		if id := (<-got).Header.Get(HeaderDelivery); len(ids) == 0 || ids[len(ids)-1] != id {
			ids = append(ids, id)
		}
	}
	return ids
}

// down reports whether the power of a journal was cut.
func down(s *store.Crashing) bool {
	select {
	case <-s.Crashed():
		return true
	default:
		return false
	}
}
