package rayjobs

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gorilla/websocket"
)

const token = "0123456789abcdef0123456789abcdef"

// head answers as the dashboard of Ray 2.55.1 did when this was written: statuses, types and texts are recorded from it.
type head struct {
	t    *testing.T
	mu   sync.Mutex
	jobs map[string]*headJob
	zips map[string][]byte
	// lose breaks so many answers to a POST off, after doing what was asked; cut so many tails, after their first message.
	lose, cut int
	posts     int
}

type headJob struct {
	entrypoint string
	env        json.RawMessage
	status     Status
	log        []string // messages of its tail
	exit       int
	polls      int // how often it is asked for until it has ended
}

func newHead(t *testing.T) (*head, *Client) {
	h := &head{t: t, jobs: map[string]*headJob{}, zips: map[string][]byte{}}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /api/version", func(w http.ResponseWriter, _ *http.Request) {
		answer(w, `{"version": "4", "ray_version": "2.55.1", "ray_commit": "237c2455ebb1ea15a32dd9e1fdeb2d617badc37f", "session_name": "session_2026-11-22_23-33-56_675009_10757"}`)
	})
	mux.HandleFunc("GET /api/packages/gcs/{name}", h.getPackage)
	mux.HandleFunc("PUT /api/packages/gcs/{name}", h.putPackage)
	mux.HandleFunc("POST /api/jobs/{$}", h.submit)
	mux.HandleFunc("GET /api/jobs/{$}", h.list)
	mux.HandleFunc("GET /api/jobs/{id}", h.get)
	mux.HandleFunc("GET /api/jobs/{id}/logs", h.logs)
	mux.HandleFunc("GET /api/jobs/{id}/logs/tail", h.tail)
	mux.HandleFunc("POST /api/jobs/{id}/stop", h.stop)
	return h, clientOf(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.Header.Get("Authorization") {
		case "":
			text(w, http.StatusUnauthorized, "Unauthorized: Missing authentication token")
		case "Bearer " + token:
			mux.ServeHTTP(w, r)
		default:
			text(w, http.StatusForbidden, "Forbidden: Invalid authentication token")
		}
	}))
}

// clientOf is a client of a head that is h.
func clientOf(t *testing.T, h http.Handler) *Client {
	t.Helper()
	c := New(configOf(t, h))
	t.Cleanup(c.Close)
	return c
}

func configOf(t *testing.T, h http.Handler) Config {
	t.Helper()
	s := httptest.NewServer(h)
	t.Cleanup(s.Close)
	return Config{Token: token, Wait: time.Millisecond, Dial: func(ctx context.Context) (net.Conn, error) {
		var d net.Dialer
		return d.DialContext(ctx, "tcp", s.Listener.Addr().String())
	}}
}

func answer(w http.ResponseWriter, body string) {
	w.Header().Set("Content-Type", "application/json; charset=utf-8")
	io.WriteString(w, body)
}

func text(w http.ResponseWriter, status int, body string) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.WriteHeader(status)
	io.WriteString(w, body)
}

func (h *head) getPackage(w http.ResponseWriter, r *http.Request) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.zips[r.PathValue("name")] == nil {
		text(w, http.StatusNotFound, "Package gcs://"+r.PathValue("name")+" does not exist")
	}
}

func (h *head) putPackage(_ http.ResponseWriter, r *http.Request) {
	b, err := io.ReadAll(r.Body)
	if err != nil {
		h.t.Error(err)
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.zips[r.PathValue("name")] = b
}

const exists = `Traceback (most recent call last):
  File "/ray/dashboard/modules/job/job_head.py", line 130, in _raise_error
    raise RuntimeError(f"Request failed with status code {status}: {error_text}.")
RuntimeError: Request failed with status code 400: Traceback (most recent call last):
  File "/ray/dashboard/modules/job/job_manager.py", line 560, in submit_job
    raise ValueError(
ValueError: Job with submission_id %s already exists. Please use a different submission_id.
.
`

func (h *head) submit(w http.ResponseWriter, r *http.Request) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.posts++
	var req struct {
		Entrypoint string          `json:"entrypoint"`
		ID         string          `json:"submission_id"`
		Env        json.RawMessage `json:"runtime_env"`
	}
	if err := json.NewDecoder(r.Body).Decode(&req); err != nil {
		text(w, http.StatusBadRequest, err.Error())
		return
	}
	if h.jobs[req.ID] != nil {
		text(w, http.StatusInternalServerError, fmt.Sprintf(exists, req.ID))
		return
	}
	h.jobs[req.ID] = &headJob{entrypoint: req.Entrypoint, env: req.Env, status: Pending, polls: 2,
		log: []string{"Running entrypoint for job " + req.ID + ": " + req.Entrypoint + "\n", "bye\n"}}
	if h.lose > 0 {
		h.lose--
		panic(http.ErrAbortHandler)
	}
	answer(w, fmt.Sprintf(`{"job_id": %q, "submission_id": %[1]q}`, req.ID))
}

// of is a job, or the answer that there is none.
func (h *head) of(w http.ResponseWriter, r *http.Request) *headJob {
	h.mu.Lock()
	defer h.mu.Unlock()
	j := h.jobs[r.PathValue("id")]
	if j == nil {
		text(w, http.StatusNotFound, "Job "+r.PathValue("id")+" does not exist")
	}
	return j
}

func (h *head) one(id string, j *headJob) string {
	exit, end := "null", "null"
	if j.status == Succeeded || j.status == Failed {
		exit, end = fmt.Sprint(j.exit), "1795390464119"
	}
	return fmt.Sprintf(`{"type": "SUBMISSION", "job_id": null, "submission_id": %q, "driver_info": null, "status": %q, "entrypoint": %q,
 "message": "Job has not started yet.", "error_type": null, "start_time": 1795390461887, "end_time": %s, "metadata": null, "runtime_env": %s,
 "driver_agent_http_address": "http://10.77.0.2:52365", "driver_node_id": "e47a8c0e", "driver_exit_code": %s}`, id, j.status, j.entrypoint, end, j.env, exit)
}

func (h *head) get(w http.ResponseWriter, r *http.Request) {
	j := h.of(w, r)
	if j == nil {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if j.polls--; j.polls <= 0 && !j.status.Ended() {
		j.status = Succeeded
		if j.exit != 0 {
			j.status = Failed
		}
	}
	answer(w, h.one(r.PathValue("id"), j))
}

func (h *head) list(w http.ResponseWriter, _ *http.Request) {
	h.mu.Lock()
	defer h.mu.Unlock()
	all := []string{`{"type": "DRIVER", "job_id": "01000000", "submission_id": null, "driver_info": {"id": "01000000", "node_ip_address": "10.77.0.2", "pid": "7"},
 "status": "RUNNING", "entrypoint": "", "message": null, "error_type": null, "start_time": 1795390461887, "end_time": 0, "metadata": {}, "runtime_env": {},
 "driver_agent_http_address": null, "driver_node_id": null, "driver_exit_code": null}`}
	for id, j := range h.jobs {
		all = append(all, h.one(id, j))
	}
	answer(w, "["+strings.Join(all, ", ")+"]")
}

func (h *head) logs(w http.ResponseWriter, r *http.Request) {
	if j := h.of(w, r); j != nil {
		b, err := json.Marshal(map[string]string{"logs": strings.Join(j.log, "")})
		if err != nil {
			h.t.Error(err)
		}
		answer(w, string(b))
	}
}

func (h *head) tail(w http.ResponseWriter, r *http.Request) {
	j := h.of(w, r)
	if j == nil {
		return
	}
	var up websocket.Upgrader
	conn, err := up.Upgrade(w, r, nil)
	if err != nil {
		return
	}
	defer conn.Close()
	h.mu.Lock()
	cut := h.cut > 0
	h.cut--
	h.mu.Unlock()
	for _, m := range j.log {
		if conn.WriteMessage(websocket.TextMessage, []byte(m)) != nil || cut {
			return
		}
	}
	_ = conn.WriteMessage(websocket.CloseMessage, websocket.FormatCloseMessage(websocket.CloseNormalClosure, ""))
	_, _, _ = conn.ReadMessage() // the other side's close
}

func (h *head) stop(w http.ResponseWriter, r *http.Request) {
	if j := h.of(w, r); j != nil {
		h.mu.Lock()
		defer h.mu.Unlock()
		going := !j.status.Ended()
		if going {
			j.status = Stopped
		}
		answer(w, fmt.Sprintf(`{"stopped": %v}`, going))
	}
}
