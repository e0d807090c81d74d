//! A network: the terms that every escrow and provider of it is under. Only its authority can ever change.
//!
//! Its address is that of "network" and H("starling/params/v1" ‖ params), so it commits to every parameter: nobody can
//! take another's, and whoever creates it creates the same. Its account, 224 + 48·n bytes:
//!
//! ```text
//!   0   1  kind = 2
//!   1   1  version = 1
//!   2   1  bump
//!   3   5  reserved: 0
//!   8  32  authority now; zeros: none, for ever
//!  40   -  params
//!
//! params, 184 + 48·n bytes
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
//! 184   -  n × mint
//!
//! mint, 48 bytes; shares are of the fee, in ten thousandths, and make 10,000
//!   0  32  mint, of the classic token program; each once
//!  32   2  fee of what is paid to providers, in ten thousandths: 10 to 1000
//!  34   2  share that burns: at least 2000, or it costs nothing to trade with oneself
//!  36   2  share of the verifiers' pool
//!  38   2  share of the treasury
//!  40   2  share of an escrow's referrer
//!  42   1  decimals, as in the mint
//!  43   5  reserved: 0
//! ```
//!
//! The verifiers' pool of a mint is a token account of the network's address; its own address is that of "pool", the
//! network and the mint.

use crate::account::Account;
use crate::error::{Error, Result};
use crate::kind;
use crate::pubkey::Pubkey;
use crate::reader::Reader;
use crate::syscall::{find_program_address, sha256, Bytes};

/// Kind and version.
pub const KIND: [u8; 2] = [kind::NETWORK, 1];
/// What is in front of the parameters.
pub const HEAD: usize = 40;
/// The parameters without the mints.
pub const PARAMS: usize = 184;
pub const MAX_MINTS: u8 = 4;
/// Length of one mint's terms.
pub const MINT: usize = 48;

/// Shares and fees are counted in these parts of the whole.
pub const WHOLE: u64 = 10_000;
const MIN_FEE: u16 = 10;
const MAX_FEE: u16 = 1_000;
const MIN_BURN: u16 = 2_000;

/// Length of a signature's preimage before what is signed.
pub const PREFIX: usize = 96;
/// The tags of what the program takes signatures of.
pub const TAG_VOUCHER: &[u8; 16] = b"starling:voucher";
pub const TAG_RECEIPT: &[u8; 16] = b"starling:receipt";

/// A view of a network's account.
#[derive(Clone, Copy)]
pub struct Network<'a>(pub Account<'a>);

/// What the network says of one mint.
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

    pub fn response(&self) -> Result<u64> {
        Ok(self.0.read_u32(HEAD + 148)?.into())
    }

    pub fn unbonding(&self) -> Result<u64> {
        self.0.read_u64(HEAD + 152)
    }

    pub fn evidence(&self) -> Result<u64> {
        self.0.read_u64(HEAD + 160)
    }

    pub fn min_stake(&self) -> Result<u64> {
        self.0.read_u64(HEAD + 168)
    }

    pub fn mints(&self) -> Result<u8> {
        self.0.read_u8(HEAD + 176)
    }

    /// Mint number i: [`Error::Mint`] when there are fewer.
    pub fn mint(&self, i: u8) -> Result<Terms> {
        if i >= self.mints()? {
            return Err(Error::Mint);
        }
        let at = usize::from(i).wrapping_mul(MINT).wrapping_add(HEAD + PARAMS);
        let b = self.0.read::<MINT>(at)?;
        let mut r = Reader::new(&b);
        Ok(Terms { mint: *r.pubkey()?, fee: r.u16()?, burn: r.u16()?, pool: r.u16()?, treasury: r.u16()?, referrer: r.u16()?, decimals: r.u8()? })
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

    /// What the program signs with for the network; the account must not be writable.
    pub fn seal(&self) -> Result<Seal> {
        let params = self.0.data()?.get(HEAD..).ok_or(Error::Bounds)?;
        Ok(Seal { hash: hash(params), bump: [self.0.read_u8(2)?] })
    }

    /// Everything that can be checked without the mints: [`Error::Params`].
    pub fn check(&self) -> Result<()> {
        let n = self.mints()?;
        let size = usize::from(n).wrapping_mul(MINT).wrapping_add(HEAD + PARAMS);
        let sound = (1..=MAX_MINTS).contains(&n)
            && self.0.len() == size
            && self.0.read::<7>(HEAD + 177)? == [0; 7]
            && self.evidence()? < self.unbonding()?
            && self.response()? > 0;
        if !sound {
            return Err(Error::Params);
        }
        for i in 0..n {
            let t = self.mint(i)?;
            let shares = [t.burn, t.pool, t.treasury, t.referrer].iter().fold(0u64, |sum, s| sum.wrapping_add((*s).into()));
            let at = usize::from(i).wrapping_mul(MINT).wrapping_add(HEAD + PARAMS + 43);
            let sound = (MIN_FEE..=MAX_FEE).contains(&t.fee) && t.burn >= MIN_BURN && shares == WHOLE && self.0.read::<5>(at)? == [0; 5];
            if !sound {
                return Err(Error::Params);
            }
            for j in 0..i {
                if self.mint(j)?.mint == t.mint {
                    return Err(Error::Params);
                }
            }
        }
        Ok(())
    }
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

fn hash(params: &[u8]) -> [u8; 32] {
    sha256(&[Bytes::new(b"starling/params/v1"), Bytes::new(params)])
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
        for (mint, terms) in [(7, [50u16, 5000, 2500, 1500, 1000]), (8, [1000, 2000, 0, 8000, 0])] {
            b.extend([mint; 32]);
            b.extend(terms.iter().flat_map(|v| v.to_le_bytes()));
            b.extend([6, 0, 0, 0, 0, 0]);
        }
        b
    }

    fn with<T>(data: &[u8], f: impl Fn(Network) -> T) -> T {
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
            ("a mint twice", second, &[7; 32]),
        ] {
            assert_eq!(at(offset, bytes), Err(Error::Params), "{what}");
        }
        with(&example()[..HEAD + PARAMS], |n| assert_eq!(n.check(), Err(Error::Params)));
        with(&example()[..50], |n| assert_eq!(n.check(), Err(Error::Bounds)));
    }
}
