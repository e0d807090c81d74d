//! The Merkle sum tree of verify/tranche: leases of a tranche, and that their caps fit into its sum.
//!
//! ```text
//! leaf = SHA-256( 0x10 ‖ leaf layout[136] )                                       sum = cap
//! node = SHA-256( 0x11 ‖ left[32] ‖ left sum u64 ‖ right[32] ‖ right sum u64 )    sum = left + right
//! root = SHA-256( 0x12 ‖ count u16 ‖ sum u64 ‖ top[32] )
//!
//! leaf layout: 1 u8 ‖ 0 u8 ‖ index u16 ‖ 0 u32 ‖ provider[32] ‖ lease[32] ‖ payout[32] ‖ terms[32]
//! terms: rate u64 ‖ cap u64 ‖ start slot u64 ‖ end slot u64
//! ```

use crate::error::{Error, Result};
use crate::math;
use crate::pubkey::same;
use crate::reader::Reader;
use crate::syscall::{sha256, Bytes};

/// Most leaves of a tree.
pub const MAX_LEAVES: u16 = 256;
/// Length of a hash with its sum.
pub const NODE: usize = 40;

/// Hash ‖ sum, as it stands in proofs and in what is hashed.
pub type Node = [u8; NODE];

/// A lease's place in a tranche.
pub struct Leaf<'a> {
    pub index: u16,
    pub provider: &'a [u8; 32],
    pub lease: &'a [u8; 32],
    pub payout: &'a [u8; 32],
    pub terms: &'a [u8; 32],
}

/// Rate and cap of a lease, and its slots.
pub struct Terms {
    pub rate: u64,
    pub cap: u64,
    pub start: u64,
    pub end: u64,
}

/// What a tranche commits to.
#[derive(Debug, PartialEq, Eq)]
pub struct Root {
    pub hash: [u8; 32],
    pub sum: u64,
    pub count: u16,
}

impl Root {
    /// [`Error::Index`] when it is a root of no leaves or too many.
    pub fn check(&self) -> Result<()> {
        if self.count == 0 || self.count > MAX_LEAVES { Err(Error::Index) } else { Ok(()) }
    }
}

impl Leaf<'_> {
    /// [`Error::Leaf`] when the slots are none.
    pub fn terms(&self) -> Result<Terms> {
        let mut r = Reader::new(self.terms);
        let (rate, cap, start, end) = (r.u64()?, r.u64()?, r.u64()?, r.u64()?);
        if start >= end {
            return Err(Error::Leaf);
        }
        Ok(Terms { rate, cap, start, end })
    }

    pub fn node(&self) -> Node {
        let mut head = [0; 9];
        head[..2].copy_from_slice(&[0x10, 1]);
        head[3..5].copy_from_slice(&self.index.to_le_bytes());
        let parts = [Bytes::new(&head), Bytes::new(self.provider), Bytes::new(self.lease), Bytes::new(self.payout), Bytes::new(self.terms)];
        let mut cap = [0; 8];
        cap.copy_from_slice(&self.terms[8..16]);
        node(sha256(&parts), u64::from_le_bytes(cap))
    }

    /// Checks that it is under a root, by its siblings, lowest first; the terms: [`Error::Leaf`], [`Error::Index`],
    /// [`Error::Path`] (too long or too short), [`Error::Overflow`], [`Error::Sum`], [`Error::Root`].
    pub fn verify(&self, path: &[Node], root: &Root) -> Result<Terms> {
        root.check()?;
        if self.index >= root.count {
            return Err(Error::Index);
        }
        let terms = self.terms()?;
        let mut top = self.node();
        let mut siblings = path.iter();
        let (mut at, mut last) = (self.index, root.count.wrapping_sub(1)); // places in this level: the node's, the last one's
        while last > 0 {
            if at & 1 == 1 {
                top = join(siblings.next().ok_or(Error::Path)?, &top)?;
            } else if at < last {
                top = join(&top, siblings.next().ok_or(Error::Path)?)?;
            }
            at >>= 1;
            last >>= 1;
        }
        if siblings.next().is_some() {
            return Err(Error::Path);
        }
        if sum(&top) != root.sum {
            return Err(Error::Sum);
        }
        if same(&close(&top, root.count).hash, &root.hash) { Ok(terms) } else { Err(Error::Root) }
    }
}

/// The root over leaves' nodes, of which nothing is left then: [`Error::Index`], [`Error::Overflow`].
pub fn build(level: &mut [Node]) -> Result<Root> {
    let count = u16::try_from(level.len()).map_err(|_| Error::Index)?;
    let mut width = level.len();
    while width > 1 {
        for i in 0..width.div_ceil(2) {
            let left = i.wrapping_mul(2);
            let right = left.wrapping_add(1);
            level[i] = if right < width { join(&level[left], &level[right])? } else { level[left] };
        }
        width = width.div_ceil(2);
    }
    let root = close(level.first().ok_or(Error::Index)?, count);
    root.check()?;
    Ok(root)
}

fn join(left: &Node, right: &Node) -> Result<Node> {
    let sum = math::add(sum(left), sum(right))?;
    Ok(node(sha256(&[Bytes::new(&[0x11]), Bytes::new(left), Bytes::new(right)]), sum))
}

fn close(top: &Node, count: u16) -> Root {
    let sum = sum(top);
    let hash = sha256(&[Bytes::new(&[0x12]), Bytes::new(&count.to_le_bytes()), Bytes::new(&sum.to_le_bytes()), Bytes::new(&top[..32])]);
    Root { hash, sum, count }
}

fn node(hash: [u8; 32], sum: u64) -> Node {
    let mut node = [0; NODE];
    node[..32].copy_from_slice(&hash);
    node[32..].copy_from_slice(&sum.to_le_bytes());
    node
}

fn sum(node: &Node) -> u64 {
    let mut b = [0; 8];
    b.copy_from_slice(&node[32..]);
    u64::from_le_bytes(b)
}

#[cfg(test)]
mod tests {
    use super::*;

    const VECTORS: &str = include_str!("../../../verify/tranche/testdata/vectors.json");

    fn hex(text: &str) -> Vec<u8> {
        (0..text.len()).step_by(2).map(|i| u8::from_str_radix(&text[i..i + 2], 16).unwrap()).collect()
    }

    /// The text of one field of an object.
    fn field<'t>(object: &'t str, name: &str) -> &'t str {
        let at = object.find(&format!("\"{name}\": ")).unwrap() + name.len() + 4;
        let rest = &object[at..];
        if rest.starts_with('[') { &rest[..rest.find(']').unwrap()] } else { &rest[..rest.find('\n').unwrap()] }
    }

    fn strings(text: &str) -> Vec<Vec<u8>> {
        text.split('"').skip(1).step_by(2).map(hex).collect()
    }

    fn root_of(b: &[u8]) -> Root {
        Root { hash: b[..32].try_into().unwrap(), sum: u64::from_le_bytes(b[32..40].try_into().unwrap()), count: u16::from_le_bytes(b[40..].try_into().unwrap()) }
    }

    fn leaf_of(b: &[u8]) -> Leaf<'_> {
        assert_eq!((b.len(), &b[..2], &b[4..8]), (136, &[1, 0][..], &[0; 4][..]));
        let part = |at: usize| b[at..at + 32].try_into().unwrap();
        Leaf { index: u16::from_le_bytes([b[2], b[3]]), provider: part(8), lease: part(40), payout: part(72), terms: part(104) }
    }

    fn path_of(b: &[u8]) -> Vec<Node> {
        assert_eq!(b.len(), 1 + usize::from(b[0]) * NODE);
        b[1..].chunks(NODE).map(|n| n.try_into().unwrap()).collect()
    }

    #[test]
    fn vectors() {
        let (good, bad) = VECTORS.split_once("\"bad\"").unwrap();
        let mut n = 0;
        for object in good.split("\"leaves\"").skip(1) {
            let object = format!("\"leaves\"{object}");
            let leaves = strings(field(&object, "leaves"));
            let (root, path) = (root_of(&strings(field(&object, "root"))[0]), path_of(&strings(field(&object, "proof"))[0]));
            let index: usize = field(&object, "index").trim_matches(|c: char| !c.is_ascii_digit()).parse().unwrap();
            assert!(leaf_of(&leaves[index]).verify(&path, &root).is_ok());
            let mut nodes: Vec<Node> = leaves.iter().map(|l| leaf_of(l).node()).collect();
            assert_eq!(build(&mut nodes), Ok(root));
            n += 1;
        }
        assert_eq!(n, 5);
        let want = [
            ("sibling sum changed", Error::Sum),
            ("money moved from one sibling to another", Error::Root),
            ("cap raised, sibling sum lowered", Error::Root),
            ("wrong index", Error::Root),
            ("wrong count", Error::Root),
            ("sums overflow", Error::Overflow),
            ("siblings swapped", Error::Root),
        ];
        let objects: Vec<&str> = bad.split("\"why\"").skip(1).collect();
        assert_eq!(objects.len(), want.len());
        for (object, (why, error)) in objects.iter().zip(want) {
            assert!(object.contains(why), "{object}");
            let (root, leaf) = (strings(field(object, "root")).remove(0), strings(field(object, "leaf")).remove(0));
            let path = path_of(&strings(field(object, "proof"))[0]);
            assert_eq!(leaf_of(&leaf).verify(&path, &root_of(&root)).err(), Some(error), "{why}");
        }
    }

    /// Leaf i of a tree: its cap is i + 1.
    fn leaf(i: u16) -> Vec<u8> {
        let mut b = vec![1, 0];
        b.extend(i.to_le_bytes());
        b.resize(104, i as u8);
        b[4..8].fill(0);
        for word in [7, u64::from(i) + 1, 100, 200] {
            b.extend(word.to_le_bytes());
        }
        b
    }

    #[test]
    fn every_leaf_of_every_shape() {
        for n in (1..=9).chain([31, 32, 33, 256]) {
            let leaves: Vec<Vec<u8>> = (0..n).map(leaf).collect();
            let mut nodes: Vec<Node> = leaves.iter().map(|l| leaf_of(l).node()).collect();
            let root = build(&mut nodes.clone()).unwrap();
            assert_eq!((root.sum, root.count), ((1..=u64::from(n)).sum(), n));
            let mut paths: Vec<(usize, Vec<Node>)> = (0..usize::from(n)).map(|i| (i, vec![])).collect();
            while nodes.len() > 1 {
                for (at, path) in &mut paths {
                    path.extend(nodes.get(*at ^ 1));
                    *at /= 2;
                }
                nodes = nodes.chunks(2).map(|p| if let [l, r] = p { join(l, r).unwrap() } else { p[0] }).collect();
            }
            for (b, (_, path)) in leaves.iter().zip(&paths) {
                let leaf = leaf_of(b);
                assert_eq!(leaf.verify(path, &root).map(|t| t.cap), Ok(u64::from(leaf.index) + 1), "{} of {n}", leaf.index);
                let mut longer = path.clone();
                longer.push([0; NODE]);
                assert_eq!(leaf.verify(&longer, &root).err(), Some(Error::Path));
                assert_eq!(leaf.verify(path, &Root { sum: root.sum + 1, ..root }).err(), Some(Error::Sum));
                assert_eq!(Leaf { index: n, ..leaf }.verify(path, &root).err(), Some(Error::Index));
                for i in 0..path.len() {
                    let mut wrong = path.clone();
                    wrong[i][0] ^= 1;
                    assert_eq!(leaf.verify(&wrong, &root).err(), Some(Error::Root));
                }
            }
        }
    }

    #[test]
    fn refuses() {
        let at = |offset: usize, value: u64| {
            let mut b = leaf(0);
            b[offset..offset + 8].copy_from_slice(&value.to_le_bytes());
            b
        };
        assert_eq!(leaf_of(&at(120, 200)).terms().err(), Some(Error::Leaf));
        assert_eq!(leaf_of(&at(120, u64::MAX)).terms().err(), Some(Error::Leaf));
        assert_eq!(build(&mut []).err(), Some(Error::Index));
        assert_eq!(build(&mut [[0; NODE]; 257]).err(), Some(Error::Index));
        let most = leaf_of(&at(112, u64::MAX)).node();
        assert_eq!(build(&mut [most, most]).err(), Some(Error::Overflow));
        assert_eq!(build(&mut [most]).map(|r| r.sum), Ok(u64::MAX));
        for count in [0, 257, u16::MAX] {
            let b = leaf(0);
            assert_eq!(leaf_of(&b).verify(&[], &Root { hash: [0; 32], sum: 0, count }).err(), Some(Error::Index));
        }
    }
}
