//! An escrow: one buyer's deposit for one order, and the keys that control it.
//!
//! Its address is that of "escrow", network, buyer, order and the slot in which it was opened (u64), and never returns:
//! that slot must be of the last 150 when it is opened, and later than it by more than 150 when it is closed. The vault, a
//! token account of the escrow's address, has the address of "vault" and the escrow.
//!
//! The vault always holds at least outstanding + fee; what it holds beyond that is *free*: it can be put into another
//! tranche, or go back. Account, 344 + 32·k + 80·s bytes:
//!
//! ```text
//!   0   1  kind = 3
//!   1   1  version = 1
//!   2   1  bump
//!   3   1  bump of the vault
//!   4   1  state: 1 open, 2 refunded
//!   5   1  index of the mint on the network
//!   6   2  reserved: 0
//!   8  32  network
//!  40  32  buyer
//!  72  32  order
//! 104  32  mint
//! 136  32  vault
//! 168  32  refund owner: the wallet whose token accounts receive the rest
//! 200  32  referrer: a wallet; zeros: none
//! 232  32  rent payer: the opener, which gets the rent back
//! 264   8  opened: slot named at opening
//! 272   8  deadline: slot
//! 280   8  deposited: all that was put in by open_escrow and top_up
//! 288   8  outstanding: caps of the leaves, less the paid and freed amounts
//! 296   8  paid: to providers, with the fees
//! 304   8  fee: kept of that and not yet swept
//! 312   8  swept: kept of that and swept
//! 320   8  refunded: paid back
//! 328   2  tranches ever opened
//! 330   2  tranches closed
//! 332   1  k, voucher keys, 1 to 5
//! 333   1  threshold: how many of them sign a voucher, 1 to k
//! 334   1  s, standbys, 0 to 8
//! 335   9  reserved: 0
//! 344   -  k × key[32], strictly ascending
//!   -   -  s × standby
//!
//! standby, 80 bytes: whom the voucher keys may hire without the buyer
//!   0  32  provider
//!  32  32  payout
//!  64   8  highest rate, millionths of a base unit per slot
//!  72   8  budget: the remaining maximum sum of its leaves' caps
//! ```

use crate::account::Account;
use crate::error::{Error, Result};
use crate::pubkey::Pubkey;
use crate::syscall::Bytes;
use crate::{kind, math, token};

pub const KIND: [u8; 2] = [kind::ESCROW, 1];
/// What is in front of the voucher keys.
pub const HEAD: usize = 344;
/// Length of a standby.
pub const STANDBY: usize = 80;
pub const MAX_KEYS: usize = 5;
pub const MAX_STANDBYS: u8 = 8;
/// How many slots old the opening slot may be at opening, and must be at closing. A transaction lives as long.
pub const OPENING: u64 = 150;

pub const OPEN: u8 = 1;
pub const REFUNDED: u8 = 2;

const OUTSTANDING: usize = 288;
const PAID: usize = 296;
const FEE: usize = 304;
const SWEPT: usize = 312;
const TRANCHES: usize = 328;
const CLOSED: usize = 330;

/// A view of an escrow's account.
#[derive(Clone, Copy)]
pub struct Escrow<'a>(pub Account<'a>);

/// Whom the voucher keys may hire.
pub struct Standby {
    pub provider: [u8; 32],
    pub payout: [u8; 32],
    pub max_rate: u64,
    pub budget: u64,
}

impl<'a> Escrow<'a> {
    /// [`Error::Owner`], [`Error::Kind`].
    pub fn of(account: &Account<'a>, program: &Pubkey) -> Result<Self> {
        account.must_belong_to(program)?;
        match account.read::<2>(0) {
            Ok(KIND) => Ok(Escrow(*account)),
            _ => Err(Error::Kind),
        }
    }

    /// One that is open and can be written: also [`Error::NotWritable`], [`Error::Refunded`].
    pub fn open(account: &Account<'a>, program: &Pubkey) -> Result<Self> {
        let escrow = Escrow::of(account.must_write()?, program)?;
        if escrow.is_open()? { Ok(escrow) } else { Err(Error::Refunded) }
    }

    pub fn is_open(&self) -> Result<bool> {
        Ok(self.0.read_u8(4)? == OPEN)
    }

    pub fn mint_index(&self) -> Result<u8> {
        self.0.read_u8(5)
    }

    pub fn network(&self) -> Result<Pubkey> {
        self.0.read_key(8)
    }

    pub fn buyer(&self) -> Result<Pubkey> {
        self.0.read_key(40)
    }

    pub fn mint(&self) -> Result<Pubkey> {
        self.0.read_key(104)
    }

    pub fn refund_owner(&self) -> Result<Pubkey> {
        self.0.read_key(168)
    }

    pub fn referrer(&self) -> Result<Pubkey> {
        self.0.read_key(200)
    }

    pub fn rent_payer(&self) -> Result<Pubkey> {
        self.0.read_key(232)
    }

    pub fn opened(&self) -> Result<u64> {
        self.0.read_u64(264)
    }

    pub fn deadline(&self) -> Result<u64> {
        self.0.read_u64(272)
    }

    pub fn outstanding(&self) -> Result<u64> {
        self.0.read_u64(OUTSTANDING)
    }

    /// Fees kept and not yet swept.
    pub fn fee(&self) -> Result<u64> {
        self.0.read_u64(FEE)
    }

    pub fn swept(&self) -> Result<u64> {
        self.0.read_u64(SWEPT)
    }

    pub fn tranches(&self) -> Result<u16> {
        self.0.read_u16(TRANCHES)
    }

    pub fn tranches_closed(&self) -> Result<u16> {
        self.0.read_u16(CLOSED)
    }

    // What happens to it.

    pub fn deposited(&self, amount: u64) -> Result<()> {
        self.add(280, amount)
    }

    /// Records a payment to a leaf's provider, and the fee that was kept of it.
    pub fn paid(&self, gross: u64, fee: u64) -> Result<()> {
        self.freed(gross)?;
        self.add(PAID, gross)?;
        self.add(FEE, fee)
    }

    /// So much is no longer owed to anyone.
    pub fn freed(&self, amount: u64) -> Result<()> {
        self.0.write_u64(OUTSTANDING, math::sub(self.outstanding()?, amount)?)
    }

    pub fn fees_swept(&self) -> Result<()> {
        let fee = self.fee()?;
        self.0.write_u64(FEE, 0)?;
        self.add(SWEPT, fee)
    }

    pub fn refunded(&self, amount: u64) -> Result<()> {
        self.add(320, amount)
    }

    /// From now on all claims fail.
    pub fn end(&self) -> Result<()> {
        self.0.write(4, &[REFUNDED])?;
        self.0.write_u64(OUTSTANDING, 0)
    }

    /// A tranche of this number was opened.
    pub fn tranche_opened(&self, index: u16, sum: u64) -> Result<()> {
        self.0.write(TRANCHES, &index.checked_add(1).ok_or(Error::Overflow)?.to_le_bytes())?;
        self.add(OUTSTANDING, sum)
    }

    pub fn tranche_closed(&self) -> Result<()> {
        self.0.write(CLOSED, &self.tranches_closed()?.checked_add(1).ok_or(Error::Overflow)?.to_le_bytes())
    }

    fn add(&self, at: usize, amount: u64) -> Result<()> {
        self.0.write_u64(at, math::add(self.0.read_u64(at)?, amount)?)
    }

    // Its vault.

    /// Checks that the account is its vault: [`Error::Address`].
    pub fn check_vault(&self, account: &Account) -> Result<()> {
        account.must_be(&self.0.read_key(136)?)?;
        Ok(())
    }

    /// The vault's amount beyond outstanding and fees.
    pub fn free(&self, vault: &Account) -> Result<u64> {
        self.check_vault(vault)?;
        let owed = math::add(self.outstanding()?, self.fee()?)?;
        math::sub(token::amount(vault)?, owed)
    }

    /// Checks that the account is the mint: [`Error::Mint`]. Its decimals.
    pub fn decimals(&self, mint: &Account) -> Result<u8> {
        if *mint.key() != self.mint()? {
            return Err(Error::Mint);
        }
        token::decimals(mint)
    }

    /// What the program signs with for it.
    pub fn seal(&self) -> Result<Seal> {
        Ok(Seal { network: self.0.read(8)?, buyer: self.0.read(40)?, order: self.0.read(72)?, opened: self.0.read(264)?, bump: self.0.read(2)? })
    }

    // Who may say how it is spent.

    /// Checks that as many of the voucher keys are there as its threshold demands, and no others, in ascending order, none
    /// twice: [`Error::Threshold`].
    pub fn check_keys<'k>(&self, keys: impl Iterator<Item = &'k Pubkey>) -> Result<()> {
        let count = usize::from(self.0.read_u8(332)?);
        let (mut next, mut found) = (0usize, 0u8);
        for key in keys {
            loop {
                if next >= count {
                    return Err(Error::Threshold);
                }
                let at = next.wrapping_mul(32).wrapping_add(HEAD);
                next = next.wrapping_add(1);
                if self.0.read_key(at)? == *key {
                    break;
                }
            }
            found = found.wrapping_add(1); // at most count
        }
        if found < self.0.read_u8(333)? { Err(Error::Threshold) } else { Ok(()) }
    }

    /// Checks that voucher keys signed the transaction: [`Error::NotSigner`], [`Error::Threshold`].
    pub fn check_signers(&self, accounts: &[Account]) -> Result<()> {
        for account in accounts {
            account.must_sign()?;
        }
        self.check_keys(accounts.iter().map(|a| a.key()))
    }

    /// Standby number i: [`Error::Standby`].
    pub fn standby(&self, i: u8) -> Result<Standby> {
        let at = self.standby_at(i)?;
        Ok(Standby {
            provider: self.0.read(at)?,
            payout: self.0.read(at.wrapping_add(32))?,
            max_rate: self.0.read_u64(at.wrapping_add(64))?,
            budget: self.0.read_u64(at.wrapping_add(72))?,
        })
    }

    pub fn set_budget(&self, i: u8, budget: u64) -> Result<()> {
        self.0.write_u64(self.standby_at(i)?.wrapping_add(72), budget)
    }

    fn standby_at(&self, i: u8) -> Result<usize> {
        if i >= self.0.read_u8(334)? {
            return Err(Error::Standby);
        }
        let keys = usize::from(self.0.read_u8(332)?).wrapping_mul(32);
        Ok(usize::from(i).wrapping_mul(STANDBY).wrapping_add(HEAD).wrapping_add(keys))
    }
}

/// Seeds of an escrow, with their bump.
pub struct Seal {
    pub network: [u8; 32],
    pub buyer: [u8; 32],
    pub order: [u8; 32],
    pub opened: [u8; 8],
    pub bump: [u8; 1],
}

impl Seal {
    pub fn seeds(&self) -> [Bytes<'_>; 6] {
        [Bytes::new(b"escrow"), Bytes::new(&self.network), Bytes::new(&self.buyer), Bytes::new(&self.order), Bytes::new(&self.opened), Bytes::new(&self.bump)]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::input::{table, tests::Region, Input};

    /// An escrow's account with three voucher keys, of which two sign, and two standbys.
    fn example() -> Vec<u8> {
        let mut b = vec![kind::ESCROW, 1, 254, 253, OPEN, 1, 0, 0];
        for key in 1..=8 {
            b.extend([key; 32]);
        }
        for number in 1..=8u64 {
            b.extend((number * 100).to_le_bytes());
        }
        b.extend([3, 0, 2, 0, 3, 2, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
        assert_eq!(b.len(), HEAD);
        for key in [11, 12, 13] {
            b.extend([key; 32]);
        }
        for standby in [21, 31] {
            b.extend([standby; 32]);
            b.extend([standby + 1; 32]);
            b.extend(u64::from(standby + 2).to_le_bytes());
            b.extend(u64::from(standby + 3).to_le_bytes());
        }
        b
    }

    fn with(data: &[u8], f: impl Fn(Escrow)) {
        let mut region = Region::default().account(1, 0xee, false, true, 1, data);
        let mut accounts = table();
        let input = unsafe { Input::parse(region.finish(b""), &mut accounts) }.unwrap();
        f(Escrow::of(&input.accounts[0], input.program).unwrap())
    }

    #[test]
    fn layout() {
        with(&example(), |e| {
            assert_eq!((e.network(), e.buyer(), e.mint(), e.refund_owner()), (Ok(Pubkey([1; 32])), Ok(Pubkey([2; 32])), Ok(Pubkey([4; 32])), Ok(Pubkey([6; 32]))));
            assert_eq!((e.referrer(), e.rent_payer(), e.mint_index(), e.is_open()), (Ok(Pubkey([7; 32])), Ok(Pubkey([8; 32])), Ok(1), Ok(true)));
            assert_eq!((e.opened(), e.deadline(), e.outstanding(), e.fee(), e.swept()), (Ok(100), Ok(200), Ok(400), Ok(600), Ok(700)));
            assert_eq!((e.tranches(), e.tranches_closed()), (Ok(3), Ok(2)));
            let s = e.seal().unwrap();
            assert_eq!((s.network, s.buyer, s.order, s.opened, s.bump), ([1; 32], [2; 32], [3; 32], 100u64.to_le_bytes(), [254]));
            let s = e.standby(1).unwrap();
            assert_eq!((s.provider, s.payout, s.max_rate, s.budget), ([31; 32], [32; 32], 33, 34));
            assert_eq!(e.standby(2).err(), Some(Error::Standby));
            e.set_budget(1, 5).unwrap();
            assert_eq!((e.standby(0).unwrap().budget, e.standby(1).unwrap().budget), (24, 5));
        });
        with(&example(), |e| {
            e.paid(150, 7).unwrap();
            e.freed(50).unwrap();
            assert_eq!((e.outstanding(), e.0.read_u64(PAID), e.fee()), (Ok(200), Ok(650), Ok(607)));
            assert_eq!(e.freed(201), Err(Error::Overflow));
            e.fees_swept().unwrap();
            assert_eq!((e.fee(), e.swept()), (Ok(0), Ok(1307)));
            e.tranche_opened(3, 30).unwrap();
            assert_eq!((e.tranches(), e.outstanding()), (Ok(4), Ok(230)));
            assert_eq!(e.tranche_opened(u16::MAX, 1), Err(Error::Overflow));
            e.end().unwrap();
            assert_eq!((e.is_open(), e.outstanding()), (Ok(false), Ok(0)));
        });
    }

    #[test]
    fn voucher_keys() {
        with(&example(), |e| {
            let check = |keys: &[u8]| e.check_keys(keys.iter().map(|k| Pubkey([*k; 32])).collect::<Vec<_>>().iter());
            for good in [&[11, 12][..], &[11, 13], &[12, 13], &[11, 12, 13]] {
                assert_eq!(check(good), Ok(()));
            }
            for bad in [&[][..], &[11], &[12, 11], &[11, 11], &[12, 12, 13], &[11, 14], &[14, 11, 12], &[11, 12, 14], &[11, 12, 13, 13], &[21, 31], &[11, 12, 21]] {
                assert_eq!(check(bad), Err(Error::Threshold), "{bad:?}");
            }
        });
    }
}
