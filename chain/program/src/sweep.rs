//! Splits the collected fees.

use crate::account::Account;
use crate::error::{Error, Result};
use crate::escrow::Escrow;
use crate::input::Input;
use crate::money::{split, There};
use crate::network::{self, Network};
use crate::pubkey::Pubkey;
use crate::reader::Reader;
use crate::token::{self, Movement};

/// Splits an escrow's fees between the verifiers' pool, the treasury and the referrer as the network says; the rest burns,
/// with the shares of those that there are not: no treasury or referrer is named, nobody has authority over the pool or votes on
/// what it pays.
/// Anybody may.
///
/// Accounts: escrow (writable), vault (writable), mint (writable), network, token program, pool (network.rs), treasury's
/// token account, referrer's token account; each of these three writable, or the program's own address when there is
/// none. No data.
pub fn sweep(input: &Input, data: &[u8]) -> Result<()> {
    Reader::new(data).end()?;
    let [escrow, vault, mint, network, token_program, pool, treasury, referrer] = input.exactly()?;
    let escrow = Escrow::of(escrow.must_write()?, input.program)?;
    let network_key = escrow.network()?;
    let network = Network::at(network, &network_key, input.program)?;
    escrow.check_vault(vault.must_write()?)?;
    mint.must_write()?;
    token_program.must_be(&Pubkey::TOKEN)?;
    let decimals = escrow.decimals(mint)?;
    let fees = escrow.fee()?;
    if fees == 0 {
        return Err(Error::NothingDue);
    }

    let none = input.program;
    let pool_is_paid = !network.authority()?.is_zero() || network.has_votes()?;
    let there = There { pool: pool_is_paid, treasury: !network.treasury()?.is_zero(), referrer: !escrow.referrer()?.is_zero() };
    if there.pool {
        pool.must_write()?.must_be(&network::pool(&network_key, mint.key(), input.program)?.0)?;
        token::check_holding(pool, mint.key(), &network_key)?;
    } else {
        pool.must_be(none)?;
    }
    let check = |account: &Account, there: bool, owner: &Pubkey| {
        if !there {
            account.must_be(none)?;
            return Ok(());
        }
        if account.must_write()?.is(vault) {
            return Err(Error::Duplicate);
        }
        token::check_holding(account, mint.key(), owner)
    };
    check(treasury, there.treasury, &network.treasury()?)?;
    check(referrer, there.referrer, &escrow.referrer()?)?;

    let shares = split(escrow.swept()?, fees, &network.mint(escrow.mint_index()?)?, &there)?;
    escrow.fees_swept()?;
    let seal = escrow.seal()?;
    let seeds = seal.seeds();
    let movement = |amount| Movement { from: vault, mint, authority: &escrow.0, amount, decimals, signer: Some(&seeds) };
    for (amount, to) in [(shares.pool, pool), (shares.treasury, treasury), (shares.referrer, referrer)] {
        if amount > 0 {
            movement(amount).transfer(to)?;
        }
    }
    movement(shares.burn).burn()
}
