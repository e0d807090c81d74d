//! Opens an escrow.

use crate::error::{Error, Result};
use crate::escrow::{self, Escrow, Seal};
use crate::input::Input;
use crate::network::Network;
use crate::pubkey::Pubkey;
use crate::reader::Reader;
use crate::syscall::{find_program_address, Bytes};
use crate::system::New;
use crate::token::{self, Movement};
use crate::{keyset, math, sysvar};

/// Furthest deadline, in slots from the opening: 54 years, which a tranche's windows can still count.
const LONGEST: u64 = u32::MAX as u64;

/// Opens an escrow and puts the deposit into its vault. All who will sign vouchers sign this.
///
/// Accounts: payer (signs, writable), buyer (signs), source (writable; a token account), its owner or delegate (signs),
/// escrow (writable), vault (writable; both addresses are in escrow.rs), mint, network, token program, system program, then
/// the voucher keys (each signs), strictly ascending, 1 to 5. Data: order[32] ‖ opened u64 ‖ deadline u64 ‖ deposit u64 ‖
/// referrer[32] (zeros: none) ‖ refund owner[32] ‖ index of the mint u8 ‖ threshold u8 ‖ s u8 ‖ s × standby[80] (escrow.rs).
pub fn open_escrow(input: &Input, data: &[u8]) -> Result<()> {
    let mut r = Reader::new(data);
    let order = r.array::<32>()?;
    let (opened, deadline, deposit) = (r.u64()?, r.u64()?, r.u64()?);
    let (referrer, refund_owner) = (r.pubkey()?, r.pubkey()?);
    let (mint_index, threshold, standby_count) = (r.u8()?, r.u8()?, r.u8()?);
    if standby_count > escrow::MAX_STANDBYS {
        return Err(Error::Standby);
    }
    let standbys = r.bytes(usize::from(standby_count).wrapping_mul(escrow::STANDBY))?;
    r.end()?;
    let [payer, buyer, source, authority, account, vault, mint, network, token_program, system, keys @ ..] = input.accounts else {
        return Err(Error::AccountCount);
    };
    payer.must_sign()?.must_write()?;
    buyer.must_sign()?;
    authority.must_sign()?;
    source.must_write()?;
    account.must_write()?;
    vault.must_write()?;
    token_program.must_be(&Pubkey::TOKEN)?;
    for key in keys {
        key.must_sign()?;
    }
    keyset::check(threshold, escrow::MAX_KEYS, keys.iter().map(|k| k.key()))?;
    if Network::of(network, input.program)?.mint(mint_index)?.mint != *mint.key() {
        return Err(Error::Mint);
    }
    let now = sysvar::clock()?.slot;
    if opened > now || now > math::add(opened, escrow::OPENING)? {
        return Err(Error::Opened);
    }
    if deadline <= now || math::sub(deadline, opened)? > LONGEST {
        return Err(Error::Deadline);
    }
    if deposit == 0 {
        return Err(Error::Amount);
    }
    if refund_owner.is_zero() {
        return Err(Error::TokenOwner);
    }

    let opened_bytes = opened.to_le_bytes();
    let mut seal = Seal { network: network.key().0, buyer: buyer.key().0, order: *order, opened: opened_bytes, bump: [0] };
    let [tag, a, b, c, d, _] = seal.seeds();
    let (address, bump) = find_program_address(&[tag, a, b, c, d], input.program)?;
    account.must_be(&address)?;
    seal.bump = [bump];
    let tail = keys.len().wrapping_mul(32).wrapping_add(standbys.len());
    let space = escrow::HEAD.wrapping_add(tail) as u64;
    New { payer, account, system, space, program: input.program, seeds: &seal.seeds() }.create()?;

    let (tag, of) = (Bytes::new(b"vault"), Bytes::new(&account.key().0));
    let (address, vault_bump) = find_program_address(&[tag, of], input.program)?;
    vault.must_be(&address)?;
    let bump_byte = [vault_bump];
    let seeds = [tag, of, Bytes::new(&bump_byte)];
    New { payer, account: vault, system, space: token::ACCOUNT_SIZE, program: &Pubkey::TOKEN, seeds: &seeds }.create()?;
    token::initialize(vault, mint, account.key())?;
    let decimals = token::decimals(mint)?;
    Movement { from: source, mint, authority, amount: deposit, decimals, signer: None }.transfer(vault)?;

    account.write(0, &escrow::KIND)?;
    account.write(2, &[bump, vault_bump, escrow::OPEN, mint_index])?;
    for (at, key) in [(8, network.key()), (40, buyer.key()), (72, &Pubkey(*order)), (104, mint.key()), (136, vault.key())] {
        account.write(at, &key.0)?;
    }
    for (at, key) in [(168, refund_owner), (200, referrer), (232, payer.key())] {
        account.write(at, &key.0)?;
    }
    account.write(264, &opened_bytes)?;
    account.write_u64(272, deadline)?;
    account.write(332, &[keys.len() as u8, threshold, standby_count])?;
    let mut at = escrow::HEAD;
    for key in keys {
        account.write(at, &key.key().0)?;
        at = at.wrapping_add(32);
    }
    account.copy(at, standbys)?;
    Escrow::of(account, input.program)?.deposited(deposit)
}
