//! Addresses.

/// 32 bytes that name an account: an Ed25519 key, or a point off the curve that only a program can sign for.
#[repr(transparent)]
#[derive(Clone, Copy, Debug, Eq)]
pub struct Pubkey(pub [u8; 32]);

impl PartialEq for Pubkey {
    fn eq(&self, other: &Self) -> bool {
        same(&self.0, &other.0)
    }
}

/// Whether two keys or hashes are equal, by words: half the price of asking the runtime.
pub fn same(a: &[u8; 32], b: &[u8; 32]) -> bool {
    let word = |x: &[u8; 32], at: usize| {
        let mut w = [0; 8];
        w.copy_from_slice(&x[at..][..8]);
        u64::from_le_bytes(w)
    };
    word(a, 0) == word(b, 0) && word(a, 8) == word(b, 8) && word(a, 16) == word(b, 16) && word(a, 24) == word(b, 24)
}

impl Pubkey {
    pub const SYSTEM: Pubkey = Pubkey([0; 32]);
    pub const TOKEN: Pubkey = Pubkey::base58("TokenkegQfeZyiNwAJbNbGKPFXCWuBvf9Ss623VQ5DA");
    pub const ASSOCIATED_TOKEN: Pubkey = Pubkey::base58("ATokenGPvbdGVxr1b2hvZbsiqW5xWH25efTNsLJA8knL");
    pub const ED25519: Pubkey = Pubkey::base58("Ed25519SigVerify111111111111111111111111111");
    /// Wrapped SOL, which cannot be burned.
    pub const NATIVE_MINT: Pubkey = Pubkey::base58("So11111111111111111111111111111111111111112");
    pub const INSTRUCTIONS: Pubkey = Pubkey::base58("Sysvar1nstructions1111111111111111111111111");

    /// Where an address is optional, zeros mean that there is none.
    pub fn is_zero(&self) -> bool {
        *self == Pubkey([0; 32])
    }

    /// Reads the usual text form, at compile time: a mistake does not compile.
    #[allow(clippy::arithmetic_side_effects)] // would not compile
    pub const fn base58(text: &str) -> Pubkey {
        let text = text.as_bytes();
        let mut out = [0u8; 32];
        let mut i = 0;
        while i < text.len() {
            let mut carry = digit(text[i]);
            let mut at = out.len();
            while at > 0 {
                at -= 1;
                let value = out[at] as u32 * 58 + carry;
                out[at] = value as u8;
                carry = value >> 8;
            }
            assert!(carry == 0, "more than 32 bytes");
            i += 1;
        }
        Pubkey(out)
    }
}

#[allow(clippy::arithmetic_side_effects)]
const fn digit(c: u8) -> u32 {
    let alphabet = b"123456789ABCDEFGHJKLMNPQRSTUVWXYZabcdefghijkmnopqrstuvwxyz";
    let mut i = 0;
    while alphabet[i] != c {
        i += 1; // runs out of bounds, at compile time, when there is no such digit
    }
    i as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sameness() {
        let a = [7; 32];
        assert!(same(&a, &a));
        for i in 0..32 {
            let mut b = a;
            b[i] ^= 0x80;
            assert!(!same(&a, &b) && Pubkey(a) != Pubkey(b), "{i}");
        }
    }

    #[test]
    fn text_form() {
        assert_eq!(Pubkey::base58("11111111111111111111111111111111"), Pubkey::SYSTEM);
        let token = "06ddf6e1d765a193d9cbe146ceeb79ac1cb485ed5f5b37913a8cf5857eff00a9";
        let hex: String = Pubkey::TOKEN.0.iter().map(|b| format!("{b:02x}")).collect();
        assert_eq!(hex, token);
    }
}
