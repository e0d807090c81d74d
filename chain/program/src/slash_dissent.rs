//! Slashing for a false result of a deterministic program (verify/PROTOCOL.md, section 10).
//!
//! The program cannot run WebAssembly. So those who have something bonded run the work again, each for itself, and vote on a
//! ballot of 64 bytes: the receipt's hash ‖ the output that is true. When more than two thirds of all that is bonded computed
//! that output, the provider that signed another one in the receipt loses its stake. Whoever runs the work again offline sees
//! whether they were right.
//!
//! The economics are those of slash, with one victim: the buyer of the receipt.

use crate::attest::Attested;
use crate::ballot::Ballot;
use crate::error::{Error, Result};
use crate::input::Input;
use crate::provider::Provider;
use crate::pubkey::{same, Pubkey};
use crate::reader::Reader;
use crate::slash::{share, take, Admissible};
use crate::sysvar;
use crate::token::{self, Movement};

/// Length of what a ballot says of a dissent.
pub const SIZE: usize = 64;

/// What a ballot says of a false result.
pub struct Dissent {
    /// H("starling/receipt/v1" ‖ core) of the receipt with the false output.
    pub receipt: [u8; 32],
    /// The output that is true.
    pub output: [u8; 32],
}

impl Dissent {
    /// [`Error::Data`].
    pub fn read(b: &[u8]) -> Result<Self> {
        let mut r = Reader::new(b);
        let dissent = Dissent { receipt: *r.array()?, output: *r.array()? };
        r.end()?;
        Ok(dissent)
    }
}

/// Takes a provider's stake, with what is unbonding, for a false result that more than two thirds of what is bonded confirmed.
///
/// The receipt is its lease's last one, attested by the reporter, who is paid and need not sign. It counts as receipts do: over,
/// not too old, and after the last slash, so that it counts once.
///
/// Accounts: network (writable), provider (writable), vault (writable), stake mint (writable), ballot (writable), attested
/// receipt, token account of its buyer (writable), of its reporter (writable), token program. No data.
#[inline(never)]
pub fn slash_dissent(input: &Input, data: &[u8]) -> Result<()> {
    Reader::new(data).end()?;
    let [network, account, vault, mint, ballot, shown, victim, reporter, token] = input.exactly()?;
    for written in [network, account, vault, mint, victim, reporter] {
        written.must_write()?;
    }
    token.must_be(&Pubkey::TOKEN)?;
    let provider = Provider::of(account, input.program)?;
    let rules = provider.network(network, input.program)?;
    provider.must_keep_stake_in(vault, input.program)?;
    let ballot = Ballot::open(ballot, input.program)?;
    let attested = Attested::of(shown, input.program)?;
    if ballot.network()? != *network.key() || attested.network != *network.key() {
        return Err(Error::OtherNetwork);
    }
    if !provider.answers_for(&attested.receipt.provider)? {
        return Err(Error::NotItsKey);
    }
    let dissent = ballot.dissent()?;
    let (receipt, output) = Attested::last(shown)?;
    if !same(&dissent.receipt, &receipt) {
        return Err(Error::Subject);
    }
    if same(&dissent.output, &output) {
        return Err(Error::NoLie);
    }
    ballot.must_be_confirmed()?;
    let now = sysvar::clock()?.slot;
    Admissible { now, evidence_slots: rules.evidence()?, slashed: provider.slashed()? }.check(attested.receipt.to)?;

    token::check_holding(victim, mint.key(), &attested.receipt.buyer)?;
    token::check_holding(reporter, mint.key(), &attested.reporter)?;
    let shares = share(take(&provider, &rules, now)?, attested.receipt.cumulative, 0);
    ballot.done()?;
    let signature = provider.signature()?;
    let seeds = signature.seeds();
    let decimals = token::decimals(mint)?;
    let movement = |amount| Movement { from: vault, mint, authority: account, amount, decimals, signer: Some(&seeds) };
    movement(shares.burned).burn()?;
    for (to, amount) in [(victim, shares.victim_a), (reporter, shares.reporter)] {
        if amount > 0 {
            movement(amount).transfer(to)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_ballot_says_of_a_dissent() {
        let mut b = vec![1; 32];
        b.extend([2; 32]);
        let d = Dissent::read(&b).unwrap();
        assert_eq!((d.receipt, d.output), ([1; 32], [2; 32]));
        for cut in 0..SIZE {
            assert_eq!(Dissent::read(&b[..cut]).err(), Some(Error::Data));
        }
        b.push(0);
        assert_eq!(Dissent::read(&b).err(), Some(Error::Data));
    }
}
