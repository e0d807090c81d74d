package peercmd

import (
	"runtime"
	"runtime/metrics"
	"testing"
)

// What a burst left is given back at the second look, for the first sees that there was work; then there is nothing to give. It is not
// parallel: the heap is everybody's.
func TestMemoryIsGivenBack(t *testing.T) {
	m := newMemory()
	m.look()
	burst := make([][]byte, 256)
	for i := range burst {
		burst[i] = make([]byte, 1<<18)
	}
	runtime.GC()
	runtime.KeepAlive(burst)
	burst = nil
	if m.look() {
		t.Fatal("gave back while there was work")
	}
	runtime.GC()
	m.look()
	before, gave, rested := kept(), false, false
	for range 100 { // another's garbage may be collected at any time
		gives := m.look()
		rested = rested || gave && !gives
		gave = gave || gives
	}
	if !gave || kept() > before-32<<20 {
		t.Errorf("gave back: %v; %d bytes were kept, now %d", gave, before, kept())
	}
	if !rested {
		t.Error("gave back what it had not, at every look")
	}
}

// kept is what the heap has of the system.
func kept() uint64 {
	s := []metrics.Sample{{Name: "/memory/classes/heap/objects:bytes"}, {Name: "/memory/classes/heap/free:bytes"}}
	metrics.Read(s)
	return s[0].Value.Uint64() + s[1].Value.Uint64()
}
