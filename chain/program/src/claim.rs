//! Pays a provider.

use crate::ed25519;
use crate::error::{Error, Result};
use crate::escrow::Escrow;
use crate::input::Input;
use crate::introspect::Instructions;
use crate::network::{Network, TAG_VOUCHER};
use crate::pubkey::{same, Pubkey};
use crate::reader::Reader;
use crate::sumtree::Leaf;
use crate::token::{self, Movement};
use crate::tranche::Tranche;
use crate::{math, money, sysvar};

/// A voucher's layout: verify/PROTOCOL.md, section 2.
const VOUCHER: usize = 104;

/// Pays what is due under a voucher, less the fee, to the payout of its leaf: min(voucher, cap, rate × slots passed) less
/// what was paid before. Anybody may; it goes nowhere else.
///
/// Accounts: escrow (writable), tranche (writable), vault (writable), destination (writable; the associated token account of the
/// leaf's payout, or if that signs another of its), mint, network, token program, instructions sysvar, payout (signs) if it does. Data: number of the precompile's instruction (ed25519.rs)
/// with the voucher signed by as many voucher keys as the threshold or more, ascending, u8 ‖ leaf's index u16 ‖
/// provider[32] ‖ terms[32] (sumtree.rs) ‖ n u8 ‖ n × ( sibling[32] ‖ its sum u64 ), lowest first. The lease is the voucher's.
pub fn claim(input: &Input, data: &[u8]) -> Result<()> {
    let mut r = Reader::new(data);
    let (signatures, index, provider, terms, n) = (r.u8()?, r.u16()?, r.array()?, r.array()?, r.u8()?);
    let path = r.arrays(n.into())?;
    r.end()?;
    let ([escrow, tranche, vault, destination, mint, network, token_program, instructions], payee) = input.and_signer()?;
    let escrow = Escrow::open(escrow, input.program)?;
    let tranche = Tranche::of(tranche, &escrow, input.program)?;
    let network = Network::at(network, &escrow.network()?, input.program)?;
    escrow.check_vault(vault.must_write()?)?;
    token_program.must_be(&Pubkey::TOKEN)?;
    if destination.must_write()?.is(vault) {
        return Err(Error::Duplicate);
    }
    let decimals = escrow.decimals(mint)?;
    let payout = token::holding(destination)?;
    if payout.mint != *mint.key() {
        return Err(Error::Mint);
    }
    token::check_payee(destination, mint.key(), &payout.owner, payee)?;

    let instruction = Instructions::of(instructions)?.get(signatures.into())?;
    let (keys, voucher) = ed25519::signed_by(&instruction, &network.prefix(TAG_VOUCHER, input.program)?)?;
    escrow.check_keys(keys.iter())?;
    let (lease, cumulative) = read(voucher, escrow.0.key())?;

    let terms = Leaf { index, provider, lease, payout: &payout.owner.0, terms }.verify(path, &tranche.root()?)?;
    let state = tranche.leaf(index)?;
    let now = sysvar::clock()?.slot;
    if tranche.window_over(&state, now)? == Some(true) {
        return Err(Error::Retired);
    }
    let passed = now.clamp(terms.start, terms.end).saturating_sub(terms.start);
    let most = math::sub(terms.cap, state.freed)?.min(cumulative).min(money::owed(terms.rate, passed)?);
    let gross = most.saturating_sub(state.paid);
    if gross == 0 {
        return Err(Error::NothingDue);
    }
    let fee = money::fee(state.paid, gross, network.mint(escrow.mint_index()?)?.fee)?;
    tranche.paid(index, gross)?;
    escrow.paid(gross, fee)?;
    let seal = escrow.seal()?;
    let amount = math::sub(gross, fee)?;
    Movement { from: vault, mint, authority: &escrow.0, amount, decimals, signer: Some(&seal.seeds()) }.transfer(destination)
}

/// Lease and cumulative of a voucher for this escrow: [`Error::Voucher`].
fn read<'a>(voucher: &'a [u8; VOUCHER], escrow: &Pubkey) -> Result<(&'a [u8; 32], u64)> {
    let mut r = Reader::new(voucher);
    let (version, flags, reserved) = (r.u8()?, r.u8()?, r.array::<6>()?);
    let (lease, of, _seq, cumulative) = (r.array()?, r.array()?, r.u64()?, r.u64()?);
    if version == 1 && flags <= 1 && *reserved == [0; 6] && same(of, &escrow.0) { Ok((lease, cumulative)) } else { Err(Error::Voucher) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn vouchers() {
        let mut good = [0; VOUCHER];
        good[0] = 1;
        good[8..40].fill(2);
        good[40..72].fill(3);
        good[72..80].copy_from_slice(&u64::MAX.to_le_bytes());
        good[80..88].copy_from_slice(&77u64.to_le_bytes());
        let escrow = Pubkey([3; 32]);
        assert_eq!(read(&good, &escrow), Ok((&[2; 32], 77)));
        good[1] = 1;
        assert_eq!(read(&good, &escrow), Ok((&[2; 32], 77)), "final");
        for (at, value) in [(0, 0), (0, 2), (1, 2), (1, 0x81), (2, 1), (7, 0x80), (40, 4), (71, 2)] {
            let mut bad = good;
            bad[at] = value;
            assert_eq!(read(&bad, &escrow), Err(Error::Voucher), "{at}");
        }
    }
}
