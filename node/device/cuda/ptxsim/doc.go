// Package ptxsim runs PTX text without a GPU, for tests: it parses the output of ../ptx, executes grids of blocks as
// the PTX ISA defines, and reports errors that a GPU would silently ignore.
//
//	Parse ──▶ Module ──▶ GPU.Launch: block after block, each of warps of 32 threads that run until they wait at a
//	                                 barrier
//
// It is stricter than hardware. Each of the following is an error that names the instruction and the thread:
//
//   - an opcode that is not in its list, or an operand of another size than the instruction's
//   - a read of a register, or of a word of shared or global memory, that is unwritten
//   - an address outside an allocation, or not aligned
//   - mma, ldmatrix or bar.sync by a part of a warp
//   - a copy without a wait
//   - a word of shared memory that two threads access between two barriers, at least one of them writing
//   - a word of global memory that one thread writes and another reads or writes in one launch
//
// It models neither time nor caches, and only one memory order; a global read before another thread's write is not
// detected. A program that runs here conforms to this reading of the ISA. That is no proof that hardware and its
// compiler agree.
//
// Source: PTX ISA 8.x, §9.7 (instructions), §9.7.14 (fragments of mma.m16n8k32 and ldmatrix).
package ptxsim
