//! The transaction's other instructions, from the instructions sysvar.
//!
//! ```text
//! count u16 ‖ count × offset u16 ‖ instructions ‖ current u16
//! instruction = n u16 ‖ n × ( flags u8 ‖ address[32] ) ‖ program[32] ‖ data length u16 ‖ data
//! ```

use crate::account::Account;
use crate::error::{Error, Result};
use crate::pubkey::Pubkey;
use crate::reader::Reader;

/// All top-level instructions of the transaction.
pub struct Instructions<'a>(&'a [u8]);

/// One of them.
pub struct Instruction<'a> {
    pub program: &'a Pubkey,
    pub data: &'a [u8],
}

const META: usize = 33;

impl<'a> Instructions<'a> {
    /// [`Error::Address`] when the account is not the sysvar.
    pub fn of(sysvar: &Account<'a>) -> Result<Self> {
        sysvar.must_be(&Pubkey::INSTRUCTIONS)?;
        Ok(Instructions(sysvar.data()?))
    }

    pub fn count(&self) -> Result<u16> {
        Reader::new(self.0).u16()
    }

    /// Number of the top-level instruction that runs now: this program's, unless another program called it.
    pub fn current(&self) -> Result<u16> {
        let (_, last) = self.0.split_last_chunk().ok_or(Error::Data)?;
        Ok(u16::from_le_bytes(*last))
    }

    /// [`Error::NoInstruction`] when there are fewer.
    pub fn get(&self, i: u16) -> Result<Instruction<'a>> {
        if i >= self.count()? {
            return Err(Error::NoInstruction);
        }
        let mut offsets = Reader::new(self.0);
        offsets.bytes(usize::from(i).saturating_mul(2).saturating_add(2))?;
        let mut r = Reader::new(self.0);
        r.bytes(offsets.u16()?.into())?;
        let accounts = usize::from(r.u16()?);
        r.bytes(accounts.saturating_mul(META))?;
        let program = r.pubkey()?;
        let length = r.u16()?;
        Ok(Instruction { program, data: r.bytes(length.into())? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn layout() {
        let mut b = vec![2, 0, 6, 0, 50, 0]; // two instructions, at 6 and 50
        b.extend([0, 0]);
        b.extend([7; 32]);
        b.extend([8, 0]);
        b.extend(*b"ed25519!");
        b.extend([1, 0, 3]);
        b.extend([1; 32]);
        b.extend([9; 32]);
        b.extend([2, 0, 0xaa, 0xbb]);
        b.extend([1, 0]);
        let all = Instructions(&b);
        assert_eq!((all.count(), all.current()), (Ok(2), Ok(1)));
        let first = all.get(0).unwrap();
        assert_eq!((first.program, first.data), (&Pubkey([7; 32]), &b"ed25519!"[..]));
        let second = all.get(1).unwrap();
        assert_eq!((second.program, second.data), (&Pubkey([9; 32]), &[0xaa, 0xbb][..]));
        assert_eq!(all.get(2).err(), Some(Error::NoInstruction));
        for cut in 0..b.len() - 2 {
            let short = Instructions(&b[..cut]);
            assert!(short.get(1).is_err(), "{cut}");
        }
    }
}
