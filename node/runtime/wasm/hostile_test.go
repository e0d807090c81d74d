package wasm

import (
	"context"
	"encoding/binary"
	"errors"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/starling-network/starling/node/runtime"
	"github.com/starling-network/starling/node/runtime/wasm/process"
)

// Error numbers of WASI, for expected results.
const (
	success, acces, badf, exist, fault, inval, isdir = 0, 2, 8, 20, 21, 28, 31
	loop, nametoolong, noent, nospc, nosys, notdir   = 32, 37, 44, wasiENOSPC, 52, 54
	notsup, perm, rofs                               = 58, 63, 69
)

// wild is an address behind all memory.
const wild = -16

// checkGone checks that an execution has no process any more, and that Destroy leaves nothing of it.
func checkGone(t *testing.T, r *Runtime, h runtime.Handle) {
	t.Helper()
	alive, err := os.Open(filepath.Join(h.Dir, aliveFile))
	if err != nil {
		t.Fatal(err)
	}
	defer alive.Close()
	if held, err := process.Held(alive); err != nil || held {
		t.Errorf("child alive after its end: %v, %v", held, err)
	}
	if err := r.Destroy(t.Context(), h); err != nil {
		t.Error(err)
	}
	if left, err := os.ReadDir(filepath.Dir(h.Dir)); err != nil || len(left) != 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
}

// mounted is a spec with a read-only directory at descriptor 4 and a writable one at 5, of 1 MiB.
func mounted(t *testing.T, module []byte) (s runtime.Spec, in, out string) {
	t.Helper()
	dir := t.TempDir()
	in, out = filepath.Join(dir, "in"), filepath.Join(dir, "out")
	for _, d := range []string{in, out} {
		if err := os.Mkdir(d, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	return runtime.Spec{
		ID: "hostile", Dir: filepath.Join(t.TempDir(), "run"), Module: write(t, "hostile.wasm", module),
		Mounts: []runtime.Mount{{Host: in, Guest: "/in", ReadOnly: true}, {Host: out, Guest: "/out"}},
		Limits: runtime.Limits{MemoryMiB: 16, DiskMiB: 1},
	}, in, out
}

// checkCalls runs a module that makes the calls, and compares the error numbers with the expected ones.
func checkCalls(t *testing.T, s runtime.Spec, calls []wasiCall) {
	t.Helper()
	r := newRuntime(t, time.Minute)
	h := start(t, r, s)
	if e := wait(t, r, h); !e.OK() {
		t.Errorf("%+v", e)
	}
	got, err := os.ReadFile(filepath.Join(h.Dir, logFile(runtime.Stdout)))
	if err != nil || len(got) != len(calls) {
		t.Fatalf("%d results of %d calls, %v", len(got), len(calls), err)
	}
	for i, c := range calls {
		if got[i] != c.want {
			t.Errorf("%s%v: error %d, want %d", c.function, c.args, got[i], c.want)
		}
	}
	checkGone(t, r, h)
}

func TestAttackPointers(t *testing.T) {
	t.Parallel()
	var m module
	u32 := func(v ...uint32) (b []byte) {
		for _, n := range v {
			b = binary.LittleEndian.AppendUint32(b, n)
		}
		return b
	}
	path := m.put([]byte("x"))
	wildIOV, wideIOV, fineIOV := m.put(u32(math.MaxUint32, 8)), m.put(u32(0, math.MaxUint32)), m.put(u32(0, 8))
	clock := m.put(make([]byte, 48)) // a subscription to a clock, at once
	calls := []wasiCall{
		{"random_get", []any{wild, 32}, fault},
		{"random_get", []any{0, -1}, fault},
		{"clock_time_get", []any{0, int64(1), wild}, fault},
		{"clock_time_get", []any{99, int64(1), 0}, inval},
		{"clock_res_get", []any{0, wild}, fault},
		{"clock_res_get", []any{-1, 0}, inval},
		{"args_get", []any{wild, wild}, fault},
		{"args_sizes_get", []any{wild, wild}, fault},
		{"environ_get", []any{0, wild}, fault},
		{"environ_sizes_get", []any{0, wild}, fault},
		{"fd_write", []any{1, wild, 1, 0}, fault},
		{"fd_write", []any{1, wildIOV, 1, 0}, fault},
		{"fd_write", []any{1, wideIOV, 1, 0}, fault},
		{"fd_write", []any{1, fineIOV, math.MaxInt32 / 8, 0}, fault},
		{"fd_write", []any{1, fineIOV, 0, wild}, fault},
		{"fd_read", []any{0, wildIOV, 1, 0}, fault},
		{"fd_read", []any{0, fineIOV, 1, wild}, fault},
		{"fd_pread", []any{4, wideIOV, 1, int64(0), 0}, fault},
		{"fd_readdir", []any{4, wild, 1024, int64(0), 0}, fault},
		{"fd_readdir", []any{4, 0, 1024, int64(-1), 0}, noent},
		{"fd_filestat_get", []any{4, wild}, fault},
		{"fd_fdstat_get", []any{4, wild}, fault},
		{"fd_prestat_get", []any{4, wild}, fault},
		{"fd_prestat_dir_name", []any{4, wild, 3}, fault},
		{"fd_prestat_dir_name", []any{4, 0, -1}, nametoolong},
		{"poll_oneoff", []any{wild, 0, 1, 0}, fault},
		{"poll_oneoff", []any{clock, wild, 1, 0}, fault},
		{"poll_oneoff", []any{clock, 0, 0, 0}, inval},
		{"poll_oneoff", []any{clock, 0, -1, 0}, fault},
		{"path_open", []any{5, 0, wild, 8, 0, int64(2), int64(0), 0, 0}, fault},
		{"path_open", []any{5, 0, path, -1, 0, int64(2), int64(0), 0, 0}, fault},
		{"path_filestat_get", []any{5, 0, path, 1, wild}, noent},
		{"path_rename", []any{5, path, 1, 5, wild, 1}, fault},
	}
	s, _, _ := mounted(t, m.calling(calls))
	checkCalls(t, s, calls)
}

func TestAttackDescriptors(t *testing.T) {
	t.Parallel()
	var m module
	iov := m.put(binary.LittleEndian.AppendUint32(make([]byte, 4), 8))
	path := m.put([]byte("x"))
	var calls []wasiCall
	for _, fd := range []int{99, -1, math.MinInt32, math.MaxInt32} {
		calls = append(calls, []wasiCall{
			{"fd_close", []any{fd}, badf},
			{"fd_read", []any{fd, iov, 1, 0}, badf},
			{"fd_write", []any{fd, iov, 1, 0}, badf},
			{"fd_pread", []any{fd, iov, 1, int64(0), 0}, badf},
			{"fd_pwrite", []any{fd, iov, 1, int64(0), 0}, badf},
			{"fd_seek", []any{fd, int64(0), 0, 0}, badf},
			{"fd_tell", []any{fd, 0}, badf},
			{"fd_sync", []any{fd}, badf},
			{"fd_datasync", []any{fd}, badf},
			{"fd_advise", []any{fd, int64(0), int64(0), 0}, badf},
			{"fd_allocate", []any{fd, int64(0), int64(1)}, badf},
			{"fd_filestat_get", []any{fd, 0}, badf},
			{"fd_filestat_set_size", []any{fd, int64(0)}, badf},
			{"fd_filestat_set_times", []any{fd, int64(0), int64(0), 0}, badf},
			{"fd_fdstat_get", []any{fd, 0}, badf},
			{"fd_fdstat_set_flags", []any{fd, 0}, badf},
			{"fd_prestat_get", []any{fd, 0}, badf},
			{"fd_readdir", []any{fd, 0, 1024, int64(0), 0}, badf},
			{"fd_renumber", []any{fd, 5}, badf},
			{"path_open", []any{fd, 0, path, 1, 0, int64(2), int64(0), 0, 0}, badf},
			{"path_rename", []any{5, path, 1, fd, path, 1}, badf},
			{"sock_accept", []any{fd, 0, 0}, badf},
			{"sock_recv", []any{fd, iov, 1, 0, 0, 0}, badf},
			{"sock_send", []any{fd, iov, 1, 0, 0}, badf},
			{"sock_shutdown", []any{fd, 0}, badf},
		}...)
	}
	calls = append(calls, []wasiCall{
		{"fd_read", []any{5, iov, 1, 0}, isdir},
		{"fd_write", []any{5, iov, 1, 0}, isdir},
		{"fd_renumber", []any{1, 5}, notsup}, // preopened: the file system's root stays
		{"path_open", []any{1, 0, path, 1, 0, int64(2), int64(0), 0, 0}, notdir},
		{"sock_accept", []any{5, 0, 0}, badf},
		{"proc_raise", []any{9}, nosys},
	}...)
	s, _, _ := mounted(t, m.calling(calls))
	checkCalls(t, s, calls)
}

func TestAttackPaths(t *testing.T) {
	t.Parallel()
	var m module
	at := map[string]int{}
	where := func(p string) (address, length int) {
		if _, known := at[p]; !known {
			at[p] = m.put([]byte(p))
		}
		return at[p], len(p)
	}
	open := func(fd int, p string, flags int, rights int64) []any {
		a, n := where(p)
		return []any{fd, 1, a, n, flags, rights, int64(0), 0, 8}
	}
	on := func(fd int, p string) []any {
		a, n := where(p)
		return []any{fd, a, n}
	}
	const creat, read, readWrite = 1, int64(2), int64(2 | 64)
	fine, fineLen := where("f")
	var calls []wasiCall
	for _, p := range []string{"../keep", "/keep", "d/../../keep", "link", "above/keep", "d/../d/../../keep"} {
		calls = append(calls,
			wasiCall{"path_open", open(5, p, 0, read), perm},
			wasiCall{"path_open", open(5, p, creat, readWrite), perm},
		)
	}
	for _, p := range []string{"../made", "above/made", "d/../../made"} {
		a, n := where(p)
		calls = append(calls,
			wasiCall{"path_create_directory", on(5, p), perm},
			wasiCall{"path_unlink_file", on(5, p), perm},
			wasiCall{"path_remove_directory", on(5, p), perm},
			wasiCall{"path_filestat_get", []any{5, 1, a, n, 0}, perm},
			wasiCall{"path_filestat_set_times", []any{5, 1, a, n, int64(1), int64(1), 5}, perm},
			wasiCall{"path_rename", []any{5, fine, fineLen, 5, a, n}, perm},
			wasiCall{"path_rename", []any{5, a, n, 5, fine, fineLen}, perm},
		)
	}
	long := strings.Repeat("x", 4096)
	a, n := where("new")
	calls = append(calls,
		wasiCall{"path_open", open(5, "", 0, read), inval},
		wasiCall{"path_open", open(5, "f\x00", 0, read), inval},
		wasiCall{"path_open", open(5, long, creat, readWrite), nametoolong},
		wasiCall{"path_open", open(5, strings.Repeat("d/../", 3000)+"f", 0, read), success},
		wasiCall{"path_symlink", []any{fine, fineLen, 5, a, n}, perm},
		wasiCall{"path_link", []any{5, 0, fine, fineLen, 5, a, n}, perm},
		wasiCall{"path_open", open(4, "new", creat, readWrite), rofs},
		wasiCall{"path_create_directory", on(4, "new"), rofs},
		wasiCall{"path_unlink_file", on(4, "f"), rofs},
		wasiCall{"path_open", open(5, "f", creat|4, readWrite), exist}, // 4: exclusively
		wasiCall{"path_open", open(5, "self", 0, read), loop},
		wasiCall{"path_open", open(5, "f", 0, read), success},
	)
	s, in, out := mounted(t, m.calling(calls))
	keep := filepath.Join(filepath.Dir(out), "keep")
	for _, f := range []string{keep, filepath.Join(in, "f"), filepath.Join(out, "f")} {
		if err := os.WriteFile(f, []byte("kept"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for name, target := range map[string]string{"link": keep, "above": "..", "self": "self"} {
		if err := os.Symlink(target, filepath.Join(out, name)); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Mkdir(filepath.Join(out, "d"), 0o700); err != nil {
		t.Fatal(err)
	}
	checkCalls(t, s, calls)
	if b, err := os.ReadFile(keep); err != nil || string(b) != "kept" {
		t.Errorf("the file outside: %q, %v", b, err)
	}
	checkNames(t, filepath.Dir(out), "in", "keep", "out")
	checkNames(t, in, "f")
	checkNames(t, out, "above", "d", "f", "link", "self")
}

func checkNames(t *testing.T, dir string, want ...string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	var got []string
	for _, e := range entries {
		got = append(got, e.Name())
	}
	if err != nil || !slices.Equal(got, want) {
		t.Errorf("%s holds %v, want %v, %v", dir, got, want, err)
	}
}

// A file of any length that a program names takes no more than the disk limit.
func TestAttackSizes(t *testing.T) {
	t.Parallel()
	var m module
	iov := m.put(binary.LittleEndian.AppendUint32(make([]byte, 4), 8))
	name := m.put([]byte("f"))
	const f = 6 // the first descriptor after the mounts
	calls := []wasiCall{{"path_open", []any{5, 0, name, 1, 1, int64(2 | 64), int64(0), 0, 8}, success}}
	for _, size := range []int64{2 << 20, 1 << 40, 1 << 62, math.MaxInt64} {
		want := byte(nospc)
		if size > math.MaxInt64/4 {
			want = inval
		}
		calls = append(calls,
			wasiCall{"fd_allocate", []any{f, int64(0), size}, want},
			wasiCall{"fd_filestat_set_size", []any{f, size}, want},
			wasiCall{"fd_pwrite", []any{f, iov, 1, size, 8}, want},
		)
	}
	calls = append(calls,
		wasiCall{"fd_filestat_set_size", []any{f, int64(-1)}, inval},
		wasiCall{"fd_pwrite", []any{f, iov, 1, int64(-1), 8}, inval},
		wasiCall{"fd_seek", []any{f, int64(-1), 0, 8}, inval},
		wasiCall{"fd_seek", []any{f, int64(0), 3, 8}, inval},
		wasiCall{"fd_allocate", []any{f, int64(math.MaxInt64), int64(math.MaxInt64)}, inval},
		wasiCall{"fd_allocate", []any{f, int64(-2), int64(1)}, inval},
		wasiCall{"fd_pwrite", []any{f, iov, 1, int64(0), 8}, success},
	)
	s, _, out := mounted(t, m.calling(calls))
	checkCalls(t, s, calls)
	if info, err := os.Stat(filepath.Join(out, "f")); err != nil || info.Size() != 8 {
		t.Errorf("%v, %v", info, err)
	}
}

// repeat is a loop that ends when the code in it pushes -1.
func repeat(code ...byte) []byte {
	return slices.Concat([]byte{0x03, 0x40}, code, []byte{0x41, 0x7f, 0x47, 0x0d, 0, 0x0b}) // loop … i32.const -1 i32.ne br_if 0 end
}

const unreachable = 0x00

// endless is a loop.
var endless = []byte{0x03, 0x40, 0x0c, 0, 0x0b}

// A program that runs into a limit, or does a forbidden thing, ends with the reason for it.
func TestAttackEndings(t *testing.T) {
	t.Parallel()
	run := func(code ...byte) func(*module) []byte {
		return func(m *module) []byte { return code }
	}
	calls := func(function string, args ...any) func(*module) []byte {
		return func(m *module) []byte { return append(m.call(function, []byte{i32}, args...), 0x1a) }
	}
	exits := func(code int) func(*module) []byte {
		return func(m *module) []byte { return m.call("proc_exit", nil, code) }
	}
	const short = 300 * time.Millisecond
	for name, c := range map[string]struct {
		code   func(*module) []byte
		tables int
		locals uint32
		wall   time.Duration
		code0  int
		reason runtime.Reason
		stderr string
	}{
		"host calls without end": {code: func(m *module) []byte { return repeat(m.call("sched_yield", []byte{i32})...) },
			wall: short, code0: runtime.CodeTimeout, reason: runtime.ReasonTimeout},
		"sleep without end": {code: func(m *module) []byte {
			s := make([]byte, 48)
			binary.LittleEndian.PutUint64(s[24:], math.MaxInt64)
			return append(m.call("poll_oneoff", []byte{i32}, m.put(s), 0, 1, 64), 0x1a)
		}, wall: short, code0: runtime.CodeTimeout, reason: runtime.ReasonTimeout},
		"recursion": {code: run(0x10, 0),
			code0: runtime.CodeTrap, reason: runtime.ReasonTrap, stderr: "stack overflow"},
		"recursion with many locals": {code: run(0x10, 0), locals: 10_000,
			code0: runtime.CodeTrap, reason: runtime.ReasonTrap, stderr: "stack overflow"},
		"memory page by page": {code: run(append(repeat(0x41, 1, 0x40, 0), unreachable)...),
			code0: runtime.CodeTrap, reason: runtime.ReasonOOM, stderr: "unreachable"},
		"all memory at once": {code: func(m *module) []byte {
			return slices.Concat(repeat(append(constant(65535), 0x40, 0)...), m.call("proc_exit", nil, 7))
		}, code0: 7, reason: runtime.ReasonOOM},
		"less memory than wished": {code: run(append(constant(65535), 0x40, 0, 0x1a)...)},
		"address behind memory": {code: run(append(constant(wild), 0x28, 0, 0, 0x1a)...),
			code0: runtime.CodeTrap, reason: runtime.ReasonTrap, stderr: "out of bounds memory access"},
		"call of an empty table entry": {code: run(0x41, 0, 0x11, 0, 0), tables: 1,
			code0: runtime.CodeTrap, reason: runtime.ReasonTrap, stderr: "invalid table access"},
		"division by zero": {code: run(0x41, 1, 0x41, 0, 0x6d, 0x1a),
			code0: runtime.CodeTrap, reason: runtime.ReasonTrap, stderr: "integer divide by zero"},
		"table of 8 GiB": {code: run(append(append([]byte{0xd0, 0x70}, constant(1<<30)...), 0xfc, 0x0f, 0, 0x1a)...), tables: 1,
			code0: runtime.CodeKilled, reason: runtime.ReasonOOM},
		"events whose size wraps around": {code: calls("poll_oneoff", 0, 0, 1<<28, 0),
			code0: runtime.CodeTrap, reason: runtime.ReasonTrap, stderr: "out of range"},
		"exit code of no shell": {code: exits(256), code0: 255},
		"exit code of all bits": {code: exits(-1), code0: 255},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var m module
			for range c.tables {
				m.tables = append(m.tables, []byte{0x70, 0, 1})
			}
			m.bodies = append(m.bodies, body{locals: c.locals, code: c.code(&m)})
			s, _, _ := mounted(t, m.bytes())
			s.Limits.WallTime = c.wall
			r := newRuntime(t, time.Minute)
			h := start(t, r, s)
			if e := wait(t, r, h); e.Code != c.code0 || e.Reason != c.reason {
				t.Errorf("ended with %d, %q, want %d, %q", e.Code, e.Reason, c.code0, c.reason)
			}
			log, err := os.ReadFile(filepath.Join(h.Dir, logFile(runtime.Stderr)))
			if err != nil || !strings.Contains(string(log), c.stderr) {
				t.Errorf("stderr: %q, want %q, %v", log, c.stderr, err)
			}
			if u, err := r.Stats(t.Context(), h); err != nil || u.MemoryMiB > s.Limits.MemoryMiB {
				t.Errorf("%+v, %v", u, err)
			}
			checkGone(t, r, h)
		})
	}
}

// A module that cannot run as a program is refused before it runs, and leaves nothing.
func TestAttackModules(t *testing.T) {
	t.Parallel()
	const most = "\xff\xff\xff\xff\x0f" // 2^32 - 1
	edit := func(change func(*module)) []byte {
		var m module
		change(&m)
		m.bodies = append(m.bodies, body{})
		return m.bytes()
	}
	table := func(entries uint64) []byte { return binary.AppendUvarint([]byte{0x70, 0}, entries) }
	for name, m := range map[string][]byte{
		"unknown function of WASI": edit(func(m *module) { m.function(wasiModule, "proc_exec", nil) }),
		"function of WASI with other parameters": edit(func(m *module) {
			m.function(wasiModule, "random_get", []byte{i64}, i32)
		}),
		"function of an older WASI": edit(func(m *module) { m.function("wasi_unstable", "fd_write", nil, i32) }),
		"imported global":           edit(func(m *module) { m.foreign = [][]byte{append(append(text("env"), text("g")...), 3, i32, 0)} }),
		"imported table":            edit(func(m *module) { m.foreign = [][]byte{append(append(text("env"), text("t")...), 1, 0x70, 0, 1)} }),
		"shared memory":             edit(func(m *module) { m.memory = []byte{3, 1, 1} }),
		"memory of 64 bits":         edit(func(m *module) { m.memory = []byte{4, 1} }),
		"memory over its own limit": edit(func(m *module) { m.memory = []byte{1, 2, 1} }),
		"memory over 4 GiB":         edit(func(m *module) { m.memory = []byte{0, 0x81, 0x80, 0x04} }),
		"table over the limit":      edit(func(m *module) { m.tables = [][]byte{table(1<<27 + 1)} }),
		"tables of 64 GiB":          edit(func(m *module) { m.tables = slices.Repeat([][]byte{table(1 << 27)}, 64) }),
		"data behind memory":        edit(func(m *module) { m.data = make([]byte, page) }),
		"2^32 data segments":        edit(func(m *module) { m.after = []byte("\x0b\x05" + most) }),
		"2^32 bytes of data":        edit(func(m *module) { m.after = []byte("\x0b\x0a\x01\x00\x41\x00\x0b" + most) }),
		"2^32 functions":            []byte(header + "\x01\x04\x01\x60\x00\x00" + "\x03\x05" + most),
		"section longer than all":   []byte(header + "\x01" + most),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, _, _ := mounted(t, m)
			if _, err := newRuntime(t, time.Minute).Start(t.Context(), s); !errors.Is(err, runtime.ErrBadModule) {
				t.Errorf("%v", err)
			}
			checkNames(t, filepath.Dir(s.Dir))
		})
	}
}

// Code in a module's start section runs before Start returns. It has the same limits, and Start can be given up.
func TestAttackStartSection(t *testing.T) {
	t.Parallel()
	startsWith := func(code []byte) []byte {
		m := module{entry: true}
		m.bodies = []body{{code: code}}
		return m.bytes()
	}
	r := newRuntime(t, time.Minute)
	s, _, _ := mounted(t, startsWith(endless))
	s.Limits.WallTime = 300 * time.Millisecond
	h := start(t, r, s)
	if e := wait(t, r, h); e.Reason != runtime.ReasonTimeout {
		t.Errorf("a start section without end: %+v", e)
	}
	checkGone(t, r, h)

	s, _, _ = mounted(t, startsWith([]byte{unreachable}))
	if _, err := r.Start(t.Context(), s); !errors.Is(err, runtime.ErrBadModule) {
		t.Errorf("trap in a start section: %v", err)
	}
	checkNames(t, filepath.Dir(s.Dir))

	s, _, _ = mounted(t, startsWith(endless))
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	go func() {
		defer cancel()
		for t.Context().Err() == nil {
			if st, err := readStatus(s.Dir); err == nil && st.Phase == phaseRunning {
				return
			}
			time.Sleep(time.Millisecond)
		}
	}()
	if _, err := r.Start(ctx, s); !errors.Is(err, context.Canceled) {
		t.Errorf("a start given up: %v", err)
	}
	checkNames(t, filepath.Dir(s.Dir))
}
