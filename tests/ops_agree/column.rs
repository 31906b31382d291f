//! The columns of the tables: backends, and how a test reads and writes their memory.

use compute::cpu::{Cpu, Isa, KvCache, KvNumber, Number};
use compute::{Backend, KvFormat, Tensor};
use formats::DType;

/// A backend whose memory a test can see.
pub trait Column: Backend {
    /// Fills the rows in use. `[rows, cols]`
    fn write(&mut self, tensor: &mut Tensor<Self::Storage>, values: &[f32]);
    /// The rows in use. `[rows, cols]`
    fn read(&mut self, tensor: &Tensor<Self::Storage>) -> Vec<f32>;
    /// Fills one layer of a cache. `[block][kv_head][K|V][block_size][head_dim]`, and with int8 bytes of scales behind each head.
    fn write_cache(&mut self, cache: &mut Self::KvCache, layer: usize, values: &[f32]);
    /// One layer of a cache. `[block][kv_head][K|V][block_size][head_dim]`
    fn read_cache(&mut self, cache: &Self::KvCache, layer: usize) -> Vec<f32>;

    /// A tensor of `values`.
    fn filled(&mut self, values: &[f32], cols: usize) -> Tensor<Self::Storage> {
        let rows = values.len() / cols;
        let mut tensor = self.tensor(rows, cols).unwrap();
        tensor.set_rows(rows);
        self.write(&mut tensor, values);
        tensor
    }

    /// A tensor of NaN: what an op leaves out shows.
    fn poisoned(&mut self, rows: usize, cols: usize) -> Tensor<Self::Storage> {
        self.filled(&vec![f32::NAN; rows * cols], cols)
    }
}

impl Column for Cpu {
    fn write(&mut self, tensor: &mut Tensor<Self::Storage>, values: &[f32]) {
        tensor.values_mut().copy_from_slice(values);
    }

    fn read(&mut self, tensor: &Tensor<Self::Storage>) -> Vec<f32> {
        tensor.values().to_vec()
    }

    fn write_cache(&mut self, cache: &mut KvCache, layer: usize, values: &[f32]) {
        fn fill<T: Number>(numbers: &mut [T], values: &[f32]) {
            numbers.iter_mut().zip(values).for_each(|(number, &value)| *number = T::from_f32(value));
        }
        match cache.layout().format {
            KvFormat::Plain(DType::F32) => fill(cache.layer_mut::<f32>(layer), values),
            KvFormat::Plain(DType::F16) => fill(cache.layer_mut::<half::f16>(layer), values),
            KvFormat::Plain(DType::Bf16) => fill(cache.layer_mut::<half::bf16>(layer), values),
            KvFormat::Int8 => {
                let bytes = cache.layer_mut::<i8>(layer).iter_mut();
                bytes.zip(values).for_each(|(byte, &value)| *byte = value as i8);
            }
        }
    }

    fn read_cache(&mut self, cache: &KvCache, layer: usize) -> Vec<f32> {
        cache_values(cache, layer)
    }
}

/// One layer of a cache in host memory. With int8 these are the integers, and each scale as two bytes.
pub fn cache_values(cache: &KvCache, layer: usize) -> Vec<f32> {
    fn values<T: KvNumber>(numbers: &[T]) -> Vec<f32> {
        numbers.iter().map(|&number| number.to_f32()).collect()
    }
    match cache.layout().format {
        KvFormat::Plain(DType::F32) => values(cache.layer::<f32>(layer)),
        KvFormat::Plain(DType::F16) => values(cache.layer::<half::f16>(layer)),
        KvFormat::Plain(DType::Bf16) => values(cache.layer::<half::bf16>(layer)),
        KvFormat::Int8 => values(cache.layer::<i8>(layer)),
    }
}

/// An op and its table.
pub trait Op {
    /// A row of the table.
    type Case: 'static;
    /// The table, with a name for each case.
    const CASES: &'static [(&'static str, Self::Case)];
    /// The greatest `|computed - expected| / |expected|`, as vectors; 0 wants equal bits.
    const BOUND: f64;

    /// What the specification says.
    fn expected(case: &Self::Case) -> Vec<f32>;
    /// What a backend says.
    fn computed<B: Column>(backend: &mut B, case: &Self::Case) -> Vec<f32>;
}

/// Compares an op with its specification in all cases and columns.
pub fn agrees<O: Op>() {
    for (name, case) in O::CASES {
        let expected = O::expected(case);
        assert!(expected.iter().any(|&v| v != 0.0), "{name}: nothing is compared");
        for isa in Isa::available() {
            for threads in [1, 2] {
                let computed = O::computed(&mut Cpu::new(threads, *isa), case);
                assert_near(&computed, &expected, O::BOUND, &format!("{name}, {isa:?}, {threads} threads"));
            }
        }
    }
}

pub fn assert_near(computed: &[f32], expected: &[f32], bound: f64, what: &str) {
    assert_eq!(computed.len(), expected.len(), "{what}");
    let norm = |v: &mut dyn Iterator<Item = f64>| v.map(|v| v * v).sum::<f64>().sqrt();
    let pairs = || computed.iter().zip(expected).map(|(&a, &b)| (f64::from(a), f64::from(b)));
    let error = norm(&mut pairs().map(|(a, b)| a - b)) / norm(&mut pairs().map(|(_, b)| b));
    assert!(error <= bound, "{what}: relative error {error:.2e}, but at most {bound:.0e} is allowed");
}
