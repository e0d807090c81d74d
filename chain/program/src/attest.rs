//! Receipts whose two signatures the program has seen: a conflict of two does not fit into one transaction, so each is
//! shown by itself first.
//!
//! The receipt is not handed over: it is the message of the precompile's instruction. Its account has 336 bytes; its
//! address is that of "attested", the network account, who showed it, and H("starling/receipt/v1" ‖ core), which the lease's
//! next receipt carries as prev. Who showed it is in the address, so that nobody can take the place, and with it the
//! right to close the account, before others:
//!
//! ```text
//!   0   1  kind = 6
//!   1   1  version = 1
//!   2   1  bump of its address
//!   3   5  reserved: 0
//!   8  32  network account
//!  40  32  reporter: who showed it and paid the rent
//!  72 256  receipt core
//! 328   8  slot in which it was shown
//! ```

use crate::account::Account;
use crate::ed25519;
use crate::error::{Error, Result};
use crate::input::Input;
use crate::introspect::Instructions;
use crate::network::{Network, TAG_RECEIPT};
use crate::pubkey::Pubkey;
use crate::reader::Reader;
use crate::syscall::{find_program_address, sha256, Bytes};
use crate::system::New;
use crate::{kind, sysvar};

const KIND: [u8; 2] = [kind::ATTESTED, 1];
const SIZE: u64 = 336;
const BUMP: usize = 2;
const NETWORK: usize = 8;
const REPORTER: usize = 40;
const CORE: usize = 72;
const SLOT: usize = 328;

const CORE_SIZE: usize = 256;
const VERSION: u8 = 1;
const FINAL: u8 = 1;

/// Writes down a receipt that provider and buyer signed.
///
/// The precompile's instruction, in the same transaction, is of the one form that ed25519 takes, with two signatures: the
/// provider's, then the buyer's, of the preimage of the receipt core on this network.
///
/// Accounts: reporter (signs, pays, writable), network, attested (writable), instructions sysvar, system program. Data:
/// number u8 of the precompile's instruction in the transaction.
#[inline(never)]
pub fn attest(input: &Input, data: &[u8]) -> Result<()> {
    let mut r = Reader::new(data);
    let number = r.u8()?;
    r.end()?;
    let [reporter, network, account, instructions, system] = input.exactly()?;
    reporter.must_sign()?.must_write()?;
    account.must_write()?;
    let prefix = Network::of(network, input.program)?.prefix(TAG_RECEIPT, input.program)?;
    let (keys, core) = ed25519::signed_by(&Instructions::of(instructions)?.get(number.into())?, &prefix)?;
    check(core, keys)?;

    let hash = sha256(&[Bytes::new(b"starling/receipt/v1"), Bytes::new(core)]);
    let seeds = [Bytes::new(b"attested"), Bytes::new(&network.key().0), Bytes::new(&reporter.key().0), Bytes::new(&hash)];
    let (address, bump) = find_program_address(&seeds, input.program)?;
    account.must_be(&address)?;
    let bump = [bump];
    let [a, b, c, d] = seeds;
    New { payer: reporter, account, system, space: SIZE, program: input.program, seeds: &[a, b, c, d, Bytes::new(&bump)] }.create()?;
    account.write(0, &KIND)?;
    account.write(BUMP, &bump)?;
    account.write(NETWORK, &network.key().0)?;
    account.write(REPORTER, &reporter.key().0)?;
    account.write(CORE, core)?;
    account.write_u64(SLOT, sysvar::clock()?.slot)
}

/// Whether it is a receipt core, signed by its provider and its buyer: [`Error::Receipt`], [`Error::Signer`].
fn check(core: &[u8; CORE_SIZE], signers: &[Pubkey]) -> Result<()> {
    if core[0] != VERSION || core[1] > FINAL {
        return Err(Error::Receipt);
    }
    let mut r = Reader::new(core);
    r.bytes(PROVIDER)?;
    if signers == [*r.pubkey()?, *r.pubkey()?] {
        Ok(())
    } else {
        Err(Error::Signer)
    }
}

/// Ends an attested account; the rent goes back to who paid it, who alone may.
///
/// Accounts: reporter (signs, writable), attested (writable). Data: none.
#[inline(never)]
pub fn close_attested(input: &Input, data: &[u8]) -> Result<()> {
    Reader::new(data).end()?;
    let [reporter, account] = input.exactly()?;
    let attested = Attested::of(account, input.program)?;
    if *reporter.key() != attested.reporter {
        return Err(Error::NotReporter);
    }
    reporter.must_sign()?.must_write()?;
    account.must_write()?;
    account.close(reporter)
}

/// What an attested account says.
pub struct Attested {
    pub network: Pubkey,
    pub reporter: Pubkey,
    pub receipt: Receipt,
}

/// Of a receipt, what a conflict is about.
#[derive(Clone, Copy)]
pub struct Receipt {
    pub units: u16,
    pub lease: [u8; 32],
    pub provider: Pubkey,
    pub buyer: Pubkey,
    pub units_root: [u8; 32],
    /// First slot.
    pub from: u64,
    /// First slot that is not meant any more.
    pub to: u64,
    /// Base units of what the buyer pays in, since the lease began.
    pub cumulative: u64,
}

// Places in a receipt core.
const UNITS: usize = 2;
const LEASE: usize = 8;
const PROVIDER: usize = 80;
const BUYER: usize = 112;
const UNITS_ROOT: usize = 144;
const FROM: usize = 184;
const TO: usize = 192;
const CUMULATIVE: usize = 216;

impl Attested {
    /// [`Error::Owner`], [`Error::Kind`].
    pub fn of(account: &Account, program: &Pubkey) -> Result<Self> {
        account.must_belong_to(program)?;
        if account.len() as u64 != SIZE || account.read::<2>(0)? != KIND {
            return Err(Error::Kind);
        }
        let receipt = Receipt {
            units: u16::from_le_bytes(account.read(CORE + UNITS)?),
            lease: account.read(CORE + LEASE)?,
            provider: account.read_key(CORE + PROVIDER)?,
            buyer: account.read_key(CORE + BUYER)?,
            units_root: account.read(CORE + UNITS_ROOT)?,
            from: account.read_u64(CORE + FROM)?,
            to: account.read_u64(CORE + TO)?,
            cumulative: account.read_u64(CORE + CUMULATIVE)?,
        };
        Ok(Attested { network: account.read_key(NETWORK)?, reporter: account.read_key(REPORTER)?, receipt })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::input::{table, tests::Region};

    #[test]
    fn signers_are_provider_and_buyer() {
        let mut good = [0; CORE_SIZE];
        good[0] = 1;
        good[PROVIDER..PROVIDER + 32].fill(7);
        good[BUYER..BUYER + 32].fill(8);
        let key = |k| Pubkey([k; 32]);
        assert_eq!(check(&good, &[key(7), key(8)]), Ok(()));
        for keys in [&[key(8), key(7)][..], &[key(7)], &[key(7), key(7)], &[key(8), key(8)], &[key(7), key(8), key(9)], &[]] {
            assert_eq!(check(&good, keys), Err(Error::Signer));
        }
        for (at, value, want) in [(0, 0, Err(Error::Receipt)), (0, 2, Err(Error::Receipt)), (1, 1, Ok(())), (1, 2, Err(Error::Receipt)), (1, 3, Err(Error::Receipt))] {
            let mut core = good;
            core[at] = value;
            assert_eq!(check(&core, &[key(7), key(8)]), want, "{at} {value}");
        }
    }

    #[test]
    fn reads_what_is_written() {
        let mut data = vec![kind::ATTESTED, 1];
        data.resize(SIZE as usize, 0);
        let put = |data: &mut Vec<u8>, at: usize, bytes: &[u8]| data[at..at + bytes.len()].copy_from_slice(bytes);
        put(&mut data, NETWORK, &[1; 32]);
        put(&mut data, REPORTER, &[2; 32]);
        for (at, byte) in [(LEASE, 3), (PROVIDER, 4), (BUYER, 5), (UNITS_ROOT, 6)] {
            put(&mut data, CORE + at, &[byte; 32]);
        }
        put(&mut data, CORE + UNITS, &[0, 4]);
        for (at, value) in [(FROM, 7u64), (TO, 8), (CUMULATIVE, 9)] {
            put(&mut data, CORE + at, &value.to_le_bytes());
        }
        let read = |data: &[u8], owner: u8| {
            let mut region = Region::default().account(1, owner, false, false, 1, data);
            let mut accounts = table();
            let input = unsafe { Input::parse(region.finish(b""), &mut accounts) }.unwrap();
            Attested::of(&input.accounts[0], input.program)
        };
        let a = read(&data, 0xee).unwrap();
        assert_eq!((a.network, a.reporter), (Pubkey([1; 32]), Pubkey([2; 32])));
        let r = a.receipt;
        assert_eq!((r.lease, r.provider, r.buyer, r.units_root), ([3; 32], Pubkey([4; 32]), Pubkey([5; 32]), [6; 32]));
        assert_eq!((r.units, r.from, r.to, r.cumulative), (1024, 7, 8, 9));
        assert_eq!(read(&data, 1).err(), Some(Error::Owner));
        assert_eq!(read(&data[1..], 0xee).err(), Some(Error::Kind));
        assert_eq!(read(&[&data[..], &[0]].concat(), 0xee).err(), Some(Error::Kind));
        data[0] = kind::PROVIDER;
        assert_eq!(read(&data, 0xee).err(), Some(Error::Kind));
    }
}
