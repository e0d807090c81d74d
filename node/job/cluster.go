package job

import (
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/starling-network/starling/node/cluster"
)

// Cluster makes the ranks of a job one machine: with a common network and a well-known engine on it. The job's Count is
// the number of members, each one rank with its resources. Rank 0 is the head.
type Cluster struct {
	Engine  string            `json:"engine"`
	Options map[string]string `json:"options,omitempty"` // of the engine
	// Command is the program and its arguments; the engine chooses how and where it is run. Empty: the cluster serves.
	Command []string `json:"command,omitempty"`
	// Autostop is the idle time after which it is taken down; 0: it runs until its time or money is used up.
	Autostop Span `json:"autostop,omitzero"`
	// Network is the slowest class of network that its members may have between them.
	Network cluster.Class `json:"network"`
}

// MinAutostop is the shortest Autostop.
const MinAutostop = 10 * time.Second

// withDefaults fills in the defaults.
func (c Cluster) withDefaults() Cluster {
	if e, err := cluster.LookUp(c.Engine); err == nil && c.Network == "" {
		c.Network = e.With(c.Options).Needs
	}
	return c
}

// Serves reports whether it waits for work from outside until it is taken down.
func (c Cluster) Serves() bool { return len(c.Command) == 0 }

// setByEngine are the variables on which the members must agree: a job's own value could only be wrong.
var setByEngine = []string{
	"CLUSTER_ID", "CLUSTER_SIZE", "NODE_RANK", "NODE_IP", "HEAD_IP", "NODE_HOSTS", "MASTER_ADDR", "MASTER_PORT",
	"NNODES",
	"RAY_ADDRESS", "RAY_AUTH_MODE", "RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH", "DASK_SCHEDULER_ADDRESS",
}

// checkCluster checks a cluster against its engine's abilities, and refuses fields of a job without a meaning in one.
func checkCluster(j Job, ps *problems) {
	c := j.Cluster
	if c == nil {
		return
	}
	for _, no := range []struct {
		field, why string
		given      bool
	}{
		{"spec.module", "a cluster's members are containers: give an image", j.Module != ""},
		{"spec.args", "write command: the program and its arguments", len(j.Args) > 0},
		{"spec.entrypoint", "write command: the program and its arguments", len(j.Entrypoint) > 0},
		{"spec.rounds", "a cluster's members talk to one another instead of meeting between rounds", j.Rounds != nil},
		{"spec.verify", "results of a cluster depend on the times of its members' messages: two honest " +
			"runs differ", j.Verify != VerifyNone},
		{"spec.health", "the cluster's engine reports its health: leave it out", j.Health != nil},
		{"spec.guardians", "guardians cannot run a cluster: its members get their addresses from the " +
			"peer that holds its keys and its token; leave them out, and submit the cluster from a peer that stays on",
			j.Guardians > 0 || j.Standbys > 0},
	} {
		if no.given {
			ps.add(no.field, "%s", no.why)
		}
	}
	if j.Runtime != RuntimeDocker {
		ps.add("runtime", "%.40q, and a cluster's members are containers: want %q", j.Runtime, RuntimeDocker)
	}
	for _, name := range setByEngine {
		if _, ok := j.Env[name]; ok {
			ps.add("spec.env."+name, "is set by the cluster, the same way for all members")
		}
	}
	if slices.ContainsFunc(j.Secrets, func(s Secret) bool {
		return s.FileName() == cluster.TokenFile || s.Name == cluster.TokenFile
	}) {
		ps.add("spec.secrets", "%s is the cluster's own: call yours by another name", cluster.TokenFile)
	}
	checkArgs(ps, "spec.command", c.Command)
	if len(c.Command) > 0 && c.Command[0] == "" {
		ps.add("spec.command[0]", "names no program")
	}
	if a := time.Duration(c.Autostop); a != 0 && (a < MinAutostop || a > MaxRun) {
		ps.add("spec.autostop", "%v, want %v to %v, or 0s for never", a, MinAutostop, MaxRun)
	} else if a != 0 && !c.Serves() {
		ps.add("spec.autostop", "a cluster with a command ends with it: leave autostop out")
	}
	c.checkEngine(ps, j.Count)
}

func (c *Cluster) checkEngine(ps *problems, size uint32) {
	e, err := cluster.LookUp(c.Engine)
	if err != nil {
		if c.Engine == "" {
			ps.add("spec.engine", "missing: want %s", strings.Join(cluster.Names(), ", "))
			return
		}
		ps.add("spec.engine", "%v", err)
		return
	}
	if option, err := e.CheckOptions(c.Options); err != nil {
		ps.add("spec.engine."+Printable(option), "%v", err)
		return
	}
	if least, _ := strconv.ParseUint(c.Options["minNodes"], 10, 32); least > uint64(size) {
		ps.add("spec.engine.minNodes", "%d of a cluster of %d", least, size)
	}
	if len(c.Command) == 0 && !e.Serves {
		ps.add("spec.command", "missing: %s does nothing without a program", e.Name)
	}
	if err := e.With(c.Options).LivesOn(c.Network); err != nil {
		ps.add("spec.placement.network", "%v", err)
	}
}
