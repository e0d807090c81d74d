//! The loader's input, read where it lies.
//!
//! ```text
//! count u64 ‖ count × account ‖ data length u64 ‖ data ‖ program id[32]
//!
//! account, first time                                   account again
//!   0     1  255                                          0  1  index of the first time
//!   1     1  signer                                       1  7  padding
//!   2     1  writable
//!   3     1  executable
//!   4     4  padding
//!   8    32  address
//!  40    32  owner
//!  72     8  lamports
//!  80     8  n = length of data
//!  88     n  data
//!   -     -  10,240 bytes to grow into, padding to a multiple of 8
//!   -     8  rent epoch
//! ```

use core::marker::PhantomData;
use core::mem::MaybeUninit;

use crate::account::Account;
use crate::error::{Error, Result};
use crate::pubkey::Pubkey;

/// The most accounts one instruction takes.
pub const MAX_ACCOUNTS: usize = 64;
/// How long an account's data can be on Solana.
const MAX_DATA: u64 = 10 << 20;
/// How long an instruction's data can be: the runtime's limit for calls between programs.
const MAX_INSTRUCTION: u64 = 10 << 10;
const GROWTH: usize = 10 << 10;
const HEAD: usize = 88;
const FIRST: u8 = 255;

/// Where the accounts are noted down: on the caller's stack, so that they need not be moved.
pub type Table<'a> = [MaybeUninit<Account<'a>>; MAX_ACCOUNTS];

/// An empty one.
pub const fn table<'a>() -> Table<'a> {
    [const { MaybeUninit::uninit() }; MAX_ACCOUNTS]
}

/// One call of the program.
pub struct Input<'a> {
    /// In the order of the instruction. An account that stands twice is the same [`Account`] twice.
    pub accounts: &'a [Account<'a>],
    /// The instruction's data, with the byte that names it.
    pub data: &'a [u8],
    /// This program's own address.
    pub program: &'a Pubkey,
}

impl<'a> Input<'a> {
    /// Finds the parts.
    ///
    /// # Safety
    /// `input` must be the loader's input region, 8-aligned, and live for 'a with nobody else reading or writing it.
    pub unsafe fn parse(input: *mut u8, accounts: &'a mut Table<'a>) -> Result<Input<'a>> {
        let mut at = Cursor { at: input, life: PhantomData };
        // SAFETY of all below: the loader laid it out as above; what could lead outside is checked first.
        let count = unsafe { at.u64() };
        if count > MAX_ACCOUNTS as u64 {
            return Err(Error::TooManyAccounts);
        }
        for i in 0..count as usize {
            let marker = unsafe { *at.at };
            if marker == FIRST {
                accounts[i].write(unsafe { at.account() }?);
            } else if usize::from(marker) < i {
                accounts[i] = accounts[usize::from(marker)];
                unsafe { at.skip(8) };
            } else {
                return Err(Error::Input);
            }
        }
        let length = unsafe { at.u64() };
        if length > MAX_INSTRUCTION {
            return Err(Error::Input);
        }
        let data = unsafe { core::slice::from_raw_parts(at.at, length as usize) };
        unsafe { at.skip(length as usize) };
        let program = unsafe { &*at.at.cast::<Pubkey>() };
        // The first `count` were written.
        let accounts = unsafe { core::slice::from_raw_parts(accounts.as_ptr().cast(), count as usize) };
        Ok(Input { accounts, data, program })
    }

    /// The accounts, when there are exactly N: [`Error::AccountCount`] otherwise.
    pub fn exactly<const N: usize>(&self) -> Result<&'a [Account<'a>; N]> {
        self.accounts.try_into().map_err(|_| Error::AccountCount)
    }

    /// The N accounts, and one more, which signs, if there is one: [`Error::AccountCount`], [`Error::NotSigner`].
    pub fn and_signer<const N: usize>(&self) -> Result<(&'a [Account<'a>; N], Option<&'a Account<'a>>)> {
        match self.accounts.split_first_chunk() {
            Some((first, [])) => Ok((first, None)),
            Some((first, [signer])) => Ok((first, Some(signer.must_sign()?))),
            _ => Err(Error::AccountCount),
        }
    }
}

struct Cursor<'a> {
    at: *mut u8,
    life: PhantomData<&'a mut u8>,
}

impl<'a> Cursor<'a> {
    /// # Safety
    /// n more bytes belong to the region.
    unsafe fn skip(&mut self, n: usize) {
        self.at = unsafe { self.at.add(n) };
    }

    /// # Safety
    /// 8 more bytes belong to the region.
    unsafe fn u64(&mut self) -> u64 {
        let value = unsafe { self.at.cast::<u64>().read_unaligned() };
        unsafe { self.skip(8) };
        value
    }

    /// # Safety
    /// An account's first time begins here, 8-aligned.
    unsafe fn account(&mut self) -> Result<Account<'a>> {
        // SAFETY: the head is there.
        let account = unsafe { Account::at(self.at) };
        let length = unsafe { self.at.add(80).cast::<u64>().read() };
        if length > MAX_DATA {
            return Err(Error::Input);
        }
        let data = (length as usize).next_multiple_of(8);
        unsafe { self.skip(data.saturating_add(HEAD + GROWTH + 8)) };
        Ok(account)
    }
}

#[cfg(test)]
pub mod tests {
    use super::*;

    /// Writes an input as the loader does. u64 elements: the region is 8-aligned.
    #[derive(Default)]
    pub struct Region {
        bytes: Vec<u8>,
        count: u64,
        aligned: Vec<u64>,
    }

    impl Region {
        pub fn account(mut self, key: u8, owner: u8, signer: bool, writable: bool, lamports: u64, data: &[u8]) -> Self {
            self.count += 1;
            self.bytes.extend([FIRST, signer.into(), writable.into(), 0, 0, 0, 0, 0]);
            self.bytes.extend([key; 32]);
            self.bytes.extend([owner; 32]);
            self.bytes.extend(lamports.to_le_bytes());
            self.bytes.extend((data.len() as u64).to_le_bytes());
            self.bytes.extend(data);
            self.bytes.resize(self.bytes.len() + GROWTH, 0);
            self.bytes.resize(self.bytes.len().next_multiple_of(8), 0);
            self.bytes.extend([0xff; 8]);
            self
        }

        pub fn again(mut self, index: u8) -> Self {
            self.count += 1;
            self.bytes.extend([index, 0, 0, 0, 0, 0, 0, 0]);
            self
        }

        pub fn finish(&mut self, data: &[u8]) -> *mut u8 {
            let mut all = self.count.to_le_bytes().to_vec();
            all.extend(&self.bytes);
            all.extend((data.len() as u64).to_le_bytes());
            all.extend(data);
            all.extend([0xee; 32]);
            all.resize(all.len().next_multiple_of(8), 0);
            self.aligned = all.chunks(8).map(|c| u64::from_le_bytes(c.try_into().unwrap())).collect();
            self.aligned.as_mut_ptr().cast()
        }
    }

    #[test]
    fn reads_what_the_loader_writes() {
        let mut region = Region::default().account(1, 2, true, false, 7, b"abc").account(3, 4, false, true, 9, &[]).again(0);
        let mut accounts = table();
        let input = unsafe { Input::parse(region.finish(b"hello"), &mut accounts) }.unwrap();
        assert_eq!(input.data, b"hello");
        assert_eq!(input.program, &Pubkey([0xee; 32]));
        let [a, b, c] = input.exactly::<3>().unwrap();
        assert_eq!((a.key(), a.owner(), a.is_signer(), a.is_writable(), a.lamports()), (&Pubkey([1; 32]), Pubkey([2; 32]), true, false, 7));
        assert_eq!(a.data(), Ok(&b"abc"[..]));
        assert_eq!((b.is_signer(), b.is_writable(), b.len(), b.lamports()), (false, true, 0, 9));
        assert!(a.is(c) && !a.is(b));
        assert_eq!(input.exactly::<2>().err(), Some(Error::AccountCount));
    }

    #[test]
    fn refuses_what_the_loader_never_writes() {
        let with = |mut r: Region, data: &[u8]| {
            let mut accounts = table();
            let refused = unsafe { Input::parse(r.finish(data), &mut accounts) }.err();
            refused
        };
        let parse = |r| with(r, b"");
        assert_eq!(parse(Region::default().again(0)), Some(Error::Input));
        assert_eq!(parse(Region::default().account(1, 1, true, true, 0, b"").again(1)), Some(Error::Input));
        let mut many = Region::default().account(1, 1, true, true, 0, b"");
        for _ in 0..MAX_ACCOUNTS {
            many = many.again(0);
        }
        assert_eq!(parse(many), Some(Error::TooManyAccounts));
        assert_eq!(with(Region::default(), &vec![0; MAX_INSTRUCTION as usize + 1]), Some(Error::Input));
    }
}
