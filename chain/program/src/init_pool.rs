//! Creates a verifiers' pool.

use crate::error::{Error, Result};
use crate::input::Input;
use crate::network::{self, Network};
use crate::pubkey::Pubkey;
use crate::reader::Reader;
use crate::syscall::Bytes;
use crate::system::New;
use crate::token;

/// Creates the token account in which the pool's share of one mint's fees is kept. Anybody may.
///
/// Accounts: payer (signs, writable), network, mint, pool (writable; its address is in network.rs), token program, system
/// program. Data: index of the mint u8.
pub fn init_pool(input: &Input, data: &[u8]) -> Result<()> {
    let mut r = Reader::new(data);
    let index = r.u8()?;
    r.end()?;
    let [payer, account, mint, pool, token, system] = input.exactly()?;
    payer.must_sign()?.must_write()?;
    pool.must_write()?;
    token.must_be(&Pubkey::TOKEN)?;
    if Network::of(account, input.program)?.mint(index)?.mint != *mint.key() {
        return Err(Error::Mint);
    }
    let (address, bump) = network::pool(account.key(), mint.key(), input.program)?;
    pool.must_be(&address)?;
    let bump = [bump];
    let seeds = [Bytes::new(b"pool"), Bytes::new(&account.key().0), Bytes::new(&mint.key().0), Bytes::new(&bump)];
    New { payer, account: pool, system, space: token::ACCOUNT_SIZE, program: &Pubkey::TOKEN, seeds: &seeds }.create()?;
    token::initialize(pool, mint, account.key())
}
