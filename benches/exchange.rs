//! What an exchange between GPUs costs.
//!
//! ```text
//! cargo bench --bench exchange -- [--rows-max ROWS] [ranks ...]
//! ```
//!
//! Without arguments: 2, 4 and 8 ranks, as far as there are GPUs, and up to 8,192 rows. Each line is the time per exchange in a graph of many, behind each other
//! as in a decode pass, by memory of the other GPUs and by NCCL; `bytes` are those of the rows, and the rates are what each rank sends to
//! each other one.

#[cfg(feature = "cuda")]
fn main() {
    cuda::main();
}

#[cfg(not(feature = "cuda"))]
fn main() {
    eprintln!("built without CUDA: nothing is timed");
}

#[cfg(feature = "cuda")]
mod cuda {
    use compute::cuda::{AllReduce, Cuda, EventKind, Peers, Tensor, Transport, Vector, device_count};
    use compute::ops;
    use compute::{AddNorm, Device, NextNorm, NormKind, NormWeights};
    use formats::DType;
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
        let arguments: Vec<String> = std::env::args().skip(1).collect();
        let rows_max = arguments.iter().position(|arg| arg == "--rows-max").map(|at| at + 1);
        let most = rows_max.and_then(|at| arguments.get(at)?.parse().ok()).unwrap_or(usize::MAX);
        let given = arguments.iter().enumerate().filter(|(at, _)| Some(*at) != rows_max);
        let given: Vec<usize> = given.filter_map(|(_, arg)| arg.parse().ok()).collect();
        let counts = if given.is_empty() { vec![2, 4, 8] } else { given };
        for ranks in counts.into_iter().filter(|&ranks| ranks <= shown) {
            table(ranks, most);
        }
    }

    /// The times of exchanges between `ranks` GPUs, of at most `rows_max` rows.
    fn table(ranks: usize, rows_max: usize) {
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
        let sizes: Vec<_> = SIZES.into_iter().filter(|(rows, _)| *rows <= rows_max).collect();
        let one_shot = Op::Reduce(AllReduce::OneShot);
        let ops = [one_shot, Op::Reduce(AllReduce::TwoShot), Op::AddNorm, Op::Join];
        let by_memory = times(Transport::PeerMemory, &ops, ranks, &sizes);
        let some: Vec<_> = sizes.iter().copied().filter(|(rows, _)| [2, 64, 1024, 8192].contains(rows)).collect();
        let by_nccl = times(Transport::Nccl, &[one_shot, Op::Join], ranks, &some);
        for (&(rows, hidden), times) in sizes.iter().zip(&by_memory) {
            let bytes = 2 * rows * hidden;
            let &[reduce, two_shot, alone, join] = &times[..] else { unreachable!("a time of each op") };
            let nccl = some.iter().position(|&size| size == (rows, hidden)).map(|at| &by_nccl[at]);
            let [nccl_reduce, nccl_join] =
                [0, 1].map(|op| nccl.map_or("-".to_owned(), |times| format!("{:.2} us", 1e6 * times[op])));
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

    /// Seconds per launch of each op on the slower rank, for each of `sizes`.
    fn times(transport: Transport, ops: &[Op], ranks: usize, sizes: &[(usize, usize)]) -> Vec<Vec<f64>> {
        let devices: Vec<usize> = (0..ranks).collect();
        let members = Peers::open_by(Some(transport), &devices, PATIENCE).expect("GPUs that reach each other");
        thread::scope(|scope| {
            let ranks: Vec<_> = members
                .into_iter()
                .map(|member| {
                    scope.spawn(move || {
                        let mut cuda = Cuda::open_member(member, DType::Bf16).expect("the device opens");
                        let of_size =
                            |&(rows, hidden)| ops.iter().map(|&op| time(&mut cuda, op, ranks, rows, hidden)).collect();
                        sizes.iter().map(of_size).collect::<Vec<Vec<f64>>>()
                    })
                })
                .collect();
            let times: Vec<_> = ranks.into_iter().map(|rank| rank.join().expect("no rank panics")).collect();
            let slowest = |size: usize, op: usize| times.iter().map(|rank| rank[size][op]).fold(0.0, f64::max);
            (0..sizes.len()).map(|size| (0..ops.len()).map(|op| slowest(size, op)).collect()).collect()
        })
    }

    /// Seconds per launch on this rank.
    fn time(cuda: &mut Cuda, op: Op, ranks: usize, rows: usize, hidden: usize) -> f64 {
        let launches = if rows <= 256 { 72 } else { 8 };
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
        // Memory is allocated and freed while no rank waits on its device.
        cuda.meet().expect("no rank fails");
        // NCCL connects in the first exchange of each kind.
        launch(cuda, op, &mut tensors, 2);
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
