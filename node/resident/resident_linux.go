package resident

import (
	"context"
	"fmt"
	"os"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// every is how often the pages are unmapped.
const every = time.Minute

// Run unmaps the pages of the process's own program every minute until ctx ends.
func Run(ctx context.Context) {
	t := time.NewTicker(every)
	defer t.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-t.C:
			if err := unmap(); err != nil { // it is no loss but of memory
				return
			}
		}
	}
}

// unmap unmaps the pages of the program's file that are as they are in the file: its code and its constants.
func unmap() error {
	program, err := os.Readlink("/proc/self/exe")
	if err != nil {
		return fmt.Errorf("finding the program: %w", err)
	}
	maps, err := os.ReadFile("/proc/self/smaps")
	if err != nil {
		return fmt.Errorf("reading the memory map: %w", err)
	}
	ranges, err := clean(string(maps), program)
	if err != nil {
		return fmt.Errorf("reading the memory map: %w", err)
	}
	for _, r := range ranges {
		if _, _, no := unix.Syscall(unix.SYS_MADVISE, r.start, r.end-r.start, unix.MADV_DONTNEED); no != 0 {
			return fmt.Errorf("unmapping %x-%x: %w", r.start, r.end, no)
		}
	}
	return nil
}

type addresses struct{ start, end uintptr }

// clean lists the mappings of the program's file that cannot be written and have no page that was. Pages that were
// written, as the constants of a program that may be loaded anywhere, would be lost.
func clean(smaps, program string) (out []addresses, err error) {
	var at addresses // of the program's mapping that the lines are about; zero: of another one
	for line := range strings.Lines(smaps) {
		f := strings.Fields(line)
		switch {
		case len(f) >= 5 && !strings.HasSuffix(f[0], ":"):
			// 00400000-02217000 r-xp 00000000 fe:00 9977914    /usr/bin/starling
			at = addresses{}
			if strings.HasPrefix(f[1], "r-") && strings.HasSuffix(strings.TrimSuffix(line, "\n"), " "+program) {
				if _, err := fmt.Sscanf(f[0], "%x-%x", &at.start, &at.end); err != nil {
					return nil, fmt.Errorf("line %q: %w", line, err)
				}
			}
		case at != addresses{} && len(f) == 3 && f[0] == "Anonymous:" && f[1] == "0":
			out = append(out, at)
		}
	}
	return out, nil
}
