//! The system program: making accounts.

use crate::account::Account;
use crate::cpi::{invoke, Role, Seeds};
use crate::error::{Error, Result};
use crate::pubkey::Pubkey;
use crate::sysvar;

const CREATE: u8 = 0;
const ASSIGN: u8 = 1;
const TRANSFER: u8 = 2;
const ALLOCATE: u8 = 8;

/// An account to be made: rent-exempt, of `space` zero bytes, in the name of `program`, at the address that the program
/// signs for with `seeds`. The caller has checked that the address is that of the seeds.
pub struct New<'a, 'b> {
    pub payer: &'b Account<'a>,
    pub account: &'b Account<'a>,
    pub system: &'b Account<'a>,
    pub space: u64,
    pub program: &'b Pubkey,
    pub seeds: Seeds<'b>,
}

impl New<'_, '_> {
    /// Makes it: [`Error::Exists`] when the address is taken.
    ///
    /// Anybody may send lamports to an address before it is used, and create_account refuses one that has any; so then
    /// only what is missing is paid, and space and owner are set one by one.
    pub fn create(&self) -> Result<()> {
        let &New { payer, account, system, space, program, seeds } = self;
        system.must_be(&Pubkey::SYSTEM)?;
        if account.owner() != Pubkey::SYSTEM || !account.is_empty() {
            return Err(Error::Exists);
        }
        let rent = sysvar::rent_exempt(space)?;
        let held = account.lamports();
        if held == 0 {
            let mut data = [0; 52];
            data[0] = CREATE;
            data[4..12].copy_from_slice(&rent.to_le_bytes());
            data[12..20].copy_from_slice(&space.to_le_bytes());
            data[20..52].copy_from_slice(&program.0);
            return invoke(&Pubkey::SYSTEM, [(payer, Role::WriteSign), (account, Role::WriteSign)], &data, Some(seeds));
        }
        if held < rent {
            transfer(payer, account, rent.saturating_sub(held))?;
        }
        let mut allocate = [0; 12];
        allocate[0] = ALLOCATE;
        allocate[4..].copy_from_slice(&space.to_le_bytes());
        invoke(&Pubkey::SYSTEM, [(account, Role::WriteSign)], &allocate, Some(seeds))?;
        let mut assign = [0; 36];
        assign[0] = ASSIGN;
        assign[4..].copy_from_slice(&program.0);
        invoke(&Pubkey::SYSTEM, [(account, Role::WriteSign)], &assign, Some(seeds))
    }
}

/// Moves lamports from a wallet that signed.
pub fn transfer(from: &Account, to: &Account, lamports: u64) -> Result<()> {
    let mut data = [0; 12];
    data[0] = TRANSFER;
    data[4..].copy_from_slice(&lamports.to_le_bytes());
    invoke(&Pubkey::SYSTEM, [(from, Role::WriteSign), (to, Role::Write)], &data, None)
}
