//! Signatures that the Ed25519 precompile checked.
//!
//! A transaction with a bad signature in an instruction of the precompile fails as a whole, whichever instruction comes
//! first; so one anywhere in the transaction proves its signatures. It says where key, signature and message lie by
//! offsets into any instruction of the transaction. Only one form is taken here, in which all lie in its own data and
//! every signature is of the one message:
//!
//! ```text
//! n u8 ‖ 0 u8 ‖ n × ( signature offset u16 ‖ own ‖ key offset u16 ‖ own ‖ message offset u16 ‖ message size u16 ‖ own )
//!   ‖ n × key[32] ‖ n × signature[64] ‖ message          with 1 ≤ n ≤ 5, own = 0xffff, each offset where it then lies
//! message = prefix[96] ‖ layout                          as in ../../../market/PROTOCOL.md, section 1
//! ```

use crate::error::{Error, Result};
use crate::introspect::Instruction;
use crate::network::PREFIX;
use crate::pubkey::Pubkey;
use crate::reader::Reader;

/// The most signatures of one instruction.
pub const MAX_SIGNATURES: u8 = 5;

const HEAD: u16 = 2;
const ENTRY: u16 = 14;
const KEY: u16 = 32;
const SIGNATURE: u16 = 64;
/// "This instruction", whichever it is.
const OWN: u16 = u16::MAX;

/// The keys that signed a layout of N bytes after the prefix, as they stand there, and the layout: [`Error::Precompile`]
/// when the instruction is not the precompile's or not in the form above, [`Error::Message`] when the prefix differs.
pub fn signed_by<'a, const N: usize>(instruction: &Instruction<'a>, prefix: &[u8; PREFIX]) -> Result<(&'a [Pubkey], &'a [u8; N])> {
    if *instruction.program != Pubkey::ED25519 {
        return Err(Error::Precompile);
    }
    parse(instruction.data, prefix).map_err(|e| if e == Error::Data { Error::Precompile } else { e })
}

fn parse<'a, const N: usize>(data: &'a [u8], prefix: &[u8; PREFIX]) -> Result<(&'a [Pubkey], &'a [u8; N])> {
    let mut r = Reader::new(data);
    let (n, padding) = (r.u8()?, r.u8()?);
    if n == 0 || n > MAX_SIGNATURES || padding != 0 {
        return Err(Error::Precompile);
    }
    // None of these can wrap: n is at most 5, N a layout's size.
    let n = u16::from(n);
    let keys = n.wrapping_mul(ENTRY).wrapping_add(HEAD);
    let signatures = n.wrapping_mul(KEY).wrapping_add(keys);
    let message = n.wrapping_mul(SIGNATURE).wrapping_add(signatures);
    let size = (PREFIX as u16).wrapping_add(N as u16);
    for i in 0..n {
        let signature = i.wrapping_mul(SIGNATURE).wrapping_add(signatures);
        let key = i.wrapping_mul(KEY).wrapping_add(keys);
        for want in [signature, OWN, key, OWN, message, size, OWN] {
            if r.u16()? != want {
                return Err(Error::Precompile);
            }
        }
    }
    let signed = r.pubkeys(n.into())?;
    r.arrays::<64>(n.into())?;
    let (before, layout) = (r.array::<PREFIX>()?, r.array::<N>()?);
    r.end()?;
    if before != prefix {
        return Err(Error::Message);
    }
    Ok((signed, layout))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn instruction(n: u8, layout: &[u8]) -> Vec<u8> {
        let mut data = vec![n, 0];
        let n = u16::from(n);
        for i in 0..n {
            let message = 2 + 110 * n;
            for v in [2 + 46 * n + 64 * i, OWN, 2 + 14 * n + 32 * i, OWN, message, 96 + layout.len() as u16, OWN] {
                data.extend(v.to_le_bytes());
            }
        }
        (0..n).for_each(|i| data.extend([i as u8 + 1; 32]));
        (0..n).for_each(|_| data.extend([6; 64]));
        data.extend([9; PREFIX]);
        data.extend(layout);
        data
    }

    fn read(data: &[u8]) -> Result<(Vec<Pubkey>, [u8; 4])> {
        signed_by::<4>(&Instruction { program: &Pubkey::ED25519, data }, &[9; PREFIX]).map(|(keys, layout)| (keys.to_vec(), *layout))
    }

    #[test]
    fn takes_one_form() {
        for n in 1..=5 {
            let data = instruction(n, b"four");
            let keys: Vec<Pubkey> = (1..=n).map(|i| Pubkey([i; 32])).collect();
            assert_eq!(read(&data), Ok((keys, *b"four")));
            // No byte of what is not a key, a signature or the layout can be another.
            let pinned = (0..2 + 14 * usize::from(n)).chain(data.len() - 100..data.len() - 4);
            for i in pinned {
                for bit in [1, 0x80] {
                    let mut bad = data.clone();
                    bad[i] ^= bit;
                    assert!(read(&bad).is_err(), "{n} {i}");
                }
            }
            for cut in 0..data.len() {
                assert_eq!(read(&data[..cut]), Err(Error::Precompile));
            }
            assert_eq!(read(&[&data[..], &[0]].concat()), Err(Error::Precompile));
        }
        for n in [0, 6, 255] {
            assert_eq!(read(&instruction(n, b"four")), Err(Error::Precompile));
        }
        for layout in [&b"tre"[..], b"fiver"] {
            assert_eq!(read(&instruction(1, layout)), Err(Error::Precompile));
        }
        let data = instruction(1, b"four");
        let other = signed_by::<4>(&Instruction { program: &Pubkey::ED25519, data: &data }, &[8; PREFIX]);
        assert_eq!(other.err(), Some(Error::Message));
        let other = signed_by::<4>(&Instruction { program: &Pubkey::TOKEN, data: &data }, &[9; PREFIX]);
        assert_eq!(other.err(), Some(Error::Precompile));
    }
}
