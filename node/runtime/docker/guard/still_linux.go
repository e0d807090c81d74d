package guard

import (
	"fmt"
	"os"
	"strconv"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// stillRounds is the number of scans for processes that started meanwhile.
	stillRounds = 8
	// stillTime is the longest time that all processes are stopped, even if the peer is gone.
	stillTime = 40 * time.Second
	// settleTime bounds the time until stopped processes stand.
	settleTime = 250 * time.Millisecond
)

// still stops every process of the container but this one and gauges, until goOn.
func (g *guard) still() error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.over {
		return fmt.Errorf("the program has ended")
	}
	if g.stopped == nil {
		g.stopped = map[int]bool{}
	}
	for range stillRounds {
		entries, err := os.ReadDir("/proc")
		if err != nil {
			return err
		}
		found := false
		for _, e := range entries {
			pid, err := strconv.Atoi(e.Name())
			if err != nil || pid == os.Getpid() || g.stopped[pid] || g.attached[pid] != nil && g.attached[pid].gauge {
				continue
			}
			if s := stateOf(pid); s == 0 || s == 'T' || s == 't' || s == 'Z' || s == 'X' {
				continue // processes that the program itself stopped stay stopped
			}
			if unix.Kill(pid, unix.SIGSTOP) == nil {
				g.stopped[pid], found = true, true
			}
		}
		if !found {
			break
		}
	}
	g.settle()
	if g.waking != nil {
		g.waking.Stop()
	}
	g.waking = time.AfterFunc(stillTime, g.goOn)
	return nil
}

// settle waits until stopped processes stand: the kernel stops a process when it is next scheduled, which takes a
// moment on a busy machine. A process that sleeps in the kernel past settleTime computes nothing meanwhile. g.mu is
// held.
func (g *guard) settle() {
	end := time.Now().Add(settleTime)
	for pid := range g.stopped {
		for s := stateOf(pid); s == 'R' || s == 'S' || s == 'D'; s = stateOf(pid) {
			if time.Now().After(end) {
				return
			}
			time.Sleep(time.Millisecond)
		}
	}
}

// goOn continues the processes that still has stopped.
func (g *guard) goOn() {
	g.mu.Lock()
	defer g.mu.Unlock()
	for pid := range g.stopped {
		_ = unix.Kill(pid, unix.SIGCONT)
	}
	g.stopped = nil
	if g.waking != nil {
		g.waking.Stop()
		g.waking = nil
	}
}

// stateOf returns a process's state letter of proc(5); 0 if the process does not exist.
func stateOf(pid int) byte {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0
	}
	for i := len(b) - 1; i >= 0; i-- {
		if b[i] == ')' && i+2 < len(b) {
			return b[i+2]
		}
	}
	return 0
}
