//! Batch roots of receipts on chain, and their proofs.
//!
//! An anchor says: these receipts existed in this slot. It is never changed, and stays until its author takes the rent
//! back. Its account, 88 bytes:
//!
//! ```text
//!  0   1  kind = 1
//!  1   1  version = 1
//!  2   6  reserved: 0
//!  8  32  authority: the anchoring key
//! 40  32  root (merkle)
//! 72   8  count of receipts under it
//! 80   8  slot in which it was written
//! ```

use crate::account::Account;
use crate::error::{Error, Result};
use crate::input::Input;
use crate::merkle;
use crate::pubkey::Pubkey;
use crate::reader::Reader;
use crate::syscall::{find_program_address, Bytes};
use crate::system::New;
use crate::{kind, sysvar};

const KIND: [u8; 2] = [kind::ANCHOR, 1];
const SIZE: u64 = 88;

/// Writes a root down.
///
/// Accounts: authority (signs, pays, writable), anchor (writable; its address is that of "anchor", the authority and the
/// root), system program. Data: root[32] ‖ count u64, from 1 to 2^20.
pub fn anchor(input: &Input, data: &[u8]) -> Result<()> {
    let mut r = Reader::new(data);
    let (root, count) = (r.array::<32>()?, r.u64()?);
    r.end()?;
    let [authority, account, system] = input.exactly()?;
    authority.must_sign()?.must_write()?;
    account.must_write()?;
    if count == 0 || count > merkle::MAX_LEAVES {
        return Err(Error::Index);
    }
    let tag = Bytes::new(b"anchor");
    let (address, bump) = find_program_address(&[tag, Bytes::new(&authority.key().0), Bytes::new(root)], input.program)?;
    account.must_be(&address)?;
    let bump = [bump];
    let seeds = [tag, Bytes::new(&authority.key().0), Bytes::new(root), Bytes::new(&bump)];
    New { payer: authority, account, system, space: SIZE, program: input.program, seeds: &seeds }.create()?;
    account.write(0, &KIND)?;
    account.write(8, &authority.key().0)?;
    account.write(40, root)?;
    account.write(72, &count.to_le_bytes())?;
    account.write(80, &sysvar::clock()?.slot.to_le_bytes())
}

/// Succeeds if a receipt is under an anchor.
///
/// Accounts: anchor. Data: receipt's hash[32] ‖ index u64 ‖ n u8 ‖ n × sibling[32], lowest first.
pub fn prove(input: &Input, data: &[u8]) -> Result<()> {
    let mut r = Reader::new(data);
    let (leaf, index, n) = (r.array::<32>()?, r.u64()?, r.u8()?);
    let path = r.arrays::<32>(n.into())?;
    r.end()?;
    let [account] = input.exactly()?;
    check(account, input.program)?;
    let count = account.read_u64(72)?;
    merkle::verify(&merkle::Proof { data: leaf, index, count, path }, &account.read(40)?)
}

/// Ends an anchor: its rent goes back to its author.
///
/// Accounts: authority (signs, writable), anchor (writable). No data.
pub fn close_anchor(input: &Input, data: &[u8]) -> Result<()> {
    Reader::new(data).end()?;
    let [authority, account] = input.exactly()?;
    authority.must_sign()?.must_write()?;
    account.must_write()?;
    check(account, input.program)?;
    authority.must_be(&account.read_key(8)?)?;
    account.close(authority)
}

fn check(account: &Account, program: &Pubkey) -> Result<()> {
    account.must_belong_to(program)?;
    if account.len() as u64 == SIZE && account.read::<2>(0)? == KIND {
        Ok(())
    } else {
        Err(Error::Kind)
    }
}
