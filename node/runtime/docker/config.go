package docker

import (
	"context"
	"log/slog"
	"time"

	"github.com/starling-network/starling/node/device"
)

// Name is what orders and offers call this runtime.
const Name = "docker"

const (
	// DefaultGrace is how long an execution lives without its peer's process.
	DefaultGrace = 30 * time.Second
	// DefaultMaxImageMiB is the largest image that Pull brings where Config does not say.
	DefaultMaxImageMiB = 64 << 10
	// MinAPIVersion is of the oldest engine that will do: Docker 20.10.
	MinAPIVersion = "1.41"
)

// Config of a Runtime. Only Peer is needed.
type Config struct {
	// Peer tells this peer's containers from those of others on the same engine: 1 to 128 of [A-Za-z0-9._-].
	Peer string
	// Host is the engine's address, as DOCKER_HOST has it; "" takes DOCKER_HOST or else the engine's usual socket. It must be
	// a socket of this machine.
	Host string
	// Guard is the path of a static binary that calls guard.Main; "" is this process's own.
	Guard string
	// Scratch is a directory of this machine, as the engine sees it too, in which CanOverlay makes one for a moment; "" is the system's for
	// temporary files.
	Scratch string
	// Grace is how long executions live without a peer; 0 is DefaultGrace.
	Grace time.Duration
	// MaxImageMiB bounds an image, unpacked; 0 is DefaultMaxImageMiB.
	MaxImageMiB uint32
	// DNS are the resolvers of containers with NetworkInternet; nil is DefaultDNS. They must be public addresses: containers
	// reach no others.
	DNS []string
	// NetNS is the path of the network namespace that the engine runs in; "" is this process's own.
	NetNS string
	// AllowNoSeccomp accepts an engine without its default system call filter.
	AllowNoSeccomp bool
	// GPU opens a device of this machine by its UUID, to gauge it; nil opens NVIDIA's.
	GPU func(ctx context.Context, uuid string) (device.Device, error) `json:"-"`
	// Logger is slog.Default if nil.
	Logger *slog.Logger
}

// DefaultDNS are resolvers that anyone may use.
var DefaultDNS = []string{"1.1.1.1", "9.9.9.9"}
