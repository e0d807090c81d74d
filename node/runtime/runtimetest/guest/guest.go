// Package guest is the inside of a sandbox as a program sees it. The programs of the conformance test are written
// against Process, so that the very same code runs as a WASI module, as a container's command, and as a plain
// function inside runtimetest.Fake.
package guest

import (
	"crypto/rand"
	"encoding/binary"
	"errors"
	"io"
	"io/fs"
	"net"
	"os"
	"strconv"
	"time"
)

// Process is a program's access to the world around it.
type Process interface {
	// Args are the arguments without the program's name.
	Args() []string
	// Environ is the whole environment, "NAME=value".
	Environ() []string
	Streams
	Files
	Machine
	Network
}

// Streams are the standard streams of a program.
type Streams interface {
	Stdin() io.Reader
	Stdout() io.Writer
	Stderr() io.Writer
}

// Files is the file system that a program sees. Its methods work as those of package os.
type Files interface {
	OpenFile(name string, flag int, perm fs.FileMode) (File, error)
	Remove(name string) error
	// ReadDir lists names as the system orders them.
	ReadDir(name string) ([]string, error)
}

// Machine is the processor and memory under a program, its clock and its source of random numbers.
type Machine interface {
	// Grow takes and touches mib MiB of memory and keeps it. Over the limit it does not return.
	Grow(mib int)
	// Burn uses about a millisecond of CPU.
	Burn()
	Now() time.Time
	Random() uint64
}

// Network is the network that a program reaches.
type Network interface {
	// Dial tries to reach a network address.
	Dial(addr string) error
	// Listen serves every connection to a port of the own loopback address, without end.
	Listen(port uint16, serve func(io.ReadWriteCloser)) error
}

// Terminal is the further part of the Process of a program in a Fake that was attached with a terminal.
type Terminal interface {
	// NextSize waits for the terminal's size, the first time for that at the start.
	NextSize() (rows, cols uint16)
}

// File is an open file of a Process.
type File interface {
	io.ReadWriteCloser
	io.Seeker
}

// Program is the code of an execution; it returns the exit code.
type Program func(p Process) int

// ReadFile reads at most limit bytes of a file.
func ReadFile(p Files, name string, limit int64) ([]byte, error) {
	f, err := p.OpenFile(name, os.O_RDONLY, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return io.ReadAll(io.LimitReader(f, limit))
}

// WriteFile creates or replaces a file.
func WriteFile(p Files, name string, b []byte) error {
	f, err := p.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o644)
	if err != nil {
		return err
	}
	_, err = f.Write(b)
	return errors.Join(err, f.Close())
}

// Exists reports whether a file can be opened.
func Exists(p Files, name string) bool {
	f, err := p.OpenFile(name, os.O_RDONLY, 0)
	if err != nil {
		return false
	}
	_ = f.Close()
	return true
}

// OS is the Process of a program that runs under a real system.
type OS struct {
	kept [][]byte
	sink uint64
}

// Args returns the arguments after the program's name.
func (*OS) Args() []string { return os.Args[1:] }

// Environ returns the environment of the process.
func (*OS) Environ() []string { return os.Environ() }

// Stdin returns the standard input of the process.
func (*OS) Stdin() io.Reader { return os.Stdin }

// Stdout returns the standard output of the process.
func (*OS) Stdout() io.Writer { return os.Stdout }

// Stderr returns the standard error of the process.
func (*OS) Stderr() io.Writer { return os.Stderr }

// Now reads the system's clock.
func (*OS) Now() time.Time { return time.Now() }

// Remove removes a file or an empty directory.
func (*OS) Remove(n string) error { return os.Remove(n) }

// OpenFile is os.OpenFile.
func (*OS) OpenFile(name string, flag int, perm fs.FileMode) (File, error) {
	f, err := os.OpenFile(name, flag, perm)
	if err != nil {
		return nil, err
	}
	return f, nil
}

// ReadDir lists names in the order the system gives them.
func (*OS) ReadDir(name string) ([]string, error) {
	d, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer d.Close()
	return d.Readdirnames(-1)
}

// Grow writes into every page.
func (o *OS) Grow(mib int) {
	b := make([]byte, mib<<20)
	for i := 0; i < len(b); i += 4096 {
		b[i] = 1
	}
	o.kept = append(o.kept, b)
}

// Burn multiplies numbers and makes no system call.
func (o *OS) Burn() {
	x := o.sink | 1
	for range 500_000 {
		x = x*6364136223846793005 + 1442695040888963407
	}
	o.sink = x
}

// Dial opens a TCP connection and closes it.
func (*OS) Dial(addr string) error {
	c, err := net.DialTimeout("tcp", addr, 2*time.Second)
	if err != nil {
		return err
	}
	return c.Close()
}

// Listen serves a TCP port.
func (*OS) Listen(port uint16, serve func(io.ReadWriteCloser)) error {
	l, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(int(port))))
	if err != nil {
		return err
	}
	for {
		c, err := l.Accept()
		if err != nil {
			return err
		}
		go serve(c)
	}
}

// Random asks the system.
func (*OS) Random() uint64 {
	var b [8]byte
	_, _ = rand.Read(b[:])
	return binary.LittleEndian.Uint64(b[:])
}
