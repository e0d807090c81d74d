//! Slashing for lies of audits, each proved by what the liar signed (verify/audit, Lie), which `starling proof check`
//! repeats offline:
//!
//! 1. a provider showed openings of its products of which one value is wrong: the program computes that value;
//! 2. a provider gave two answers to one question;
//! 3. a member of a committee passed openings with a wrong value, one that it had to compute.
//!
//! The economics are those of slash, without victims: half burns, the reporter gets an eighth, and the rest burns too. A lie is
//! as old as the end of its answer's window, whose length is a parameter of the network.

use crate::error::{Error, Result};
use crate::input::Input;
use crate::merkle;
use crate::network::Network;
use crate::product::Shape;
use crate::provider::Provider;
use crate::pubkey::{same, Pubkey};
use crate::reader::Reader;
use crate::slash::{share, take, Admissible};
use crate::stated::{self, Stated, ANSWER_SIZE, SHOWN_SIZE, VERDICT_SIZE};
use crate::syscall::{sha256, Bytes};
use crate::token::{self, Movement};
use crate::{math, sysvar};

const FALSE_OPENING: u8 = 1;
const TWO_ANSWERS: u8 = 2;
const FALSE_PASS: u8 = 3;

const PASS: u8 = 1;
/// Most openings of an answer.
const MAX_OPENINGS: u16 = 56;
/// Length of an opening: leaf u32 ‖ 32 values i32.
const OPENING: usize = 132;

// Places in an answer.
const WINDOW: usize = 72;
const PRODUCT_SEED: usize = 80;
const PRODUCT_ROOT: usize = 128;
const DATASET_SEED: usize = 160;
const WALK_SEED: usize = 216;

/// Takes a provider's stake, with what is unbonding, for a lie.
///
/// Accounts: network (writable), provider (writable), vault (writable), stake mint (writable), stated A, stated B (two answers;
/// otherwise the program's own address), reporter's token account (writable), token program. Data: kind u8; of two answers
/// nothing else, and A is the lower one as bytes; of the others value u8 ‖ index of the opening u16 ‖ openings u16 ‖
/// answer[280] ‖ leaf u32 ‖ 32 values i32 ‖ n u8 ‖ n × sibling[32] under the openings root of A.
#[inline(never)]
pub fn slash_audit(input: &Input, data: &[u8]) -> Result<()> {
    let [network, account, vault, mint, a, b, reporter, token] = input.exactly()?;
    for written in [network, account, vault, mint, reporter] {
        written.must_write()?;
    }
    token.must_be(&Pubkey::TOKEN)?;
    let provider = Provider::of(account, input.program)?;
    let rules = provider.network(network, input.program)?;
    provider.must_keep_stake_in(vault, input.program)?;
    let shown = Stated::of(a, input.program)?;
    if shown.network()? != *network.key() {
        return Err(Error::OtherNetwork);
    }
    if provider.peer()? != shown.signer()? {
        return Err(Error::NotItsKey);
    }
    let (kind, rest) = data.split_first().ok_or(Error::Data)?;
    let window = match *kind {
        TWO_ANSWERS => {
            Reader::new(rest).end()?;
            let other = Stated::of(b, input.program)?;
            if other.network()? != *network.key() {
                return Err(Error::OtherNetwork);
            }
            if other.reporter()? != shown.reporter()? {
                return Err(Error::Reporters);
            }
            two_answers(&shown, &other)?
        }
        FALSE_OPENING | FALSE_PASS => {
            b.must_be(input.program)?;
            wrong_value(*kind, &shown, rest)?
        }
        _ => return Err(Error::EvidenceKind),
    };
    let now = sysvar::clock()?.slot;
    let end = math::mul(math::add(window, 1)?, audit_slots(&rules)?)?;
    Admissible { now, evidence_slots: rules.evidence()?, slashed: provider.slashed()? }.check(end)?;

    token::check_holding(reporter, mint.key(), &shown.reporter()?)?;
    token::check_payee(reporter, mint.key(), &shown.reporter()?, None)?;
    let shares = share(take(&provider, &rules, now)?, 0, 0);
    let signature = provider.signature()?;
    let seeds = signature.seeds();
    let decimals = token::decimals(mint)?;
    let movement = |amount| Movement { from: vault, mint, authority: account, amount, decimals, signer: Some(&seeds) };
    movement(shares.burned).burn()?;
    if shares.reporter > 0 {
        movement(shares.reporter).transfer(reporter)?;
    }
    Ok(())
}

/// [`Error::EvidenceKind`] where audits are no evidence.
fn audit_slots(network: &Network) -> Result<u64> {
    match network.audit_slots()? {
        0 => Err(Error::EvidenceKind),
        slots => Ok(slots),
    }
}

/// The window of two answers to one question: [`Error::Statement`], [`Error::NoLie`].
#[inline(never)]
fn two_answers(a: &Stated, b: &Stated) -> Result<u64> {
    let (a, b) = (a.statement::<ANSWER_SIZE>(stated::ANSWER)?, b.statement::<ANSWER_SIZE>(stated::ANSWER)?);
    // Attempt, provider, unit, window, seed and shape stand before the root.
    if a[..PRODUCT_ROOT] != b[..PRODUCT_ROOT] || a[PRODUCT_ROOT..DATASET_SEED] >= b[PRODUCT_ROOT..DATASET_SEED] {
        return Err(Error::NoLie);
    }
    Ok(u64_at(&a, WINDOW))
}

/// The window of an answer of which a wrong value was shown, or passed: [`Error::Data`], [`Error::Statement`],
/// [`Error::OtherAnswer`], [`Error::Index`], [`Error::NotPicked`], [`Error::NoLie`], and those of merkle.
#[inline(never)]
fn wrong_value(kind: u8, by: &Stated, data: &[u8]) -> Result<u64> {
    let mut r = Reader::new(data);
    let (value, index, count) = (r.u8()?, r.u16()?, r.u16()?);
    let answer = r.array::<ANSWER_SIZE>()?;
    let opening = r.array::<OPENING>()?;
    let n = r.u8()?;
    let path = r.arrays(n.into())?;
    r.end()?;
    let hash = sha256(&[Bytes::new(b"starling/answer/v1"), Bytes::new(answer)]);
    let (of, root) = if kind == FALSE_OPENING {
        let shown = by.statement::<SHOWN_SIZE>(stated::SHOWN)?;
        if by.signer()?.0 != answer[8..40] {
            return Err(Error::OtherAnswer);
        }
        (key_at(&shown, 8), key_at(&shown, 40))
    } else {
        let verdict = by.statement::<VERDICT_SIZE>(stated::VERDICT)?;
        if verdict[1] != PASS {
            return Err(Error::OtherAnswer);
        }
        (key_at(&verdict, 40), key_at(&verdict, 72))
    };
    if !same(&of, &hash) {
        return Err(Error::OtherAnswer);
    }
    if count > MAX_OPENINGS {
        return Err(Error::Index);
    }
    merkle::verify(&merkle::Proof { data: opening, index: index.into(), count: count.into(), path }, &root)?;
    if kind == FALSE_PASS && pick(&key_at(answer, WALK_SEED), index) != value {
        return Err(Error::NotPicked);
    }

    let mut r = Reader::new(&answer[stated::SHAPE..]);
    let shape = Shape::read(r.array()?)?;
    let mut r = Reader::new(opening);
    let place = shape.place(r.u32()?, value)?;
    r.bytes(usize::from(value).wrapping_mul(4))?;
    let said = r.u32()? as i32;
    if shape.entry(&key_at(answer, PRODUCT_SEED), &place) == said {
        return Err(Error::NoLie);
    }
    Ok(u64_at(answer, WINDOW))
}

/// Which value of opening number `index` every member has to compute.
fn pick(walk_seed: &[u8; 32], index: u16) -> u8 {
    let [low, _] = index.to_le_bytes(); // the index is below 56
    let at = [low / 32];
    let h = sha256(&[Bytes::new(b"starling/audit/pick/v1"), Bytes::new(walk_seed), Bytes::new(&at)]);
    h[usize::from(low % 32)] % 32
}

fn key_at<const N: usize>(b: &[u8; N], at: usize) -> [u8; 32] {
    let mut key = [0; 32];
    key.copy_from_slice(&b[at..][..32]);
    key
}

fn u64_at<const N: usize>(b: &[u8; N], at: usize) -> u64 {
    let mut word = [0; 8];
    word.copy_from_slice(&b[at..][..8]);
    u64::from_le_bytes(word)
}
