//! A tranche: leases of an escrow, as the root of a Merkle sum tree, and what was paid for each.
//!
//! Its address is that of "tranche", the escrow and its index (u16). Indices count up and an escrow's address never
//! returns, so a tranche's does not either. Account, 136 + 20·n bytes:
//!
//! ```text
//!   0   1  kind = 4
//!   1   1  version = 1
//!   2   1  bump
//!   3   1  by: 0 the buyer, 1 the voucher keys
//!   4   4  reserved: 0
//!   8  32  escrow
//!  40   2  index
//!  42   2  n, leaves, 1 to 256
//!  44   4  reserved: 0
//!  48   8  opened: slot
//!  56   8  sum of the leaves' caps
//!  64  32  root
//!  96   8  outstanding: the sum less everything paid and freed
//! 104  32  rent payer: who opened it, and gets the rent back
//! 136   -  n × leaf
//!
//! leaf, 20 bytes
//!   0   8  paid, with the fee
//!   8   8  freed: this much of the cap can never be claimed any more
//!  16   4  window: 0, or while it is being retired the last slot in which it may be claimed, counted from opened
//! ```

use crate::account::Account;
use crate::error::{Error, Result};
use crate::escrow::Escrow;
use crate::pubkey::Pubkey;
use crate::sumtree::Root;
use crate::syscall::{find_program_address, Bytes};
use crate::system::New;
use crate::{kind, math};

pub const KIND: [u8; 2] = [kind::TRANCHE, 1];
pub const HEAD: usize = 136;
/// Length of a leaf's state.
pub const LEAF: usize = 20;

/// Who opened it.
pub const BUYER: u8 = 0;
pub const KEYS: u8 = 1;

const OUTSTANDING: usize = 96;

/// A view of a tranche's account.
#[derive(Clone, Copy)]
pub struct Tranche<'a>(pub Account<'a>);

/// What became of one leaf.
pub struct State {
    pub paid: u64,
    pub freed: u64,
    pub window: u32,
}

impl<'a> Tranche<'a> {
    /// One of an escrow: [`Error::NotWritable`], [`Error::Owner`], [`Error::Kind`], [`Error::Address`] when it is another
    /// escrow's.
    pub fn of(account: &Account<'a>, escrow: &Escrow, program: &Pubkey) -> Result<Self> {
        account.must_write()?.must_belong_to(program)?;
        if account.read::<2>(0) != Ok(KIND) {
            return Err(Error::Kind);
        }
        escrow.0.must_be(&account.read_key(8)?)?;
        Ok(Tranche(*account))
    }

    pub fn opened(&self) -> Result<u64> {
        self.0.read_u64(48)
    }

    pub fn root(&self) -> Result<Root> {
        Ok(Root { hash: self.0.read(64)?, sum: self.0.read_u64(56)?, count: self.0.read_u16(42)? })
    }

    pub fn outstanding(&self) -> Result<u64> {
        self.0.read_u64(OUTSTANDING)
    }

    pub fn rent_payer(&self) -> Result<Pubkey> {
        self.0.read_key(104)
    }

    /// Leaf number i: [`Error::Index`].
    pub fn leaf(&self, i: u16) -> Result<State> {
        let at = self.leaf_at(i)?;
        let window = self.0.read_u32(at.wrapping_add(16))?;
        Ok(State { paid: self.0.read_u64(at)?, freed: self.0.read_u64(at.wrapping_add(8))?, window })
    }

    /// So much was paid for leaf i.
    pub fn paid(&self, i: u16, amount: u64) -> Result<()> {
        self.move_on(self.leaf_at(i)?, amount)
    }

    /// So much of leaf i's cap is freed.
    pub fn freed(&self, i: u16, amount: u64) -> Result<()> {
        self.move_on(self.leaf_at(i)?.wrapping_add(8), amount)
    }

    pub fn set_window(&self, i: u16, window: u32) -> Result<()> {
        self.0.write(self.leaf_at(i)?.wrapping_add(16), &window.to_le_bytes())
    }

    /// Whether a leaf's window is over; `None` when it has none.
    pub fn window_over(&self, leaf: &State, now: u64) -> Result<Option<bool>> {
        if leaf.window == 0 {
            return Ok(None);
        }
        Ok(Some(now > math::add(self.opened()?, leaf.window.into())?))
    }

    fn move_on(&self, at: usize, amount: u64) -> Result<()> {
        self.0.write_u64(at, math::add(self.0.read_u64(at)?, amount)?)?;
        self.0.write_u64(OUTSTANDING, math::sub(self.outstanding()?, amount)?)
    }

    fn leaf_at(&self, i: u16) -> Result<usize> {
        if i >= self.0.read_u16(42)? {
            return Err(Error::Index);
        }
        Ok(usize::from(i).wrapping_mul(LEAF).wrapping_add(HEAD))
    }
}

impl State {
    /// What may still be paid of a cap.
    pub fn left(&self, cap: u64) -> Result<u64> {
        math::sub(math::sub(cap, self.freed)?, self.paid)
    }
}

/// A tranche to be opened.
pub struct Opening<'a, 'b> {
    pub payer: &'b Account<'a>,
    pub escrow: Escrow<'a>,
    pub vault: &'b Account<'a>,
    pub account: &'b Account<'a>,
    pub system: &'b Account<'a>,
    pub by: u8,
    pub index: u16,
    pub root: Root,
    pub now: u64,
}

impl Opening<'_, '_> {
    /// Opens it: [`Error::Leaf`] when the escrow's next tranche has another index, [`Error::Deadline`], [`Error::Index`],
    /// [`Error::Amount`] when the sum is more than is free.
    pub fn open(&self, program: &Pubkey) -> Result<()> {
        let &Opening { payer, escrow, vault, account, system, by, index, ref root, now } = self;
        payer.must_sign()?.must_write()?;
        account.must_write()?;
        if index != escrow.tranches()? {
            return Err(Error::Leaf);
        }
        if now >= escrow.deadline()? {
            return Err(Error::Deadline);
        }
        root.check()?;
        if root.sum > escrow.free(vault)? {
            return Err(Error::Amount);
        }
        let (tag, index_bytes) = (Bytes::new(b"tranche"), index.to_le_bytes());
        let (of, number) = (Bytes::new(&escrow.0.key().0), Bytes::new(&index_bytes));
        let (address, bump) = find_program_address(&[tag, of, number], program)?;
        account.must_be(&address)?;
        let bump = [bump];
        let space = u64::from(root.count).wrapping_mul(LEAF as u64).wrapping_add(HEAD as u64);
        New { payer, account, system, space, program, seeds: &[tag, of, number, Bytes::new(&bump)] }.create()?;
        account.write(0, &KIND)?;
        account.write(2, &bump)?;
        account.write(3, &[by])?;
        account.write(8, &escrow.0.key().0)?;
        account.write(40, &index_bytes)?;
        account.write(42, &root.count.to_le_bytes())?;
        account.write_u64(48, now)?;
        account.write_u64(56, root.sum)?;
        account.write(64, &root.hash)?;
        account.write_u64(OUTSTANDING, root.sum)?;
        account.write(104, &payer.key().0)?;
        escrow.tranche_opened(index, root.sum)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::input::{table, tests::Region, Input};

    #[test]
    fn layout() {
        let mut escrow = vec![3, 1];
        escrow.resize(400, 0);
        let mut b = vec![kind::TRANCHE, 1, 255, 1, 0, 0, 0, 0];
        b.extend([1; 32]);
        b.extend([9, 0, 2, 0, 0, 0, 0, 0]);
        b.extend(1000u64.to_le_bytes());
        b.extend(500u64.to_le_bytes());
        b.extend([5; 32]);
        b.extend(400u64.to_le_bytes());
        b.extend([6; 32]);
        assert_eq!(b.len(), HEAD);
        b.extend([0; LEAF]);
        b.extend(70u64.to_le_bytes());
        b.extend(30u64.to_le_bytes());
        b.extend(8u32.to_le_bytes());
        let mut region = Region::default().account(1, 0xee, false, true, 1, &escrow).account(2, 0xee, false, true, 1, &escrow).account(3, 0xee, false, true, 1, &b);
        let mut accounts = table();
        let input = unsafe { Input::parse(region.finish(b""), &mut accounts) }.unwrap();
        let [escrow, other, account] = input.exactly().unwrap();
        let [escrow, other] = [escrow, other].map(|e| Escrow::of(e, input.program).unwrap());
        assert_eq!(Tranche::of(account, &other, input.program).err(), Some(Error::Address));
        assert_eq!(Tranche::of(&escrow.0, &escrow, input.program).err(), Some(Error::Kind));
        let t = Tranche::of(account, &escrow, input.program).unwrap();
        assert_eq!((t.opened(), t.outstanding(), t.rent_payer()), (Ok(1000), Ok(400), Ok(Pubkey([6; 32]))));
        assert_eq!(t.root(), Ok(Root { hash: [5; 32], sum: 500, count: 2 }));
        let s = t.leaf(1).unwrap();
        assert_eq!((s.paid, s.freed, s.window, s.left(120), s.left(99)), (70, 30, 8, Ok(20), Err(Error::Overflow)));
        assert_eq!(t.leaf(2).err(), Some(Error::Index));
        assert_eq!((t.window_over(&s, 1008), t.window_over(&s, 1009)), (Ok(Some(false)), Ok(Some(true))));
        t.paid(0, 5).unwrap();
        t.freed(0, 6).unwrap();
        t.set_window(0, 7).unwrap();
        let s = t.leaf(0).unwrap();
        assert_eq!((s.paid, s.freed, s.window, t.outstanding()), (5, 6, 7, Ok(389)));
        assert_eq!(t.paid(0, 390), Err(Error::Overflow));
    }
}
