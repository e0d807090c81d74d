//! Clock and rent.

use crate::error::{Error, Result};
use crate::math;
use crate::syscall::raw;

/// What the cluster's clock says.
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub struct Clock {
    pub slot: u64,
    pub epoch_start: i64,
    pub epoch: u64,
    pub leader_schedule_epoch: u64,
    pub unix_time: i64,
}

pub fn clock() -> Result<Clock> {
    let mut clock = Clock::default();
    // SAFETY: the runtime writes a Clock.
    match unsafe { raw::sol_get_clock_sysvar((&raw mut clock).cast()) } {
        0 => Ok(clock),
        _ => Err(Error::Runtime),
    }
}

#[repr(C)]
#[derive(Default)]
struct Rent {
    lamports_per_byte_year: u64,
    years: u64, // an f64
    burn_percent: u8,
}

/// Bytes that every account is charged for beside its data.
const OVERHEAD: u64 = 128;

/// Lamports that make an account of so many bytes rent-exempt.
pub fn rent_exempt(space: u64) -> Result<u64> {
    let mut rent = Rent::default();
    // SAFETY: the runtime writes a Rent.
    if unsafe { raw::sol_get_rent_sysvar((&raw mut rent).cast()) } != 0 {
        return Err(Error::Runtime);
    }
    exempt(space, rent.lamports_per_byte_year, rent.years)
}

/// The machine has no floating point; the two values that were ever used are known by their bits.
fn exempt(space: u64, lamports_per_byte_year: u64, years: u64) -> Result<u64> {
    const ONE: u64 = 1f64.to_bits();
    const TWO: u64 = 2f64.to_bits();
    let years = match years {
        ONE => 1,
        TWO => 2,
        _ => return Err(Error::Rent),
    };
    math::mul(math::mul(math::add(space, OVERHEAD)?, lamports_per_byte_year)?, years)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rent() {
        assert_eq!(exempt(165, 3480, 2f64.to_bits()), Ok(2_039_280));
        assert_eq!(exempt(200, 6960, 1f64.to_bits()), Ok(2_282_880));
        assert_eq!(exempt(200, 6960, 1.5f64.to_bits()), Err(Error::Rent));
        assert_eq!(exempt(u64::MAX, 6960, 1f64.to_bits()), Err(Error::Overflow));
        assert_eq!(exempt(200, u64::MAX, 1f64.to_bits()), Err(Error::Overflow));
    }
}
