//! Ballots and votes. On rules (network.rs) there are votes for and against; of an epoch's rewards (rewards.rs) verifiers
//! say only that they counted the same.
//!
//! A ballot's account has 256 bytes; its address is that of "ballot", the network, the provider that opened it, and the slot
//! that it named then, as of an escrow: such an address never returns.
//!
//! ```text
//!   0   1  kind = 7
//!   1   1  version = 1
//!   2   1  bump
//!   3   1  subject: 1 rules, 2 rewards
//!   4   1  state: 0 open, 1 it has taken effect
//!   5   3  reserved: 0
//!   8  32  network account
//!  40  32  provider that opened it
//!  72  32  rent payer
//! 104   8  opened: slot named at opening; what was bonded in it or later does not vote
//! 112   8  last slot to vote in
//! 120   8  first slot in which rules can take effect
//! 128   8  last slot in which they can
//! 136   8  sum that was bonded in the network at opening
//! 144   8  for
//! 152   8  against
//! 160   8  sequence of the network's rules at opening
//! 168  88  what it is about, then 0: rules or rewards
//!
//! rewards, 88 bytes
//!   0   1  source: 0 the emission; i the pool of the network's mint number i − 1
//!   1   3  reserved: 0
//!   4   4  count of payees, 1 to 65,536
//!   8   8  epoch
//!  16   8  sum of all rewards, base units; not 0
//!  24  32  root (merkle) over payee[32] ‖ amount u64
//!  56  32  SHA-256 of the table from which it was counted (chain/PROTOCOL.md): for those who vote, the program does not look at it
//! ```
//!
//! That a provider voted is noted in an account of 120 bytes, so that it votes once. Its address is that of "vote", the topic
//! and the provider; the topic is the ballot's address, but of rewards H("starling/rewards/v1" ‖ network ‖ source u8 ‖ epoch
//! u64), so that nobody confirms two roots of one epoch at a time. Of rewards a vote can be moved: it leaves one ballot for
//! another on the same epoch, so that a ballot that is not carried keeps nobody from the next.
//!
//! ```text
//!   0   1  kind = 8
//!   1   1  version = 1
//!   2   1  bump
//!   3   1  choice: 0 against, 1 for
//!   4   4  reserved: 0
//!   8  32  ballot
//!  40  32  provider
//!  72  32  rent payer
//! 104   8  last slot to vote in: after it the account can go
//! 112   8  what it had bonded
//! ```

use crate::account::Account;
use crate::error::{Error, Result};
use crate::escrow::OPENING;
use crate::input::Input;
use crate::network::Network;
use crate::provider::Provider;
use crate::pubkey::Pubkey;
use crate::reader::Reader;
use crate::rewards::{self, Rewards};
use crate::rules::MAX_RULES;
use crate::syscall::{find_program_address, sha256, Bytes};
use crate::system::New;
use crate::{kind, math, sysvar};

const KIND: [u8; 2] = [kind::BALLOT, 1];
const SIZE: u64 = 256;
const VOTE_KIND: [u8; 2] = [kind::VOTE, 1];
const VOTE_SIZE: u64 = 120;

pub const RULES: u8 = 1;
pub const REWARDS: u8 = 2;

const SUBJECT: usize = 3;
const STATE: usize = 4;
const NETWORK: usize = 8;
const PROPOSER: usize = 40;
const RENT_PAYER: usize = 72;
const OPENED: usize = 104;
const ENDS: usize = 112;
const RIPE: usize = 120;
const DEAD: usize = 128;
const TOTAL: usize = 136;
const FOR: usize = 144;
const AGAINST: usize = 152;
const SEQUENCE: usize = 160;
const ABOUT: usize = 168;

const DONE: u8 = 1;

/// Opens a ballot. Whoever has the least bond or more may: its owner, or of rewards its peer key too.
///
/// Accounts: payer (signs, writable), owner (signs), network, provider, ballot (writable), system program. Data: opened u64 ‖
/// subject u8 ‖ rules or rewards.
#[inline(never)]
pub fn propose(input: &Input, data: &[u8]) -> Result<()> {
    let mut r = Reader::new(data);
    let (opened, subject) = (r.u64()?, r.u8()?);
    let about = r.rest();
    let [payer, owner, network, account, ballot, system] = input.exactly()?;
    payer.must_sign()?.must_write()?;
    ballot.must_write()?;
    let provider = Provider::of(account, input.program)?;
    let network = provider.network(network, input.program)?;
    must_speak(&provider, owner, subject)?;
    let voting = network.voting()?;
    if provider.bonded()? < network.least_bond()? {
        return Err(Error::NotBonded);
    }
    let total = network.bonded()?;
    if total < network.least_bonded()? {
        return Err(Error::Quorum);
    }
    let now = sysvar::clock()?.slot;
    if opened > now || now > math::add(opened, OPENING)? {
        return Err(Error::Opened);
    }
    match subject {
        RULES => network.check_rules(about)?,
        REWARDS => Rewards::read(about)?.check(&network, now)?,
        _ => return Err(Error::Subject),
    }

    let opened_bytes = opened.to_le_bytes();
    let seeds = [Bytes::new(b"ballot"), Bytes::new(&network.0.key().0), Bytes::new(&account.key().0), Bytes::new(&opened_bytes)];
    let (address, bump) = find_program_address(&seeds, input.program)?;
    ballot.must_be(&address)?;
    let bump = [bump];
    let [a, b, c, d] = seeds;
    New { payer, account: ballot, system, space: SIZE, program: input.program, seeds: &[a, b, c, d, Bytes::new(&bump)] }.create()?;
    let ends = math::add(now, voting)?;
    let ripe = math::add(math::add(ends, network.lock()?)?, 1)?;
    ballot.write(0, &KIND)?;
    ballot.write(2, &[bump[0], subject])?;
    ballot.write(NETWORK, &network.0.key().0)?;
    ballot.write(PROPOSER, &account.key().0)?;
    ballot.write(RENT_PAYER, &payer.key().0)?;
    for (offset, value) in [(OPENED, opened), (ENDS, ends), (RIPE, ripe), (DEAD, math::add(ripe, voting)?), (TOTAL, total), (SEQUENCE, network.sequence()?)] {
        ballot.write_u64(offset, value)?;
    }
    ballot.copy(ABOUT, about)
}

/// Who may speak for a provider: the owner decides on rules; rewards are counted by its machine, so its peer key may too.
fn must_speak(provider: &Provider, signer: &Account, subject: u8) -> Result<()> {
    if subject == RULES { provider.must_be_owned_by(signer) } else { provider.must_be_spoken_for_by(signer) }
}

/// Votes with all that a provider has bonded. It stays bonded until the vote is over. Of rewards a vote may be moved from
/// another ballot on the same epoch that has not taken effect; it takes with it what it was counted as there.
///
/// Accounts: payer (signs, writable), owner or, of rewards, peer key (signs), provider (writable), ballot (writable), vote
/// (writable), system program, ballot that the vote is moved from (writable) or the program's address: none. Data: choice u8:
/// 0 against, 1 for; only of rules 0.
#[inline(never)]
pub fn vote(input: &Input, data: &[u8]) -> Result<()> {
    let mut r = Reader::new(data);
    let choice = r.u8()?;
    r.end()?;
    let [payer, owner, account, ballot, vote, system, former] = input.exactly()?;
    payer.must_sign()?.must_write()?;
    account.must_write()?;
    vote.must_write()?;
    let ballot = Ballot::open(ballot, input.program)?;
    let provider = Provider::of(account, input.program)?;
    if provider.network_key()? != ballot.network()? {
        return Err(Error::OtherNetwork);
    }
    let subject = ballot.subject()?;
    must_speak(&provider, owner, subject)?;
    if choice > 1 || (subject != RULES && choice != 1) {
        return Err(Error::Data);
    }
    let ends = ballot.0.read_u64(ENDS)?;
    if sysvar::clock()?.slot > ends {
        return Err(Error::Over);
    }
    let weight = provider.bonded()?;
    if weight == 0 || provider.raised()? >= ballot.0.read_u64(OPENED)? {
        return Err(Error::NotBonded);
    }

    let topic = ballot.topic()?;
    let seeds = [Bytes::new(b"vote"), Bytes::new(&topic), Bytes::new(&account.key().0)];
    let (address, bump) = find_program_address(&seeds, input.program)?;
    vote.must_be(&address)?;
    if former.key() == input.program {
        let bump = [bump];
        let [a, b, c] = seeds;
        New { payer, account: vote, system, space: VOTE_SIZE, program: input.program, seeds: &[a, b, c, Bytes::new(&bump)] }.create()?;
        vote.write(0, &VOTE_KIND)?;
        vote.write(2, &[bump[0], choice])?;
        vote.write(40, &account.key().0)?;
        vote.write(72, &payer.key().0)?;
    } else {
        leave(vote, former, ballot.0.key(), input.program)?;
    }
    vote.write(8, &ballot.0.key().0)?;
    vote.write_u64(104, ends)?;
    vote.write_u64(112, weight)?;
    let side = if choice == 1 { FOR } else { AGAINST };
    ballot.0.write_u64(side, math::add(ballot.0.read_u64(side)?, weight)?)?;
    provider.freeze(ends)
}

/// Takes a vote off the ballot that it was cast on: [`Error::Kind`] when there is none, [`Error::Exists`] when it was cast on
/// `ballot`, [`Error::Address`] when on another than `former`, [`Error::Over`] when that one has taken effect. Only of rewards can a
/// vote on another ballot stand at this one's topic.
fn leave(vote: &Account, former: &Account, ballot: &Pubkey, program: &Pubkey) -> Result<()> {
    must_be_vote(vote, program)?;
    let cast = vote.read_key(8)?;
    if cast == *ballot {
        return Err(Error::Exists);
    }
    let former = Ballot::open(former.must_be(&cast)?, program)?;
    former.0.write_u64(FOR, math::sub(former.0.read_u64(FOR)?, vote.read_u64(112)?)?)
}

fn must_be_vote(vote: &Account, program: &Pubkey) -> Result<()> {
    vote.must_belong_to(program)?;
    if vote.len() as u64 != VOTE_SIZE || vote.read::<2>(0)? != VOTE_KIND { Err(Error::Kind) } else { Ok(()) }
}

/// Ends the note of a vote that is over; the rent goes back to who paid it. Anybody may.
///
/// Accounts: vote (writable), rent payer (writable). No data.
#[inline(never)]
pub fn close_vote(input: &Input, data: &[u8]) -> Result<()> {
    Reader::new(data).end()?;
    let [vote, rent_payer] = input.exactly()?;
    must_be_vote(vote.must_write()?, input.program)?;
    rent_payer.must_write()?.must_be(&vote.read_key(72)?)?;
    if sysvar::clock()?.slot <= vote.read_u64(104)? {
        return Err(Error::Early);
    }
    vote.close(rent_payer)
}

/// Makes rules that were voted for those of the network: once the lock is over, and only while no others took effect since the
/// ballot was opened. Anybody may.
///
/// Accounts: network (writable), ballot (writable). No data.
#[inline(never)]
pub fn enact(input: &Input, data: &[u8]) -> Result<()> {
    Reader::new(data).end()?;
    let [network, ballot] = input.exactly()?;
    let ballot = Ballot::open(ballot, input.program)?;
    let network = Network::at(network.must_write()?, &ballot.network()?, input.program)?;
    if ballot.subject()? != RULES {
        return Err(Error::Subject);
    }
    let now = sysvar::clock()?.slot;
    if now < ballot.0.read_u64(RIPE)? {
        return Err(Error::Early);
    }
    if now > ballot.0.read_u64(DEAD)? {
        return Err(Error::Over);
    }
    if ballot.0.read_u64(SEQUENCE)? != network.sequence()? {
        return Err(Error::Superseded);
    }
    let (total, yes, no) = ballot.votes()?;
    if !(outweighs(yes, no) && yes > math::sub(total, yes)?) {
        return Err(Error::NotCarried);
    }
    let all = ballot.0.read::<MAX_RULES>(ABOUT)?;
    let rules = all.get(..network.rules_size()?).ok_or(Error::Bounds)?;
    network.check_rules(rules)?;
    network.set_rules(rules)?;
    ballot.done()
}

/// Ends a ballot's account when nothing can come of it any more; the rent goes back to who paid it. Anybody may.
///
/// Accounts: ballot (writable), rent payer (writable). No data.
#[inline(never)]
pub fn close_ballot(input: &Input, data: &[u8]) -> Result<()> {
    Reader::new(data).end()?;
    let [ballot, rent_payer] = input.exactly()?;
    let ballot = Ballot::of(ballot, input.program)?;
    rent_payer.must_write()?.must_be(&ballot.0.read_key(RENT_PAYER)?)?;
    let now = sysvar::clock()?.slot;
    if now <= ballot.0.read_u64(DEAD)? || now <= math::add(ballot.0.read_u64(OPENED)?, OPENING)? {
        return Err(Error::Early);
    }
    ballot.0.close(rent_payer)
}

/// Whether one side is more than twice the other.
pub fn outweighs(one: u64, other: u64) -> bool {
    one > 0 && one.wrapping_sub(1) / 2 >= other
}

/// A ballot's account, which can be written.
pub struct Ballot<'a>(pub Account<'a>);

impl<'a> Ballot<'a> {
    /// [`Error::NotWritable`], [`Error::Owner`], [`Error::Kind`].
    pub fn of(account: &Account<'a>, program: &Pubkey) -> Result<Self> {
        account.must_write()?.must_belong_to(program)?;
        if account.len() as u64 != SIZE || account.read::<2>(0)? != KIND {
            return Err(Error::Kind);
        }
        Ok(Ballot(*account))
    }

    /// One that has not taken effect: [`Error::Over`].
    pub fn open(account: &Account<'a>, program: &Pubkey) -> Result<Self> {
        let ballot = Ballot::of(account, program)?;
        if ballot.0.read_u8(STATE)? == DONE {
            return Err(Error::Over);
        }
        Ok(ballot)
    }

    pub fn network(&self) -> Result<Pubkey> {
        self.0.read_key(NETWORK)
    }

    pub fn subject(&self) -> Result<u8> {
        self.0.read_u8(SUBJECT)
    }

    /// What was bonded at opening, and how much of it is for and against.
    pub fn votes(&self) -> Result<(u64, u64, u64)> {
        Ok((self.0.read_u64(TOTAL)?, self.0.read_u64(FOR)?, self.0.read_u64(AGAINST)?))
    }

    /// [`Error::Subject`] when it is about something else.
    pub fn rewards(&self) -> Result<Rewards> {
        if self.subject()? != REWARDS {
            return Err(Error::Subject);
        }
        Rewards::read(&self.0.read::<{ rewards::SIZE }>(ABOUT)?)
    }

    /// [`Error::NotCarried`] unless more than two thirds of all that was bonded at opening are for it.
    pub fn must_be_confirmed(&self) -> Result<()> {
        let (total, confirmed, _) = self.votes()?;
        if outweighs(confirmed, math::sub(total, confirmed)?) { Ok(()) } else { Err(Error::NotCarried) }
    }

    pub fn done(&self) -> Result<()> {
        self.0.write(STATE, &[DONE])
    }

    /// What a provider votes on once.
    fn topic(&self) -> Result<[u8; 32]> {
        if self.subject()? != REWARDS {
            return Ok(self.0.key().0);
        }
        let (rewards, network) = (self.rewards()?, self.network()?);
        let (source, epoch) = ([rewards.source], rewards.epoch.to_le_bytes());
        Ok(sha256(&[Bytes::new(b"starling/rewards/v1"), Bytes::new(&network.0), Bytes::new(&source), Bytes::new(&epoch)]))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn more_than_two_thirds() {
        for total in 0..200u64 {
            for yes in 0..=total {
                assert_eq!(outweighs(yes, total - yes), yes * 3 > total * 2, "{yes} of {total}");
            }
        }
        assert!(outweighs(u64::MAX, u64::MAX / 2) && !outweighs(u64::MAX - 1, u64::MAX / 2) && !outweighs(0, 0) && !outweighs(u64::MAX, u64::MAX));
    }
}
