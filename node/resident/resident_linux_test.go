package resident

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
)

// mapped returns how much of files this process has mapped and resident, in KiB.
func mapped(t *testing.T) (kib int) {
	t.Helper()
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(status)) {
		if _, err := fmt.Sscanf(line, "RssFile: %d kB", &kib); err == nil {
			return kib
		}
	}
	t.Skip("the kernel does not say how much of files is resident")
	return 0
}

// The program loses what it does not use, and goes on.
func TestUnmap(t *testing.T) {
	before := mapped(t)
	if err := unmap(); err != nil {
		t.Fatal(err)
	}
	if after := mapped(t); after >= before {
		t.Errorf("%d KiB of files are resident, %d before", after, before)
	}
	text := fmt.Sprintf("%08.3f %q %v", 3.14159, "on", map[string]int{"b": 2, "a": 1})
	if text != `0003.142 "on" map[a:1 b:2]` {
		t.Errorf("after it, a text is %s", text)
	}
}

// What is or was written stays, and so does what is another file's.
func TestClean(t *testing.T) {
	const smaps = `00400000-02217000 r-xp 00000000 fe:00 9977914                            /opt/a b/starling
Rss:               25948 kB
Anonymous:             0 kB
02217000-04517000 r--p 01e17000 fe:00 9977914                            /opt/a b/starling
Anonymous:             4 kB
04517000-04669000 rw-p 04117000 fe:00 9977914                            /opt/a b/starling
Anonymous:             0 kB
04669000-066d0000 rw-p 00000000 00:00 0 
Anonymous:             0 kB
7fdc644c0000-7fdc645c0000 r--p 00000000 fe:00 12                         /opt/other/a b/starling.so
Anonymous:             0 kB
VmFlags: rd mr mw me sd
7fdc64500000-7fdc64600000 r--s 00000000 fe:00 13                         /opt/a b/starling
Anonymous:             0 kB
`
	got, err := clean(smaps, "/opt/a b/starling")
	want := []addresses{{0x400000, 0x2217000}, {0x7fdc64500000, 0x7fdc64600000}}
	if err != nil || !slices.Equal(got, want) {
		t.Errorf("%x, %v, want %x", got, err, want)
	}
	if got, err := clean("zz-yy r-xp 0 0 0 /p\n", "/p"); err == nil {
		t.Errorf("a line that is no mapping gives %x", got)
	}
}
