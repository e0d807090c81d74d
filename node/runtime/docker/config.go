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
	// DefaultGrace is how long an execution lives without its peer's process.
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
	// Guard is the path of a static binary that calls agent.Main and guard.Main; "" is starling-guard beside this
	// process's own binary or, where there is none of the same build, that binary.
	Guard string
	// Scratch is a directory of this machine, as the engine sees it too, in which CanOverlay makes one for a moment; ""
	// is the system's for temporary files.
	Scratch string
	// Grace is how long executions live without a peer; 0 is DefaultGrace.
	Grace time.Duration
	// MaxImageMiB bounds an image, unpacked; 0 is DefaultMaxImageMiB.
	MaxImageMiB uint32
	// Registries are those of the operator's own network that images may come from, HOST or HOST:PORT as in the names
	// of images: over plain HTTP too, and from addresses that nothing else is read from.
	Registries []string
	// ImagesPercent is how full the engine's disk may be, 1 to 100: above it, images that were pulled for orders are
	// removed, those that were used longest ago first; 0 is DefaultImagesPercent. Other images are never removed.
	ImagesPercent uint32
	// FreeMiB is the part of the engine's disk that no pull may take; 0 is DefaultFreeMiB.
	FreeMiB uint32
	// Runtime is the OCI runtime that the engine starts containers of programs with, by its name there; "" is the
	// engine's default. One with a kernel of its own, as gVisor's runsc, must let containers connect to sockets of this
	// machine that are mounted in them.
	Runtime string
	// AllowNoSeccomp accepts an engine without its default system call filter.
	AllowNoSeccomp bool
	// GPU opens a device of this machine by its UUID, to gauge it; nil opens NVIDIA's.
	GPU func(ctx context.Context, uuid string) (device.Device, error) `json:"-"`
	// Logger is slog.Default if nil.
	Logger *slog.Logger
}
