// Package disk holds the writable mounts of executions to their limits of bytes and files. It has the volumes of this
// machine (package volume), which the kernel holds to their size, and elsewhere measures directories while a program
// runs and when it has ended.
//
//	Hold ──▶ a volume: the kernel refuses more; Full at the end
//	     └─▶ directories: Growth.Watch until they are over the limit; Over at the end; NearlyFull of their disk
//
// It needs the engine's process, to see whether the engine sees a volume. It ends no program: its caller does.
package disk
