//! Rules: what a vote can change in a network, and how far. They stand behind its parameters (network.rs), which say where
//! they begin.
//!
//! ```text
//! rules, 24 + 16·n bytes; no vote leads out of the bounds, which are of the parameters
//!   0   4  response: once to four times
//!   4   4  reserved: 0
//!   8   8  unbonding: once to four times, so that it outlives evidence
//!  16   8  least stake: a quarter to four times
//!  24   -  n × ( fee u16 ‖ burn u16 ‖ pool u16 ‖ treasury u16 ‖ referrer u16 ‖ 0 (6) ), as in params
//! ```

use crate::error::{Error, Result};
use crate::math;
use crate::network::{term, Network, COUNTERS, HEAD, MAX_MINTS, WHOLE};
use crate::reader::Reader;

/// The rules without the mints, and of one mint.
pub const RULES: usize = 24;
pub const SHARES: usize = 16;
/// The longest rules.
pub const MAX_RULES: usize = RULES + SHARES * MAX_MINTS as usize;
/// How many times what the parameters say a vote can make a window, or a least stake.
const TIMES: u64 = 4;
const MIN_FEE: u16 = 10;
const MAX_FEE: u16 = 1_000;
const MIN_BURN: u16 = 2_000;

impl Network<'_> {
    pub fn response(&self) -> Result<u64> {
        Ok(self.0.read_u32(self.rule(0)?)?.into())
    }

    pub fn unbonding(&self) -> Result<u64> {
        self.0.read_u64(self.rule(8)?)
    }

    pub fn min_stake(&self) -> Result<u64> {
        self.0.read_u64(self.rule(16)?)
    }

    /// Replaces the rules by lawful ones.
    pub fn set_rules(&self, rules: &[u8]) -> Result<()> {
        self.0.copy(self.rule(0)?, rules)?;
        self.0.write_u64(self.counter(0)?, math::add(self.sequence()?, 1)?)
    }

    /// How long the rules are.
    pub fn rules_size(&self) -> Result<usize> {
        Ok(usize::from(self.mints()?).wrapping_mul(SHARES).wrapping_add(RULES))
    }

    /// Where something of the rules stands.
    pub fn rule(&self, offset: usize) -> Result<usize> {
        Ok(self.counter(COUNTERS)?.wrapping_add(offset))
    }

    /// The rules with which a network begins: what its parameters say.
    pub fn begin(&self) -> Result<()> {
        let (response, unbonding, stake) = (self.0.read::<4>(HEAD + 148)?, self.0.read::<8>(HEAD + 152)?, self.0.read::<8>(HEAD + 168)?);
        self.0.write(self.rule(0)?, &response)?;
        self.0.write(self.rule(8)?, &unbonding)?;
        self.0.write(self.rule(16)?, &stake)?;
        for i in 0..self.mints()? {
            let shares = self.0.read::<10>(term(i, 32))?;
            self.0.write(self.rule(shares_of(i))?, &shares)?;
        }
        Ok(())
    }

    /// Whether a vote may make these the rules: [`Error::Params`], [`Error::Data`].
    pub fn check_rules(&self, rules: &[u8]) -> Result<()> {
        let mut r = Reader::new(rules);
        let (response, reserved, unbonding, stake) = (u64::from(r.u32()?), r.u32()?, r.u64()?, r.u64()?);
        let (first_response, first_unbonding) = (self.0.read_u32(HEAD + 148)?.into(), self.0.read_u64(HEAD + 152)?);
        let first_stake = self.0.read_u64(HEAD + 168)?;
        let sound = reserved == 0
            && (first_response..=u64::MAX).contains(&response)
            && response.div_ceil(TIMES) <= first_response
            && unbonding >= first_unbonding
            && unbonding.div_ceil(TIMES) <= first_unbonding
            && stake >= first_stake / TIMES
            && stake.div_ceil(TIMES) <= first_stake;
        if !sound {
            return Err(Error::Params);
        }
        for _ in 0..self.mints()? {
            let shares = Shares::read(&mut r)?;
            if !shares.sound() || *r.array::<6>()? != [0; 6] {
                return Err(Error::Params);
            }
        }
        r.end()
    }
}

/// Where the shares of mint number i stand in the rules.
pub fn shares_of(i: u8) -> usize {
    usize::from(i).wrapping_mul(SHARES).wrapping_add(RULES)
}

/// The fee of one mint, and whose it is.
pub struct Shares {
    pub fee: u16,
    pub burn: u16,
    pub pool: u16,
    pub treasury: u16,
    pub referrer: u16,
}

impl Shares {
    pub fn read(r: &mut Reader) -> Result<Self> {
        Ok(Shares { fee: r.u16()?, burn: r.u16()?, pool: r.u16()?, treasury: r.u16()?, referrer: r.u16()? })
    }

    pub fn sound(&self) -> bool {
        let sum = [self.burn, self.pool, self.treasury, self.referrer].iter().fold(0u64, |sum, s| sum.wrapping_add((*s).into()));
        (MIN_FEE..=MAX_FEE).contains(&self.fee) && self.burn >= MIN_BURN && sum == WHOLE
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::network::tests::{example, with};

    #[test]
    fn rules_have_bounds() {
        let fees = |terms: [u16; 5]| [&terms.map(u16::to_le_bytes).concat()[..], &[0; 6]].concat();
        let rules = |response: u32, unbonding: u64, stake: u64, more: &[Vec<u8>]| {
            [&response.to_le_bytes()[..], &[0; 4], &unbonding.to_le_bytes(), &stake.to_le_bytes(), &more.concat()].concat()
        };
        let check = |b: &[u8]| with(&example(), |n| n.check_rules(b));
        let good = [fees([10, 2000, 8000, 0, 0]), fees([1000, 10_000, 0, 0, 0])];
        for (response, unbonding, stake, want) in [
            (200, 1000, 77, Ok(())),
            (800, 4000, 308, Ok(())),
            (200, 1000, 19, Ok(())),
            (199, 1000, 77, Err(Error::Params)),
            (801, 1000, 77, Err(Error::Params)),
            (u32::MAX, 1000, 77, Err(Error::Params)),
            (200, 999, 77, Err(Error::Params)),
            (200, 4001, 77, Err(Error::Params)),
            (200, u64::MAX, 77, Err(Error::Params)),
            (200, 1000, 18, Err(Error::Params)),
            (200, 1000, 309, Err(Error::Params)),
            (200, 1000, u64::MAX, Err(Error::Params)),
        ] {
            assert_eq!(check(&rules(response, unbonding, stake, &good)), want, "{response} {unbonding} {stake}");
        }
        for bad in [[9, 2000, 8000, 0, 0], [1001, 2000, 8000, 0, 0], [10, 1999, 8001, 0, 0], [10, 2000, 7999, 0, 0], [10, 2000, 8001, 0, 0], [10, 0xffff, 0xffff, 0xffff, 0x2713]] {
            assert_eq!(check(&rules(200, 1000, 77, &[good[0].clone(), fees(bad)])), Err(Error::Params), "{bad:?}");
        }
        assert_eq!(check(&rules(200, 1000, 77, &good[..1])), Err(Error::Data));
        assert_eq!(check(&rules(200, 1000, 77, &[&good[..], &good[..1]].concat())), Err(Error::Data));
        for i in [4, 7, 34, 39] {
            let mut b = rules(200, 1000, 77, &good);
            b[i] = 1;
            assert_eq!(check(&b), Err(Error::Params), "{i}");
        }
    }
}
