//! Keys that may sign vouchers.

use crate::error::{Error, Result};
use crate::pubkey::Pubkey;

/// y of the points of order 8, 4, 2 and 1 (market/PROTOCOL.md, section 1), little-endian without the sign bit: under such
/// a key anybody can make signatures. p and p + 1 stand for 0 and 1 and are refused with everything else above p − 1.
const WEAK: [[u8; 32]; 4] = [
    [0; 32],
    {
        let mut one = [0; 32];
        one[0] = 1;
        one
    },
    [
        0x26, 0xe8, 0x95, 0x8f, 0xc2, 0xb2, 0x27, 0xb0, 0x45, 0xc3, 0xf4, 0x89, 0xf2, 0xef, 0x98, 0xf0, 0xd5, 0xdf, 0xac, 0x05, 0xd3, 0xc6, 0x33, 0x39,
        0xb1, 0x38, 0x02, 0x88, 0x6d, 0x53, 0xfc, 0x05,
    ],
    [
        0xc7, 0x17, 0x6a, 0x70, 0x3d, 0x4d, 0xd8, 0x4f, 0xba, 0x3c, 0x0b, 0x76, 0x0d, 0x10, 0x67, 0x0f, 0x2a, 0x20, 0x53, 0xfa, 0x2c, 0x39, 0xcc, 0xc6,
        0x4e, 0xc7, 0xfd, 0x77, 0x92, 0xac, 0x03, 0x7a,
    ],
];

/// Checks a set of keys and how many of them must sign: [`Error::KeySet`].
pub fn check<'k>(threshold: u8, max: usize, keys: impl Iterator<Item = &'k Pubkey>) -> Result<()> {
    let mut before: Option<&Pubkey> = None;
    let mut count = 0usize;
    for key in keys {
        if weak(key) || before.is_some_and(|b| b.0 >= key.0) {
            return Err(Error::KeySet);
        }
        before = Some(key);
        count = count.saturating_add(1);
    }
    if count > max || threshold == 0 || usize::from(threshold) > count { Err(Error::KeySet) } else { Ok(()) }
}

/// Whether a key is of small order or not in its one form: y ≥ p − 1, where p − 1 is of order 2 and p = 2²⁵⁵ − 19.
fn weak(key: &Pubkey) -> bool {
    let mut y = key.0;
    y[31] &= 0x7f;
    let top = y[31] == 0x7f && y[1..31].iter().all(|&b| b == 0xff) && y[0] >= 0xec;
    top || WEAK.contains(&y)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sets() {
        let keys = [Pubkey([3; 32]), Pubkey([4; 32]), Pubkey([5; 32])];
        let check = |threshold, keys: &[Pubkey]| check(threshold, 3, keys.iter());
        for threshold in 1..=3 {
            assert_eq!(check(threshold, &keys), Ok(()));
        }
        for (threshold, keys) in [
            (0, &keys[..]),
            (4, &keys),
            (0, &[]),
            (1, &[]),
            (1, &[keys[0], keys[0]]),
            (1, &[keys[1], keys[0]]),
            (1, &[keys[0], keys[1], keys[2], Pubkey([6; 32])]),
        ] {
            assert_eq!(check(threshold, keys), Err(Error::KeySet));
        }
    }

    #[test]
    fn weak_keys() {
        let below = |n: u8| {
            let mut y = [0xff; 32]; // 2²⁵⁵ − 1, with the sign
            y[0] = n;
            y
        };
        let mut weak_ys: Vec<[u8; 32]> = WEAK.to_vec();
        weak_ys.extend((0xec..=0xff).map(below));
        for mut y in weak_ys {
            for sign in [0x80, 0x80] {
                y[31] ^= sign;
                assert!(weak(&Pubkey(y)), "{y:x?}");
                assert_eq!(check(1, 5, [Pubkey(y)].iter()), Err(Error::KeySet));
            }
        }
        assert!(!weak(&Pubkey(below(0xeb))));
        assert!(!weak(&Pubkey([2; 32])));
    }
}
