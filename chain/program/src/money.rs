//! What a lease costs, what is kept of it, and whose that is. As in market/PROTOCOL.md, section 3, all counted from the
//! beginning: what is due now is the difference of two totals, so that rounding never adds up, however often it is asked.

use crate::error::Result;
use crate::math::{mul_div, sub};
use crate::network::{Terms, WHOLE};

/// ⌊rate · slots / 10⁶⌋ exactly, in base units: [`crate::error::Error::Overflow`] when it does not fit 64 bits.
pub fn owed(rate: u64, slots: u64) -> Result<u64> {
    mul_div(rate, slots, 1_000_000)
}

/// What is kept of a payment when `paid` was paid before, both with fees: fees of all payments together are
/// ⌈payments · rate / 10,000⌉.
pub fn fee(paid: u64, payment: u64, rate: u16) -> Result<u64> {
    let total = paid.checked_add(payment).ok_or(crate::error::Error::Overflow)?;
    sub(kept(total, rate)?, kept(paid, rate)?)
}

/// ⌈total · rate / 10,000⌉, with rate at most 10,000.
fn kept(total: u64, rate: u16) -> Result<u64> {
    let rate = u64::from(rate);
    let floor = mul_div(total, rate, WHOLE)?;
    // Both products modulo 2⁶⁴ are equal when there is no remainder, which is below 10,000, and only then.
    let exact = floor.wrapping_mul(WHOLE) == total.wrapping_mul(rate);
    Ok(if exact { floor } else { floor.saturating_add(1) })
}

/// Who gets what of fees.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Split {
    pub pool: u64,
    pub treasury: u64,
    pub referrer: u64,
    /// All the rest.
    pub burn: u64,
}

/// Whose shares there are beside what burns.
pub struct There {
    pub pool: bool,
    pub treasury: bool,
    pub referrer: bool,
}

/// Splits fees when `swept` were split before. Shares are counted from totals, but never more than there is: of a sweep of one
/// or two base units several totals may rise at once.
pub fn split(swept: u64, fees: u64, terms: &Terms, there: &There) -> Result<Split> {
    let total = swept.checked_add(fees).ok_or(crate::error::Error::Overflow)?;
    let mut burn = fees;
    let mut share = |share: u16, there: bool| {
        let due = if there { sub(mul_div(total, share.into(), WHOLE)?, mul_div(swept, share.into(), WHOLE)?)? } else { 0 };
        let given = due.min(burn);
        burn = sub(burn, given)?;
        Ok(given)
    };
    let (pool, treasury, referrer) = (share(terms.pool, there.pool)?, share(terms.treasury, there.treasury)?, share(terms.referrer, there.referrer)?);
    Ok(Split { pool, treasury, referrer, burn })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Error;
    use crate::pubkey::Pubkey;

    struct Random(u64);

    impl Random {
        fn next(&mut self) -> u64 {
            self.0 ^= self.0 << 13;
            self.0 ^= self.0 >> 7;
            self.0 ^= self.0 << 17;
            self.0 >> (self.0 % 64)
        }
    }

    #[test]
    fn what_is_owed() {
        assert_eq!(owed(2_666_666_667, 150), Ok(400_000));
        assert_eq!(owed(999_999, 1), Ok(0));
        assert_eq!(owed(u64::MAX, 1_000_000), Ok(u64::MAX));
        assert_eq!(owed(u64::MAX, 1_000_001), Err(Error::Overflow));
        assert_eq!(owed(u64::MAX, u64::MAX), Err(Error::Overflow));
    }

    #[test]
    fn fees_do_not_depend_on_how_often_is_paid() {
        let mut random = Random(88172645463325252);
        for rate in [1u16, 10, 25, 50, 333, 1000, 10_000] {
            for _ in 0..200 {
                let total = random.next();
                let want = (u128::from(total) * u128::from(rate)).div_ceil(10_000) as u64;
                assert_eq!(fee(0, total, rate), Ok(want), "{total} {rate}");
                let (mut paid, mut fees) = (0, 0);
                for _ in 0..50 {
                    let payment = (random.next() % 1000).min(total - paid);
                    let kept = fee(paid, payment, rate).unwrap();
                    assert!(kept <= payment);
                    (paid, fees) = (paid + payment, fees + kept);
                }
                assert_eq!(Ok(fees + fee(paid, total - paid, rate).unwrap()), fee(0, total, rate));
            }
        }
        assert_eq!(fee(u64::MAX, 1, 10), Err(Error::Overflow));
        assert_eq!(fee(0, u64::MAX, 10_000), Ok(u64::MAX));
    }

    #[test]
    fn shares_are_all_of_the_fees() {
        let mut random = Random(1);
        for shares in [[5000u16, 2500, 1500, 1000], [10_000, 0, 0, 0], [2000, 8000, 0, 0], [2001, 3333, 3333, 1333]] {
            let [burn, pool, treasury, referrer] = shares;
            let terms = Terms { mint: Pubkey([1; 32]), fee: 50, burn, pool, treasury, referrer, decimals: 6 };
            for mask in 0..8 {
                let there = There { pool: mask & 1 > 0, treasury: mask & 2 > 0, referrer: mask & 4 > 0 };
                let (mut swept, mut all) = (0, Split::default());
                for _ in 0..50 {
                    let fees = random.next() >> 10;
                    let s = split(swept, fees, &terms, &there).unwrap();
                    assert_eq!(s.pool + s.treasury + s.referrer + s.burn, fees);
                    swept += fees;
                    all = Split { pool: all.pool + s.pool, treasury: all.treasury + s.treasury, referrer: all.referrer + s.referrer, burn: all.burn + s.burn };
                }
                assert_eq!(all, split(0, swept, &terms, &there).unwrap(), "however often it is swept");
                let share = |share: u16, there: bool| if there { (u128::from(swept) * u128::from(share) / 10_000) as u64 } else { 0 };
                assert_eq!((all.pool, all.treasury, all.referrer), (share(pool, there.pool), share(treasury, there.treasury), share(referrer, there.referrer)));
                assert!(u128::from(all.burn) * 10_000 >= u128::from(swept) * u128::from(burn));
            }
            let there = There { pool: true, treasury: true, referrer: true };
            let (mut swept, mut burned) = (0u64, 0u64);
            for fees in (0..20_000).map(|i| i % 3) {
                let s = split(swept, fees, &terms, &there).unwrap();
                assert_eq!(s.pool + s.treasury + s.referrer + s.burn, fees, "one base unit at a time");
                (swept, burned) = (swept + fees, burned + s.burn);
                assert!(burned * 10_000 >= swept * u64::from(burn));
            }
            assert_eq!(split(u64::MAX, 1, &terms, &there), Err(Error::Overflow));
        }
    }
}
