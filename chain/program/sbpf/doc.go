// Package sbpf links one relocatable eBPF object, as LLVM's own BPF backend writes it, into a program that Solana
// loads.
//
// Solana's machine is not quite eBPF, and a linker that guesses makes programs that lose money. So this one accepts
// only our compiler's output. It refuses all else, by section, offset and opcode: jumps and calls through registers,
// writable data, stack beyond a frame, and syscalls that the program does not need. Above all it refuses 32-bit
// arithmetic: sBPF extends the results with the sign, eBPF with zeros. The output depends on the object alone.
//
//	object (ET_REL, EM_BPF)                 sBPF v0                          sBPF v3
//	  .text     one section                   0x00 ELF header                 0x00 ELF header
//	  .rodata*  any number                    0x40 .text                      0x40 two program headers
//	  R_BPF_64_32     calls                        .rodata                         .rodata  at address 0, from 8
//	  R_BPF_64_64     addresses in code            .dynamic .dynsym .dynstr        .text    at 1<<32
//	  R_BPF_64_ABS64  addresses in data            .rel.dyn: the syscalls
//	                                               section headers
//
// In v0 all addresses are 1<<32 plus the offset in the file, and a syscall is bound by name when the program is loaded.
// In v3 the call itself contains the murmur3 hash of the syscall's name. Sources: solana-sbpf's elf.rs and verifier.rs,
// SIMD-0178, SIMD-0189, and the Linux kernel's documentation of the BPF instruction set and of LLVM's relocations.
package sbpf
