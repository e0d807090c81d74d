package docker

import (
	"context"
	"log/slog"
	"time"

	"github.com/starling-network/starling/node/device"
)

// Name is the name of this runtime in orders and offers.
const Name = "docker"

const (
	// DefaultGrace is the time that an execution runs without its peer's process.
	DefaultGrace = 30 * time.Second
	// DefaultMaxImageMiB is the largest image that Pull brings where Config does not say.
	DefaultMaxImageMiB = 64 << 10
	// DefaultImagesPercent is how full the engine's disk may be before images of orders are removed.
	DefaultImagesPercent = 85
	// DefaultFreeMiB is the part of the engine's disk that stays free.
	DefaultFreeMiB = 4 << 10
)

// Config of a Runtime. Only Peer is needed.
type Config struct {
	// Peer distinguishes this peer's containers from those of others on the same engine: 1 to 128 of [A-Za-z0-9._-].
	Peer string
	// Host is the engine's address, as DOCKER_HOST has it; "" takes DOCKER_HOST or else the engine's usual socket. It
	// must be a socket of this machine.
	Host string
	// Guard is the path of a static binary that calls agent.Main and guard.Main. If "", it is starling-guard in the
	// directory of this process's binary; if that is missing or of another build, this process's binary.
	Guard string
	// Scratch is a directory of this machine, as the engine sees it too, in which CanOverlay makes one for a moment; ""
	// is the system's for temporary files.
	Scratch string
	// Grace is the time that executions run without a peer; 0 is DefaultGrace.
	Grace time.Duration
	// MaxImageMiB bounds an image, unpacked; 0 is DefaultMaxImageMiB.
	MaxImageMiB uint32
	// Registries are registries in the operator's own network, HOST or HOST:PORT as in image names. They may use plain
	// HTTP and addresses that are otherwise refused.
	Registries []string
	// ImagesPercent is the usage of the engine's disk, 1 to 100, above which images pulled for orders are removed,
	// least recently used first; 0 is DefaultImagesPercent. Other images are never removed.
	ImagesPercent uint32
	// FreeMiB is the part of the engine's disk that no pull may take; 0 is DefaultFreeMiB.
	FreeMiB uint32
	// Runtime is the engine's name of the OCI runtime for containers of programs; "" is the engine's default. A runtime
	// with its own kernel, such as gVisor's runsc, must let containers connect to mounted sockets of this machine.
	Runtime string
	// AllowNoSeccomp accepts an engine without its default system call filter.
	AllowNoSeccomp bool
	// GPU opens a device of this machine by its UUID, to gauge it; nil opens NVIDIA's.
	GPU func(ctx context.Context, uuid string) (device.Device, error) `json:"-"`
	// Logger is slog.Default if nil.
	Logger *slog.Logger
}
