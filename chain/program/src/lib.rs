//! Starling's program on Solana: no heap, no dependency, no panic that input can reach.
//!
//! One instruction is one byte that names it, then its fixed layout (all integers little-endian), then nothing. Each
//! instruction stands in a file of its own with its accounts and bytes; below them is what they share:
//!
//! | file | what it is |
//! | --- | --- |
//! | input | what the loader hands over, without copying |
//! | account, pubkey, reader | views of it, bounds checked |
//! | network, rules, escrow, tranche | views of the accounts that instructions share, with their layouts |
//! | error | one number for everything that can be refused |
//! | math, money, emission, merkle, sumtree, product, keyset | pure, tested on the host |
//! | syscall | the runtime's functions, made safe; `host` stands in for it in tests |
//! | cpi, system, token | calls to other programs |
//! | sysvar, introspect, ed25519 | clock and rent; the transaction's other instructions; signatures they checked |
//!
//! `unsafe` is confined to input, account, reader, syscall, cpi, sysvar, builtins and the entry point below.
//!
//! What the build refuses, by name: multiplying words that may overflow, also `checked_mul` ("__multi3": use math), 128 bits,
//! floating point, statics that can be written, calls through pointers (`dyn`, `fn`), more than 4,096 bytes of stack in a
//! function, syscalls that sbpf/syscalls.go does not list. Functions that take more than five words or return more than
//! one are inlined wherever they are called: give a struct instead when that makes the program large.
#![cfg_attr(any(target_os = "solana", target_arch = "bpf"), no_std)]
#![allow(unexpected_cfgs)] // rustc without cargo does not know the system "solana"
#![deny(unsafe_op_in_unsafe_fn)]
#![cfg_attr(not(test), deny(clippy::arithmetic_side_effects))]

pub mod account;
pub mod add_standby_tranche;
pub mod add_tranche;
pub mod anchor;
pub mod attest;
pub mod ballot;
pub mod bond;
pub mod claim;
pub mod close_escrow;
pub mod close_tranche;
pub mod cpi;
pub mod ed25519;
pub mod emission;
pub mod error;
pub mod escrow;
pub mod init_network;
pub mod init_pool;
pub mod input;
pub mod introspect;
pub mod keyset;
pub mod math;
pub mod merkle;
pub mod money;
pub mod network;
pub mod open_escrow;
pub mod pool;
pub mod product;
pub mod provider;
pub mod pubkey;
pub mod reader;
pub mod refund;
pub mod retire;
pub mod rewards;
pub mod rules;
pub mod set_authority;
pub mod slash;
pub mod slash_audit;
pub mod stake;
pub mod stated;
pub mod sumtree;
pub mod sweep;
pub mod syscall;
pub mod system;
pub mod sysvar;
pub mod token;
pub mod top_up;
pub mod tranche;

#[cfg(target_arch = "bpf")]
mod builtins;
#[cfg(not(any(target_os = "solana", target_arch = "bpf")))]
mod host;

use error::{Error, Result};
use input::Input;

/// Names of the instructions: the first byte of their data. A number is never given a second meaning; 15 is retired.
pub mod instruction {
    pub const INIT_NETWORK: u8 = 0;
    pub const SET_AUTHORITY: u8 = 1;
    pub const INIT_POOL: u8 = 2;
    pub const OPEN_ESCROW: u8 = 3;
    pub const ADD_TRANCHE: u8 = 4;
    pub const ADD_STANDBY_TRANCHE: u8 = 5;
    pub const TOP_UP: u8 = 6;
    pub const CLAIM: u8 = 7;
    pub const RETIRE: u8 = 8;
    pub const REFUND: u8 = 9;
    pub const SWEEP: u8 = 10;
    pub const CLOSE_TRANCHE: u8 = 11;
    pub const CLOSE_ESCROW: u8 = 12;
    pub const REGISTER: u8 = 13;
    pub const UPDATE: u8 = 14;
    pub const STAKE: u8 = 16;
    pub const REQUEST_UNSTAKE: u8 = 17;
    pub const WITHDRAW: u8 = 18;
    pub const ATTEST: u8 = 19;
    pub const CLOSE_ATTESTED: u8 = 20;
    pub const SLASH: u8 = 21;
    pub const ANCHOR: u8 = 22;
    pub const PROVE: u8 = 23;
    pub const CLOSE_ANCHOR: u8 = 24;
    pub const DRAW_POOL: u8 = 25;
    pub const INIT_EMISSION: u8 = 26;
    pub const BOND: u8 = 27;
    pub const RELEASE: u8 = 28;
    pub const PROPOSE: u8 = 29;
    pub const VOTE: u8 = 30;
    pub const CLOSE_VOTE: u8 = 31;
    pub const ENACT: u8 = 32;
    pub const CLOSE_BALLOT: u8 = 33;
    pub const ACCEPT: u8 = 34;
    pub const CLAIM_REWARD: u8 = 35;
    pub const CLOSE_PAYOUT: u8 = 36;
    pub const STATE: u8 = 37;
    pub const CLOSE_STATED: u8 = 38;
    pub const SLASH_AUDIT: u8 = 39;
}

/// Kinds of accounts: the first byte of their data. The second is their layout's version.
pub mod kind {
    pub const ANCHOR: u8 = 1;
    pub const NETWORK: u8 = 2;
    pub const ESCROW: u8 = 3;
    pub const TRANCHE: u8 = 4;
    pub const PROVIDER: u8 = 5;
    pub const ATTESTED: u8 = 6;
    pub const BALLOT: u8 = 7;
    pub const VOTE: u8 = 8;
    pub const PAYOUT: u8 = 9;
    pub const STATED: u8 = 10;
}

/// Runs one instruction. Each is kept out of line, with a stack frame of its own: all in one would not fit.
pub fn process(input: &Input) -> Result<()> {
    let (name, data) = input.data.split_first().ok_or(Error::Data)?;
    match *name {
        instruction::INIT_NETWORK => init_network::init_network(input, data),
        instruction::SET_AUTHORITY => set_authority::set_authority(input, data),
        instruction::INIT_POOL => init_pool::init_pool(input, data),
        instruction::OPEN_ESCROW => open_escrow::open_escrow(input, data),
        instruction::ADD_TRANCHE => add_tranche::add_tranche(input, data),
        instruction::ADD_STANDBY_TRANCHE => add_standby_tranche::add_standby_tranche(input, data),
        instruction::TOP_UP => top_up::top_up(input, data),
        instruction::CLAIM => claim::claim(input, data),
        instruction::RETIRE => retire::retire(input, data),
        instruction::REFUND => refund::refund(input, data),
        instruction::SWEEP => sweep::sweep(input, data),
        instruction::CLOSE_TRANCHE => close_tranche::close_tranche(input, data),
        instruction::CLOSE_ESCROW => close_escrow::close_escrow(input, data),
        instruction::REGISTER => provider::register(input, data),
        instruction::UPDATE => provider::update(input, data),
        instruction::STAKE => stake::stake(input, data),
        instruction::REQUEST_UNSTAKE => stake::request_unstake(input, data),
        instruction::WITHDRAW => stake::withdraw(input, data),
        instruction::ATTEST => attest::attest(input, data),
        instruction::CLOSE_ATTESTED => attest::close_attested(input, data),
        instruction::SLASH => slash::slash(input, data),
        instruction::ANCHOR => anchor::anchor(input, data),
        instruction::PROVE => anchor::prove(input, data),
        instruction::CLOSE_ANCHOR => anchor::close_anchor(input, data),
        instruction::DRAW_POOL => pool::draw_pool(input, data),
        instruction::INIT_EMISSION => rewards::init_emission(input, data),
        instruction::BOND => bond::bond(input, data),
        instruction::RELEASE => bond::release(input, data),
        instruction::PROPOSE => ballot::propose(input, data),
        instruction::VOTE => ballot::vote(input, data),
        instruction::CLOSE_VOTE => ballot::close_vote(input, data),
        instruction::ENACT => ballot::enact(input, data),
        instruction::CLOSE_BALLOT => ballot::close_ballot(input, data),
        instruction::ACCEPT => rewards::accept(input, data),
        instruction::CLAIM_REWARD => rewards::claim_reward(input, data),
        instruction::CLOSE_PAYOUT => rewards::close_payout(input, data),
        instruction::STATE => stated::state(input, data),
        instruction::CLOSE_STATED => stated::close_stated(input, data),
        instruction::SLASH_AUDIT => slash_audit::slash_audit(input, data),
        _ => Err(Error::Instruction),
    }
}

/// Whom to tell of a weakness, where explorers look for it: between two marks in the program's bytes, names and values with a zero after each
/// (https://github.com/neodyme-labs/solana-security-txt).
#[cfg(any(target_os = "solana", target_arch = "bpf"))]
#[used]
#[no_mangle]
pub static SECURITY_TXT: [u8; 429] = *b"=======BEGIN SECURITY.TXT V1=======\0\
name\0Starling\0\
project_url\0https://github.com/starling-network/starling\0\
contacts\0link:https://github.com/starling-network/starling/security/advisories/new\0\
policy\0https://github.com/starling-network/starling/blob/main/chain/program/THREATS.md\0\
preferred_languages\0en\0\
source_code\0https://github.com/starling-network/starling/tree/main/chain/program\0\
auditors\0None\0\
=======END SECURITY.TXT V1=======\0";

/// What the loader calls. 0 is success, anything else the [`Error`]'s number, which undoes the transaction.
///
/// # Safety
/// `input` must be the loader's input region.
#[cfg(any(target_os = "solana", target_arch = "bpf"))]
#[no_mangle]
pub unsafe extern "C" fn entrypoint(input: *mut u8) -> u64 {
    let mut accounts = input::table();
    // SAFETY: the loader wrote it and gives it to nobody else while the program runs.
    let done = unsafe { Input::parse(input, &mut accounts) }.and_then(|input| process(&input));
    match done {
        Ok(()) => 0,
        Err(e) => e as u64,
    }
}

/// There are no panics that input can reach; one would end the transaction.
#[cfg(any(target_os = "solana", target_arch = "bpf"))]
#[panic_handler]
fn panic(_: &core::panic::PanicInfo) -> ! {
    syscall::abort()
}
