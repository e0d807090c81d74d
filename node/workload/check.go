package workload

import (
	"errors"
	"fmt"
	"path"
	"strings"
	"time"
	"unicode/utf8"

	"google.golang.org/protobuf/proto"

	"github.com/starling-network/starling/node/cluster"
	"github.com/starling-network/starling/node/files/web"
	"github.com/starling-network/starling/node/nodepb"
	"github.com/starling-network/starling/node/runtime"
	"github.com/starling-network/starling/node/sealed"
	"github.com/starling-network/starling/p2p/overlay/egress"
)

// Limits of one workload.
const (
	maxArgs    = 1024
	maxEnv     = 256
	maxInputs  = 256
	maxOutputs = 16
	maxVolumes = 8
	maxPath    = 512

	// MaxPull is the longest limit on fetching the image and inputs of a workload.
	MaxPull = 24 * time.Hour

	// MinCheckpoint and MaxCheckpoint bound the interval between two packs of a checkpoint.
	MinCheckpoint, MaxCheckpoint = time.Second, 24 * time.Hour

	maxHealthArgs     = 64
	maxHealthArgBytes = 4 << 10
	maxHealthPath     = 1 << 10
	maxHealthRetries  = 100
	minHealthInterval = time.Second
	maxHealthInterval = time.Hour
	minHealthTimeout  = 100 * time.Millisecond
	maxHealthTimeout  = 5 * time.Minute
	maxHealthStart    = 24 * time.Hour
)

// Host is the abilities of a peer and its rules for programs.
type Host struct {
	Runtimes map[string]runtime.Runtime
	// Network is the network access of containers that request it. Empty means none.
	Network egress.Mode
	// AllowImage refuses an image with a reason for its buyer; nil allows every one.
	AllowImage func(image string) error
	// Secrets means that sealed secrets can be opened here.
	Secrets bool
	// Overlay returns an error if a program of a runtime cannot have a network here, its own or its cluster's. If nil,
	// none can.
	Overlay func(rt runtime.Runtime) error
}

// Check holds a workload from a peer to the rules before anything is
// fetched for it.
func Check(w *nodepb.Workload, h Host) error {
	if w == nil {
		return Bad("there is none")
	}
	rt := h.Runtimes[w.Runtime]
	if rt == nil {
		return Bad("runtime %q is not offered here", w.Runtime)
	}
	if len(w.Args)+len(w.Entrypoint) > maxArgs || len(w.Env) > maxEnv ||
		len(w.Inputs) > maxInputs || len(w.Outputs) > maxOutputs {
		return Bad("at most %d arguments, %d variables, %d inputs and %d outputs",
			maxArgs, maxEnv, maxInputs, maxOutputs)
	}
	if w.PullMillis > uint64(MaxPull/time.Millisecond) {
		return Bad("pull_millis: at most %v", MaxPull)
	}
	if w.WallMillis > uint64(runtime.MaxWallTime/time.Millisecond) {
		return Bad("wall_millis: at most %v", runtime.MaxWallTime)
	}
	for _, check := range []error{
		checkProgram(w, rt, h), checkFiles(w), checkFellows(w), checkHealth(w.Health, rt),
		checkCluster(w.Cluster, rt, h),
	} {
		if check != nil {
			return check
		}
	}
	if err := checkVolumes(w, rt); err != nil { // the other paths are known to be clean
		return err
	}
	switch {
	case len(w.Sealed) > sealed.MaxBox:
		return Bad("secrets of %d bytes, at most %d", len(w.Sealed), sealed.MaxBox)
	case len(w.Sealed) > 0 && !h.Secrets:
		return Bad("secrets cannot be opened here")
	}
	return nil
}

// checkProgram checks the fields that name the program.
func checkProgram(w *nodepb.Workload, rt runtime.Runtime, h Host) error {
	if _, stores := rt.(runtime.Storer); stores {
		return checkStored(w)
	}
	_, images := rt.(runtime.Images)
	if !images {
		switch {
		case w.Image != "" || len(w.ImageParts) > 0:
			return Bad("runtime %q runs modules, not images", w.Runtime)
		case len(w.Entrypoint) > 0 || w.WorkDir != "" || w.Network != "" || w.ShmMib > 0:
			return Bad("entrypoint, work_dir, network and shm_mib are a container's; runtime %q has none", w.Runtime)
		}
		if _, err := CID(w.Module); err != nil {
			return Bad("module: %v", err)
		}
		if err := checkURLs(w.Module); err != nil {
			return Bad("module: %v", err)
		}
		return nil
	}
	switch {
	case w.Module != nil:
		return Bad("runtime %q runs images, not modules", w.Runtime)
	case w.Seed != 0:
		return Bad("seed: a container cannot be deterministic")
	case w.WorkDir != "" && (len(w.WorkDir) > maxPath || !path.IsAbs(w.WorkDir) ||
		path.Clean(w.WorkDir) != w.WorkDir || strings.ContainsRune(w.WorkDir, 0)):
		return Bad("work_dir %.80q is not a clean absolute path", w.WorkDir)
	}
	if err := runtime.CheckImage(w.Image); err != nil {
		return Bad("image: %v", err)
	}
	if h.AllowImage != nil {
		if err := h.AllowImage(w.Image); err != nil {
			return Bad("image: %v", err)
		}
	}
	if err := checkParts(w, rt); err != nil {
		return err
	}
	switch runtime.Network(w.Network) {
	case runtime.NetworkNone:
	case runtime.NetworkInternet:
		if h.Network != egress.ModeInternet && h.Network != egress.ModeAllowlist ||
			h.Overlay == nil || h.Overlay(rt) != nil {
			return Bad("network: this provider gives containers no internet access; use inputs")
		}
	default:
		return Bad("network: got %.40q, want empty or %q", w.Network, runtime.NetworkInternet)
	}
	return nil
}

func checkFiles(w *nodepb.Workload) error {
	for _, in := range w.Inputs {
		if err := checkPath(in.GetPath()); err != nil {
			return Bad("input: %v", err)
		}
		if _, err := CID(in.Blob); err != nil {
			return Bad("input %s: %v", in.Path, err)
		}
		if err := checkURLs(in.Blob); err != nil {
			return Bad("input %s: %v", in.Path, err)
		}
		if !in.Blob.Tree && path.Dir(in.Path) == "/" {
			return Bad("input file %s must lie in a directory, such as /data%s", in.Path, in.Path)
		}
	}
	for _, out := range w.Outputs {
		if err := checkPath(out); err != nil {
			return Bad("output: %v", err)
		}
	}
	if w.Scratch != "" {
		if err := checkPath(w.Scratch); err != nil {
			return Bad("scratch: %v", err)
		}
	}
	if err := checkCheckpoint(w); err != nil {
		return err
	}
	if w.Image == "" {
		return nil
	}
	for _, m := range mountPoints(w) {
		if runtime.HidesSystem(m) {
			return Bad("%s: an input or output there would hide the image's own %[1]s; "+
				"use a separate directory, such as /data", m)
		}
	}
	return nil
}

// checkURLs checks the form of a blob's URLs.
func checkURLs(b *nodepb.Blob) error {
	if len(b.Urls) > web.MaxURLs {
		return fmt.Errorf("%d URLs, at most %d", len(b.Urls), web.MaxURLs)
	}
	if b.Tree && len(b.Urls) > 0 {
		return errors.New("a directory has no URL")
	}
	for _, u := range b.Urls {
		if err := web.Check(u); err != nil {
			return err
		}
	}
	return nil
}

func checkPath(p string) error {
	if len(p) > maxPath || !path.IsAbs(p) || path.Clean(p) != p || p == "/" || strings.ContainsRune(p, 0) {
		return fmt.Errorf("path %.80q is not a clean absolute path below /", p)
	}
	// A mount may be a whole first path element, and one of the runtime's own lies under this one.
	if top(p) == top(runtime.ControlDir) {
		return fmt.Errorf("path %s: /%s is kept for the runtime", p, top(p))
	}
	return nil
}

// checkCluster refuses a member of a cluster where it could not reach the others, before anything is fetched for it.
// The provider that has the lease checks that the plan's members are the named ones.
func checkCluster(p *nodepb.ClusterPlan, rt runtime.Runtime, h Host) error {
	if p == nil {
		return nil
	}
	if h.Overlay == nil {
		return Bad("cluster: this peer takes part in none")
	}
	if err := h.Overlay(rt); err != nil {
		return Bad("cluster: %v", err)
	}
	if _, err := cluster.Decode(p); err != nil {
		return Bad("%v", err)
	}
	return nil
}

// checkHealth checks a health check against its rules and the runtime's abilities.
func checkHealth(c *nodepb.HealthCheck, rt runtime.Runtime) error {
	if c == nil {
		return nil
	}
	_, attaches := rt.(runtime.Attacher)
	_, dials := rt.(runtime.Dialer)
	switch k := c.Check.(type) {
	case *nodepb.HealthCheck_Command:
		if err := checkCommand(k.Command.GetArgs()); err != nil {
			return err
		}
		if !attaches {
			return Bad("health check: runtime %q cannot run a second program", rt.Name())
		}
	case *nodepb.HealthCheck_TcpPort:
		if k.TcpPort == 0 || k.TcpPort > 65535 {
			return Bad("health check: %d is not a port", k.TcpPort)
		}
	case *nodepb.HealthCheck_Http:
		p := k.Http.GetPath()
		if k.Http.GetPort() == 0 || k.Http.GetPort() > 65535 {
			return Bad("health check: %d is not a port", k.Http.GetPort())
		}
		notInPath := func(r rune) bool { return r <= ' ' || r >= 0x7f }
		if len(p) > maxHealthPath || !strings.HasPrefix(p, "/") || strings.ContainsFunc(p, notInPath) {
			return Bad("health check: %.80q is not a path such as /healthz", p)
		}
	default:
		return Bad("health check: no command or port")
	}
	if _, command := c.Check.(*nodepb.HealthCheck_Command); !command && !dials {
		return Bad("health check: runtime %q has no ports to connect to", rt.Name())
	}
	millis := func(d time.Duration) uint64 { return uint64(d / time.Millisecond) }
	switch {
	case c.IntervalMillis < millis(minHealthInterval) || c.IntervalMillis > millis(maxHealthInterval):
		return Bad("health check: interval must be from %v to %v", minHealthInterval, maxHealthInterval)
	case c.TimeoutMillis < millis(minHealthTimeout) || c.TimeoutMillis > millis(maxHealthTimeout):
		return Bad("health check: timeout must be from %v to %v", minHealthTimeout, maxHealthTimeout)
	case c.Retries == 0 || c.Retries > maxHealthRetries:
		return Bad("health check: retries must be from 1 to %d", maxHealthRetries)
	case c.StartMillis > millis(maxHealthStart):
		return Bad("health check: start period of at most %v", maxHealthStart)
	}
	return nil
}

func checkCommand(args []string) error {
	total := 0
	for _, a := range args {
		if !utf8.ValidString(a) || strings.ContainsRune(a, 0) {
			return Bad("health check: an argument is not text without NUL")
		}
		total += len(a)
	}
	if len(args) == 0 || args[0] == "" || len(args) > maxHealthArgs || total > maxHealthArgBytes {
		return Bad("health check: a command has 1 to %d arguments with at most %d bytes",
			maxHealthArgs, maxHealthArgBytes)
	}
	return nil
}

// Secrets decodes the sealed secrets of a workload and checks them against the runtime's rules. Its errors name no
// value.
func Secrets(plain []byte) (*nodepb.Secrets, error) {
	s := &nodepb.Secrets{}
	if err := proto.Unmarshal(plain, s); err != nil {
		return nil, Bad("secrets: malformed")
	}
	if err := runtime.CheckSecrets(s.Files, s.Env); err != nil {
		return nil, Bad("%v", err)
	}
	if len(s.RegistryUsername)+len(s.RegistryPassword) > runtime.MaxSecretBytes {
		return nil, Bad("registry credentials of more than %d bytes", runtime.MaxSecretBytes)
	}
	return s, nil
}
