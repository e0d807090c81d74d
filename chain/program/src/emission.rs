//! The schedule of the emission: how much of it belongs to an epoch. In whole base units, and never more in all than the cap.
//!
//! ```text
//! month 0 gives ⌊cap / 90⌋, each month after it ⌊what the one before gave · 98,984,895 / 10⁸⌋, month 240 and later nothing
//! epoch number k of a month's n gives ⌊month · (k + 1) / n⌋ − ⌊month · k / n⌋
//! ```
//!
//! With a cap of 300 million that is 8 % of 500 million a year in the beginning, falling by 1.015105 % a month. Rounding down
//! keeps the sum of all months below the cap: 90 · (1 − 0.98984895²⁴⁰) is less than 90 (`the_cap_holds`).
//!
//! Unawarded and unclaimed amounts of an epoch stay in the account permanently. Nothing is
//! carried into another epoch, so that a temporary holder of two thirds of the bonds gets no backlog.

use crate::error::Result;
use crate::math::{add, mul_div, sub};
use crate::network::MONTHS;

const FIRST: u64 = 90;
const FALLS_TO: u64 = 98_984_895;
const OF: u64 = 100_000_000;

/// What month number `month` gives.
pub fn month(cap: u64, month: u64) -> Result<u64> {
    if month >= MONTHS.into() {
        return Ok(0);
    }
    let mut gives = cap.checked_div(FIRST).unwrap_or(0);
    for _ in 0..month {
        gives = mul_div(gives, FALLS_TO, OF)?;
    }
    Ok(gives)
}

/// What epoch number `epoch` gives, with `n` epochs to a month; n is not 0.
pub fn epoch(cap: u64, n: u32, epoch: u64) -> Result<u64> {
    let n = u64::from(n);
    let (of_month, k) = (epoch.checked_div(n).unwrap_or(0), epoch.checked_rem(n).unwrap_or(0));
    let gives = month(cap, of_month)?;
    sub(mul_div(gives, add(k, 1)?, n)?, mul_div(gives, k, n)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    const STAR: u64 = 1_000_000_000; // base units

    #[test]
    fn by_hand() {
        let cap = 300_000_000 * STAR;
        assert_eq!(month(cap, 0), Ok(3_333_333_333_333_333));
        assert_eq!(month(cap, 1), Ok(3_299_496_499_999_999));
        assert_eq!(month(cap, 239), Ok(290_972_693_527_627));
        assert_eq!((month(cap, 240), month(cap, u64::MAX)), (Ok(0), Ok(0)));
        assert_eq!((epoch(cap, 1, 0), epoch(cap, 1, 1)), (month(cap, 0), month(cap, 1)));
        assert_eq!(epoch(cap, 3, 2), Ok(1_111_111_111_111_111));
        assert_eq!(epoch(89, 3, 0), Ok(0));
        assert_eq!(epoch(90, 3, 0), Ok(0));
        assert_eq!(epoch(90, 3, 2), Ok(1));
    }

    #[test]
    fn the_cap_holds() {
        for cap in [0, 1, 89, 90, 1000, 300_000_000 * 1_000_000, 300_000_000 * STAR, u64::MAX] {
            for n in [1, 7, 30, 720] {
                let (mut all, mut before) = (0u128, u64::MAX);
                for m in 0..240 {
                    let gives = month(cap, m).unwrap();
                    let epochs: u64 = (0..u64::from(n)).map(|k| epoch(cap, n, m * u64::from(n) + k).unwrap()).sum();
                    assert_eq!(epochs, gives, "the epochs of a month give what it gives");
                    assert!(gives <= before, "it falls");
                    (all, before) = (all + u128::from(gives), gives);
                }
                assert!(all <= u128::from(cap), "{all} of {cap}");
                assert!(cap < 1_000_000_000 || u128::from(cap) - all < u128::from(cap) / 1_000_000, "and nearly all of it: {all} of {cap}");
                assert_eq!(epoch(cap, n, 240 * u64::from(n)), Ok(0));
                assert_eq!(epoch(cap, n, u64::MAX), Ok(0));
            }
        }
    }
}
