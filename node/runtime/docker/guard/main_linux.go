package guard

import (
	"errors"
	"fmt"
	"net"
	"os"
	"os/signal"
	"path/filepath"
	goruntime "runtime"
	"runtime/debug"
	"sync"
	"syscall"
	"time"
	"unsafe"

	"github.com/starling-network/starling/node/runtime"
	"github.com/starling-network/starling/node/runtime/docker/passwd"
	"golang.org/x/sys/unix"
)

const (
	// patience bounds the wait for the order.
	patience = 30 * time.Second
	// threads are made before the program starts: when its processes have used up the limit of the container, the guard
	// can make no more, and Go's runtime dies when it must.
	threads = 16
	// maxFiles bounds the open files of each process of the container, below the engine's limit. Some programs close
	// every number up to the limit, one by one.
	maxFiles = 1 << 16
	// lastSignal is the largest number of a signal.
	lastSignal = 64
)

// Main is the guard when the binary was started as one; otherwise it returns at once. Call it first in main, after
// agent.Main, which the same binary is in a container with an overlay.
func Main() {
	if len(os.Args) < 2 || os.Args[1] != Subcommand {
		return
	}
	work := run
	switch {
	case len(os.Args) == 3 && os.Args[2] == NetSubcommand:
		work = runNet
	case len(os.Args) != 2:
		return
	}
	goruntime.GOMAXPROCS(2)
	debug.SetGCPercent(50)
	if err := work(); err != nil {
		fmt.Fprintln(os.Stderr, "guard:", err)
		os.Exit(runtime.CodeLost)
	}
	os.Exit(0)
}

type guard struct {
	order   Order
	account *passwd.Account // of programs; nil: the guard's own
	out     [2]*os.File     // logs
	report  *os.File
	pid     int
	started time.Time
	copies  sync.WaitGroup // of the program's output: logs and answers on its ports

	mu        sync.Mutex
	conn      *Conn
	attached  map[int]*attached   // by process
	dialled   map[*dialled]uint32 // by connection: the request, with an ID that a later peer uses again
	reason    runtime.Reason      // why the guard ended the program, if it did
	asked     bool                // to end, by SIGTERM
	over      bool                // pid is reaped and must not be signalled
	stillness *stillness          // nil: processes run
}

func run() error {
	// Not dumpable: the program, which has the same user, can neither trace this process nor open its descriptors.
	if err := unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0); err != nil {
		return fmt.Errorf("hiding from the program: %w", err)
	}
	stops := make(chan os.Signal, 1)
	signal.Notify(stops, unix.SIGTERM)
	if err := dropSignals(); err != nil {
		return err
	}
	var files syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &files); err == nil && files.Max > maxFiles {
		_ = syscall.Setrlimit(syscall.RLIMIT_NOFILE, &syscall.Rlimit{Cur: maxFiles, Max: maxFiles})
	}
	warmThreads()
	conn, err := connect()
	if err != nil {
		return err
	}
	g := &guard{conn: conn, attached: map[int]*attached{}, dialled: map[*dialled]uint32{}}
	if err := g.receive(); err != nil {
		return fmt.Errorf("receiving order: %w", err)
	}
	answer := Answer{}
	if err := g.start(); err != nil {
		answer.Error, answer.NoVolume = err.Error(), errors.Is(err, errNoVolume)
		answer.BadUser = errors.Is(err, errUser)
	}
	answer.Started = g.started
	if err := conn.Send(answer); answer.Error != "" {
		return errors.New(answer.Error)
	} else if err != nil {
		g.end(runtime.ReasonLost)
	}
	go g.serve(conn)
	go func() {
		for range stops {
			g.engineStops()
		}
	}()
	if g.order.WallTime > 0 {
		time.AfterFunc(g.order.WallTime, func() { g.end(runtime.ReasonTimeout) })
	}
	return g.finish(g.reap())
}

// dropSignals has the kernel drop the program's signals, but SIGTERM and the signal that Go's runtime sends itself.
// Inside its container, the first process receives no signal with the default action. Caught, a signal of a fault would
// end this process if sent by sigqueue(3), since Go's runtime takes it for a fault of its own, and a flood of signals
// that queue would keep its threads. Ignored, signals would be ignored by the program, too. A real fault ends this
// process.
func dropSignals() error {
	for s := unix.Signal(1); s <= lastSignal; s++ {
		if s == unix.SIGKILL || s == unix.SIGSTOP || s == unix.SIGTERM || s == unix.SIGURG {
			continue
		}
		var action struct{ handler, flags, restorer, mask uint64 } // the kernel's; zero is the default action
		_, _, errno := unix.RawSyscall6(unix.SYS_RT_SIGACTION, uintptr(s), uintptr(unsafe.Pointer(&action)), 0,
			unsafe.Sizeof(action.mask), 0, 0)
		if errno != 0 {
			return fmt.Errorf("dropping signal %d: %w", s, errno)
		}
	}
	return nil
}

func warmThreads() {
	var ready, done sync.WaitGroup
	ready.Add(threads)
	for range threads {
		done.Go(func() {
			goruntime.LockOSThread()
			defer goruntime.UnlockOSThread()
			ready.Done()
			ready.Wait()
		})
	}
	done.Wait()
}

func connect() (*Conn, error) {
	at := &net.UnixAddr{Net: "unixpacket", Name: filepath.Join(runtime.ControlDir, SocketFile)}
	c, err := net.DialUnix("unixpacket", nil, at)
	if err != nil {
		return nil, err
	}
	return NewConn(c), nil
}

// receive reads the order and the descriptors that come with it.
func (g *guard) receive() error {
	_ = g.conn.c.SetReadDeadline(time.Now().Add(patience))
	b, files, err := g.conn.Receive()
	if err != nil {
		return err
	}
	_ = g.conn.c.SetReadDeadline(time.Time{})
	req, err := DecodeRequest(b)
	if err != nil {
		return err
	}
	if req.Op != OpRun || len(files) != 4 {
		return fmt.Errorf("operation %q with %d descriptors", req.Op, len(files))
	}
	order, err := readMemory(files[0])
	if err != nil {
		return err
	}
	_ = files[0].Close()
	g.out, g.report = [2]*os.File(files[1:3]), files[3]
	g.order, err = DecodeOrder(order)
	return err
}

// serve carries out the peer's requests. When the peer is gone it waits for the next one, and ends the program when
// none comes within the grace.
func (g *guard) serve(conn *Conn) {
	for {
		g.requests(conn)
		_ = conn.Close()
		g.cancelAll()
		g.goOn()
		if conn = reconnect(g.order.Grace, g.order.Token); conn == nil {
			g.end(runtime.ReasonLost)
			return
		}
		g.mu.Lock()
		g.conn = conn
		g.mu.Unlock()
	}
}

// reconnect waits up to grace for the next peer and sends it the token.
func reconnect(grace time.Duration, token string) *Conn {
	poll := min(max(grace/20, time.Millisecond), 100*time.Millisecond)
	for deadline := time.Now().Add(grace); time.Now().Before(deadline); time.Sleep(poll) {
		if conn, err := connect(); err == nil {
			if conn.Send(Answer{Token: token}) == nil {
				return conn
			}
			_ = conn.Close()
		}
	}
	return nil
}

// requests handles requests until the connection ends.
func (g *guard) requests(conn *Conn) {
	for {
		b, files, err := conn.Receive()
		if err != nil {
			return
		}
		req, err := DecodeRequest(b)
		if err != nil {
			CloseFiles(files)
			return
		}
		switch req.Op {
		case OpAdopt:
			_ = conn.Send(Answer{Started: g.started})
		case OpTerm:
			g.mu.Lock()
			g.asked = true
			g.mu.Unlock()
			g.signal(unix.SIGTERM)
		case OpKill:
			g.end(req.Reason)
		case OpUsage:
			cpu, memory := g.usage()
			_ = conn.Send(Answer{ID: req.ID, CPUMillis: cpu, MemoryMiB: memory})
		case OpDial:
			g.dial(conn, req, files)
			continue
		case OpAttach:
			if err := g.attach(req.ID, files); err != nil {
				_ = conn.Send(Answer{ID: req.ID, Error: err.Error()})
			}
		case OpSize:
			g.resize(req)
		case OpCancel:
			g.cancel(req.ID)
		case OpStill:
			a := Answer{ID: req.ID}
			if err := g.still(); err != nil {
				a.Error = err.Error()
			}
			_ = conn.Send(a)
		case OpGoOn:
			g.goOn()
		}
		CloseFiles(files)
	}
}

// engineStops passes on the engine's stop signal. The program may save its work, but it is lost with any exit code,
// unless its peer requested its end before.
func (g *guard) engineStops() {
	g.mu.Lock()
	if g.reason == runtime.ReasonNone && !g.over && !g.asked {
		g.reason = runtime.ReasonLost
	}
	g.mu.Unlock()
	g.signal(unix.SIGTERM)
}

// end kills every process of the container but this one; the first reason stays.
func (g *guard) end(r runtime.Reason) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.over {
		return
	}
	if g.reason == runtime.ReasonNone {
		g.reason = r
	}
	g.killAll()
}

// killAll is called with mu held.
func (g *guard) killAll() {
	_ = unix.Kill(-1, unix.SIGKILL)
	_ = g.conn.Send(Answer{Ending: true})
}

func (g *guard) signal(s unix.Signal) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if !g.over {
		_ = unix.Kill(g.pid, s)
	}
}
