package runtimetest

import (
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/starling-network/starling/node/runtime"
	"github.com/starling-network/starling/node/runtime/runtimetest/guest"
)

// process is a program in an execution of a Fake: its main program or an attached one.
type process struct {
	e         *execution
	args, env []string
	in        io.Reader
	out, err  io.Writer
	sizes     <-chan runtime.Size // of its terminal; nil without one
	cancelled <-chan struct{}     // closed when this one alone must end
}

// run is the whole life of the program.
func (p *process) run(prog guest.Program) (code int) {
	defer func() {
		switch r := recover(); r.(type) {
		case nil:
		case killed:
			code = runtime.CodeKilled
		default:
			fmt.Fprintln(p.err, "panic:", r)
			code = 2
		}
	}()
	return prog(p)
}

// live ends the program here if it must end, and holds it while it is paused.
func (p *process) live() {
	for {
		select {
		case <-p.e.dying:
			panic(killed{})
		case <-p.cancelled:
			panic(killed{})
		default:
		}
		p.e.mu.Lock()
		resumed := p.e.resumed
		p.e.mu.Unlock()
		if resumed == nil {
			return
		}
		select {
		case <-resumed:
		case <-p.e.dying:
		case <-p.cancelled:
		}
	}
}

// environ joins variables, the later ones on top.
func environ(sets ...map[string]string) []string {
	all := map[string]string{}
	for _, s := range sets {
		maps.Copy(all, s)
	}
	var env []string
	for k, v := range all {
		env = append(env, k+"="+v)
	}
	return env
}

// free is the room left on the writable mounts without a room of their own, in bytes; each file takes whole blocks,
// each directory one.
func (e *execution) free() int64 { return e.freeOf(mount{}) }

// freeOf is the room left on a mount.
func (e *execution) freeOf(m mount) int64 {
	if m.RoomMiB > 0 {
		return int64(m.RoomMiB)<<20 - mounts{m}.used()
	}
	var shared mounts
	for _, other := range e.mounts {
		if other.RoomMiB == 0 {
			shared = append(shared, other)
		}
	}
	return int64(e.limits.DiskMiB)<<20 - shared.used()
}

// Args are those of the spec, or of the attached program.
func (p *process) Args() []string {
	p.live()
	return slices.Clone(p.args)
}

func (p *process) Environ() []string {
	p.live()
	return slices.Clone(p.env)
}

// NextSize waits for the terminal's size, or its next one.
func (p *process) NextSize() (rows, cols uint16) {
	p.live()
	select {
	case s := <-p.sizes:
		rows, cols = s.Rows, s.Cols
	case <-p.e.dying:
	case <-p.cancelled:
	}
	p.live()
	return rows, cols
}

func (p *process) Stdin() io.Reader  { return liveReader{p, p.in} }
func (p *process) Stdout() io.Writer { return liveWriter{p, p.out} }
func (p *process) Stderr() io.Writer { return liveWriter{p, p.err} }

// burn is how many milliseconds of a program's computing pass at once: every time that a bubble's clock moves on costs
// the processor that there really is, and a program that computes for a minute moved it sixty thousand times.
const burn = 10

// Burn is a millisecond of computing: the tenth lets ten pass, so that a bubble's clock moves on.
func (p *process) Burn() {
	p.live()
	p.e.mu.Lock()
	p.e.stats.CPUMillis++
	due := p.e.stats.CPUMillis%burn == 0
	p.e.mu.Unlock()
	if !due {
		return
	}
	select {
	case <-time.After(burn * time.Millisecond):
	case <-p.e.dying:
	case <-p.cancelled:
	}
	p.live()
}

func (p *process) Grow(mib int) {
	p.live()
	p.e.mu.Lock()
	over := uint64(p.e.stats.MemoryMiB)+uint64(mib) > uint64(p.e.limits.MemoryMiB)
	if !over {
		p.e.stats.MemoryMiB += uint32(mib)
	}
	p.e.mu.Unlock()
	if over {
		p.e.kill(runtime.ReasonOOM)
		panic(killed{})
	}
}

func (p *process) Dial(addr string) error {
	p.live()
	return fmt.Errorf("dial %s: %w", addr, syscall.EACCES)
}

// Listen is reached through Fake.Dial.
func (p *process) Listen(port uint16, serve func(io.ReadWriteCloser)) error {
	p.live()
	incoming := make(chan io.ReadWriteCloser)
	p.e.mu.Lock()
	taken := p.e.ports[port] != nil
	if !taken {
		p.e.ports[port] = incoming
	}
	p.e.mu.Unlock()
	if taken {
		return fmt.Errorf("listen on port %d: %w", port, syscall.EADDRINUSE)
	}
	for {
		select {
		case c := <-incoming:
			served := make(chan struct{})
			go func() {
				defer close(served)
				serve(c)
			}()
			go func() {
				select {
				case <-served:
				case <-p.e.over: // waits in serve end then
				}
				_ = c.Close()
			}()
		case <-p.e.dying:
		case <-p.cancelled:
		}
		p.live()
	}
}

func (p *process) Now() time.Time {
	p.live()
	if p.e.spec.Seed == 0 {
		return time.Now()
	}
	p.e.mu.Lock()
	defer p.e.mu.Unlock()
	p.e.clock = p.e.clock.Add(time.Millisecond)
	return p.e.clock
}

func (p *process) Random() uint64 {
	p.live()
	p.e.mu.Lock()
	defer p.e.mu.Unlock()
	return p.e.rng.Uint64()
}

func (p *process) OpenFile(name string, flag int, perm fs.FileMode) (guest.File, error) {
	p.live()
	if path.Clean(name) == runtime.StopFile {
		p.e.mu.Lock()
		defer p.e.mu.Unlock()
		if p.e.stopping && flag == os.O_RDONLY {
			return memoryFile{strings.NewReader("")}, nil
		}
		return nil, &fs.PathError{Op: "open", Path: name, Err: syscall.ENOENT}
	}
	if secret, ok := strings.CutPrefix(path.Clean(name), runtime.SecretsDir+"/"); ok {
		if b, ok := p.e.spec.Secrets[secret]; ok && flag == os.O_RDONLY {
			return memoryFile{strings.NewReader(string(b))}, nil
		}
		return nil, &fs.PathError{Op: "open", Path: name, Err: syscall.ENOENT}
	}
	if b, ok := p.e.overlayFile(name); ok {
		if flag != os.O_RDONLY {
			return nil, &fs.PathError{Op: "open", Path: name, Err: syscall.EROFS}
		}
		return memoryFile{strings.NewReader(string(b))}, nil
	}
	m, rel, err := p.e.mounts.resolve("open", name)
	if err != nil {
		return nil, err
	}
	if m.ReadOnly && flag != os.O_RDONLY {
		return nil, &fs.PathError{Op: "open", Path: name, Err: syscall.EROFS}
	}
	if flag&os.O_CREATE != 0 && p.e.freeOf(m) < block {
		return nil, &fs.PathError{Op: "open", Path: name, Err: syscall.ENOSPC}
	}
	f, err := m.root.OpenFile(rel, flag, perm)
	if err != nil {
		return nil, err
	}
	return &fakeFile{f, p, m}, nil
}

func (p *process) Remove(name string) error {
	p.live()
	m, rel, err := p.e.mounts.resolve("remove", name)
	if err != nil {
		return err
	}
	if m.ReadOnly {
		return &fs.PathError{Op: "remove", Path: name, Err: syscall.EROFS}
	}
	return m.root.Remove(rel)
}

func (p *process) ReadDir(name string) ([]string, error) {
	p.live()
	m, rel, err := p.e.mounts.resolve("readdir", name)
	if err != nil {
		return nil, err
	}
	entries, err := fs.ReadDir(m.root.FS(), rel)
	var names []string
	for _, d := range entries {
		names = append(names, d.Name())
	}
	return names, err
}

type liveReader struct {
	p *process
	r io.Reader
}

func (r liveReader) Read(b []byte) (int, error) {
	r.p.live()
	return r.r.Read(b)
}

type liveWriter struct {
	p *process
	w io.Writer
}

func (w liveWriter) Write(b []byte) (int, error) {
	w.p.live()
	return w.w.Write(b)
}

type fakeFile struct {
	*os.File
	p *process
	m mount
}

func (f *fakeFile) Read(b []byte) (int, error) {
	f.p.live()
	return f.File.Read(b)
}

func (f *fakeFile) Write(b []byte) (int, error) {
	f.p.live()
	if f.p.e.freeOf(f.m) < int64(len(b)) {
		return 0, &fs.PathError{Op: "write", Path: f.Name(), Err: syscall.ENOSPC}
	}
	return f.File.Write(b)
}

// memoryFile is a file of the runtime's own.
type memoryFile struct{ *strings.Reader }

func (memoryFile) Write([]byte) (int, error) { return 0, syscall.EROFS }
func (memoryFile) Close() error              { return nil }
