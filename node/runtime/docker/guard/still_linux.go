package guard

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// stillTime is the longest time that all processes are stopped, even if the peer is gone.
	stillTime = 40 * time.Second
	// settleTime bounds the time until stopped processes stand.
	settleTime = 250 * time.Millisecond
	// checkPause is the time between two checks that stopped processes stand. It grows to checkShare times as long as a
	// check takes, up to checkPauseMax.
	checkPause    = 10 * time.Millisecond
	checkPauseMax = 100 * time.Millisecond
	checkShare    = 50
	// maxResumed is how many times a stopped process may run again during a stillness, and how many processes may
	// begin in it; maxTicks is how long each thread of a stopped process may compute in user mode, in ticks of 10 ms:
	// a thread of an honest program stops when the kernel next looks at it. Others are killed.
	maxResumed = 4
	maxTicks   = 5
	// stopReads is how often the state of a process is read after it was stopped again. It may stand for a moment only.
	stopReads = 10
)

// stillness is a time during which every process of the container but the guard and gauges is stopped. The kernel
// resumes a process by SIGCONT when a terminal hangs up, and as often as a program arranges it, for example at each
// packet of a connection (F_SETSIG). All uses hold the guard's mu.
type stillness struct {
	attached map[int]*attached // the guard's
	before   map[int]bool      // processes that the program itself had stopped: they stay stopped
	stops    map[int]*stopped  // by process
	begun    int               // processes that evaded the stillness by their late start
	waking   *time.Timer       // ends the stillness after stillTime
	over     chan struct{}
}

// stopped is a process that was stopped for a stillness.
type stopped struct {
	ticks   uint64 // its time in user mode when it was stopped
	stands  bool   // since the last time that it was seen to run
	resumed int    // times that it was seen to run after it stood
}

// still stops every process of the container but this one and gauges, until goOn.
func (g *guard) still() error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.over {
		return errors.New("the program has ended")
	}
	if g.stillness == nil {
		s, err := newStillness(g.attached)
		if err != nil {
			return err
		}
		s.waking = time.AfterFunc(stillTime, func() { g.endStillness(s) })
		g.stillness = s
		go g.keepStill(s)
	}
	g.stillness.waking.Reset(stillTime)
	g.stillness.settle()
	g.stillness.freeGauges()
	return nil
}

// goOn ends the stillness, if there is one.
func (g *guard) goOn() {
	g.mu.Lock()
	s := g.stillness
	g.mu.Unlock()
	if s != nil {
		g.endStillness(s)
	}
}

// endStillness continues the processes that s has stopped, unless it is over.
func (g *guard) endStillness(s *stillness) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.stillness == s {
		g.stillness = nil
		s.end()
	}
}

// keepStill checks a stillness until its end.
func (g *guard) keepStill(s *stillness) {
	for pause := checkPause; ; {
		select {
		case <-s.over:
			return
		case <-time.After(pause):
		}
		g.mu.Lock()
		began := time.Now()
		if g.stillness == s {
			s.check()
		}
		g.mu.Unlock()
		pause = min(max(checkPause, checkShare*time.Since(began)), checkPauseMax)
	}
}

// newStillness stops all processes at once: a program that starts others without end would be ahead of a list. A gauge
// does not compute yet, and is stopped for a moment.
func newStillness(attached map[int]*attached) (*stillness, error) {
	s := &stillness{attached: attached, before: map[int]bool{}, stops: map[int]*stopped{}, over: make(chan struct{})}
	err := s.each(func(pid int) {
		if state := stateOf(pid); state == 'T' || state == 't' {
			s.before[pid] = true
		}
	})
	if err != nil {
		return nil, err
	}
	_ = unix.Kill(-1, unix.SIGSTOP)
	for pid, a := range attached {
		if a.gauge {
			_ = unix.Kill(pid, unix.SIGCONT)
		}
	}
	if err := s.each(func(pid int) { s.stops[pid] = &stopped{ticks: userTicks(pid)} }); err != nil {
		_ = unix.Kill(-1, unix.SIGCONT)
		return nil, err
	}
	return s, nil
}

// each calls f with every process of the container but this one and gauges.
func (s *stillness) each(f func(pid int)) error {
	return eachNumber("/proc", func(pid int) {
		if a := s.attached[pid]; pid != os.Getpid() && (a == nil || !a.gauge) {
			f(pid)
		}
	})
}

// settle waits until stopped processes stand: the kernel stops a process when it is next scheduled, which takes a
// moment on a busy machine. A process that sleeps in the kernel past settleTime computes nothing meanwhile.
func (s *stillness) settle() {
	for end := time.Now().Add(settleTime); s.check() && time.Now().Before(end); {
		time.Sleep(time.Millisecond)
	}
}

// check stops processes that run during the stillness, and reports whether there were any.
func (s *stillness) check() (running bool) {
	_ = s.each(func(pid int) {
		switch stateOf(pid) {
		case 'T', 't', 'Z':
			if p := s.stops[pid]; p != nil {
				p.stands = true
			}
		case 'D': // also of a process that a thawed container has not continued yet
			running = true
		case 'R':
			running = true
			s.stop(pid)
		}
	})
	return running
}

// begin stops a process that the guard has started during the stillness.
func (s *stillness) begin(pid int) {
	s.stops[pid] = &stopped{ticks: userTicks(pid)}
	_ = unix.Kill(pid, unix.SIGSTOP)
}

// stop stops a process that runs during the stillness, or kills it if it has evaded the stillness too often.
func (s *stillness) stop(pid int) {
	p := s.stops[pid]
	switch {
	case p == nil && stopPends(pid): // fork(2) was under way when all were stopped: it stops before it runs
		p = &stopped{ticks: userTicks(pid)}
	case p == nil:
		s.begun++
		p = &stopped{resumed: s.begun}
	case p.stands:
		p.stands = false
		p.resumed++
	}
	s.stops[pid] = p
	delete(s.before, pid)
	if p.resumed > maxResumed || userTicks(pid) > p.ticks+maxTicks*threadsOf(pid) {
		_ = unix.Kill(pid, unix.SIGKILL)
		return
	}
	_ = unix.Kill(pid, unix.SIGSTOP)
	for range stopReads {
		if state := stateOf(pid); state == 'T' || state == 't' {
			p.stands = true
			return
		}
	}
}

// freeGauges lets gauges run on every processor. The program may have bound them, or the guard that started them, to
// one.
func (s *stillness) freeGauges() {
	var all unix.CPUSet
	all.Fill()
	for pid, a := range s.attached {
		if a.gauge {
			_ = eachNumber(fmt.Sprintf("/proc/%d/task", pid), func(thread int) {
				_ = unix.SchedSetaffinity(thread, &all)
			})
		}
	}
}

// end continues the processes that were stopped.
func (s *stillness) end() {
	s.waking.Stop()
	close(s.over)
	err := s.each(func(pid int) {
		if !s.before[pid] {
			_ = unix.Kill(pid, unix.SIGCONT)
		}
	})
	if err != nil {
		_ = unix.Kill(-1, unix.SIGCONT)
	}
}

// eachNumber calls f with the names in a directory that are numbers.
func eachNumber(dir string, f func(n int)) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer d.Close()
	names, err := d.Readdirnames(-1)
	for _, name := range names {
		if n, err := strconv.Atoi(name); err == nil {
			f(n)
		}
	}
	return err
}

// stateOf returns the state of a process: R if one of its threads runs or sleeps, or else D if one cannot be
// interrupted, or else T or t if one is stopped, or else Z; 0 if the process does not exist. The state that the kernel
// gives for a process is that of its first thread, which may have ended before others.
func stateOf(pid int) (state byte) {
	_ = eachNumber(fmt.Sprintf("/proc/%d/task", pid), func(thread int) {
		b, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/stat", pid, thread))
		if err == nil {
			state = livelier(state, threadState(b))
		}
	})
	return state
}

// stopPends reports whether SIGSTOP is sent to a process and has not stopped it yet.
func stopPends(pid int) bool {
	b, _ := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	return stopIn(b)
}

// stopIn reports whether SIGSTOP is among a process's pending signals in a status file of proc(5).
func stopIn(status []byte) bool {
	for line := range bytes.Lines(status) {
		if set, ok := bytes.CutPrefix(line, []byte("ShdPnd:")); ok {
			n, err := strconv.ParseUint(string(bytes.TrimSpace(set)), 16, 64)
			return err == nil && n&(1<<(unix.SIGSTOP-1)) != 0
		}
	}
	return false
}

// threadsOf returns the number of a process's threads, or 1 if it is not known.
func threadsOf(pid int) (n uint64) {
	_ = eachNumber(fmt.Sprintf("/proc/%d/task", pid), func(int) { n++ })
	return max(n, 1)
}

// userTicks returns the time that the threads of a process have computed in user mode.
func userTicks(pid int) uint64 {
	b, _ := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	return ticksIn(b)
}

// ticksIn returns the time in user mode in a stat file of proc(5); 0 if it has none.
func ticksIn(stat []byte) uint64 {
	f := statFields(stat)
	if len(f) < 12 {
		return 0
	}
	n, _ := strconv.ParseUint(f[11], 10, 64)
	return n
}

// threadState returns the state in a stat file of proc(5) as one of R, D, T, t and Z; 0 if it has none.
func threadState(stat []byte) byte {
	f := statFields(stat)
	if len(f) == 0 {
		return 0
	}
	switch f[0] {
	case "R", "S", "I":
		return 'R'
	case "T", "t":
		return f[0][0]
	case "Z", "X", "x":
		return 'Z'
	}
	return 'D' // or parked, or waking: states of moments
}

// statFields returns the fields of a stat file of proc(5) that follow on the program's name, which may contain any
// characters: the state is the first.
func statFields(stat []byte) []string {
	i := bytes.LastIndexByte(stat, ')')
	if i < 0 {
		return nil
	}
	return strings.Fields(string(stat[i+1:]))
}

// livelier returns the state of a process with threads in these two.
func livelier(a, b byte) byte {
	const order = "RDTtZ"
	for _, state := range []byte(order) {
		if a == state || b == state {
			return state
		}
	}
	return 0
}
