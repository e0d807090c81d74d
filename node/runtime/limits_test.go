package runtime

import "testing"

// TestAttackManyProcesses: a container may have no more processes than leave most of its memory free.
func TestAttackManyProcesses(t *testing.T) {
	t.Parallel()
	for memory, want := range map[uint32]uint32{
		0: 1024, 64: 128, 512: 1024, 2048: DefaultPids, 1 << 20: DefaultPids, 1<<32 - 1: DefaultPids,
	} {
		if got := (Limits{MemoryMiB: memory}).WithDefaults().Pids; got != want {
			t.Errorf("%d processes in %d MiB, want %d", got, memory, want)
		}
	}
	if got := (Limits{MemoryMiB: 64, Pids: 5000}).WithDefaults().Pids; got != 5000 {
		t.Errorf("%d processes, want those that were asked for", got)
	}
}
