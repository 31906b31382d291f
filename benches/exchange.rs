//! What an exchange between GPUs costs.
//!
//! ```text
//! cargo bench --bench exchange -- [ranks ...]
//! ```
//!
//! Without arguments: 2, 4 and 8 ranks, as far as there are GPUs. Each line is the time per exchange in a graph of many, behind each other
//! as in a decode pass; `bytes` are those of the rows, and the rates are what each rank sends to each other one.

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
    use nanovllm::backend::cuda::{Cuda, EventKind, Peers, Tensor, Vector, device_count};
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
    const AHEAD: [usize; 6] = [0, 1, 2, 3, 4, 1000];

    /// What is timed.
    #[derive(Clone, Copy)]
    enum Op {
        /// The sum over ranks, added and normalized. With as many rows ahead as the backend chooses, or as many as it says.
        Reduce(Option<usize>),
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
            rows_ahead(ranks);
        }
    }

    /// The times of exchanges between `ranks` GPUs.
    fn table(ranks: usize) {
        println!("{ranks} ranks");
        println!(
            "{:>10} {:>6}  {:>22}  {:>12}  {:>22}",
            "bytes", "rows", "reduce + add + norm", "add + norm", "join in place"
        );
        for (rows, hidden) in SIZES {
            let bytes = 2 * rows * hidden;
            let [reduce, alone, join] =
                [Op::Reduce(None), Op::AddNorm, Op::Join].map(|op| time(op, ranks, rows, hidden));
            let rate = |seconds: f64, bytes: usize| bytes as f64 / seconds / 1e9;
            println!(
                "{bytes:>10} {rows:>6}  {:>8.2} us {:>5.0} GB/s  {:>9.2} us  {:>8.2} us {:>5.0} GB/s",
                1e6 * reduce,
                rate(reduce, bytes),
                1e6 * alone,
                1e6 * join,
                rate(join, bytes / ranks)
            );
        }
    }

    /// What rows ahead do for sums of many rows. With more than a launch has, a thread block sends all of them first.
    fn rows_ahead(ranks: usize) {
        println!("{ranks} ranks, rows ahead: microseconds of reduce + add + norm");
        println!("{:>6} {}", "rows", AHEAD.map(|rows| format!("{rows:>9}")).concat());
        for rows in [512, 1024, 2048, 4096, 8192] {
            let times = AHEAD.map(|ahead| format!("{:>9.2}", 1e6 * time(Op::Reduce(Some(ahead)), ranks, rows, HIDDEN)));
            println!("{rows:>6} {}", times.concat());
        }
    }

    /// Seconds per launch on the slower rank.
    fn time(op: Op, ranks: usize, rows: usize, hidden: usize) -> f64 {
        let launches = if rows <= 256 { 72 } else { 8 };
        let devices: Vec<usize> = (0..ranks).collect();
        let members = Peers::open(&devices, PATIENCE).expect("GPUs that reach each other");
        thread::scope(|scope| {
            let ranks: Vec<_> = members
                .into_iter()
                .map(|member| {
                    scope.spawn(move || {
                        let mut cuda = Cuda::open_member(member, DType::Bf16).expect("the device opens");
                        if let Op::Reduce(Some(rows)) = op {
                            cuda.set_rows_ahead(rows);
                        }
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
                Op::Reduce(_) => {
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
