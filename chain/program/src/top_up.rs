//! Puts more into an escrow.

use crate::error::{Error, Result};
use crate::escrow::Escrow;
use crate::input::Input;
use crate::pubkey::Pubkey;
use crate::reader::Reader;
use crate::token::Movement;

/// Adds to the deposit of an open escrow. Anybody may.
///
/// Accounts: escrow (writable), vault (writable), source (writable; a token account), its owner or delegate (signs), mint,
/// token program. Data: amount u64, not 0.
pub fn top_up(input: &Input, data: &[u8]) -> Result<()> {
    let mut r = Reader::new(data);
    let amount = r.u64()?;
    r.end()?;
    let [escrow, vault, source, authority, mint, token_program] = input.exactly()?;
    let escrow = Escrow::open(escrow, input.program)?;
    authority.must_sign()?;
    source.must_write()?;
    token_program.must_be(&Pubkey::TOKEN)?;
    escrow.check_vault(vault.must_write()?)?;
    if source.is(vault) {
        return Err(Error::Duplicate);
    }
    if amount == 0 {
        return Err(Error::Amount);
    }
    let decimals = escrow.decimals(mint)?;
    Movement { from: source, mint, authority, amount, decimals, signer: None }.transfer(vault)?;
    escrow.deposited(amount)
}
