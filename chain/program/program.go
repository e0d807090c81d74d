// Package program is Starling's program on Solana: its source in Rust (src), the program built from it, and its calls
// in Go. A call is a value that becomes an instruction (Call), and some instructions are parsed back (ParseCall). A
// refusal of the program is a Code.
//
// The accounts that it keeps are in the folder account; instructions, and Solana's own programs, in chain/svm.
//
// The program is built in two ways from the same source:
//
//   - With Debian's Rust and LLVM and the linker of this tree. This build is committed here, and the tests rebuild and
//     compare it byte for byte. `.ci/deps rust` unpacks the compiler into the user's cache (no root). Then
//     `go run ./chain/program/build` takes about 20 seconds the first time, for Rust's core library, and later one.
//   - With Solana's own tools: `cargo build-sbf` in this folder, which makes target/deploy/starling.so. Its bytes
//     differ: another compiler, another linker.
//
// The second way has not been run. The crate solana-cargo-build-sbf (4.0.0) only calls the compiler, which it downloads
// with the platform tools from a release page. No package of the registries (crates.io, npm, PyPI, Debian) was found to
// contain them. Instead, with cargo 1.95, these were run: `cargo check`, `cargo build --release` and `cargo test` of
// the same manifest for the host, where the syscalls are those of src/host.rs.
//
// `cargo test` runs the tests of the parts that need no chain. Tests of the whole run on two engines
// (testnet/programtest).
//
// Folders: account has the accounts. sbpf is the linker, toolchain runs the compiler, and build is the command. model
// has the effect of each call in Go, and modeltest makes random sequences of calls. idl writes the interface for other
// clients. testdata/probe is a program that tests the runtime features of the real one.
//
// Layouts, calls and errors are in PROTOCOL.md; possible attacks and their defences in THREATS.md.
package program

import _ "embed"

// ELF is the program, in sBPF v0, which every cluster runs.
//
//go:embed starling.so
var ELF []byte

// Instructions by the first byte of their data.
const (
	tagInitNetwork byte = iota
	tagSetAuthority
	tagInitPool
	tagOpenEscrow
	tagAddTranche
	tagAddStandbyTranche
	tagTopUp
	tagClaim
	tagRetire
	tagRefund
	tagSweep
	tagCloseTranche
	tagCloseEscrow
	tagRegister
	tagUpdate
	_ // retired
	tagStake
	tagRequestUnstake
	tagWithdraw
	tagAttest
	tagCloseAttested
	tagSlash
	tagAnchor
	tagProve
	tagCloseAnchor
	tagDrawPool
	tagInitEmission
	tagBond
	tagRelease
	tagPropose
	tagVote
	tagCloseVote
	tagEnact
	tagCloseBallot
	tagAccept
	tagClaimReward
	tagClosePayout
	tagState
	tagCloseStated
	tagSlashAudit
)
