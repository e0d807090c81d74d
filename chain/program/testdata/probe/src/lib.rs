//! A program for tests: what Starling's own stands on, called from outside. Each instruction does one thing and checks
//! with what it reads afterwards that it was done.
#![no_std]
#![allow(unexpected_cfgs)]

#[path = "../../../src/account.rs"]
pub mod account;
#[path = "../../../src/builtins.rs"]
mod builtins;
#[path = "../../../src/cpi.rs"]
pub mod cpi;
#[path = "../../../src/ed25519.rs"]
pub mod ed25519;
#[path = "../../../src/error.rs"]
pub mod error;
#[path = "../../../src/input.rs"]
pub mod input;
#[path = "../../../src/introspect.rs"]
pub mod introspect;
#[path = "../../../src/math.rs"]
pub mod math;
#[path = "../../../src/pubkey.rs"]
pub mod pubkey;
#[path = "../../../src/reader.rs"]
pub mod reader;
#[path = "../../../src/syscall.rs"]
pub mod syscall;
#[path = "../../../src/system.rs"]
pub mod system;
#[path = "../../../src/sysvar.rs"]
pub mod sysvar;
#[path = "../../../src/token.rs"]
pub mod token;
/// What ed25519 knows of networks.
pub mod network {
    pub const PREFIX: usize = 96;
}

use error::{Error, Result};
use input::Input;
use introspect::Instructions;
use pubkey::Pubkey;
use reader::Reader;
use syscall::{find_program_address, program_address, Bytes};

/// What was done is not what was asked for.
const WRONG: u64 = 1000;

/// # Safety
/// `input` must be the loader's input region.
#[no_mangle]
pub unsafe extern "C" fn entrypoint(input: *mut u8) -> u64 {
    let mut accounts = input::table();
    let done = unsafe { Input::parse(input, &mut accounts) }.and_then(|input| process(&input));
    match done {
        Ok(true) => 0,
        Ok(false) => WRONG,
        Err(e) => e as u64,
    }
}

fn process(input: &Input) -> Result<bool> {
    let mut r = Reader::new(input.data);
    match r.u8()? {
        0 => open(input, r),
        1 => spend(input, r),
        2 => close(input),
        3 => signed(input, r),
        4 => copies(r),
        5 => arithmetic(r),
        6 => state(input, r),
        7 => panics(r),
        8 => says(input, r),
        _ => Err(Error::Instruction),
    }
}

/// The vault's seed is the mint's address; it owns itself.
fn vault(input: &Input, mint: &Pubkey, which: u8) -> Result<(Pubkey, [u8; 2])> {
    let (address, bump) = find_program_address(&[Bytes::new(&mint.0), Bytes::new(&[which])], input.program)?;
    let again = program_address(&[Bytes::new(&mint.0), Bytes::new(&[which]), Bytes::new(&[bump])], input.program)?;
    if again == address { Ok((address, [which, bump])) } else { Err(Error::Address) }
}

/// Opens vault number `which`. Accounts: payer, vault, mint, system program, token program.
fn open(input: &Input, mut r: Reader) -> Result<bool> {
    let which = r.u8()?;
    let [payer, account, mint, system, _] = input.exactly()?;
    let (address, seed) = vault(input, mint.key(), which)?;
    account.must_be(&address)?;
    let seeds = [Bytes::new(&mint.key().0), Bytes::new(&seed[..1]), Bytes::new(&seed[1..])];
    system::New { payer, account, system, space: token::ACCOUNT_SIZE, program: &Pubkey::TOKEN, seeds: &seeds }.create()?;
    token::initialize(account, mint, account.key())?;
    let h = token::holding(account)?;
    Ok(h.mint == *mint.key() && h.owner == *account.key() && h.amount == 0 && token::decimals(mint)? == 6)
}

/// Moves an amount from vault 0 to vault 1 and burns as much. Accounts: from, to, mint, token program.
fn spend(input: &Input, mut r: Reader) -> Result<bool> {
    let amount = r.u64()?;
    let [from, to, mint, _] = input.exactly()?;
    let (_, seed) = vault(input, mint.key(), 0)?;
    let seeds = [Bytes::new(&mint.key().0), Bytes::new(&seed[..1]), Bytes::new(&seed[1..])];
    let before = (token::holding(from)?.amount, token::holding(to)?.amount, mint.read_u64(36)?);
    let m = token::Movement { from, mint, authority: from, amount, decimals: 6, signer: Some(&seeds) };
    m.transfer(to)?;
    m.burn()?;
    let after = (token::holding(from)?.amount, token::holding(to)?.amount, mint.read_u64(36)?);
    let left = math::sub(before.0, math::mul(amount, 2)?)?;
    Ok(after == (left, math::add(before.1, amount)?, math::sub(before.2, amount)?))
}

/// Closes vault 0. Accounts: vault, receiver, mint, token program.
fn close(input: &Input) -> Result<bool> {
    let [account, to, mint, _] = input.exactly()?;
    let (_, seed) = vault(input, mint.key(), 0)?;
    let seeds = [Bytes::new(&mint.key().0), Bytes::new(&seed[..1]), Bytes::new(&seed[1..])];
    let (rent, before) = (account.lamports(), to.lamports());
    token::close(account, to, account, Some(&seeds))?;
    Ok(account.lamports() == 0 && account.is_empty() && to.lamports() == math::add(before, rent)?)
}

/// Who signed 16 bytes after a prefix, by instruction number `at`. Accounts: instructions sysvar. Data: at u16 ‖ n u8 ‖
/// n × key[32] ‖ prefix[96] ‖ bytes[16].
fn signed(input: &Input, mut r: Reader) -> Result<bool> {
    let (at, n) = (r.u16()?, r.u8()?);
    let (keys, prefix, bytes) = (r.pubkeys(n.into())?, r.array()?, r.array::<16>()?);
    r.end()?;
    let [sysvar] = input.exactly()?;
    let all = Instructions::of(sysvar)?;
    let own = all.get(all.current()?)?;
    if own.program != input.program || own.data != input.data {
        return Ok(false);
    }
    let (signed, layout) = ed25519::signed_by::<16>(&all.get(at)?, prefix)?;
    Ok(signed == keys && layout == bytes)
}

/// Copies of lengths that the compiler does not know, which become calls by name. Data: n u16.
fn copies(mut r: Reader) -> Result<bool> {
    let n = usize::from(r.u16()?);
    let mut a = [0u8; 1200];
    let mut b = [0u8; 1200];
    a.get_mut(..n).ok_or(Error::Bounds)?.fill(7);
    b[..n].copy_from_slice(&a[..n]);
    let same = a[..n] == b[..n];
    a[0] = 9;
    a.copy_within(..n, 1);
    let less = a[..n] > b[..n];
    Ok(same && less && a[1] == 9 && a[2..=n].iter().all(|x| *x == 7) && a[n + 1..].iter().all(|x| *x == 0))
}

/// a · b / c must be d. Data: a b c d u64.
fn arithmetic(mut r: Reader) -> Result<bool> {
    let (a, b, c, d) = (r.u64()?, r.u64()?, r.u64()?, r.u64()?);
    Ok(math::mul_div(a, b, c)? == d)
}

/// Makes (1), fills (2), and closes (3) an account of the program. Accounts: payer, account, system.
fn state(input: &Input, mut r: Reader) -> Result<bool> {
    let step = r.u8()?;
    let [payer, account, system] = input.exactly()?;
    let (address, bump) = find_program_address(&[Bytes::new(b"state")], input.program)?;
    account.must_be(&address)?;
    match step {
        1 => {
            let bump = [bump];
            let seeds = [Bytes::new(b"state"), Bytes::new(&bump)];
            system::New { payer, account, system, space: 100, program: input.program, seeds: &seeds }.create()?;
            Ok(account.len() == 100 && account.lamports() == sysvar::rent_exempt(100)? && account.read(92)? == [0; 8])
        }
        2 => {
            account.must_belong_to(input.program)?;
            account.write(91, &[5; 9])?;
            Ok(account.write(92, &[5; 9]) == Err(Error::Bounds) && account.data() == Err(Error::Shared))
        }
        _ => {
            account.close(payer)?;
            Ok(account.is_empty())
        }
    }
}

/// An index that is not there: the transaction ends.
fn panics(mut r: Reader) -> Result<bool> {
    let table = [true, false];
    Ok(table[usize::from(r.u8()?)])
}

/// Log and return data.
fn says(input: &Input, r: Reader) -> Result<bool> {
    syscall::log("hello from the probe");
    syscall::log_numbers([1, 2, 3, 4, input.accounts.len() as u64]);
    syscall::set_return_data(r.rest());
    Ok(sysvar::clock()?.slot > 0)
}

#[panic_handler]
fn panic(_: &core::panic::PanicInfo) -> ! {
    syscall::abort()
}
