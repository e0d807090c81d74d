package ptxsim

import (
	"fmt"
	"math/bits"
)

// maxSteps bounds the instructions of one warp.
const maxSteps = 1 << 22

// block is a block that runs.
type block struct {
	gpu    *GPU
	entry  *entry
	number int
	args   []uint64
	ctaid  lanes
	shared []cell
	phase  uint32 // one more after each barrier
}

// warp is 32 threads that run together where possible. Of threads at different places, those furthest back run next.
// Usually all are at one place, which is then not searched thread by thread.
type warp struct {
	block   *block
	first   int32 // thread
	tid     lanes
	regs    []lanes
	defined []uint32 // by register, a bit for each thread
	copies  [32]copies
	here    int     // the next instruction, unless threads have parted
	parted  bool    // threads are at different places
	pc      [32]int // where they are then
	alive   uint32
	at      int // instruction that runs, for errors
	waiting bool
	steps   int
}

// Launch runs blocks of threads of a kernel, with its arguments in order, to their end.
func (g *GPU) Launch(m *Module, kernel string, blocks, threads int, args []uint64) error {
	e := m.entries[kernel]
	switch {
	case e == nil:
		return fmt.Errorf("no kernel %q", kernel)
	case len(args) != len(e.params):
		return fmt.Errorf("%s: %d arguments, want %d", kernel, len(args), len(e.params))
	case threads < 32 || threads > e.threads || threads%32 != 0 || blocks < 1:
		return fmt.Errorf("%s: %d blocks of %d threads", kernel, blocks, threads)
	}
	for i, p := range e.params {
		if !p.wide && args[i]>>32 != 0 {
			return fmt.Errorf("%s: argument %s = %#x has more than 32 bits", kernel, p.name, args[i])
		}
	}
	g.launches++
	for n := range blocks {
		b := &block{gpu: g, entry: e, number: n, args: args, shared: make([]cell, (e.size+3)/4), phase: 1}
		for l := range b.ctaid {
			b.ctaid[l] = uint64(n)
		}
		if err := b.run(threads); err != nil {
			return fmt.Errorf("%s: block %d: %w", kernel, n, err)
		}
	}
	return nil
}

// run runs all warps to the next barrier, again and again. Their order turns around at each.
func (b *block) run(threads int) error {
	warps := make([]*warp, threads/32)
	for i := range warps {
		w := &warp{block: b, first: int32(32 * i), alive: wholeWarp,
			regs: make([]lanes, len(b.entry.kinds)), defined: make([]uint32, len(b.entry.kinds))}
		for l := range w.tid {
			w.tid[l] = uint64(32*i + l)
		}
		warps[i] = w
	}
	for {
		waiting, ended := 0, 0
		for i := range warps {
			w := warps[i]
			if b.phase%2 == 0 {
				w = warps[len(warps)-1-i]
			}
			if err := w.run(); err != nil {
				return err
			}
			if w.waiting {
				waiting++
			} else {
				ended++
			}
		}
		if waiting == 0 {
			return nil
		}
		if ended > 0 {
			return fmt.Errorf("%d warps wait at a barrier that %d never reach", waiting, ended)
		}
		for _, w := range warps {
			w.waiting = false
		}
		b.phase++
	}
}

// global is a thread's mark on global memory.
func (w *warp) global(lane int) uint64 {
	thread := uint64(w.block.number*w.block.entry.threads) + uint64(w.first) + uint64(lane)
	return w.block.gpu.launches<<32 | (thread + 1)
}

// fault is the error of the first thread of a mask, with its place.
func (w *warp) fault(mask uint32, what string) error {
	return fmt.Errorf("thread %d at %q: %s",
		int(w.first)+bits.TrailingZeros32(mask), w.block.entry.code[w.at].text, what)
}

// run runs until all threads have ended or wait at a barrier.
func (w *warp) run() error {
	for w.alive != 0 {
		mask := w.choose()
		in := &w.block.entry.code[w.at]
		if w.steps++; w.steps > maxSteps {
			return w.fault(mask, "runs without end")
		}
		on := mask
		if in.guard >= 0 {
			p, err := w.read(source{reg: in.guard}, mask)
			if err != nil {
				return err
			}
			on = 0
			for rest := mask; rest != 0; rest &= rest - 1 {
				if l := bits.TrailingZeros32(rest); (p[l] != 0) != in.not {
					on |= 1 << l
				}
			}
		}
		w.advance(in, mask, on)
		switch in.flow {
		case next:
			if on != 0 {
				if err := in.run(w, on); err != nil {
					return err
				}
			}
		case leave:
			if err := w.leave(on); err != nil {
				return err
			}
		case barrier:
			if on != wholeWarp {
				return w.fault(^on, "is not at the barrier with its warp")
			}
			w.waiting = true
			return nil
		}
	}
	return nil
}

// choose sets at to the place furthest back and gives the threads that are there.
func (w *warp) choose() uint32 {
	if !w.parted {
		w.at = w.here
		return w.alive
	}
	w.at = len(w.block.entry.code)
	var mask uint32
	for rest := w.alive; rest != 0; rest &= rest - 1 {
		l := bits.TrailingZeros32(rest)
		switch pc := w.pc[l]; {
		case pc < w.at:
			w.at, mask = pc, 1<<l
		case pc == w.at:
			mask |= 1 << l
		}
	}
	if mask == w.alive {
		w.parted, w.here = false, w.at
	}
	return mask
}

// advance moves the threads of mask to their next instruction, and those in on to the target if this is a branch.
func (w *warp) advance(in *instruction, mask, on uint32) {
	if in.flow != branch {
		on = 0
	}
	switch {
	case w.parted:
	case on == 0:
		w.here++
		return
	case on == mask:
		w.here = in.target
		return
	}
	w.parted = true
	for rest := mask; rest != 0; rest &= rest - 1 {
		l := bits.TrailingZeros32(rest)
		w.pc[l] = w.at + 1
		if on>>l&1 != 0 {
			w.pc[l] = in.target
		}
	}
}

// leave ends threads, which must have waited for their copies.
func (w *warp) leave(mask uint32) error {
	for rest := mask; rest != 0; rest &= rest - 1 {
		c := w.copies[bits.TrailingZeros32(rest)]
		for _, group := range append(c.groups, c.open) {
			if len(group) > 0 {
				return w.fault(rest, "ends during a copy")
			}
		}
	}
	w.alive &^= mask
	return nil
}
