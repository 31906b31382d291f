//! The columns of the tables for ops in which ranks exchange numbers: a team of CPUs.

use compute::cpu::{Cpu, Isa, Member, Team};
use std::thread;

/// What `compute` returns for each of `ranks` ranks, in every way of the CPU to compute, which `check` gets with the way's name.
pub fn in_every_way<R: Send>(
    ranks: usize,
    compute: impl Fn(&mut Cpu, usize) -> R + Sync,
    mut check: impl FnMut(Vec<R>, &str),
) {
    for isa in Isa::available() {
        for threads in [1, 2] {
            let compute = &compute;
            let results = thread::scope(|scope| {
                let rank = |member: Member| {
                    scope.spawn(move || {
                        let rank = member.rank();
                        compute(&mut Cpu::in_team(threads, *isa, member, None).unwrap(), rank)
                    })
                };
                let ranks: Vec<_> = Team::of(ranks).into_iter().map(rank).collect();
                ranks.into_iter().map(|rank| rank.join().expect("no rank panics")).collect()
            });
            check(results, &format!("{isa:?}, {threads} threads"));
        }
    }
}
