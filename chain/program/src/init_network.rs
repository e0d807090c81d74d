//! Creates a network.

use crate::error::{Error, Result};
use crate::input::Input;
use crate::network::{self, Network};
use crate::pubkey::Pubkey;
use crate::system::New;
use crate::token;

/// Creates a permanent network of given parameters. Permissionless; the address commits to the parameters.
///
/// Accounts: payer (signs, writable), network (writable; its address is in network.rs), system program, stake mint, then
/// the parameters' mints in their order. Data: params (network.rs).
pub fn init_network(input: &Input, params: &[u8]) -> Result<()> {
    let [payer, account, system, stake_mint, mints @ ..] = input.accounts else {
        return Err(Error::AccountCount);
    };
    payer.must_sign()?.must_write()?;
    account.must_write()?;
    let (seal, address) = network::seal(params, input.program)?;
    account.must_be(&address)?;
    let space = network::space(params)?;
    New { payer, account, system, space, program: input.program, seeds: &seal.seeds() }.create()?;
    account.write(0, &network::KIND)?;
    account.write(2, &seal.bump())?;
    account.copy(network::HEAD, params)?;

    let network = Network::of(account, input.program)?;
    network.check()?;
    network.begin()?;
    network.set_authority(&network.first_authority()?)?;
    stake_mint.must_be(&network.stake_mint()?)?;
    burnable(stake_mint.key())?;
    token::decimals(stake_mint)?;
    if mints.len() != usize::from(network.mints()?) {
        return Err(Error::AccountCount);
    }
    for (i, mint) in mints.iter().enumerate() {
        let terms = network.mint(i as u8)?;
        mint.must_be(&terms.mint)?;
        burnable(mint.key())?;
        if token::decimals(mint)? != terms.decimals {
            return Err(Error::Mint);
        }
    }
    Ok(())
}

fn burnable(mint: &Pubkey) -> Result<()> {
    if *mint == Pubkey::NATIVE_MINT {
        return Err(Error::Mint);
    }
    Ok(())
}
