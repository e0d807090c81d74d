package job

import (
	"net/url"
	"strings"
	"time"
)

// Restart says when a rank's program is restarted, and how often.
//
// Max bounds two counts separately: how often a rank is moved to another provider after the loss of its provider, which
// happens under every policy, and how often its program is restarted on the same lease because of Policy.
type Restart struct {
	Max     int           `json:"max"`
	Policy  RestartPolicy `json:"policy,omitempty"`
	Backoff Span          `json:"backoff,omitzero"` // before the first time; doubled each time, up to MaxBackoff
}

// RestartPolicy selects the ends after which a program is restarted on the same lease.
type RestartPolicy string

// The restart policies.
const (
	RestartNever     RestartPolicy = ""           // the program's end is the rank's
	RestartOnFailure RestartPolicy = "on-failure" // after an exit code that is not 0, a crash, or a failed health check
	RestartAlways    RestartPolicy = "always"     // after every end
)

const (
	// MaxBackoff is the longest wait between two starts of a program.
	MaxBackoff = 5 * time.Minute
	// DefaultBackoff is the first wait.
	DefaultBackoff = Span(time.Second)
)

func checkRestart(j Job, ps *problems) {
	r := j.Restart
	if r.Max < 0 || r.Max > MaxRestart {
		ps.add("spec.restart.max", "%d, want 0 to %d", r.Max, MaxRestart)
	}
	switch r.Policy {
	case RestartNever, RestartOnFailure:
	case RestartAlways:
		if j.Rounds != nil {
			ps.add("spec.restart.policy", "a round ends with its program's success: write on-failure")
		}
	default:
		ps.add("spec.restart.policy", "%.40q, want never, on-failure or always", string(r.Policy))
	}
	if b := time.Duration(r.Backoff); b < 0 || b > MaxBackoff {
		ps.add("spec.restart.backoff", "%v, want 0s to %v", b, MaxBackoff)
	} else if b > 0 && r.Policy == RestartNever {
		ps.add("spec.restart.backoff", "no effect: restart.policy is never")
	}
}

func (ps *problems) limit(field string, d, least, most time.Duration) {
	if d < least || d > most {
		ps.add("spec."+field, "%v, want %v to %v", d, least, most)
	}
}

func checkTimes(j Job, ps *problems) {
	t := j.Timeouts
	ps.limit("timeouts.queue", t.Queue, MinTime, MaxQueue)
	ps.limit("timeouts.run", t.Run, MinTime, MaxRun)
	if t.Pull != 0 {
		ps.limit("timeouts.pull", t.Pull, MinTime, MaxPull)
	}
	if t.Start != 0 {
		ps.limit("timeouts.start", t.Start, MinTime, MaxRun)
	}
	if t.Stop != 0 {
		ps.limit("timeouts.stop", t.Stop, 0, MaxStop)
	}
	switch {
	case j.Guardians != 0 && j.Guardians != 3 && j.Guardians != 5:
		ps.add("spec.guardians", "%d, want 3 or 5: a majority of them decides, and one or two may be gone; 0 for none",
			j.Guardians)
	case j.Guardians == 0 && j.Standbys > 0:
		ps.add("spec.standbys", "guardians take standbys, and the job has none: write guardians: 3, too")
	case j.Standbys > MaxStandbys:
		ps.add("spec.standbys", "%d, at most %d", j.Standbys, MaxStandbys)
	}
	if j.Idle != 0 {
		ps.limit("idle", time.Duration(j.Idle), MinAutostop, MaxRun)
	}
	if j.Idle != 0 && (j.Guardians > 0 || j.Cluster != nil || j.Verify != VerifyNone) {
		ps.add("spec.idle", "guardians and replicas do not see a job's streams, and a cluster has autostop: "+
			"leave it out")
	}
	if j.Keep != 0 {
		ps.limit("keep", time.Duration(j.Keep), MinTime, MaxKeep)
	}
}

// Grace is how long a program may take to end when it is stopped.
func (t Timeouts) Grace() time.Duration {
	if t.Stop == 0 {
		return DefaultStop
	}
	return t.Stop
}

// Health is the health check of a running container: exactly one of Command, TCP and HTTP. A program that fails its
// check Retries times in a row is unhealthy: it is stopped and counts as failed where restart.policy starts failed ones
// again. Elsewhere it is only shown as unhealthy.
type Health struct {
	Command     []string `json:"command,omitempty"` // healthy when it exits with 0
	TCP         uint16   `json:"tcp,omitempty"`     // healthy when the port accepts
	HTTP        *HTTPGet `json:"http,omitempty"`    // healthy when the answer is 200 to 399
	Interval    Span     `json:"interval"`
	Timeout     Span     `json:"timeout"`
	Retries     uint32   `json:"retries"`
	StartPeriod Span     `json:"startPeriod,omitzero"` // failures do not count within this time after the start
}

// HTTPGet is a page of a container.
type HTTPGet struct {
	Port uint16 `json:"port"`
	Path string `json:"path"`
}

// Docker's own defaults of a health check.
const (
	DefaultHealthEvery   = Span(30 * time.Second)
	DefaultHealthTimeout = Span(30 * time.Second)
	DefaultHealthRetries = 3

	maxHealthTime    = time.Hour
	maxHealthTimeout = 5 * time.Minute
	maxHealthArgs    = 64
	maxHealthBytes   = 4 << 10
	maxHealthRetries = 100
	maxHealthPath    = 1024
)

func (h Health) withDefaults(said func(string) bool) Health {
	if !said("spec.health.interval") {
		h.Interval = DefaultHealthEvery
	}
	if !said("spec.health.timeout") {
		h.Timeout = DefaultHealthTimeout
	}
	if !said("spec.health.retries") {
		h.Retries = DefaultHealthRetries
	}
	return h
}

func checkHealth(j Job, ps *problems) {
	h := j.Health
	if h == nil {
		return
	}
	command, tcp, http := len(h.Command) > 0, h.TCP != 0, h.HTTP != nil
	if command && (tcp || http) || tcp == http && !command {
		ps.add("spec.health", "want exactly one of command, tcp and http")
	}
	checkArgs(ps, "spec.health.command", h.Command)
	if c := h.Command; len(c) > maxHealthArgs || len(strings.Join(c, "")) > maxHealthBytes || len(c) > 0 && c[0] == "" {
		ps.add("spec.health.command", "want a program and its arguments, at most %d with %d bytes", maxHealthArgs,
			maxHealthBytes)
	}
	if g := h.HTTP; g != nil {
		if g.Port == 0 {
			ps.add("spec.health.http", "the port is missing: want {port: 8080, path: /healthz}")
		}
		notInPath := func(r rune) bool { return r <= ' ' || r >= 0x7f }
		if _, err := url.ParseRequestURI(g.Path); err != nil || !strings.HasPrefix(g.Path, "/") ||
			len(g.Path) > maxHealthPath || strings.ContainsFunc(g.Path, notInPath) {
			ps.add("spec.health.http.path", "%.80q, want a path such as /healthz", g.Path)
		}
	}
	ps.limit("health.interval", time.Duration(h.Interval), MinTime, maxHealthTime)
	ps.limit("health.timeout", time.Duration(h.Timeout), MinTime, maxHealthTimeout)
	ps.limit("health.startPeriod", time.Duration(h.StartPeriod), 0, maxHealthTime)
	if h.Retries < 1 || h.Retries > maxHealthRetries {
		ps.add("spec.health.retries", "%d, want 1 to %d", h.Retries, maxHealthRetries)
	}
}
