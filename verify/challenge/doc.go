// Package challenge implements the challenges by which hardware proves its speed and memory, and the check of the
// answers.
//
// It has two halves. The product tests arithmetic: T matrix products of random int8 matrices, exact in int32. Every
// architecture gives the same answer, and cheaper arithmetic gives none. The walk tests memory: chains of reads in a
// dataset that takes far longer to create than to read. Each read determines the place of the next.
//
//	seed ──ChaCha8──▶ rows of A_t, columns of B_t ──▶ C_t = A_t·B_t ──▶ tiles ──▶ Merkle root          t = 0 … T−1
//	                                                                              │ only then
//	root ‖ late nonces ──▶ which entries to open ──▶ 32 values and a path each ◀──┘
//
// The prover hashes all it computed and sends one root. The entries to open are drawn from randomness that did not
// exist before the root, so an answer in which a share f of the entries is right passes k openings with probability
// f^k. The verifier computes the opened entries itself, 2·K bytes of generator and K multiplications for each, for any
// T.
//
// # Rows
//
// Row i of A_t and column j of B_t are K bytes, read as int8, of the ChaCha keystream with 8 rounds: blocks of 64 bytes
// of
//
//	words 0–3    "expand 32-byte k"
//	words 4–11   key: SHA-256( "starling/product/v1" ‖ seed[32] ), little-endian
//	words 12–13  block counter u64, from 0
//	word  14     2·t for A, 2·t + 1 for B
//	word  15     i or j
//
// so any row costs O(K), and rows are algebraically independent. (A generator of s+i+j makes Hankel matrices with
// products in O(n²); it was deployed elsewhere.)
//
// # Commitment
//
// C_t is cut into tiles of 64 × 64, row by row of tiles; a tile into rows; a row of a tile into two leaves of 32
// values, int32 little-endian, 128 bytes. Leaves in that order, products one after the other, are the leaves of one
// market/merkle tree. 128 leaves make a tile; its top is a node of that tree. A prover keeps 32 bytes of each tile and
// recomputes opened tiles.
//
// # Dataset and walk
//
// Cell j of a dataset is 32 bytes: the first half of the last of w ChaCha8 blocks, each keyed by the first half of the
// block before and placed by its third quarter; the first has key SHA-256( "starling/dataset/v1" ‖ seed[32] ) and
// counter j. Walker i of a walk starts at state
//
//	s = mix( first 8 bytes of SHA-256( "starling/walk/v1" ‖ walk seed[32] ) ⊕ i·0x9e3779b97f4a7c15, {1, 2, 3, 4} )
//
// and L times reads a cell and mixes it in. The dataset has n = ⌈cells / 2³¹⌉ stretches, number j of them from cell
// ⌊j·cells / n⌋ on; step k goes in stretch ⌊k·n / L⌋ and reads, of its c cells, number ⌊s·c / 2⁶⁴⌋. So all walkers are
// in the same 64 GiB at a time, and each passes through all stretches. Final states, u64 little-endian, 64 to a leaf,
// are under a market/merkle root. Cells are read and never written, so one dataset serves many walks; a second identity
// on one device needs a second dataset.
//
// Sources: the matrix challenges of ni-compute and Prime Intellect, with their weaknesses fixed; Freivalds, on checks
// that are cheaper than the computation. ../PROTOCOL.md has soundness numbers and vectors.
package challenge
