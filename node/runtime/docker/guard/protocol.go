package guard

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"time"

	"github.com/starling-network/starling/node/runtime"
)

const (
	// Program is the name of the small binary that is a guard. It lies beside the peer's own.
	Program = "starling-guard"
	// Subcommand is the first argument of a binary that is to be a guard.
	Subcommand = "docker-guard"
	// Path is the path of the binary in the container.
	Path = runtime.GuardPath
	// SocketFile and StopFile are names in the control directory.
	SocketFile = "guard.sock"
	StopFile   = "stop"

	// MaxPacket bounds one message of either side, MaxOrder the content of a memory file, MaxReport the report; in
	// bytes.
	MaxPacket = 64 << 10
	MaxOrder  = 4 << 20
	MaxReport = 64 << 10
	// MaxFiles is how many descriptors come with a message at most.
	MaxFiles = 4
	// MaxAttached bounds the processes attached to one execution at a time, MaxDialled the connections to its program.
	MaxAttached = 64
	MaxDialled  = 256
)

// Op is the operation of a Request.
type Op string

const (
	OpRun   Op = "run"   // start the program: order, stdout, stderr, report. Answered with ID 0
	OpAdopt Op = "adopt" // the program runs already. Answered with ID 0
	OpTerm  Op = "term"  // send the program SIGTERM. Not answered
	OpKill  Op = "kill"  // end the program for Reason. Not answered: the guard's end is the answer
	OpUsage Op = "usage" // answered with CPUMillis and MemoryMiB
	// connect the socket that comes with it to Port at the loopback address, or else the overlay's. Answered
	OpDial Op = "dial"
	// start another program: order, stdin, stdout, stderr, or for a terminal order and socket. Answered, and again at
	// its end
	OpAttach Op = "attach"
	// change the size of the terminal of the program attached as ID to Rows and Cols. Not answered
	OpSize Op = "size"
	// kill the program attached as ID, or read no more of the connection dialled as ID. Not answered: its end is
	OpCancel Op = "cancel"
	OpStill  Op = "still" // stop every process but gauges, until go-on. Answered
	OpGoOn   Op = "go-on" // resume them; not answered
)

// Request is a message of the peer.
type Request struct {
	Op     Op             `json:"op"`
	ID     uint32         `json:"id,omitempty"`     // repeated in the answer; not 0 but for run and adopt
	Reason runtime.Reason `json:"reason,omitempty"` // of kill
	Port   uint16         `json:"port,omitempty"`   // of dial
	Rows   uint16         `json:"rows,omitempty"`   // of size
	Cols   uint16         `json:"cols,omitempty"`   // of size
}

// Answer is a message of the guard.
type Answer struct {
	ID        uint32    `json:"id"`
	Error     string    `json:"error,omitempty"`     // why it was not done
	Token     string    `json:"token,omitempty"`     // the first message of a guard that connects anew: its order's
	NoVolume  bool      `json:"no_volume,omitempty"` // with Error: the writable mounts are not in Order.Volume
	BadUser   bool      `json:"bad_user,omitempty"`  // with Error: the image's user cannot be used
	Started   time.Time `json:"started,omitzero"`
	Ending    bool      `json:"ending,omitempty"` // every process of the container is being killed; ID 0, unasked
	Ended     bool      `json:"ended,omitempty"`  // an attached program has ended with Code
	Code      int       `json:"code,omitempty"`
	CPUMillis uint64    `json:"cpu_millis,omitempty"`
	MemoryMiB uint32    `json:"memory_mib,omitempty"`
}

// Command is a program to start, of an Order or an attached one.
type Command struct {
	Argv []string `json:"argv"` // the program and its arguments
	// NAME=value: the whole environment; of an attached program that is no gauge, the differences to the program's
	Env  []string `json:"env"`
	Dir  string   `json:"dir"` // working directory, absolute; of an attached program "" is the program's
	TTY  bool     `json:"tty,omitempty"`
	Rows uint16   `json:"rows,omitempty"`
	Cols uint16   `json:"cols,omitempty"`
	// Gauge is a program that computes while the others stand still; of an attached one. It has the guard's own user.
	Gauge bool `json:"gauge,omitempty"`
}

// Order is the guard's order to run a program. It holds secrets, so it travels in a file that exists only in memory.
type Order struct {
	Command   Command           `json:"command"`
	LogBytes  int64             `json:"log_bytes"`  // of each log
	WallTime  time.Duration     `json:"wall_time"`  // 0 is no limit
	Grace     time.Duration     `json:"grace"`      // without a peer
	Writable  []string          `json:"writable"`   // mounts that are held to DiskBytes
	DiskBytes int64             `json:"disk_bytes"` // of all of them together, so that no file may be larger
	Secrets   map[string][]byte `json:"secrets,omitempty"`
	Overlay   netip.Addr        `json:"overlay,omitzero"` // the address there, of an execution that has one
	Volume    Volume            `json:"volume,omitzero"`  // the file system of every writable mount; zero: not checked
	Rooms     []Room            `json:"rooms,omitempty"`  // writable mounts with limits of their own, beside Writable
	// Identity is optional. If nil, programs have the guard's user; else the guard is root of a user namespace.
	Identity *Identity `json:"identity,omitempty"`
	// distinguishes the guard from the program when it connects anew
	Token string `json:"token"`
}

// Identity is the user of programs in a container with users of its own.
type Identity struct {
	User        string   `json:"user"`                  // as an image names it; "" is root
	Directories []string `json:"directories,omitempty"` // made if they are missing: the volumes of the image
}

// Room is a writable mount with a file system of its own.
type Room struct {
	Dir    string `json:"dir"`
	Volume Volume `json:"volume"`
	Bytes  int64  `json:"bytes"`
}

// Volume is the size of a file system: it distinguishes a volume from the directory that it is mounted on.
type Volume struct {
	Blocks uint64 `json:"blocks"`
	Files  uint64 `json:"files"`
}

// Report is how the program ended, the last thing a guard writes.
type Report struct {
	Code      int            `json:"code"`
	Reason    runtime.Reason `json:"reason,omitempty"`
	Started   time.Time      `json:"started"`
	Ended     time.Time      `json:"ended"`
	CPUMillis uint64         `json:"cpu_millis"`
	MemoryMiB uint32         `json:"memory_mib"` // the last known
}

// DecodeRequest reads a message of the peer.
func DecodeRequest(b []byte) (Request, error) {
	var r Request
	if err := decode("request", b, MaxPacket, &r); err != nil {
		return Request{}, err
	}
	switch r.Op {
	case OpRun, OpAdopt, OpTerm, OpKill, OpUsage, OpDial, OpAttach, OpSize, OpCancel, OpStill, OpGoOn:
	default:
		return Request{}, fmt.Errorf("decoding request: unknown operation %.40q", r.Op)
	}
	return r, checkReason("request", r.Reason)
}

// DecodeAnswer reads a message of the guard.
func DecodeAnswer(b []byte) (Answer, error) {
	var a Answer
	if err := decode("answer", b, MaxPacket, &a); err != nil {
		return Answer{}, err
	}
	return a, checkCode("answer", a.Code)
}

// DecodeOrder reads an order.
func DecodeOrder(b []byte) (Order, error) {
	var o Order
	if err := decode("order", b, MaxOrder, &o); err != nil {
		return Order{}, err
	}
	if o.LogBytes < 0 || o.WallTime < 0 || o.Grace <= 0 || o.DiskBytes < 0 {
		return Order{}, errors.New("decoding order: a limit is negative")
	}
	if o.Command.Dir == "" {
		return Order{}, errors.New("decoding order: names no working directory")
	}
	if o.Token == "" {
		return Order{}, errors.New("decoding order: has no token")
	}
	return o, o.Command.check()
}

// DecodeCommand decodes a command to attach.
func DecodeCommand(b []byte) (Command, error) {
	var c Command
	if err := decode("command", b, MaxOrder, &c); err != nil {
		return Command{}, err
	}
	return c, c.check()
}

func (c Command) check() error {
	if len(c.Argv) == 0 || c.Argv[0] == "" {
		return errors.New("names no program")
	}
	if c.Dir != "" && c.Dir[0] != '/' {
		return fmt.Errorf("working directory %.80q is not absolute", c.Dir)
	}
	return nil
}

// DecodeReport decodes a report and refuses a report that a guard cannot write.
func DecodeReport(b []byte) (Report, error) {
	var r Report
	if err := decode("report", b, MaxReport, &r); err != nil {
		return r, err
	}
	if r.Started.IsZero() || r.Ended.Before(r.Started) {
		return Report{}, errors.New("decoding report: ended before it started")
	}
	return r, errors.Join(checkReason("report", r.Reason), checkCode("report", r.Code))
}

func checkReason(what string, r runtime.Reason) error {
	switch r {
	case runtime.ReasonNone, runtime.ReasonOOM, runtime.ReasonTimeout, runtime.ReasonKilled, runtime.ReasonDisk,
		runtime.ReasonTrap, runtime.ReasonLost:
		return nil
	}
	return fmt.Errorf("decoding %s: unknown reason %.40q", what, r)
}

func checkCode(what string, code int) error {
	if code < 0 || code > 255 {
		return fmt.Errorf("decoding %s: exit code %d", what, code)
	}
	return nil
}

func decode(what string, b []byte, limit int, v any) error {
	if len(b) > limit {
		return fmt.Errorf("decoding %s: %d bytes, at most %d", what, len(b), limit)
	}
	dec := json.NewDecoder(bytes.NewReader(b))
	dec.DisallowUnknownFields()
	if err := dec.Decode(v); err != nil {
		return fmt.Errorf("decoding %s: %w", what, err)
	}
	if _, err := dec.Token(); err != io.EOF {
		return fmt.Errorf("decoding %s: bytes after its end", what)
	}
	return nil
}
