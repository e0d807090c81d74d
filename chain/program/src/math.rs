//! Arithmetic that says when it does not fit.

use crate::error::{Error, Result};

const HALF: u64 = 0xffff_ffff;

/// a + b
pub fn add(a: u64, b: u64) -> Result<u64> {
    a.checked_add(b).ok_or(Error::Overflow)
}

/// a − b
pub fn sub(a: u64, b: u64) -> Result<u64> {
    a.checked_sub(b).ok_or(Error::Overflow)
}

/// a · b
pub fn mul(a: u64, b: u64) -> Result<u64> {
    match wide(a, b) {
        (0, low) => Ok(low),
        _ => Err(Error::Overflow),
    }
}

/// ⌊a · b / c⌋, with the whole product in between. [`Error::Overflow`] also when c is 0.
#[allow(clippy::arithmetic_side_effects)] // shifts by less than 64
pub fn mul_div(a: u64, b: u64, c: u64) -> Result<u64> {
    let (mut rest, low) = wide(a, b);
    if rest == 0 {
        return low.checked_div(c).ok_or(Error::Overflow);
    }
    if rest >= c {
        return Err(Error::Overflow);
    }
    if c <= HALF {
        // Long division by one digit of 32 bits.
        let middle = rest << 32 | low >> 32;
        let last = middle.wrapping_rem(c) << 32 | low & HALF;
        return Ok(middle.wrapping_div(c) << 32 | last.wrapping_div(c));
    }
    // Long division, a bit at a time: rest stays below c.
    let mut quotient = 0u64;
    for bit in (0..64).rev() {
        let carry = rest >> 63;
        rest = rest << 1 | (low >> bit & 1);
        quotient <<= 1;
        if carry != 0 || rest >= c {
            rest = rest.wrapping_sub(c);
            quotient |= 1;
        }
    }
    Ok(quotient)
}

/// The 128-bit product, high and low half: the machine has no instruction for it.
fn wide(a: u64, b: u64) -> (u64, u64) {
    let (ah, al, bh, bl) = (a >> 32, a & HALF, b >> 32, b & HALF);
    // None of these can wrap: each factor is below 2^32.
    let low = al.wrapping_mul(bl);
    let mid = ah.wrapping_mul(bl).wrapping_add(low >> 32);
    let mid2 = al.wrapping_mul(bh).wrapping_add(mid & HALF);
    let high = ah.wrapping_mul(bh).wrapping_add(mid >> 32).wrapping_add(mid2 >> 32);
    (high, mid2 << 32 | low & HALF)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn agrees_with_128_bits() {
        let edges = [0, 1, 2, 3, 999_999, 1_000_000, u32::MAX as u64, 1 << 32, (1 << 32) + 1, 1 << 63, u64::MAX - 1, u64::MAX];
        let mut state = 88172645463325252u64; // xorshift
        let mut values = edges.to_vec();
        for i in 0..60 {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            values.push(state >> (i % 64));
        }
        for &a in &values {
            for &b in &values {
                let product = a as u128 * b as u128;
                assert_eq!(mul(a, b).ok(), u64::try_from(product).ok(), "{a} * {b}");
                for &c in &values {
                    let want = product.checked_div(c as u128).and_then(|q| u64::try_from(q).ok());
                    assert_eq!(mul_div(a, b, c).ok(), want, "{a} * {b} / {c}");
                }
            }
        }
        assert_eq!(add(u64::MAX, 1), Err(Error::Overflow));
        assert_eq!(sub(1, 2), Err(Error::Overflow));
    }
}
