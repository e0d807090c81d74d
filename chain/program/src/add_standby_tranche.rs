//! Opens a tranche for the voucher keys, while the buyer is away.

use crate::error::{Error, Result};
use crate::escrow::{self, Escrow};
use crate::input::Input;
use crate::reader::Reader;
use crate::sumtree::{self, Leaf, Node, NODE};
use crate::tranche::{Opening, KEYS};
use crate::{math, sysvar};

const MAX_LEAVES: u8 = 4;

/// Puts part of what is free in an escrow aside for leases of standbys that the buyer named. The program makes the leaves
/// itself, of the standby's provider and payout, and so that no more can be paid than the buyer allowed: at the
/// standby's highest rate, for slots that are still to come (but for those that a transaction may take to land) and
/// before the deadline, and within the standby's budget, from which the caps are taken.
///
/// Accounts: payer (signs, writable), escrow (writable), vault, tranche (writable; its address is in tranche.rs), system
/// program, then voucher keys (each signs), ascending, as many as the threshold or more. Data: index u16, the escrow's
/// next ‖ n u8, 1 to 4 ‖ n × ( standby u8 ‖ lease[32] ‖ terms[32] (sumtree.rs) ). Leaf i is the i-th.
pub fn add_standby_tranche(input: &Input, data: &[u8]) -> Result<()> {
    let mut r = Reader::new(data);
    let (index, n) = (r.u16()?, r.u8()?);
    if n == 0 || n > MAX_LEAVES {
        return Err(Error::Index);
    }
    let [payer, escrow, vault, account, system, keys @ ..] = input.accounts else {
        return Err(Error::AccountCount);
    };
    let escrow = Escrow::open(escrow, input.program)?;
    escrow.check_signers(keys)?;
    let (now, deadline) = (sysvar::clock()?.slot, escrow.deadline()?);
    let mut nodes: [Node; MAX_LEAVES as usize] = [[0; NODE]; MAX_LEAVES as usize];
    for i in 0..n {
        let (which, lease, terms) = (r.u8()?, r.array()?, r.array()?);
        let standby = escrow.standby(which)?;
        let leaf = Leaf { index: i.into(), provider: &standby.provider, lease, payout: &standby.payout, terms };
        let t = leaf.terms()?;
        let past = math::add(t.start, escrow::OPENING)? < now;
        if past || t.end > deadline || t.rate > standby.max_rate || t.cap > standby.budget {
            return Err(Error::Standby);
        }
        escrow.set_budget(which, math::sub(standby.budget, t.cap)?)?;
        nodes[usize::from(i)] = leaf.node();
    }
    r.end()?;
    let root = sumtree::build(&mut nodes[..n.into()])?;
    Opening { payer, escrow, vault, account, system, by: KEYS, index, root, now }.open(input.program)
}
