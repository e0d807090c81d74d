//! The verifiers' pool: a share of every fee, drawn by the network's authority for work that the program cannot check yet.

use crate::error::{Error, Result};
use crate::input::Input;
use crate::network::{self, Network};
use crate::provider::Provider;
use crate::pubkey::Pubkey;
use crate::stake::amount;
use crate::token::{self, Movement};

/// Pays a provider out of a pool: only into the associated token account of its payout wallet, and only while it has the network's
/// least stake.
///
/// Accounts: authority (signs), network, pool vault (writable), mint, provider, destination token account (writable), token
/// program. Data: amount u64, not 0.
#[inline(never)]
pub fn draw_pool(input: &Input, data: &[u8]) -> Result<()> {
    let amount = amount(data)?;
    let [authority, network_account, pool, mint, account, destination, token] = input.exactly()?;
    let network = Network::of(network_account, input.program)?;
    if authority.key().is_zero() || *authority.key() != network.authority()? {
        return Err(Error::Authority);
    }
    authority.must_sign()?;
    pool.must_write()?;
    destination.must_write()?;
    token.must_be(&Pubkey::TOKEN)?;
    pool.must_be(&network::pool(network_account.key(), mint.key(), input.program)?.0)?;
    let provider = Provider::of(account, input.program)?;
    provider.network(network_account, input.program)?;
    if provider.stake()? < network.min_stake()? {
        return Err(Error::MinStake);
    }
    let payout = provider.payout()?;
    if token::holding(destination)?.owner != payout {
        return Err(Error::TokenOwner);
    }
    token::check_payee(destination, mint.key(), &payout, None)?;
    let decimals = token::decimals(mint)?;
    let seal = network.seal()?;
    Movement { from: pool, mint, authority: network_account, amount, decimals, signer: Some(&seal.seeds()) }.transfer(destination)
}
