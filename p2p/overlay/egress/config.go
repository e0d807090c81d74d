package egress

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"time"

	"gvisor.dev/gvisor/pkg/tcpip"
	"gvisor.dev/gvisor/pkg/tcpip/header"
)

// Limits bound one container's load on the host and its line. 0 takes the default, if there is one.
type Limits struct {
	Flows       int           // TCP connections and UDP pairs at a time, with those being set up; default 512
	NewFlows    float64       // a second; default 100. Four seconds' worth may come at once
	BytesPerSec float64       // each way; 0 is no limit
	Queries     float64       // names looked up a second; default 50. Four seconds' worth may come at once
	IdleTCP     time.Duration // timeout of an idle connection; default 1 h
	IdleUDP     time.Duration // default 1 min
}

// Defaults of Limits.
const (
	DefaultFlows    = 512
	DefaultNewFlows = 100
	DefaultQueries  = 50
	DefaultIdleTCP  = time.Hour
	DefaultIdleUDP  = time.Minute
	MaxFlows        = 1 << 16
)

const (
	burstSeconds  = 4
	dialTime      = 10 * time.Second
	handshakeTime = 5 * time.Second  // for the container to answer, one hop away
	drainTime     = 15 * time.Second // for the container to read the rest of a connection that ended outside
	chunk         = 32 << 10         // copied at a time
	queueBytes    = 4 << 20          // of packets that wait for the writer; more are dropped, as on any line
	batch         = 128              // packets written at a time
	nic           = tcpip.NICID(1)
)

// Resolver looks names up on the internet: *net.Resolver is one.
type Resolver interface {
	LookupNetIP(ctx context.Context, network, host string) ([]netip.Addr, error)
	LookupAddr(ctx context.Context, addr string) ([]string, error)
	LookupTXT(ctx context.Context, name string) ([]string, error)
	LookupMX(ctx context.Context, name string) ([]*net.MX, error)
	LookupSRV(ctx context.Context, service, proto, name string) (string, []*net.SRV, error)
}

// Directory is the names of a cluster.
type Directory interface {
	// Addresses returns the addresses of a name, which is in lower case and without a dot at the end.
	Addresses(name string) []netip.Addr
	// Name returns the name of one of the cluster's addresses, and "" for any other.
	Name(netip.Addr) string
}

// nobody is a Directory without names.
type nobody struct{}

func (nobody) Addresses(string) []netip.Addr { return nil }
func (nobody) Name(netip.Addr) string        { return "" }

// Config is the configuration of a Stack.
type Config struct {
	// Address is the container's own: packets from another are dropped. Service is the address of this end.
	Address, Service netip.Addr
	MTU              int
	Policy           Policy
	Limits           Limits
	// Names is the cluster's; if nil, it has none. Other names do not exist if they have a single label or lie below
	// Domain.
	Names  Directory
	Domain string
	// Services are called with connections to the service address by port, one goroutine each; the connection is closed
	// when they return, and ctx ends with the Stack. Port 53 is the Stack's own.
	Services map[uint16]func(ctx context.Context, conn net.Conn)
	// Own returns the host's externally visible addresses besides its interfaces', for example the router's. It must
	// not block.
	Own func() []netip.Addr
	// Dial connects to an address that the policy allows. If nil, it is a net.Dialer that checks the address of the
	// connection again, and bounds the socket's buffers to the flow's size.
	Dial func(ctx context.Context, network string, to netip.AddrPort) (net.Conn, error)
	// Resolve is nil for the host's resolver.
	Resolve Resolver
	// Budget bounds the flows of this stack and of others; if nil, it is one of DefaultBudget for this stack alone.
	Budget *Budget
	Log    *slog.Logger
}

// ErrConfig reports that a Stack cannot be made with its configuration.
var ErrConfig = errors.New("egress")

// fill checks a configuration and puts the defaults in.
func (c *Config) fill() error {
	switch {
	case !c.Address.Is4() || !c.Service.Is4() || c.Address == c.Service:
		return fmt.Errorf("%w: want two IPv4 addresses, got %v for the container and %v for the service",
			ErrConfig, c.Address, c.Service)
	case c.MTU < header.IPv4MinimumMTU || c.MTU > 1<<16-1:
		return fmt.Errorf("%w: an MTU of %d, want 68 to 65535", ErrConfig, c.MTU)
	case c.Services[portDNS] != nil:
		return fmt.Errorf("%w: port 53 of the service address is DNS", ErrConfig)
	}
	if err := c.Policy.Check(); err != nil {
		return err
	}
	if err := c.Limits.Check(); err != nil {
		return err
	}
	c.Limits = c.Limits.filled()
	if c.Names == nil {
		c.Names = nobody{}
	}
	if c.Resolve == nil {
		c.Resolve = net.DefaultResolver
	}
	if c.Budget == nil {
		c.Budget = NewBudget(DefaultBudget)
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	return nil
}

// Check refuses limits out of range. Errors: ErrConfig.
func (l Limits) Check() error {
	if l.Flows < 0 || l.Flows > MaxFlows || !(l.NewFlows >= 0) || !(l.BytesPerSec >= 0) || l.BytesPerSec > 1<<40 ||
		l.NewFlows > 1<<20 || !(l.Queries >= 0) || l.Queries > 1<<20 || l.IdleTCP < 0 || l.IdleUDP < 0 {
		return fmt.Errorf("%w: limits: want none below 0, at most %d flows, "+
			"2^20 new ones and queries a second, and 2^40 bytes a second",
			ErrConfig, MaxFlows)
	}
	return nil
}

func (l Limits) filled() Limits {
	def := func(v, d float64) float64 {
		if v == 0 {
			return d
		}
		return v
	}
	l.NewFlows, l.Queries = def(l.NewFlows, DefaultNewFlows), def(l.Queries, DefaultQueries)
	if l.Flows == 0 {
		l.Flows = DefaultFlows
	}
	if l.IdleTCP == 0 {
		l.IdleTCP = DefaultIdleTCP
	}
	if l.IdleUDP == 0 {
		l.IdleUDP = DefaultIdleUDP
	}
	return l
}
