//! A program for tests: it calls another one with what it was given, for itself or as the owner of an address of its own.
//!
//! Accounts: the program to call, then those of the call. Data: bump u8 ‖ data of the call. A bump that is not 0 is that of the address at
//! "forward", for which it signs; it signs for whoever signed for it in any case.
#![no_std]
#![allow(unexpected_cfgs)]

#[path = "../../../src/account.rs"]
pub mod account;
#[path = "../../../src/builtins.rs"]
mod builtins;
#[path = "../../../src/error.rs"]
pub mod error;
#[path = "../../../src/input.rs"]
pub mod input;
#[path = "../../../src/pubkey.rs"]
pub mod pubkey;
#[path = "../../../src/reader.rs"]
pub mod reader;
#[path = "../../../src/syscall.rs"]
#[allow(dead_code)]
pub mod syscall;
#[path = "../../../src/math.rs"]
pub mod math;

use core::mem::MaybeUninit;
use error::{Error, Result};
use input::Input;
use pubkey::Pubkey;
use reader::Reader;
use syscall::{program_address, raw, Bytes};

/// Most accounts of a call.
const MOST: usize = 20;

#[repr(C)]
struct Instruction {
    program: *const Pubkey,
    metas: *const Meta,
    metas_count: u64,
    data: *const u8,
    data_length: u64,
}

#[repr(C)]
#[derive(Clone, Copy)]
struct Meta {
    key: *const Pubkey,
    writable: bool,
    signer: bool,
}

#[repr(C)]
#[derive(Clone, Copy)]
struct Info {
    key: *const Pubkey,
    lamports: *mut u64,
    length: u64,
    data: *mut u8,
    owner: *const Pubkey,
    rent_epoch: u64,
    signer: bool,
    writable: bool,
    executable: bool,
}

#[repr(C)]
struct Seeds<'a> {
    seeds: *const Bytes<'a>,
    count: u64,
}

/// # Safety
/// `input` must be the loader's input region.
#[no_mangle]
pub unsafe extern "C" fn entrypoint(input: *mut u8) -> u64 {
    let mut accounts = input::table();
    let done = unsafe { Input::parse(input, &mut accounts) }.and_then(|input| forward(&input));
    match done {
        Ok(()) => 0,
        Err(e) => e as u64,
    }
}

fn forward(input: &Input) -> Result<()> {
    let mut r = Reader::new(input.data);
    let bump = [r.u8()?];
    let data = r.rest();
    let (target, accounts) = input.accounts.split_first().ok_or(Error::AccountCount)?;
    if accounts.len() > MOST {
        return Err(Error::TooManyAccounts);
    }
    let seeds = [Bytes::new(b"forward"), Bytes::new(&bump)];
    let own = if bump == [0] { Pubkey([0; 32]) } else { program_address(&seeds, input.program)? };
    let mut metas = [const { MaybeUninit::<Meta>::uninit() }; MOST];
    let mut infos = [const { MaybeUninit::<Info>::uninit() }; MOST];
    for ((a, meta), info) in accounts.iter().zip(metas.iter_mut()).zip(infos.iter_mut()) {
        let p = a.parts();
        let signer = a.is_signer() || (bump != [0] && *a.key() == own);
        meta.write(Meta { key: p.key, writable: a.is_writable(), signer });
        info.write(Info {
            key: p.key,
            lamports: p.lamports,
            length: p.length,
            data: p.data,
            owner: p.owner,
            rent_epoch: 0,
            signer: a.is_signer(),
            writable: a.is_writable(),
            executable: p.executable,
        });
    }
    let count = accounts.len() as u64;
    let instruction =
        Instruction { program: target.key(), metas: metas.as_ptr().cast(), metas_count: count, data: data.as_ptr(), data_length: data.len() as u64 };
    let signers = Seeds { seeds: seeds.as_ptr(), count: 2 };
    // SAFETY: as in cpi.rs; the first `count` metas and infos were written.
    let failed = unsafe {
        raw::sol_invoke_signed_c(
            (&raw const instruction).cast(),
            infos.as_ptr().cast(),
            count,
            (&raw const signers).cast(),
            (bump != [0]).into(),
        )
    };
    if failed == 0 { Ok(()) } else { Err(Error::Runtime) }
}

#[panic_handler]
fn panic(_: &core::panic::PanicInfo) -> ! {
    syscall::abort()
}
