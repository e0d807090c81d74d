package egress

import (
	"context"
	"os"
	"strconv"
	"strings"
	"sync"
	"syscall"
)

const (
	// wideSocket bounds the kernel's buffer one way for the socket of a wide flow, where the kernel allows setting it.
	wideSocket = 8 << 20
	// leastWide is the smallest buffer that is worth asking for: kernels that allow no more grow their own up to a
	// bound of theirs.
	leastWide = 512 << 10
)

// room is the kernel's buffer of a wide flow's socket, one way.
type room struct {
	asks   int   // requested size; 0: it grows as the kernel allows
	counts int64 // how large it gets
}

var (
	wideRead  = sync.OnceValue(func() room { return roomOf("ipv4/tcp_rmem", "core/rmem_max", 32<<20) })
	wideWrite = sync.OnceValue(func() room { return roomOf("ipv4/tcp_wmem", "core/wmem_max", 4<<20) })
)

// roomOf reads the kernel's limits of growth and of requests; usual is the default of growth.
func roomOf(grows, asked string, usual int64) room {
	most := sysctl(grows, 2)
	if most <= 0 {
		most = usual
	}
	if most <= wideSocket {
		return room{counts: most}
	}
	if n := min(sysctl(asked, 0), wideSocket/2); n >= leastWide {
		return room{asks: int(n), counts: 2 * n}
	}
	return room{counts: most}
}

// sysctl is a number of a file of the kernel's network settings, 0 if it cannot be read.
func sysctl(file string, field int) int64 {
	b, _ := os.ReadFile("/proc/sys/net/" + file)
	f := strings.Fields(string(b))
	if field >= len(f) {
		return 0
	}
	n, _ := strconv.ParseInt(f[field], 10, 64)
	return n
}

// flowCtx is the key of a flow in the context with which it is dialled.
type flowCtx struct{}

// bound bounds the buffers of a socket to its flow's size. It is called before the socket connects: an announced window
// is not taken back, and a small one does not grow.
func bound(ctx context.Context, c syscall.RawConn) error {
	read, write := narrowBuffer, narrowBuffer
	if f, ok := ctx.Value(flowCtx{}).(*flow); ok && f.wide {
		read, write = wideRead().asks, wideWrite().asks
	}
	return setBuffers(c, read, write)
}
