//! Hands a network's authority on.

use crate::error::{Error, Result};
use crate::input::Input;
use crate::network::Network;
use crate::reader::Reader;

/// Replaces the network's authority, or with zeros gives it up for ever. All that an authority can do beside this is to
/// draw on the verifiers' pools.
///
/// Accounts: authority (signs), network (writable). Data: new authority[32].
pub fn set_authority(input: &Input, data: &[u8]) -> Result<()> {
    let mut r = Reader::new(data);
    let new = r.pubkey()?;
    r.end()?;
    let [authority, network] = input.exactly()?;
    authority.must_sign()?;
    let network = Network::of(network.must_write()?, input.program)?;
    let now = network.authority()?;
    if now.is_zero() || now != *authority.key() {
        return Err(Error::Authority);
    }
    network.set_authority(new)
}
