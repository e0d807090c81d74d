//! Bonds: stake that votes.
//!
//! A provider bonds part of its stake, as a verifier. What is bonded is still stake, and slashed with it, but cannot be asked
//! back until it is released, and not released while a vote runs that it took part in. The network's account has the sum of
//! all bonds. A ballot notes the sum when it is opened, and takes votes only of bonds that were not raised since: so the votes
//! of all providers together are never more than the sum that was noted, wherever stake moves meanwhile.

use crate::error::{Error, Result};
use crate::input::Input;
use crate::math;
use crate::provider::Provider;
use crate::stake::amount;
use crate::sysvar;

/// Bonds an amount more of a provider's stake; in all at least the network's least stake.
///
/// Accounts: owner (signs), network (writable), provider (writable). Data: amount u64, not 0.
#[inline(never)]
pub fn bond(input: &Input, data: &[u8]) -> Result<()> {
    let amount = amount(data)?;
    let [owner, network, account] = input.exactly()?;
    let provider = Provider::of(account, input.program)?;
    provider.must_be_owned_by(owner)?;
    account.must_write()?;
    let network = provider.network(network.must_write()?, input.program)?;
    network.voting()?;
    let after = math::add(provider.bonded()?, amount)?;
    if after > provider.stake()? {
        return Err(Error::StakeShort);
    }
    if after < network.min_stake()? {
        return Err(Error::MinStake);
    }
    network.set_bonded(math::add(network.bonded()?, amount)?)?;
    provider.set_bonded(after)?;
    provider.set_raised(sysvar::clock()?.slot)
}

/// Releases an amount of the bond, which becomes plain stake.
///
/// Accounts: owner (signs), network (writable), provider (writable). Data: amount u64, not 0.
#[inline(never)]
pub fn release(input: &Input, data: &[u8]) -> Result<()> {
    let amount = amount(data)?;
    let [owner, network, account] = input.exactly()?;
    let provider = Provider::of(account, input.program)?;
    provider.must_be_owned_by(owner)?;
    account.must_write()?;
    let network = provider.network(network.must_write()?, input.program)?;
    let left = provider.bonded()?.checked_sub(amount).ok_or(Error::NotBonded)?;
    if sysvar::clock()?.slot <= provider.frozen()? {
        return Err(Error::Frozen);
    }
    network.set_bonded(math::sub(network.bonded()?, amount)?)?;
    provider.set_bonded(left)
}
