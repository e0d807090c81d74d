package config

import (
	"fmt"
	"regexp"
	"slices"

	"github.com/starling-network/starling/node/runtime/docker/fetch"
)

// Docker is the section of the configuration about the container engine of a peer that sells.
type Docker struct {
	// Enabled is "auto" to offer containers when there is an engine, "true" to refuse to start without one, "false"
	// to offer none.
	Enabled string `yaml:"enabled"`
	// Host is the engine's socket on this machine, as DOCKER_HOST has it; empty means DOCKER_HOST or the usual one.
	Host string `yaml:"host"`
	// Runtime is the OCI runtime that containers of leases run under, by its name in the engine's daemon.json; empty
	// is the engine's own.
	Runtime string `yaml:"runtime"`
	// Registries are those of the operator's own network that images of jobs may come from, HOST or HOST:PORT: over
	// plain HTTP too, and from private addresses. Other registries must be on the internet, with HTTPS.
	Registries []string `yaml:"registries"`
	// MaxImageMiB bounds an image, unpacked; 0 is 64 GiB.
	MaxImageMiB uint32 `yaml:"maxImageMiB"`
	// ImagesPercent is the use of the engine's disk above which images pulled for jobs are removed, least recently used
	// first; 0 means 85. Other images stay.
	ImagesPercent uint32 `yaml:"imagesPercent"`
	// FreeMiB is the free space on the engine's disk that images must leave; 0 means 4 GiB.
	FreeMiB uint32 `yaml:"freeMiB"`
}

// runtimeName is the form of an OCI runtime's name.
var runtimeName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,127}$`)

// Check refuses a section that cannot work on any machine.
func (d Docker) Check() error {
	if !slices.Contains([]string{"", DockerAuto, DockerOn, DockerOff}, d.Enabled) {
		return fmt.Errorf("%w: docker.enabled: %.40q, want auto, true or false", ErrConfig, d.Enabled)
	}
	if d.Runtime != "" && !runtimeName.MatchString(d.Runtime) {
		return fmt.Errorf("%w: docker.runtime: %.40q is no name of an OCI runtime in the engine's daemon.json",
			ErrConfig, d.Runtime)
	}
	if _, err := d.Reader(); err != nil {
		return err
	}
	if d.ImagesPercent > 100 {
		return fmt.Errorf("%w: docker.imagesPercent: %d is more than 100", ErrConfig, d.ImagesPercent)
	}
	return nil
}

// Reader returns a client of the registries that this peer may read: those of the internet, and the operator's own.
func (d Docker) Reader() (*fetch.Client, error) {
	c, err := fetch.New(d.Registries)
	if err != nil {
		return nil, fmt.Errorf("%w: docker.registries: %w", ErrConfig, err)
	}
	return c, nil
}

// The values of Docker.Enabled.
const (
	DockerAuto = "auto"
	DockerOn   = "true"
	DockerOff  = "false"
)
