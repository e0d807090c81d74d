//! What the compiler calls by name and nobody else provides on a bare BPF target: comparing, through the runtime.
//! (Copying is turned into syscalls when the program is built. The official toolchain brings both.)

extern "C" {
    fn sol_memcmp_(a: *const u8, b: *const u8, n: u64, order: *mut i32);
}

#[no_mangle]
unsafe extern "C" fn memcmp(a: *const u8, b: *const u8, n: u64) -> i32 {
    let mut order = 0;
    unsafe { sol_memcmp_(a, b, n, &mut order) };
    order
}

#[no_mangle]
unsafe extern "C" fn bcmp(a: *const u8, b: *const u8, n: u64) -> i32 {
    unsafe { memcmp(a, b, n) }
}
