package dashboard

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"
)

const token = "0123456789abcdef0123456789abcdef"

// configOf reaches a head that is h.
func configOf(t *testing.T, h http.Handler) Config {
	t.Helper()
	s := httptest.NewServer(h)
	t.Cleanup(s.Close)
	return Config{Token: token, Dial: func(ctx context.Context) (net.Conn, error) {
		var d net.Dialer
		return d.DialContext(ctx, "tcp", s.Listener.Addr().String())
	}}
}

// The first answers were recorded of Ray 2.55.1.
func TestBusy(t *testing.T) {
	t.Parallel()
	const driver = `{"type": "DRIVER", "job_id": "01000000", "submission_id": null, "driver_info": {"id": "01000000", "node_ip_address": "10.77.0.2", "pid": "7"},
 "status": "RUNNING", "entrypoint": "", "message": null, "error_type": null, "start_time": 1795390461887, "end_time": 0, "metadata": {}, "runtime_env": {},
 "driver_agent_http_address": null, "driver_node_id": null, "driver_exit_code": null}`
	const ended = `{"type": "SUBMISSION", "job_id": null, "submission_id": "raysubmit_a", "driver_info": null, "status": "FAILED", "entrypoint": "false",
 "message": "m", "error_type": null, "start_time": 1795390461887, "end_time": 1795390464119, "metadata": null, "runtime_env": {}, "driver_exit_code": 3}`
	for _, c := range []struct {
		name, answer string
		busy         bool
		err          error
	}{
		{"none", `[]`, false, nil},
		{"ended", `[` + ended + `]`, false, nil},
		{"a driver", `[` + ended + `, ` + driver + `]`, true, nil},
		{"waiting", `[{"status": "PENDING"}]`, true, nil},
		{"stopped", `[{"status": "STOPPED"}, {"status": "SUCCEEDED"}]`, false, nil},
		{"no JSON", `<html>`, false, ErrAnswer},
		{"another type", `[{"status": 3}]`, false, ErrAnswer},
		{"another status", `[{"status": "RUNNING"}, {"status": "\u001b[2J"}]`, false, ErrAnswer},
	} {
		busy, err := Busy(t.Context(), configOf(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path != "/api/jobs/" || r.Header.Get("Authorization") != "Bearer "+token {
				t.Errorf("%s %s", r.URL, r.Header)
			}
			io.WriteString(w, c.answer)
		})))
		if busy != c.busy || !errors.Is(err, c.err) {
			t.Errorf("%s: %v, %v", c.name, busy, err)
		}
	}
}

// A head that is silent, refuses, leads elsewhere or never ends is not known to be idle.
func TestBusyUnknown(t *testing.T) {
	t.Parallel()
	for name, h := range map[string]http.HandlerFunc{
		"refused": func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "Forbidden", http.StatusForbidden) },
		"a redirection": func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, "http://127.0.0.1:1/", http.StatusFound)
		},
		"without end": func(w http.ResponseWriter, r *http.Request) {
			piece := bytes.Repeat([]byte{' '}, 1<<20)
			for r.Context().Err() == nil {
				if _, err := w.Write(piece); err != nil {
					return
				}
			}
		},
	} {
		if _, err := Busy(t.Context(), configOf(t, h)); !errors.Is(err, ErrAnswer) {
			t.Errorf("%s: %v", name, err)
		}
	}
	gone := errors.New("the rank is replaced")
	if _, err := Busy(t.Context(), Config{Dial: func(context.Context) (net.Conn, error) { return nil, gone }}); !errors.Is(err, gone) {
		t.Error(err)
	}
}

func FuzzBusy(f *testing.F) {
	f.Add([]byte(`[{"status": "RUNNING"}, {"status": "FAILED"}]`))
	f.Fuzz(func(t *testing.T, b []byte) {
		if _, err := readBusy(b); err != nil && !errors.Is(err, ErrAnswer) {
			t.Fatal(err)
		}
	})
}
