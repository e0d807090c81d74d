// Package rayjobs speaks to the HTTP port of a Ray cluster's head from a user's machine: a client of Ray's Jobs API, so that
// submitting needs no Python, and a proxy by which a browser and `ray job submit` use the cluster without its token.
//
//	GET  /api/version                                 {"version":"4","ray_version":"2.55.1",…}
//	GET  /api/packages/gcs/_ray_pkg_<hash>.zip        200: it is there, 404: it is not
//	PUT  /api/packages/gcs/_ray_pkg_<hash>.zip        the zip of a working directory, at most 100 MiB
//	POST /api/jobs/                                   {"entrypoint","submission_id","runtime_env":{"working_dir","env_vars"},"metadata"}
//	GET  /api/jobs/                                   a list of jobs; /api/jobs/<id> one job
//	GET  /api/jobs/<id>/logs                          {"logs":"…"}
//	GET  /api/jobs/<id>/logs/tail                     a WebSocket of text until the job has ended
//	POST /api/jobs/<id>/stop                          {"stopped":true}
//
// Each carries "Authorization: Bearer <token>". Errors are plain text, often a Python traceback. This is what `ray job submit` of
// Ray 2.55 sends and is answered (docs.ray.io, "Ray Jobs REST API"). The head runs on somebody else's machine and the job may be
// hostile: answers are bounded and checked, redirections are not followed, and nothing is decompressed.
package rayjobs

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"regexp"
	"strings"
	"time"

	"github.com/starling-network/starling/node/live"
)

// What is read of an answer, bytes.
const (
	maxAnswer  = 16 << 20
	maxRefusal = 64 << 10
	// MaxLog is how long a log can be that is fetched whole.
	MaxLog = 64 << 20
)

// Config says how the head's port is reached.
type Config struct {
	// Dial connects to the port.
	Dial func(ctx context.Context) (net.Conn, error)
	// Token is the cluster's; empty: it takes everybody.
	Token string
	// Wait is how long is waited before a broken stream is tried again, doubled each time; 0: half a second.
	Wait time.Duration
}

// Client is a client of one cluster. Close it when it is done.
type Client struct {
	cfg  Config
	http *http.Client
}

// base is a name only: every connection goes where Dial does.
const base = "http://head"

// New returns a client; it connects when it is used.
func New(cfg Config) *Client {
	if cfg.Wait == 0 {
		cfg.Wait = 500 * time.Millisecond
	}
	return &Client{cfg: cfg, http: &http.Client{
		Transport: &http.Transport{
			DialContext:           func(ctx context.Context, _, _ string) (net.Conn, error) { return cfg.Dial(ctx) },
			DisableCompression:    true,
			MaxIdleConnsPerHost:   2,
			ResponseHeaderTimeout: 2 * time.Minute, // starting a job may wait for the head's agent
		},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}
}

// Close closes the connections that are not in use.
func (c *Client) Close() { c.http.CloseIdleConnections() }

// Status is where a job stands.
type Status string

// The states of a job, as Ray names them.
//
//	Pending ─▶ Running ─▶ Succeeded
//	   └──────────┴─────▶ Failed, Stopped
const (
	Pending   Status = "PENDING"
	Running   Status = "RUNNING"
	Stopped   Status = "STOPPED" // by a user
	Succeeded Status = "SUCCEEDED"
	Failed    Status = "FAILED"
)

// Ended says that nothing comes after it.
func (s Status) Ended() bool { return s == Stopped || s == Succeeded || s == Failed }

// Job is one job of the cluster.
type Job struct {
	ID         string            `json:"id"`
	Driver     bool              `json:"driver,omitempty"` // a script that joined by itself: it was not submitted, has no log and cannot be stopped
	Status     Status            `json:"status"`
	Entrypoint string            `json:"entrypoint"`
	Message    string            `json:"message,omitempty"`
	ErrorType  string            `json:"errorType,omitempty"`
	Started    time.Time         `json:"started,omitzero"`
	Ended      time.Time         `json:"ended,omitzero"`
	Exit       *int              `json:"exit,omitempty"` // of the entrypoint, once it has ended
	Metadata   map[string]string `json:"metadata,omitempty"`
}

// Request is a job to submit.
type Request struct {
	ID         string            // NewID; so that a request whose answer was lost can be repeated
	Entrypoint string            // for a shell: Quote
	WorkingDir string            // URI of a package (Upload), or of a zip that the cluster can fetch; may be empty
	Env        map[string]string // variables of all of the job's processes
	CPUs, GPUs float64           // set aside for the entrypoint itself; 0: none
	Metadata   map[string]string
}

// NewID is a new job's id, as Ray makes them.
func NewID() string { return "raysubmit_" + rand.Text()[:16] }

var idPattern = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9_.-]*$`)

func validID(id string) bool { return len(id) <= 128 && idPattern.MatchString(id) }

// path is that of a job's resource.
func path(id, what string) (string, error) {
	if !validID(id) {
		return "", fmt.Errorf("%w: %q", ErrID, live.Clean(id))
	}
	return "/api/jobs/" + id + what, nil
}

// Quote makes a line for a shell of a command and its arguments.
func Quote(args []string) string {
	words := make([]string, len(args))
	for i, a := range args {
		if plain.MatchString(a) {
			words[i] = a
		} else {
			words[i] = "'" + strings.ReplaceAll(a, "'", `'\''`) + "'"
		}
	}
	return strings.Join(words, " ")
}

var plain = regexp.MustCompile(`^[A-Za-z0-9_@%+=:,./-]+$`)

// Version is the cluster's version of Ray, such as "2.55.1".
func (c *Client) Version(ctx context.Context) (string, error) {
	var v struct {
		Ray string `json:"ray_version"`
	}
	if err := c.call(ctx, http.MethodGet, "/api/version", nil, &v, maxAnswer); err != nil {
		return "", err
	}
	if v.Ray == "" || len(v.Ray) > 64 {
		return "", fmt.Errorf("%w: no version", ErrAnswer)
	}
	return live.Clean(v.Ray), nil
}

// Submit hands a job in. A request whose answer is lost is repeated: it is the same job.
func (c *Client) Submit(ctx context.Context, r Request) error {
	if _, err := path(r.ID, ""); err != nil {
		return err
	}
	env := map[string]any{}
	if r.WorkingDir != "" {
		env["working_dir"] = r.WorkingDir
	}
	if len(r.Env) > 0 {
		env["env_vars"] = r.Env
	}
	body, err := json.Marshal(struct {
		Entrypoint string            `json:"entrypoint"`
		ID         string            `json:"submission_id"`
		Env        map[string]any    `json:"runtime_env"`
		Metadata   map[string]string `json:"metadata,omitempty"`
		CPUs       float64           `json:"entrypoint_num_cpus,omitempty"`
		GPUs       float64           `json:"entrypoint_num_gpus,omitempty"`
	}{r.Entrypoint, r.ID, env, r.Metadata, r.CPUs, r.GPUs})
	if err != nil {
		return fmt.Errorf("writing the job: %w", err)
	}
	return c.again(ctx, func(before bool) error {
		var got struct {
			ID string `json:"submission_id"`
		}
		err := c.call(ctx, http.MethodPost, "/api/jobs/", body, &got, maxAnswer)
		if refused, ok := errors.AsType[*Error](err); ok && strings.Contains(refused.Reason, "already exists") {
			if before {
				return nil // it is the one whose answer was lost
			}
			return fmt.Errorf("%w: %s", ErrExists, r.ID)
		}
		if err == nil && got.ID != r.ID {
			return fmt.Errorf("%w: it names the job otherwise", ErrAnswer)
		}
		return err
	})
}

// tries is how often in a row a request is made that is not answered.
const tries = 5

// again repeats what does not reach the head. before says that it may have reached it already.
func (c *Client) again(ctx context.Context, do func(before bool) error) error {
	wait := c.cfg.Wait
	for i := 0; ; i++ {
		err := do(i > 0)
		if !errors.Is(err, ErrUnreachable) || i == tries-1 || ctx.Err() != nil {
			return err
		}
		if err := sleep(ctx, wait); err != nil {
			return err
		}
		wait *= 2
	}
}

func sleep(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-t.C:
		return nil
	}
}

// details is a job as Ray says it.
type details struct {
	Type       string            `json:"type"`
	JobID      *string           `json:"job_id"`
	Submission *string           `json:"submission_id"`
	Status     Status            `json:"status"`
	Entrypoint string            `json:"entrypoint"`
	Message    *string           `json:"message"`
	ErrorType  *string           `json:"error_type"`
	Start      *int64            `json:"start_time"` // Unix, ms
	End        *int64            `json:"end_time"`
	Metadata   map[string]string `json:"metadata"`
	Exit       *int              `json:"driver_exit_code"`
}

func (d details) job() (Job, error) {
	j := Job{Driver: d.Type == "DRIVER", Status: d.Status, Entrypoint: d.Entrypoint, Metadata: d.Metadata, Exit: d.Exit}
	text := func(s *string) string {
		if s == nil {
			return ""
		}
		return *s
	}
	j.Message, j.ErrorType = text(d.Message), text(d.ErrorType)
	if j.ID = text(d.Submission); j.ID == "" {
		j.ID = text(d.JobID)
	}
	if !validID(j.ID) {
		return j, fmt.Errorf("%w: a job without an id", ErrAnswer)
	}
	switch d.Status {
	case Pending, Running, Stopped, Succeeded, Failed:
	default:
		return j, fmt.Errorf("%w: job %s is %q", ErrAnswer, j.ID, live.Clean(string(d.Status)))
	}
	for at, ms := range map[*time.Time]*int64{&j.Started: d.Start, &j.Ended: d.End} {
		if ms != nil && *ms > 0 && *ms < maxMillis {
			*at = time.UnixMilli(*ms).UTC()
		}
	}
	return j, nil
}

// maxMillis is the year 9999: JSON has no later time.
const maxMillis = 253402300799_000

// Job is one job. ErrNoJob.
func (c *Client) Job(ctx context.Context, id string) (Job, error) {
	at, err := path(id, "")
	if err != nil {
		return Job{}, err
	}
	var d details
	if err := c.call(ctx, http.MethodGet, at, nil, &d, maxAnswer); err != nil {
		return Job{}, ofJob(id, err)
	}
	return d.job()
}

// Jobs are all jobs that the head knows, as it orders them.
func (c *Client) Jobs(ctx context.Context) ([]Job, error) {
	var all []details
	if err := c.call(ctx, http.MethodGet, "/api/jobs/", nil, &all, maxAnswer); err != nil {
		return nil, err
	}
	jobs := make([]Job, 0, len(all))
	for _, d := range all {
		j, err := d.job()
		if err != nil {
			return nil, err
		}
		jobs = append(jobs, j)
	}
	return jobs, nil
}

// Stop ends a job, and says whether it was still going on. ErrNoJob.
func (c *Client) Stop(ctx context.Context, id string) (bool, error) {
	at, err := path(id, "/stop")
	if err != nil {
		return false, err
	}
	var got struct {
		Stopped bool `json:"stopped"`
	}
	return got.Stopped, ofJob(id, c.call(ctx, http.MethodPost, at, nil, &got, maxAnswer))
}

// Log is a job's log so far. ErrNoJob; ErrAnswer for one that is longer than MaxLog.
func (c *Client) Log(ctx context.Context, id string) (string, error) {
	at, err := path(id, "/logs")
	if err != nil {
		return "", err
	}
	var got struct {
		Logs string `json:"logs"`
	}
	return got.Logs, ofJob(id, c.call(ctx, http.MethodGet, at, nil, &got, MaxLog))
}

// ofJob tells a job that is not there from other refusals.
func ofJob(id string, err error) error {
	if refused, ok := errors.AsType[*Error](err); ok && refused.Status == http.StatusNotFound {
		return fmt.Errorf("%w: %s", ErrNoJob, id)
	}
	return err
}

// call makes a request and reads its JSON answer of at most limit bytes into into, unless that is nil.
func (c *Client) call(ctx context.Context, method, at string, body []byte, into any, limit int64) error {
	var r io.Reader
	if body != nil {
		r = bytes.NewReader(body)
	}
	resp, err := c.do(ctx, method, at, r, int64(len(body)), "application/json")
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(io.LimitReader(resp.Body, limit+1))
	if err != nil {
		return c.broke(ctx, err)
	}
	if int64(len(b)) > limit {
		return fmt.Errorf("%w: it is longer than %d MiB", ErrAnswer, limit>>20)
	}
	if into == nil {
		return nil
	}
	if err := json.Unmarshal(b, into); err != nil {
		return fmt.Errorf("%w: %s", ErrAnswer, live.Clean(err.Error()))
	}
	return nil
}

// do makes a request and returns the answer if it is 200.
func (c *Client) do(ctx context.Context, method, at string, body io.Reader, size int64, contentType string) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, method, base+at, body)
	if err != nil {
		return nil, err
	}
	if body != nil {
		req.ContentLength = size
		req.Header.Set("Content-Type", contentType)
	}
	for k, v := range c.header() {
		req.Header[k] = v
	}
	resp, err := c.http.Do(req)
	if err != nil {
		return nil, c.broke(ctx, err)
	}
	if resp.StatusCode == http.StatusOK {
		return resp, nil
	}
	defer resp.Body.Close()
	return nil, refusal(resp)
}

func (c *Client) header() http.Header {
	if c.cfg.Token == "" {
		return http.Header{}
	}
	return http.Header{"Authorization": {"Bearer " + c.cfg.Token}}
}

// refusal is what an answer says that is not 200.
func refusal(resp *http.Response) error {
	text, err := io.ReadAll(io.LimitReader(resp.Body, maxRefusal))
	if err != nil && len(text) == 0 {
		text = nil // the status says enough
	}
	if resp.StatusCode == http.StatusUnauthorized || resp.StatusCode == http.StatusForbidden {
		return fmt.Errorf("%w: %s", ErrToken, Reason(string(text)))
	}
	return &Error{Status: resp.StatusCode, Reason: Reason(string(text))}
}

// broke is why a request was not answered.
func (c *Client) broke(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	return fmt.Errorf("%w: %w", ErrUnreachable, err)
}
