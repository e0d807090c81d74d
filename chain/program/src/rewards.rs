//! Rewards: the payments of an epoch, from the emission or from a pool, under one root that verifiers confirmed.
//!
//! Who gets how much is counted outside (chain/PROTOCOL.md) and put under a Merkle root of payee[32] ‖ amount u64. The root
//! is accepted when more than two thirds of all that is bonded say that they counted the same, at the latest a month after the
//! epoch. Then its sum moves into a vault of its own, out of which each payee is paid once. So whatever is under the root, no
//! more can be paid than the sum, and the sum was no more than the schedule gives the epoch (emission.rs), or than is in the pool.
//!
//! An accepted root's account, 144 + ⌈count / 8⌉ bytes, is at "payout", the network, the source u8 and the epoch u64, so that an
//! epoch has one; it stays for at least three months, longer than another could be accepted for the epoch:
//!
//! ```text
//!   0   1  kind = 9
//!   1   1  version = 1
//!   2   1  bump
//!   3   1  source, as in a ballot
//!   4   1  bump of the vault
//!   5   3  reserved: 0
//!   8  32  network account
//!  40  32  rent payer
//!  72  32  root
//! 104   8  epoch
//! 112   8  sum
//! 120   8  paid of it
//! 128   8  last slot that it stays at least
//! 136   4  count of payees
//! 140   4  how many were paid
//! 144   -  a bit for each, lowest first: it was paid
//! ```
//!
//! Its vault is the token account at "rewards" and its address, owned by it. What nobody claimed goes back to where it came
//! from: into the pool, where it is divided again, or into the emission's account, from which it is never paid again.

use crate::account::Account;
use crate::ballot::Ballot;
use crate::emission;
use crate::error::{Error, Result};
use crate::input::Input;
use crate::merkle;
use crate::network::{self, Network};
use crate::pubkey::Pubkey;
use crate::reader::Reader;
use crate::syscall::{find_program_address, program_address, Bytes};
use crate::system::New;
use crate::token::{self, Movement};
use crate::{kind, math, sysvar};

const KIND: [u8; 2] = [kind::PAYOUT, 1];
const HEAD: usize = 144;
/// Length of a ballot's rewards.
pub const SIZE: usize = 88;
/// Most payees of an epoch.
const MAX_COUNT: u32 = 1 << 16;

const SOURCE: usize = 3;
const VAULT_BUMP: usize = 4;
const NETWORK: usize = 8;
const RENT_PAYER: usize = 40;
const ROOT: usize = 72;
const EPOCH: usize = 104;
const PAID: usize = 120;
const STAYS: usize = 128;
const COUNT: usize = 136;
const CLAIMS: usize = 140;

/// A ballot's rewards.
pub struct Rewards {
    /// 0 the emission, i the pool of mint number i − 1.
    pub source: u8,
    pub count: u32,
    pub epoch: u64,
    pub sum: u64,
    pub root: [u8; 32],
}

impl Rewards {
    /// [`Error::Data`].
    pub fn read(b: &[u8]) -> Result<Self> {
        let mut r = Reader::new(b);
        let (source, reserved) = (r.u8()?, r.array::<3>()?);
        let rewards = Rewards { source, count: r.u32()?, epoch: r.u64()?, sum: r.u64()?, root: *r.array()? };
        r.array::<32>()?; // hash of the table, which the program does not see
        r.end()?;
        if *reserved == [0; 3] { Ok(rewards) } else { Err(Error::Data) }
    }

    /// Whether they may be voted on now: [`Error::Mint`], [`Error::Index`], [`Error::Amount`], [`Error::Epoch`],
    /// [`Error::Allowance`].
    pub fn check(&self, network: &Network, now: u64) -> Result<()> {
        if self.source > network.mints()? {
            return Err(Error::Mint);
        }
        if self.count == 0 || self.count > MAX_COUNT {
            return Err(Error::Index);
        }
        if self.sum == 0 {
            return Err(Error::Amount);
        }
        self.check_time(network, now)?;
        if self.source == 0 && self.sum > emission::epoch(network.emission_cap()?, network.epochs_of_month()?, self.epoch)? {
            return Err(Error::Allowance);
        }
        Ok(())
    }

    /// From the end of the epoch for a month: [`Error::Epoch`].
    fn check_time(&self, network: &Network, now: u64) -> Result<()> {
        let over = network.epoch_end(self.epoch)?;
        if now < over || now > math::add(over, network.month()?)? {
            return Err(Error::Epoch);
        }
        Ok(())
    }
}

/// The account that rewards of a source and a mint come from: [`Error::Mint`] when the source has another mint.
fn source(source: u8, network: &Network, mint: &Pubkey, program: &Pubkey) -> Result<Pubkey> {
    let (of, (address, _)) = match source.checked_sub(1) {
        None => (network.stake_mint()?, network::emission(network.0.key(), program)?),
        Some(i) => (network.mint(i)?.mint, network::pool(network.0.key(), mint, program)?),
    };
    if of == *mint { Ok(address) } else { Err(Error::Mint) }
}

/// Creates the token account that the emission is paid from. Anybody may, and anybody may put tokens into it: no more comes
/// out than the schedule gives.
///
/// Accounts: payer (signs, writable), network, stake mint, emission (writable; its address is in network.rs), token program,
/// system program. No data.
#[inline(never)]
pub fn init_emission(input: &Input, data: &[u8]) -> Result<()> {
    Reader::new(data).end()?;
    let [payer, account, mint, vault, token, system] = input.exactly()?;
    payer.must_sign()?.must_write()?;
    vault.must_write()?;
    token.must_be(&Pubkey::TOKEN)?;
    let network = Network::of(account, input.program)?;
    if network.emission_cap()? == 0 {
        return Err(Error::NoVotes);
    }
    if network.stake_mint()? != *mint.key() {
        return Err(Error::Mint);
    }
    let (address, bump) = network::emission(account.key(), input.program)?;
    vault.must_be(&address)?;
    let bump = [bump];
    let seeds = [Bytes::new(b"emission"), Bytes::new(&account.key().0), Bytes::new(&bump)];
    New { payer, account: vault, system, space: token::ACCOUNT_SIZE, program: &Pubkey::TOKEN, seeds: &seeds }.create()?;
    token::initialize(vault, mint, account.key())
}

/// Accepts the root that more than two thirds confirmed, and sets its sum aside. Anybody may.
///
/// Accounts: payer (signs, writable), network (writable), ballot (writable), source (writable; the emission's account or the
/// pool), mint, payout (writable), its vault (writable), token program, system program. No data.
#[inline(never)]
pub fn accept(input: &Input, data: &[u8]) -> Result<()> {
    Reader::new(data).end()?;
    let [payer, network_account, ballot, from, mint, account, vault, token, system] = input.exactly()?;
    payer.must_sign()?.must_write()?;
    network_account.must_write()?;
    from.must_write()?;
    account.must_write()?;
    vault.must_write()?;
    token.must_be(&Pubkey::TOKEN)?;
    let ballot = Ballot::open(ballot, input.program)?;
    let network = Network::at(network_account, &ballot.network()?, input.program)?;
    let rewards = ballot.rewards()?;
    let now = sysvar::clock()?.slot;
    rewards.check_time(&network, now)?;
    ballot.must_be_confirmed()?;
    from.must_be(&source(rewards.source, &network, mint.key(), input.program)?)?;

    let (kind_of, epoch) = ([rewards.source], rewards.epoch.to_le_bytes());
    let seeds = [Bytes::new(b"payout"), Bytes::new(&network_account.key().0), Bytes::new(&kind_of), Bytes::new(&epoch)];
    let (address, bump) = find_program_address(&seeds, input.program)?;
    account.must_be(&address)?;
    let bump = [bump];
    let [a, b, c, d] = seeds;
    let space = u64::from(rewards.count.div_ceil(8)).wrapping_add(HEAD as u64);
    New { payer, account, system, space, program: input.program, seeds: &[a, b, c, d, Bytes::new(&bump)] }.create()?;
    let vault_bump = new_vault(payer, account, vault, mint, system, input.program)?;
    account.write(0, &KIND)?;
    account.write(2, &[bump[0], rewards.source, vault_bump])?;
    account.write(NETWORK, &network_account.key().0)?;
    account.write(RENT_PAYER, &payer.key().0)?;
    account.write(ROOT, &rewards.root)?;
    account.write_u64(EPOCH, rewards.epoch)?;
    account.write_u64(112, rewards.sum)?;
    account.write_u64(STAYS, math::add(now, network.claiming()?)?)?;
    account.write(COUNT, &rewards.count.to_le_bytes())?;
    if rewards.source == 0 {
        network.emitted(rewards.sum)?;
    }
    ballot.done()?;
    let seal = network.seal()?;
    let decimals = token::decimals(mint)?;
    Movement { from, mint, authority: network_account, amount: rewards.sum, decimals, signer: Some(&seal.seeds()) }.transfer(vault)
}

/// Makes a payout's vault; its bump.
fn new_vault(payer: &Account, payout: &Account, vault: &Account, mint: &Account, system: &Account, program: &Pubkey) -> Result<u8> {
    let of = Bytes::new(&payout.key().0);
    let (address, bump) = find_program_address(&[Bytes::new(VAULT_SEED), of], program)?;
    vault.must_be(&address)?;
    let bump = [bump];
    let seeds = [Bytes::new(VAULT_SEED), of, Bytes::new(&bump)];
    New { payer, account: vault, system, space: token::ACCOUNT_SIZE, program: &Pubkey::TOKEN, seeds: &seeds }.create()?;
    token::initialize(vault, mint, payout.key())?;
    Ok(bump[0])
}

const VAULT_SEED: &[u8] = b"rewards";

/// Pays one reward into its payee's associated token account, or if that signs into another of its, once. Anybody may.
///
/// Accounts: payout (writable), its vault (writable), destination (writable), mint, token program, payee (signs) if it does. Data:
/// index u32 ‖ amount u64 ‖ n u8 ‖ n × sibling[32], lowest first.
#[inline(never)]
pub fn claim_reward(input: &Input, data: &[u8]) -> Result<()> {
    let mut r = Reader::new(data);
    let (index, amount, n) = (r.u32()?, r.array::<8>()?, r.u8()?);
    let path = r.arrays(n.into())?;
    r.end()?;
    let ([account, vault, destination, mint, token], owner) = input.and_signer()?;
    let payout = Payout::of(account, input.program)?;
    payout.must_keep_in(vault, input.program)?;
    token.must_be(&Pubkey::TOKEN)?;
    if destination.must_write()?.is(vault) {
        return Err(Error::Duplicate);
    }
    let payee = token::holding(destination)?;
    if payee.mint != *mint.key() {
        return Err(Error::Mint);
    }
    token::check_payee(destination, mint.key(), &payee.owner, owner)?;
    let mut leaf = [0; 40];
    leaf[..32].copy_from_slice(&payee.owner.0);
    leaf[32..].copy_from_slice(amount);
    let proof = merkle::Proof { data: &leaf, index: index.into(), count: account.read_u32(COUNT)?.into(), path };
    merkle::verify(&proof, &account.read(ROOT)?)?;
    payout.mark(index)?;
    let amount = u64::from_le_bytes(*amount);
    account.write_u64(PAID, math::add(account.read_u64(PAID)?, amount)?)?;
    let signature = payout.signature()?;
    let decimals = token::decimals(mint)?;
    Movement { from: vault, mint, authority: account, amount, decimals, signer: Some(&signature.seeds()) }.transfer(destination)
}

/// Ends an epoch's payout once it need not stay; what was not claimed goes back to where it came from, the rent to who paid
/// it. Anybody may.
///
/// Accounts: payout (writable), its vault (writable), source (writable), mint, network, token program, rent payer (writable).
/// No data.
#[inline(never)]
pub fn close_payout(input: &Input, data: &[u8]) -> Result<()> {
    Reader::new(data).end()?;
    let [account, vault, to, mint, network, token_program, rent_payer] = input.exactly()?;
    let payout = Payout::of(account, input.program)?;
    payout.must_keep_in(vault, input.program)?;
    token_program.must_be(&Pubkey::TOKEN)?;
    rent_payer.must_write()?.must_be(&account.read_key(RENT_PAYER)?)?;
    let network = Network::at(network, &account.read_key(NETWORK)?, input.program)?;
    to.must_write()?.must_be(&source(account.read_u8(SOURCE)?, &network, mint.key(), input.program)?)?;
    if sysvar::clock()?.slot <= account.read_u64(STAYS)? {
        return Err(Error::Early);
    }
    let signature = payout.signature()?;
    let seeds = signature.seeds();
    let amount = token::amount(vault)?;
    if amount > 0 {
        let decimals = token::decimals(mint)?;
        Movement { from: vault, mint, authority: account, amount, decimals, signer: Some(&seeds) }.transfer(to)?;
    }
    token::close(vault, rent_payer, account, Some(&seeds))?;
    account.close(rent_payer)
}

/// An accepted root's account, which can be written.
struct Payout<'a>(Account<'a>);

impl<'a> Payout<'a> {
    /// [`Error::NotWritable`], [`Error::Owner`], [`Error::Kind`].
    fn of(account: &Account<'a>, program: &Pubkey) -> Result<Self> {
        account.must_write()?.must_belong_to(program)?;
        if account.len() < HEAD || account.read::<2>(0)? != KIND {
            return Err(Error::Kind);
        }
        Ok(Payout(*account))
    }

    /// [`Error::Address`] when the account is not its vault.
    fn must_keep_in(&self, vault: &Account, program: &Pubkey) -> Result<()> {
        let bump = self.0.read::<1>(VAULT_BUMP)?;
        let address = program_address(&[Bytes::new(VAULT_SEED), Bytes::new(&self.0.key().0), Bytes::new(&bump)], program)?;
        vault.must_write()?.must_be(&address)?;
        Ok(())
    }

    /// Records the payment of a payee with an index below the count: [`Error::Claimed`].
    fn mark(&self, index: u32) -> Result<()> {
        let at = (index as usize / 8).wrapping_add(HEAD);
        let (bits, bit) = (self.0.read_u8(at)?, 1u8 << (index % 8));
        if bits & bit != 0 {
            return Err(Error::Claimed);
        }
        self.0.write(at, &[bits | bit])?;
        self.0.write(CLAIMS, &self.0.read_u32(CLAIMS)?.wrapping_add(1).to_le_bytes())
    }

    fn signature(&self) -> Result<Signature> {
        Ok(Signature { network: self.0.read_key(NETWORK)?, source: self.0.read(SOURCE)?, epoch: self.0.read(EPOCH)?, bump: self.0.read(2)? })
    }
}

/// Holds the seeds of a payout's address.
struct Signature {
    network: Pubkey,
    source: [u8; 1],
    epoch: [u8; 8],
    bump: [u8; 1],
}

impl Signature {
    fn seeds(&self) -> [Bytes<'_>; 5] {
        [Bytes::new(b"payout"), Bytes::new(&self.network.0), Bytes::new(&self.source), Bytes::new(&self.epoch), Bytes::new(&self.bump)]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::input::{table, tests::Region};

    #[test]
    fn each_is_paid_once() {
        let mut data = vec![kind::PAYOUT, 1];
        data.resize(HEAD + 3, 0);
        let mut region = Region::default().account(1, 0xee, false, true, 1, &data);
        let mut accounts = table();
        let input = unsafe { Input::parse(region.finish(b""), &mut accounts) }.unwrap();
        let payout = Payout::of(&input.accounts[0], input.program).unwrap();
        for i in [0, 7, 8, 23, 15] {
            assert_eq!(payout.mark(i), Ok(()), "{i}");
            assert_eq!(payout.mark(i), Err(Error::Claimed), "{i}");
        }
        assert_eq!(payout.0.read(HEAD), Ok([0b1000_0001, 0b1000_0001, 0b1000_0000]));
        assert_eq!((payout.0.read_u32(CLAIMS), payout.mark(24)), (Ok(5), Err(Error::Bounds)));
    }

    #[test]
    fn what_a_ballot_says() {
        let mut b = vec![2, 0, 0, 0];
        b.extend(3u32.to_le_bytes());
        b.extend(4u64.to_le_bytes());
        b.extend(5u64.to_le_bytes());
        b.extend([6; 32]);
        b.extend([7; 32]);
        let r = Rewards::read(&b).unwrap();
        assert_eq!((r.source, r.count, r.epoch, r.sum, r.root), (2, 3, 4, 5, [6; 32]));
        for cut in 0..SIZE {
            assert_eq!(Rewards::read(&b[..cut]).err(), Some(Error::Data));
        }
        for i in 1..4 {
            let mut bad = b.clone();
            bad[i] = 1;
            assert_eq!(Rewards::read(&bad).err(), Some(Error::Data));
        }
    }
}
