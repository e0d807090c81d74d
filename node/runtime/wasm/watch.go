//go:build unix

package wasm

import (
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"time"

	"github.com/starling-network/starling/node/runtime"
	"github.com/starling-network/starling/node/runtime/wasm/process"
	"golang.org/x/sys/unix"
)

const (
	// usageInterval is the interval of the child's usage reports, for a peer that cannot read it from the kernel.
	usageInterval = 10 * time.Second
	// wallTimeSlack is how long after the wall-time limit the kernel kills a child that has not ended itself.
	wallTimeSlack = 3 * time.Second
	// wakeInterval is how often a paused child is woken to see whether its peer is still there: it runs for less than a
	// millisecond.
	wakeInterval = time.Second
)

// watchOwner ends the child when its peer's process is gone and no other has taken its place within the grace. The
// watchers allocate almost nothing: the collector is off.
func (c *child) watchOwner() {
	poll := min(max(c.spec.Grace/20, time.Millisecond), 250*time.Millisecond)
	for {
		if err := process.AwaitFree(c.owner); err != nil {
			c.end(runtime.Exit{Code: runtime.CodeLost, Reason: runtime.ReasonLost})
		}
		for deadline := time.Now().Add(c.spec.Grace); ; time.Sleep(poll) {
			if adopted, err := process.Held(c.owner); adopted && err == nil {
				break
			}
			if time.Now().After(deadline) {
				fmt.Fprintln(os.Stderr, "the peer is gone and did not return within", c.spec.Grace)
				c.end(runtime.Exit{Code: runtime.CodeLost, Reason: runtime.ReasonLost})
			}
		}
	}
}

// watchSignals ends the child when its peer kills it.
func (c *child) watchSignals() {
	signals := make(chan os.Signal, 1) // one is enough: the first ends the process
	signal.Notify(signals, unix.SIGTERM)
	<-signals
	c.end(runtime.Exit{Code: runtime.CodeKilled, Reason: runtime.ReasonKilled})
}

// watchPause stops the child when its peer has paused it and woken it, and again after other wake-ups, mostly by its
// own timer. If the peer has ended, the child continues, and watchOwner handles the rest.
func (c *child) watchPause(woken <-chan os.Signal) {
	for range woken {
		if _, err := os.Stat(filepath.Join(c.dir, pausedFile)); err != nil {
			continue
		}
		if owned, err := process.Held(c.owner); err != nil || !owned {
			continue
		}
		if err := c.stopper.Stop(wakeInterval); err != nil {
			fmt.Fprintln(os.Stderr, err)
		}
	}
}

func (c *child) watchWallTime() {
	_ = process.KillAfter(c.limits.WallTime + wallTimeSlack) // a second line, where the system has it
	time.Sleep(c.limits.WallTime)
	c.end(runtime.Exit{Code: runtime.CodeTimeout, Reason: runtime.ReasonTimeout})
}

func (c *child) watchUsage() {
	for {
		time.Sleep(usageInterval)
		c.mu.Lock()
		_ = c.save(runtime.Exit{}) // the next one may fit on the disk again
		c.mu.Unlock()
	}
}

// limitTo limits the process to its share of a core, where it can.
func (c *child) limitTo(milliCPU uint32) {
	if milliCPU > 0 && milliCPU < 1000 && process.CanWake {
		go c.limitCPU(float64(milliCPU) / 1000)
	}
}

// limitCPU stops the process whenever it is ahead of its share of one core. Looking every slice bounds how far ahead it
// can be; unused share is not saved up.
func (c *child) limitCPU(share float64) {
	const slice = 10 * time.Millisecond
	start, base := time.Now(), process.CPUTime()
	for {
		time.Sleep(slice)
		now, used := time.Now(), process.CPUTime()
		ahead := used - base - time.Duration(float64(now.Sub(start))*share)
		switch {
		case ahead <= 0:
			start, base = now, used
		case ahead > slice/4:
			c.mu.Lock() // not while the status is being written: Stop would find the process slow
			err := c.stopper.Stop(time.Duration(float64(ahead) / share))
			c.mu.Unlock()
			if err != nil {
				fmt.Fprintln(os.Stderr, err)
				return
			}
		}
	}
}
