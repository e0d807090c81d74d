//! Calls to other programs.

use core::marker::PhantomData;

use crate::account::Account;
use crate::error::{Error, Result};
use crate::pubkey::Pubkey;
use crate::syscall::{raw, Bytes};

/// What the callee may do with an account.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Role {
    Read,
    Write,
    Sign,
    WriteSign,
}

/// Seeds with their bump, for which the program signs.
pub type Seeds<'a> = &'a [Bytes<'a>];

#[repr(C)]
struct Instruction {
    program: *const Pubkey,
    metas: *const Meta,
    metas_count: u64,
    data: *const u8,
    data_length: u64,
}

#[repr(C)]
struct Meta {
    key: *const Pubkey,
    writable: bool,
    signer: bool,
}

#[repr(C)]
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
struct SignerSeeds<'a> {
    seeds: *const Bytes<'a>,
    count: u64,
    life: PhantomData<Seeds<'a>>,
}

/// Calls a program. It returns only if the callee succeeded: a failure ends the whole transaction with the callee's error.
/// Afterwards the accounts show what the callee did.
pub fn invoke<const N: usize>(program: &Pubkey, accounts: [(&Account, Role); N], data: &[u8], signer: Option<Seeds>) -> Result<()> {
    let metas = accounts.map(|(a, role)| Meta {
        key: a.key(),
        writable: matches!(role, Role::Write | Role::WriteSign),
        signer: matches!(role, Role::Sign | Role::WriteSign),
    });
    let infos = accounts.map(|(a, _)| {
        let p = a.parts();
        Info {
            key: p.key,
            lamports: p.lamports,
            length: p.length,
            data: p.data,
            owner: p.owner,
            rent_epoch: 0,
            signer: a.is_signer(),
            writable: a.is_writable(),
            executable: p.executable,
        }
    });
    let instruction = Instruction {
        program,
        metas: metas.as_ptr(),
        metas_count: N as u64,
        data: data.as_ptr(),
        data_length: data.len() as u64,
    };
    let seeds = signer.unwrap_or(&[]);
    let signers = [SignerSeeds { seeds: seeds.as_ptr(), count: seeds.len() as u64, life: PhantomData }];
    // SAFETY: the structures are the runtime's C layout and live through the call; the accounts' parts are the input's own,
    // to which no reference is held (see account).
    let failed = unsafe {
        raw::sol_invoke_signed_c(
            (&raw const instruction).cast(),
            infos.as_ptr().cast(),
            N as u64,
            signers.as_ptr().cast(),
            signer.is_some().into(),
        )
    };
    match failed {
        0 => Ok(()),
        _ => Err(Error::Runtime),
    }
}
