//! One entry of the matrix products that hardware answers audits with: verify/challenge has the definition.
//!
//! Row i of A and column j of B are K bytes of ChaCha with 8 rounds, read as int8; an entry is their exact product. With K =
//! 32,768, the most, that is 1,024 blocks and as many multiplications as bytes, and a transaction has 1.4 million
//! instructions. The machine has 64-bit words alone and no rotation, so words carry their 32 bits below and anything above,
//! until a rotation doubles them: (v · (2³² + 1)) ≫ (32 − n) has the rotated 32 bits below. Four bytes of each line are
//! multiplied at once in the lanes of a word: (a₀ + a₁·2³²)·(b₁ + b₀·2³²) = … + (a₀b₀ + a₁b₁)·2³² modulo 2⁶⁴, and sums of
//! 2¹⁵ such products still fit their lanes.

use core::ptr;

use crate::error::{Error, Result};
use crate::reader::Reader;
use crate::syscall::{sha256, Bytes};

const SIDE: u32 = 64;
const MAX_SIDE: u32 = 1 << 15;
const BLOCK: u32 = 64;
const MAX_LEAVES: u64 = 1 << 29;
/// Values of a leaf.
pub const LEAF_WORDS: u32 = 32;
const LEAVES_OF_TILE: u32 = SIDE * SIDE / LEAF_WORDS;

/// What is computed: products of an M×K and a K×N matrix.
pub struct Shape {
    rows: u32,
    columns: u32,
    depth: u32,
    products: u32,
}

/// Where a value lies.
#[derive(Debug, PartialEq, Eq)]
pub struct Place {
    product: u32,
    row: u32,
    column: u32,
}

impl Shape {
    /// Reads rows u32 ‖ columns u32 ‖ depth u32 ‖ products u32: [`Error::Statement`] when it is none that is ever asked.
    pub fn read(b: &[u8; 16]) -> Result<Self> {
        let mut r = Reader::new(b);
        let s = Shape { rows: r.u32()?, columns: r.u32()?, depth: r.u32()?, products: r.u32()? };
        let side = |n: u32| (SIDE..=MAX_SIDE).contains(&n) && n % SIDE == 0;
        // None of these can wrap: sides are at most 2¹⁵, products below 2³².
        let sound = side(s.rows) && side(s.columns) && (BLOCK..=MAX_SIDE).contains(&s.depth) && s.depth % BLOCK == 0 && s.products > 0;
        if sound && s.leaves() <= MAX_LEAVES { Ok(s) } else { Err(Error::Statement) }
    }

    fn leaves(&self) -> u64 {
        (u64::from(self.rows) / u64::from(LEAF_WORDS)).wrapping_mul(self.columns.into()).wrapping_mul(self.products.into())
    }

    /// Where value number `value` of a leaf lies: [`Error::Index`] when there is none.
    pub fn place(&self, leaf: u32, value: u8) -> Result<Place> {
        if u64::from(leaf) >= self.leaves() || u32::from(value) >= LEAF_WORDS {
            return Err(Error::Index);
        }
        // Words of 64 bits: the machine has no others. None of these can wrap: all are parts of what the shape bounds.
        let (tile, in_tile) = (u64::from(leaf / LEAVES_OF_TILE), u64::from(leaf % LEAVES_OF_TILE));
        let wide = u64::from(self.columns / SIDE);
        let tiles = u64::from(self.rows / SIDE).wrapping_mul(wide);
        let (product, at) = (tile.checked_div(tiles).unwrap_or(0), tile.checked_rem(tiles).unwrap_or(0));
        let (down, across) = (at.checked_div(wide).unwrap_or(0), at.checked_rem(wide).unwrap_or(0));
        let row = down.wrapping_mul(SIDE.into()).wrapping_add(in_tile / 2);
        let column = across.wrapping_mul(SIDE.into()).wrapping_add((in_tile % 2).wrapping_mul(LEAF_WORDS.into())).wrapping_add(value.into());
        Ok(Place { product: product as u32, row: row as u32, column: column as u32 })
    }

    /// The value at a place of the products of a seed.
    pub fn entry(&self, seed: &[u8; 32], at: &Place) -> i32 {
        let key = sha256(&[Bytes::new(b"starling/product/v1"), Bytes::new(seed)]);
        let k = Constants::new();
        let a = Line::new(&key, at.product.wrapping_mul(2), at.row, &k);
        let b = Line::new(&key, at.product.wrapping_mul(2).wrapping_add(1), at.column, &k);
        let mut sum = 0u64;
        let (mut x, mut y) = ([0; 8], [0; 8]);
        for counter in 0..u64::from(self.depth / BLOCK) {
            a.block(counter, &k, &mut x);
            b.block(counter, &k, &mut y);
            sum = sum.wrapping_add(dot(&x, &y, &k));
        }
        // Below lies what the lanes have beside: a sum of at most 2¹⁴ products, so less than 2²⁸, with its sign.
        let below = i64::from(sum as u32 as i32);
        (sum.wrapping_sub(below as u64) >> 32) as u32 as i32
    }
}

/// Numbers that are dear to write into an instruction: the compiler has to keep them in registers, and must not know them.
struct Constants {
    low: u64,
    twice: u64,
    lanes: u64,
    half: u64,
    signs: u64,
    one: usize,
}

impl Constants {
    #[inline(always)]
    fn new() -> Self {
        let known: Constants =
            Constants { low: 0xffff_ffff, twice: 1 << 32 | 1, lanes: 0xff << 32 | 0xff, half: 0x80 << 32 | 0x80, signs: 0x8080_8080_8080_8080, one: 1 };
        // SAFETY: it is there.
        unsafe { ptr::read_volatile(&known) }
    }
}

/// One line of a matrix: the common part of its blocks.
struct Line {
    start: [u64; 16],
    /// The state after those quarter rounds of the first column round in which the counter has no part.
    first: [u64; 16],
}

impl Line {
    fn new(key: &[u8; 32], matrix: u32, i: u32, k: &Constants) -> Self {
        let mut start = [0; 16];
        let (mut words, mut r) = (start.iter_mut(), Reader::new(key));
        for constant in [0x6170_7865, 0x3320_646e, 0x7962_2d32, 0x6b20_6574] {
            words.next().map(|w| *w = constant);
        }
        while let (Ok(part), Some(w)) = (r.u32(), words.next()) {
            *w = part.into();
        }
        (start[14], start[15]) = (matrix.into(), i.into());
        let mut first = start;
        let x = Words(first.as_mut_ptr());
        for at in 1..4 {
            x.put(at, x.quarter(x.get(at), at | 4, at | 8, at | 12, k.low, k.twice));
        }
        Line { start, first }
    }

    /// Block number `counter`, below 2³²: 64 bytes.
    ///
    /// The state but for its first words lies in memory, one word read and written at a time: left to itself the compiler works
    /// at all sixteen words at once, for which there are not enough registers.
    #[inline(never)]
    fn block(&self, counter: u64, k: &Constants, out: &mut [u64; 8]) {
        let (low, twice) = (k.low, k.twice);
        let mut state = self.first;
        let x = Words(state.as_mut_ptr());
        let [mut x0, mut x1, mut x2, mut x3, ..] = self.first;
        x.put(12, counter);
        macro_rules! diagonals {
            () => {
                x0 = x.quarter(x0, 5, 10, 15, low, twice);
                x1 = x.quarter(x1, 6, 11, 12, low, twice);
                x2 = x.quarter(x2, 7, 8, 13, low, twice);
                x3 = x.quarter(x3, 4, 9, 14, low, twice);
            };
        }
        macro_rules! rounds {
            () => {
                x0 = x.quarter(x0, 4, 8, 12, low, twice);
                x1 = x.quarter(x1, 5, 9, 13, low, twice);
                x2 = x.quarter(x2, 6, 10, 14, low, twice);
                x3 = x.quarter(x3, 7, 11, 15, low, twice);
                diagonals!();
            };
        }
        x0 = x.quarter(x0, 4, 8, 12, low, twice);
        diagonals!();
        rounds!();
        rounds!();
        rounds!();
        x.put(12, x.get(12).wrapping_add(counter));
        for (i, v) in [x0, x1, x2, x3].into_iter().enumerate() {
            x.put(i, v);
        }
        let out = out.as_mut_ptr().cast::<u32>();
        for (i, start) in self.start.iter().enumerate() {
            // SAFETY: sixteen words of 32 bits lie there.
            unsafe { out.add(i).write(x.get(i).wrapping_add(*start) as u32) };
        }
    }
}

/// Sixteen words in memory.
#[derive(Clone, Copy)]
struct Words(*mut u64);

impl Words {
    // SAFETY of both: `block` has sixteen words there, and names none but those.

    #[inline(always)]
    fn get(&self, i: usize) -> u64 {
        unsafe { ptr::read_volatile(self.0.add(i)) }
    }

    #[inline(always)]
    fn put(&self, i: usize, v: u64) {
        unsafe { ptr::write_volatile(self.0.add(i), v) }
    }

    /// A quarter round of a and three words. Only the lower 32 bits mean anything, before and after.
    #[inline(always)]
    fn quarter(&self, mut a: u64, b: usize, c: usize, d: usize, low: u64, twice: u64) -> u64 {
        let (mut vb, mut vc, mut vd) = (self.get(b), self.get(c), self.get(d));
        a = a.wrapping_add(vb);
        vd = ((vd ^ a) & low).wrapping_mul(twice) >> 16;
        vc = vc.wrapping_add(vd);
        vb = ((vb ^ vc) & low).wrapping_mul(twice) >> 20;
        a = a.wrapping_add(vb);
        vd = ((vd ^ a) & low).wrapping_mul(twice) >> 24;
        self.put(d, vd);
        vc = vc.wrapping_add(vd);
        self.put(c, vc);
        vb = ((vb ^ vc) & low).wrapping_mul(twice) >> 25;
        self.put(b, vb);
        a
    }
}

/// The product of 64 bytes and 64 bytes in the upper lane, and something else in the lower one.
#[inline(never)]
fn dot(x: &[u64; 8], y: &[u64; 8], k: &Constants) -> u64 {
    let (lanes, half, mut sum) = (k.lanes, k.half, 0u64);
    let mut at = 0;
    while let (Some(a), Some(b)) = (x.get(at), y.get(at)) {
        let (a, b) = (a ^ k.signs, b.rotate_left(32) ^ k.signs);
        for shift in [0, 8, 16, 24] {
            let (a, b) = ((a >> shift & lanes).wrapping_sub(half), (b >> shift & lanes).wrapping_sub(half));
            sum = sum.wrapping_add(a.wrapping_mul(b));
        }
        at = at.wrapping_add(k.one);
    }
    sum
}

#[cfg(test)]
mod tests {
    use super::*;

    const VECTORS: &str = include_str!("../../../verify/challenge/testdata/vectors.json");

    fn hex(name: &str) -> Vec<u8> {
        let at = VECTORS.find(&format!("\"{name}\": \"")).unwrap() + name.len() + 5;
        let text = VECTORS[at..].split('"').next().unwrap();
        (0..text.len()).step_by(2).map(|i| u8::from_str_radix(&text[i..i + 2], 16).unwrap()).collect()
    }

    /// K bytes of a line, plainly.
    fn line(seed: &[u8; 32], matrix: u32, i: u32, depth: u32) -> Vec<i8> {
        let key = sha256(&[Bytes::new(b"starling/product/v1"), Bytes::new(seed)]);
        let word = |b: &[u8]| u32::from_le_bytes(b.try_into().unwrap());
        let mut out = vec![];
        for counter in 0..depth / 64 {
            let mut s = vec![0x61707865u32, 0x3320646e, 0x79622d32, 0x6b206574];
            s.extend(key.chunks(4).map(word));
            s.extend([counter, 0, matrix, i]);
            let mut x = s.clone();
            for round in 0..8 {
                for q in 0..4 {
                    let [a, b, c, d] = if round % 2 == 0 { [q, q + 4, q + 8, q + 12] } else { [q, 4 + (q + 1) % 4, 8 + (q + 2) % 4, 12 + (q + 3) % 4] };
                    for (n, m) in [(16, 12), (8, 7)] {
                        x[a] = x[a].wrapping_add(x[b]);
                        x[d] = (x[d] ^ x[a]).rotate_left(n);
                        x[c] = x[c].wrapping_add(x[d]);
                        x[b] = (x[b] ^ x[c]).rotate_left(m);
                    }
                }
            }
            out.extend(x.iter().zip(&s).flat_map(|(x, s)| x.wrapping_add(*s).to_le_bytes()).map(|b| b as i8));
        }
        out
    }

    fn shape(rows: u32, columns: u32, depth: u32, products: u32) -> Result<Shape> {
        let mut b = [0; 16];
        for (to, v) in b.chunks_mut(4).zip([rows, columns, depth, products]) {
            to.copy_from_slice(&v.to_le_bytes());
        }
        Shape::read(&b)
    }

    #[test]
    fn lines_of_the_vectors() {
        let seed: [u8; 32] = hex("seed").try_into().unwrap();
        let bytes = |l: Vec<i8>| l.iter().map(|&b| b as u8).collect::<Vec<u8>>();
        assert_eq!(bytes(line(&seed, 4, 1, 64)), hex("row_1_of_A_2"));
        assert_eq!(bytes(line(&seed, 5, 3, 64)), hex("column_3_of_B_2"));
    }

    #[test]
    fn entries_are_exact() {
        let seed: [u8; 32] = hex("seed").try_into().unwrap();
        for depth in [64, 128, 192, 1024, 32_768] {
            let s = shape(64, 128, depth, 3).unwrap();
            for (product, row, column) in [(0, 0, 0), (2, 63, 127), (1, 17, 90), (2, 1, 3)] {
                let want: i64 = line(&seed, 2 * product, row, depth).iter().zip(line(&seed, 2 * product + 1, column, depth)).map(|(&a, b)| i64::from(a) * i64::from(b)).sum();
                assert_eq!(i64::from(s.entry(&seed, &Place { product, row, column })), want, "{depth} {product} {row} {column}");
            }
        }
    }

    /// The lanes hold whatever the bytes are: also all of them the least, in 32,768 places.
    #[test]
    fn lanes_hold() {
        let k = Constants::new();
        for (a, b) in [(-128i8, -128i8), (-128, 127), (127, 127), (127, -128), (0, -1), (-1, -1), (5, -7)] {
            let bytes = |v: i8| [u64::from_le_bytes([v as u8; 8]); 8];
            let mut sum = 0u64;
            for _ in 0..512 {
                sum = sum.wrapping_add(dot(&bytes(a), &bytes(b), &k));
            }
            let below = i64::from(sum as u32 as i32);
            let got = (sum.wrapping_sub(below as u64) >> 32) as u32 as i32;
            assert_eq!(got, 32_768 * i32::from(a) * i32::from(b), "{a} {b}");
        }
    }

    #[test]
    fn places_and_shapes() {
        let s = shape(128, 192, 64, 2).unwrap();
        let place = |leaf, value| s.place(leaf, value).map(|p| (p.product, p.row, p.column));
        assert_eq!(place(0, 0), Ok((0, 0, 0)));
        assert_eq!(place(1, 31), Ok((0, 0, 63)));
        assert_eq!(place(3, 5), Ok((0, 1, 37)));
        assert_eq!(place(128, 0), Ok((0, 0, 64)));
        assert_eq!(place(128 * 3 + 127, 31), Ok((0, 127, 63)));
        assert_eq!(place(128 * 6, 1), Ok((1, 0, 1)));
        assert_eq!(place(128 * 12 - 1, 31), Ok((1, 127, 191)));
        assert_eq!((place(128 * 12, 0), place(0, 32), place(u32::MAX, 255)), (Err(Error::Index), Err(Error::Index), Err(Error::Index)));
        for (rows, columns, depth, products) in [
            (0, 64, 64, 1),
            (64, 0, 64, 1),
            (64, 64, 0, 1),
            (64, 64, 64, 0),
            (65, 64, 64, 1),
            (64, 96, 64, 1),
            (64, 64, 65, 1),
            (32_832, 64, 64, 1),
            (64, 32_832, 64, 1),
            (64, 64, 32_832, 1),
            (32_768, 32_768, 64, 17),
            (64, 64, 64, u32::MAX),
        ] {
            assert_eq!(shape(rows, columns, depth, products).err(), Some(Error::Statement), "{rows} {columns} {depth} {products}");
        }
        assert!(shape(32_768, 32_768, 32_768, 16).is_ok());
    }
}
