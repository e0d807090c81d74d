//! The SPL token program (the classic one): what the program asks of it, and what it reads of its accounts.

use crate::account::Account;
use crate::cpi::{invoke, Role, Seeds};
use crate::error::{Error, Result};
use crate::pubkey::Pubkey;
use crate::syscall::{find_program_address, Bytes};

/// Length of a token account.
pub const ACCOUNT_SIZE: u64 = 165;
/// Length of a mint.
pub const MINT_SIZE: usize = 82;

const CLOSE_ACCOUNT: u8 = 9;
const TRANSFER_CHECKED: u8 = 12;
const BURN_CHECKED: u8 = 15;
const INITIALIZE_ACCOUNT_3: u8 = 18;

const INITIALIZED: u8 = 1;

/// The mint's decimals, after checking that it is a mint: [`Error::Owner`], [`Error::Kind`].
pub fn decimals(mint: &Account) -> Result<u8> {
    mint.must_belong_to(&Pubkey::TOKEN)?;
    if mint.len() != MINT_SIZE || mint.read::<1>(45)? != [1] {
        return Err(Error::Kind);
    }
    Ok(mint.read::<1>(44)?[0])
}

/// What a token account says.
pub struct Holding {
    pub mint: Pubkey,
    pub owner: Pubkey,
    pub amount: u64,
}

/// Reads a token account that is initialized, not frozen, and lets nobody but its owner close it: [`Error::Owner`],
/// [`Error::Kind`]. A delegate is the owner's own business: the token program forgets it when the owner changes, and an owner
/// whose peer spends for it is paid into the same account.
pub fn holding(account: &Account) -> Result<Holding> {
    account.must_belong_to(&Pubkey::TOKEN)?;
    let plain = account.len() == ACCOUNT_SIZE as usize
        && account.read::<1>(108)? == [INITIALIZED]
        && account.read::<4>(129)? == [0; 4]; // close authority
    if !plain {
        return Err(Error::Kind);
    }
    Ok(Holding { mint: account.read_key(0)?, owner: account.read_key(32)?, amount: account.read_u64(64)? })
}

/// Checks that it is a token account (see [`holding`]) of this mint and wallet: also [`Error::Mint`], [`Error::TokenOwner`].
pub fn check_holding(account: &Account, mint: &Pubkey, owner: &Pubkey) -> Result<()> {
    let holding = holding(account)?;
    if holding.mint != *mint {
        return Err(Error::Mint);
    }
    if holding.owner != *owner {
        return Err(Error::TokenOwner);
    }
    Ok(())
}

/// Where wallets look for a key's tokens of a mint: its associated token account.
pub fn associated(owner: &Pubkey, mint: &Pubkey) -> Result<Pubkey> {
    Ok(find_program_address(&[Bytes::new(&owner.0), Bytes::new(&Pubkey::TOKEN.0), Bytes::new(&mint.0)], &Pubkey::ASSOCIATED_TOKEN)?.0)
}

/// Checks that somebody may be paid into this token account of its: into its associated one by anybody, into another when it
/// signs, so that nobody scatters what others earn: [`Error::Address`].
pub fn check_payee(account: &Account, mint: &Pubkey, owner: &Pubkey, signer: Option<&Account>) -> Result<()> {
    if signer.is_some_and(|s| s.key() == owner) {
        return Ok(());
    }
    account.must_be(&associated(owner, mint)?)?;
    Ok(())
}

/// What is in a token account that was checked before.
pub fn amount(account: &Account) -> Result<u64> {
    account.read_u64(64)
}

/// Turns a fresh account of the token program into a token account.
pub fn initialize(account: &Account, mint: &Account, owner: &Pubkey) -> Result<()> {
    let mut data = [0; 33];
    data[0] = INITIALIZE_ACCOUNT_3;
    data[1..].copy_from_slice(&owner.0);
    invoke(&Pubkey::TOKEN, [(account, Role::Write), (mint, Role::Read)], &data, None)
}

/// A movement of tokens: `authority` owns `from`, and signed or is signed for with the seeds.
pub struct Movement<'a, 'b> {
    pub from: &'b Account<'a>,
    pub mint: &'b Account<'a>,
    pub authority: &'b Account<'a>,
    pub amount: u64,
    pub decimals: u8,
    pub signer: Option<Seeds<'b>>,
}

impl Movement<'_, '_> {
    /// To another token account of the mint.
    pub fn transfer(&self, to: &Account) -> Result<()> {
        let accounts = [(self.from, Role::Write), (self.mint, Role::Read), (to, Role::Write), (self.authority, Role::Sign)];
        invoke(&Pubkey::TOKEN, accounts, &self.data(TRANSFER_CHECKED), self.signer)
    }

    /// Out of existence.
    pub fn burn(&self) -> Result<()> {
        let accounts = [(self.from, Role::Write), (self.mint, Role::Write), (self.authority, Role::Sign)];
        invoke(&Pubkey::TOKEN, accounts, &self.data(BURN_CHECKED), self.signer)
    }

    fn data(&self, name: u8) -> [u8; 10] {
        let mut data = [0; 10];
        data[0] = name;
        data[1..9].copy_from_slice(&self.amount.to_le_bytes());
        data[9] = self.decimals;
        data
    }
}

/// Closes an empty token account; its rent goes to another.
pub fn close(account: &Account, to: &Account, authority: &Account, signer: Option<Seeds>) -> Result<()> {
    let accounts = [(account, Role::Write), (to, Role::Write), (authority, Role::Sign)];
    invoke(&Pubkey::TOKEN, accounts, &[CLOSE_ACCOUNT], signer)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::input::{table, tests::Region, Input};

    fn read<T>(owner: Pubkey, data: &[u8], f: impl Fn(&Account) -> T) -> T {
        let mut region = Region::default().account(1, 0xaa, false, true, 1, data);
        let start = region.finish(b"");
        // The account's owner stands 48 bytes into the region.
        unsafe { start.add(48).cast::<Pubkey>().write(owner) };
        let mut accounts = table();
        let input = unsafe { Input::parse(start, &mut accounts) }.unwrap();
        f(&input.accounts[0])
    }

    #[test]
    fn plain_token_accounts_only() {
        let mut good = vec![0; 165];
        good[..32].fill(1);
        good[32..64].fill(2);
        good[64..72].copy_from_slice(&77u64.to_le_bytes());
        good[108] = INITIALIZED;
        let check = |data: &[u8]| read(Pubkey::TOKEN, data, |a| check_holding(a, &Pubkey([1; 32]), &Pubkey([2; 32])));
        assert_eq!(check(&good), Ok(()));
        let mut lent = good.clone();
        lent[72] = 1; // a delegate
        assert_eq!(check(&lent), Ok(()));
        assert_eq!(read(Pubkey::TOKEN, &good, |a| holding(a).map(|h| h.amount)), Ok(77));
        assert_eq!(read(Pubkey([1; 32]), &good, |a| holding(a).err()), Some(Error::Owner));
        for (at, value, want) in [
            (0, 3, Error::Mint),
            (63, 3, Error::TokenOwner),
            (108, 0, Error::Kind), // uninitialized
            (108, 2, Error::Kind), // frozen
            (129, 1, Error::Kind), // somebody else may close it
        ] {
            let mut bad = good.clone();
            bad[at] = value;
            assert_eq!(check(&bad), Err(want), "{at}");
        }
        for length in [0, 82, 164, 166, 355] {
            let mut bad = good.clone();
            bad.resize(length, 0);
            assert_eq!(check(&bad), Err(Error::Kind), "{length}");
        }
    }

    #[test]
    fn mints() {
        let mut good = vec![0; MINT_SIZE];
        good[44..46].copy_from_slice(&[6, 1]);
        assert_eq!(read(Pubkey::TOKEN, &good, decimals), Ok(6));
        assert_eq!(read(Pubkey::SYSTEM, &good, decimals), Err(Error::Owner));
        assert_eq!(read(Pubkey::TOKEN, &[&good[..], &[0]].concat(), decimals), Err(Error::Kind));
        good[45] = 0;
        assert_eq!(read(Pubkey::TOKEN, &good, decimals), Err(Error::Kind));
    }
}
