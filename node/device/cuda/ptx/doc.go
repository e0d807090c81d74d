// Package ptx writes the kernels that answer a challenge (verify/challenge) as text of NVIDIA's virtual instruction
// set, which the driver on the machine compiles for its GPU. No CUDA compiler and no C is needed.
//
//	rows   ChaCha8 lines of A or B          one thread makes one block of 64 bytes
//	gemm   C = A·Bᵀ, int8 by int8 in int32  256 threads make 128 × 128 entries: with mma on compute capability 8.0 and
//	                                        later, with dp4a on 6.1 and later
//	tiles  SHA-256 trees of tiles           128 threads make the hashes of four tiles
//	fill   cells of a dataset               one thread makes one cell
//	walk   walkers over a dataset           one thread walks one walker
//	groups hashes of walkers' ends          one thread hashes those of 64 walkers
//
// All kernels take one-dimensional grids and only the shared memory that they declare. A and B are lines of K bytes
// without gaps; C is rows of 128·columns int32. Lines and entries beyond a challenge's shape are computed too, and
// omitted by tiles: gemm thus needs no case for shapes that are no multiple of its blocks.
//
// Source: PTX ISA 8.x for the instructions and the layouts of mma and ldmatrix; tests run this text in ../ptxsim, which
// implements the instructions.
package ptx
