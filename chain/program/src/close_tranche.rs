//! Ends a tranche.

use crate::error::{Error, Result};
use crate::escrow::Escrow;
use crate::input::Input;
use crate::reader::Reader;
use crate::tranche::Tranche;

/// Closes a tranche without outstanding money, or of a refunded escrow, and returns its rent. Permissionless.
///
/// Accounts: escrow (writable), tranche (writable), rent payer of the tranche (writable). No data.
pub fn close_tranche(input: &Input, data: &[u8]) -> Result<()> {
    Reader::new(data).end()?;
    let [escrow, tranche, rent_payer] = input.exactly()?;
    let escrow = Escrow::of(escrow.must_write()?, input.program)?;
    let tranche = Tranche::of(tranche, &escrow, input.program)?;
    rent_payer.must_write()?.must_be(&tranche.rent_payer()?)?;
    if escrow.is_open()? && tranche.outstanding()? > 0 {
        return Err(Error::Outstanding);
    }
    escrow.tranche_closed()?;
    tranche.0.close(rent_payer)
}
