// Package ptxsim runs PTX text on no GPU, for tests: it parses the output of ../ptx, executes grids of blocks by the
// PTX ISA's meaning of each instruction, and refuses errors that a GPU would ignore silently.
//
//	Parse ──▶ Module ──▶ GPU.Launch: block after block, each of warps of 32 threads that run until they wait at a
//	                                 barrier
//
// It is strict where hardware is not. An opcode that is not in its list, an operand of another size than the
// instruction's, a register, a word of shared memory or a word of global memory that is read before anything was
// written there, an address outside an allocation or off its alignment, mma or ldmatrix or bar.sync by a part of a
// warp, a copy that nobody waited for, a word of shared memory that two threads touch between two barriers, one of them
// writing, and a word of global memory that one thread writes and another reads or writes in one launch: each is an
// error that names the instruction and the thread.
//
// It models neither time nor caches, and memory in one order only; a global read before another thread's write is not
// found. A program that runs here is right by the letter of the ISA, as read here. That is not a proof that hardware
// and its compiler agree.
//
// Source: PTX ISA 8.x, §9.7 (instructions), §9.7.14 (fragments of mma.m16n8k32 and ldmatrix).
package ptxsim
