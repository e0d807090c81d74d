//! Providers: their peer key, owner and payout wallet.
//!
//! The owner is a wallet. The peer key is the one the provider's machine signs leases and receipts with; here it may say
//! what the machine has, and nothing else. It never changes: one stake stands behind one key, under which the provider sells. Who
//! loses the key takes the stake out, and registers another key. A provider's account is never closed: what it was slashed for must
//! not be forgotten. It has 256 bytes; its address is that of "provider", the network account and the peer key:
//!
//! ```text
//!   0   1  kind = 5
//!   1   1  version = 1
//!   2   1  bump of its address
//!   3   1  flags: bit 0 it was slashed before
//!   4   1  bump of its vault's address
//!   5   3  reserved: 0
//!   8  32  network account
//!  40  32  peer key
//!  72  32  owner
//! 104  32  payout wallet
//! 136  32  hash of the inventory of its units
//! 168   8  stake, base units of the network's stake mint
//! 176   8  unbonding: no stake any more, and slashed with it, until it is withdrawn
//! 184   8  slot from which that can be; 0 when nothing is
//! 192   8  slot of the last slash; 0 never
//! 200   8  slot in which it registered
//! 208   8  sequence: how often owner or peer key changed something above stake
//! 216   8  bonded: part of the stake that votes, and cannot be asked back
//! 224   8  slot in which bonded was last raised
//! 232   8  last slot of the votes that it took part in: until then bonded stays
//! 240  16  reserved: 0
//! ```
//!
//! Its vault is the token account at "stake" and the provider's address, owned by that address. Tokens that somebody sends
//! there without the instruction stake are not counted and stay.

use crate::account::Account;
use crate::error::{Error, Result};
use crate::input::Input;
use crate::math;
use crate::network::Network;
use crate::pubkey::Pubkey;
use crate::reader::Reader;
use crate::syscall::{find_program_address, program_address, Bytes};
use crate::system::New;
use crate::{kind, sysvar, token};

const KIND: [u8; 2] = [kind::PROVIDER, 1];
const SIZE: u64 = 256;

const SEED: &[u8] = b"provider";
const VAULT_SEED: &[u8] = b"stake";

const BUMP: usize = 2;
const FLAGS: usize = 3;
const VAULT_BUMP: usize = 4;
const NETWORK: usize = 8;
const PEER: usize = 40;
const OWNER: usize = 72;
const PAYOUT: usize = 104;
const INVENTORY: usize = 136;
const STAKE: usize = 168;
const UNBONDING: usize = 176;
const READY: usize = 184;
const SLASHED: usize = 192;
const REGISTERED: usize = 200;
const SEQUENCE: usize = 208;
const BONDED: usize = 216;
const RAISED: usize = 224;
const FROZEN: usize = 232;

const WAS_SLASHED: u8 = 1;

/// What [`update`] can set, each a bit.
const SET_PAYOUT: u8 = 1;
const SET_INVENTORY: u8 = 2;
const SET_OWNER: u8 = 4;

/// Enters a provider, with an empty vault. Peer key and owner both agree by signing; they may be one.
///
/// Accounts: payer (signs, writable), owner (signs), peer key (signs), network, provider (writable), vault (writable),
/// stake mint, token program, system program. Data: payout[32] ‖ inventory hash[32].
#[inline(never)]
pub fn register(input: &Input, data: &[u8]) -> Result<()> {
    let mut r = Reader::new(data);
    let (payout, inventory) = (r.pubkey()?, r.array::<32>()?);
    r.end()?;
    let [payer, owner, peer, network, account, vault, mint, token, system] = input.exactly()?;
    payer.must_sign()?.must_write()?;
    owner.must_sign()?;
    peer.must_sign()?;
    account.must_write()?;
    vault.must_write()?;
    token.must_be(&Pubkey::TOKEN)?;
    mint.must_be(&Network::of(network, input.program)?.stake_mint()?)?;
    if payout.is_zero() {
        return Err(Error::ZeroKey);
    }

    let (network, peer) = (network.key(), peer.key());
    let (address, bump) = find_program_address(&[Bytes::new(SEED), Bytes::new(&network.0), Bytes::new(&peer.0)], input.program)?;
    account.must_be(&address)?;
    let (address, vault_bump) = find_program_address(&[Bytes::new(VAULT_SEED), Bytes::new(&address.0)], input.program)?;
    vault.must_be(&address)?;
    let bump = [bump];
    New { payer, account, system, space: SIZE, program: input.program, seeds: &seeds(network, peer, &bump) }.create()?;
    let vault_bump = [vault_bump];
    let vault_seeds = [Bytes::new(VAULT_SEED), Bytes::new(&account.key().0), Bytes::new(&vault_bump)];
    New { payer, account: vault, system, space: token::ACCOUNT_SIZE, program: &Pubkey::TOKEN, seeds: &vault_seeds }.create()?;
    token::initialize(vault, mint, account.key())?;

    account.write(0, &KIND)?;
    account.write(BUMP, &bump)?;
    account.write(VAULT_BUMP, &vault_bump)?;
    account.write(NETWORK, &network.0)?;
    account.write(PEER, &peer.0)?;
    account.write(OWNER, &owner.key().0)?;
    account.write(PAYOUT, &payout.0)?;
    account.write(INVENTORY, inventory)?;
    account.write_u64(REGISTERED, sysvar::clock()?.slot)
}

/// Changes the owner's fields, or with the peer key only the inventory.
///
/// Accounts: owner or peer key (signs), provider (writable). Data: fields u8 ‖ for each bit of fields, lowest first, its
/// new value[32]: bit 0 payout, bit 1 inventory hash, bit 2 owner. Fields is from 1 to 7; 2 is all the peer key may.
#[inline(never)]
pub fn update(input: &Input, data: &[u8]) -> Result<()> {
    let mut r = Reader::new(data);
    let fields = r.u8()?;
    if fields == 0 || fields > SET_PAYOUT | SET_INVENTORY | SET_OWNER {
        return Err(Error::Data);
    }
    let [signer, account] = input.exactly()?;
    let provider = Provider::of(account, input.program)?;
    let delegated = fields == SET_INVENTORY && *signer.key() == provider.peer()?;
    if delegated {
        signer.must_sign()?;
    } else {
        provider.must_be_owned_by(signer)?;
    }
    account.must_write()?;
    for (bit, offset) in [(SET_PAYOUT, PAYOUT), (SET_INVENTORY, INVENTORY), (SET_OWNER, OWNER)] {
        if fields & bit != 0 {
            let value = r.pubkey()?;
            if value.is_zero() && bit != SET_INVENTORY {
                return Err(Error::ZeroKey);
            }
            account.write(offset, &value.0)?;
        }
    }
    r.end()?;
    provider.count()
}

fn seeds<'a>(network: &'a Pubkey, peer: &'a Pubkey, bump: &'a [u8; 1]) -> [Bytes<'a>; 4] {
    [Bytes::new(SEED), Bytes::new(&network.0), Bytes::new(&peer.0), Bytes::new(bump)]
}

/// A provider's account.
pub struct Provider<'a>(Account<'a>);

impl<'a> Provider<'a> {
    /// [`Error::Owner`], [`Error::Kind`].
    pub fn of(account: &Account<'a>, program: &Pubkey) -> Result<Self> {
        account.must_belong_to(program)?;
        if account.len() as u64 != SIZE || account.read::<2>(0)? != KIND {
            return Err(Error::Kind);
        }
        Ok(Provider(*account))
    }

    /// Its network: [`Error::Address`] when the account is another's.
    pub fn network<'b>(&self, account: &Account<'b>, program: &Pubkey) -> Result<Network<'b>> {
        Network::at(account, &self.0.read_key(NETWORK)?, program)
    }

    pub fn network_key(&self) -> Result<Pubkey> {
        self.0.read_key(NETWORK)
    }

    pub fn peer(&self) -> Result<Pubkey> {
        self.0.read_key(PEER)
    }

    pub fn payout(&self) -> Result<Pubkey> {
        self.0.read_key(PAYOUT)
    }

    pub fn stake(&self) -> Result<u64> {
        self.0.read_u64(STAKE)
    }

    pub fn unbonding(&self) -> Result<u64> {
        self.0.read_u64(UNBONDING)
    }

    /// Slot from which unbonding stake can be withdrawn.
    pub fn ready(&self) -> Result<u64> {
        self.0.read_u64(READY)
    }

    /// Slot of the last slash, 0 if there was none.
    pub fn slashed(&self) -> Result<u64> {
        self.0.read_u64(SLASHED)
    }

    /// Part of the stake that votes.
    pub fn bonded(&self) -> Result<u64> {
        self.0.read_u64(BONDED)
    }

    /// Slot in which it was last raised.
    pub fn raised(&self) -> Result<u64> {
        self.0.read_u64(RAISED)
    }

    /// Last slot in which it cannot be released.
    pub fn frozen(&self) -> Result<u64> {
        self.0.read_u64(FROZEN)
    }

    pub fn set_bonded(&self, amount: u64) -> Result<()> {
        self.0.write_u64(BONDED, amount)
    }

    pub fn set_raised(&self, now: u64) -> Result<()> {
        self.0.write_u64(RAISED, now)
    }

    /// Freezes the bond up to a slot.
    pub fn freeze(&self, until: u64) -> Result<()> {
        self.0.write_u64(FROZEN, self.frozen()?.max(until))
    }

    /// As [`Provider::must_be_owned_by`], but its peer key may too.
    pub fn must_be_spoken_for_by(&self, signer: &Account) -> Result<()> {
        if *signer.key() != self.peer()? {
            return self.must_be_owned_by(signer);
        }
        signer.must_sign()?;
        Ok(())
    }

    /// [`Error::NotOwner`] when the account is not the owner's, [`Error::NotSigner`].
    pub fn must_be_owned_by(&self, owner: &Account) -> Result<()> {
        if *owner.key() != self.0.read_key(OWNER)? {
            return Err(Error::NotOwner);
        }
        owner.must_sign()?;
        Ok(())
    }

    /// [`Error::Address`] when the account is not its vault.
    pub fn must_keep_stake_in(&self, vault: &Account, program: &Pubkey) -> Result<()> {
        let bump = self.0.read::<1>(VAULT_BUMP)?;
        vault.must_be(&program_address(&[Bytes::new(VAULT_SEED), Bytes::new(&self.0.key().0), Bytes::new(&bump)], program)?)?;
        Ok(())
    }

    pub fn set_stake(&self, stake: u64) -> Result<()> {
        self.0.write_u64(STAKE, stake)
    }

    /// Ready is 0 when nothing is unbonding.
    pub fn set_unbonding(&self, amount: u64, ready: u64) -> Result<()> {
        self.0.write_u64(UNBONDING, amount)?;
        self.0.write_u64(READY, ready)
    }

    pub fn set_slashed(&self, now: u64) -> Result<()> {
        self.0.write(FLAGS, &[WAS_SLASHED])?;
        self.0.write_u64(SLASHED, now)
    }

    /// What the program signs with in its name.
    pub fn signature(&self) -> Result<Signature> {
        Ok(Signature { network: self.0.read_key(NETWORK)?, peer: self.0.read_key(PEER)?, bump: self.0.read(BUMP)? })
    }

    fn count(&self) -> Result<()> {
        let sequence = math::add(self.0.read_u64(SEQUENCE)?, 1)?;
        self.0.write_u64(SEQUENCE, sequence)
    }
}

/// Holds the seeds of a provider's address.
pub struct Signature {
    network: Pubkey,
    peer: Pubkey,
    bump: [u8; 1],
}

impl Signature {
    pub fn seeds(&self) -> [Bytes<'_>; 4] {
        seeds(&self.network, &self.peer, &self.bump)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::input::{table, tests::Region};

    /// A provider's account as register writes it, but for its clock.
    pub fn account() -> Vec<u8> {
        let mut b = vec![0; SIZE as usize];
        b[..5].copy_from_slice(&[5, 1, 250, 0, 251]);
        for (offset, key) in [(NETWORK, 1), (PEER, 2), (OWNER, 3), (PAYOUT, 4), (INVENTORY, 5)] {
            b[offset..offset + 32].fill(key);
        }
        b
    }

    /// Runs an instruction of a signer and a provider's account; returns what became of the account.
    fn run(signer: u8, signs: bool, before: &[u8], data: &[u8], f: fn(&Input, &[u8]) -> Result<()>) -> Result<Vec<u8>> {
        let mut region = Region::default().account(signer, 0, signs, false, 1, &[]).account(9, 0xee, false, true, 1, before);
        let mut accounts = table();
        let input = unsafe { Input::parse(region.finish(data), &mut accounts) }?;
        f(&input, input.data)?;
        Ok(input.accounts[1].read::<{ SIZE as usize }>(0)?.to_vec())
    }

    fn values(fields: u8, values: &[u8]) -> Vec<u8> {
        let mut data = vec![fields];
        data.extend(values.iter().flat_map(|&v| [v; 32]));
        data
    }

    #[test]
    fn update_by_whom() {
        let old = account();
        let all = run(3, true, &old, &values(7, &[7, 8, 9]), update).unwrap();
        for (offset, key) in [(NETWORK, 1), (PEER, 2), (OWNER, 9), (PAYOUT, 7), (INVENTORY, 8)] {
            assert_eq!(all[offset..offset + 32], [key; 32], "{offset}");
        }
        assert_eq!(all[SEQUENCE], 1);
        let inventory = run(2, true, &all, &values(2, &[6]), update).unwrap();
        assert_eq!((inventory[INVENTORY], inventory[OWNER], inventory[PAYOUT], inventory[SEQUENCE]), (6, 9, 7, 2));

        let refused = |signer, signs, fields, v: &[u8]| run(signer, signs, &old, &values(fields, v), update).err();
        for fields in [1, 3, 4, 5, 6, 7] {
            assert_eq!(refused(2, true, fields, &[7; 3][..fields.count_ones() as usize]), Some(Error::NotOwner), "the peer key may not");
        }
        assert_eq!(refused(3, false, 1, &[7]), Some(Error::NotSigner));
        assert_eq!(refused(2, false, 2, &[7]), Some(Error::NotSigner));
        assert_eq!(refused(8, true, 2, &[7]), Some(Error::NotOwner));
        assert_eq!(refused(3, true, 0, &[]), Some(Error::Data));
        assert_eq!(refused(3, true, 8, &[7]), Some(Error::Data));
        assert_eq!(refused(3, true, 3, &[7]), Some(Error::Data));
        assert_eq!(refused(3, true, 1, &[7, 7]), Some(Error::Data));
        assert_eq!(refused(3, true, 1, &[0]), Some(Error::ZeroKey));
        assert_eq!(refused(3, true, 4, &[0]), Some(Error::ZeroKey));
        let mut other = account();
        other[0] = 6;
        assert_eq!(run(3, true, &other, &values(1, &[7]), update).err(), Some(Error::Kind));
        assert_eq!(run(3, true, &old[1..], &values(1, &[7]), update).err(), Some(Error::Kind));
    }
}
