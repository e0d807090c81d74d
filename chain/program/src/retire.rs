//! Frees the unneeded part of a lease's money.

use crate::ed25519;
use crate::error::{Error, Result};
use crate::escrow::Escrow;
use crate::input::Input;
use crate::introspect::Instructions;
use crate::network::{Network, TAG_RECEIPT};
use crate::pubkey::same;
use crate::reader::Reader;
use crate::sumtree::Leaf;
use crate::tranche::Tranche;
use crate::{math, sysvar};

const BEGIN: u8 = 0;
const FINISH: u8 = 1;
const FINAL: u8 = 2;

/// A receipt's layout: verify/PROTOCOL.md, section 3.
const RECEIPT: usize = 256;
const IS_FINAL: u8 = 1;

/// Retires a leaf, in one of three modes, given by the first byte of the data.
pub fn retire(input: &Input, data: &[u8]) -> Result<()> {
    let (mode, data) = data.split_first().ok_or(Error::Data)?;
    match *mode {
        BEGIN => begin(input, data),
        FINISH => finish(input, data),
        FINAL => with_final_receipt(input, data),
        _ => Err(Error::Data),
    }
}

/// Mode 0. Begins to retire: its provider has the network's response slots left to claim.
///
/// Accounts: escrow (writable), tranche (writable), network, then the buyer (signs), or voucher keys (each signs),
/// ascending, as many as the threshold or more. Data: 0 u8 ‖ leaf's index u16.
fn begin(input: &Input, data: &[u8]) -> Result<()> {
    let mut r = Reader::new(data);
    let index = r.u16()?;
    r.end()?;
    let [escrow, tranche, network, signers @ ..] = input.accounts else {
        return Err(Error::AccountCount);
    };
    let escrow = Escrow::open(escrow, input.program)?;
    let tranche = Tranche::of(tranche, &escrow, input.program)?;
    let network = Network::at(network, &escrow.network()?, input.program)?;
    match signers {
        [buyer] if *buyer.key() == escrow.buyer()? => {
            buyer.must_sign()?;
        }
        keys => escrow.check_signers(keys)?,
    }
    if tranche.leaf(index)?.window != 0 {
        return Err(Error::Retired);
    }
    let last = math::add(sysvar::clock()?.slot, network.response()?)?;
    let window = math::sub(last, tranche.opened()?)?.max(1);
    tranche.set_window(index, u32::try_from(window).map_err(|_| Error::Overflow)?)
}

/// Mode 1. Frees the unclaimed rest after the window. Permissionless.
///
/// Accounts: escrow (writable), tranche (writable). Data: 1 u8 ‖ leaf's index u16 ‖ provider[32] ‖ lease[32] ‖ payout[32] ‖
/// terms[32] ‖ n u8 ‖ n × ( sibling[32] ‖ its sum u64 ), as in claim.
fn finish(input: &Input, data: &[u8]) -> Result<()> {
    let mut r = Reader::new(data);
    let (index, provider, lease, payout) = (r.u16()?, r.array()?, r.array()?, r.array()?);
    let (terms, n) = (r.array()?, r.u8()?);
    let path = r.arrays(n.into())?;
    r.end()?;
    let [escrow, tranche] = input.exactly()?;
    let escrow = Escrow::open(escrow, input.program)?;
    let tranche = Tranche::of(tranche, &escrow, input.program)?;
    let cap = Leaf { index, provider, lease, payout, terms }.verify(path, &tranche.root()?)?.cap;
    let state = tranche.leaf(index)?;
    if tranche.window_over(&state, sysvar::clock()?.slot)? != Some(true) {
        return Err(Error::Early);
    }
    free(&escrow, &tranche, index, state.left(cap)?)
}

/// Mode 2. Frees at once what the provider gave up: everything beyond the cumulative of its final receipt. Anybody may; the
/// provider's signature alone counts.
///
/// Accounts: escrow (writable), tranche (writable), network, instructions sysvar. Data: 2 u8 ‖ number of the precompile's
/// instruction (ed25519.rs) with the final receipt signed by its provider u8 ‖ leaf's index u16 ‖ payout[32] ‖ terms[32] ‖
/// n u8 ‖ n × ( sibling[32] ‖ its sum u64 ), as in claim. Lease and provider are the receipt's.
fn with_final_receipt(input: &Input, data: &[u8]) -> Result<()> {
    let mut r = Reader::new(data);
    let (signature, index, payout, terms, n) = (r.u8()?, r.u16()?, r.array()?, r.array()?, r.u8()?);
    let path = r.arrays(n.into())?;
    r.end()?;
    let [escrow, tranche, network, instructions] = input.exactly()?;
    let escrow = Escrow::open(escrow, input.program)?;
    let tranche = Tranche::of(tranche, &escrow, input.program)?;
    let network = Network::at(network, &escrow.network()?, input.program)?;
    let instruction = Instructions::of(instructions)?.get(signature.into())?;
    let (keys, receipt) = ed25519::signed_by(&instruction, &network.prefix(TAG_RECEIPT, input.program)?)?;
    let (lease, provider, cumulative) = read(receipt)?;
    match keys {
        [key] if same(&key.0, provider) => {}
        _ => return Err(Error::Threshold),
    }
    let cap = Leaf { index, provider, lease, payout, terms }.verify(path, &tranche.root()?)?.cap;
    let state = tranche.leaf(index)?;
    // Of what is left it still gets what the receipt says beyond what was paid.
    let kept = cumulative.saturating_sub(state.paid);
    free(&escrow, &tranche, index, state.left(cap)?.saturating_sub(kept))
}

fn free(escrow: &Escrow, tranche: &Tranche, index: u16, amount: u64) -> Result<()> {
    if amount == 0 {
        return Err(Error::NothingDue);
    }
    tranche.freed(index, amount)?;
    escrow.freed(amount)
}

/// Lease, provider and cumulative of a final receipt: [`Error::Receipt`].
fn read(receipt: &[u8; RECEIPT]) -> Result<(&[u8; 32], &[u8; 32], u64)> {
    let mut r = Reader::new(receipt);
    if (r.u8()?, r.u8()?) != (1, IS_FINAL) {
        return Err(Error::Receipt);
    }
    r.bytes(6)?;
    let lease = r.array()?;
    r.bytes(40)?;
    let provider = r.array()?;
    r.bytes(104)?;
    Ok((lease, provider, r.u64()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn final_receipts() {
        let mut good = [0xee; RECEIPT];
        good[..2].copy_from_slice(&[1, 1]);
        good[8..40].fill(2);
        good[80..112].fill(3);
        good[216..224].copy_from_slice(&77u64.to_le_bytes());
        assert_eq!(read(&good), Ok((&[2; 32], &[3; 32], 77)));
        for (at, value) in [(0, 0), (0, 2), (1, 0), (1, 2), (1, 3)] {
            let mut bad = good;
            bad[at] = value;
            assert_eq!(read(&bad), Err(Error::Receipt));
        }
    }
}
