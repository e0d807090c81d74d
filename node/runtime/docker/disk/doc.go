// Package disk enforces the limits of executions on bytes and files in writable mounts. It uses volumes (package
// volume), whose size the kernel enforces. Without volumes it measures directories while a program runs and after its
// end.
//
//	Hold ──▶ a volume: the kernel refuses more; Full at the end
//	     └─▶ directories: Growth.Watch until they exceed the limit; Over at the end; NearlyFull of their disk
//
// It needs the engine's process to check whether the engine sees a volume. Its caller ends programs.
package disk
