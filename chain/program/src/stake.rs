//! Stake: what a provider loses when it is caught.
//!
//! Only stake backs what a provider sells from now on. What it asks back waits in unbonding for longer than evidence is
//! admissible, and is slashed with the rest until it is withdrawn.

use crate::error::{Error, Result};
use crate::input::Input;
use crate::math;
use crate::provider::Provider;
use crate::pubkey::Pubkey;
use crate::reader::Reader;
use crate::sysvar;
use crate::token::{self, Movement};

/// Adds to a provider's stake. Anybody may.
///
/// Accounts: authority (signs; owns the source or is its delegate), source token account (writable), provider (writable),
/// vault (writable), stake mint, token program. Data: amount u64, not 0.
#[inline(never)]
pub fn stake(input: &Input, data: &[u8]) -> Result<()> {
    let amount = amount(data)?;
    let [authority, source, account, vault, mint, token] = input.exactly()?;
    authority.must_sign()?;
    source.must_write()?;
    account.must_write()?;
    vault.must_write()?;
    token.must_be(&Pubkey::TOKEN)?;
    let provider = Provider::of(account, input.program)?;
    provider.must_keep_stake_in(vault, input.program)?;
    let after = math::add(provider.stake()?, amount)?;
    math::add(after, provider.unbonding()?)?; // what a slash adds up
    // The token program refuses a source or a mint that is not of the vault's mint.
    let decimals = token::decimals(mint)?;
    Movement { from: source, mint, authority, amount, decimals, signer: None }.transfer(vault)?;
    provider.set_stake(after)
}

/// Takes an amount out of the stake that is not bonded; it can be withdrawn after the network's unbonding slots. A second request lets the
/// whole wait anew.
///
/// Accounts: owner (signs), network, provider (writable). Data: amount u64, not 0.
#[inline(never)]
pub fn request_unstake(input: &Input, data: &[u8]) -> Result<()> {
    let amount = amount(data)?;
    let [owner, network, account] = input.exactly()?;
    let provider = Provider::of(account, input.program)?;
    provider.must_be_owned_by(owner)?;
    account.must_write()?;
    let wait = provider.network(network, input.program)?.unbonding()?;
    let left = provider.stake()?.checked_sub(amount).ok_or(Error::StakeShort)?;
    if left < provider.bonded()? {
        return Err(Error::Bonded);
    }
    provider.set_stake(left)?;
    provider.set_unbonding(math::add(provider.unbonding()?, amount)?, math::add(sysvar::clock()?.slot, wait)?)
}

/// Pays out all that is unbonding, from the slot in which it is ready.
///
/// Accounts: owner (signs), provider (writable), vault (writable), destination token account (writable; any but the vault),
/// stake mint, token program. Data: none.
#[inline(never)]
pub fn withdraw(input: &Input, data: &[u8]) -> Result<()> {
    Reader::new(data).end()?;
    let [owner, account, vault, destination, mint, token] = input.exactly()?;
    let provider = Provider::of(account, input.program)?;
    provider.must_be_owned_by(owner)?;
    account.must_write()?;
    vault.must_write()?;
    destination.must_write()?;
    token.must_be(&Pubkey::TOKEN)?;
    provider.must_keep_stake_in(vault, input.program)?;
    if destination.is(vault) {
        return Err(Error::Duplicate);
    }
    let amount = provider.unbonding()?;
    if amount == 0 {
        return Err(Error::NothingDue);
    }
    if sysvar::clock()?.slot < provider.ready()? {
        return Err(Error::Early);
    }
    provider.set_unbonding(0, 0)?;
    let signature = provider.signature()?;
    let decimals = token::decimals(mint)?;
    Movement { from: vault, mint, authority: account, amount, decimals, signer: Some(&signature.seeds()) }.transfer(destination)
}

/// An amount that is not 0, and nothing after it.
pub(crate) fn amount(data: &[u8]) -> Result<u64> {
    let mut r = Reader::new(data);
    let amount = r.u64()?;
    r.end()?;
    if amount == 0 {
        return Err(Error::Amount);
    }
    Ok(amount)
}
