//! Refunds a buyer's unspent money.

use crate::account::Account;
use crate::error::{Error, Result};
use crate::escrow::Escrow;
use crate::input::Input;
use crate::network::Network;
use crate::pubkey::Pubkey;
use crate::reader::Reader;
use crate::token::{self, Movement};
use crate::{math, sysvar};

/// Pays back to the refund owner. Until the deadline and the network's margin: the free amount, if the buyer signs.
/// After that: everything but fees, for any caller; claims then fail.
///
/// Accounts: escrow (writable), vault (writable), destination (writable; the associated token account of the refund owner, or if
/// that signs another of its), mint, network, token program, buyer (signs) or, after the margin, the program's own address,
/// refund owner (signs) if it does. No data.
pub fn refund(input: &Input, data: &[u8]) -> Result<()> {
    Reader::new(data).end()?;
    let ([escrow, vault, destination, mint, network, token_program, buyer], payee) = input.and_signer()?;
    let escrow = Escrow::of(escrow.must_write()?, input.program)?;
    let network = Network::at(network, &escrow.network()?, input.program)?;
    escrow.check_vault(vault.must_write()?)?;
    token_program.must_be(&Pubkey::TOKEN)?;
    let over = sysvar::clock()?.slot > math::add(escrow.deadline()?, network.margin()?)?;
    if !over {
        if buyer.key() == input.program {
            return Err(Error::Early);
        }
        buyer.must_sign()?.must_be(&escrow.buyer()?)?;
    }
    let ends = over && escrow.is_open()?;
    if ends {
        escrow.end()?;
    }
    let amount = escrow.free(vault)?;
    if amount == 0 {
        return if ends { Ok(()) } else { Err(Error::NothingDue) };
    }
    pay_back(&escrow, vault, destination, mint, amount, payee)
}

/// Pays an amount of the vault to the refund owner, which signs as the payee or is paid into its associated token account.
pub fn pay_back(
    escrow: &Escrow,
    vault: &Account,
    destination: &Account,
    mint: &Account,
    amount: u64,
    payee: Option<&Account>,
) -> Result<()> {
    if destination.must_write()?.is(vault) {
        return Err(Error::Duplicate);
    }
    let owner = escrow.refund_owner()?;
    token::check_holding(destination, mint.key(), &owner)?;
    token::check_payee(destination, mint.key(), &owner, payee)?;
    let decimals = escrow.decimals(mint)?;
    escrow.refunded(amount)?;
    let seal = escrow.seal()?;
    Movement { from: vault, mint, authority: &escrow.0, amount, decimals, signer: Some(&seal.seeds()) }.transfer(destination)
}
