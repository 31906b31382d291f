//! What an exchange between GPUs costs.
//!
//! ```text
//! cargo bench --bench exchange -- [ranks ...]
//! ```
//!
//! Without arguments: 2, 4 and 8 ranks, as far as there are GPUs. Each line is the time per exchange in a graph of many, behind each other
//! as in a decode pass, by memory of the other GPUs and by NCCL; `bytes` are those of the rows, and the rates are what each rank sends to
//! each other one.

#[cfg(nvllm_cuda)]
fn main() {
    cuda::main();
}

#[cfg(not(nvllm_cuda))]
fn main() {
    eprintln!("built without CUDA: nothing is timed");
}

#[cfg(nvllm_cuda)]
mod cuda {
    use nanovllm::backend::cuda::{AllReduce, Cuda, EventKind, Peers, Tensor, Transport, Vector, device_count};
    use nanovllm::backend::{AddNorm, Backend, DType, NextNorm, NormKind, NormWeights};
    use nanovllm::ops;
    use std::ops::Range;
    use std::thread;
    use std::time::Duration;

    const PATIENCE: Duration = Duration::from_secs(5);
    const HIDDEN: usize = 4096;
    /// Rows, and their numbers.
    const SIZES: [(usize, usize); 16] = [
        (1, 1024),
        (1, 2048),
        (1, HIDDEN),
        (2, HIDDEN),
        (4, HIDDEN),
        (8, HIDDEN),
        (16, HIDDEN),
        (32, HIDDEN),
        (64, HIDDEN),
        (128, HIDDEN),
        (256, HIDDEN),
        (512, HIDDEN),
        (1024, HIDDEN),
        (2048, HIDDEN),
        (4096, HIDDEN),
        (8192, HIDDEN),
    ];
    const REPEATS: usize = 7;

    /// What is timed.
    #[derive(Clone, Copy)]
    enum Op {
        /// The sum over ranks, added and normalized, by an algorithm if ranks exchange by memory.
        Reduce(AllReduce),
        /// The same without another rank.
        AddNorm,
        /// Equal shares of rows joined in place.
        Join,
    }

    struct Tensors {
        residual: Tensor,
        x: [Tensor; 2],
        weight: Vector,
        shares: Vec<Range<usize>>,
    }

    pub fn main() {
        let shown = device_count().unwrap_or(0);
        if shown < 2 {
            eprintln!("fewer than two CUDA devices: nothing is timed");
            return;
        }
        let given: Vec<usize> = std::env::args().skip(1).filter_map(|arg| arg.parse().ok()).collect();
        let counts = if given.is_empty() { vec![2, 4, 8] } else { given };
        for ranks in counts.into_iter().filter(|&ranks| ranks <= shown) {
            table(ranks);
        }
    }

    /// The times of exchanges between `ranks` GPUs.
    fn table(ranks: usize) {
        println!("{ranks} ranks");
        println!(
            "{:>10} {:>6}  {:>22}  {:>22}  {:>12}  {:>22}  {:>12}  {:>12}",
            "bytes",
            "rows",
            "reduce + add + norm",
            "the same in two steps",
            "add + norm",
            "join in place",
            "NCCL reduce",
            "NCCL join"
        );
        for (rows, hidden) in SIZES {
            let bytes = 2 * rows * hidden;
            let ops = [Op::Reduce(AllReduce::OneShot), Op::Reduce(AllReduce::TwoShot), Op::AddNorm, Op::Join];
            let [reduce, two_shot, alone, join] = ops.map(|op| time(Transport::PeerMemory, op, ranks, rows, hidden));
            // A communicator takes a second to open.
            let by_nccl = [2, 64, 1024, 8192].contains(&rows);
            let [nccl_reduce, nccl_join] = [Op::Reduce(AllReduce::OneShot), Op::Join].map(|op| match by_nccl {
                true => format!("{:.2} us", 1e6 * time(Transport::Nccl, op, ranks, rows, hidden)),
                false => "-".to_owned(),
            });
            let rate = |seconds: f64, bytes: usize| bytes as f64 / seconds / 1e9;
            println!(
                "{bytes:>10} {rows:>6}  {:>8.2} us {:>5.0} GB/s  {:>8.2} us {:>5.0} GB/s  {:>9.2} us  {:>8.2} us {:>5.0} GB/s  {nccl_reduce:>12}  {nccl_join:>12}",
                1e6 * reduce,
                rate(reduce, bytes),
                1e6 * two_shot,
                rate(two_shot, 2 * bytes / ranks),
                1e6 * alone,
                1e6 * join,
                rate(join, bytes / ranks)
            );
        }
    }

    /// Seconds per launch on the slower rank.
    fn time(transport: Transport, op: Op, ranks: usize, rows: usize, hidden: usize) -> f64 {
        let launches = if rows <= 256 { 72 } else { 8 };
        let devices: Vec<usize> = (0..ranks).collect();
        let members = Peers::open_by(Some(transport), &devices, PATIENCE).expect("GPUs that reach each other");
        thread::scope(|scope| {
            let ranks: Vec<_> = members
                .into_iter()
                .map(|member| {
                    scope.spawn(move || {
                        let mut cuda = Cuda::open_member(member, DType::Bf16).expect("the device opens");
                        let tensor = || {
                            let mut tensor = cuda.tensor(rows, hidden).expect("there is memory");
                            tensor.set_rows(rows);
                            tensor
                        };
                        let (residual, x) = (tensor(), [tensor(), tensor()]);
                        let weight = cuda.table(&vec![1.0; hidden]).expect("there is memory");
                        let share = hidden / ranks;
                        let shares = (0..ranks).map(|rank| rank * share..(rank + 1) * share).collect();
                        let mut tensors = Tensors { residual, x, weight, shares };
                        // NCCL connects in the first exchange of each kind.
                        launch(&mut cuda, op, &mut tensors, 2);
                        cuda.synchronize().expect("no rank fails");
                        cuda.meet().expect("no rank fails");
                        let graph = cuda.capture(|cuda| launch(cuda, op, &mut tensors, launches)).expect("a graph");
                        let [begun, ended] = [0, 1].map(|_| cuda.event(EventKind::Timing).expect("an event"));
                        let mut best = f64::INFINITY;
                        for _ in 0..REPEATS {
                            cuda.synchronize().expect("no rank fails");
                            cuda.meet().expect("no rank fails");
                            // Ranks begin together on the device, too: the first launch takes the difference.
                            graph.launch().expect("a launch");
                            begun.record().expect("an event");
                            for _ in 0..4 {
                                graph.launch().expect("a launch");
                            }
                            ended.record().expect("an event");
                            cuda.synchronize().expect("no rank fails");
                            let milliseconds = begun.milliseconds_to(&ended).expect("both were reached");
                            best = best.min(f64::from(milliseconds) / 1e3 / (4 * launches) as f64);
                        }
                        cuda.meet().expect("no rank fails");
                        best
                    })
                })
                .collect();
            ranks.into_iter().map(|rank| rank.join().expect("no rank panics")).fold(0.0, f64::max)
        })
    }

    fn launch(cuda: &mut Cuda, op: Op, tensors: &mut Tensors, launches: usize) {
        let Tensors { residual, x, weight, shares } = tensors;
        for i in 0..launches {
            let [a, b] = x;
            let (from, to) = if i % 2 == 0 { (a, b) } else { (b, a) };
            let norm = NormWeights { weight: &*weight, eps: 1e-6, kind: NormKind::Rms };
            match op {
                Op::Reduce(all_reduce) => {
                    cuda.set_all_reduce(Some(all_reduce));
                    let next = Some(NextNorm { out: to, norm });
                    ops::reduce_add_norm(cuda, residual, from, AddNorm::PLAIN, next);
                }
                Op::AddNorm => {
                    let next = Some(NextNorm { out: to, norm });
                    ops::add_norm(cuda, residual, from, AddNorm::PLAIN, next);
                }
                Op::Join => ops::join_columns(cuda, from, None, shares),
            }
        }
    }
}
