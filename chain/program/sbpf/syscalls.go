package sbpf

import (
	"encoding/binary"
	"math/bits"
)

// trap is the function that LLVM calls in unreachable code.
const trap = "__bpf_trap"

// syscalls are the syscalls that the program may use. The list is short on purpose: its entries can move money.
var syscalls = map[string]bool{
	"abort":                        true,
	"sol_create_program_address":   true,
	"sol_get_clock_sysvar":         true,
	"sol_get_rent_sysvar":          true,
	"sol_invoke_signed_c":          true,
	"sol_log_":                     true,
	"sol_log_64_":                  true,
	"sol_memcmp_":                  true,
	"sol_memcpy_":                  true,
	"sol_memmove_":                 true,
	"sol_memset_":                  true,
	"sol_set_return_data":          true,
	"sol_sha256":                   true,
	"sol_try_find_program_address": true,
}

// syscallHash is the number of a syscall in sBPF v3: murmur3's 32-bit hash of its name, seed 0.
func syscallHash(name string) uint32 {
	b := []byte(name)
	var h uint32
	for ; len(b) >= 4; b = b[4:] {
		h = bits.RotateLeft32(h^scramble(binary.LittleEndian.Uint32(b)), 13)*5 + 0xe6546b64
	}
	var tail [4]byte
	copy(tail[:], b)
	h ^= scramble(binary.LittleEndian.Uint32(tail[:])) // of nothing: 0
	h ^= uint32(len(name))
	h = (h ^ h>>16) * 0x85ebca6b
	h = (h ^ h>>13) * 0xc2b2ae35
	return h ^ h>>16
}

func scramble(k uint32) uint32 { return bits.RotateLeft32(k*0xcc9e2d51, 15) * 0x1b873593 }
