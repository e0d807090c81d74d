//! A bounds-checked reader of fixed layouts.

use crate::error::{Error, Result};
use crate::pubkey::Pubkey;

/// What is left to read.
pub struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    pub fn new(data: &'a [u8]) -> Self {
        Reader(data)
    }

    /// The next `n` bytes; [`Error::Data`] if there are fewer.
    pub fn bytes(&mut self, n: usize) -> Result<&'a [u8]> {
        let (head, rest) = self.0.split_at_checked(n).ok_or(Error::Data)?;
        self.0 = rest;
        Ok(head)
    }

    pub fn array<const N: usize>(&mut self) -> Result<&'a [u8; N]> {
        let (head, rest) = self.0.split_first_chunk().ok_or(Error::Data)?;
        self.0 = rest;
        Ok(head)
    }

    /// `n` times `N` bytes.
    pub fn arrays<const N: usize>(&mut self, n: usize) -> Result<&'a [[u8; N]]> {
        let size = n.checked_mul(N).ok_or(Error::Data)?;
        let bytes = self.bytes(size)?;
        // SAFETY: n arrays of N bytes, alignment 1, were just taken.
        Ok(unsafe { core::slice::from_raw_parts(bytes.as_ptr().cast(), n) })
    }

    pub fn u8(&mut self) -> Result<u8> {
        Ok(self.array::<1>()?[0])
    }

    pub fn u16(&mut self) -> Result<u16> {
        Ok(u16::from_le_bytes(*self.array()?))
    }

    pub fn u32(&mut self) -> Result<u32> {
        Ok(u32::from_le_bytes(*self.array()?))
    }

    pub fn u64(&mut self) -> Result<u64> {
        Ok(u64::from_le_bytes(*self.array()?))
    }

    pub fn pubkey(&mut self) -> Result<&'a Pubkey> {
        let bytes = self.array::<32>()?;
        // SAFETY: Pubkey is transparent over the array.
        Ok(unsafe { &*(bytes as *const [u8; 32]).cast() })
    }

    pub fn pubkeys(&mut self, n: usize) -> Result<&'a [Pubkey]> {
        let keys = self.arrays::<32>(n)?;
        // SAFETY: Pubkey is transparent over the array.
        Ok(unsafe { core::slice::from_raw_parts(keys.as_ptr().cast(), n) })
    }

    /// Everything that is left.
    pub fn rest(self) -> &'a [u8] {
        self.0
    }

    /// [`Error::Data`] when something is left.
    pub fn end(self) -> Result<()> {
        if self.0.is_empty() {
            Ok(())
        } else {
            Err(Error::Data)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bounds() {
        let data: Vec<u8> = (0..50).collect();
        let mut r = Reader::new(&data);
        assert_eq!(r.u8(), Ok(0));
        assert_eq!(r.u16(), Ok(0x0201));
        assert_eq!(r.u32(), Ok(0x06050403));
        assert_eq!(r.u64(), Ok(0x0e0d0c0b0a090807));
        assert_eq!(r.pubkey().unwrap().0[31], 46);
        assert_eq!(r.arrays::<2>(2), Err(Error::Data));
        assert_eq!(r.arrays::<2>(usize::MAX), Err(Error::Data));
        assert_eq!(r.arrays::<1>(2).unwrap(), [[47], [48]]);
        assert_eq!(r.u16(), Err(Error::Data));
        assert_eq!(r.u8(), Ok(49));
        assert_eq!(r.u8(), Err(Error::Data));
        assert_eq!(r.end(), Ok(()));
        assert_eq!(Reader::new(&data).end(), Err(Error::Data));
    }
}
