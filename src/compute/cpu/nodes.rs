//! Which CPUs and which memory does a rank use on a host with several NUMA nodes?
//!
//! A thread of a rank runs on the CPUs of one node, and takes memory there as long as the node has any. The thread of the caller is
//! not touched: it belongs to the host.
#![allow(unsafe_code)]

use std::fs;
use std::path::Path;

/// The NUMA nodes whose CPUs this process may use.
pub struct Nodes(Vec<Node>);

/// One node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Node {
    index: usize,
    cpus: Vec<usize>,
}

/// CPUs and nodes that a mask of the system has room for.
const MASK_BITS: usize = 8 * size_of::<libc::cpu_set_t>();

/// `MPOL_PREFERRED` of linux/mempolicy.h: another node serves where this one is full.
const PREFERRED: libc::c_long = 1;

/// `MADV_POPULATE_READ` of Linux 5.14.
const POPULATE_READ: libc::c_int = 22;

impl Nodes {
    /// Those of this machine. None where the system does not say.
    pub fn detect() -> Nodes {
        Nodes::read(Path::new("/sys/devices/system/node"), &own_cpus())
    }

    /// The nodes in a folder like /sys/devices/system/node that have some of the CPUs `allowed`.
    fn read(folder: &Path, allowed: &[usize]) -> Nodes {
        let cpus_of = |index: usize| {
            let list = fs::read_to_string(folder.join(format!("node{index}/cpulist"))).unwrap_or_default();
            let mut cpus = numbers(&list);
            cpus.retain(|cpu| allowed.contains(cpu));
            cpus
        };
        let online = fs::read_to_string(folder.join("online")).unwrap_or_default();
        let nodes = numbers(&online).into_iter().map(|index| Node { index, cpus: cpus_of(index) });
        Nodes(nodes.filter(|node| !node.cpus.is_empty()).collect())
    }

    /// The node of rank `rank`: neighbours share one. `None` on a machine with one node, and where the ranks do not divide among
    /// the nodes.
    pub fn of_rank(&self, rank: usize, ranks: usize) -> Option<&Node> {
        let nodes = self.0.len();
        let divides = nodes > 1 && ranks.is_multiple_of(nodes);
        divides.then(|| &self.0[rank * nodes / ranks])
    }
}

impl Node {
    /// Runs the calling thread and those that it starts on this node, and prefers its memory. A system that refuses either leaves
    /// the thread as it was.
    pub fn bind_this_thread(&self) {
        // SAFETY: the set is plain memory, all zero is the empty set, and the CPUs are below its size: `numbers` checks it.
        unsafe {
            let mut set: libc::cpu_set_t = std::mem::zeroed();
            self.cpus.iter().for_each(|&cpu| libc::CPU_SET(cpu, &mut set));
            libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), &set);
        }
        let mut mask = [0u64; MASK_BITS / 64];
        mask[self.index / 64] |= 1 << (self.index % 64);
        // SAFETY: the call reads MASK_BITS bits of the mask.
        unsafe { libc::syscall(libc::SYS_set_mempolicy, PREFERRED, mask.as_ptr(), MASK_BITS) };
    }

    /// Brings the pages of a mapped file into memory, those that are not there yet by the calling thread, so that they lie on its node.
    pub fn populate(&self, bytes: &[u8]) {
        // SAFETY: sysconf reads a constant.
        let page = unsafe { libc::sysconf(libc::_SC_PAGESIZE) }.max(1) as usize;
        let start = bytes.as_ptr() as usize / page * page;
        let len = bytes.as_ptr() as usize + bytes.len() - start;
        // SAFETY: the call changes no memory, and answers with an error where pages are not mapped.
        unsafe { libc::madvise(start as *mut libc::c_void, len, POPULATE_READ) };
    }
}

/// The CPUs that the calling thread may run on.
fn own_cpus() -> Vec<usize> {
    // SAFETY: the set is plain memory that the call fills.
    unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        match libc::sched_getaffinity(0, size_of::<libc::cpu_set_t>(), &mut set) {
            0 => (0..MASK_BITS).filter(|&cpu| libc::CPU_ISSET(cpu, &set)).collect(),
            _ => Vec::new(),
        }
    }
}

/// The numbers of a list such as "0-3,8". What is none, or too large for a mask, is left out.
fn numbers(list: &str) -> Vec<usize> {
    let range = |part: &str| {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last): (usize, usize) = (first.parse().ok()?, last.parse().ok()?);
        Some(first..=last.min(MASK_BITS - 1))
    };
    list.trim().split(',').filter_map(range).flatten().collect()
}

#[cfg(test)]
mod tests {
    use super::super::Pool;
    use super::*;
    use std::sync::Mutex;
    use std::{env, process, thread};

    #[test]
    fn lists_of_cpus_are_read() {
        assert_eq!(numbers("0-3,8,10-11\n"), [0, 1, 2, 3, 8, 10, 11]);
        assert_eq!(numbers(""), [0; 0]);
        assert_eq!(numbers("x,1-,5-4,0-99999999999").len(), MASK_BITS);
    }

    /// A folder with a list of CPUs for each node.
    fn tree(name: &str, lists: &[&str]) -> std::path::PathBuf {
        let folder = env::temp_dir().join(format!("nanovllm-nodes-{name}-{}", process::id()));
        for (node, list) in lists.iter().enumerate() {
            fs::create_dir_all(folder.join(format!("node{node}"))).unwrap();
            fs::write(folder.join(format!("node{node}/cpulist")), list).unwrap();
        }
        fs::write(folder.join("online"), format!("0-{}\n", lists.len() - 1)).unwrap();
        folder
    }

    #[test]
    fn ranks_divide_among_the_nodes_that_have_cpus_of_this_process() {
        let folder = tree("divide", &["0-3", "4-7", "", "8-11"]);
        let nodes = Nodes::read(&folder, &[0, 1, 4, 5, 6]);
        fs::remove_dir_all(folder).unwrap();
        assert_eq!(nodes.0, [Node { index: 0, cpus: vec![0, 1] }, Node { index: 1, cpus: vec![4, 5, 6] }]);
        let of = |ranks| (0..ranks).map(|rank| nodes.of_rank(rank, ranks).map(|node| node.index)).collect::<Vec<_>>();
        assert_eq!(of(4), [Some(0), Some(0), Some(1), Some(1)]);
        assert_eq!((of(2), of(3)), (vec![Some(0), Some(1)], vec![None; 3]));
        assert!(Nodes(vec![nodes.0[0].clone()]).of_rank(0, 2).is_none(), "one node needs no binding");
        assert!(Nodes::read(Path::new("/no/such/folder"), &[0]).of_rank(0, 2).is_none());
    }

    #[test]
    fn threads_of_a_pool_run_on_their_node_and_the_caller_stays_where_it_was() {
        let all = own_cpus();
        let node = Node { index: 0, cpus: vec![all[0]] };
        let pool = Pool::on_node(3, Some(&node));
        let found = Mutex::new(vec![Vec::new(); 3]);
        while found.lock().unwrap().iter().any(Vec::is_empty) {
            pool.for_each(3, 1, &|thread, _| {
                found.lock().unwrap()[thread] = own_cpus();
                thread::yield_now();
            });
        }
        let found = found.into_inner().unwrap();
        assert_eq!((&found[1], &found[2]), (&vec![all[0]], &vec![all[0]]));
        assert_eq!((&found[0], own_cpus()), (&all, all.clone()));
    }
}
