//! The runtime's functions, made safe.

use crate::error::{Error, Result};
use crate::pubkey::Pubkey;
use core::marker::PhantomData;

/// A slice as the runtime takes it: address and length.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Bytes<'a> {
    address: *const u8,
    length: u64,
    life: PhantomData<&'a [u8]>,
}

impl<'a> Bytes<'a> {
    pub const fn new(b: &'a [u8]) -> Self {
        Bytes { address: b.as_ptr(), length: b.len() as u64, life: PhantomData }
    }

    #[cfg(not(any(target_os = "solana", target_arch = "bpf")))]
    pub fn get(&self) -> &'a [u8] {
        unsafe { core::slice::from_raw_parts(self.address, self.length as usize) }
    }
}

#[cfg(any(target_os = "solana", target_arch = "bpf"))]
pub(crate) mod raw {
    extern "C" {
        pub fn abort() -> !;
        pub fn sol_log_(text: *const u8, length: u64);
        pub fn sol_log_64_(a: u64, b: u64, c: u64, d: u64, e: u64);
        pub fn sol_memmove_(to: *mut u8, from: *const u8, n: u64);
        pub fn sol_memset_(to: *mut u8, byte: u8, n: u64);
        pub fn sol_sha256(slices: *const u8, count: u64, hash: *mut u8) -> u64;
        pub fn sol_create_program_address(seeds: *const u8, count: u64, program: *const u8, address: *mut u8) -> u64;
        pub fn sol_try_find_program_address(seeds: *const u8, count: u64, program: *const u8, address: *mut u8, bump: *mut u8) -> u64;
        pub fn sol_invoke_signed_c(instruction: *const u8, accounts: *const u8, count: u64, seeds: *const u8, signers: u64) -> u64;
        pub fn sol_get_clock_sysvar(clock: *mut u8) -> u64;
        pub fn sol_get_rent_sysvar(rent: *mut u8) -> u64;
        pub fn sol_set_return_data(data: *const u8, length: u64);
    }
}
#[cfg(not(any(target_os = "solana", target_arch = "bpf")))]
pub(crate) use crate::host as raw;

// SAFETY of the calls below: each pointer is to a live value of at least the size that the runtime reads or writes there.

/// Ends the transaction.
pub fn abort() -> ! {
    unsafe { raw::abort() }
}

/// Writes a line to the transaction's log.
pub fn log(text: &str) {
    unsafe { raw::sol_log_(text.as_ptr(), text.len() as u64) }
}

/// Writes five numbers to the transaction's log.
pub fn log_numbers(n: [u64; 5]) {
    unsafe { raw::sol_log_64_(n[0], n[1], n[2], n[3], n[4]) }
}

/// SHA-256 over the slices one after the other.
pub fn sha256<const N: usize>(slices: &[Bytes; N]) -> [u8; 32] {
    let mut hash = [0; 32];
    // It fails only for more slices than 20,000.
    unsafe { raw::sol_sha256(slices.as_ptr().cast(), N as u64, hash.as_mut_ptr()) };
    hash
}

/// The address of these seeds, the last of which is the bump: [`Error::Address`] when it lies on the curve.
pub fn program_address<const N: usize>(seeds: &[Bytes; N], program: &Pubkey) -> Result<Pubkey> {
    let mut address = Pubkey([0; 32]);
    match unsafe { raw::sol_create_program_address(seeds.as_ptr().cast(), N as u64, program.0.as_ptr(), address.0.as_mut_ptr()) } {
        0 => Ok(address),
        _ => Err(Error::Address),
    }
}

/// The canonical address of these seeds and its bump. 1,500 CU for each bump tried.
pub fn find_program_address<const N: usize>(seeds: &[Bytes; N], program: &Pubkey) -> Result<(Pubkey, u8)> {
    let mut address = Pubkey([0; 32]);
    let mut bump = 0;
    let failed = unsafe {
        raw::sol_try_find_program_address(seeds.as_ptr().cast(), N as u64, program.0.as_ptr(), address.0.as_mut_ptr(), &mut bump)
    };
    match failed {
        0 => Ok((address, bump)),
        _ => Err(Error::Address),
    }
}

/// What a program that called this one reads after it.
pub fn set_return_data(data: &[u8]) {
    unsafe { raw::sol_set_return_data(data.as_ptr(), data.len() as u64) }
}
