package rayjobs

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"

	"github.com/gorilla/websocket"
)

func TestSubmit(t *testing.T) {
	t.Parallel()
	h, c := newHead(t)
	if v, err := c.Version(t.Context()); v != "2.55.1" || err != nil {
		t.Errorf("%q, %v", v, err)
	}
	r := Request{ID: NewID(), Entrypoint: Quote([]string{"python", "a b.py", "it's"}), WorkingDir: "gcs://_ray_pkg_00.zip", Env: map[string]string{"K": "V"}}
	if err := c.Submit(t.Context(), r); err != nil {
		t.Fatal(err)
	}
	if j := h.jobs[r.ID]; j.entrypoint != `python 'a b.py' 'it'\''s'` || string(j.env) != `{"env_vars":{"K":"V"},"working_dir":"gcs://_ray_pkg_00.zip"}` {
		t.Errorf("%s, %s", j.entrypoint, j.env)
	}
	if err := c.Submit(t.Context(), r); !errors.Is(err, ErrExists) {
		t.Errorf("the same id twice: %v", err)
	}
	h.jobs[r.ID].exit = 3
	var log bytes.Buffer
	j, err := c.Follow(t.Context(), r.ID, &log)
	if err != nil || j.Status != Failed || j.Exit == nil || *j.Exit != 3 || j.Ended.UnixMilli() != 1795390464119 {
		t.Errorf("%+v, %v", j, err)
	}
	want := "Running entrypoint for job " + r.ID + ": " + r.Entrypoint + "\nbye\n"
	if log.String() != want {
		t.Errorf("%q", log.String())
	}
	if text, err := c.Log(t.Context(), r.ID); text != want || err != nil {
		t.Errorf("%q, %v", text, err)
	}
	jobs, err := c.Jobs(t.Context())
	if err != nil || len(jobs) != 2 || !jobs[0].Driver || jobs[0].ID != "01000000" || !jobs[0].Ended.IsZero() || jobs[1].ID != r.ID {
		t.Errorf("%+v, %v", jobs, err)
	}
	if going, err := c.Stop(t.Context(), r.ID); going || err != nil {
		t.Errorf("%v, %v", going, err)
	}
}

// An answer that is lost is asked for again, and the job runs once.
func TestLostAnswer(t *testing.T) {
	t.Parallel()
	h, c := newHead(t)
	h.lose, h.cut = 1, 2
	r := Request{ID: NewID(), Entrypoint: "true"}
	if err := c.Submit(t.Context(), r); err != nil || h.posts != 2 {
		t.Fatalf("%d posts, %v", h.posts, err)
	}
	var log bytes.Buffer
	if j, err := c.Follow(t.Context(), r.ID, &log); err != nil || j.Status != Succeeded {
		t.Errorf("%+v, %v", j, err)
	}
	if want := "Running entrypoint for job " + r.ID + ": true\nbye\n"; log.String() != want {
		t.Errorf("%q", log.String())
	}
}

// Where the stream of a log breaks again and again, the end of the job is told all the same, and the log is whole.
func TestBrokenTails(t *testing.T) {
	t.Parallel()
	h, c := newHead(t)
	h.cut = 1 << 20
	r := Request{ID: NewID(), Entrypoint: "true"}
	if err := c.Submit(t.Context(), r); err != nil {
		t.Fatal(err)
	}
	var log bytes.Buffer
	if j, err := c.Follow(t.Context(), r.ID, &log); err != nil || j.Status != Succeeded {
		t.Errorf("%+v, %v", j, err)
	}
	if want := "Running entrypoint for job " + r.ID + ": true\nbye\n"; log.String() != want {
		t.Errorf("%q", log.String())
	}
}

func TestRefused(t *testing.T) {
	t.Parallel()
	_, c := newHead(t)
	for _, do := range []func(id string) error{
		func(id string) error { _, err := c.Job(t.Context(), id); return err },
		func(id string) error { _, err := c.Log(t.Context(), id); return err },
		func(id string) error { _, err := c.Stop(t.Context(), id); return err },
		func(id string) error { _, err := c.Follow(t.Context(), id, io.Discard); return err },
	} {
		if err := do("raysubmit_never"); !errors.Is(err, ErrNoJob) {
			t.Errorf("a job that is not there: %v", err)
		}
		for _, id := range []string{"", "../version", "a/b", "a?b", "a\nb", strings.Repeat("a", 200)} {
			if err := do(id); !errors.Is(err, ErrID) {
				t.Errorf("%q: %v", id, err)
			}
		}
	}
	for _, token := range []string{"", "other"} {
		other := New(Config{Dial: c.cfg.Dial, Token: token, Wait: 1})
		defer other.Close()
		if _, err := other.Version(t.Context()); !errors.Is(err, ErrToken) || !strings.Contains(err.Error(), "authentication token") {
			t.Errorf("token %q: %v", token, err)
		}
		if _, err := other.Follow(t.Context(), "raysubmit_never", io.Discard); !errors.Is(err, ErrToken) {
			t.Errorf("token %q: %v", token, err)
		}
	}
	away := New(Config{Dial: func(context.Context) (net.Conn, error) { return nil, errors.New("nobody is there") }, Wait: 1})
	if err := away.Submit(t.Context(), Request{ID: "a"}); !errors.Is(err, ErrUnreachable) || !strings.Contains(err.Error(), "nobody is there") {
		t.Error(err)
	}
	if _, err := away.Follow(t.Context(), "a", io.Discard); !errors.Is(err, ErrUnreachable) {
		t.Error(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := c.Follow(ctx, "a", io.Discard); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}

// What a head could say that means no good.
func TestHostile(t *testing.T) {
	t.Parallel()
	endless := func(w http.ResponseWriter, r *http.Request) {
		piece := bytes.Repeat([]byte{' '}, 1<<20)
		for r.Context().Err() == nil {
			if _, err := w.Write(piece); err != nil {
				return
			}
		}
	}
	for name, c := range map[string]struct {
		h    http.HandlerFunc
		want error
		text string
	}{
		"no JSON":      {func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "<html>") }, ErrAnswer, ""},
		"another type": {func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, `[{"status": 3}]`) }, ErrAnswer, ""},
		"no id":        {func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, `[{"status": "RUNNING"}]`) }, ErrAnswer, "without an id"},
		"a bad id":     {func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, `[{"submission_id": "a\u001b[2J"}]`) }, ErrAnswer, "without an id"},
		"a bad status": {func(w http.ResponseWriter, _ *http.Request) {
			io.WriteString(w, `[{"submission_id": "a", "status": "\u001b[2J"}]`)
		}, ErrAnswer, `" [2J"`},
		"without end": {endless, ErrAnswer, "longer than 16 MiB"},
		"broken off": {func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", "9")
			io.WriteString(w, "[")
		}, ErrUnreachable, ""},
		"a redirection": {func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, "http://127.0.0.1:1/", http.StatusFound)
		}, nil, "(302)"},
		"a refusal without end": {func(w http.ResponseWriter, r *http.Request) {
			w.WriteHeader(http.StatusInternalServerError)
			endless(w, r)
		}, nil, "no reason given"},
		"escapes": {func(w http.ResponseWriter, _ *http.Request) {
			text(w, http.StatusInternalServerError, "a\nE: \x1b]0;x\x07 y\n.\n")
		}, nil, "(500): E:  ]0;x  y"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := clientOf(t, c.h).Jobs(t.Context())
			if err == nil || c.want != nil && !errors.Is(err, c.want) || !strings.Contains(err.Error(), c.text) {
				t.Errorf("%v", err)
			}
		})
	}
	t.Run("a message without end", func(t *testing.T) {
		t.Parallel()
		c := clientOf(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			var up websocket.Upgrader
			conn, err := up.Upgrade(w, r, nil)
			if err != nil {
				return
			}
			defer conn.Close()
			m, err := conn.NextWriter(websocket.TextMessage)
			for piece := make([]byte, 1<<20); err == nil; {
				_, err = m.Write(piece)
			}
		}))
		if _, err := c.Follow(t.Context(), "a", io.Discard); !errors.Is(err, ErrAnswer) {
			t.Error(err)
		}
	})
	t.Run("another job's id", func(t *testing.T) {
		t.Parallel()
		c := clientOf(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { answer(w, `{"submission_id": "other"}`) }))
		if err := c.Submit(t.Context(), Request{ID: "a"}); !errors.Is(err, ErrAnswer) {
			t.Error(err)
		}
	})
}

func TestReason(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"":                               "no reason given",
		" \n.\n":                         "no reason given",
		"Job nope does not exist":        "Job nope does not exist",
		fmt.Sprintf(exists, "a"):         "ValueError: Job with submission_id a already exists. Please use a different submission_id.",
		strings.Repeat("é", 2*maxReason): strings.Repeat("é", maxReason) + "…",
	} {
		if got := Reason(text); got != want {
			t.Errorf("%q: %q", text, got)
		}
	}
}

// FuzzJobs reads what a head may say of its jobs: what is taken is fit to be shown and asked for again.
func FuzzJobs(f *testing.F) {
	f.Add([]byte(`[{"type": "DRIVER", "job_id": "01000000", "submission_id": null, "status": "RUNNING", "entrypoint": "", "end_time": 0}]`))
	f.Add([]byte(`[{"submission_id": "raysubmit_a", "status": "FAILED", "start_time": 1795390461887, "end_time": 9223372036854775807, "driver_exit_code": -9}]`))
	f.Fuzz(func(t *testing.T, b []byte) {
		var all []details
		if json.Unmarshal(b, &all) != nil {
			return
		}
		for _, d := range all {
			j, err := d.job()
			if err != nil {
				if !errors.Is(err, ErrAnswer) {
					t.Fatal(err)
				}
				continue
			}
			if _, err := path(j.ID, "/logs"); err != nil {
				t.Fatal(err)
			}
			if _, err := json.Marshal(j); err != nil { // a time that JSON does not have
				t.Fatal(err)
			}
		}
	})
}
