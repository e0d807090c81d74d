package ociruntime

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/starling-network/starling/node/runtime"
)

// config is an OCI runtime configuration. Fields that have no meaning here are kept as they are.
type config struct {
	top, linux, process map[string]json.RawMessage

	root       map[string]any
	mounts     []mount
	namespaces []namespace
	sysctl     map[string]string
	rlimits    []rlimit
}

type rlimit struct {
	Type string `json:"type"`
	Hard uint64 `json:"hard"`
	Soft uint64 `json:"soft"`
}

type mount struct {
	Destination string          `json:"destination"`
	Type        string          `json:"type,omitempty"`
	Source      string          `json:"source,omitempty"`
	Options     []string        `json:"options,omitempty"`
	UIDMappings json.RawMessage `json:"uidMappings,omitempty"`
	GIDMappings json.RawMessage `json:"gidMappings,omitempty"`
}

type namespace struct {
	Type string `json:"type"`
	Path string `json:"path,omitempty"`
}

type mapping struct {
	ContainerID uint32 `json:"containerID"`
	HostID      uint32 `json:"hostID"`
	Size        uint32 `json:"size"`
}

const configFile = "config.json"

func readConfig(bundle string) (*config, error) {
	b, err := os.ReadFile(filepath.Join(bundle, configFile))
	if err != nil {
		return nil, fmt.Errorf("reading configuration: %w", err)
	}
	return decodeConfig(b)
}

func decodeConfig(b []byte) (*config, error) {
	c := &config{}
	err := json.Unmarshal(b, &c.top)
	part := func(from map[string]json.RawMessage, name string, into any) {
		if raw := from[name]; err == nil && len(raw) > 0 {
			err = json.Unmarshal(raw, into)
		}
	}
	part(c.top, "root", &c.root)
	part(c.top, "mounts", &c.mounts)
	part(c.top, "linux", &c.linux)
	part(c.linux, "namespaces", &c.namespaces)
	part(c.linux, "sysctl", &c.sysctl)
	part(c.top, "process", &c.process)
	part(c.process, "rlimits", &c.rlimits)
	if err != nil {
		return nil, fmt.Errorf("decoding configuration: %w", err)
	}
	return c, nil
}

// encode returns the configuration with its changes.
func (c *config) encode() ([]byte, error) {
	var failed error
	raw := func(v any) json.RawMessage {
		b, err := json.Marshal(v)
		failed = errors.Join(failed, err)
		return b
	}
	linux, top := maps.Clone(c.linux), maps.Clone(c.top)
	linux["namespaces"] = raw(c.namespaces)
	if c.sysctl != nil {
		linux["sysctl"] = raw(c.sysctl)
	}
	if c.rlimits != nil {
		process := maps.Clone(c.process)
		process["rlimits"] = raw(c.rlimits)
		top["process"] = raw(process)
	}
	top["root"], top["mounts"], top["linux"] = raw(c.root), raw(c.mounts), raw(linux)
	b, err := json.Marshal(top)
	return b, errors.Join(failed, err)
}

func (c *config) write(bundle string) error {
	b, err := c.encode()
	if err == nil {
		err = os.WriteFile(filepath.Join(bundle, configFile), b, 0o600)
	}
	if err != nil {
		return fmt.Errorf("writing configuration: %w", err)
	}
	return nil
}

// takeLayer removes the mount of the layer and returns its source; "" if there is none.
func (c *config) takeLayer() string {
	i := slices.IndexFunc(c.mounts, func(m mount) bool { return m.Destination == LayerPath })
	if i < 0 {
		return ""
	}
	source := c.mounts[i].Source
	c.mounts = slices.Delete(c.mounts, i, i+1)
	return source
}

// check refuses a configuration that cannot have a user namespace and a root of ours.
func (c *config) check() error {
	if path, ok := c.root["path"].(string); !ok || !filepath.IsAbs(path) {
		return fmt.Errorf("configuration: root.path: got %.80v, want an absolute path", c.root["path"])
	}
	if c.linux == nil {
		return errors.New("configuration: no section linux")
	}
	if slices.ContainsFunc(c.namespaces, func(n namespace) bool { return n.Type == "user" }) {
		return errors.New("configuration: the container has a user namespace already")
	}
	if label := string(c.linux["mountLabel"]); label != "" && label != `""` {
		return errors.New("configuration: SELinux labels are not supported")
	}
	return nil
}

// keepVolumes removes the in-memory file systems at /run and at the image's volumes: these directories are parts of the
// layer. Secrets stay in memory.
func (c *config) keepVolumes() {
	memory := []string{"/dev", "/proc", "/sys", runtime.SecretsDir}
	c.mounts = slices.DeleteFunc(c.mounts, func(m mount) bool {
		return m.Type == "tmpfs" && !slices.ContainsFunc(memory, func(dir string) bool {
			return m.Destination == dir || strings.HasPrefix(m.Destination, dir+"/")
		})
	})
}

// takeFiles removes the bind mounts of files that the container gets as copies, and returns their sources by target. In
// a member of a cluster there are none: the peer changes these files while the container runs.
func (c *config) takeFiles() map[string]string {
	sources := map[string]string{}
	if slices.ContainsFunc(c.mounts, func(m mount) bool { return m.Destination == runtime.OverlayDir }) {
		return sources
	}
	c.mounts = slices.DeleteFunc(c.mounts, func(m mount) bool {
		own := m.isBind() && slices.Contains(ownFiles, m.Destination)
		if own {
			sources[m.Destination] = m.Source
		}
		return own
	})
	return sources
}

// pingGroups is the sysctl of the groups whose programs may open ping sockets without a capability.
const pingGroups = "net.ipv4.ping_group_range"

// enter gives the container the user namespace at a path, with the range that begins at base, and a root.
func (c *config) enter(path string, base uint32, root string) error {
	c.root["path"], c.root["readonly"] = root, false
	c.namespaces = append(c.namespaces, namespace{Type: "user", Path: path})
	b, err := json.Marshal([]mapping{{0, base, RangeSize}})
	if err != nil {
		return err
	}
	c.linux["uidMappings"], c.linux["gidMappings"] = b, b
	if _, ok := c.sysctl[pingGroups]; ok { // engines give it to all groups, which the namespace does not have
		c.sysctl[pingGroups] = fmt.Sprint(0, " ", RangeSize-1)
	}
	return nil
}

// takeCore removes the limit of core files, and returns it.
func (c *config) takeCore() (limit rlimit, ok bool) {
	i := slices.IndexFunc(c.rlimits, func(l rlimit) bool { return l.Type == "RLIMIT_CORE" })
	if i < 0 {
		return rlimit{}, false
	}
	limit = c.rlimits[i]
	c.rlimits = slices.Delete(c.rlimits, i, i+1)
	return limit, true
}

// takeNetwork removes the network namespace that the container joins, with the settings of a network, and returns its
// path; "" if the container gets its own.
func (c *config) takeNetwork() string {
	i := slices.IndexFunc(c.namespaces, func(n namespace) bool { return n.Type == "network" && n.Path != "" })
	if i < 0 {
		return ""
	}
	path := c.namespaces[i].Path
	c.namespaces = slices.Delete(c.namespaces, i, i+1)
	maps.DeleteFunc(c.sysctl, func(name, _ string) bool { return strings.HasPrefix(name, "net.") })
	return path
}

// isBind reports whether a mount shows a directory or file of this machine.
func (m mount) isBind() bool {
	return m.Type == "bind" || slices.Contains(m.Options, "bind") || slices.Contains(m.Options, "rbind")
}
