//! How many instructions does a linear layer take? For instruction sets that no machine at hand has: see `count.sh` beside this file.
//!
//! `cargo bench --bench instructions -- ISA CODING TOKENS TIMES` computes a layer of 1024 inputs and 256 outputs that often, on one thread.
//! The instructions of one call are the difference of two runs.

use compute::cpu::{Cpu, Isa};
use compute::ops;
use compute::{Device, HostMatrix, LayerInput};
use formats::{Block, Codes, Scaled, Scales, WeightFormat};
use os::HostBytes;

const INPUTS: usize = 1024;
const OUTPUTS: usize = 256;

const CODINGS: [(&str, WeightFormat); 10] = [
    ("bf16", WeightFormat::Bf16),
    ("f16", WeightFormat::F16),
    ("f32", WeightFormat::F32),
    ("q8_0", WeightFormat::Block(Block::Q8_0)),
    ("q4_0", WeightFormat::Block(Block::Q4_0)),
    ("q4_k", WeightFormat::Block(Block::Q4K)),
    ("q6_k", WeightFormat::Block(Block::Q6K)),
    ("int8", WeightFormat::Scaled(Scaled { codes: Codes::I8, scales: Scales::F16, group: 32, zeros: false })),
    ("int4", WeightFormat::Scaled(Scaled { codes: Codes::U4, scales: Scales::F16, group: 128, zeros: false })),
    ("fp8", WeightFormat::Scaled(Scaled { codes: Codes::E4m3, scales: Scales::F32, group: 128, zeros: false })),
];

fn main() {
    // cargo adds an argument of its own.
    let arguments: Vec<String> = std::env::args().skip(1).filter(|argument| argument != "--bench").collect();
    let [isa, coding, tokens, times] = arguments.as_slice() else {
        // Without arguments it is one of the programs that `cargo bench` runs.
        return println!("instructions: ISA CODING TOKENS TIMES, under a simulator that counts");
    };
    let isa = *Isa::available().iter().find(|i| i.name() == isa).expect("an instruction set that there is");
    let coding = CODINGS.iter().find(|(name, _)| name == coding).expect("a coding").1;
    let [tokens, times] = [tokens, times].map(|number| number.parse::<usize>().expect("a number"));

    let cpu = &mut Cpu::new(1, isa);
    let weight = cpu.matrix(&[matrix(coding)]).expect("a matrix");
    let [mut x, mut out] = [INPUTS, OUTPUTS].map(|cols| cpu.tensor(tokens, cols).expect("a tensor"));
    x.set_rows(tokens);
    out.set_rows(tokens);
    x.values_mut().fill(0.5);
    for _ in 0..times {
        ops::linear(cpu, &mut out, LayerInput::new(&x, &weight, None), 0..OUTPUTS);
    }
}

/// Weights whose bytes repeat, because making random ones would take longer than the layer. Read as any coding, they are finite numbers.
fn matrix(coding: WeightFormat) -> HostMatrix {
    let plane = |row_bytes: usize| HostBytes::owned(vec![0x3a; OUTPUTS * row_bytes].into());
    let scales = plane(coding.scale_bytes(INPUTS));
    HostMatrix::scaled(
        plane(coding.row_bytes(INPUTS)),
        scales,
        plane(coding.zero_bytes(INPUTS)),
        coding,
        OUTPUTS,
        INPUTS,
    )
}
