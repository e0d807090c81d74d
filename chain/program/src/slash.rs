//! Slashing, by proof alone: a provider that sold one unit twice loses all its stake.
//!
//! Half of it burns, so that who slashes himself always loses at least that half, whoever else he is. Of the rest the two
//! buyers come first, each with what it had paid and at most half of the rest; then the reporter, with at most a quarter of
//! it; what is left burns too. Nobody of them can be left out: without their associated token accounts the instruction is refused, and
//! anybody can make these for anybody. Nobody of them can stop it either: the share of one whose account is frozen, handed on, or may be
//! closed by another burns.
//!
//! No evidence counts twice: a slash is at a slot, and later ones need receipts that end after it, while no receipt that ends
//! after the present counts at all.

use crate::attest::{Attested, Receipt};
use crate::error::{Error, Result};
use crate::input::Input;
use crate::math;
use crate::merkle;
use crate::network::Network;
use crate::provider::Provider;
use crate::pubkey::Pubkey;
use crate::reader::Reader;
use crate::sysvar;
use crate::token::{self, Movement};

/// Kinds of evidence: the first byte of the instruction's data. (Lies of audits have an instruction of their own: slash_audit.)
const CONFLICT: u8 = 1;

/// Takes a provider's stake, with what is unbonding, for a conflict (verify/PROTOCOL.md, section 6).
///
/// Both receipts are attested by one reporter, who is paid and need not sign. A victim is the buyer of a receipt, and paid
/// into its associated token account of the stake mint; so is the reporter. The accounts of victims and reporter may be one where
/// the keys are.
///
/// Accounts: network (writable), provider (writable), vault (writable), stake mint (writable), attested A, attested B, victim A's token
/// account (writable), victim B's (writable), reporter's (writable), token program. Data: kind u8 = 1 ‖ bytes 768 and on of
/// the conflict's layout: unit id[32] ‖ unit proof under A's root ‖ under B's (market/PROTOCOL.md, section 7).
#[inline(never)]
pub fn slash(input: &Input, data: &[u8]) -> Result<()> {
    let mut r = Reader::new(data);
    if r.u8()? != CONFLICT {
        return Err(Error::EvidenceKind);
    }
    let unit = r.array()?;
    let (in_a, in_b) = (UnitProof::read(&mut r)?, UnitProof::read(&mut r)?);
    r.end()?;
    let [network, account, vault, mint, a, b, victim_a, victim_b, reporter, token] = input.exactly()?;
    for written in [network, account, vault, mint, victim_a, victim_b, reporter] {
        written.must_write()?;
    }
    token.must_be(&Pubkey::TOKEN)?;
    let provider = Provider::of(account, input.program)?;
    let rules = provider.network(network, input.program)?;
    let evidence_slots = rules.evidence()?;
    provider.must_keep_stake_in(vault, input.program)?;
    let (a, b) = (Attested::of(a, input.program)?, Attested::of(b, input.program)?);
    if a.network != *network.key() || b.network != *network.key() {
        return Err(Error::OtherNetwork);
    }
    if a.reporter != b.reporter {
        return Err(Error::Reporters);
    }

    check_conflict(&a.receipt, &b.receipt, unit, &in_a, &in_b)?;
    if provider.peer()? != a.receipt.provider {
        return Err(Error::NotItsKey);
    }
    let now = sysvar::clock()?.slot;
    let when = Admissible { now, evidence_slots, slashed: provider.slashed()? };
    when.check(a.receipt.to)?;
    when.check(b.receipt.to)?;

    let payees = [(victim_a, a.receipt.buyer), (victim_b, b.receipt.buyer), (reporter, a.reporter)];
    for (holder, key) in &payees {
        holder.must_belong_to(&Pubkey::TOKEN)?;
        token::check_payee(holder, mint.key(), key, None)?;
    }
    let total = take(&provider, &rules, now)?;
    let shares = share(total, a.receipt.cumulative, b.receipt.cumulative);
    let signature = provider.signature()?;
    let seeds = signature.seeds();
    let decimals = token::decimals(mint)?;
    let movement = |amount| Movement { from: vault, mint, authority: account, amount, decimals, signer: Some(&seeds) };
    let mut burned = shares.burned;
    for ((to, key), amount) in payees.iter().zip([shares.victim_a, shares.victim_b, shares.reporter]) {
        if amount == 0 {
            continue;
        }
        match token::check_holding(to, mint.key(), key) {
            Ok(()) => movement(amount).transfer(to)?,
            Err(_) => burned = math::add(burned, amount)?,
        }
    }
    movement(burned).burn()
}

/// Takes all that a provider has at stake, and its vote with it: [`Error::NothingStaked`].
pub(crate) fn take(provider: &Provider, network: &Network, now: u64) -> Result<u64> {
    let total = math::add(provider.stake()?, provider.unbonding()?)?;
    if total == 0 {
        return Err(Error::NothingStaked);
    }
    network.set_bonded(math::sub(network.bonded()?, provider.bonded()?)?)?;
    provider.set_bonded(0)?;
    provider.set_stake(0)?;
    provider.set_unbonding(0, 0)?;
    provider.set_slashed(now)?;
    Ok(total)
}

/// What a slash does with the stake. The sum is the stake, and `burned` at least half of it.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Shares {
    pub burned: u64,
    pub victim_a: u64,
    victim_b: u64,
    pub reporter: u64,
}

/// `paid`: what each victim had paid, in whatever its lease was priced in; the stake is not.
pub(crate) fn share(total: u64, paid_a: u64, paid_b: u64) -> Shares {
    // No subtraction below goes under zero: each victim gets at most half of the rest, and the reporter no more than is left.
    let rest = total / 2;
    let victim_a = paid_a.min(rest / 2);
    let victim_b = paid_b.min(rest / 2);
    let left = rest.saturating_sub(victim_a).saturating_sub(victim_b);
    let reporter = left.min(rest / 4);
    let burned = total.saturating_sub(rest).saturating_add(left.saturating_sub(reporter));
    Shares { burned, victim_a, victim_b, reporter }
}

/// Checks that one provider sold the unit twice at one time: [`Error::Parties`], [`Error::OneLease`], [`Error::LeaseOrder`],
/// [`Error::NoOverlap`], and what unit proofs can be wrong in. The signatures were checked when the receipts were attested.
fn check_conflict(a: &Receipt, b: &Receipt, unit: &[u8; 32], in_a: &UnitProof, in_b: &UnitProof) -> Result<()> {
    if a.provider != b.provider {
        return Err(Error::Parties);
    }
    if a.lease == b.lease {
        return Err(Error::OneLease);
    }
    if a.lease > b.lease {
        return Err(Error::LeaseOrder);
    }
    if a.from.max(b.from) >= a.to.min(b.to) {
        return Err(Error::NoOverlap);
    }
    in_a.check(unit, a)?;
    in_b.check(unit, b)
}

/// When evidence counts.
pub(crate) struct Admissible {
    pub now: u64,
    pub evidence_slots: u64,
    /// Slot of the last slash, 0 if there was none.
    pub slashed: u64,
}

impl Admissible {
    /// Of what ended in a slot: [`Error::NotOver`], [`Error::TooOld`], [`Error::SlashedBefore`].
    pub fn check(&self, to: u64) -> Result<()> {
        if to > self.now {
            return Err(Error::NotOver);
        }
        if to < self.now.saturating_sub(self.evidence_slots) {
            return Err(Error::TooOld);
        }
        if to <= self.slashed {
            return Err(Error::SlashedBefore);
        }
        Ok(())
    }
}

/// That a unit is one of a lease's.
struct UnitProof<'a> {
    index: u16,
    units: u16,
    path: &'a [merkle::Hash],
}

impl<'a> UnitProof<'a> {
    fn read(r: &mut Reader<'a>) -> Result<Self> {
        let (index, units, n) = (r.u16()?, r.u16()?, r.u8()?);
        Ok(UnitProof { index, units, path: r.arrays(n.into())? })
    }

    /// [`Error::UnitCount`], and those of merkle.
    fn check(&self, unit: &[u8; 32], receipt: &Receipt) -> Result<()> {
        if self.units != receipt.units {
            return Err(Error::UnitCount);
        }
        let proof = merkle::Proof { data: unit, index: self.index.into(), count: self.units.into(), path: self.path };
        merkle::verify(&proof, &receipt.units_root)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::merkle::tests::build;

    struct Random(u64); // xorshift

    impl Random {
        fn next(&mut self) -> u64 {
            self.0 ^= self.0 << 13;
            self.0 ^= self.0 >> 7;
            self.0 ^= self.0 << 17;
            self.0
        }

        /// Of every size, and often an edge.
        fn amount(&mut self) -> u64 {
            let n = self.next();
            match n % 8 {
                0 => u64::MAX.wrapping_sub(n >> 61),
                1 => n >> 61,
                _ => self.next() >> (n >> 58),
            }
        }
    }

    /// Whoever the victims and the reporter are, all of them together get at most half, rounded down.
    #[test]
    fn a_self_slasher_loses_at_least_half() {
        let mut random = Random(88172645463325252);
        for _ in 0..200_000 {
            let (total, a, b) = (random.amount(), random.amount(), random.amount());
            let s = share(total, a, b);
            let back = u128::from(s.victim_a) + u128::from(s.victim_b) + u128::from(s.reporter);
            assert_eq!(back + u128::from(s.burned), total.into(), "nothing appears or is left: {total} {a} {b}");
            assert!(s.burned >= total - total / 2, "half burns, rounded up: {total} {a} {b}");
            let rest = total / 2;
            assert_eq!((s.victim_a, s.victim_b), (a.min(rest / 2), b.min(rest / 2)), "{total}");
            assert!(s.reporter <= rest / 4);
            let left = rest - s.victim_a - s.victim_b;
            assert_eq!(s.reporter, left.min(rest / 4), "victims come first: {total} {a} {b}");
        }
    }

    #[test]
    fn shares_by_hand() {
        let is = |burned, victim_a, victim_b, reporter| Shares { burned, victim_a, victim_b, reporter };
        assert_eq!(share(0, 5, 5), is(0, 0, 0, 0));
        assert_eq!(share(1, 5, 5), is(1, 0, 0, 0));
        assert_eq!(share(3, 5, 5), is(3, 0, 0, 0));
        assert_eq!(share(1000, 0, 0), is(875, 0, 0, 125));
        assert_eq!(share(1000, 100, 30), is(745, 100, 30, 125));
        assert_eq!(share(1000, 900, 230), is(500, 250, 230, 20));
        assert_eq!(share(1001, u64::MAX, u64::MAX), is(501, 250, 250, 0));
        assert_eq!(share(u64::MAX, u64::MAX, 0), is((1 << 63) + (1 << 61) + 1, (1 << 62) - 1, 0, (1 << 61) - 1));
    }

    const UNIT: [u8; 32] = [77; 32];

    /// A receipt for `units` units, of which UNIT is number `index`, and the proof.
    fn sold(lease: u8, from: u64, to: u64, units: u16, index: usize) -> (Receipt, Vec<merkle::Hash>) {
        let mut ids: Vec<merkle::Hash> = (0..units).map(|i| [&[lease; 30][..], &i.to_le_bytes()].concat().try_into().unwrap()).collect();
        ids[index] = UNIT;
        let (units_root, path) = build(&ids, index);
        let key = |k| Pubkey([k; 32]);
        (Receipt { units, lease: [lease; 32], provider: key(1), buyer: key(lease), units_root, from, to, cumulative: 5 }, path)
    }

    #[test]
    fn conflicts() {
        let check = |a: &Receipt, b: &Receipt, unit: &[u8; 32], pa: (u16, u16, &[merkle::Hash]), pb: (u16, u16, &[merkle::Hash])| {
            let [in_a, in_b] = [pa, pb].map(|(index, units, path)| UnitProof { index, units, path });
            check_conflict(a, b, unit, &in_a, &in_b)
        };
        for (units, index) in [(1, 0), (2, 1), (7, 3), (1024, 1000)] {
            let (a, path_a) = sold(3, 100, 200, units, index);
            let (b, path_b) = sold(4, 199, 300, 5, 2);
            let (pa, pb) = ((index as u16, units, &path_a[..]), (2, 5, &path_b[..]));
            assert_eq!(check(&a, &b, &UNIT, pa, pb), Ok(()));
            assert_eq!(check(&b, &a, &UNIT, pb, pa), Err(Error::LeaseOrder));
            assert_eq!(check(&a, &Receipt { provider: Pubkey([9; 32]), ..b }, &UNIT, pa, pb), Err(Error::Parties));
            assert_eq!(check(&a, &Receipt { lease: a.lease, ..b }, &UNIT, pa, pb), Err(Error::OneLease));
            for (from, to) in [(200, 300), (50, 100), (150, 150), (180, 150), (300, 400), (0, 0), (u64::MAX, u64::MAX)] {
                assert_eq!(check(&a, &Receipt { from, to, ..b }, &UNIT, pa, pb), Err(Error::NoOverlap), "{from} to {to}");
            }
            for (from, to) in [(50, 101), (150, 151), (0, u64::MAX), (100, 200)] {
                assert_eq!(check(&a, &Receipt { from, to, ..b }, &UNIT, pa, pb), Ok(()), "{from} to {to}");
            }
            assert_eq!(check(&a, &b, &[78; 32], pa, pb), Err(Error::Root));
            assert_eq!(check(&a, &b, &UNIT, (pa.0, units + 1, pa.2), pb), Err(Error::UnitCount));
            assert_eq!(check(&a, &b, &UNIT, pa, (2, 6, pb.2)), Err(Error::UnitCount));
            assert!(check(&Receipt { units: units + 1, ..a }, &b, &UNIT, (pa.0, units + 1, pa.2), pb).is_err(), "the root commits to the count");
            assert_eq!(check(&a, &b, &UNIT, (units, units, pa.2), pb), Err(Error::Index));
            assert!(check(&a, &b, &UNIT, pa, (1, 5, pb.2)).is_err());
            assert_eq!(check(&a, &b, &UNIT, pa, (2, 5, &[])), Err(Error::Path));
        }
        let (a, path) = sold(3, 100, 200, 2, 0);
        let none = Receipt { units: 0, lease: [4; 32], ..a };
        assert_eq!(check(&a, &none, &UNIT, (0, 2, &path), (0, 0, &[])), Err(Error::Index), "a receipt for nothing");
    }

    #[test]
    fn when_receipts_count() {
        let (r, _) = sold(3, 100, 200, 1, 0);
        let check = |now, evidence_slots, slashed| Admissible { now, evidence_slots, slashed }.check(r.to);
        assert_eq!(check(199, 1000, 0), Err(Error::NotOver));
        assert_eq!(check(200, 1000, 0), Ok(()));
        assert_eq!(check(300, 100, 0), Ok(()));
        assert_eq!(check(301, 100, 0), Err(Error::TooOld));
        assert_eq!(check(200, u64::MAX, 199), Ok(()));
        assert_eq!(check(250, 100, 200), Err(Error::SlashedBefore));
        assert_eq!(check(250, 100, 250), Err(Error::SlashedBefore));
        // What counted once never does again: it ended by then, and the slash is at that slot or after.
        for slashed in 200..260 {
            for now in slashed..300 {
                assert!(check(now, u64::MAX, slashed).is_err());
            }
        }
    }

    /// A provider that asks for its stake back cannot take it while a receipt from before it asked counts.
    #[test]
    fn unbonding_outlives_evidence() {
        let mut random = Random(7);
        let (mut r, _) = sold(3, 0, 0, 1, 0);
        for _ in 0..100_000 {
            let (asked, evidence_slots) = (random.next() >> 20, random.next() >> 30);
            let unbonding_slots = evidence_slots + 1 + (random.next() >> 40);
            r.to = asked - random.next() % (asked + 1);
            let ready = asked + unbonding_slots;
            assert_eq!(Admissible { now: ready, evidence_slots, slashed: 0 }.check(r.to), Err(Error::TooOld));
        }
    }

    #[test]
    fn unit_proofs_are_bounded() {
        let mut data = vec![1, 0, 3, 0, 2];
        data.extend([9; 64]);
        let mut r = Reader::new(&data);
        let p = UnitProof::read(&mut r).unwrap();
        assert_eq!((p.index, p.units, p.path.len(), r.end()), (1, 3, 2, Ok(())));
        for n in 0..data.len() {
            assert_eq!(UnitProof::read(&mut Reader::new(&data[..n])).err(), Some(Error::Data));
        }
    }
}
