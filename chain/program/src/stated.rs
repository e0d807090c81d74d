//! Statements of audits whose signature the program has seen: with the proof that one is a lie it does not fit into one
//! transaction, so it is shown by itself first, as receipts are (attest).
//!
//! Its account has 112 bytes and the statement; its address is that of "stated", the network account, who showed it, and
//! H("starling/stated/v1" ‖ what u8 ‖ signer ‖ statement):
//!
//! ```text
//!   0   1  kind = 10
//!   1   1  version = 1
//!   2   1  bump of its address
//!   3   1  what: 1 answer, 2 shown, 3 verdict
//!   4   4  reserved: 0
//!   8  32  network account
//!  40  32  reporter: who showed it and paid the rent
//!  72  32  signer
//! 104   8  slot in which it was shown
//! 112   -  answer[280], shown[72] or verdict[184] (verify/PROTOCOL.md)
//! ```

use crate::account::Account;
use crate::ed25519;
use crate::error::{Error, Result};
use crate::input::Input;
use crate::introspect::Instructions;
use crate::network::{Network, TAG_ANSWER, TAG_SHOWN, TAG_VERDICT};
use crate::product::Shape;
use crate::pubkey::Pubkey;
use crate::reader::Reader;
use crate::syscall::{find_program_address, sha256, Bytes};
use crate::system::New;
use crate::{kind, sysvar};

const KIND: [u8; 2] = [kind::STATED, 1];
const HEAD: usize = 112;

pub const ANSWER: u8 = 1;
pub const SHOWN: u8 = 2;
pub const VERDICT: u8 = 3;

pub const ANSWER_SIZE: usize = 280;
pub const SHOWN_SIZE: usize = 72;
pub const VERDICT_SIZE: usize = 184;

const VERSION: u8 = 1;
const MAX_ATTEMPTS: u8 = 3;
const MAX_OUTCOME: u8 = 3;
/// Where an answer and a verdict name their signer.
const SIGNER: usize = 8;
/// Where an answer has its shape.
pub const SHAPE: usize = 112;

/// Writes down a statement that somebody signed.
///
/// The precompile's instruction, in the same transaction, is of the one form that ed25519 takes, with one signature, of the
/// preimage of the statement on this network.
///
/// Accounts: reporter (signs, pays, writable), network, stated (writable), instructions sysvar, system program. Data: number
/// u8 of the precompile's instruction in the transaction ‖ what u8.
#[inline(never)]
pub fn state(input: &Input, data: &[u8]) -> Result<()> {
    let mut r = Reader::new(data);
    let (number, what) = (r.u8()?, r.u8()?);
    r.end()?;
    let [reporter, network, account, instructions, system] = input.exactly()?;
    reporter.must_sign()?.must_write()?;
    account.must_write()?;
    let network = Network::of(network, input.program)?;
    let signed = Instructions::of(instructions)?.get(number.into())?;
    let prefix = |tag| network.prefix(tag, input.program);
    let (keys, statement): (_, &[u8]) = match what {
        ANSWER => ed25519::signed_by::<ANSWER_SIZE>(&signed, &prefix(TAG_ANSWER)?).map(|(keys, b)| (keys, &b[..]))?,
        SHOWN => ed25519::signed_by::<SHOWN_SIZE>(&signed, &prefix(TAG_SHOWN)?).map(|(keys, b)| (keys, &b[..]))?,
        VERDICT => ed25519::signed_by::<VERDICT_SIZE>(&signed, &prefix(TAG_VERDICT)?).map(|(keys, b)| (keys, &b[..]))?,
        _ => return Err(Error::EvidenceKind),
    };
    let [signer] = keys else {
        return Err(Error::Statement);
    };
    check(what, statement, signer)?;

    let what = [what];
    let parts = [Bytes::new(b"starling/stated/v1"), Bytes::new(&what), Bytes::new(&signer.0), Bytes::new(statement)];
    let hash = sha256(&parts);
    let seeds = [Bytes::new(b"stated"), Bytes::new(&network.0.key().0), Bytes::new(&reporter.key().0), Bytes::new(&hash)];
    let (address, bump) = find_program_address(&seeds, input.program)?;
    account.must_be(&address)?;
    let bump = [bump];
    let [a, b, c, d] = seeds;
    let space = HEAD.wrapping_add(statement.len()) as u64;
    New { payer: reporter, account, system, space, program: input.program, seeds: &[a, b, c, d, Bytes::new(&bump)] }.create()?;
    account.write(0, &KIND)?;
    account.write(2, &[bump[0], what[0]])?;
    account.write(8, &network.0.key().0)?;
    account.write(40, &reporter.key().0)?;
    account.write(72, &signer.0)?;
    account.write_u64(104, sysvar::clock()?.slot)?;
    account.copy(HEAD, statement)
}

/// Whether it is a statement, by who it names: [`Error::Statement`].
fn check(what: u8, b: &[u8], signer: &Pubkey) -> Result<()> {
    let mut r = Reader::new(b);
    let (version, second, third, fourth, rest) = (r.u8()?, r.u8()?, r.u8()?, r.u8()?, r.u32()?);
    let names = b.get(SIGNER..).and_then(|b| b.first_chunk()) == Some(&signer.0);
    let reserved = third | fourth == 0 && rest == 0;
    let sound = version == VERSION
        && reserved
        && match what {
            ANSWER => (1..=MAX_ATTEMPTS).contains(&second) && names,
            SHOWN => second == 0,
            _ => (1..=MAX_OUTCOME).contains(&second) && names && b.get(168..176) == Some(&[0; 8]),
        };
    if !sound {
        return Err(Error::Statement);
    }
    if what == ANSWER {
        Shape::read(b.get(SHAPE..).and_then(|b| b.first_chunk()).ok_or(Error::Statement)?)?;
    }
    Ok(())
}

/// Ends a statement's account; the rent goes back to who paid it, who alone may.
///
/// Accounts: reporter (signs, writable), stated (writable). Data: none.
#[inline(never)]
pub fn close_stated(input: &Input, data: &[u8]) -> Result<()> {
    Reader::new(data).end()?;
    let [reporter, account] = input.exactly()?;
    let stated = Stated::of(account, input.program)?;
    if *reporter.key() != stated.reporter()? {
        return Err(Error::NotReporter);
    }
    reporter.must_sign()?.must_write()?;
    account.must_write()?;
    account.close(reporter)
}

/// A statement's account.
pub struct Stated<'a>(Account<'a>);

impl<'a> Stated<'a> {
    /// [`Error::Owner`], [`Error::Kind`].
    pub fn of(account: &Account<'a>, program: &Pubkey) -> Result<Self> {
        account.must_belong_to(program)?;
        if account.len() < HEAD || account.read::<2>(0)? != KIND {
            return Err(Error::Kind);
        }
        Ok(Stated(*account))
    }

    /// The statement, when it is one of these: [`Error::Statement`].
    pub fn statement<const N: usize>(&self, what: u8) -> Result<[u8; N]> {
        if self.0.read_u8(3)? == what { self.0.read(HEAD) } else { Err(Error::Statement) }
    }

    pub fn network(&self) -> Result<Pubkey> {
        self.0.read_key(8)
    }

    pub fn reporter(&self) -> Result<Pubkey> {
        self.0.read_key(40)
    }

    pub fn signer(&self) -> Result<Pubkey> {
        self.0.read_key(72)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer() -> Vec<u8> {
        let mut b = vec![0; ANSWER_SIZE];
        b[..2].copy_from_slice(&[1, 3]);
        b[8..40].fill(7);
        for (i, v) in [64u32, 128, 192, 3].iter().enumerate() {
            b[112 + 4 * i..116 + 4 * i].copy_from_slice(&v.to_le_bytes());
        }
        b
    }

    #[test]
    fn statements_have_one_form() {
        let verdict = {
            let mut b = vec![0; VERDICT_SIZE];
            b[..8].copy_from_slice(&[1, 3, 0, 0, 0, 0, 0, 0]);
            b[8..40].fill(7);
            b
        };
        let mut shown = vec![0xff; SHOWN_SIZE];
        shown[..8].copy_from_slice(&[1, 0, 0, 0, 0, 0, 0, 0]);
        let (seven, eight) = (Pubkey([7; 32]), Pubkey([8; 32]));
        for (what, good, named, pinned) in [(ANSWER, answer(), true, &[0, 2, 3, 4, 7, 112][..]), (SHOWN, shown, false, &[0, 1, 2, 7]), (VERDICT, verdict, true, &[0, 2, 3, 4, 7, 168, 175])] {
            assert_eq!(check(what, &good, &seven), Ok(()));
            assert_eq!(check(what, &good, &eight), if named { Err(Error::Statement) } else { Ok(()) });
            for &i in pinned {
                let mut bad = good.clone();
                bad[i] ^= 0x55;
                assert_eq!(check(what, &bad, &seven), Err(Error::Statement), "{what} {i}");
            }
            if named {
                for second in [0, 4, 255] {
                    let mut bad = good.clone();
                    bad[1] = second;
                    assert_eq!(check(what, &bad, &seven), Err(Error::Statement), "{what}");
                }
            }
        }
    }
}
