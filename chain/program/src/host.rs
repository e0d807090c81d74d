//! Stands in for the runtime where there is none: tests on the host. Hashing is real, everything else fails or says
//! nothing.

#![allow(clippy::arithmetic_side_effects)] // never on chain

use std::sync::LazyLock;

use crate::syscall::Bytes;

pub unsafe fn abort() -> ! {
    panic!("abort")
}

pub unsafe fn sol_log_(_: *const u8, _: u64) {}

pub unsafe fn sol_log_64_(_: u64, _: u64, _: u64, _: u64, _: u64) {}

pub unsafe fn sol_memmove_(to: *mut u8, from: *const u8, n: u64) {
    unsafe { core::ptr::copy(from, to, n as usize) }
}

pub unsafe fn sol_memset_(to: *mut u8, byte: u8, n: u64) {
    unsafe { core::ptr::write_bytes(to, byte, n as usize) }
}

pub unsafe fn sol_sha256(slices: *const u8, count: u64, hash: *mut u8) -> u64 {
    let slices = unsafe { core::slice::from_raw_parts(slices.cast::<Bytes>(), count as usize) };
    let all: Vec<u8> = slices.iter().flat_map(|s| s.get().iter().copied()).collect();
    unsafe { hash.cast::<[u8; 32]>().write(sha256(&all)) };
    0
}

pub unsafe fn sol_create_program_address(_: *const u8, _: u64, _: *const u8, _: *mut u8) -> u64 {
    1
}

pub unsafe fn sol_try_find_program_address(_: *const u8, _: u64, _: *const u8, _: *mut u8, _: *mut u8) -> u64 {
    1
}

pub unsafe fn sol_invoke_signed_c(_: *const u8, _: *const u8, _: u64, _: *const u8, _: u64) -> u64 {
    1
}

pub unsafe fn sol_get_clock_sysvar(_: *mut u8) -> u64 {
    1
}

pub unsafe fn sol_get_rent_sysvar(_: *mut u8) -> u64 {
    1
}

pub unsafe fn sol_set_return_data(_: *const u8, _: u64) {}

/// FIPS 180-4, whose constants are the first 32 bits of the fractions of the square and cube roots of the first primes.
fn sha256(message: &[u8]) -> [u8; 32] {
    static CONSTANTS: LazyLock<(Vec<u32>, Vec<u32>)> = LazyLock::new(|| {
        let primes: Vec<u32> = (2..312).filter(|n| (2..*n).all(|d| n % d != 0)).collect();
        let fraction = |root: f64| (root.fract() * 4294967296.0) as u32;
        let k = primes.iter().map(|&p| fraction(f64::from(p).cbrt())).collect();
        (k, primes[..8].iter().map(|&p| fraction(f64::from(p).sqrt())).collect())
    });
    let (k, mut h) = (&CONSTANTS.0, CONSTANTS.1.clone());
    let mut data = message.to_vec();
    data.push(0x80);
    data.resize((data.len() + 8).next_multiple_of(64) - 8, 0);
    data.extend((message.len() as u64 * 8).to_be_bytes());
    for block in data.chunks(64) {
        let mut w: Vec<u32> = block.chunks(4).map(|c| u32::from_be_bytes(c.try_into().unwrap())).collect();
        for i in 16..64 {
            let s0 = w[i - 15].rotate_right(7) ^ w[i - 15].rotate_right(18) ^ w[i - 15] >> 3;
            let s1 = w[i - 2].rotate_right(17) ^ w[i - 2].rotate_right(19) ^ w[i - 2] >> 10;
            w.push(w[i - 16].wrapping_add(s0).wrapping_add(w[i - 7]).wrapping_add(s1));
        }
        let mut v = h.clone();
        for i in 0..64 {
            let s1 = v[4].rotate_right(6) ^ v[4].rotate_right(11) ^ v[4].rotate_right(25);
            let choice = v[4] & v[5] ^ !v[4] & v[6];
            let t1 = v[7].wrapping_add(s1).wrapping_add(choice).wrapping_add(k[i]).wrapping_add(w[i]);
            let s0 = v[0].rotate_right(2) ^ v[0].rotate_right(13) ^ v[0].rotate_right(22);
            let majority = v[0] & v[1] ^ v[0] & v[2] ^ v[1] & v[2];
            v[3] = v[3].wrapping_add(t1);
            v[7] = t1.wrapping_add(s0).wrapping_add(majority);
            v.rotate_right(1);
        }
        for (a, b) in h.iter_mut().zip(v) {
            *a = a.wrapping_add(b);
        }
    }
    let mut out = [0; 32];
    for (o, x) in out.chunks_mut(4).zip(h) {
        o.copy_from_slice(&x.to_be_bytes());
    }
    out
}

#[cfg(test)]
mod tests {
    #[test]
    fn known_hashes() {
        let hex = |b: &[u8]| -> String { super::sha256(b).iter().map(|x| format!("{x:02x}")).collect() };
        assert_eq!(hex(b""), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
        assert_eq!(hex(b"abc"), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
        assert_eq!(hex(&[b'a'; 1000]), "41edece42d63e8d9bf515a9ba6932e1c20cbc9f5a5d134645adb5db1b9737ea3");
    }
}
