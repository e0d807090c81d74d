//! One account of an instruction.
//!
//! The same account may stand in several places, and a call to another program may change it, so no reference into what
//! can change is ever given out: it is read and written by value. Only the data of an account that this instruction
//! cannot write, which nobody can change while it runs, is lent as a slice.

use core::marker::PhantomData;
use core::ptr;

use crate::error::{Error, Result};
use crate::pubkey::Pubkey;
use crate::syscall::raw;

/// A view of the loader's input; copies view the same account.
#[derive(Clone, Copy)]
pub struct Account<'a> {
    head: *mut Head,
    life: PhantomData<&'a ()>,
}

/// The fixed part of an account in the loader's input; its data follows.
#[repr(C)]
struct Head {
    marker: u8,
    signer: u8,
    writable: u8,
    executable: u8,
    padding: [u8; 4],
    key: Pubkey,
    owner: Pubkey,
    lamports: u64,
    length: u64,
}

impl<'a> Account<'a> {
    /// # Safety
    /// A head and its data must lie there for 'a, 8-aligned, and only accounts may reach them.
    pub(crate) unsafe fn at(head: *mut u8) -> Self {
        Account { head: head.cast(), life: PhantomData }
    }

    // SAFETY of all below: `at` promised the head, and data of its length behind it. No reference to what can change
    // outlives a method.

    /// Its address, which never changes.
    pub fn key(&self) -> &'a Pubkey {
        unsafe { &(*self.head).key }
    }

    /// Whether both are the same account.
    pub fn is(&self, other: &Account) -> bool {
        ptr::eq(self.head, other.head)
    }

    pub fn owner(&self) -> Pubkey {
        unsafe { (*self.head).owner }
    }

    pub fn is_signer(&self) -> bool {
        unsafe { (*self.head).signer != 0 }
    }

    pub fn is_writable(&self) -> bool {
        unsafe { (*self.head).writable != 0 }
    }

    pub fn lamports(&self) -> u64 {
        unsafe { (*self.head).lamports }
    }

    /// Length of its data.
    pub fn len(&self) -> usize {
        unsafe { (*self.head).length as usize }
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Its data, read-only: [`Error::Shared`] if this instruction may write it.
    pub fn data(&self) -> Result<&'a [u8]> {
        if self.is_writable() {
            return Err(Error::Shared);
        }
        Ok(unsafe { core::slice::from_raw_parts(self.start(), self.len()) })
    }

    /// N bytes of its data: [`Error::Bounds`] when they are not all there.
    pub fn read<const N: usize>(&self, offset: usize) -> Result<[u8; N]> {
        self.range(offset, N)?;
        Ok(unsafe { self.start().add(offset).cast::<[u8; N]>().read() })
    }

    pub fn read_u8(&self, offset: usize) -> Result<u8> {
        Ok(self.read::<1>(offset)?[0])
    }

    pub fn read_u16(&self, offset: usize) -> Result<u16> {
        Ok(u16::from_le_bytes(self.read(offset)?))
    }

    pub fn read_u32(&self, offset: usize) -> Result<u32> {
        Ok(u32::from_le_bytes(self.read(offset)?))
    }

    pub fn read_u64(&self, offset: usize) -> Result<u64> {
        Ok(u64::from_le_bytes(self.read(offset)?))
    }

    pub fn read_key(&self, offset: usize) -> Result<Pubkey> {
        Ok(Pubkey(self.read(offset)?))
    }

    /// Overwrites part of its data. The runtime undoes the transaction unless the program owns it and it is writable.
    pub fn write<const N: usize>(&self, offset: usize, bytes: &[u8; N]) -> Result<()> {
        self.range(offset, N)?;
        unsafe { self.start().add(offset).cast::<[u8; N]>().write(*bytes) };
        Ok(())
    }

    pub fn write_u64(&self, offset: usize, value: u64) -> Result<()> {
        self.write(offset, &value.to_le_bytes())
    }

    /// As [`Account::write`], of any length: the compiler takes copies only of a length that it knows.
    pub fn copy(&self, offset: usize, bytes: &[u8]) -> Result<()> {
        self.range(offset, bytes.len())?;
        unsafe { raw::sol_memmove_(self.start().add(offset), bytes.as_ptr(), bytes.len() as u64) };
        Ok(())
    }

    /// Sets part of its data to zero.
    pub fn clear(&self, offset: usize, n: usize) -> Result<()> {
        self.range(offset, n)?;
        unsafe { raw::sol_memset_(self.start().add(offset), 0, n as u64) };
        Ok(())
    }

    /// Moves lamports out of an account of this program; to anything writable.
    pub fn pay(&self, to: &Account, lamports: u64) -> Result<()> {
        let left = self.lamports().checked_sub(lamports).ok_or(Error::Lamports)?;
        self.set_lamports(left);
        to.set_lamports(to.lamports().checked_add(lamports).ok_or(Error::Overflow)?);
        Ok(())
    }

    /// Ends an account of this program: all lamports go to another, no data is left, and the address is free for anyone
    /// again.
    pub fn close(&self, to: &Account) -> Result<()> {
        if self.is(to) {
            return Err(Error::Duplicate);
        }
        self.clear(0, self.len())?;
        self.pay(to, self.lamports())?;
        unsafe {
            (*self.head).length = 0;
            (*self.head).owner = Pubkey::SYSTEM;
        }
        Ok(())
    }

    fn set_lamports(&self, lamports: u64) {
        unsafe { (*self.head).lamports = lamports }
    }

    fn range(&self, offset: usize, n: usize) -> Result<()> {
        match offset.checked_add(n) {
            Some(end) if end <= self.len() => Ok(()),
            _ => Err(Error::Bounds),
        }
    }

    fn start(&self) -> *mut u8 {
        unsafe { self.head.add(1).cast() }
    }

    /// Where lamports, owner and data lie, for calls to other programs.
    pub(crate) fn parts(&self) -> Parts {
        unsafe {
            Parts {
                key: &raw const (*self.head).key,
                lamports: &raw mut (*self.head).lamports,
                length: (*self.head).length,
                data: self.start(),
                owner: &raw const (*self.head).owner,
                executable: (*self.head).executable != 0,
            }
        }
    }

    // What every instruction asks of its accounts.

    pub fn must_sign(&self) -> Result<&Self> {
        if self.is_signer() { Ok(self) } else { Err(Error::NotSigner) }
    }

    pub fn must_write(&self) -> Result<&Self> {
        if self.is_writable() { Ok(self) } else { Err(Error::NotWritable) }
    }

    pub fn must_be(&self, key: &Pubkey) -> Result<&Self> {
        if self.key() == key { Ok(self) } else { Err(Error::Address) }
    }

    pub fn must_belong_to(&self, program: &Pubkey) -> Result<&Self> {
        if self.owner() == *program { Ok(self) } else { Err(Error::Owner) }
    }
}

pub(crate) struct Parts {
    pub key: *const Pubkey,
    pub lamports: *mut u64,
    pub length: u64,
    pub data: *mut u8,
    pub owner: *const Pubkey,
    pub executable: bool,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::input::{table, tests::Region, Input};

    #[test]
    fn bounds_and_sharing() {
        let mut region = Region::default().account(1, 9, false, true, 5, &[1, 2, 3, 4, 5, 6, 7, 8, 9]).again(0).account(2, 9, true, false, 1, &[7]);
        let mut accounts = table();
        let input = unsafe { Input::parse(region.finish(b""), &mut accounts) }.unwrap();
        let [a, again, b] = input.exactly::<3>().unwrap();
        assert_eq!(a.data(), Err(Error::Shared));
        assert_eq!(b.data(), Ok(&[7][..]));
        assert_eq!(a.read_u64(1), Ok(0x0908070605040302));
        assert_eq!(a.read_u64(2), Err(Error::Bounds));
        assert_eq!(a.read_u64(usize::MAX), Err(Error::Bounds));
        assert_eq!(a.write(8, &[0, 0]), Err(Error::Bounds));
        assert_eq!(a.write(7, &[42, 43]), Ok(()));
        assert_eq!(again.read(7), Ok([42, 43]));
        assert_eq!(a.copy(7, &[44, 45, 46]), Err(Error::Bounds));
        assert_eq!(a.copy(8, &[44]), Ok(()));
        assert_eq!((a.read_u16(7), a.read_u8(8), a.read_u32(6)), (Ok(44 << 8 | 42), Ok(44), Err(Error::Bounds)));
        assert_eq!(a.clear(0, 10), Err(Error::Bounds));
        assert_eq!(a.pay(b, 6), Err(Error::Lamports));
        assert_eq!(a.pay(again, 3), Ok(()));
        assert_eq!(a.lamports(), 5, "paying oneself changes nothing");
        assert_eq!(a.pay(b, 3), Ok(()));
        assert_eq!((a.lamports(), b.lamports()), (2, 4));
        assert_eq!(a.close(again), Err(Error::Duplicate));
        assert_eq!(a.close(b), Ok(()));
        assert_eq!((a.lamports(), b.lamports(), a.len(), a.owner()), (0, 6, 0, Pubkey::SYSTEM));
        assert_eq!(a.must_sign().err(), Some(Error::NotSigner));
        assert_eq!(b.must_write().err(), Some(Error::NotWritable));
        assert_eq!(b.must_be(a.key()).err(), Some(Error::Address));
        assert_eq!(b.must_belong_to(a.key()).err(), Some(Error::Owner));
    }
}
