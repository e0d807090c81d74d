package server

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/starling-network/starling/node/api"
	"github.com/starling-network/starling/node/buyer/record"
)

// wide is a job of so many ranks that to read it takes a while.
type wide struct {
	*fake
	takes time.Duration
}

func (w wide) Job(id string) (record.Job, error) {
	time.Sleep(w.takes)
	return w.fake.Job(id)
}

// A follower of a job that changes all the time gets every step, and the job itself only so often that a tenth of the
// time goes into it; in the end it gets the last state.
func TestEventsOfWideJob(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		takes time.Duration
		most  int // events with the job, of 500 changes in a second
	}{{0, 502}, {10 * time.Millisecond, 15}, {10 * time.Second, 3}} {
		synctest.Test(t, func(t *testing.T) {
			f := newFake()
			go func() {
				for range 500 {
					time.Sleep(2 * time.Millisecond)
					f.change(func() { f.steps = append(f.steps, record.Step{Kind: record.StepLeased}) })
				}
				f.change(func() { f.job.State = record.Succeeded })
			}()
			w := httptest.NewRecorder()
			r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/", nil)
			if err := sendEvents(wide{f, c.takes}, w, r, api.Events{ID: f.job.ID, Follow: true}); err != nil {
				t.Fatal(err)
			}
			text := w.Body.String()
			steps, jobs := strings.Count(text, "event: step"), strings.Count(text, "event: job")
			if steps != 500 || jobs > c.most || c.takes == 0 && jobs < 400 {
				t.Errorf("%v: %d steps, %d times the job", c.takes, steps, jobs)
			}
			if last := text[strings.LastIndex(text, "event: job"):]; !strings.Contains(last, string(record.Succeeded)) {
				t.Errorf("%v: the last event is %.100s", c.takes, last)
			}
		})
	}
}
