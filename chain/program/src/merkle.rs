//! The plain Merkle tree of market/merkle: pairs level by level, a node without a right neighbour moves up unchanged.
//!
//! ```text
//! leaf = SHA-256( 0x00 ‖ data )
//! node = SHA-256( 0x01 ‖ left[32] ‖ right[32] )
//! root = SHA-256( 0x02 ‖ count u64 ‖ top[32] )
//! ```

use crate::error::{Error, Result};
use crate::pubkey::same;
use crate::syscall::{sha256, Bytes};

pub type Hash = [u8; 32];

/// The longest path.
pub const MAX_DEPTH: u32 = 20;
/// The most leaves that have one no longer.
pub const MAX_LEAVES: u64 = 1 << MAX_DEPTH;

/// The statement that data is leaf `index` of exactly `count`.
pub struct Proof<'a> {
    pub data: &'a [u8],
    pub index: u64,
    pub count: u64,
    /// Siblings, lowest first.
    pub path: &'a [Hash],
}

/// Checks it against a root: [`Error::Index`], [`Error::Path`] (too long or too short), [`Error::Root`].
pub fn verify(proof: &Proof, root: &Hash) -> Result<()> {
    let &Proof { data, index, count, path } = proof;
    if index >= count || count > MAX_LEAVES {
        return Err(Error::Index);
    }
    let mut node = sha256(&[Bytes::new(&[0x00]), Bytes::new(data)]);
    let mut siblings = path.iter();
    let (mut at, mut last) = (index, count.saturating_sub(1)); // places in this level: the node's, the last one's
    while last > 0 {
        if at & 1 == 1 {
            node = join(siblings.next().ok_or(Error::Path)?, &node);
        } else if at < last {
            node = join(&node, siblings.next().ok_or(Error::Path)?);
        }
        at >>= 1;
        last >>= 1;
    }
    if siblings.next().is_some() {
        return Err(Error::Path);
    }
    let leads_to = sha256(&[Bytes::new(&[0x02]), Bytes::new(&count.to_le_bytes()), Bytes::new(&node)]);
    if same(&leads_to, root) {
        Ok(())
    } else {
        Err(Error::Root)
    }
}

fn join(left: &Hash, right: &Hash) -> Hash {
    sha256(&[Bytes::new(&[0x01]), Bytes::new(left), Bytes::new(right)])
}

#[cfg(test)]
pub mod tests {
    use super::*;

    /// The root, and the path of one leaf.
    pub fn build(leaves: &[Hash], index: usize) -> (Hash, Vec<Hash>) {
        let mut level: Vec<Hash> = leaves.iter().map(|l| sha256(&[Bytes::new(&[0]), Bytes::new(l)])).collect();
        let (mut path, mut at) = (vec![], index);
        while level.len() > 1 {
            path.extend(level.get(at ^ 1));
            level = level.chunks(2).map(|pair| if let [l, r] = pair { join(l, r) } else { pair[0] }).collect();
            at /= 2;
        }
        (sha256(&[Bytes::new(&[2]), Bytes::new(&(leaves.len() as u64).to_le_bytes()), Bytes::new(&level[0])]), path)
    }

    #[test]
    fn every_leaf_of_every_shape() {
        for n in 1..=33usize {
            let leaves: Vec<Hash> = (0..n).map(|i| [i as u8; 32]).collect();
            for i in 0..n {
                let (root, path) = build(&leaves, i);
                let check = |index: usize, count: usize, path: &[Hash]| verify(&Proof { data: &leaves[i], index: index as u64, count: count as u64, path }, &root);
                assert_eq!(check(i, n, &path), Ok(()), "{i} of {n}");
                assert!(check(i ^ 1, n, &path).is_err());
                assert!(check(i, n + 1, &path).is_err());
                assert!(check(i + 1, n, &path).is_err());
                assert_eq!(check(n, n, &path), Err(Error::Index));
                assert_eq!(verify(&Proof { data: &[0xff; 32], index: i as u64, count: n as u64, path: &path }, &root), Err(Error::Root));
                let mut longer = path.clone();
                longer.push([0; 32]);
                assert_eq!(check(i, n, &longer), Err(Error::Path));
                if let Some((_, shorter)) = path.split_last() {
                    assert_eq!(check(i, n, shorter), Err(Error::Path));
                }
            }
        }
        for count in [0, MAX_LEAVES + 1, u64::MAX] {
            assert_eq!(verify(&Proof { data: &[], index: 0, count, path: &[] }, &[0; 32]), Err(Error::Index));
        }
    }
}
