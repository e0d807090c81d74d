//! Opens a tranche for the buyer.

use crate::error::Result;
use crate::escrow::Escrow;
use crate::input::Input;
use crate::reader::Reader;
use crate::sumtree::Root;
use crate::sysvar;
use crate::tranche::{Opening, BUYER};

/// Sets a part of an escrow's free money aside for leases.
///
/// Accounts: payer (signs, writable), buyer (signs), escrow (writable), vault, tranche (writable; its address is in
/// tranche.rs), system program. Data: index u16, the escrow's next ‖ root[32] ‖ sum u64 ‖ count u16.
pub fn add_tranche(input: &Input, data: &[u8]) -> Result<()> {
    let mut r = Reader::new(data);
    let index = r.u16()?;
    let root = Root { hash: *r.array()?, sum: r.u64()?, count: r.u16()? };
    r.end()?;
    let [payer, buyer, escrow, vault, account, system] = input.exactly()?;
    let escrow = Escrow::open(escrow, input.program)?;
    buyer.must_sign()?.must_be(&escrow.buyer()?)?;
    let now = sysvar::clock()?.slot;
    Opening { payer, escrow, vault, account, system, by: BUYER, index, root, now }.open(input.program)
}
