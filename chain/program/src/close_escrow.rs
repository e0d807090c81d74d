//! Ends an escrow.

use crate::error::{Error, Result};
use crate::escrow::{Escrow, OPENING};
use crate::input::Input;
use crate::pubkey::Pubkey;
use crate::reader::Reader;
use crate::refund::pay_back;
use crate::{math, sysvar, token};

/// Ends an escrow of which nothing is outstanding, whose fees are swept and tranches closed; what is in the vault goes to
/// the refund owner, the rent back. Before the deadline only if the buyer signs, after that, and once it was refunded,
/// anybody may; and never within 150 slots of the slot in its address.
///
/// Accounts: escrow (writable), vault (writable), destination (writable; as in Refund, or when the vault is empty anything), mint,
/// token program, rent payer (writable), buyer (signs) or, when the buyer need not sign, the program's own address, refund owner
/// (signs) if it does. No data.
pub fn close_escrow(input: &Input, data: &[u8]) -> Result<()> {
    Reader::new(data).end()?;
    let ([escrow, vault, destination, mint, token_program, rent_payer, buyer], payee) = input.and_signer()?;
    let escrow = Escrow::of(escrow.must_write()?, input.program)?;
    escrow.check_vault(vault.must_write()?)?;
    token_program.must_be(&Pubkey::TOKEN)?;
    rent_payer.must_write()?.must_be(&escrow.rent_payer()?)?;
    let now = sysvar::clock()?.slot;
    if now <= math::add(escrow.opened()?, OPENING)? {
        return Err(Error::Early);
    }
    if escrow.is_open()? && now <= escrow.deadline()? {
        if buyer.key() == input.program {
            return Err(Error::Early);
        }
        buyer.must_sign()?.must_be(&escrow.buyer()?)?;
    }
    if escrow.outstanding()? > 0 || escrow.tranches_closed()? != escrow.tranches()? {
        return Err(Error::Outstanding);
    }
    if escrow.fee()? > 0 {
        return Err(Error::Fees);
    }
    let left = escrow.free(vault)?;
    if left > 0 {
        pay_back(&escrow, vault, destination, mint, left, payee)?;
    }
    let seal = escrow.seal()?;
    token::close(vault, rent_payer, &escrow.0, Some(&seal.seeds()))?;
    escrow.0.close(rent_payer)
}
