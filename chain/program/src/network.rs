//! A network: the terms that every escrow and provider of it is under. Its authority can change, and its rules by vote.
//!
//! Its address is that of "network" and H("starling/params/v1" ‖ params), so it commits to every parameter: nobody can
//! take another's, and whoever creates it creates the same. What the parameters say of fees, response, unbonding and least
//! stake is where the rules begin; the rules that hold now stand behind them. Its account, 336 + 64·n bytes:
//!
//! ```text
//!   0   1  kind = 2
//!   1   1  version = 1
//!   2   1  bump
//!   3   5  reserved: 0
//!   8  32  present authority; zeros: none, permanently
//!  40   -  params
//!   -   8  sequence: how often the rules were changed
//!   -   8  bonded: sum of the providers' bonds (provider.rs)
//!   -   8  emitted: sum of all rewards that were accepted from the emission
//!   -   -  rules (rules.rs)
//!
//! params, 248 + 48·n bytes
//!   0  16  network id, as in signatures
//!  16  32  chain: genesis hash of the cluster, as in signatures
//!  48  32  treasury: a wallet; zeros: none, its share burns
//!  80  32  authority in the beginning; zeros: none
//! 112  32  stake mint
//! 144   4  margin: slots after an escrow's deadline in which providers may still claim
//! 148   4  response: slots in which a provider may claim once its leaf is being retired; not 0
//! 152   8  unbonding: slots
//! 160   8  evidence: slots for which it is admissible; less than unbonding
//! 168   8  least stake of a provider, base units
//! 176   1  n, number of mints, 1 to 4
//! 177   7  reserved: 0
//! 184   8  voting: slots that a ballot is open; 0: nothing is ever voted on, and all up to 244 is 0
//! 192   8  lock: slots between the end of a vote and its effect; not 0
//! 200   8  least bonded: sum below which nothing is voted on; not 0
//! 208   8  least bond of a provider that opens a ballot, base units; not 0
//! 216   8  emission: base units of the stake mint that the schedule gives in all (emission.rs); 0: none
//! 224   8  first slot of epoch 0
//! 232   8  slots of an epoch; not 0
//! 240   4  epochs of a month; not 0
//! 244   4  slots of a window of audits; 0: lies of audits are not slashed
//! 248   -  n × mint
//!
//! mint, 48 bytes; shares are of the fee, in ten thousandths, and make 10,000
//!   0  32  mint, of the classic token program; each once
//!  32   2  fee on payments to providers, in ten thousandths: 10 to 1000
//!  34   2  share that burns: at least 2000, or it costs nothing to trade with oneself
//!  36   2  share of the verifiers' pool
//!  38   2  share of the treasury
//!  40   2  share of an escrow's referrer
//!  42   1  decimals, as in the mint
//!  43   5  reserved: 0
//! ```
//!
//! The verifiers' pool of a mint is a token account of the network's address; its own address is that of "pool", the
//! network and the mint. What is emitted is paid from another such account, at "emission" and the network, which whoever
//! founds the network fills: the program makes no tokens.

use crate::account::Account;
use crate::error::{Error, Result};
use crate::kind;
use crate::math;
use crate::pubkey::Pubkey;
use crate::reader::Reader;
use crate::rules::{shares_of, Shares, RULES, SHARES};
use crate::syscall::{find_program_address, sha256, Bytes};

/// Kind and version.
pub const KIND: [u8; 2] = [kind::NETWORK, 1];
/// What is in front of the parameters.
pub const HEAD: usize = 40;
/// The parameters without the mints.
pub const PARAMS: usize = 248;
pub const MAX_MINTS: u8 = 4;
/// Length of one mint's terms.
pub const MINT: usize = 48;
/// What stands between the parameters and the rules.
pub const COUNTERS: usize = 24;
/// Months for which there is an emission, and for how many rewards can be claimed.
pub const MONTHS: u32 = 240;
const CLAIM_MONTHS: u64 = 3;

/// Shares and fees are counted in these parts of the whole.
pub const WHOLE: u64 = 10_000;

/// Length of a signature's preimage before the message.
pub const PREFIX: usize = 96;
/// The tags of signed objects that the program accepts.
pub const TAG_VOUCHER: &[u8; 16] = b"starling:voucher";
pub const TAG_RECEIPT: &[u8; 16] = b"starling:receipt";
pub const TAG_ANSWER: &[u8; 16] = b"starling:answer\0";
pub const TAG_SHOWN: &[u8; 16] = b"starling:shown\0\0";
pub const TAG_VERDICT: &[u8; 16] = b"starling:verdict";

/// A view of a network's account.
#[derive(Clone, Copy)]
pub struct Network<'a>(pub Account<'a>);

/// The network's terms of one mint.
pub struct Terms {
    pub mint: Pubkey,
    pub fee: u16,
    pub burn: u16,
    pub pool: u16,
    pub treasury: u16,
    pub referrer: u16,
    pub decimals: u8,
}

impl<'a> Network<'a> {
    /// [`Error::Owner`], [`Error::Kind`]. Whether it is the network that is meant is for the caller to check.
    pub fn of(account: &Account<'a>, program: &Pubkey) -> Result<Self> {
        account.must_belong_to(program)?;
        match account.read::<2>(0) {
            Ok(KIND) => Ok(Network(*account)),
            _ => Err(Error::Kind),
        }
    }

    /// The network of this address: [`Error::Address`].
    pub fn at(account: &Account<'a>, address: &Pubkey, program: &Pubkey) -> Result<Self> {
        Network::of(account.must_be(address)?, program)
    }

    pub fn authority(&self) -> Result<Pubkey> {
        self.0.read_key(8)
    }

    pub fn set_authority(&self, key: &Pubkey) -> Result<()> {
        self.0.write(8, &key.0)
    }

    pub fn treasury(&self) -> Result<Pubkey> {
        self.0.read_key(HEAD + 48)
    }

    pub fn first_authority(&self) -> Result<Pubkey> {
        self.0.read_key(HEAD + 80)
    }

    pub fn stake_mint(&self) -> Result<Pubkey> {
        self.0.read_key(HEAD + 112)
    }

    pub fn margin(&self) -> Result<u64> {
        Ok(self.0.read_u32(HEAD + 144)?.into())
    }

    pub fn evidence(&self) -> Result<u64> {
        self.0.read_u64(HEAD + 160)
    }

    /// Slots that a ballot is open: [`Error::NoVotes`] when there are none.
    pub fn voting(&self) -> Result<u64> {
        match self.0.read_u64(HEAD + 184)? {
            0 => Err(Error::NoVotes),
            slots => Ok(slots),
        }
    }

    pub fn has_votes(&self) -> Result<bool> {
        Ok(self.0.read_u64(HEAD + 184)? != 0)
    }

    pub fn lock(&self) -> Result<u64> {
        self.0.read_u64(HEAD + 192)
    }

    pub fn least_bonded(&self) -> Result<u64> {
        self.0.read_u64(HEAD + 200)
    }

    /// The least that a provider has bonded to open a ballot.
    pub fn least_bond(&self) -> Result<u64> {
        self.0.read_u64(HEAD + 208)
    }

    /// What the schedule gives in all.
    pub fn emission_cap(&self) -> Result<u64> {
        self.0.read_u64(HEAD + 216)
    }

    pub fn epochs_of_month(&self) -> Result<u32> {
        self.0.read_u32(HEAD + 240)
    }

    /// First slot after an epoch.
    pub fn epoch_end(&self, epoch: u64) -> Result<u64> {
        math::add(self.0.read_u64(HEAD + 224)?, math::mul(math::add(epoch, 1)?, self.0.read_u64(HEAD + 232)?)?)
    }

    /// Slots of a month. An epoch's rewards can be accepted for one month after it.
    pub fn month(&self) -> Result<u64> {
        math::mul(self.0.read_u64(HEAD + 232)?, self.epochs_of_month()?.into())
    }

    /// Slots for which accepted rewards can be claimed, at least. Longer than a month: what was accepted is there for as long
    /// as it could be accepted again.
    pub fn claiming(&self) -> Result<u64> {
        math::mul(self.month()?, CLAIM_MONTHS)
    }

    /// Slots of a window of audits; 0: lies of audits are not slashed.
    pub fn audit_slots(&self) -> Result<u64> {
        Ok(self.0.read_u32(HEAD + 244)?.into())
    }

    /// How often the rules were changed.
    pub fn sequence(&self) -> Result<u64> {
        self.0.read_u64(self.counter(0)?)
    }

    pub fn bonded(&self) -> Result<u64> {
        self.0.read_u64(self.counter(8)?)
    }

    pub fn set_bonded(&self, sum: u64) -> Result<()> {
        self.0.write_u64(self.counter(8)?, sum)
    }

    /// Notes rewards that were accepted from the emission.
    pub fn emitted(&self, sum: u64) -> Result<()> {
        let at = self.counter(16)?;
        self.0.write_u64(at, math::add(self.0.read_u64(at)?, sum)?)
    }

    pub fn counter(&self, offset: usize) -> Result<usize> {
        Ok(usize::from(self.mints()?).wrapping_mul(MINT).wrapping_add(HEAD + PARAMS).wrapping_add(offset))
    }

    pub fn mints(&self) -> Result<u8> {
        self.0.read_u8(HEAD + 176)
    }

    /// Mint number i: [`Error::Mint`] when there are fewer.
    pub fn mint(&self, i: u8) -> Result<Terms> {
        if i >= self.mints()? {
            return Err(Error::Mint);
        }
        let shares = self.0.read::<10>(self.rule(shares_of(i))?)?;
        let s = Shares::read(&mut Reader::new(&shares))?;
        let (mint, decimals) = (self.0.read_key(term(i, 0))?, self.0.read_u8(term(i, 42))?);
        Ok(Terms { mint, fee: s.fee, burn: s.burn, pool: s.pool, treasury: s.treasury, referrer: s.referrer, decimals })
    }

    /// What stands before a layout that is signed: tag ‖ chain ‖ program ‖ network id.
    pub fn prefix(&self, tag: &[u8; 16], program: &Pubkey) -> Result<[u8; PREFIX]> {
        let mut b = [0; PREFIX];
        b[..16].copy_from_slice(tag);
        b[16..48].copy_from_slice(&self.0.read::<32>(HEAD + 16)?);
        b[48..80].copy_from_slice(&program.0);
        b[80..].copy_from_slice(&self.0.read::<16>(HEAD)?);
        Ok(b)
    }

    /// What the program signs with for the network.
    pub fn seal(&self) -> Result<Seal> {
        let head = self.0.read::<PARAMS>(HEAD)?;
        let mut mints = [0; MINT * MAX_MINTS as usize];
        let n = self.mints()?;
        for i in 0..n {
            let at = usize::from(i).wrapping_mul(MINT);
            let to = mints.get_mut(at..).and_then(|m| m.first_chunk_mut::<MINT>()).ok_or(Error::Bounds)?;
            *to = self.0.read(term(i, 0))?;
        }
        let mints = mints.get(..usize::from(n).wrapping_mul(MINT)).ok_or(Error::Bounds)?;
        Ok(Seal { hash: sha256(&[Bytes::new(PARAMS_TAG), Bytes::new(&head), Bytes::new(mints)]), bump: [self.0.read_u8(2)?] })
    }

    /// Everything that can be checked without the mints: [`Error::Params`].
    pub fn check(&self) -> Result<()> {
        let n = self.mints()?;
        let sound = (1..=MAX_MINTS).contains(&n)
            && self.0.len() == size(n)
            && self.0.read::<7>(HEAD + 177)? == [0; 7]
            && self.evidence()? < self.0.read_u64(HEAD + 152)?
            && self.0.read_u32(HEAD + 148)? > 0
            && self.votes_are_sound()?;
        if !sound {
            return Err(Error::Params);
        }
        for i in 0..n {
            let shares = self.0.read::<10>(term(i, 32))?;
            if !Shares::read(&mut Reader::new(&shares))?.sound() || self.0.read::<5>(term(i, 43))? != [0; 5] {
                return Err(Error::Params);
            }
            for j in 0..i {
                if self.0.read_key(term(j, 0))? == self.0.read_key(term(i, 0))? {
                    return Err(Error::Params);
                }
            }
        }
        Ok(())
    }

    fn votes_are_sound(&self) -> Result<bool> {
        if !self.has_votes()? {
            return Ok(self.0.read::<52>(HEAD + 192)? == [0; 52]);
        }
        Ok(self.lock()? > 0
            && self.least_bonded()? > 0
            && self.least_bond()? > 0
            && self.month().is_ok_and(|slots| slots > 0)
            && self.claiming().is_ok())
    }
}

/// Length of a network's account.
pub fn size(mints: u8) -> usize {
    usize::from(mints).wrapping_mul(MINT + SHARES).wrapping_add(HEAD + PARAMS + COUNTERS + RULES)
}

/// How long the account of a network with these parameters is: [`Error::Params`] when they are not as long as they must be.
pub fn space(params: &[u8]) -> Result<u64> {
    match params.get(176) {
        Some(&n) if n <= MAX_MINTS && params.len() == usize::from(n).wrapping_mul(MINT).wrapping_add(PARAMS) => Ok(size(n) as u64),
        _ => Err(Error::Params),
    }
}

/// Where something of mint number i stands.
pub fn term(i: u8, offset: usize) -> usize {
    usize::from(i).wrapping_mul(MINT).wrapping_add(HEAD + PARAMS).wrapping_add(offset)
}

/// Seeds of a network, with their bump.
pub struct Seal {
    hash: [u8; 32],
    bump: [u8; 1],
}

impl Seal {
    pub fn bump(&self) -> [u8; 1] {
        self.bump
    }

    pub fn seeds(&self) -> [Bytes<'_>; 3] {
        [Bytes::new(b"network"), Bytes::new(&self.hash), Bytes::new(&self.bump)]
    }
}

/// The seal and the address of the network with these parameters.
pub fn seal(params: &[u8], program: &Pubkey) -> Result<(Seal, Pubkey)> {
    let hash = hash(params);
    let (address, bump) = find_program_address(&[Bytes::new(b"network"), Bytes::new(&hash)], program)?;
    Ok((Seal { hash, bump: [bump] }, address))
}

const PARAMS_TAG: &[u8] = b"starling/params/v1";

fn hash(params: &[u8]) -> [u8; 32] {
    sha256(&[Bytes::new(PARAMS_TAG), Bytes::new(params)])
}

/// Address and bump of the account that the emission is paid from.
pub fn emission(network: &Pubkey, program: &Pubkey) -> Result<(Pubkey, u8)> {
    find_program_address(&[Bytes::new(b"emission"), Bytes::new(&network.0)], program)
}

/// Address and bump of the verifiers' pool of a mint.
pub fn pool(network: &Pubkey, mint: &Pubkey, program: &Pubkey) -> Result<(Pubkey, u8)> {
    find_program_address(&[Bytes::new(b"pool"), Bytes::new(&network.0), Bytes::new(&mint.0)], program)
}

#[cfg(test)]
pub mod tests {
    use super::*;
    use crate::input::{table, tests::Region, Input};

    /// A network's account with two mints.
    pub fn example() -> Vec<u8> {
        let mut b = vec![kind::NETWORK, 1, 255, 0, 0, 0, 0, 0];
        b.extend([3; 32]);
        b.extend(*b"test\0\0\0\0\0\0\0\0\0\0\0\0");
        for key in [4, 5, 3, 6] {
            b.extend([key; 32]);
        }
        b.extend(300u32.to_le_bytes());
        b.extend(200u32.to_le_bytes());
        for number in [1000u64, 999, 77] {
            b.extend(number.to_le_bytes());
        }
        b.extend([2, 0, 0, 0, 0, 0, 0, 0]);
        for number in [20u64, 10, 5000, 500, 900_000, 400, 50, 30] {
            b.extend(number.to_le_bytes());
        }
        for (mint, terms) in [(7, [50u16, 5000, 2500, 1500, 1000]), (8, [1000, 2000, 0, 8000, 0])] {
            b.extend([mint; 32]);
            b.extend(terms.iter().flat_map(|v| v.to_le_bytes()));
            b.extend([6, 0, 0, 0, 0, 0]);
        }
        for number in [3u64, 4, 5, 200, 1000, 77] {
            b.extend(number.to_le_bytes());
        }
        for terms in [[50u16, 5000, 2500, 1500, 1000], [1000, 2000, 0, 8000, 0]] {
            b.extend(terms.iter().flat_map(|v| v.to_le_bytes()));
            b.extend([0; 6]);
        }
        b
    }

    pub fn with<T>(data: &[u8], f: impl Fn(Network) -> T) -> T {
        let mut region = Region::default().account(1, 0xee, false, false, 1, data);
        let mut accounts = table();
        let input = unsafe { Input::parse(region.finish(b""), &mut accounts) }.unwrap();
        f(Network::of(&input.accounts[0], input.program).unwrap())
    }

    #[test]
    fn layout() {
        with(&example(), |n| {
            assert_eq!(n.check(), Ok(()));
            assert_eq!((n.authority(), n.treasury(), n.first_authority(), n.stake_mint()), (Ok(Pubkey([3; 32])), Ok(Pubkey([5; 32])), Ok(Pubkey([3; 32])), Ok(Pubkey([6; 32]))));
            assert_eq!((n.margin(), n.response(), n.unbonding(), n.evidence(), n.min_stake()), (Ok(300), Ok(200), Ok(1000), Ok(999), Ok(77)));
            let t = n.mint(1).unwrap();
            assert_eq!((t.mint, t.fee, t.burn, t.pool, t.treasury, t.referrer, t.decimals), (Pubkey([8; 32]), 1000, 2000, 0, 8000, 0, 6));
            assert_eq!(n.mint(2).err(), Some(Error::Mint));
            let prefix = n.prefix(TAG_VOUCHER, &Pubkey([9; 32])).unwrap();
            assert_eq!((&prefix[..16], &prefix[16..48], &prefix[48..80], &prefix[80..85]), (&b"starling:voucher"[..], &[4; 32][..], &[9; 32][..], &b"test\0"[..]));
        });
    }

    #[test]
    fn parameters_that_break_a_rule() {
        let at = |offset: usize, bytes: &[u8]| {
            let mut b = example();
            b[offset..offset + bytes.len()].copy_from_slice(bytes);
            with(&b, |n| n.check())
        };
        let (first, second) = (HEAD + PARAMS, HEAD + PARAMS + MINT);
        assert_eq!(at(0, &[]), Ok(()));
        for (what, offset, bytes) in [
            ("evidence as old as unbonding", HEAD + 160, &1000u64.to_le_bytes()[..]),
            ("no time to respond", HEAD + 148, &[0; 4]),
            ("no mint", HEAD + 176, &[0]),
            ("mints that are not there", HEAD + 176, &[3]),
            ("mints that are not counted", HEAD + 176, &[1]),
            ("five mints", HEAD + 176, &[5]),
            ("reserved", HEAD + 183, &[1]),
            ("fee too low", first + 32, &9u16.to_le_bytes()),
            ("fee too high", first + 32, &1001u16.to_le_bytes()),
            ("burns too little", first + 34, &[0xcf, 0x07, 0x00, 0x15]), // 1999 and 5376
            ("shares over the whole", first + 40, &1001u16.to_le_bytes()),
            ("shares below the whole", first + 40, &999u16.to_le_bytes()),
            ("shares that wrap", second + 36, &[0xff; 6]),
            ("a mint's reserved", first + 47, &[1]),
            ("no lock", HEAD + 192, &[0; 8]),
            ("votes with nothing bonded", HEAD + 200, &[0; 8]),
            ("terms for votes without any", HEAD + 184, &[0; 8]),
            ("votes opened for nothing", HEAD + 208, &[0; 8]),
            ("epochs without slots", HEAD + 232, &[0; 8]),
            ("months without epochs", HEAD + 240, &[0; 4]),
            ("months without end", HEAD + 239, &[0x10]),
            ("a mint twice", second, &[7; 32]),
        ] {
            assert_eq!(at(offset, bytes), Err(Error::Params), "{what}");
        }
        with(&example()[..HEAD + PARAMS], |n| assert_eq!(n.check(), Err(Error::Params)));
        with(&example()[..50], |n| assert_eq!(n.check(), Err(Error::Bounds)));
    }
}
